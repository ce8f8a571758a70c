"""How the best parameters are looked for: method, starts, steps, and when to stop."""

from dataclasses import dataclass
from typing import Literal, get_args

from triptych.core.validation import (
    Number,
    UserError,
    as_count,
    as_flag,
    as_number,
    as_seed,
    set_fields,
    shown,
)

Method = Literal["both", "em", "gradient"]


@dataclass(frozen=True)
class Search:
    """method          "em", "gradient" (L-BFGS on logits) or "both": EM first, gradients to the end
    restarts        starts, each from a seed of its own; a `start` of yours is the first
    seed            the first of these seeds; rows that are held out depend on it too
    max_steps       steps of each start
    tolerance       a start is over when less than this is still to gain, nats per shown token
    batch           rows of a step of stepwise EM, which then comes before EM; None: all rows
    standard_errors whether to compute them: twice as many passes over the data as parameters

    Worked value: Search(restarts=1, tolerance=0, max_steps=5) is five steps from one start.
    """

    method: Method = "both"
    restarts: int = 5
    seed: int = 0
    max_steps: int = 1000
    tolerance: float = 1e-7
    batch: int | None = None
    standard_errors: bool = True

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise UserError(
                f"method is {shown(self.method)}; it must be 'both', 'em' or 'gradient'",
                parameter="method",
            )
        batch = self.batch
        set_fields(
            self,
            restarts=as_count("restarts", self.restarts, at_least=1, at_most=10_000),
            seed=as_seed(self.seed, at_most=2**62),
            max_steps=as_count("max_steps", self.max_steps, at_least=1, at_most=10**9),
            tolerance=as_number("tolerance", self.tolerance, at_least=0),
            batch=None if batch is None else as_count("batch", batch, at_least=1),
            standard_errors=as_flag("standard_errors", self.standard_errors),
        )
        if self.batch is not None and self.method == "gradient":
            raise UserError(
                "batch is for EM, alone or first: a gradient reads all rows", parameter="batch"
            )


def as_search(search: "Search | None") -> Search:
    """The settings, or the defaults."""
    if search is None:
        return Search()
    if not isinstance(search, Search):
        raise UserError(
            f"search is {shown(search)}; it must be a Search, such as Search(restarts=20)",
            parameter="search",
        )
    return search


def as_share(held_out: Number) -> float:
    """The share of rows that are held out, from 0 to below 1."""
    return as_number("held_out", held_out, at_least=0, below=1)

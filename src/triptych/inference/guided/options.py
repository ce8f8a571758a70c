"""Options that several algorithms have, as a user gives them, checked and clean."""

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.display import counted
from triptych.core.protocols import Decoder, Draws, Ends, UsedOnce
from triptych.core.table import Table
from triptych.core.validation import (
    Count,
    EndTokens,
    Number,
    UserError,
    as_count,
    as_end_token,
    as_integers,
    as_probability,
    as_size,
    check_can,
    shown,
)
from triptych.inference.guided.costs import Budget

MAX_COPIES = 2**24
"""Rows that are grown together: all candidates of a batch."""
MAX_LIMIT = 2**62
"""Of what tensors of 64-bit integers count up to."""

MAX_PATHS = 2**20
"""That a law found by following every choice may have."""


def as_limit(name: str, value: Count, *, at_least: int) -> int:
    """A whole number that is counted up to, or down from, in a tensor."""
    return as_count(name, value, at_least=at_least, at_most=MAX_LIMIT)


Lengths = Count | Sequence[Count]
"""Tokens of a full row, prompt included: one number for all rows, or one for each."""


def as_lengths(length: Lengths, start: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
    """The full length of every row; none is shorter than its prompt."""
    start = as_integers("start", start, dimensions=1)
    if isinstance(length, Sequence):
        limits = torch.tensor([as_size("length", each, at_least=0) for each in length])
        limits = limits.to(start)
        if limits.shape != start.shape:
            raise UserError(
                f"length has {counted(len(limits), 'number')} for {counted(len(start), 'row')}; "
                "each row has one",
                parameter="length",
            )
    else:
        limits = torch.full_like(start, as_size("length", length, at_least=0))
    if (short := limits < start).any():
        row = int(short.nonzero()[0])
        raise UserError(
            f"length is {int(limits[row])}, and a prompt has {int(start[row])} tokens already",
            parameter="length",
        )
    return limits


def as_copies(n: Count, rows: int = 1) -> int:
    """How many candidates each of `rows` rows has; all of them are held at once."""
    copies = as_count("n", n, at_least=1)
    if copies * rows > MAX_COPIES:
        raise UserError(
            f"n is {copies}, so that {rows} rows would have {copies * rows} candidates; at most "
            f"{MAX_COPIES} are grown together",
            parameter="n",
        )
    return copies


def log_threshold(threshold: Number) -> float:
    """log of a probability below which a verifier's answer is a refusal."""
    probability = as_probability("threshold", threshold)
    return math.log(probability) if probability > 0 else -math.inf


def end_set(
    end_token: EndTokens | None, vocab_size: int, *, name: str = "end_token"
) -> frozenset[int]:
    """All tokens that end a string, for the laws that are found by recursion."""
    ends = as_end_token(end_token, vocab_size, name=name)
    return frozenset(() if ends is None else (ends,) if isinstance(ends, int) else ends)


def check_choice(name: str, value: str, known: Sequence[str]) -> None:
    """`value` is one of the known words."""
    if not isinstance(value, str) or value not in known:
        raise UserError(
            f"{name} is {shown(value)}; it must be one of {', '.join(map(repr, known))}",
            parameter=name,
        )


def path_counter() -> Callable[[], None]:
    """To be called for every path of a law; a law with too many is refused."""
    passed = itertools.count(1)

    def count() -> None:
        if next(passed) > MAX_PATHS:
            raise UserError(
                f"this law has more than {MAX_PATHS} paths, too many to follow each of them; make "
                "the strings shorter, or the other numbers smaller"
            )

    return count


def check_full_length(verifier: object) -> None:
    """For laws of strings that all have their full length: the verifier ends none of them."""
    if isinstance(verifier, Ends):
        raise UserError(
            f"verifier is a {type(verifier).__name__} that ends texts early, and this law is of "
            "strings of full length; exact_law of a program that calls `sample` has the law",
            parameter="verifier",
        )


def check_parts(decoder: Decoder | Draws, budget: Budget | None) -> None:
    """What an algorithm is given can be asked what it will be asked."""
    if not isinstance(decoder, Draws) and not hasattr(decoder, "next_log_probs"):
        raise UserError(
            f"decoder is a {type(decoder).__name__}; it must be a batch of growing prefixes: "
            "RecomputingDecoder(model, batch) makes one of any model",
            parameter="decoder",
        )
    check_can("decoder", decoder, "append", "rollback", "fork")
    if isinstance(decoder, UsedOnce) and decoder.used:
        raise UserError(
            "this decoder was used by an earlier generation; make a new one with the prompts, or "
            "fork it before: decoder.fork(rows)",
            parameter="decoder",
        )
    if budget is not None and not isinstance(budget, Budget):
        raise UserError(
            f"budget is {shown(budget)}; it must be a Budget(tokens=...), or None",
            parameter="budget",
        )


def check_table(lm: Table) -> None:
    """Laws in closed form sum over a table."""
    if not isinstance(lm, Table):
        raise UserError(
            f"lm is a {type(lm).__name__}; it must be a Table: Table.of(lm) makes one",
            parameter="lm",
        )

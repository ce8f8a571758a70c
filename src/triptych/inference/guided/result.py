"""What a generation gives back: the rows, what was said of them, and what happened."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.deprecation import renamed_names
from triptych.core.display import card, counted, facts_table, records_table
from triptych.inference.guided.costs import Costs

__getattr__ = renamed_names(__name__, Particles="ParticleSet")

Action = Literal[
    "draw", "argmax", "accept", "reject", "backtrack", "restart", "choose", "down", "up", "stay"
]

InfoT = TypeVar("InfoT")
_SHOWN = 10  # rows on a page


class Reason(StrEnum):
    """Why a row is not complete."""

    ATTEMPTS = "attempts used up"
    TRIES = "tries used up"
    STEPS = "steps used up"
    PARTICLES = "every particle was refused"
    NOTHING = "nothing can follow"
    TOKENS = "token budget used up"
    QUESTIONS = "verifier budget used up"
    TIME = "time budget used up"
    VERIFIER = "the verifier failed"
    LEFT = "left unfinished by the algorithm"


class Event(NamedTuple):
    """One thing that happened to one row.

    tokens       what the row has generated after it (or, for "reject", with the refused token)
    log_value    what the verifier said, where it was asked
    generator_calls, verifier_calls   of this row so far
    prompt       how many tokens of the row's prompt stand before `tokens`
    """

    row: int
    action: Action
    tokens: tuple[int, ...]
    log_value: float | None
    generator_calls: int
    verifier_calls: int
    prompt: int


class Candidates(NamedTuple):
    """All strings that an algorithm chose among, n for each row of the batch.

    tokens, lengths   prompt and completion of each, -1 beyond its end
    log_values        log V of each; -inf too where the row stopped before the verifier was asked
    """

    tokens: Int[Tensor, "batch n t"]
    lengths: Int[Tensor, "batch n"]
    log_values: Float[Tensor, "batch n"]


class ParticleSet(NamedTuple):
    """All particles of each row of the batch, as they stood when one of them was drawn.

    tokens, lengths   prompt and completion of each, -1 beyond its end
    log_weights       log w of each, not normalised; their mean estimates the evidence
    """

    tokens: Int[Tensor, "batch n t"]
    lengths: Int[Tensor, "batch n"]
    log_weights: Float[Tensor, "batch n"]


@runtime_checkable
class Compared(Protocol):
    """The `Info` of an algorithm that chose among whole strings."""

    @property
    def candidates(self) -> Candidates: ...


@runtime_checkable
class Weighed(Protocol):
    """The `Info` of an algorithm that weighed particles.

    log_normaliser   the logarithm of the mean weight of each row
    """

    @property
    def particles(self) -> ParticleSet: ...

    @property
    def log_normaliser(self) -> Float[Tensor, " batch"]: ...


@dataclass(frozen=True, eq=False)
class Result(Generic[InfoT]):
    """What came out.

    tokens, lengths   prompt and completion of every row, -1 beyond a row's end
    trace             every event in order, empty unless `record=True`
    complete          the row ended or has its full length, and the algorithm was done with it
    verified          the verifier was asked about the row as it stands, and the row is complete
    accepted          and it accepted the row: V ≥ threshold, or V > 0 where there is no threshold.
                      A row that was never shown to the verifier is not accepted: nobody asks it
                      only to fill this column
    reasons           why each row is not complete (a `Reason`), None for one that is
    info              what the algorithm says besides: its own `Info`, or None
    """

    tokens: Int[Tensor, "batch t"]
    lengths: Int[Tensor, " batch"]
    trace: tuple[Event, ...]
    costs: Costs
    prompt_lengths: Int[Tensor, " batch"]
    complete: Bool[Tensor, " batch"]
    verified: Bool[Tensor, " batch"]
    accepted: Bool[Tensor, " batch"]
    reasons: tuple[str | None, ...]
    info: InfoT

    def completions(self) -> list[tuple[int, ...]]:
        """What each row generated, without its prompt."""
        rows = zip(
            self.tokens.tolist(), self.prompt_lengths.tolist(), self.lengths.tolist(), strict=True
        )
        return [tuple(row[start:end]) for row, start, end in rows]

    def __repr__(self) -> str:
        rows = counted(len(self.lengths), "row")
        return (
            f"Result({rows}, {int(self.complete.sum())} complete, {int(self.accepted.sum())} "
            f"accepted, {int(self.costs.generator_calls.sum())} generator calls)"
        )

    def _repr_html_(self) -> str:
        """For a notebook: a line for each of the first rows, and the costs of all."""
        facts = {
            name.replace("_", " "): f"{value:.3g}" if isinstance(value, float) else value
            for name, value in self.costs.totals().items()
        }
        lines = [
            [
                row,
                " ".join(map(str, completion)),
                "complete" if self.complete[row] else self.reasons[row] or "",
                "accepted" if self.accepted[row] else "",
                int(self.costs.generator_calls[row]),
                int(self.costs.verifier_calls[row]),
            ]
            for row, completion in enumerate(self.completions()[:_SHOWN])
        ]
        more = len(self.lengths) - len(lines)
        columns = ("row", "completion", "", "", "generator calls", "verifier calls")
        table = records_table(columns, lines, f"and {more} more" if more else "")
        return card(repr(self), table, facts_table(facts))


class VerifierError(RuntimeError):
    """The verifier failed.

    prefix    what it was asked about
    partial   what there was so far: the rows, or their candidates
    owner     the row of the batch that each row of `partial` works for
    """

    def __init__(
        self,
        sentence: str,
        prefix: tuple[int, ...],
        partial: Result[None],
        owner: Int[Tensor, " rows"],
    ) -> None:
        super().__init__(sentence)
        self.prefix, self.partial, self.owner = prefix, partial, owner

"""What the units of `query_complexity` are, and the rows that they give."""

from dataclasses import dataclass

from triptych.studies.api.study import Unit


@dataclass(frozen=True)
class AskHidden(Unit):
    """Searchers for the hidden string of D bits.

    runs, secrets   runs of each algorithm; a searcher in a fixed order meets this many secrets
    """

    depth: int
    runs: int
    secrets: int


@dataclass(frozen=True)
class LeastQuestions(Unit):
    """The best possible search for the hidden string, if the even bit is rare."""

    depth: int


@dataclass(frozen=True)
class HitZeros(Unit):
    """Rejection and tokenwise rejection until 0^D comes out."""

    depth: int
    runs: int


@dataclass(frozen=True)
class Enumerate(Unit):
    """The law of tokenwise rejection by enumeration."""

    depth: int


@dataclass(frozen=True)
class SolveSums(Unit):
    """Subset sum by constrained generation; weights are at most 2^min(D, weights)."""

    depth: int
    instances: int
    weights: int


QueryUnit = AskHidden | LeastQuestions | HitZeros | Enumerate | SolveSums


@dataclass(frozen=True)
class Hidden:
    """Questions of one algorithm on the oracle of the proof.

    expected    by its formula
    printed     2^(D-1)
    optimum     the fewest that any algorithm needs on this oracle
    searched    the same by going through all strategies; None where there are too many
    """

    depth: int
    algorithm: str
    expected: float
    questions: tuple[float, ...]
    printed: float
    optimum: float
    searched: float | None


@dataclass(frozen=True)
class RareEven:
    """The fewest questions if the bit after the hidden string is even with this probability.

    optimum     by its formula
    at_least    a lower bound by going through all strategies; None where there are too many
    """

    depth: int
    probability: float
    optimum: float
    at_least: float | None


@dataclass(frozen=True)
class SubsetSum:
    """One instance, by generation with the process verifier and by trying all subsets.

    right                   nothing, or a solution
    rejection_calls         expected, with a membership test alone; None if there is no solution
    membership_operations   of one membership test
    """

    depth: int
    solvable: bool
    answered: bool
    right: bool
    calls: int
    membership_operations: int
    rejection_calls: float | None


@dataclass(frozen=True)
class Calls:
    """Calls of the model in every run until 0^D comes out, and what is expected exactly."""

    depth: int
    rejection_calls: tuple[float, ...]
    tokenwise_calls: tuple[float, ...]
    rejection_expected: float
    tokenwise_expected: float


@dataclass(frozen=True)
class TokenwiseLaw:
    """The probability of 1…10 under tokenwise rejection and under the restricted law."""

    depth: int
    special_probability: float
    restricted_probability: float
    total_variation: float


Row = Hidden | RareEven | SubsetSum | Calls | TokenwiseLaw

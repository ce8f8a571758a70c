"""The conditions of two stages as checks on the runs of a setting; which setting is clearest."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from triptych.core.estimates import Status
from triptych.studies.api.decide import Check, above, below
from triptych.studies.topics.shared.runs import mean_of_runs
from triptych.studies.topics.shared.stages import EARLY, GROWN, HALF, SMALL, Stages

Key = TypeVar("Key")


def checks_of(
    found: Sequence[Stages], confidence: float, *, fewest: int = 5, switch: float = 0.4
) -> tuple[Check, ...]:
    """The four conditions on the runs of one setting; `switch` is the published one."""
    return (
        below(
            "clearest setting: norm of W^K or W^Q, the larger, divided by that of W^V, once W^V "
            "has 80 % of its growth",
            mean_of_runs([each.size for each in found], fewest=fewest, confidence=confidence),
            SMALL,
        ),
        below(
            "clearest setting: share of its growth that W^K or W^Q, the larger, has made when W^V "
            "has made 80 %",
            mean_of_runs([each.early for each in found], fewest=fewest, confidence=confidence),
            EARLY,
        ),
        below(
            "clearest setting: step at which W^V has 80 % of its growth, as a share of all steps",
            mean_of_runs([each.when for each in found], fewest=fewest, confidence=confidence),
            HALF,
            published=switch,
        ),
        above(
            "clearest setting: times by which the norms of W^K and W^Q grow, the smaller of the "
            "two",
            mean_of_runs([each.grown for each in found], fewest=fewest, confidence=confidence),
            GROWN,
        ),
    )


def clearest(
    found: Mapping[Key, Sequence[Stages]],
    confidence: float,
    *,
    fewest: int = 5,
    switch: float = 0.4,
) -> tuple[Key, tuple[Check, ...]]:
    """The setting with the clearest stages, and its checks."""
    tried = {
        key: checks_of(some, confidence, fewest=fewest, switch=switch)
        for key, some in found.items()
    }
    return max(tried.items(), key=lambda item: clearness(item[1]))


def rank(checks: Sequence[Check]) -> int:
    """0 if a condition fails, 1 if one is undecided, else 2."""
    outcomes = {check.outcome for check in checks}
    return 0 if Status.FAILS in outcomes else 1 if Status.UNDECIDED in outcomes else 2


def clearness(checks: Sequence[Check]) -> tuple[int, float]:
    """Settings that hold come before undecided ones and these before those that fail.

    Among equals: the worst of the conditions, as a multiple of its limit, is smallest.
    """
    size, early, when, grown = (check.value for check in checks)
    return rank(checks), -max(size / SMALL, early / EARLY, when / HALF, GROWN / max(grown, 1e-9))


def run_clearness(found: Stages) -> float:
    """0 at a perfect run, lower for others: the worst condition as a multiple of its limit."""
    return -max(
        found.size / SMALL, found.early / EARLY, found.when / HALF, GROWN / max(found.grown, 1e-9)
    )

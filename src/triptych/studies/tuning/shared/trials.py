"""Trials on pretrained networks: what every row says, and which of them are compared.

A trial is an HMM, a network pretrained on it and a task. Two rules pick the trials, and neither
looks at what heads and prompts reach:

- Of several learning rates of the pretraining, the one whose networks came closest to the truth.
- Networks that have left their plateau. A masked LM first learns how frequent tokens are, and may
  stay there for long; nothing can be read from such a network, so it says nothing about heads
  and prompts.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from triptych.core.estimates import Estimate, mean
from triptych.studies.api.decide import Check, at_edge, shown
from triptych.studies.api.summaries import difference, scaled

PLATEAU = 0.5  # of the KL of a law that does not look at the input
CEILING = 99.5  # per cent: mean accuracy of a head from which on there is nothing left to win


@dataclass(frozen=True)
class OnNetwork:
    """A task on a network; accuracies are shares of the test inputs.

    states         of the HMM; |M| |H| where it has a memory
    learning_rate  of the pretraining
    draws          how often the task was drawn, until both labels occurred
    majority       accuracy of always saying the most frequent label
    kl_first       KL(truth ‖ network) at the hidden first position, in nats
    kl_constant    the same for the best law that does not look at the input
    exact_head     accuracy of the best linear head on the exact law, without a network
    """

    states: int
    seed: int
    learning_rate: float
    draws: int
    majority: float
    kl_first: float
    kl_constant: float
    exact_head: float

    @property
    def trial(self) -> tuple[str | int, ...]:
        """What the networks of all learning rates share."""
        return (self.states, self.seed)

    @property
    def on_plateau(self) -> bool:
        """Whether the network is hardly closer to the truth than a law that ignores the input."""
        return self.kl_first > PLATEAU * self.kl_constant


RowT = TypeVar("RowT", bound=OnNetwork)


def best_rate(rows: Sequence[RowT]) -> list[RowT]:
    """The rows of the learning rate whose networks came closest to the truth.

    Rates are compared on the trials that all of them have, so that a rate that has only begun
    does not win by its easy trials; when there are none, the rate with most trials stands.
    """
    found: dict[float, dict[tuple, float]] = {}
    for row in rows:
        found.setdefault(row.learning_rate, {})[row.trial] = row.kl_first
    if len(found) < 2:
        return list(rows)
    common = set.intersection(*(set(trials) for trials in found.values()))

    def distance(rate: float) -> float:
        trials = found[rate]
        return sum(trials[trial] for trial in common) if common else -float(len(trials))

    best = min(sorted(found), key=distance)
    return [row for row in rows if row.learning_rate == best]


def off_plateau(rows: Iterable[RowT]) -> list[RowT]:
    """The trials whose network can be read from. A nan counts as one: it must not vanish."""
    return [row for row in rows if not row.on_plateau]


def left_out(rows: Sequence[OnNetwork]) -> Check:
    """The line of a verdict that counts those that cannot."""
    stuck = sum(row.on_plateau for row in rows)
    return shown(
        "networks left out because they know little more than how frequent tokens are (plateau)",
        float(stuck),
    )


def sizes_of(rows: Iterable[OnNetwork]) -> list[int]:
    """The hidden sizes of these trials, the smallest first."""
    return sorted({row.states for row in rows})


def points(shares: Sequence[float]) -> Estimate:
    """The mean in per cent, with its 95 % interval; nan without values, or where one is nan."""
    if not shares or any(math.isnan(share) for share in shares):
        return Estimate(math.nan, math.nan, math.nan, len(shares))
    return scaled(mean(shares), 100.0)


def unless_at_ceiling(check: Check, where: str, opponent: Sequence[float]) -> Check:
    """The check; an edge of the statement where the opponent's accuracies leave nothing to win.

    The verdict then says "except there" if the check fails, and does not fail by it.
    """
    if points(opponent).value >= CEILING:
        return at_edge(f"{where}, where the linear head is at its ceiling", check)
    return check


def rounded(shares: Sequence[float]) -> float | None:
    """The mean in per cent to one digit, as the source's figures are read; None without values."""
    return round(points(shares).value, 1) if shares else None


def gap(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """The mean of `first` minus that of `second`, in points; nan where one of them has none."""
    a, b = points(first), points(second)
    if math.isnan(a.value) or math.isnan(b.value):
        return Estimate(math.nan, math.nan, math.nan, a.n + b.n)
    return scaled(difference(first, second), 100.0)

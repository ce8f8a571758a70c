"""When the training of W^V comes first, and that of W^K and W^Q after it [li, 2.1.4.1, 2.1.6.1].

The norms of the three matrices over the steps of one run. Growth is counted from the first norm to
the largest:

    growth(t) = (‖W_t‖ - ‖W_0‖) / (max_s ‖W_s‖ - ‖W_0‖)

and the switch is the step at which W^V has made 80 % of its growth. In two stages

    at the switch W^K and W^Q are small: a fifth of the norm of W^V at most,
    they have made at most a fifth of their own growth by then,
    the switch lies in the first half, so that W^V is at least four times slower after it,
    and W^K and W^Q do grow, to twice their first norms or more.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from triptych.core.validation import UserError

FIRST = 0.8  # of the growth of W^V: the switch
SMALL = 0.2  # of the norm of W^V at the switch, at most, for W^K and W^Q
EARLY = 0.2  # of their own growth by the switch, at most
HALF = 0.5  # of the steps: the switch is not later
GROWN = 2.0  # times their first norms, at least, for W^K and W^Q


class Stages(NamedTuple):
    """The stages of one run.

    switch      the step at which W^V has made 80 % of its growth
    when        the switch as a share of all steps
    size        the larger norm of W^K and W^Q over that of W^V, at the switch
    early       share of its own growth that W^K or W^Q has made by the switch, the larger
    grown       the largest norm of W^K or W^Q over its first, the smaller
    """

    switch: float
    when: float
    size: float
    early: float
    grown: float

    @property
    def two(self) -> bool:
        """Whether this run has two stages."""
        small = self.size < SMALL and self.early < EARLY
        return small and self.when < HALF and self.grown > GROWN


def stages(
    steps: Sequence[float],
    key: Sequence[float],
    query: Sequence[float],
    value: Sequence[float],
) -> Stages:
    """The norms of a run at some steps, in order, the first of them before training.

    Between kept steps norms are interpolated. Worked value: steps 0, 1, 2, 3; keys and queries 1,
    1, 2, 5; values 1, 10, 10.5, 11. W^V has made 80 % of its growth of 10, to 9, at step 8/9, where
    keys are still 1: size 1/9, early 0, when 8/27, grown 5: two stages.
    """
    if len(steps) < 2 or any(b <= a for a, b in pairwise(steps)):
        raise UserError("stages needs the norms at two steps or more, in rising order")
    switch = _first_at(steps, growth(value), FIRST)
    attention = max(_at(steps, norm, switch) for norm in (key, query))
    return Stages(
        switch=switch,
        when=(switch - steps[0]) / (steps[-1] - steps[0]),
        size=_over(attention, _at(steps, value, switch)),
        early=max(_at(steps, growth(norm), switch) for norm in (key, query)),
        grown=min(_over(max(norm), norm[0]) for norm in (key, query)),
    )


def _over(a: float, b: float) -> float:
    """a / b of norms; a matrix that starts at 0 has grown without bound, or not at all."""
    return a / b if b else math.inf if a else 1.0


def growth(norms: Sequence[float]) -> list[float]:
    """From 0 at the first norm to 1 at the largest; all 0 if nothing grows."""
    first, most = norms[0], max(norms)
    return [(norm - first) / (most - first) if most > first else 0.0 for norm in norms]


def step_of_growth(steps: Sequence[float], norms: Sequence[float], share: float) -> float:
    """The first step at which a share of the growth is made; the last if nothing grows.

    Worked value: norms 1, 2, 5 at steps 0, 10, 20 make 20 % of their growth of 4, to 1.8, at 8.
    """
    return _first_at(steps, growth(norms), share)


def _first_at(steps: Sequence[float], values: Sequence[float], level: float) -> float:
    """The first step at which a level is reached, between kept steps; the last if it never is."""
    for (s, a), (t, b) in pairwise(zip(steps, values, strict=True)):
        if a < level <= b:
            return s + (t - s) * (level - a) / (b - a)
    return steps[-1]


def _at(steps: Sequence[float], values: Sequence[float], step: float) -> float:
    """The value at a step, between kept ones."""
    for (s, a), (t, b) in pairwise(zip(steps, values, strict=True)):
        if s <= step <= t:
            return a + (b - a) * (step - s) / (t - s)
    return values[-1]

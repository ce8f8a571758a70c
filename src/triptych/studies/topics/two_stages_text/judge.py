"""In some setting W^K and W^Q of every layer start much later than W^V [li, Figure 2.9].

What the caption says, of every layer. With growth counted from the first norm to the largest, a
matrix has started when it has made 20 % of its growth:

    W^K and W^Q start after more than twice as many steps as W^V
    and grow to more than twice their first norms,
    and W^V turns faster before they start than after.

The source says that the stages are approximate and depend on rates and initial scale, so one
setting is enough. To refute, every setting must fail, and some of them must be long, or show W^K
and W^Q of every layer grow.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from triptych.core.estimates import Status
from triptych.studies.api.decide import Check, Verdict, above, at_least, decide, shown
from triptych.studies.api.study import Rows
from triptych.studies.topics.shared.runs import mean_of_runs
from triptych.studies.topics.shared.stages import step_of_growth
from triptych.studies.topics.two_stages_text.rows import Diverged, LayerCurves, Setting

Row = LayerCurves | Diverged

RUNS = 3  # of a setting, before it counts
SETTINGS = 12  # fewest that refute: a claim that some setting has stages needs many
LONG, TOLD = 5000, 6  # fewest settings of this many steps, or in which W^K and W^Q grow
START = 0.2  # of its growth: a matrix has started
LATER = 2.0  # times the steps that W^V needs
DOUBLINGS = 1.0  # of the norms of W^K and W^Q


class Order(NamedTuple):
    """The stages of one layer, or of the worst layer in each.

    value       the step at which W^V has started
    later       the step at which W^K or W^Q has started, the earlier, over that of W^V
    doublings   log2 of the largest norm of W^K or W^Q over the first, the smaller
    turning     mean turn of W^V before that step over that after it; 1 where one is missing
    """

    value: float
    later: float
    doublings: float
    turning: float


def orders(row: LayerCurves) -> list[Order]:
    """The stages of every layer.

    Worked value: W^V has started at step 2, W^K and W^Q at 14 and 12: later is 6. Norms of W^K from
    0.1 to 0.8 are 3 doublings.
    """
    found = []
    for key, query, value, turns in zip(row.key, row.query, row.value, row.rotation, strict=True):
        first = step_of_growth(row.step, value, START)
        start = min(step_of_growth(row.step, norms, START) for norms in (key, query))
        timed = list(zip(row.step[1:], turns, strict=True))
        early = [turn for step, turn in timed if step <= start]
        late = [turn for step, turn in timed if step > start]
        turning = 1.0
        if early and late and sum(late):
            turning = sum(early) / len(early) / (sum(late) / len(late))
        doublings = min(_doublings(norms) for norms in (key, query))
        found.append(Order(first, start / first if first else math.inf, doublings, turning))
    return found


def _doublings(norms: Sequence[float]) -> float:
    return math.log2(max(norms) / norms[0]) if norms[0] else math.inf


def worst_layer(row: LayerCurves) -> Order:
    """The latest start of W^V, and the least of the rest."""
    each = orders(row)
    return Order(max(o.value for o in each), *(min(o[i] for o in each) for i in (1, 2, 3)))


def by_setting(rows: Sequence[LayerCurves]) -> dict[Setting, list[LayerCurves]]:
    """Runs of each optimiser, rate, scale and number of steps."""
    found: dict[Setting, list[LayerCurves]] = {}
    for row in rows:
        found.setdefault(row.setting, []).append(row)
    return found


def checks_of(found: Sequence[Order], confidence: float) -> tuple[Check, ...]:
    """The three conditions on the runs of one setting."""

    def mean(values: Sequence[float]):
        return mean_of_runs(values, fewest=RUNS, confidence=confidence)

    return (
        above(
            "clearest setting: steps until W^K or W^Q has 20 % of its growth, divided by those "
            "until W^V has, worst layer",
            mean([each.later for each in found]),
            LATER,
        ),
        above(
            "clearest setting: times that the norms of W^K and W^Q double, worst layer",
            mean([each.doublings for each in found]),
            DOUBLINGS,
        ),
        above(
            "clearest setting: how fast W^V turns before W^K or W^Q starts, divided by how fast "
            "after, worst layer",
            mean([each.turning for each in found]),
            1.0,
        ),
    )


def clearness(checks: Sequence[Check]) -> tuple[int, float]:
    """Settings that hold come before undecided ones and these before those that fail.

    Among equals: the least of the conditions, as a multiple of its limit, is largest.
    """
    outcomes = {check.outcome for check in checks}
    rank = 0 if Status.FAILS in outcomes else 1 if Status.UNDECIDED in outcomes else 2
    later, doublings, turning = (check.value for check in checks)
    return rank, min(later / LATER, doublings / DOUBLINGS, turning)


def clearest(
    found: Mapping[Setting, Sequence[Order]], confidence: float
) -> tuple[Setting, tuple[Check, ...]]:
    """The setting with the clearest order, and its checks."""
    tried = {key: checks_of(some, confidence) for key, some in found.items()}
    return max(tried.items(), key=lambda item: clearness(item[1]))


def judge(rows: Rows[Row]) -> Verdict:
    """The clearest setting decides; its confidence is corrected for the choice, if it may hold."""
    groups = {
        key: some for key, some in by_setting(rows.of(LayerCurves)).items() if len(some) >= RUNS
    }
    enough = at_least(f"settings with {RUNS} runs", len(groups), SETTINGS)
    if not groups:
        return decide(needs=[enough])
    found = {key: [worst_layer(row) for row in some] for key, some in groups.items()}
    chosen, checks = clearest(found, 0.95)
    if clearness(checks)[0] > 0:
        chosen, checks = clearest(found, 1 - 0.05 / (3 * len(groups)))
    told = at_least(
        "settings in which W^K and W^Q of all layers grow to twice their first norms, or of "
        f"{LONG:,} steps",
        sum(
            key.steps >= LONG or all(o.doublings > DOUBLINGS for o in some)
            for key, some in found.items()
        ),
        TOLD,
    )
    every = [order for some in groups.values() for row in some for order in orders(row)]
    both = sum(o.later > LATER and o.doublings > DOUBLINGS for o in every) / len(every)
    fell = sum(row.first_loss - row.last_loss for row in groups[chosen]) / len(groups[chosen])
    return decide(
        *checks,
        shown(
            "clearest setting: step at which W^V has 20 % of its growth, latest layer",
            sum(o.value for o in found[chosen]) / len(found[chosen]),
        ),
        shown("clearest setting: by how much the training loss fell, nats", fell),
        shown(
            "share of all layers of all runs that meet the conditions on steps and on doubling",
            both,
        ),
        needs=[] if clearness(checks)[0] == 2 else [enough, told],
        measured={"settings": len(groups), "clearest": str(chosen)},
    )


# Norms at steps 0, 40, …, 400: W^V rises until 100, W^K and W^Q only after that.
_LATE = (0.1, 0.1, 0.1, 0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
_RISING = (0.1, 2.0, 3.6, 4.1, 4.2, 4.2, 4.3, 4.3, 4.3, 4.4, 4.4)
_TURNS = (0.5, 0.3, 0.2, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01)


def _curves(seed: int, rate: float, steps: int) -> LayerCurves:
    factor = 1 + 0.0001 * seed
    return LayerCurves(
        seed=seed,
        corpus="docstrings",
        optimiser="sgd",
        learning_rate=rate,
        init_scale=0.001,
        first_loss=7.0,
        last_loss=5.0,
        step=tuple(steps / 10 * i for i in range(11)),
        key=(_LATE,) * 4,
        query=(_LATE,) * 4,
        value=tuple(tuple(factor * norm for norm in _RISING) for _ in range(4)),
        rotation=tuple(tuple(factor * turn for turn in _TURNS) for _ in range(4)),
    )


HELD = [
    _curves(seed, 0.1 * i, 400 if i <= SETTINGS // 2 else 8000)
    for i in range(1, SETTINGS + 1)
    for seed in range(RUNS)
]


def _last_layer(
    *,
    key: Sequence[float] = _LATE,
    value: Sequence[float] = _RISING,
    turns: Sequence[float] = _TURNS,
) -> list[Row]:
    """Every run with another last layer: all layers must have two stages."""
    found: list[Row] = []
    for row in HELD:
        factor = 1 + 0.0001 * row.seed
        norms = (*row.key[:-1], tuple(key))
        found.append(
            replace(
                row,
                key=norms,
                query=norms,
                value=(*row.value[:-1], tuple(factor * norm for norm in value)),
                rotation=(*row.rotation[:-1], tuple(factor * turn for turn in turns)),
            )
        )
    return found


REFUTED = [
    _last_layer(key=(0.1, 0.3, 0.4, 0.4, 0.4, 0.5, 0.5, 0.6, 0.6, 0.7, 0.7)),  # W^K starts with W^V
    _last_layer(key=(*[0.1] * 6, 0.11, 0.12, 0.12, 0.13, 0.13)),  # W^K stays
    _last_layer(turns=_TURNS[::-1]),  # W^V turns at the end
    _last_layer(key=_RISING),  # all three alike
]

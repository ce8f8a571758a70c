"""The judges of `exact_masking` on samples, with rows that hold and rows that refute."""

import math
from collections.abc import Sequence
from dataclasses import replace

from triptych.core.estimates import Estimate, proportion
from triptych.studies.api.decide import (
    EXACT,
    Verdict,
    above,
    at_least,
    below,
    decide,
    exactly,
    largest,
    shown,
)
from triptych.studies.api.study import Claim, Rows
from triptych.studies.masking.exact_masking.beside import models_needed, most_beside
from triptych.studies.masking.exact_masking.rows import (
    READINGS,
    Bounded,
    Estimates,
    OneParameter,
    Row,
    Tensorised,
)

INFORMATIVE = 3  # settings, in each reading of the loss, in which every right side is below 1
PROVED = 10**12  # n at which the law of one estimate is compared with its limit,
NEAR = 1e-4  # and how near it must be; the grid on which laws are compared adds 1/16384
NEAR_DRAWN = 0.05  # the same for drawn estimates, at the largest n,
LARGE = 1_000_000  # which is at least this
LABELS = dict(zip(READINGS, ("loss as defined", "loss of the proof"), strict=True))

# ------------------------------------------------------------------ finite samples


def judge_finite(rows: Rows[Row]) -> Verdict:
    """The inequality holds with probability 1 - δ, in both readings of the loss.

    Only rows whose smallest right side is below 1 in every sample: others say nothing. With the
    smallest right side the bound holds less often than as stated, with the largest more often: the
    interval runs from the low end of the one to the high end of the other. All intervals together
    have 95 per cent (Bonferroni), and each check shows the row that is worst.
    """
    every = rows.of(Bounded)
    telling = [row for row in every if row.below_one == row.repeats]
    sharp = [row for row in telling if row.largest_below_one == row.repeats]
    checks = []
    for reading, label in LABELS.items():
        for delta in sorted({row.delta for row in telling}):
            chosen = [r for r in telling if r.reading == reading and r.delta == delta]
            if not chosen:
                continue
            found = [_frequency(row, 1 - 0.05 / len(telling)) for row in chosen]
            sentence = (
                f"{label}, δ = {delta:g}: share of samples in which the bound holds, smallest"
            )
            checks.append(above(sentence, _worst(found, 1 - delta), 1 - delta))
    settings = {reading: _settings(telling, reading) for reading in READINGS}
    return decide(
        *checks,
        *most_beside(
            "distance to the truth, divided by the smallest bound: largest",
            [row.closest for row in telling],
        ),
        shown("settings in which the bound is 1 or more and says nothing", float(_empty(every))),
        needs=[
            at_least(
                "settings that say something, loss as defined", settings[READINGS[0]], INFORMATIVE
            ),
            at_least(
                "settings that say something, loss of the proof", settings[READINGS[1]], INFORMATIVE
            ),
            at_least(
                "settings in which even the largest right side is below 1",
                _settings(sharp, READINGS[1]),
                1,
            ),
        ],
    )


def _frequency(row: Bounded, confidence: float) -> Estimate:
    """How often the bound as stated holds: at least as often as with the smallest right side."""
    low = proportion(row.held, row.repeats, confidence=confidence)
    high = proportion(row.held_largest, row.repeats, confidence=confidence)
    return Estimate(low.value, low.low, high.high, row.repeats, confidence)


def _worst(found: Sequence[Estimate], limit: float) -> Estimate:
    """One that is below the limit, if there is one; else the one whose low end is least."""
    return min(found, key=lambda estimate: (not estimate.high < limit, estimate.low))


def _settings(rows: Sequence[Bounded], reading: str) -> int:
    mine = [row for row in rows if row.reading == reading]
    return len({(row.model, row.law, row.n, row.radius) for row in mine})


def _empty(rows: Sequence[Bounded]) -> int:
    """Settings in which, in the reading of the proof, no δ has all right sides below 1."""
    proof = [row for row in rows if row.reading == READINGS[1]]
    telling = [row for row in proof if row.below_one == row.repeats]
    return _settings(proof, READINGS[1]) - _settings(telling, READINGS[1])


def judge_tensorised(rows: Rows[Row]) -> Verdict:
    """KL ≤ C_AT times the loss: refuted by a proved upper bound of C_AT, shown by a lower one."""
    every = rows.of(Tensorised)
    checks, needs = [], []
    for name, mine in (
        ("the truth", [row for row in every if row.sequences is None]),
        ("empirical laws", [row for row in every if row.sequences is not None]),
    ):
        for reading, label in LABELS.items():
            chosen = [row for row in mine if row.reading == reading]
            sentence = (
                f"{name}, {label}: KL(p, p_θ) divided by C_AT times the loss, largest excess over 1"
            )
            checks.append(exactly(sentence, largest([r.over_largest for r in chosen]) - 1))
        attained = sum(row.over_smallest <= 1 + EXACT for row in mine)
        needs += [
            models_needed([row.model for row in mine], f"models, {name}"),
            at_least(f"rows that hold with an attained value of C_AT, {name}", attained, len(mine)),
        ]
    return decide(
        *checks,
        *most_beside(
            "KL(p, p_θ) divided by the smallest bound that C_AT can give: largest",
            [r.over_smallest for r in every],
        ),
        needs=needs,
    )


# ------------------------------------------------------------------ the law of the estimate


def judge_normal(rows: Rows[Row]) -> Verdict:
    """The distance to the normal limit: bounded for one parameter, measured for all of them.

    The interval of a measured distance is that of Dvoretzky, Kiefer, Wolfowitz and Massart, 95 per
    cent for all directions and rows together.
    """
    proved, drawn = rows.of(OneParameter), rows.of(Estimates)
    last = [row for row in proved if row.n == PROVED and not row.adaptive]
    blind = [row for row in drawn if not row.adaptive]
    size = max((row.n for row in blind), default=0)
    chosen = [row for row in blind if row.n == size]
    comparisons = sum(row.comparisons for row in chosen)
    found = [_distance(row, comparisons) for row in chosen]
    checks = []
    for sentence, distances, near in (
        (
            "one parameter, n = 10¹² sequences: Kolmogorov distance of the estimate from its "
            "normal limit",
            _proved(last),
            NEAR,
        ),
        (
            "all parameters, largest n: Kolmogorov distance of the estimate from its normal limit",
            found,
            NEAR_DRAWN,
        ),
    ):
        if distances:
            checks.append(below(sentence, _furthest(distances, near), near))
    small = min((row.n for row in blind), default=0)
    return decide(
        *checks,
        *most_beside(
            "one parameter, n = 10⁴ sequences: Kolmogorov distance from the normal limit, at most",
            [row.at_most for row in proved if row.n == 10**4 and not row.adaptive],
        ),
        *most_beside(
            "all parameters, smallest n: Kolmogorov distance from the normal limit",
            [row.distance for row in blind if row.n == small and small < size],
        ),
        *most_beside(
            "all parameters, largest n: mean squared error divided by that of the limit, largest",
            [row.scale for row in chosen if row.scale is not None],
        ),
        *most_beside(
            "one parameter, n = 10¹², masks that look at the sequence: Kolmogorov distance, at "
            "most",
            [row.at_most for row in proved if row.n == PROVED and row.adaptive],
        ),
        needs=[
            models_needed([row.model for row in last], "models, one parameter"),
            models_needed([row.model for row in chosen], "models, all parameters"),
            at_least("sequences in the largest data sets", size, LARGE),
        ],
    )


def _furthest(found: Sequence[Estimate], near: float) -> Estimate:
    """One that is surely not near, if there is one; else the one whose high end is largest."""
    return max(found, key=lambda estimate: (estimate.low > near, estimate.high))


def _proved(rows: Sequence[OneParameter]) -> list[Estimate]:
    return [Estimate(row.at_most, row.at_least, row.at_most, row.n, 1.0) for row in rows]


def _distance(row: Estimates, comparisons: int) -> Estimate:
    reach = math.sqrt(math.log(2 * comparisons / 0.05) / (2 * row.repeats))
    low = max(0.0, row.distance - reach)
    return Estimate(row.distance, low, row.distance + reach, row.repeats)


# ------------------------------------------------------------------ rows made by hand

_BOUNDED = Bounded(
    model="chain 2 0.1",
    law="size 1",
    n=1_000,
    radius=0.3,
    reading="divergence",
    delta=0.1,
    repeats=100,
    held=100,
    held_largest=100,
    distance=0.02,
    smallest=0.2,
    largest=0.7,
    below_one=100,
    largest_below_one=100,
    closest=0.1,
)
_DEFINED = replace(_BOUNDED, reading="cross-entropy", smallest=0.9, largest=9.0)
_SAMPLES: list[Row] = [
    replace(row, n=n)
    for row in (_BOUNDED, replace(_DEFINED, largest_below_one=0))
    for n in (1_000, 10_000, 100_000)
]
_TENSORISED = Tensorised("chain 2 0.4", "size 1", None, "divergence", 50, 0.3, 0.9)
_LOSSES: list[Row] = [
    replace(_TENSORISED, model=model, sequences=sequences, reading=reading)
    for model in ("chain 2 0.4", "hmm 2")
    for sequences in (None, 10)
    for reading in READINGS
]
_ONE = OneParameter("chain 3 0.5", "size 1", False, 0, PROVED, 0.0, 6e-5)
_MANY = Estimates(
    model="chain 3 0.5",
    law="size 1",
    adaptive=False,
    seed=0,
    n=10**6,
    repeats=20_000,
    parameters=6,
    comparisons=22,
    without_estimate=0,
    distance=0.012,
    scale=1.0,
)
_NORMAL: list[Row] = [
    replace(row, model=model) for model in ("chain 3 0.5", "clique 4 0.3") for row in (_ONE, _MANY)
]

SAMPLE_CLAIMS: list[Claim[Row]] = [
    Claim(
        "li.lem-4.1.1",
        judge_normal,
        refuted_by=[
            # a limit with half of the variance: no estimate comes near to it at any n
            [*_NORMAL, replace(_ONE, at_least=0.08, at_most=0.0801)],
            [*_NORMAL, replace(_MANY, distance=0.08)],
        ],
        held_by=_NORMAL,
    ),
    Claim(
        "li.thm-4.1.4",
        judge_finite,
        refuted_by=[
            [*_SAMPLES, replace(row, n=10, held=40, held_largest=40)]
            for row in (_BOUNDED, _DEFINED)
        ],
        held_by=_SAMPLES,
    ),
    Claim(
        "li.prop-4.3.1",
        judge_tensorised,
        refuted_by=[
            [*_LOSSES, replace(_TENSORISED, sequences=n, reading=reading, over_largest=1.5)]
            for n in (None, 10)
            for reading in READINGS
        ],
        held_by=_LOSSES,
    ),
]

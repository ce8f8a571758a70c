"""What rows about pruned and silenced networks decide: no part tells the whole."""

import math
from collections.abc import Sequence
from dataclasses import replace

from triptych.core.estimates import mean
from triptych.studies.api.decide import (
    EXACT,
    Verdict,
    at_least,
    below,
    decide,
    exactly,
    largest,
    none,
    shown,
)
from triptych.studies.api.study import Claim, Rows
from triptych.studies.brackets.bracket_theory.rows import (
    Pruned,
    Row,
    Shared,
    Silenced,
)

CLOSE = 0.01  # error of a pruned network


# ------------------------------------------------------------------ pruning


def judge_pruning(rows: Rows[Row]) -> Verdict:
    """A wider random transformer comes exponentially nearer to the target."""
    found = rows.of(Pruned)
    curves = _curves(found)
    slopes = [_slope(curve) for curve in curves]
    widest = max((row.block for row in found), default=0)
    last = [row for row in found if row.block == widest]
    return decide(
        none(
            "prunings with a weight that is neither the random one nor 0",
            sum(not row.is_pruning for row in found),
            of=len(found),
        ),
        *([below(SLOPE, mean(slopes), 0.0)] if slopes else []),
        none(
            "prunings of the largest random networks that are off by more than 1 %",
            sum(not row.error <= CLOSE for row in last),
            of=len(last),
        ),
        *(
            shown(
                f"target of width {row.width}, {row.hidden} hidden units, layers {row.layers}; "
                f"random network of {row.large_hidden} hidden units: largest relative error",
                row.error,
            )
            for row in last
            if row.seed in (0, 99)
        ),
        needs=[
            at_least("curves of error against width", len(curves), 3),
            at_least("targets", len({(row.width, row.layers) for row in last}), 3),
        ],
    )


SLOPE = "powers of ten by which the error changes for 10 more random units a block, mean"


def _curves(rows: Sequence[Pruned]) -> list[list[Pruned]]:
    """Rows of one target and seed by growing block, where there are three or more."""
    series: dict[tuple[int, int, int], list[Pruned]] = {}
    for row in sorted(rows, key=lambda row: row.block):
        series.setdefault((row.width, row.layers, row.seed), []).append(row)
    return [each for each in series.values() if len(each) > 2]


def _slope(curve: Sequence[Pruned]) -> float:
    first, last = curve[0], curve[-1]
    return 10 * math.log10(last.error / first.error) / (last.block - first.block)


def judge_shared(rows: Rows[Row]) -> Verdict:
    """Two functions, one layer."""
    found = rows.of(Shared)
    return decide(
        none(
            "matrices of the chosen layer that differ between the two prunings",
            sum(row.differ for row in found),
            of=sum(row.matrices for row in found),
        ),
        none(
            "prunings that are off by more than a tenth of the distance of the two targets",
            sum(not error <= row.apart / 10 for row in found for error in _both(row)),
            of=2 * len(found),
        ),
        none("layers of which nothing is kept", sum(row.kept == 0 for row in found), of=len(found)),
        *(
            shown(
                f"chosen layer {row.layer + 1}: larger error of the two prunings", max(_both(row))
            )
            for row in found
        ),
        needs=[at_least("layers", len({row.layer for row in found}), 4)],
    )


def _both(row: Shared) -> tuple[float, float]:
    return row.first_error, row.second_error


def judge_silent(rows: Rows[Row]) -> Verdict:
    """Different patterns, the same constant output."""
    found = rows.of(Silenced)
    return decide(
        exactly(
            "largest output of a network whose head is 0",
            largest([row.largest_output for row in found]),
        ),
        none(
            "pairs of networks whose head is 0 and whose attention patterns do not differ",
            sum(not row.variation > EXACT for row in found),
            of=len(found),
        ),
        needs=[at_least("pairs of networks", len(found), 2)],
    )


# ------------------------------------------------------------------ rows that hold and refute


_PRUNED = Pruned(0, 2, 4, 1, 48, 18, 384, True, 1e-4, 1e-5, 0.01)
PRUNING_HELD = [
    *[
        replace(_PRUNED, seed=seed, block=block, error=error)
        for seed in range(3)
        for block, error in ((8, 0.3), (24, 0.01 + 0.001 * seed), (48, 1e-4))
    ],
    replace(_PRUNED, width=3, seed=99),
    replace(_PRUNED, layers=2, seed=99),
]
PRUNING_REFUTED = [
    [*PRUNING_HELD, replace(_PRUNED, is_pruning=False)],
    [replace(row, error=0.005 if row.block == 48 else 0.001) for row in PRUNING_HELD],
    [*PRUNING_HELD, replace(_PRUNED, width=4, error=0.3)],
]

_SHARED = Shared(0, 2, 48, 1, 0.9, 1e-5, 1e-5, 7, 0, 900)
SHARED_HELD = [replace(_SHARED, layer=layer) for layer in range(4)]
SHARED_REFUTED = [
    [*SHARED_HELD, replace(_SHARED, differ=1)],
    [*SHARED_HELD, replace(_SHARED, second_error=0.5)],
    [*SHARED_HELD, replace(_SHARED, kept=0)],
]

_SILENCED = Silenced(0, 2, 3, 0.0, 5.0)
SILENCED_HELD = [_SILENCED, replace(_SILENCED, types=3)]
SILENCED_REFUTED = [
    [*SILENCED_HELD, replace(_SILENCED, largest_output=0.1)],
    [*SILENCED_HELD, replace(_SILENCED, variation=0.0)],
]

PART_CLAIMS = [
    Claim("li.thm-2.2.3", judge_pruning, PRUNING_REFUTED, PRUNING_HELD),
    Claim("li.cor-2.2.3", judge_shared, SHARED_REFUTED, SHARED_HELD),
    Claim("li.prop-2.2.1", judge_silent, SILENCED_REFUTED, SILENCED_HELD),
]

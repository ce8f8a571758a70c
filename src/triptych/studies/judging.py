"""Pieces that judges and figures share: rows of one kind, equalities, differences, means."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from triptych.core.estimates import Estimate, Outcome, mean
from triptych.studies.figures import Kind, Series
from triptych.studies.study import Row, Rows, Verdict

EXACT = 1e-9  # float64 agreement of two sides of an equation


def rows_of(rows: Rows, kind: str) -> list[Row]:
    """The rows whose `kind` is this one."""
    return [dict(row) for row in rows if row["kind"] == kind]


def largest(values: Sequence[float]) -> float:
    """The largest value, nan if one of them is: `max` alone would pass nan over."""
    return math.nan if any(math.isnan(value) for value in values) else max(values)


def judge_equal(rows: Sequence[Row], columns: Sequence[str], sentence: str) -> Verdict:
    """HOLDS when every column is at most 1e-9 on every row; UNDECIDED without rows."""
    if not rows:
        return Verdict(Outcome.UNDECIDED, "there are no rows yet")
    worst = {column: largest([float(row[column]) for row in rows]) for column in columns}
    holds = all(value <= EXACT for value in worst.values())  # nan does not hold
    shown = ", ".join(f"{name.replace('_', ' ')} {value:.1e}" for name, value in worst.items())
    outcome = Outcome.HOLDS if holds else Outcome.FAILS
    return Verdict(outcome, f"{sentence}: {shown} over {len(rows)} models", worst)


def all_of(outcomes: Sequence[Outcome]) -> Outcome:
    """FAILS if one fails, else UNDECIDED if one is undecided, else HOLDS."""
    if Outcome.FAILS in outcomes:
        return Outcome.FAILS
    return Outcome.UNDECIDED if Outcome.UNDECIDED in outcomes else Outcome.HOLDS


def difference(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """mean(first) - mean(second) of independent trials, a little wider than Welch's interval.

    The half-widths of the two t intervals are added as squares: means 2 ± 0.3 and 1 ± 0.4 differ
    by 1 ± 0.5.
    """
    a, b = mean(first), mean(second)
    reach, value = math.hypot(a.half_width, b.half_width), a.value - b.value
    return Estimate(value, value - reach, value + reach, a.n + b.n)


def mean_series(
    rows: Rows, x: str, column: str, label: str, kind: Kind, *, percent: bool = True
) -> Series:
    """Means of a column for every x; intervals end at 0 and, in per cent, at 100."""
    places = sorted({row[x] for row in rows})
    found = [mean([float(row[column]) for row in rows if row[x] == place]) for place in places]
    factor, most = (100.0, 1.0) if percent else (1.0, math.inf)
    ends = [(max(0.0, e.low), min(most, e.high)) if e.n > 1 else (e.value, e.value) for e in found]
    low, high = ([factor * end[side] for end in ends] for side in (0, 1))
    return Series(label, kind, places, [factor * e.value for e in found], low, high)


def without_nan(judge: Callable[[Rows], Verdict]) -> Callable[[Rows], Verdict]:
    """The judge, on rows that are all numbers: one nan anywhere leaves it UNDECIDED."""

    def judged(rows: Rows) -> Verdict:
        for row in rows:
            for name, value in row.items():
                if _has_nan(value):
                    because = f"{name} of a row of kind {row['kind']} is not a number"
                    return Verdict(Outcome.UNDECIDED, because)
        return judge(rows)

    return judged


def _has_nan(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, list | tuple):
        return any(_has_nan(item) for item in value)
    return False

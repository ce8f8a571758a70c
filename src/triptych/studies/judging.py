"""Pieces that judges share: rows of one kind, and equality of two sides in float64."""

import math
from collections.abc import Sequence

from triptych.core.estimates import Outcome
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

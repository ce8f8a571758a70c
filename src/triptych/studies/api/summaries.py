"""Summaries that judges and figures share: differences of means, and means as a series."""

import math
from collections.abc import Iterable, Sequence

from triptych.core.estimates import Estimate, mean
from triptych.studies.api.figures import Number, Series, SeriesKind


def difference(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """mean(first) - mean(second) of independent trials, a little wider than Welch's interval.

    The half-widths of the two t intervals are added as squares: means 2 ± 0.3 and 1 ± 0.4 differ
    by 1 ± 0.5.
    """
    a, b = mean(first), mean(second)
    reach, value = math.hypot(a.half_width, b.half_width), a.value - b.value
    return Estimate(value, value - reach, value + reach, a.n + b.n)


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """An estimate in another unit: 0.12 [0.1, 0.14] times 100 is 12 [10, 14]."""
    low, high = sorted((factor * estimate.low, factor * estimate.high))
    return Estimate(factor * estimate.value, low, high, estimate.n, estimate.confidence)


def mean_series(
    points: Iterable[tuple[Number, Number]], label: str, kind: SeriesKind, *, percent: bool = True
) -> Series:
    """The mean of y at every x; intervals end at 0 and, in per cent, at 100.

    Worked value: (1, 0.4), (1, 0.6), (2, 1.0) has the means 50 at 1 and 100 at 2 in per cent.
    """
    by_x: dict[Number, list[float]] = {}
    for x, y in points:
        by_x.setdefault(x, []).append(float(y))
    places = sorted(by_x)
    found = [mean(by_x[place]) for place in places]
    factor, most = (100.0, 1.0) if percent else (1.0, math.inf)
    ends = [(max(0.0, e.low), min(most, e.high)) if e.n > 1 else (e.value, e.value) for e in found]
    low, high = ([factor * end[side] for end in ends] for side in (0, 1))
    return Series(label, kind, places, [factor * e.value for e in found], low, high)

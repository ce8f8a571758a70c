"""Ratios of several models, thresholds and fits of LDA put together, as judges of real text do."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from triptych.core.estimates import Estimate

FITS = 3  # of LDA, before a model counts
ENCODERS = 2  # fewest pretrained encoders that decide


class Found(NamedTuple):
    """A ratio of one fit with its interval; None where it would be 0/0."""

    model: str
    threshold: float
    seed: int
    ratio: float | None
    low: float | None
    high: float | None


def over_fits(found: Sequence[Found]) -> Estimate:
    """The mean ratio of some fits, from their lowest to their highest end; nan with a 0/0.

    Worked value: 2 [1, 3] and 4 [3, 6] are 3 [1, 6].
    """
    values = [each.ratio for each in found if each.ratio is not None]
    lows = [each.low for each in found if each.low is not None]
    highs = [each.high for each in found if each.high is not None]
    if not found or min(len(values), len(lows), len(highs)) < len(found):
        return Estimate(math.nan, math.nan, math.nan, len(found))
    if any(math.isnan(number) for number in (*values, *lows, *highs)):
        return Estimate(math.nan, math.nan, math.nan, len(found))
    return Estimate(sum(values) / len(values), min(lows), max(highs), len(found))


def cells(found: Iterable[Found]) -> dict[tuple[str, float], Estimate]:
    """The estimate of every model and threshold."""
    groups: dict[tuple[str, float], list[Found]] = {}
    for each in found:
        groups.setdefault((each.model, each.threshold), []).append(each)
    return {key: over_fits(some) for key, some in groups.items()}


def worst(estimates: Iterable[Estimate], badness: Callable[[Estimate], float]) -> Estimate:
    """The estimate that speaks most against a claim; nan before all others, and with none."""
    given = list(estimates)
    unknown = [each for each in given if math.isnan(each.value)]
    if unknown or not given:
        return unknown[0] if unknown else Estimate(math.nan, math.nan, math.nan, 0)
    return max(given, key=badness)


def lowest(found: Iterable[Found]) -> Estimate:
    return worst(cells(found).values(), lambda each: -each.low)


def highest(found: Iterable[Found]) -> Estimate:
    return worst(cells(found).values(), lambda each: each.high)


def furthest(found: Iterable[Found]) -> Estimate:
    """From 1."""
    return worst(cells(found).values(), lambda each: max(1 - each.low, each.high - 1))

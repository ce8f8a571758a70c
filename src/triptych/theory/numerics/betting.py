"""Intervals for means of bounded numbers, and for ratios of means, that hold at every sample size.

A bet that θ is not E[a] / E[b] wins when a - θ b is not 0 on average. With bets λ that look at
earlier pairs alone, the capital Π (1 ± λ_i (a_i - θ b_i)) is a martingale that begins at 1 if θ is
the ratio, so it is ever above 2/δ with probability at most δ/2, by Ville. The interval holds the θ
against which neither side ever had so much. It holds at any time at which one looks, without a
word about the law of the pairs but their bounds (Waudby-Smith and Ramdas 2023, for means).

Bets: λ_i = √(2 log(2/δ) / (n s_i)), at most half of what could lose everything, where s_i is the
mean square of a - θ b so far, begun with a quarter of the smaller squared bound.
"""

import math

import numpy as np
from jaxtyping import Float

from triptych.core.estimates import Estimate
from triptych.core.validation import UserError

_GRID = 400  # values of θ that are tried on each side
_CAUTION = 0.5  # of the bet that could lose everything


def ratio_of_means(
    above: Float[np.ndarray, " n"],
    below: Float[np.ndarray, " n"] | None = None,
    *,
    most_above: float = 1.0,
    most_below: float = 1.0,
    confidence: float = 0.95,
) -> Estimate:
    """E[a] / E[b] from independent pairs with 0 ≤ a ≤ most_above and 0 ≤ b ≤ most_below.

    Without `below` it is E[a]. Where all b are 0 the ratio is nan, between 0 and inf.

    Worked value: a = b in all pairs has the ratio 1, and 1 is in the interval: no bet wins.
    """
    a = np.asarray(above, dtype=np.float64)
    b = np.ones_like(a) if below is None else np.asarray(below, dtype=np.float64)
    most_below = 1.0 if below is None else most_below
    _check("above", a, most_above)
    _check("below", b, most_below)
    if len(a) != len(b):
        raise UserError(
            f"above has {len(a)} numbers and below {len(b)}; give as many", parameter="above"
        )
    if not 0 < confidence < 1:
        raise UserError(
            f"confidence is {confidence}; it must lie strictly between 0 and 1",
            parameter="confidence",
        )
    largest = most_above if below is None else math.inf
    if b.sum() == 0:
        return Estimate(math.nan, 0.0, math.inf, len(a), confidence)
    centre = float(a.sum() / b.sum())
    failure = 1 - confidence
    low = _last_excluded(a, b, centre, (most_above, most_below), failure)
    high = _first_excluded(a, b, centre, (most_above, most_below), largest, failure)
    return Estimate(centre, min(low, centre), min(max(high, centre), largest), len(a), confidence)


def _last_excluded(
    a: np.ndarray, b: np.ndarray, centre: float, most: tuple[float, float], failure: float
) -> float:
    """The largest θ below which all θ on a grid are excluded: E[a] > θ E[b] was won by betting."""
    if centre == 0:
        return 0.0
    low = 0.0
    for _ in range(2):  # the grid once more, between the two values where it turned
        grid = np.linspace(low, centre, _GRID + 1)
        kept = np.flatnonzero(_most_capital(a, b, grid, most, failure, +1) < 2 / failure)
        if len(kept) == 0:
            return centre
        if kept[0] == 0:
            return float(grid[0])
        low, centre = float(grid[kept[0] - 1]), float(grid[kept[0]])
    return low


def _first_excluded(
    a: np.ndarray,
    b: np.ndarray,
    centre: float,
    most: tuple[float, float],
    largest: float,
    failure: float,
) -> float:
    """The smallest θ above which all θ on a grid are excluded; the largest there is, if none is."""
    high = max(2 * centre, most[0] / len(a))
    while _most_capital(a, b, np.array([high]), most, failure, -1)[0] < 2 / failure:
        high *= 2
        if high > largest:
            high = largest
            break
        if high > 1e12:
            return math.inf
    low = centre
    for _ in range(2):
        grid = np.linspace(low, high, _GRID + 1)
        kept = np.flatnonzero(_most_capital(a, b, grid, most, failure, -1) < 2 / failure)
        if len(kept) == 0:
            return low
        if kept[-1] == _GRID:
            return high
        low, high = float(grid[kept[-1]]), float(grid[kept[-1] + 1])
    return high


def _most_capital(
    a: np.ndarray,
    b: np.ndarray,
    grid: np.ndarray,
    most: tuple[float, float],
    failure: float,
    sign: int,
) -> np.ndarray:
    """The most that a bet against each θ of the grid ever had; it begins with 1."""
    most_above, most_below = most
    lost = grid * most_below if sign > 0 else np.full_like(grid, most_above)
    limit = 1 / np.maximum(lost, 1e-300)
    x = a[:, None] - grid * b[:, None]
    first = 0.25 * np.minimum(most_above, grid * most_below) ** 2 + 1e-9
    squares = np.cumsum(x**2, axis=0)
    before = np.vstack([np.zeros_like(grid), squares[:-1]]) + first
    mean_square = before / np.arange(1, len(a) + 1)[:, None]
    bets = np.sqrt(2 * math.log(2 / failure) / (len(a) * mean_square))
    bets = np.minimum(bets, _CAUTION * limit)
    return np.exp(np.cumsum(np.log1p(sign * bets * x), axis=0).max(axis=0).clip(min=0.0, max=700))


def _check(name: str, values: np.ndarray, most: float) -> None:
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise UserError(f"{name} must be a list of finite numbers, at least one", parameter=name)
    if not 0 < most < math.inf or (values < 0).any() or (values > most * (1 + 1e-9)).any():
        raise UserError(
            f"{name} holds numbers from {min(values):g} to {max(values):g}; "
            f"they must lie between 0 and {most:g}",
            parameter=name,
        )

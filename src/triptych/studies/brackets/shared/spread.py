"""How far attention patterns of several networks are apart, with an interval over networks."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy import stats

from triptych.core.estimates import Estimate, mean

Matrix = tuple[tuple[float, ...], ...]


def distances(first: Sequence[Matrix], second: Sequence[Matrix]) -> np.ndarray:
    """‖A - A'‖² of every pattern of the first kind and every one of the second."""
    a, b = (np.array([np.ravel(pattern) for pattern in some]) for some in (first, second))
    return ((a[:, None, :] - b[None, :, :]) ** 2).sum(-1)


def variation_over_networks(apart: np.ndarray) -> Estimate:
    """The mean over pairs of a matrix of distances, with a jackknife interval over networks.

    Worked value: three networks at distances 1, 1, 4 have the mean 2; leaving one out gives
    4, 1, 1, so that the standard error is √(2/3 · 6) = 2.
    """
    n = len(apart)
    if n < 2:
        return Estimate(math.nan, math.nan, math.nan, n)
    total = float(apart.sum())
    value = total / (n * (n - 1))
    if n == 2:
        return Estimate(value, -math.inf, math.inf, n)
    left_out = (total - 2 * apart.sum(1)) / ((n - 1) * (n - 2))
    error = math.sqrt((n - 1) / n * float(((left_out - left_out.mean()) ** 2).sum()))
    reach = float(stats.t.ppf(0.975, n - 1)) * error
    return Estimate(value, value - reach, value + reach, n)


def farther_from_others(first: Sequence[Matrix], second: Sequence[Matrix]) -> Estimate:
    """How much farther a network is from those of the other kind than from those of its own.

    The mean over the networks of both kinds of: mean distance to the other kind minus mean distance
    to the rest of its own.
    """
    if min(len(first), len(second)) < 2:
        return Estimate(math.nan, math.nan, math.nan, len(first) + len(second))
    across = distances(first, second)
    gains = []
    for own, other in ((first, across.mean(1)), (second, across.mean(0))):
        within = distances(own, own).sum(1) / (len(own) - 1)
        gains += (other - within).tolist()
    return mean(gains)


def rounded(matrix: torch.Tensor) -> Matrix:
    """A matrix to keep: four digits are enough for pictures and distances."""
    return tuple(tuple(round(value, 4) for value in row) for row in matrix.tolist())

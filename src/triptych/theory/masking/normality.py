"""How far the law of a masked estimate is from its normal limit [li, Lemma 4.1.1, 4.3.10].

    √n (θ̂ - θ*) → N(0, Γ),   Γ = H⁻¹ Cov(∇ℓ) H⁻¹      (`information.asymptotic_covariance`)

One parameter: a bound that is proved, for any n, with nothing drawn. The loss of a log-linear
family is convex in θ, and its slope for one pair (x, K) is -ψ_t, with

    ψ_t(x, K) = T(x) - E_t[T | x_-K, K].

So the least minimiser θ̂ in [-∞, ∞] has P(θ̂ ≤ t) = P(Σ_i ψ_t(X_i, K_i) ≤ 0), where the terms are
independent and have known moments μ_t, σ_t² and ρ_t = E|ψ_t - μ_t|³ under the truth. The theorem
of Berry and Esseen says, with the constant of Shevtsova (2011),

    |P(θ̂ ≤ t) - Φ(-√n μ_t / σ_t)| ≤ 0.4748 ρ_t / (σ_t³ √n).

This law and the limit are both monotone in t, so bounds at quantiles of the limit are bounds
everywhere. The bound goes to 0 only if Γ is right.

Many parameters: data sets are drawn, and the estimates are compared with N(0, Γ) along many
directions and in their length.

Notation
--------
T   the feature of the one parameter   [count]      ψ   slope of one pair (x, K)   [blocks, count]
Γ   limit of the covariance            [d, d]       t   values of θ
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.core.validation import check_count, check_shape
from triptych.theory.masking.families import ExponentialFamily, LogLinear
from triptych.theory.masking.information import asymptotic_covariance

_BERRY_ESSEEN = 0.4748
_CELLS = 2**14  # quantiles at which the law is bounded; they add 1 / cells to the bound


# ------------------------------------------------------------------ one parameter, proved


def along(family: LogLinear, direction: Float[Tensor, " d"]) -> ExponentialFamily:
    """The family with one parameter s, θ = θ* + s · direction, and its truth at s = 0.

    Worked value: two spins along (0, 0, 1) are those with the fields of the truth: T = s_0 s_1.
    """
    check_shape("direction", direction, tuple(family.theta.shape), "a number per parameter")
    return ExponentialFamily(family.table, (family.features @ direction)[:, None])


def slope_moments(
    family: LogLinear, masks: MaskLaw, at: Float[Tensor, " t"]
) -> tuple[Float[Tensor, " t"], Float[Tensor, " t"], Float[Tensor, " t"]]:
    """μ_t, σ_t and ρ_t of the slope ψ_t under the truth, for a family with one parameter.

    Worked value: one fair spin, T = ±1, at t: ψ_t = ±1 - tanh t, so μ_t = -tanh t, σ_t = ρ_t = 1.
    """
    feature = _only(family)
    truth = family.table.log_probs.exp()
    law = (family.base_log_weights[:, None] + feature[:, None] * at).softmax(0)
    chances = masks.log_prob(family.table.sequences).exp().T
    grid = [family.vocab_size] * family.length + [len(at)]
    weights, slopes = [], []
    for block, chance in zip(masks.blocks.tolist(), chances, strict=True):
        axes = [i for i, hidden in enumerate(block) if hidden]
        joint = (law * chance[:, None]).reshape(grid)
        total = joint.sum(axes, keepdim=True)
        inner = (joint * feature.reshape(*grid[:-1], 1)).sum(axes, keepdim=True)
        mean = inner / total.masked_fill(total == 0, 1.0)
        slopes.append(feature[:, None] - mean.expand(grid).reshape(len(feature), -1))
        weights.append(truth * chance)
    weight, slope = torch.cat(weights), torch.cat(slopes)
    mu = weight @ slope
    away = (slope - mu).abs()
    square = away * away
    return mu, (weight @ square).sqrt(), weight @ square.mul_(away)


class Between(NamedTuple):
    """A number that is known to be at least `low` and at most `high`."""

    low: float
    high: float


def normal_distance(family: LogLinear, masks: MaskLaw, n: int, *, cells: int = _CELLS) -> Between:
    """sup_z |P(√n (θ̂ - θ*) ≤ z) - Φ(z / √Γ)|: one parameter, n sequences with one mask each.

    Worked value: one fair spin and n = 10⁴. The mean of the spins is 0 with probability 0.00798,
    so the distance is at least half of that, 0.00399; Berry and Esseen have 0.4748 / 100, and the
    cells of the grid add 1 / 2¹⁴: it is at most 0.0049.
    """
    check_count("n", n, at_least=1)
    check_count("cells", cells, at_least=2)
    _only(family)
    gamma = float(asymptotic_covariance(family, masks)[0, 0])
    shares = np.arange(cells + 1) / cells  # Φ(z / √Γ) at the ends of the cells
    places = torch.from_numpy(stats.norm.ppf(shares[1:-1])) * math.sqrt(gamma / n)
    mu, sigma, rho = slope_moments(family, masks, family.theta + places)
    middle = stats.norm.cdf((-math.sqrt(n) * mu / sigma).numpy())
    slack = (_BERRY_ESSEEN * rho / (sigma**3 * math.sqrt(n))).numpy()
    low = np.concatenate([[0.0], np.maximum(middle - slack, 0.0), [1.0]])
    high = np.concatenate([[0.0], np.minimum(middle + slack, 1.0), [1.0]])
    low[-1], high[0] = low[-2], high[1]  # the estimate may be infinite
    above, below = high[1:] - shares[:-1], shares[1:] - low[:-1]
    surely = np.abs(middle - shares[1:-1]) - slack
    return Between(max(0.0, float(surely.max())), float(max(above.max(), below.max())))


def _only(family: LogLinear) -> Float[Tensor, " count"]:
    """The feature of the one parameter."""
    if len(family.names) != 1:
        raise ValueError(
            f"a family with one parameter is needed, given {len(family.names)}: take "
            "normality.along(family, direction)"
        )
    return family.features[:, 0]


# ------------------------------------------------------------------ many parameters, drawn


def draw_counts(
    table: Table, masks: MaskLaw, n: int, repeats: int, seed: int
) -> Float[Tensor, "repeats blocks count"]:
    """Data sets of n sequences with one mask each: how often x was seen under K.

    Counts of pairs are multinomial, so n may be huge. Drawn by numpy's generator of this seed.
    """
    check_count("n", n, at_least=1)
    check_count("repeats", repeats, at_least=1)
    joint = (table.log_probs + masks.log_prob(table.sequences).T).exp()
    probs = joint.reshape(-1).numpy()
    drawn = np.random.default_rng(seed).multinomial(n, probs / probs.sum(), size=repeats)
    return torch.from_numpy(drawn.reshape(repeats, *joint.shape)).double()


def sampled_distances(
    errors: Float[Tensor, "repeats d"], covariance: Float[Tensor, "d d"]
) -> Float[Tensor, " comparisons"]:
    """Kolmogorov's distance of √n (θ̂ - θ*) from N(0, Γ): along directions, and of its length.

    In the coordinates w = Γ^(-½) √n (θ̂ - θ*), along the eigenvectors of Γ: each of them, the sum
    of every two, and |w|², which is χ² with d degrees of freedom in the limit. An error of nan, for
    data without an estimate, counts as if it lay where it does most harm.

    Worked value: d = 1, Γ = 1, one error of 0: the empirical law jumps from 0 to 1 where Φ is ½, so
    ½; and |w|² = 0 jumps where χ² has 0, so 1.
    """
    repeats, d = errors.shape
    check_shape("covariance", covariance, (d, d), "a row and a column per parameter")
    known = errors[~errors.isnan().any(1)]
    missing = 1 - len(known) / repeats
    if not len(known):
        return torch.ones(d + d * (d - 1) // 2 + 1, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(covariance)
    white = known @ vectors / values.sqrt()
    pairs = torch.combinations(torch.arange(d), 2)
    sums = (white[:, pairs[:, 0]] + white[:, pairs[:, 1]]) / math.sqrt(2)
    lines = stats.norm.cdf(torch.cat([white, sums], 1).numpy())
    radius = stats.chi2.cdf((white**2).sum(1, keepdim=True).numpy(), d)
    uniform = np.sort(np.concatenate([lines, radius], 1), 0)
    steps = np.arange(len(known) + 1)[:, None] / len(known)
    gap = np.maximum(steps[1:] - uniform, uniform - steps[:-1]).max(0)
    return torch.from_numpy((1 - missing) * gap + missing)

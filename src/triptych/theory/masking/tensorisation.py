"""Block approximate tensorisation of entropy, between two bounds [li, Def. 4.1.9].

    C_AT(q) = sup_r  KL(r || q) / E_{X~r, K~p(·|X)} KL(r(· | X_-K, K) || q(· | X_-K, K))

The denominator is KL(r || q) less the divergence that is left between the laws of (X_-K, K). So
1 - 1/C_AT is the share of relative entropy that can survive hiding a block, and because a step of
block dynamics is that, followed by a redraw, D(rP || q) ≤ (1 - 1/C_AT) D(r || q) at every step.

From below: r near q gives C_AT ≥ C, the Poincaré constant (both sides to second order in r/q - 1
are variances); any r gives a value, and the largest found is returned with its r. From above, with
g = r/q and q_min the smallest positive probability,

    Ent(g) ≤ c Var(√g),   c = log(1/q_min - 1) / (1 - 2 q_min)       [Diaconis, Saloff-Coste 1996]
    Var(√g) ≤ C E_{X_-K, K} Var(√g | X_-K, K)                         Poincaré
    Var(√g | ·) ≤ Ent(g | ·)

so C_AT ≤ c C; c = 2 at q_min = ½. The first line is the log-Sobolev constant of the chain that
draws afresh from q, known exactly. The last holds for every law: with M = E g and log u ≤ u - 1,
Ent(g) = -2 E[g log √(M/g)] ≥ 2√M (√M - E√g) ≥ (√M + E√g)(√M - E√g) = Var(√g).

In continuous time, e^{t(P - I)}, the entropy falls at the rate E(g, log g), at least that of the
denominator: KL(r_t || q) ≤ e^(-t/C_AT) KL(r_0 || q). The rate 2/C_AT that is printed after
[li, Def. 4.1.9] is not reached: on one bit, redrawn whole, C_AT = 1 and the rate is
1 + KL(q || r) / KL(r || q), below 2 wherever the second is the larger (`continuous_decay`).

Notation
--------
q   the law [count]      r   another law [count]     g   r/q     C   the Poincaré constant
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import scipy.special
import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.validation import check_count
from triptych.theory.masking.blocks.dynamics import BlockDynamics, components, outside, slowest

_SAME = 1e-14  # a divergence below which two laws are the same


@dataclass(frozen=True, eq=False)
class Tensorisation:
    """max(attained, poincare) ≤ C_AT ≤ upper.

    attained   the ratio of `witness`
    witness    r, a law on all sequences
    poincare   C of the same dynamics, the limit of the ratio for r near q
    """

    attained: float
    witness: Float[Tensor, " count"]
    poincare: float
    upper: float

    @property
    def lower(self) -> float:
        return max(self.attained, self.poincare)


class _Entropies:
    """The two sides of the ratio as functions of log r on the support, in numpy for speed."""

    def __init__(self, dynamics: BlockDynamics) -> None:
        self.at = torch.nonzero(dynamics.support)[:, 0]
        count, blocks = len(dynamics.support), len(dynamics.blocks)
        rows = [(outside(dynamics, m)[self.at] + m * count).numpy() for m in range(blocks)]
        self.groups, group = np.unique(np.stack(rows), return_inverse=True)
        self.group = group.reshape(blocks, -1)  # a number for (K, x_-K)
        log_chance = dynamics.log_block_probs.expand(-1, count)[:, self.at].numpy()
        self.chance = np.exp(log_chance)  # p(K | x)
        self.log_q = dynamics.table.log_probs[self.at].numpy()
        self.q = np.exp(self.log_q)
        self.log_joint = self.log_q + log_chance  # q(x) p(K | x)
        most = np.full(len(self.groups), -np.inf)
        np.maximum.at(most, self.group, self.log_joint)
        most = np.where(most > -np.inf, most, 0.0)
        weight = np.exp(self.log_joint - most[self.group]).reshape(-1)
        total = np.bincount(self.group.reshape(-1), weight, len(self.groups))
        self.log_behind = (most + _log(total))[self.group]  # q(x_-K, K), 0 where that is 0

    def around(self, law: np.ndarray) -> np.ndarray:
        """law(x_-K, K), as a function of K and x."""
        weight = (self.chance * law).reshape(-1)
        total = np.bincount(self.group.reshape(-1), weight, len(self.groups))
        return total[self.group]

    def gaps(self, log_r: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """log r/q (x), log r/q (x_-K, K), and r(x_-K, K); logarithms are 0 where r is."""
        before = self.around(np.exp(log_r))
        outer = np.where(before > 0, _log(before) - self.log_behind, 0.0)
        return np.where(log_r > -np.inf, log_r - self.log_q, 0.0), outer, before

    def sides(self, log_r: np.ndarray) -> tuple[float, float]:
        """KL(r || q) and E KL(r(· | x_-K, K) || q(· | x_-K, K)), as sums of terms ≥ 0."""
        r = np.exp(log_r)
        whole, outer, before = self.gaps(log_r)
        left = _excess(whole, r, self.q).sum()
        expected = before * np.exp(self.log_q - self.log_behind)
        return float(left), float((self.chance * _excess(whole - outer, r, expected)).sum())

    def slopes(self, log_r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of the two sides in r(x), up to a constant."""
        whole, outer, _ = self.gaps(log_r)
        return whole, (self.chance * (whole - outer)).sum(0)


def _log(values: np.ndarray) -> np.ndarray:
    """The logarithm, 0 where the value is."""
    return np.log(values, out=np.zeros_like(values), where=values > 0)


def _excess(log_ratio: np.ndarray, r: np.ndarray, q: np.ndarray) -> np.ndarray:
    """r log(r/q) - r + q, which is ≥ 0 and sums to the divergence of laws; q where r is 0."""
    near = np.abs(log_ratio) < 0.05
    small = np.where(near, log_ratio, 0.0)
    series = np.zeros_like(small)
    for power in range(9, 1, -1):  # e^-s + s - 1 = s²/2! - s³/3! + ..
        series = 1 / math.factorial(power) - small * series
    return np.where(near & (r > 0), r * small**2 * series, r * log_ratio - r + q)


def both_sides(dynamics: BlockDynamics, law: Float[Tensor, " count"]) -> tuple[float, float]:
    """KL(r || q) and E_{X~r, K} KL(r(· | X_-K, K) || q(· | X_-K, K)), for r = `law`.

    Worked value: two fair bits, singletons, r a point mass: 2 log 2, and each block sees log 2.
    """
    entropies = _Entropies(dynamics)
    if (law[~dynamics.support] != 0).any():
        raise ValueError("the law has mass where q has none: its divergence from q is infinite")
    return entropies.sides(law[entropies.at].log().numpy())


def point_mass_ratios(dynamics: BlockDynamics) -> Float[Tensor, " support"]:
    """The ratio of every point mass on the support of q: each is a lower bound of C_AT.

    Worked value: two fair bits, singletons: 2 log 2 over log 2, so 2 for each.
    """
    return torch.from_numpy(_points(_Entropies(dynamics)))


def comparison(smallest: float) -> float:
    """c = log(1/q_min - 1) / (1 - 2 q_min). Worked value: 2 at ½; (3/2) log 5 at 1/6."""
    if not 0 < smallest <= 0.5:
        raise ValueError(f"the smallest of two or more probabilities is in (0, ½], not {smallest}")
    return comparison_of_log(math.log(smallest))


def comparison_of_log(log_smallest: float) -> float:
    """c from log q_min, which may be too small for a float. Worked value: log ½: 2."""
    smallest = math.exp(log_smallest)
    away = 1 - 2 * smallest
    if smallest < 0.25:
        return (math.log1p(-smallest) - log_smallest) / away
    return 2 * math.atanh(away) / away if away > 1e-8 else 2.0  # the same, with 1 - 2q exact


def tensorisation(dynamics: BlockDynamics, *, starts: int = 4, seed: int = 0) -> Tensorisation:
    """Both bounds of C_AT, the lower one by L-BFGS on log r from several laws.

    Starts are the best point masses, q tilted by the slowest function both ways, q given one side
    of it, and `starts` laws drawn with a torch generator of this seed. Worked
    values: N independent positions, singletons: C_AT = N. One block of everything: C_AT = 1.
    """
    check_count("starts", starts, at_least=0)
    if components(dynamics) > 1:
        return Tensorisation(math.inf, _part(dynamics), math.inf, math.inf)
    entropies = _Entropies(dynamics)
    gap, slow = slowest(dynamics)
    tilt = slow[entropies.at].numpy()
    tilt = tilt / np.abs(tilt).max()
    tilts = [0.01 * tilt, -0.01 * tilt, 3 * tilt, -3 * tilt]
    tilts += [np.where(side * tilt > 0, 0.0, -8.0) for side in (1, -1)]
    points = _points(entropies)
    tilts += [6.0 * (np.arange(len(points)) == x) for x in np.argsort(-points)[:2]]
    generator = torch.Generator().manual_seed(seed)
    shape = (starts, len(points))
    tilts += list(2 * torch.randn(shape, generator=generator, dtype=torch.float64).numpy())
    attained = float(points.max())
    best = (np.arange(len(points)) == points.argmax()).astype(float)
    for start in tilts:
        value, log_r = _climbed(entropies, start)
        if value > attained:
            attained, best = value, np.exp(log_r)
    witness = torch.zeros_like(dynamics.stationary)
    witness[entropies.at] = torch.from_numpy(best / best.sum())
    return Tensorisation(
        attained, witness, 1 / gap, comparison_of_log(float(entropies.log_q.min())) / gap
    )


def _part(dynamics: BlockDynamics) -> Float[Tensor, " count"]:
    """q given a part of the support that the chain never leaves."""
    law = torch.zeros_like(dynamics.stationary)
    law[torch.nonzero(dynamics.support)[0, 0]] = 1.0
    for _ in range(len(law)):
        reached = dynamics.moved(law)
        if bool(((reached > 0) == (law > 0)).all()):
            break
        law = reached
    inside = torch.where(law > 0, dynamics.stationary, 0.0)
    return inside / inside.sum()


def _points(entropies: _Entropies) -> np.ndarray:
    """The ratio of every point mass: log q(x) / Σ_K p(K | x) log q(x_K | x_-K, K)."""
    inside = np.where(entropies.chance > 0, entropies.log_joint - entropies.log_behind, 0.0)
    seen = (entropies.chance * inside).sum(0)  # 0 where q(x) rounds to 1: r is q
    return np.divide(entropies.log_q, seen, out=np.zeros_like(seen), where=seen < 0)


def _climbed(entropies: _Entropies, tilt: np.ndarray) -> tuple[float, np.ndarray]:
    """A larger ratio by L-BFGS from r ∝ q exp(tilt), and log r."""

    def loss(logits: np.ndarray) -> tuple[float, np.ndarray]:
        """log of the inverse ratio, and its gradient r (v - Σ r v), v its derivative in r."""
        log_r = _normalised(entropies.log_q + logits)
        left, right = entropies.sides(log_r)
        if not (left > _SAME and right > 0):
            return 0.0, np.zeros_like(logits)  # r has come down to q: worse than any ratio
        whole, seen = entropies.slopes(log_r)
        v, r = seen / right - whole / left, np.exp(log_r)
        return math.log(right / left), r * (v - r @ v)

    options = {"maxiter": 300}
    found = scipy.optimize.minimize(loss, tilt, jac=True, method="L-BFGS-B", options=options)
    log_r = _normalised(entropies.log_q + found.x)
    left, right = entropies.sides(log_r)
    return left / right if left > _SAME else 0.0, log_r


def _normalised(logits: np.ndarray) -> np.ndarray:
    return logits - scipy.special.logsumexp(logits)


# ------------------------------------------------------------------ decay of entropy


def entropy_decay(
    dynamics: BlockDynamics, law: Float[Tensor, " count"], steps: int
) -> Float[Tensor, " times"]:
    """KL(r P^t || q) for t = 0..steps; each step multiplies it by at most 1 - 1/C_AT.

    Worked value: two fair bits, singletons, from a point mass: 2 log 2, then log 2.
    """
    found = [both_sides(dynamics, law)[0]]
    for _ in range(steps):
        law = dynamics.moved(law)
        found.append(both_sides(dynamics, law / law.sum())[0])
    return torch.tensor(found, dtype=torch.float64)


def continuous_decay(
    dynamics: BlockDynamics, law: Float[Tensor, " count"], times: Float[Tensor, " times"]
) -> Float[Tensor, " times"]:
    """KL(r e^{t(P - I)} || q) at the given times, by the exponential of the dense generator.

    Worked value: one fair bit from a point mass, t = log 3: r = (⅔, ⅓), ⅔ log 4/3 + ⅓ log ⅔ =
    0.0566.
    """
    generator = dynamics.transition() - torch.eye(len(law), dtype=torch.float64)
    found = []
    for time in times.tolist():
        moved = (law @ torch.linalg.matrix_exp(time * generator)).clamp(min=0.0)
        found.append(both_sides(dynamics, moved / moved.sum())[0])
    return torch.tensor(found, dtype=torch.float64)

"""Both sides of the finite-sample bound on the joint law, on small models [li, Thm 4.1.4].

With θ̂ the minimiser over Θ of the empirical masked loss on n sequences with m masks each,

    D_TV(p_θ̂, p) < √(½ C_AT(p_θ̂) (L̂(θ̂) + B ln(1/β) + ε)) + C          with probability 1 - δ,
    B = √(2^(3N) |Ω|^N C_ε / (m δ)) + √(ln(8 C_ε / δ) / 2n),   C = √(|Ω|^(3N) / (8 δ n)).

Θ is the box |θ_a| ≤ R of a log-linear family with features in [-1, 1], as Ising models have.

    β     log p_θ(x_K | x_-K, K) is concave in θ, so it is least at a corner of the box: exact.
    C_ε   a derivative of log p_θ(x_K | x_-K, K) is a feature less its mean, at most 2 in size. On
          cells of side ε / 4d it varies by at most ε/2, so C_ε ≤ ⌈8 d R / ε⌉^d. And C_ε ≥ 1.

With C_ε = 1, ε = 0 and a lower bound of C_AT the right side is smaller than the theorem's for any
ε: where the inequality holds with that, it holds a fortiori.

L̂ is read in two ways. As defined [li, Def. 4.1.2] it is a cross-entropy, which does not go to 0:
for n → ∞ the right side stays at √(½ C_AT H(X_K | X_-K, K)). The proof [li, Prop. 4.3.1] takes a
divergence from the conditionals of the empirical law, which does. The second is smaller, and the
theorem is right in both readings. (In the proof, the average of f over the sample is L̃ itself and
not only near to it [li, (4.37)], so the term with n in B is not needed.)

Notation
--------
N   length     Ω   alphabet     n   sequences     m   masks of each     d   parameters
R   radius of the box           β   support margin                       p̃   empirical law [count]
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table, all_sequences, places
from triptych.core.validation import check_count
from triptych.theory.masking.blocks.dynamics import (
    BlockDynamics,
    conditional_mean,
    poincare_constant,
)
from triptych.theory.masking.families import LogLinear
from triptych.theory.masking.information import block_log_conditionals
from triptych.theory.masking.tensorisation import comparison_of_log

_CORNERS = 2**14
_OPTIMAL = 1e-5  # what a loss may be above the least; L-BFGS ends at slopes of about 1e-8


def support_margin(family: LogLinear, masks: MaskLaw, radius: float) -> float:
    """β: the least p_θ(x_K | x_-K, K) over the box, sequences and blocks [li, Ass. 4.1.3].

    Worked value: one spin, θ = h in [-R, R], the block {0}: sigmoid(-2R).
    """
    _check_box(family, radius)
    d = len(family.names)
    if 2**d > _CORNERS:
        raise ValueError(f"a box in {d} dimensions has 2^{d} corners, more than {_CORNERS}")
    least = 0.0
    for corner in radius * (2.0 * all_sequences(2, d).double() - 1):
        logs = block_log_conditionals(family.table_log_probs(corner), masks, family.vocab_size)
        least = min(least, float(logs[logs > -torch.inf].min()))
    return math.exp(least)


def covering_number(dimension: int, radius: float, epsilon: float) -> float:
    """⌈8 d R / ε⌉^d cells on which log p_θ(x_K | x_-K, K) varies by at most ε/2.

    Worked value: d = 2, R = 1, ε = 4: 4² = 16 cells, of side ½ = ε / 4d.
    """
    check_count("dimension", dimension, at_least=1)
    if not (radius > 0 and epsilon > 0):
        raise ValueError(f"radius and epsilon must be positive, given {radius} and {epsilon}")
    return float(math.ceil(8 * dimension * radius / epsilon)) ** dimension


# ------------------------------------------------------------------ samples


@dataclass(frozen=True, eq=False)
class MaskedSample:
    """n sequences with m masks each, as frequencies.

    law     p̃(x)                                     [count]
    pairs   share of (K, x) among the n m pairs      [blocks, count]
    """

    law: Float[Tensor, " count"]
    pairs: Float[Tensor, "blocks count"]


def draw_sample(table: Table, masks: MaskLaw, n: int, m: int, seed: int) -> MaskedSample:
    """n sequences from the table, m masks for each from the mask law.

    Only counts matter: those of the sequences are multinomial, and those of the masks given them
    too, so m may be huge. Drawn by numpy's generator of this seed.
    """
    check_count("n", n, at_least=1)
    check_count("m", m, at_least=1)
    if n * m >= 2**62:
        raise ValueError(f"{n} sequences with {m} masks each are more than can be counted")
    generator = np.random.default_rng(seed)
    probs = table.log_probs.exp().numpy()
    sequences = generator.multinomial(n, probs / probs.sum())
    chances = masks.log_prob(table.sequences).exp().numpy()
    chances = chances / chances.sum(1, keepdims=True)
    pairs = np.stack(
        [generator.multinomial(m * c, p) for c, p in zip(sequences, chances, strict=True)]
    )
    return MaskedSample(
        torch.from_numpy(sequences / n), torch.from_numpy(pairs.T / (float(n) * float(m)))
    )


def divergence_weights(
    sample: MaskedSample, table: Table, masks: MaskLaw
) -> tuple[Float[Tensor, "blocks count"], float]:
    """Weights v and a number H so that the loss of the proof is -Σ v log p_θ(x_K | x_-K, K) - H.

    That loss is the mean over the pairs (K, x) of the sample of the divergence of
    p_θ(· | x_-K, K) from p̃(· | x_-K, K) [li, (4.33)]. Worked value: if p̃ is a point mass, its
    conditionals are too, and v are the frequencies of the blocks there, H = 0.
    """
    chances = masks.log_prob(table.sequences).exp().T
    weights, entropy = [], 0.0
    for block, chance, seen in zip(masks.blocks, chances, sample.pairs, strict=True):
        joint = sample.law * chance
        one = torch.ones_like(joint)
        total = joint / _shared(joint, block, table.vocab_size).masked_fill(joint == 0, 1.0)
        spread = _shared(seen, block, table.vocab_size) * total
        logs = torch.where(total > 0, total, one).log()
        entropy -= float((spread * logs).sum())
        weights.append(spread)
    return torch.stack(weights), entropy


def _shared(
    values: Float[Tensor, " count"], block: Tensor, vocab_size: int
) -> Float[Tensor, " count"]:
    """Σ_{x_K} values, as a function of x."""
    one = torch.ones_like(values)
    size = vocab_size ** int(block.sum())
    return conditional_mean(values, one, block, vocab_size) * size


def fit(
    family: LogLinear, masks: MaskLaw, weights: Float[Tensor, "blocks count"], radius: float
) -> Float[Tensor, " d"]:
    """argmin over the box of -Σ weights log p_θ(x_K | x_-K, K), which is convex.

    Worked value: one spin, the block {0}, weights (¼, ¾): θ = h = ½ log 3 if the box has it, else
    its end R.
    """
    _check_box(family, radius)
    log_chances = masks.log_prob(family.table.sequences).T.numpy()
    groups = _groups(family, masks)
    seen, size = weights.numpy(), groups.max() + 1
    around = np.bincount(groups.reshape(-1), seen.reshape(-1), size)[groups]
    features, base = family.features.numpy(), family.base_log_weights.numpy()

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        joint = log_chances + base + features @ theta
        most = np.full(size, -np.inf)
        np.maximum.at(most, groups, joint)
        most = np.where(most > -np.inf, most, 0.0)[groups]
        total = np.bincount(groups.reshape(-1), np.exp(joint - most).reshape(-1), size)[groups]
        logs = joint - most - np.log(total, out=np.zeros_like(total), where=total > 0)
        gradient = (around * np.exp(logs) - seen).sum(0) @ features
        return -float((seen * np.where(seen > 0, logs, 0.0)).sum()), gradient

    d = len(family.names)
    options = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 1000}
    found = scipy.optimize.minimize(
        loss,
        np.zeros(d),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-radius, radius)] * d,
        options=options,
    )
    # the loss is convex: it cannot fall by more than its slope towards the best corner of the box
    value, gradient = loss(found.x)
    missing = float((gradient * found.x + radius * np.abs(gradient)).sum())
    if not missing <= _OPTIMAL * max(1.0, abs(value)):
        raise ValueError(
            f"L-BFGS stopped where the loss is {value:.6g} and may still fall by {missing:.3g} in "
            f"the box of radius {radius}: the estimate is not known"
        )
    return torch.from_numpy(found.x)


def _groups(family: LogLinear, masks: MaskLaw) -> np.ndarray:
    """A number for (K, x_-K), as a function of K and x."""
    place = places(family.vocab_size, family.length)
    shown = [family.table.sequences @ place.masked_fill(block, 0) for block in masks.blocks]
    count = family.vocab_size**family.length
    every = torch.stack([x + m * count for m, x in enumerate(shown)]).numpy()
    return np.unique(every, return_inverse=True)[1].reshape(every.shape)


def masked_loss(
    family: LogLinear,
    masks: MaskLaw,
    weights: Float[Tensor, "blocks count"],
    theta: Float[Tensor, " d"],
) -> Float[Tensor, ""]:
    """-Σ weights log p_θ(x_K | x_-K, K); infinite where a pair has weight and cannot occur."""
    logs = block_log_conditionals(family.table_log_probs(theta), masks, family.vocab_size)
    return -(weights * torch.where(weights > 0, logs, 0.0)).sum()


# ------------------------------------------------------------------ the bound


def right_side(
    *,
    constant: float,
    loss: float,
    margin: float,
    cover: float,
    epsilon: float,
    delta: float,
    length: int,
    vocab_size: int,
    n: int,
    m: float,
) -> float:
    """√(½ C_AT (L̂ + B ln(1/β) + ε)) + C, as printed.

    Worked value: C_AT = 2, L̂ = 1, β = 1, ε = 0, δ = ½, N = 1, |Ω| = 2, n = 2: √1 + √(8/8) = 2.
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}; it must lie strictly between 0 and 1")
    masked = math.sqrt(2.0 ** (3 * length) * vocab_size**length * cover / (m * delta))
    drawn = math.sqrt(math.log(8 * cover / delta) / (2 * n))
    joint = math.sqrt(vocab_size ** (3 * length) / (8 * delta * n))
    inside = loss + (masked + drawn) * math.log(1 / margin) + epsilon
    return math.sqrt(0.5 * constant * inside) + joint


@dataclass(frozen=True, eq=False)
class Fitted:
    """What one sample gives, in one reading of the loss.

    distance     D_TV(p_θ̂, p)
    loss         L̂(θ̂)
    lower        the Poincaré constant at θ̂, a lower bound of C_AT(p_θ̂)
    upper        an upper bound of it
    """

    theta: Float[Tensor, " d"]
    distance: float
    loss: float
    lower: float
    upper: float


def fitted(
    family: LogLinear, masks: MaskLaw, sample: MaskedSample, radius: float, *, divergence: bool
) -> Fitted:
    """The estimator on a sample; `divergence` reads the loss as the proof does."""
    truth, weights, entropy = family.table, sample.pairs, 0.0
    if divergence:
        weights, entropy = divergence_weights(sample, truth, masks)
    theta = fit(family, masks, weights, radius)
    loss = max(0.0, float(masked_loss(family, masks, weights, theta)) - entropy)
    learned = Table(truth.vocab_size, truth.length, family.table_log_probs(theta))
    constant = poincare_constant(BlockDynamics(learned, masks))
    logs = learned.log_probs
    distance = 0.5 * float((logs.exp() - truth.log_probs.exp()).abs().sum())
    upper = constant * comparison_of_log(float(logs[logs > -torch.inf].min()))
    return Fitted(theta, distance, loss, constant, upper)


def _check_box(family: LogLinear, radius: float) -> None:
    if not radius > 0:
        raise ValueError(f"radius is {radius}; the box needs a positive one")
    if not (family.features.abs() <= 1).all():
        raise ValueError("the bound on the covering number needs features in [-1, 1]")

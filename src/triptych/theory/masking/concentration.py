"""How far empirical quantities of masked training are from their means, exactly [li, 4.3.4].

The proof of Theorem 4.1.4 stands on three statements about chance:

    Lemma 4.3.5   |L̂(θ) - L̃(θ)| < 2^N ε ln(1/β) + t/n   but for a chance of at most
                  2^(N-2) |Ω|^N / (ε² m) + 2 exp(-2 t² / (n ln²(1/β)))
    Cor. 4.3.1    |L̂(θ) - L̃(θ)| < (√(2^(3N-1) |Ω|^N / (m δ)) + √(ln(4/δ) / 2n)) ln(1/β)
                  but for a chance of at most δ;   Cor. 4.3.2: for all θ at once, with C_ε
    Lemma 4.3.6   D_TV(p̃, p) < √(|Ω|^(3N) / (16 δ n))   but for a chance of at most δ

L̂ averages the loss over m masks of each of n sequences, L̃ over all masks of the same sequences, and
p̃ is the law of the n sequences. Nothing is drawn here: what the n sequences are is summed over all
multisets, and the masks of two blocks are binomial. A loss is read as defined, -log p_θ(x_K | x_-K,
K), or as in the proof, the divergence of p_θ(· | x_-K, K) from p̃(· | x_-K, K).

Notation
--------
N   length     Ω   alphabet     n   sequences     m   masks of each
β   least p_θ(x_K | x_-K, K)    θ   parameters    δ   chance that is allowed
"""

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np
import scipy.special
import scipy.stats
import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.core.validation import check_count
from triptych.theory.masking.blocks.moves import block_sum

CELLS = 1000  # of the grid on which sums of binomials are added up, on each side of 0
_MULTISETS = 20_000

# ------------------------------------------------------------------ identities of conditionals


def mixed_conditional(table: Table, masks: MaskLaw) -> Float[Tensor, "blocks count"]:
    """E_{K' ~ p(· | x_-K)} p(x_K | x_-K, K') for every K and x: the right side of Lemma 4.3.2.

    0 where x_-K cannot occur. Worked value: the law ½, ⅓, ⅙, 0 on two bits with
    p({0} | x) = ½, ⅓, ¼ [li, Lemma 4.3.1]: for K = {1}, x = (0, 0) the blocks {0} and {1} have the
    joint masses ¼ + 1/9 = 13/36 and ¼ + 2/9 = 17/36 with x_0 = 0, so the mean is
    (13/30)(9/13) + (17/30)(9/17) = 3/5, which is p(x_1 = 0 | x_0 = 0).
    """
    probs = table.log_probs.exp()
    chances = masks.log_prob(table.sequences).exp().T
    out = []
    for block in masks.blocks:
        around = block_sum(probs, block, table.vocab_size)
        mean = torch.zeros_like(probs)
        for chance in chances:
            joint = probs * chance
            both = block_sum(joint, block, table.vocab_size)  # p(x_-K, K')
            weight = both / around.masked_fill(around == 0, 1.0)
            mean = mean + weight * joint / both.masked_fill(both == 0, 1.0)
        out.append(mean)
    return torch.stack(out)


def plain_conditional(table: Table, masks: MaskLaw) -> Float[Tensor, "blocks count"]:
    """p(x_K | x_-K) for every K and x, the left side of Lemma 4.3.2; 0 where x_-K cannot occur."""
    probs = table.log_probs.exp()
    around = torch.stack([block_sum(probs, block, table.vocab_size) for block in masks.blocks])
    return probs / around.masked_fill(around == 0, 1.0)


def divergences(
    log_conditionals: Float[Tensor, "blocks count"],
    law: Float[Tensor, " count"],
    table: Table,
    masks: MaskLaw,
) -> Float[Tensor, "blocks count"]:
    """D_KL(p̃(· | x_-K, K), p_θ(· | x_-K, K)) for every K and x; 0 where p̃ has no x_-K with K.

    `log_conditionals` are those of p_θ, `law` is p̃. Worked value: if p̃ is a point mass at x, the
    divergence there is -log p_θ(x_K | x_-K, K).
    """
    chances = masks.log_prob(table.sequences).exp().T
    out = []
    for block, chance, logs in zip(masks.blocks, chances, log_conditionals, strict=True):
        joint = law * chance
        around = block_sum(joint, block, table.vocab_size)
        given = joint / around.masked_fill(around == 0, 1.0)
        one = torch.ones_like(given)
        ratio = torch.where(given > 0, given, one).log() - torch.where(given > 0, logs, 0.0)
        out.append(block_sum(given * ratio, block, table.vocab_size))
    return torch.stack(out)


# ------------------------------------------------------------------ what n sequences can be


def multisets(count: int, n: int) -> Int[np.ndarray, "sets count"]:
    """How often each of `count` sequences is among n: all ways. 2 of 2: (2, 0), (1, 1), (0, 2)."""
    check_count("n", n, at_least=1)
    ways = math.comb(n + count - 1, count - 1)
    if ways > _MULTISETS:
        raise ValueError(f"{n} of {count} sequences can be {ways} multisets, over {_MULTISETS}")
    bars = np.array(list(combinations(range(n + count - 1), count - 1)), dtype=int)
    ends = np.concatenate(
        [np.full((ways, 1), -1), bars.reshape(ways, -1), np.full((ways, 1), n + count - 1)], 1
    )
    return (np.diff(ends, axis=1) - 1)[::-1]


def chances_of(
    counts: Int[np.ndarray, "sets count"], probs: Float[np.ndarray, " count"]
) -> Float[np.ndarray, " sets"]:
    """The multinomial chance of each. Worked value: (½, ½) and n = 2: ¼, ½, ¼."""
    logs = scipy.special.xlogy(counts, probs).sum(1) - scipy.special.gammaln(counts + 1).sum(1)
    return np.exp(logs + scipy.special.gammaln(counts[0].sum() + 1))


def missed_by_empirical_law(
    probs: Float[np.ndarray, " count"], n: int, deltas: Float[np.ndarray, " deltas"]
) -> Float[np.ndarray, " deltas"]:
    """The chance that D_TV(p̃, p) is at least √(|Ω|^(3N) / (16 δ n)), for every δ [li, Lemma 4.3.6].

    Worked value: two outcomes with ½, n = 2, δ = 1: the bound is ½, which the two samples of one
    outcome reach: ½.
    """
    counts = multisets(len(probs), n)
    chances = chances_of(counts, probs)
    distances = 0.5 * np.abs(counts / n - probs).sum(1)
    bounds = np.sqrt(len(probs) ** 3 / (16 * deltas * n))
    return (chances * (distances >= bounds[:, None] - 1e-12)).sum(1)


# ------------------------------------------------------------------ masks of n sequences


def missed_by_masks(
    counts: Int[np.ndarray, " count"],
    m: int,
    chances: Float[np.ndarray, " count"],
    jumps: Float[np.ndarray, " count"],
    thresholds: Float[np.ndarray, " thresholds"],
    *,
    absolute: bool = False,
) -> Float[np.ndarray, " thresholds"]:
    """An upper bound of P(|Σ_x jump_x (B_x - c_x m p_x) / (n m)| ≥ threshold), for each threshold.

    B_x is binomial: c_x m masks, each the block K_1 with chance p_x. Where jump_x is
    loss(x, K_1) - loss(x, K_0), the sum is L̂ - L̃. `absolute` adds the sizes of the terms, which
    bounds it for all losses with such jumps at once. Terms are rounded to a grid of the largest
    jump / 1000, and what that can hide is given away, so the result is never too small.

    Worked value: one sequence, one mask, p = ½, jump 1: the sum is ±½, so 1 up to ½ and 0 beyond
    (½ plus the rounding).
    """
    n, size = counts.sum(), float(np.abs(jumps).max())
    if size == 0:
        return (thresholds <= 0).astype(float)
    step = size / CELLS
    law, terms = np.ones(1), 0
    for count, chance, jump in zip(counts, chances, jumps, strict=True):
        if count == 0 or jump == 0 or chance in (0.0, 1.0):
            continue
        reach = math.ceil(abs(jump) * count / n / step) + 1
        edges = (np.arange(-reach, reach + 2) - 0.5) * step / abs(jump) * n * m
        masses = np.diff(scipy.stats.binom.cdf(edges + count * m * chance, count * m, chance))
        if jump < 0:
            masses = masses[::-1]
        if absolute:
            masses = masses + masses[::-1]
            masses[reach] /= 2
            masses[:reach] = 0
        law, terms = np.convolve(law, masses), terms + 1
    away = np.abs(np.arange(len(law)) - len(law) // 2) * step
    reached = away >= thresholds[:, None] - (terms + 1) * step / 2 - 1e-12
    return (law * reached).sum(1)


def mask_jumps(losses: Float[Tensor, "blocks count"]) -> Float[np.ndarray, " count"]:
    """loss(x, K_1) - loss(x, K_0); more than two blocks are refused."""
    if len(losses) != 2:
        raise ValueError(f"the masks of a sequence are binomial for 2 blocks, not {len(losses)}")
    return torch.where(losses.isfinite(), losses, 0.0).diff(dim=0)[0].numpy()


# ------------------------------------------------------------------ the bounds as printed


def lemma_bound(
    epsilon: float, t: float, *, log_margin: float, length: int, vocab_size: int, n: int, m: int
) -> tuple[float, float]:
    """The bound of Lemma 4.3.5 and the chance of missing it that is allowed; ln(1/β) is log_margin.

    Worked value: N = 1, |Ω| = 2, ε = ½, t = 1, n = 2, m = 16, ln(1/β) = 1: 2·½ + ½ = 3/2, and
    2^-1 · 2 / (¼ · 16) + 2 e^(-1) = ¼ + 0.7358.
    """
    bound = 2.0**length * epsilon * log_margin + t / n
    masks = 2.0 ** (length - 2) * vocab_size**length / (epsilon**2 * m)
    return bound, masks + 2 * math.exp(-2 * t**2 / (n * log_margin**2))


def corollary_bound(
    delta: float, *, log_margin: float, length: int, vocab_size: int, n: int, m: int
) -> float:
    """The bound of Corollary 4.3.1, which is that of 4.3.2 with one cell and ε = 0.

    Worked value: N = 1, |Ω| = 2, m = 16, δ = ½, n = 1, ln(1/β) = 1:
    √(4·2/8) + √(ln 8 / 2) = 2.0197.
    """
    masks = math.sqrt(2.0 ** (3 * length - 1) * vocab_size**length / (m * delta))
    return (masks + math.sqrt(math.log(4 / delta) / (2 * n))) * log_margin


def samples(
    table: Table, n: int
) -> Iterator[tuple[float, Int[np.ndarray, " count"], Float[Tensor, " count"]]]:
    """Every multiset of n sequences: its chance, its counts, its law p̃."""
    counts = multisets(len(table.log_probs), n)
    chances = chances_of(counts, table.log_probs.exp().numpy())
    for chance, seen in zip(chances, counts, strict=True):
        if chance > 0:
            yield float(chance), seen, torch.from_numpy(seen / n)

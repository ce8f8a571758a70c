"""Bounds on -log p(x) of diffusion models, in nats: of texts with noise, of structures exactly.

    masked     E_k [ N/k Σ_{i hidden} -log d(x_i | shown) ]       masks at any rate, or in blocks
    noised     ∫_0^1 1/α E_z Σ_i jump loss dα                     uniform noise

Given a table of all sequences, the mean of a bound over the truth is at least the entropy, and what
is above it is the divergence of the path that the denoiser takes from the path of the truth.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.protocols import Masked
from triptych.core.randomness import RngLike, as_rng
from triptych.core.table import Table
from triptych.core.validation import Count, as_count, as_size
from triptych.models.jumps import jump_losses, posterior_of
from triptych.models.noised import NoisedLM
from triptych.training.noise import masks_at_any_rate, noise_levels, redrawn


@runtime_checkable
class Answers(Protocol):
    """A masked language model around a network."""

    @property
    def vocab_size(self) -> int: ...

    def token_logits(
        self, seen: Int[Tensor, "batch length"], /
    ) -> Float[Tensor, "batch length vocab"]: ...


@torch.no_grad()
def masked_bounds(
    lm: Answers,
    tokens: Int[Tensor, "batch length"],
    rng: RngLike,
    *,
    draws: Count = 8,
    block: Count | None = None,
) -> Float[Tensor, " batch"]:
    """An unbiased estimate of the bound of each row, from `draws` sets of masks."""
    rng, draws = as_rng(rng, tokens.device), as_size("draws", draws)
    block = None if block is None else as_size("block", block)
    total = torch.zeros(len(tokens), dtype=torch.float64, device=tokens.device)
    for _ in range(draws):
        hidden, scored, weight = masks_at_any_rate(tokens.shape, rng, tokens.device, block=block)
        logits = lm.token_logits(tokens.masked_fill(hidden, lm.vocab_size))
        each = _surprise(logits, tokens)
        total += torch.where(scored, each * weight, 0.0).sum(1)
    return total / draws


@torch.no_grad()
def noised_bounds(
    lm: NoisedLM, tokens: Int[Tensor, "batch length"], rng: RngLike, *, draws: Count = 8
) -> Float[Tensor, " batch"]:
    """The same for a denoiser of uniform noise, at the strengths that training draws."""
    rng, draws = as_rng(rng, tokens.device), as_size("draws", draws)
    total = torch.zeros(len(tokens), dtype=torch.float64, device=tokens.device)
    for _ in range(draws):
        kept = noise_levels(len(tokens), lm.levels, rng, tokens.device)
        noisy = redrawn(tokens, kept, words=lm.vocab_size, rng=rng)
        logits = lm.token_logits(lm.with_level(noisy, kept))
        each = jump_losses(logits.float().log_softmax(-1), noisy, tokens, kept)
        total += each.double().sum(1) / kept
    return total / draws


def _surprise(
    logits: Float[Tensor, "batch length vocab"], tokens: Int[Tensor, "batch length"]
) -> Float[Tensor, "batch length"]:
    picked = logits.gather(-1, tokens[..., None])[..., 0].float()
    return (logits.float().logsumexp(-1) - picked).double()


# ---------------------------------------------------------------------- structures


class PathGap(NamedTuple):
    """bound      mean over the truth of the bound on -log p(x), in nats per sequence
    entropy    of the truth: the smallest value that the mean can have
    """

    bound: float
    entropy: float

    @property
    def gap(self) -> float:
        """bound - entropy: how far the denoiser's paths are from the true ones, as a KL."""
        return self.bound - self.entropy


@torch.no_grad()
def exact_masked_gap(lm: Masked, table: Table, *, block: Count | None = None) -> PathGap:
    """The bound over all sequences and all masks.

    Worked value: two fair bits that are equal, and a model that says ½ for every hidden bit. With
    k = 1: 2 log 2; with k = 2: 2 log 2. The bound is 1.386, the entropy 0.693, the gap log 2.
    """
    tokens = table.sequences
    probs = table.log_probs.exp()
    tokens, probs = tokens[probs > 0], probs[probs > 0]
    length = tokens.shape[1]
    block = length if block is None else as_size("block", block)
    total = 0.0
    for start in range(0, length, block):
        places = range(start, min(start + block, length))
        for k in range(1, len(places) + 1):
            sets = list(combinations(places, k))
            for chosen in sets:
                hidden = torch.zeros(length, dtype=torch.bool)
                hidden[places.stop :] = True
                hidden[list(chosen)] = True
                answers = lm.masked_log_probs(tokens, hidden.expand(tokens.shape))
                said = answers.gather(-1, tokens[..., None])[..., 0][:, list(chosen)].sum(1)
                total += float(-(probs * said).sum()) / k / len(sets)
    return PathGap(total, float(-(probs * probs.log()).sum()))


@runtime_checkable
class Denoises(Protocol):
    """A denoiser of uniform noise, network or truth."""

    @property
    def vocab_size(self) -> int: ...

    def denoised_log_probs(
        self, tokens: Int[Tensor, "batch length"], kept: Float[Tensor, " batch"], /
    ) -> Float[Tensor, "batch length vocab"]: ...


@torch.no_grad()
def exact_noised_gap(lm: Denoises, table: Table, *, points: Count = 64) -> PathGap:
    """The bound over all sequences and noisy sequences, by Gauss's rule in the noise.

    `points` values of α are asked about.
    """
    points = as_count("points", points, at_least=2)
    tokens, probs = table.sequences, table.log_probs.exp()
    words, total = table.vocab_size, 0.0
    for alpha, share in zip(*_rule(points), strict=True):
        likely = _noise_log_probs(tokens, tokens, alpha, words).exp()  # [clean, noisy]
        kept = torch.full((len(tokens),), alpha, dtype=torch.float64)
        answers = posterior_of(lm.denoised_log_probs(tokens, kept), tokens, kept, back=True)
        for clean, prob in zip(tokens, probs.tolist(), strict=True):
            if prob == 0:
                continue
            row = int((tokens == clean).all(1).nonzero()[0, 0])
            each = jump_losses(answers, tokens, clean.expand(tokens.shape), kept).sum(1)
            total += share / alpha * prob * float((likely[row] * each).sum())
    live = probs[probs > 0]
    return PathGap(total, float(-(live * live.log()).sum()))


def _rule(points: int) -> tuple[Sequence[float], Sequence[float]]:
    """Nodes and shares on [0, 1] for what bends like log(1 - α) at 1: Gauss's in (1 - α)^¼."""
    nodes, weights = np.polynomial.legendre.leggauss(points)
    inner = nodes > 1e-3 - 1  # where 1 - α would round away, the share is 0 to rounding as well
    root, weights = (nodes[inner] + 1) / 2, weights[inner]
    return (1 - root**4).tolist(), (weights / 2 * 4 * root**3).tolist()


def _noise_log_probs(
    clean: Int[Tensor, "clean length"], noisy: Int[Tensor, "noisy length"], alpha: float, words: int
) -> Float[Tensor, "clean noisy"]:
    """log p(z | x): each token kept with α, uniform otherwise."""
    same = (clean[:, None] == noisy[None]).sum(-1).double()
    stay, jump = np.log(alpha + (1 - alpha) / words), np.log((1 - alpha) / words)
    return same * stay + (clean.shape[1] - same) * jump


class TrueDenoiser:
    """The posterior of every token under uniform noise, by enumeration: the best denoiser."""

    def __init__(self, table: Table) -> None:
        self.table = table

    @property
    def vocab_size(self) -> int:
        return self.table.vocab_size

    def denoised_log_probs(
        self, tokens: Int[Tensor, "batch length"], kept: Float[Tensor, " batch"], /
    ) -> Float[Tensor, "batch length vocab"]:
        """log p(x_i = v | z), all of z; at one α for all rows."""
        clean = self.table.sequences
        likely = _noise_log_probs(clean, tokens, float(kept[0]), self.vocab_size)
        weight = (likely + self.table.log_probs[:, None]).T  # [noisy, clean]
        weight = (weight - weight.logsumexp(-1, keepdim=True)).exp()
        one_hot = torch.nn.functional.one_hot(clean, self.vocab_size).double()
        return torch.einsum("zc,civ->ziv", weight, one_hot).log()

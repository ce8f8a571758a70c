"""Objectives of diffusion language models: masks at any rate, in blocks, and uniform noise.

Their losses bound -log p(x) per token, in nats, so a trained network has a bound of its own.

    any_rate(words)             k positions hidden, k uniform on 1..N; each counts N/k
    any_rate(words, block=B)    the same in one block; tokens before it are shown, after it hidden
    uniform_noise(words)        tokens redrawn at a random level; the loss of `jumps`

The first is the bound of masked (absorbing) diffusion and of models of any order:

    -log p(x) ≤ E_k [ N/k Σ_{i hidden} -log p(x_i | shown) ]

and an exact oracle has, on average over x, the entropy. `objectives.masked` and
`objectives.positions` hide at one rate or k positions alone.

Notation
--------
N   length        B   positions of a block        α   the chance that a token was kept
"""

import functools
import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.protocols import Masked, Rng
from triptych.core.validation import Count, UserError, as_size
from triptych.models.noised import LEVELS, level_of
from triptych.training.objectives import Objective, Prediction

FINE = 64
"""Strengths of noise inside a level."""
_IN_TURN = 32  # up to this length positions are drawn one after the other
_DIGITS, _BASE = 3, 2**15


def any_rate(*, words: Count, block: Count | None = None, truth: Masked | None = None) -> Objective:
    """Predict the tokens that a random number of masks hides: the bound of masked diffusion.

    With `block`, the bound of block diffusion: one block at a time is written, from left to right,
    and the network sees masks after it. A last, shorter block counts by its positions.
    """
    words = as_size("words", words)
    block = None if block is None else as_size("block", block)

    def prepare(tokens: Int[Tensor, "batch length"], rng: Rng) -> Prediction:
        hidden, scored, weight = masks_at_any_rate(tokens.shape, rng, tokens.device, block=block)
        law = None if truth is None else truth.masked_log_probs(tokens, hidden)
        return Prediction(tokens.masked_fill(hidden, words), tokens, scored, law, weight)

    return prepare


def masks_at_any_rate(
    shape: torch.Size, rng: Rng, device: torch.device, *, block: int | None = None
) -> tuple[
    Bool[Tensor, "batch length"], Bool[Tensor, "batch length"], Float[Tensor, "batch length"]
]:
    """Where is hidden, where is scored, and how much a position counts.

    Worked value: 4 positions in blocks of 2. A block is drawn with probability ½, one or both of
    its positions with ½ each, and a scored one counts 4/k: over all draws each position's mean
    weight is ½ · (½ · ½ · 4 + ½ · 4/2) = 1.
    """
    batch, length = shape
    if block is not None and block > length:
        raise UserError(f"block is {block}; sequences have {length} positions", parameter="block")
    place = torch.arange(length, device=device)
    size = torch.full((batch,), length, device=device)
    start = torch.zeros_like(size)
    if block is not None:  # a block in proportion to its positions, by the position that is in it
        start = _uniform(length, (batch,), rng, device) // block * block
        size = (length - start).clamp(max=block)
    inside = (place >= start[:, None]) & (place < (start + size)[:, None])
    count = _up_to(size, rng)
    scored = _chosen(inside, count, rng)
    weight = (length / count.double())[:, None].expand(batch, length)
    after = place >= (start + size)[:, None]
    return scored | after, scored, weight.to(torch.float32)


def uniform_noise(*, words: Count, levels: Count = LEVELS) -> Objective:
    """Predict the token that stood at every position, from a sequence with uniform noise.

    What the network sees begins with the id words + level (see `NoisedLM`). The chance α that a
    token was kept is one of `levels` times 64, in the middle of equal parts of [0, 1].
    """
    words, levels = as_size("words", words), as_size("levels", levels)

    def prepare(tokens: Int[Tensor, "batch length"], rng: Rng) -> Prediction:
        kept = noise_levels(len(tokens), levels, rng, tokens.device)
        seen = torch.cat(
            [words + level_of(kept, levels)[:, None], redrawn(tokens, kept, words=words, rng=rng)],
            1,
        )
        weight = (1 / kept)[:, None].expand(tokens.shape).to(torch.float32)
        return Prediction(
            seen, tokens, torch.ones_like(tokens, dtype=torch.bool), None, weight, kept
        )

    return prepare


def noise_levels(
    count: int, levels: int, rng: Rng, device: torch.device
) -> Float[Tensor, " {count}"]:
    """α for each row: the middle of one of `levels` x 64 equal parts of [0, 1]."""
    parts = levels * FINE
    return (_uniform(parts, (count,), rng, device).double() + 0.5) / parts


def redrawn(
    tokens: Int[Tensor, "batch length"], kept: Float[Tensor, " batch"], *, words: int, rng: Rng
) -> Int[Tensor, "batch length"]:
    """Each token with probability α, and a uniform word otherwise."""
    fates = torch.stack([kept, 1 - kept], 1).log()
    rows = torch.arange(len(tokens), device=tokens.device)[:, None].expand(tokens.shape)
    fate = rng.categorical(fates, rows)
    return torch.where(fate == 0, tokens, _uniform(words, tokens.shape, rng, tokens.device))


def _uniform(
    outcomes: int, shape: tuple[int, ...] | torch.Size, rng: Rng, device: torch.device
) -> Int[Tensor, "..."]:
    rows = torch.zeros(shape, dtype=torch.long, device=device)
    return rng.categorical(_flat(outcomes, device), rows)


@functools.lru_cache(maxsize=16)
def _flat(outcomes: int, device: torch.device) -> Float[Tensor, "1 outcomes"]:
    """One tensor for all calls, because an rng keeps the table that it draws from."""
    return torch.full((1, outcomes), -math.log(outcomes), dtype=torch.float64, device=device)


def _up_to(size: Int[Tensor, " batch"], rng: Rng) -> Int[Tensor, " batch"]:
    """Uniform on 1..size, for each row."""
    most = int(size.max())
    outcomes = torch.arange(most, device=size.device)
    allowed = (outcomes < size[:, None]).double().log()
    return 1 + rng.categorical(allowed.log_softmax(-1))


def _chosen(
    inside: Bool[Tensor, "batch length"], count: Int[Tensor, " batch"], rng: Rng
) -> Bool[Tensor, "batch length"]:
    """`count` of the positions inside, every choice with the same chance.

    In short rows one position is drawn after the other. Long ones are sorted by keys of 45 random
    bits, where two of 256 positions share a key once in 10⁹ rows; the earlier is then the first.
    """
    length = inside.shape[1]
    if length <= _IN_TURN:
        left = inside.clone()
        for turn in range(int(count.max())):
            drawing = (turn < count)[:, None]
            first = torch.arange(length, device=inside.device) == 0
            law = torch.where(drawing, left, first).double().log().log_softmax(-1)
            drawn = torch.zeros_like(left).scatter(1, rng.categorical(law)[:, None], True)
            left = left & ~(drawn & drawing)
        return inside & ~left
    keys = torch.zeros_like(inside, dtype=torch.long)
    for _ in range(_DIGITS):
        keys = keys * _BASE + _uniform(_BASE, inside.shape, rng, inside.device)
    keys = keys.masked_fill(~inside, torch.iinfo(torch.long).max)
    ranks = keys.argsort(dim=1, stable=True).argsort(dim=1)
    return ranks < count[:, None]

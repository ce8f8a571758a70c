"""The corruption of masked-language-model training [li, 2.1.1].

Each position is selected with probability p_m. A selected token is kept with probability p_c,
replaced by a uniform random word with probability p_r, and by the mask token otherwise. BERT's
80/10/10 rule is p_c = p_r = 0.1.
"""

import functools
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.randomness import RngLike, as_rng
from triptych.core.validation import (
    Count,
    Number,
    Tokens,
    as_integers,
    as_probability,
    as_size,
)


class Corrupted(NamedTuple):
    """tokens: what the network sees. selected: the positions it must predict."""

    tokens: Int[Tensor, "batch length"]
    selected: Bool[Tensor, "batch length"]


def corrupt(
    tokens: Tokens,
    rng: RngLike,
    *,
    words: Count,
    mask_token: Count,
    p_m: Number,
    p_c: Number = 0.1,
    p_r: Number = 0.1,
) -> Corrupted:
    """Select, then keep, replace or mask, independently at every position.

    `words`: random replacements are uniform on 0..words-1, special tokens excluded.
    """
    tokens = as_integers("tokens", tokens, dimensions=2)
    rng = as_rng(rng, tokens.device)
    words, mask_token = as_size("words", words), as_size("mask_token", mask_token, at_least=0)
    law = _fates(words, *as_rates(p_m, p_c, p_r), tokens.device)
    fate = rng.categorical(law, torch.zeros_like(tokens))
    seen = torch.where(fate == 2, mask_token, torch.where(fate > 2, fate - 3, tokens))
    return Corrupted(seen, fate > 0)


def as_rates(p_m: Number, p_c: Number, p_r: Number) -> tuple[float, float, float]:
    """The probabilities of being selected, and then of being kept and replaced."""
    rates = (("p_m", p_m), ("p_c", p_c), ("p_r", p_r))
    selected, kept, replaced = (as_probability(name, value) for name, value in rates)
    as_probability("p_c + p_r", kept + replaced)
    return selected, kept, replaced


@functools.lru_cache(maxsize=16)
def _fates(
    words: int, p_m: float, p_c: float, p_r: float, device: torch.device
) -> Float[Tensor, "1 fates"]:
    """log-probabilities of: not selected, kept, masked, replaced by word w.

    One tensor for all calls, because an rng keeps the table that it draws from, and that costs
    more to build than a step of training a small network.
    """
    probs = torch.tensor(
        [1 - p_m, p_m * p_c, p_m * max(0.0, 1 - p_c - p_r)] + [p_m * p_r / words] * words,
        dtype=torch.float64,
        device=device,
    )
    return probs.log()[None]

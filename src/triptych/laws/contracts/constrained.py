"""Constrained decoding: p(x | grammar), which a mask over next tokens does not give.

Masking draws each token from p(x_t | x_<t) among those with an allowed completion. That forgets how
much mass the completions have; the verdict says by how many nats.

Worked value: two fair bits, 11 forbidden. p(x | grammar) is 1/3 each; masking gives 1/4, 1/4, 1/2.
"""

import itertools
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.laws.contract import Contract

LENGTH = 3
_generator = torch.Generator().manual_seed(2)
_TABLE = torch.randn(8, 2, generator=_generator, dtype=torch.float64).softmax(-1)


def next_probs(prefix: tuple[int, ...]) -> Float[Tensor, " vocab"]:
    """p(x_t | prefix), for two tokens."""
    return _TABLE[sum(2**k for k in range(len(prefix))) + sum(x << k for k, x in enumerate(prefix))]


def allowed(prefix: tuple[int, ...]) -> bool:
    """Whether some text that begins so has no two ones in a row, and ends with 1."""
    if any(a == b == 1 for a, b in itertools.pairwise(prefix)):
        return False
    return len(prefix) < LENGTH - 1 or prefix[-1] == (0 if len(prefix) == LENGTH - 1 else 1)


def _probability(text: tuple[int, ...]) -> float:
    p = 1.0
    for k, token in enumerate(text):
        p *= float(next_probs(text[:k])[token])
    return p


def law() -> dict[tuple[int, ...], float]:
    """p(x | allowed)."""
    texts = [x for x in itertools.product(range(2), repeat=LENGTH) if allowed(x)]
    joint = {text: _probability(text) for text in texts if allowed(text[:-1])}
    total = sum(joint.values())
    return {text: p / total for text, p in joint.items()}


def _weigh(prefix: tuple[int, ...], next_probs: Any, allowed: Any, length: int) -> float:
    """The mass of allowed texts that begin with the prefix, given the prefix."""
    if not allowed(prefix):
        return 0.0
    if len(prefix) == length:
        return 1.0
    return sum(
        float(p) * _weigh((*prefix, token), next_probs, allowed, length)
        for token, p in enumerate(next_probs(prefix))
    )


def _right(next_probs: Any, allowed: Any, length: int) -> tuple[int, ...]:
    text: tuple[int, ...] = ()
    while len(text) < length:
        ahead = [_weigh((*text, token), next_probs, allowed, length) for token in range(2)]
        weights = next_probs(text) * torch.tensor(ahead, dtype=torch.float64)
        text = (*text, int(torch.multinomial(weights, 1)))
    return text


def _masking(next_probs: Any, allowed: Any, length: int) -> tuple[int, ...]:
    text: tuple[int, ...] = ()
    while len(text) < length:
        mask = torch.tensor([float(allowed((*text, token))) for token in range(2)])
        text = (*text, int(torch.multinomial(next_probs(text) * mask, 1)))
    return text


CONTRACTS = [
    Contract(
        name="constrained",
        promise="p given that the whole text is allowed",
        call="sampler(next_probs, allowed, length) returns a tuple of tokens; next_probs(prefix) "
        "are probabilities, allowed(prefix) says whether it has an allowed completion",
        program=lambda sampler: lambda: tuple(sampler(next_probs, allowed, LENGTH)),
        target=law(),
        right=_right,
        wrong=_masking,
    )
]

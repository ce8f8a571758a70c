"""Unmasking: all positions begin hidden, and one after the other is drawn given those shown.

With exact conditionals and an order that does not look at the tokens that are drawn, the result has
the joint law. An order that prefers confident draws changes it, as do two positions drawn at once.

Worked value: two equal coins, p(00) = p(11) = 1/2. One at a time gives 1/2; both at once 1/4.
"""

import itertools
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.laws.contract import Contract

LENGTH, VOCAB = 3, 2
_generator = torch.Generator().manual_seed(5)
JOINT = torch.randn(VOCAB**LENGTH, generator=_generator, dtype=torch.float64).softmax(-1)
JOINT = JOINT.reshape([VOCAB] * LENGTH)


def conditional(tokens: list[int | None], position: int) -> Float[Tensor, " vocab"]:
    """p(x_position | the tokens that are shown)."""
    table = JOINT[tuple(slice(None) if x is None else slice(x, x + 1) for x in tokens)]
    others = [k for k in range(LENGTH) if k != position]
    probs = table.sum(dim=others) if others else table
    return probs / probs.sum()


def _right(law: Any, length: int) -> list[int | None]:
    tokens: list[int | None] = [None] * length
    for position in torch.randperm(length).tolist():
        tokens[position] = int(torch.multinomial(law(tokens, position), 1))
    return tokens


def _confident(law: Any, length: int) -> list[int | None]:
    """Draws all that is hidden, and keeps the draw of the highest probability."""
    tokens: list[int | None] = [None] * length
    while None in tokens:
        hidden = [k for k in range(length) if tokens[k] is None]
        drawn = {k: int(torch.multinomial(law(tokens, k), 1)) for k in hidden}
        best = max(hidden, key=lambda k: float(law(tokens, k)[drawn[k]]))
        tokens[best] = drawn[best]
    return tokens


CONTRACTS = [
    Contract(
        name="unmasking",
        promise="what is unmasked has the joint law of the conditionals",
        call="sampler(law, length) returns tokens; law(tokens, position) are the probabilities at "
        "a position given the tokens that are not None",
        program=lambda sampler: lambda: tuple(int(x) for x in sampler(conditional, LENGTH)),
        target={x: float(JOINT[x]) for x in itertools.product(range(VOCAB), repeat=LENGTH)},
        right=_right,
        wrong=_confident,
    )
]

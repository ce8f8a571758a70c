"""Best of n: of n independent draws the first one with the highest value.

    P(x) = p(x) / p(V = v) · (F(v)^n - F(v-)^n),   v = V(x), F(v) = p(V <= v), F(v-) = p(V < v)

Worked value: p = (1/2, 1/2), values 0 and 1, n = 2: outcome 1 unless both draws are 0, so 3/4.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.laws.contract import Contract

PROBS = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
VALUES = torch.tensor([0.0, 1.0, 1.0, 2.0], dtype=torch.float64)
N = 3


def law(
    probs: Float[Tensor, " outcomes"], values: Float[Tensor, " outcomes"], n: int
) -> dict[int, float]:
    """The law of best of n."""
    found: dict[int, float] = {}
    for x, v in enumerate(values.tolist()):
        at, below = float(probs[values == v].sum()), float(probs[values < v].sum())
        found[x] = float(probs[x]) / at * ((at + below) ** n - below**n)
    return found


def _right(probs: Tensor, values: Tensor, n: int) -> int:
    drawn = torch.multinomial(probs, n, replacement=True)
    return int(drawn[values[drawn].argmax()])


def _without_replacement(probs: Tensor, values: Tensor, n: int) -> int:
    drawn = torch.multinomial(probs, n)
    return int(drawn[values[drawn].argmax()])


def _program(sampler: Any) -> Any:
    return lambda: int(sampler(PROBS.clone(), VALUES.clone(), N))


CONTRACTS = [
    Contract(
        name="best_of_n",
        promise="the best of n independent draws",
        call="sampler(probs, values, n) returns an outcome; probs and values have the shape "
        "(outcomes,); of equal values the first draw is taken",
        program=_program,
        target=law(PROBS, VALUES, N),
        right=_right,
        wrong=_without_replacement,
    )
]

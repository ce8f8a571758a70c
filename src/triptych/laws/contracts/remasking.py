"""Remasking: a step that hides shown tokens again and shows hidden ones, and keeps the noised law.

    q_α(z) = Σ_x p(x) Π_i (α if z_i = x_i, 1 - α if z_i is hidden)

A step draws x from p(· | what z shows), one text for all positions. Then, for every position alone,
a shown token is hidden with probability σ, and a hidden one becomes x_i with probability

    (β - (1 - σ) α) / (1 - α),   which moves q_α to q_β [Wang et al. 2025, ReMDM, equation 4]

With β = α that is σ α / (1 - α), and a step keeps q_α. A choice of what to hide that looks at the
tokens, as hiding unlikely ones first, keeps it no more.

Worked value: one fair coin, α = 1/2, σ = 1/2. A shown token is hidden with 1/2, a hidden one shown
with 1/2: half of the mass is hidden before and after.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.laws.contract import Contract

LENGTH, VOCAB = 2, 2
ALPHA, LATER, SIGMA = 0.5, 0.7, 0.3
State = tuple[int | None, ...]
JOINT = torch.tensor([[0.45, 0.05], [0.15, 0.35]], dtype=torch.float64)


def conditional(tokens: State, position: int) -> Float[Tensor, " vocab"]:
    """p(x_position | the tokens that are shown)."""
    table = JOINT[tuple(slice(None) if x is None else slice(x, x + 1) for x in tokens)]
    probs = table.sum(dim=[k for k in range(LENGTH) if k != position])
    return probs / probs.sum()


def noised(alpha: float) -> dict[State, float]:
    """q_α, from its definition."""
    found: dict[State, float] = {}
    for x in itertools.product(range(VOCAB), repeat=LENGTH):
        for shown in itertools.product((True, False), repeat=LENGTH):
            z = tuple(token if s else None for token, s in zip(x, shown, strict=True))
            chance = math.prod(alpha if s else 1 - alpha for s in shown)
            found[z] = found.get(z, 0.0) + float(JOINT[x]) * chance
    return found


def _step(state: State, law: Any, shows: float, hides: list[float]) -> list[int | None]:
    """Position by position: a shown token is hidden, and a hidden one shown, or stays."""
    filled: list[Any] = list(state)
    for k, token in enumerate(state):
        if token is None:  # one text for all positions: each token given those before it
            filled[k] = int(torch.multinomial(law(tuple(filled), k), 1))
    chances = [shows if token is None else 1 - h for token, h in zip(state, hides, strict=True)]
    stays = torch.rand(len(state), dtype=torch.float64) < torch.tensor(chances, dtype=torch.float64)
    return [token if kept else None for token, kept in zip(filled, stays.tolist(), strict=True)]


def _right(state: State, law: Any, alpha: float, later: float, sigma: float) -> list[int | None]:
    shows = (later - (1 - sigma) * alpha) / (1 - alpha)
    return _step(state, law, shows, [sigma] * len(state))


def _hides_the_unlikely(
    state: State, law: Any, alpha: float, later: float, sigma: float
) -> list[int | None]:
    """Hides as many tokens in the mean, those more that are unlikely given the others shown."""
    doubts = []
    for k, token in enumerate(state):
        others = tuple(None if j == k else x for j, x in enumerate(state))
        doubts.append(0.0 if token is None else 1 - float(law(others, k)[token]))
    shown = sum(token is not None for token in state)
    hides = [sigma * shown * doubt / (sum(doubts) or 1.0) for doubt in doubts]
    return _step(state, law, (later - (1 - sigma) * alpha) / (1 - alpha), hides)


def _as_without(
    state: State, law: Any, alpha: float, later: float, sigma: float
) -> list[int | None]:
    """Hides tokens again, and shows as few hidden ones as if it had not."""
    return _step(state, law, (later - alpha) / (1 - alpha), [sigma] * len(state))


def _begun(sampler: Callable[..., Any]) -> Callable[[], Any]:
    """A state of q_α, and a step from it."""
    states, chances = zip(*noised(ALPHA).items(), strict=True)
    probs = torch.tensor(chances, dtype=torch.float64)

    def program() -> tuple[Any, ...]:
        state = states[int(torch.multinomial(probs, 1))]
        return tuple(sampler(state, conditional, ALPHA, LATER, SIGMA))

    return program


_CALL = (
    "step(state, law, alpha, later, sigma) returns tokens, None where hidden; law(tokens, "
    "position) are the probabilities at a position given the tokens that are not None; "
)

CONTRACTS = [
    Contract(
        name="remasking",
        promise="a step at one noise keeps the noised law",
        call=_CALL + "later is alpha",
        program=lambda sampler: (
            lambda state: tuple(sampler(state, conditional, ALPHA, ALPHA, SIGMA))
        ),
        target=noised(ALPHA),
        right=_right,
        wrong=_hides_the_unlikely,
        kind="kernel",
    ),
    Contract(
        name="remasking_step",
        promise="a step from the noised law at alpha has the noised law at later",
        call=_CALL + "later is above alpha",
        program=_begun,
        target=noised(LATER),
        right=_right,
        wrong=_as_without,
    ),
]

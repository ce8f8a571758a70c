"""Steps of chains that keep a law: Metropolis, Gibbs, and masking a position to draw it again.

A Metropolis step proposes y from q(· | x) and accepts with min(1, π(y) q(x | y) / (π(x) q(y | x))).
A Gibbs step draws a coordinate, whose choice does not look at the state, from π given the others.

Worked value: π = (1/3, 2/3) and a proposal of the other state: 0 always moves, 1 moves with 1/2.
"""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from triptych.laws.contract import Contract

LAW = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
PROPOSE = torch.tensor(
    [[0.0, 0.5, 0.25, 0.25], [0.2, 0.0, 0.4, 0.4], [0.1, 0.1, 0.0, 0.8], [0.3, 0.3, 0.4, 0.0]],
    dtype=torch.float64,
)
JOINT = torch.tensor([[0.10, 0.25, 0.05], [0.20, 0.10, 0.30]], dtype=torch.float64)
_CELLS = list(itertools.product(range(2), range(3)))


def _metropolis(state: int, law: Tensor, propose: Tensor) -> int:
    new = int(torch.multinomial(propose[state], 1))
    ratio = law[new] * propose[new, state] / (law[state] * propose[state, new])
    return new if torch.rand((), dtype=torch.float64) < ratio else state


def _without_the_proposal(state: int, law: Tensor, propose: Tensor) -> int:
    """Leaves q out of the ratio, as if it were symmetric."""
    new = int(torch.multinomial(propose[state], 1))
    return new if torch.rand((), dtype=torch.float64) < law[new] / law[state] else state


def _gibbs(state: tuple[int, int], joint: Tensor) -> tuple[int, int]:
    if torch.rand(()) < 0.5:
        return int(torch.multinomial(joint[:, state[1]], 1)), state[1]
    return state[0], int(torch.multinomial(joint[state[0]], 1))


def _looks_at_the_state(state: tuple[int, int], joint: Tensor) -> tuple[int, int]:
    """Redraws the first coordinate of unlikely states, and the second of the others."""
    if joint[state] < joint.mean():
        return int(torch.multinomial(joint[:, state[1]], 1)), state[1]
    return state[0], int(torch.multinomial(joint[state[0]], 1))


def _with(*given: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda sampler: lambda state: sampler(state, *given)


_JOINT_LAW = {cell: float(JOINT[cell]) for cell in _CELLS}

CONTRACTS = [
    Contract(
        name="metropolis",
        promise="a step keeps the law",
        call="step(state, law, propose) returns the next state; propose[x, y] is the chance to "
        "propose y from x",
        program=_with(LAW, PROPOSE),
        target=dict(enumerate(LAW.tolist())),
        right=_metropolis,
        wrong=_without_the_proposal,
        kind="kernel",
    ),
    Contract(
        name="gibbs",
        promise="a step keeps the joint law; so does masking a position and drawing it again",
        call="step(state, joint) returns the next state, a pair of whole numbers; joint[state] is "
        "its probability",
        program=_with(JOINT),
        target=_JOINT_LAW,
        right=_gibbs,
        wrong=_looks_at_the_state,
        kind="kernel",
    ),
]

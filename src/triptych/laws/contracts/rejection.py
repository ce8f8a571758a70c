"""Rejection sampling with a number of attempts: the target, or None when all attempts fail.

A proposal q is accepted with w(x) / M. One attempt succeeds with Z / M, Z = Σ q(x) w(x), so that
P(None) = (1 - Z / M)^n and P(x) = (1 - P(None)) q(x) w(x) / Z.

Worked value: q = (1/2, 1/2), w = (1, 1/2), M = 1: Z = 3/4, and of one attempt P(0) = 1/2.
"""

from typing import Any

import torch
from torch import Tensor

from triptych.laws.contract import Contract

PROPOSAL = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
WEIGHTS = torch.tensor([0.2, 1.0, 0.6], dtype=torch.float64)
BOUND, ATTEMPTS = 1.25, 3


def law() -> dict[int | None, float]:
    """The promised law on this case."""
    joint = PROPOSAL * WEIGHTS
    mass = float(joint.sum())
    failed = (1 - mass / BOUND) ** ATTEMPTS
    return {None: failed} | {x: (1 - failed) * float(j) / mass for x, j in enumerate(joint)}


def _right(proposal: Tensor, weights: Tensor, bound: float, attempts: int) -> int | None:
    for _ in range(attempts):
        x = int(torch.multinomial(proposal, 1))
        if torch.rand((), dtype=torch.float64) * bound < weights[x]:
            return x
    return None


def _keeps_the_last(proposal: Tensor, weights: Tensor, bound: float, attempts: int) -> int | None:
    """Gives the last proposal when all were rejected."""
    x = None
    for _ in range(attempts):
        x = int(torch.multinomial(proposal, 1))
        if torch.rand((), dtype=torch.float64) * bound < weights[x]:
            return x
    return x


def _program(sampler: Any) -> Any:
    return lambda: sampler(PROPOSAL.clone(), WEIGHTS.clone(), BOUND, ATTEMPTS)


CONTRACTS = [
    Contract(
        name="rejection",
        promise="the target on what is accepted, and None with the chance that all attempts fail",
        call="sampler(proposal, weights, bound, attempts) returns an outcome or None; weights are "
        "at most bound",
        program=_program,
        target=law(),
        right=_right,
        wrong=_keeps_the_last,
    )
]

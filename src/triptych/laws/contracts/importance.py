"""Importance resampling, and the normaliser of sequential Monte Carlo.

Self-normalised importance resampling draws n proposals and gives one of them by weight: its law is
Σ over proposals of Π q(x_i) · w(x) / Σ w(x_i), which tends to the target and is not yet it.

The estimate Z of particles is unbiased: the product over steps of the mean weight, with resampling
between them, has the mean Σ_x p(x) Π_t g_t(x_t), for any number of particles.

Worked value: one particle is its own proposal, so the law is q and the mean of w is Z.
"""

import itertools
from typing import Any

import torch
from torch import Tensor

from triptych.laws.contract import Contract

PROPOSAL = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
WEIGHTS = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
PARTICLES = 3


def resampled_law(n: int) -> dict[int, float]:
    """The law of one of n proposals, drawn by weight."""
    found = dict.fromkeys(range(len(PROPOSAL)), 0.0)
    q, w = PROPOSAL.tolist(), WEIGHTS.tolist()
    for drawn in itertools.product(found, repeat=n):
        chance, total = 1.0, sum(w[x] for x in drawn)
        for x in drawn:
            chance *= q[x]
        for x in drawn:
            found[x] += chance * w[x] / total
    return found


def _right(proposal: Tensor, weights: Tensor, n: int) -> int:
    drawn = torch.multinomial(proposal, n, replacement=True)
    return int(drawn[torch.multinomial(weights[drawn], 1)])


def _by_target(proposal: Tensor, weights: Tensor, n: int) -> int:
    """Counts the proposal twice: the draws have it already."""
    drawn = torch.multinomial(proposal, n, replacement=True)
    return int(drawn[torch.multinomial((proposal * weights)[drawn], 1)])


# ------------------------------------------------------------------ the normaliser

START = torch.tensor([0.6, 0.4], dtype=torch.float64)
MOVES = torch.tensor([[0.7, 0.3], [0.2, 0.8]], dtype=torch.float64)
POTENTIALS = torch.tensor([[1.0, 0.5], [0.2, 0.9]], dtype=torch.float64)


def normaliser() -> float:
    """Σ over paths of p(path) g_1(x_1) g_2(x_2)."""
    return float((START * POTENTIALS[0]) @ MOVES @ POTENTIALS[1])


def _unbiased(start: Tensor, moves: Tensor, potentials: Tensor, n: int) -> float:
    states = torch.multinomial(start, n, replacement=True)
    estimate = 1.0
    for t, potential in enumerate(potentials):
        if t:
            states = torch.multinomial(moves[states], 1)[:, 0]
        weights = potential[states]
        estimate *= float(weights.mean())
        states = states[torch.multinomial(weights, n, replacement=True)]
    return estimate


def _without_resampling(start: Tensor, moves: Tensor, potentials: Tensor, n: int) -> float:
    """Multiplies means of weights of particles that were not resampled."""
    states = torch.multinomial(start, n, replacement=True)
    estimate = 1.0
    for t, potential in enumerate(potentials):
        if t:
            states = torch.multinomial(moves[states], 1)[:, 0]
        estimate *= float(potential[states].mean())
    return estimate


def _resampling(sampler: Any) -> Any:
    return lambda: int(sampler(PROPOSAL.clone(), WEIGHTS.clone(), PARTICLES))


def _estimating(sampler: Any) -> Any:
    return lambda: round(float(sampler(START, MOVES, POTENTIALS, 2)), 12)


CONTRACTS = [
    Contract(
        name="importance",
        promise="one of n proposals, drawn in proportion to its weight",
        call="sampler(proposal, weights, n) returns an outcome; weights are target / proposal",
        program=_resampling,
        target=resampled_law(PARTICLES),
        right=_right,
        wrong=_by_target,
    ),
    Contract(
        name="smc_normaliser",
        promise="the estimate of the normaliser is unbiased",
        call="sampler(start, moves, potentials, n) returns an estimate of Z by n particles; moves "
        "has a row per state, potentials a row per step",
        program=_estimating,
        target={normaliser(): 1.0},
        right=_unbiased,
        wrong=_without_resampling,
        kind="mean",
    ),
]

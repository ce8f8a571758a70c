"""How soon block dynamics forgets its start: mixing times and the decay of χ², exactly.

Total variation from p never grows along the chain; from a law r it falls at least as √χ²(r, p) / 2
does, and a step multiplies χ² by at most (1 - 1/C)², C the Poincaré constant of `block_dynamics`.

Notation
--------
p   the law that a step leaves as it is   [count], sequences in lexicographic order
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.validation import check_shape
from triptych.theory.masking.blocks.dynamics import BlockDynamics, components

_MOST_STEPS = 2**40
_ROUNDING = 1e-12  # a distance met up to rounding is met
_LAW = 1e-6  # by which the sum of a law may differ from 1


def mixing_time(
    dynamics: BlockDynamics,
    distance: float = 0.25,
    *,
    start: Float[Tensor, " count"] | None = None,
    most: int = 100_000,
) -> float:
    """Steps until total variation from p is at most `distance`, from the worst x or from a law.

    From the worst x by powers of the matrix and bisection, because the distance never grows; a
    distance is met up to 1e-12, which can be a step too early after 1e10 steps;
    infinite if the chain falls apart. From a law step by step without a matrix; infinite if `most`
    steps are not enough. Worked value: two fair bits, singletons: after a step from 00 the law
    is ½, ¼, ¼, 0, which is ¼ away, and each further step halves that. So 1 step for ¼, 2 for ⅛.
    """
    if not 0 < distance < 1:
        raise ValueError(f"distance is {distance}; it must lie strictly between 0 and 1")
    p = dynamics.stationary
    if start is not None:
        _check_law(dynamics, start)
        law = start
        for step in range(most + 1):
            if 0.5 * float((law - p).abs().sum()) <= distance + _ROUNDING:
                return float(step)
            law = dynamics.moved(law)
        return math.inf
    if components(dynamics) > 1:
        return math.inf
    at = torch.nonzero(dynamics.support)[:, 0]
    now = torch.eye(len(at), dtype=torch.float64)
    if _farthest(now, p[at]) <= distance + _ROUNDING:
        return 0.0
    powers = [dynamics.transition()[at][:, at]]
    while _farthest(powers[-1], p[at]) > distance + _ROUNDING:
        if 2 ** len(powers) > _MOST_STEPS:
            raise ValueError(f"the chain needs more than {_MOST_STEPS} steps: too slow to measure")
        square = powers[-1] @ powers[-1]
        powers.append(square / square.sum(1, keepdim=True))
    steps = 0
    for j in reversed(range(len(powers) - 1)):
        further = now @ powers[j]
        if _farthest(further, p[at]) > distance + _ROUNDING:
            now, steps = further, steps + 2**j
    return float(steps + 1)


def _farthest(rows: Float[Tensor, "starts states"], p: Float[Tensor, " states"]) -> float:
    return 0.5 * float((rows - p).abs().sum(1).max())


def _check_law(dynamics: BlockDynamics, law: Float[Tensor, " count"]) -> None:
    p = dynamics.stationary
    check_shape("start", law, tuple(p.shape), "a probability for every sequence")
    total = float(law.sum())
    if not (abs(total - 1) <= _LAW and bool((law >= 0).all())):
        raise ValueError(
            f"start is not a law: its least entry is {float(law.min()):.3g} and its sum is "
            f"{total:.6g}; entries must be at least 0 and sum to 1"
        )
    if (law[~dynamics.support] != 0).any():
        raise ValueError("start has mass where p has none: the chain is not defined there")


def chi_square_decay(
    dynamics: BlockDynamics, start: Float[Tensor, " count"], steps: int
) -> Float[Tensor, " times"]:
    """χ²(law after t steps, p) for t = 0..steps; each step multiplies it by at most (1 - 1/C)².

    Worked value: one fair bit from a point mass: 1, then 0.
    """
    _check_law(dynamics, start)
    p, law, found = dynamics.stationary, start, []
    log_p = dynamics.table.log_probs.masked_fill(~dynamics.support, 0.0)
    for step in range(steps + 1):
        if dynamics.wide:  # p may be 0 where its logarithm is not
            away = (2 * (law - p).abs().log() - log_p).exp()
        else:
            away = (law - p) ** 2 / log_p.exp()
        found.append(away.sum())
        law = dynamics.moved(law) if step < steps else law
    return torch.stack(found)

"""Exercises on masks and mixing: one constant for training and for sampling."""

from typing import Any

import torch

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.lab.exercises.checking import Exercise, near
from triptych.structures.ising import Ising
from triptych.theory.masking.blocks.dynamics import BlockDynamics, poincare_constant, slowest
from triptych.theory.masking.ferromagnet import Ferromagnet, gibbs_chain
from triptych.theory.numerics.hitting import Hitting

COUPLING = 0.5
ROWS, COLUMNS = 2, 3
SLOWER = 10.0
FEW_STEPS = 20.0


def _conditional(answer: Any) -> str:
    pair = Ising.chain(2, COUPLING)
    tokens, hidden = torch.tensor([[0, 1]]), torch.tensor([[True, False]])
    return near(answer, float(pair.masked_log_probs(tokens, hidden)[0, 0, 1].exp()))


def _gap(answer: Any) -> str:
    table = Table.of(Ising.chain(2, COUPLING))
    return near(answer, slowest(BlockDynamics(table, MaskLaw.of_size(2, 1)))[0])


def _better_blocks(answer: Any) -> str:
    """Blocks of two of the six spins of a grid that mix faster than all pairs alike."""
    table, spins = Table.of(Ising.grid(ROWS, COLUMNS, coupling=0.4, field=0.1)), ROWS * COLUMNS
    masks = answer if isinstance(answer, MaskLaw) else MaskLaw.weighted(spins, list(answer))
    if not bool((masks.blocks.sum(-1) == 2).all()):
        return "Every block must have two spins."
    every = poincare_constant(BlockDynamics(table, MaskLaw.of_size(spins, 2)))
    yours = poincare_constant(BlockDynamics(table, masks))
    return (
        "" if yours < every - 1e-9 else f"Your constant is {yours:.3f}; all pairs have {every:.3f}."
    )


def _slow_coupling(answer: Any) -> str:
    """The coupling at which single spins of the grid mix ten times as slowly as without one."""

    def constant(coupling: float) -> float:
        table = Table.of(Ising.grid(ROWS, COLUMNS, coupling, 0.0))
        return poincare_constant(BlockDynamics(table, MaskLaw.of_size(ROWS * COLUMNS, 1)))

    ratio = constant(float(answer)) / constant(0.0)
    if abs(ratio / SLOWER - 1) <= 0.02 and float(answer) > 0:
        return ""
    return f"With this coupling it is {ratio:.2f} times as slow."


def _smallest_block(answer: Any) -> str:
    """The smallest block that leaves the small mode of a ferromagnet within a few steps."""
    magnet = Ferromagnet.equal(10, 4, coupling=6.0, clique_field=5.0, free_field=5.0)

    def steps(k: int) -> float:
        chain = gibbs_chain(magnet, k)
        return float(Hitting(chain.log_matrix, chain.large).capped_mean(1000, start=0)[0])

    right = next(k for k in range(1, 11) if steps(k) <= FEW_STEPS)
    return near(answer, float(right), within=1e-9)


EXERCISES = (
    Exercise(
        _conditional,
        "p(s) is proportional to exp(J s1 s2). With s2 = +1 compare exp(J) and exp(-J).",
    ),
    Exercise(
        _gap,
        "The slowest function is s1 + s2: after a step its mean is λ times as large. A step draws "
        "one of the two spins again, and its mean is then tanh(J) times the other.",
    ),
    Exercise(
        _better_blocks,
        "Redraw together what depends on each other: the pairs of neighbours of the grid. The "
        "spins are 0 1 2 in the first row and 3 4 5 in the second.",
    ),
    Exercise(
        _slow_coupling,
        "The constant grows with J: try some couplings between 0 and 2, or halve an interval until "
        "the ratio is 10.",
    ),
    Exercise(
        _smallest_block,
        "A block must hold the whole clique of 4 often enough. Loop over k with `gibbs_chain` and "
        "`Hitting(...).capped_mean(1000, start=0)`.",
    ),
)

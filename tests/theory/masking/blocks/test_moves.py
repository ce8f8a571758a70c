"""The matrix of block dynamics from sums over supersets: the definition, and logarithms."""

import itertools
import math

import pytest
import torch

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.theory.masking.blocks.dynamics import BlockDynamics
from triptych.theory.masking.blocks.moves import (
    block_conditional,
    block_log_conditional,
    block_log_moves,
    block_moves,
    block_sum,
)

pytestmark = pytest.mark.numerical

HOLES = Table(2, 2, torch.tensor([1 / 2, 1 / 3, 0, 1 / 6], dtype=torch.float64).log())
CASES = {
    "one position": (Table.random(3, 1, seed=0), MaskLaw.of_size(1, 1)),
    "singletons": (Table.random(2, 4, seed=0), MaskLaw.of_size(4, 1)),
    "three letters": (Table.random(3, 3, seed=1), MaskLaw.of_size(3, 2)),
    "spans": (Table.random(2, 5, seed=2), MaskLaw.spans(5, 3)),
    "all sets": (Table.random(2, 3, seed=3), MaskLaw.independent(3, 0.3)),
    "an empty block": (Table.random(2, 2, seed=4), MaskLaw.weighted(2, [[], [0], [1]])),
    "the same block twice": (Table.random(2, 2, seed=5), MaskLaw.weighted(2, [[0], [0], [1]])),
    "holes": (HOLES, MaskLaw.of_size(2, 1)),
}
each_case = pytest.mark.parametrize(("table", "masks"), CASES.values(), ids=CASES.keys())


def by_definition(table, masks):
    """Σ_K p(K) p(y_K | x_-K) 1[x_-K = y_-K], by loops."""
    words = [tuple(x) for x in table.sequences.tolist()]
    p, chance = table.log_probs.exp().tolist(), masks.log_probs.exp().tolist()
    matrix = torch.zeros(len(words), len(words), dtype=torch.float64)
    for (a, x), (m, block) in itertools.product(enumerate(words), enumerate(masks.blocks.tolist())):
        same = [
            b
            for b, y in enumerate(words)
            if all(hidden or i == j for hidden, i, j in zip(block, x, y, strict=True))
        ]
        total = sum(p[b] for b in same)
        for b in same if total > 0 else ():
            matrix[a, b] += chance[m] * p[b] / total
    return matrix


@each_case
def test_the_definition(table, masks):
    every = torch.arange(len(table.log_probs))
    wanted = by_definition(table, masks)
    torch.testing.assert_close(block_moves(table, masks, every, every), wanted)
    torch.testing.assert_close(block_log_moves(table, masks).exp(), wanted)
    starts, ends = every.flip(0)[:2], every[-3:]
    torch.testing.assert_close(block_moves(table, masks, starts, ends), wanted[starts][:, ends])


@each_case
def test_the_operator_has_this_matrix(table, masks):
    dynamics = BlockDynamics(table, masks)
    one = torch.eye(len(table.log_probs), dtype=torch.float64)
    on = dynamics.support
    torch.testing.assert_close(dynamics.apply(one)[on], dynamics.transition()[on])


def test_worked_conditionals():
    block = torch.tensor([False, True])
    found = block_conditional(HOLES.log_probs, block, 2)
    assert found.tolist() == pytest.approx([3 / 5, 2 / 5, 0.0, 1.0])
    nothing = torch.tensor([False, False])
    assert block_conditional(HOLES.log_probs, nothing, 2).tolist() == [1.0, 1.0, 0.0, 1.0]
    values = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    assert block_sum(values, block, 2).tolist() == [3.0, 3.0, 7.0, 7.0]
    assert block_sum(values, nothing, 2).tolist() == values.tolist()


def test_conditionals_of_a_context_that_floats_do_not_hold():
    """Given x_0 = 1, which has e^-2000, x_1 is as fair as given x_0 = 0."""
    table = Table(2, 2, torch.tensor([0.0, 0.0, -2000.0, -2000.0]).double().log_softmax(0))
    block = torch.tensor([False, True])
    assert block_conditional(table.log_probs, block, 2).tolist() == pytest.approx([0.5] * 4)
    other = block_log_conditional(table.log_probs, torch.tensor([True, False]), 2)
    assert other.tolist() == pytest.approx([0.0, 0.0, -2000.0, -2000.0])


def test_logarithms_of_moves_that_floats_do_not_hold():
    """One bit with p = (1, e^-2000): it is left as rarely as it is met."""
    table = Table(2, 1, torch.tensor([0.0, -2000.0], dtype=torch.float64))
    logs = block_log_moves(table, MaskLaw.of_size(1, 1))
    assert logs.tolist() == [[0.0, -2000.0], [0.0, -2000.0]]
    lazy = MaskLaw.weighted(1, [[], [0]], [3.0, 1.0])
    found = block_log_moves(table, lazy)
    assert found[0].tolist() == pytest.approx([0.0, -2000.0 - math.log(4)])
    assert found[1].tolist() == pytest.approx([-math.log(4), math.log(3 / 4)])

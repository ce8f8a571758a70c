"""Block dynamics: the definition by brute force, two spins by hand, speed and mixing."""

import itertools
import math

import numpy as np
import pytest
import torch

from triptych.core.enumeration import exact_transition_matrix
from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.structures.ising import Ising
from triptych.structures.uniform import Uniform
from triptych.theory.masking.blocks import dynamics as bd
from triptych.theory.masking.blocks import mixing as block_mixing
from triptych.theory.masking.blocks import pairs as block_pairs
from triptych.theory.masking.blocks.dynamics import BlockDynamics
from triptych.theory.masking.blocks.sums import BlockSums

pytestmark = pytest.mark.numerical


def looking(length, blocks):
    """Blocks that hold ones are preferred; they differ in weight."""

    def log_weights(tokens):
        hidden = torch.zeros(len(blocks), length, dtype=torch.float64)
        for m, block in enumerate(blocks):
            hidden[m, list(block)] = 1.0
        return tokens.double() @ hidden.T * 0.7 + torch.arange(len(blocks)) * 0.1

    return MaskLaw.looking(length, blocks, log_weights)


def last_decides(tokens):
    """{0} if x_1 = 0, {1} if x_1 = 1: then x_1 cannot move, and with x_1 = 1 nothing can."""
    return torch.where(tokens[:, 1:] == torch.tensor([0, 1]), 0.0, -torch.inf).double()


HOLES = Table(2, 2, torch.tensor([1 / 2, 1 / 3, 0, 1 / 6], dtype=torch.float64).log())
CASES = {
    "of size 1": (Table.random(2, 3, seed=0), MaskLaw.of_size(3, 1)),
    "of size 2": (Table.random(3, 3, seed=1), MaskLaw.of_size(3, 2)),
    "spans": (Table.random(2, 4, seed=2), MaskLaw.spans(4, 2)),
    "independent": (Table.random(2, 3, seed=3), MaskLaw.independent(3, 0.4)),
    "mixed sizes": (
        Table.random(2, 3, seed=4),
        MaskLaw.weighted(3, [[0], [1, 2], [1]], [1.0, 2.0, 3.0]),
    ),
    "an empty block": (Table.random(2, 2, seed=5), MaskLaw.weighted(2, [[], [0], [1]])),
    "the same block twice": (Table.random(2, 2, seed=5), MaskLaw.weighted(2, [[0], [0], [1]])),
    "holes": (HOLES, MaskLaw.of_size(2, 1)),
    "looking": (Table.random(2, 3, seed=6), looking(3, [[0], [1, 2], [0, 2]])),
    "looking, holes": (HOLES, looking(2, [[0], [1]])),
}
each_case = pytest.mark.parametrize(("table", "masks"), CASES.values(), ids=CASES.keys())


def by_definition(table, masks):
    """P[x, y] = Σ_K p(K | x) p(y_K | x_-K, K) 1[y_-K = x_-K], by loops over the table."""
    words = [tuple(x) for x in table.sequences.tolist()]
    p = table.log_probs.exp().tolist()
    chance = masks.log_prob(table.sequences).exp().tolist()
    matrix = torch.zeros(len(words), len(words), dtype=torch.float64)
    for (a, x), (m, block) in itertools.product(enumerate(words), enumerate(masks.blocks.tolist())):
        same = [
            b
            for b, y in enumerate(words)
            if all(h or i == j for h, i, j in zip(block, x, y, strict=True))
        ]
        total = sum(p[b] * chance[b][m] for b in same)
        for b in same if total > 0 else ():
            matrix[a, b] += chance[a][m] * p[b] * chance[b][m] / total
    return matrix


@each_case
def test_the_matrix_is_the_definition(table, masks):
    dynamics = BlockDynamics(table, masks)
    on = dynamics.stationary > 0
    torch.testing.assert_close(dynamics.transition()[on], by_definition(table, masks)[on])
    f = torch.randn(len(on), 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = torch.einsum("xy,yab->xab", by_definition(table, masks), f)
    torch.testing.assert_close(dynamics.apply(f)[on], wanted[on])


@each_case
def test_reversible_and_never_negative(table, masks):
    dynamics = BlockDynamics(table, masks)
    p, on = dynamics.stationary, dynamics.stationary > 0
    flow = p[:, None] * by_definition(table, masks)
    torch.testing.assert_close(flow, flow.T)
    torch.testing.assert_close(dynamics.moved(p), p)
    start = torch.zeros_like(p)
    start[0] = 1.0
    torch.testing.assert_close(dynamics.moved(start), by_definition(table, masks)[0])
    values = bd.spectrum(dynamics)
    wanted = np.sort(np.linalg.eigvals(by_definition(table, masks)[on][:, on].numpy()).real)[::-1]
    np.testing.assert_allclose(values.numpy(), wanted, atol=1e-12)
    assert values.min() > -1e-12


def test_the_step_of_a_sampler_has_this_matrix():
    """By enumeration of a step that draws a block, then its tokens."""
    table, masks = CASES["looking"]
    joint = table.log_probs[:, None] + masks.log_prob(table.sequences)

    def step(x, rng):
        m = int(masks.draw(torch.tensor([x]), rng)[0])
        same = [
            b
            for b, y in enumerate(table.sequences.tolist())
            if all(h or i == j for h, i, j in zip(masks.blocks[m].tolist(), x, y, strict=True))
        ]
        drawn = int(rng.categorical(joint[same, m].log_softmax(0)))
        return tuple(table.sequences[same[drawn]].tolist())

    words = [tuple(x) for x in table.sequences.tolist()]
    torch.testing.assert_close(
        exact_transition_matrix(words, step), BlockDynamics(table, masks).transition()
    )


def test_worked_conditional_mean():
    dynamics = BlockDynamics(HOLES, MaskLaw.of_size(2, 1))
    x_1 = torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    assert dynamics.conditional_mean(x_1, 1).tolist() == pytest.approx([0.4, 0.4, 1.0, 1.0])
    one = BlockDynamics(Table.of(Uniform(2, 1)), MaskLaw.of_size(1, 1))
    assert one.transition().tolist() == [[0.5, 0.5], [0.5, 0.5]]
    with pytest.raises(ValueError, match="blocks of 3 positions on sequences of 2"):
        BlockDynamics(HOLES, MaskLaw.of_size(3, 1))
    with pytest.raises(ValueError, match="mass where p has none"):
        dynamics.moved(torch.tensor([0.0, 0.0, 1.0, 0.0], dtype=torch.float64))


def test_sums_are_shared():
    plan = BlockSums.of(torch.tensor([[True, True, False], [True, False, True]]), 2)
    assert plan.widths == (1, 1, 2)
    assert plan.entries == 8


# ------------------------------------------------------------------ the Dirichlet form


@each_case
def test_dirichlet_form_both_ways(table, masks):
    dynamics = BlockDynamics(table, masks)
    generator = torch.Generator().manual_seed(1)
    f = torch.randn(len(table.log_probs), 2, generator=generator, dtype=torch.float64)
    g = torch.randn(len(table.log_probs), 3, generator=generator, dtype=torch.float64)
    local = bd.dirichlet_form(dynamics, f, g)
    torch.testing.assert_close(local, bd.dirichlet_form_of_moves(dynamics, f, g))
    p, matrix = dynamics.stationary[:, None], by_definition(table, masks)
    torch.testing.assert_close(local, (p * f).T @ (g - matrix @ g))
    torch.testing.assert_close(bd.dirichlet_form(dynamics, f, f), (p * f).T @ (f - matrix @ f))


def test_worked_dirichlet_form():
    dynamics = BlockDynamics(Table.of(Uniform(2, 2)), MaskLaw.of_size(2, 1))
    x_0 = torch.tensor([[0.0], [0.0], [1.0], [1.0]], dtype=torch.float64)
    assert bd.dirichlet_form(dynamics, x_0, x_0).item() == pytest.approx(1 / 8)


@pytest.mark.parametrize("name", ["of size 1", "looking", "looking, holes"])
def test_the_kernel_on_pairs_never_leaves_its_block(name):
    dynamics = BlockDynamics(*CASES[name])
    kernel, law = block_pairs.pair_transition(dynamics), block_pairs.pair_stationary(dynamics)
    assert float(law.sum()) == pytest.approx(1.0)
    torch.testing.assert_close(law[:, None] * kernel, (law[:, None] * kernel).T)
    torch.testing.assert_close(law @ kernel, law)
    torch.testing.assert_close((kernel @ kernel)[law > 0], kernel[law > 0])
    shape = (len(dynamics.blocks), len(dynamics.stationary))
    generator = torch.Generator().manual_seed(2)
    f, g = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    wanted = float((law * f.reshape(-1)) @ (g.reshape(-1) - kernel @ g.reshape(-1)))
    assert block_pairs.pair_dirichlet_form(dynamics, f, g) == pytest.approx(wanted)
    x_alone = torch.randn(shape[1], generator=generator, dtype=torch.float64)
    on_pairs = block_pairs.pair_dirichlet_form(
        dynamics, x_alone.expand(shape), x_alone.expand(shape)
    )
    on_x = bd.dirichlet_form(dynamics, x_alone[:, None], x_alone[:, None])
    assert on_pairs == pytest.approx(on_x.item())
    of_block = torch.arange(shape[0]).double()[:, None].expand(shape)
    assert block_pairs.pair_dirichlet_form(dynamics, of_block, of_block) == pytest.approx(0.0)
    assert block_pairs.pair_poincare_constant(dynamics) == math.inf
    on = law > 0
    eigenvalues = np.linalg.eigvals(kernel[on][:, on].numpy()).real
    assert (eigenvalues > 1 - 1e-9).sum() > 1
    assert bd.poincare_constant(dynamics) < math.inf


def test_one_block_of_everything_is_ergodic_on_pairs():
    dynamics = BlockDynamics(Table.random(2, 2, seed=0), MaskLaw.of_size(2, 2))
    assert block_pairs.pair_poincare_constant(dynamics) == 1.0
    assert bd.poincare_constant(dynamics) == pytest.approx(1.0)
    never = MaskLaw.weighted(2, [[0, 1], [0]], [1.0, 0.0])
    assert block_pairs.pair_poincare_constant(BlockDynamics(dynamics.table, never)) == 1.0
    twice = MaskLaw.weighted(2, [[0, 1], [0, 1]])  # all of x moves, which of the two does not
    assert block_pairs.pair_poincare_constant(BlockDynamics(dynamics.table, twice)) == math.inf
    rarely = MaskLaw.looking(
        2, [[0, 1], [0]], lambda x: torch.tensor([0.0, -800.0]).double().expand(len(x), -1)
    )
    assert block_pairs.pair_poincare_constant(BlockDynamics(dynamics.table, rarely)) == math.inf


# ------------------------------------------------------------------ the gap


def test_worked_constants():
    for n in (2, 4):
        dynamics = BlockDynamics(Table.of(Ising.chain(n, 0.0, field=0.4)), MaskLaw.of_size(n, 1))
        assert bd.poincare_constant(dynamics) == pytest.approx(float(n))
        assert bd.relaxation_time(dynamics) == pytest.approx(float(n))
    # of 3 free spins 2 are drawn: a spin is missed with probability 1/3
    dynamics = BlockDynamics(Table.of(Uniform(2, 3)), MaskLaw.of_size(3, 2))
    assert bd.poincare_constant(dynamics) == pytest.approx(1.5)


@each_case
def test_the_slowest_function_attains_the_gap(table, masks):
    dynamics = BlockDynamics(table, masks)
    p, matrix = dynamics.stationary, by_definition(table, masks)
    if bd.components(dynamics) > 1:
        assert bd.poincare_constant(dynamics) == math.inf
        return
    gap, f = bd.slowest(dynamics)
    assert float(p @ f) == pytest.approx(0.0, abs=1e-12)
    assert float(p @ f**2) == pytest.approx(1.0)
    on = p > 0
    torch.testing.assert_close((matrix @ f)[on], ((1 - gap) * f)[on])
    wanted = np.sort(np.linalg.eigvals(matrix[on][:, on].numpy()).real)[-2]
    assert gap == pytest.approx(1 - wanted)


def test_chains_that_fall_apart():
    equal = Table(2, 2, torch.tensor([0.5, 0, 0, 0.5], dtype=torch.float64).log())
    dynamics = BlockDynamics(equal, MaskLaw.of_size(2, 1))
    assert bd.components(dynamics) == 2
    assert bd.poincare_constant(dynamics) == math.inf
    assert block_mixing.mixing_time(dynamics) == math.inf
    assert bd.components(BlockDynamics(equal, MaskLaw.of_size(2, 2))) == 1
    masks = MaskLaw.looking(2, [[0], [1]], last_decides)
    assert bd.components(BlockDynamics(Table.of(Uniform(2, 2)), masks)) == 3
    torch.testing.assert_close(bd.spectrum(dynamics), torch.tensor([1.0, 1.0], dtype=torch.float64))
    with pytest.raises(ValueError, match="point mass"):
        bd.slowest(BlockDynamics(Table(1, 2, torch.zeros(1).double()), MaskLaw.of_size(2, 1)))


def test_parts_by_a_walk():
    """Components against a search through the positive entries of P."""
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        probs = torch.rand(16, generator=generator, dtype=torch.float64)
        probs[torch.rand(16, generator=generator) < 0.6] = 0.0
        table = Table(2, 4, (probs / probs.sum()).log())
        dynamics = BlockDynamics(table, MaskLaw.of_size(4, 1))
        on = probs > 0
        reach = (torch.linalg.matrix_power(dynamics.transition()[on][:, on], 20) > 0).double()
        parts = len({tuple(row) for row in reach.tolist()})
        assert bd.components(dynamics) == parts


@pytest.mark.slow
def test_sixteen_thousand_states(unchecked_shapes):
    """Against the closed form for free spins, and a chain without a matrix against a dense one."""
    free = Table.of(Ising.chain(14, 0.0, field=0.3))
    masks = MaskLaw.of_size(14, 7)
    assert bd.poincare_constant(BlockDynamics(free, masks)) == pytest.approx(2.0)
    chain = BlockDynamics(Table.of(Ising.chain(8, 0.6, field=0.1)), MaskLaw.of_size(8, 4))
    dense = bd.poincare_constant(chain, method="dense")
    assert bd.poincare_constant(chain, method="lanczos") == pytest.approx(dense, rel=1e-10)


# ------------------------------------------------------------------ mixing


def test_worked_mixing_times():
    two = BlockDynamics(Table.of(Uniform(2, 2)), MaskLaw.of_size(2, 1))
    assert block_mixing.mixing_time(two) == 1
    assert block_mixing.mixing_time(two, 0.125) == 2
    assert block_mixing.mixing_time(two, 0.12) == 3
    assert block_mixing.mixing_time(two, 2.0**-12) == 11
    assert block_mixing.mixing_time(two, 0.75) == 0
    point = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)
    assert block_mixing.mixing_time(two, 0.125, start=point) == 2
    assert block_mixing.mixing_time(two, 0.01, start=point, most=3) == math.inf
    one = BlockDynamics(Table.of(Uniform(2, 1)), MaskLaw.of_size(1, 1))
    decay = block_mixing.chi_square_decay(one, torch.tensor([1.0, 0.0], dtype=torch.float64), 2)
    assert decay.tolist() == pytest.approx([1.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        block_mixing.mixing_time(two, 1.0)


def test_a_start_that_is_no_law_is_a_sentence():
    two = BlockDynamics(Table.of(Uniform(2, 2)), MaskLaw.of_size(2, 1))
    for wrong in ([0.5, 0.5, 0.5, 0.0], [1.5, -0.5, 0, 0], [math.nan, 1, 0, 0], [2.0, 0, 0, 0]):
        start = torch.tensor(wrong, dtype=torch.float64)
        with pytest.raises(ValueError, match="start is not a law"):
            block_mixing.mixing_time(two, start=start)
        with pytest.raises(ValueError, match="start is not a law"):
            block_mixing.chi_square_decay(two, start, 2)
    for length in (1, 2, 8):  # a law on one sequence would be spread over all of them
        short = torch.full((length,), 1 / length, dtype=torch.float64)
        with pytest.raises(ValueError, match="a probability for every sequence"):
            block_mixing.mixing_time(two, start=short)
        with pytest.raises(ValueError, match="a probability for every sequence"):
            block_mixing.chi_square_decay(two, short, 0)
        with pytest.raises(ValueError, match="a probability for every sequence"):
            two.moved(short)
    outside = torch.tensor([0.0, 0, 1, 0], dtype=torch.float64)
    holes = BlockDynamics(HOLES, MaskLaw.of_size(2, 1))
    with pytest.raises(ValueError, match="mass where p has none"):
        block_mixing.chi_square_decay(holes, outside, 0)
    with pytest.raises(ValueError, match="mass where p has none"):
        block_mixing.mixing_time(holes, 0.9, start=outside)


@pytest.mark.parametrize("distance", [0.25, 0.01])
@pytest.mark.parametrize("name", ["of size 2", "spans", "looking", "holes"])
def test_mixing_time_step_by_step(name, distance):
    dynamics = BlockDynamics(*CASES[name])
    p, on = dynamics.stationary, dynamics.stationary > 0
    matrix = by_definition(*CASES[name])[on][:, on]
    now, steps = torch.eye(int(on.sum()), dtype=torch.float64), 0
    while 0.5 * (now - p[on]).abs().sum(1).max() > distance:
        now, steps = now @ matrix, steps + 1
    assert block_mixing.mixing_time(dynamics, distance) == steps
    starts = torch.eye(len(p), dtype=torch.float64)[on]
    apart = [block_mixing.mixing_time(dynamics, distance, start=start) for start in starts]
    assert max(apart) == steps


def test_slow_chains_mix_at_their_rate():
    """Two spins, J = 6: from 11, TV is ½ e^(-t/C) up to the fast part, so ¼ takes C log 2 steps;
    and the relaxation bounds (C - 1) log 2 ≤ t ≤ C log(4 / p_min) hold."""
    dynamics = BlockDynamics(Table.of(Ising.chain(2, 6.0)), MaskLaw.of_size(2, 1))
    constant, steps = bd.poincare_constant(dynamics), block_mixing.mixing_time(dynamics)
    assert steps == pytest.approx(constant * math.log(2), rel=1e-3)
    smallest = float(dynamics.stationary.min())
    assert (constant - 1) * math.log(2) <= steps <= constant * math.log(4 / smallest)


@each_case
def test_chi_square_falls_at_the_promised_rate(table, masks):
    dynamics = BlockDynamics(table, masks)
    start = torch.zeros_like(dynamics.stationary)
    start[0] = 1.0
    decay = block_mixing.chi_square_decay(dynamics, start, 4)
    law = start
    for found in decay:
        p, on = dynamics.stationary, dynamics.stationary > 0
        assert float(((law - p)[on] ** 2 / p[on]).sum()) == pytest.approx(float(found))
        law = law @ by_definition(table, masks)
    rate = (1 - 1 / bd.poincare_constant(dynamics)) ** 2
    assert (decay[1:] <= rate * decay[:-1] * (1 + 1e-12) + 1e-15).all()

"""The law of what refinement writes: against the program itself, and the identity of one step."""

import math

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.divergences import kl_divergence
from triptych.core.enumeration import exact_law
from triptych.core.table import Table, all_sequences
from triptych.inference.chains.refinement import random_start, refine
from triptych.structures.translation import Translations
from triptych.theory.masking import parallel
from triptych.theory.refinement.ideal import TabledRefiner, ideal_refiner
from triptych.theory.refinement.output_laws import (
    output_laws,
    product_of_marginals,
    quality,
    total_correlation,
)

ORDERS = torch.tensor([[1, 0, 2, 3], [0, 1, 2, 3], [0, 2, 1, 3]])
WEIGHTS = torch.tensor([0.4, 0.3, 0.3], dtype=torch.float64)


def orders(agreement):
    return Translations(ORDERS, WEIGHTS, agreement, 4)


@pytest.mark.parametrize("agreement", [0.0, 0.5, 0.9, 1.0])
def test_one_step_loses_the_total_correlation(agreement):
    """KL(p ‖ what one step writes) = TC(p), and no refiner's step comes closer."""
    table = Table.of(orders(agreement))
    knows_nothing = ideal_refiner(table, right=0.0).refiner
    law = output_laws(knows_nothing, steps=1, sample=True)[0]
    tc = orders(agreement).total_correlation()
    assert float(kl_divergence(table.log_probs, law.log())) == pytest.approx(tc, abs=1e-12)
    assert total_correlation(table) == pytest.approx(tc, abs=1e-12)
    assert torch.allclose(law, product_of_marginals(table).log_probs.exp())
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        other = torch.rand((4, 4), generator=generator).double().log_softmax(-1)
        product = sum(other[i][all_sequences(4, 4)[:, i]] for i in range(4))
        assert float(kl_divergence(table.log_probs, product)) >= tc - 1e-12


def test_total_correlation_is_that_of_the_masking_chapter():
    table = Table.random(2, 3, seed=0)
    rows = table.log_probs.exp().expand(8, -1)
    assert total_correlation(table) == pytest.approx(
        float(parallel.total_correlation(rows, 2, 3)[0])
    )
    pair = Table(2, 2, torch.tensor([0.5, 0.0, 0.0, 0.5], dtype=torch.float64).log())
    assert total_correlation(pair) == pytest.approx(math.log(2))


@pytest.mark.parametrize("stutter", ["previous", "random", "keep"])
@pytest.mark.parametrize("sample", [False, True])
def test_against_the_enumerated_program(stutter, sample, unchecked_shapes):
    """`refine` itself, with every choice it can make, on two positions and two words."""
    refiner = ideal_refiner(Table.random(2, 2, seed=5), right=0.3).refiner
    steps = 3 if not sample else 2

    def program(rng):
        start = random_start([2], 2, rng)
        out = refine(
            refiner,
            start,
            [2],
            steps=steps,
            stutter=stutter,
            sample=sample,
            rng=rng,
            stop_when_stable=not sample,
        )
        return tuple(out.tokens[0].tolist())

    law = output_laws(refiner, steps=steps, sample=sample, stutter=stutter)[-1]
    expected = {
        tuple(y): p for y, p in zip(all_sequences(2, 2).tolist(), law.tolist(), strict=True)
    }
    assert exact_law(program).total_variation(expected) < 1e-12


@pytest.mark.parametrize("stutter", ["previous", "keep"])
def test_argmax_from_every_start(stutter):
    """All 256 starts through `refine`, which stops rows early; the laws agree after every step."""
    table = Table.of(orders(0.9))
    refiner = ideal_refiner(table).refiner
    laws = output_laws(refiner, steps=4, stutter=stutter)
    starts = all_sequences(4, 4)
    for steps in (1, 2, 4):
        out = refine(refiner, starts, torch.full((256,), 4), steps=steps, stutter=stutter)
        counts = torch.bincount(table.rank(out.tokens), minlength=256) / 256
        assert torch.allclose(laws[steps - 1], counts.double())


def test_worked_value_without_evidence():
    half = torch.full((4, 2, 2), 0.5).double().log()
    refiner = TabledRefiner(half)
    assert output_laws(refiner, steps=2, sample=True).tolist() == [[0.25] * 4] * 2
    assert output_laws(refiner, steps=2).tolist() == [[1, 0, 0, 0]] * 2
    assert output_laws(refiner, steps=1, start=[0, 0, 0, 1.0]).tolist() == [[1, 0, 0, 0]]


def test_stutter_of_one_step_does_not_depend_on_the_dial():
    """Σ_i Σ_v m_i(v) m_{i+1}(v) / 3: 0.36 + 0.30 + 0 = 0.66 of three pairs, at every agreement.

    Pair 1: 0.6·0.4 for a and 0.4·0.3 for b. Pair 2: b 0.3·0.3, c 0.3·0.7. Pair 3: nothing.
    """
    for agreement in (0.0, 0.5, 1.0):
        made = orders(agreement)
        table = Table.of(made)
        one_way = made.is_one_way(table.sequences)
        law = output_laws(ideal_refiner(table, right=0.0).refiner, steps=1, sample=True)[0]
        found = quality(law, table, one_way)
        truth = quality(table.log_probs.exp(), table, one_way)
        assert found.stutter == pytest.approx(0.66 / 3)
        assert truth.stutter == pytest.approx((1 - agreement) * 0.66 / 3)
        assert truth.tv == truth.kl == 0.0


def test_a_majority_is_never_voted_down():
    """If one way has more than half of the weight, argmax without evidence writes its sentence."""
    for weights, expected in [
        ([0.51, 0.29, 0.2], [1, 0, 2, 3]),
        ([0.2, 0.6, 0.2], [0, 1, 2, 3]),
        ([0.4, 0.3, 0.3], [0, 0, 2, 3]),
    ]:
        table = Table.of(Translations(ORDERS, torch.tensor(weights, dtype=torch.float64), 1.0, 4))
        law = output_laws(ideal_refiner(table, right=0.0).refiner, steps=1)[0]
        assert all_sequences(4, 4)[int(law.argmax())].tolist() == expected
        assert law.max().item() == 1.0


def test_distilled_truth_is_written_in_one_step():
    for agreement in (0.0, 0.5, 1.0):
        made = orders(agreement).distilled()
        table = Table.of(made)
        found = quality(
            output_laws(ideal_refiner(table).refiner, steps=1)[0],
            table,
            made.is_one_way(table.sequences),
        )
        assert found == pytest.approx((0.0, 0.0, 0.0, found.stutter, found.word_stutter))
    assert found.stutter == 0.0


def test_word_stutter_survives_where_no_token_is_repeated():
    """0 1 0 1 repeats a word of two tokens."""
    table = Table.random(2, 4, seed=0)
    law = torch.zeros(16).double()
    law[0b0101] = 1.0
    found = quality(law, table, torch.ones(16, dtype=torch.bool), pieces=2)
    assert (found.stutter, found.word_stutter, found.mixed) == (0.0, 1.0, 0.0)
    assert quality(law, table, torch.zeros(16, dtype=torch.bool)).mixed == 1.0


def test_wrong_input_is_refused_in_a_sentence(unchecked_shapes):
    refiner = TabledRefiner(torch.full((4, 2, 2), 0.5).double().log())
    with refused("refiner"):
        output_laws(object(), steps=1)
    with refused("stutter"):
        output_laws(refiner, steps=1, stutter="mask")
    with refused("start"):
        output_laws(refiner, steps=1, start=[1.0, 1.0, 0.0, 0.0])
    with refused("pieces"):
        quality([0.25] * 4, Table.random(2, 2, seed=0), torch.ones(4).bool(), pieces=3)

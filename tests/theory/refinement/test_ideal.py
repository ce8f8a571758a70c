"""The ideal refiner: against the closed form, brute force, and the loss that it minimises."""

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.table import Table, all_sequences
from triptych.core.validation import UserError
from triptych.inference.chains.refinement import MaskedRefiner, Refiner, refine
from triptych.structures.translation import Translations
from triptych.theory.refinement.ideal import TabledRefiner, corruption, ideal_refiner

WEIGHTS = torch.tensor([0.4, 0.3, 0.3], dtype=torch.float64)
ORDERS = torch.tensor([[1, 0, 2], [0, 1, 2], [0, 2, 1]])


def orders(agreement):
    return Translations(ORDERS, WEIGHTS, agreement, 3)


def test_worked_values_of_the_corruption():
    assert corruption([[0, 0]], 2, 0.0).tolist() == [[0.25] * 4]
    assert corruption([[0, 1]], 2, 1.0).tolist() == [[0, 1, 0, 0]]
    # h = 00 from y = 01: (0.5 + 0.25) * 0.25
    assert corruption([[0, 1]], 2, 0.5)[0, 0].item() == pytest.approx(0.1875)
    assert torch.allclose(corruption(all_sequences(3, 2), 3, 0.15).sum(-1), torch.ones(9).double())


@pytest.mark.parametrize("agreement", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("right", [0.0, 0.15, 0.7])
def test_one_stage_is_the_closed_form(agreement, right):
    made = orders(agreement)
    ideal = ideal_refiner(Table.of(made), right=right)
    expected = made.denoised_log_probs(all_sequences(3, 3), right)
    assert torch.allclose(ideal.refiner.log_laws.exp(), expected.exp(), atol=1e-12)
    assert (ideal.rounds, ideal.settled) == (0, True)


def loss(table, refiner, stages, right, *, trained=None):
    """The training loss of a refiner by sums: stage 2 reads the argmax of `trained`."""
    every = all_sequences(table.vocab_size, table.length)
    targets = table.support
    p = table.log_prob(targets).exp()
    q = corruption(targets, table.vocab_size, right)
    answers = (trained or refiner).answers
    total = 0.0
    for y, weight, law in zip(targets.tolist(), p.tolist(), q, strict=True):
        for h, chance in enumerate(law.tolist()):
            reads = [h] if stages == 1 else [h, every.tolist().index(answers[h].tolist())]
            for read in reads:
                each = sum(float(refiner.log_laws[read, i, v]) for i, v in enumerate(y))
                total -= weight * chance * each / len(reads)
    return total


@pytest.mark.parametrize("stages", [1, 2])
def test_the_ideal_refiner_has_the_least_loss(stages):
    """Against the other ideal one, and against small changes of its own answers."""
    table = Table.random(2, 2, seed=0)
    ideal = ideal_refiner(table, right=0.3, stages=stages)
    assert ideal.settled
    least = loss(table, ideal.refiner, stages, 0.3)
    other = ideal_refiner(table, right=0.3, stages=3 - stages).refiner
    assert least <= loss(table, other, stages, 0.3, trained=ideal.refiner) + 1e-12
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        noise = torch.randn(ideal.refiner.log_laws.shape, generator=generator).double()
        near = TabledRefiner((ideal.refiner.log_laws + 0.1 * noise).log_softmax(-1))
        assert least < loss(table, near, stages, 0.3, trained=ideal.refiner)


def test_a_second_stage_changes_the_answer_to_its_own_output():
    """0 0 is read more often than by chance, so it says less about the target."""
    table = Table(2, 1, torch.tensor([0.5, 0.5], dtype=torch.float64).log())
    one, two = (ideal_refiner(table, right=0.4, stages=s).refiner for s in (1, 2))
    assert one.log_laws.exp()[0, 0].tolist() == pytest.approx([0.7, 0.3])
    # the answer to h is h itself, so both stages read the same law
    assert torch.allclose(one.log_laws, two.log_laws)
    skewed = Table(2, 1, torch.tensor([0.9, 0.1], dtype=torch.float64).log())
    two = ideal_refiner(skewed, right=0.4, stages=2)
    # the answer is always 0: half of the time 0 is read whatever the target is.
    # P(h = 0 | y = 0) = 0.7 and P(h = 0 | y = 1) = 0.3; with ½ each from the second stage
    expected = 0.9 * (0.5 * 0.7 + 0.5)
    expected /= expected + 0.1 * (0.5 * 0.3 + 0.5)
    assert two.refiner.log_laws.exp()[0, 0, 0].item() == pytest.approx(expected)


def test_a_table_of_any_refiner():
    table = Table.random(2, 3, seed=1)
    masked = MaskedRefiner(table)
    tabled = TabledRefiner.of(masked, 2, 3)
    assert isinstance(tabled, Refiner)
    rows = torch.tensor([[0, 1, 1], [1, 0, 0]])
    assert torch.allclose(tabled.log_probs(rows, [3, 3]), masked.log_probs(rows, [3, 3]))
    both = [refine(r, rows, [3, 3], steps=3).tokens.tolist() for r in (tabled, masked)]
    assert both[0] == both[1]


def test_wrong_input_is_refused_in_a_sentence(unchecked_shapes):
    with refused("log_laws"):
        TabledRefiner(torch.zeros(3, 2, 2).double())
    with refused("table"):
        ideal_refiner(orders(1.0))
    with refused("stages"):
        ideal_refiner(Table.random(2, 2, seed=0), stages=3)
    with pytest.raises(UserError, match="are listed"):
        corruption([[0] * 30], 2)

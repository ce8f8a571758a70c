"""What parallel steps lose: worked values, enumeration as the oracle, laws of samplers."""

import math

import pytest
import torch

from triptych.core.divergences import kl_divergence
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.diffusion.dependence import dependence, path_dependence, widest_tree
from triptych.diffusion.law import sampler_law
from triptych.diffusion.optimal import (
    best_sets,
    best_sizes,
    loss_of_sets,
    loss_of_sizes,
    set_entropies,
    size_entropies,
)
from triptych.diffusion.samplers.random_order import RandomOrder
from triptych.structures.hidden_markov.hmm import HMM

LOG2 = math.log(2)
EQUAL = Table(2, 2, torch.tensor([0.5, 0, 0, 0.5], dtype=torch.float64).log())
RANDOM = Table.random(3, 4, seed=5)


def hmm(length=6):
    return HMM.random(3, 3, length, seed=4)


class MaskedOnly:
    """The same oracle without a joint law."""

    def __init__(self, model):
        self.model, self.vocab_size = model, model.vocab_size

    def masked_log_probs(self, tokens, hidden):
        return self.model.masked_log_probs(tokens, hidden)


def every(length):
    return torch.zeros((1, length), dtype=torch.long), torch.ones((1, length), dtype=torch.bool)


def test_the_worked_dependence():
    found = dependence(EQUAL, [[0, 0]], [[1, 1]])
    assert found.exact
    assert found.total.value == pytest.approx(LOG2)
    assert [part.value for part in found.parts] == pytest.approx([0, LOG2])
    assert found.tree.value == pytest.approx(LOG2)
    assert dependence(EQUAL, [[0, 0]], [[0, 1]]).total.value == pytest.approx(0)


def test_it_is_the_divergence_from_the_product():
    """By enumeration: KL of the conditional joint from the product of its marginals."""
    tokens, hidden = torch.tensor([[0, 2, 1, 0]]), torch.tensor([[True, False, True, True]])
    found = dependence(RANDOM, tokens, hidden)
    rows = RANDOM.sequences
    fits = rows[:, 1] == 2
    joint = RANDOM.log_probs[fits].log_softmax(0)
    laws = RANDOM.masked_log_probs(tokens, hidden)[0]
    product = sum(laws[i][rows[fits][:, i]] for i in (0, 2, 3))
    assert found.total.value == pytest.approx(float(kl_divergence(joint, product)))
    assert sum(part.value for part in found.parts) == pytest.approx(found.total.value)
    assert found.tree.value <= found.total.value + 1e-12


def test_an_hmm_is_as_its_table():
    law = hmm()
    tokens, hidden = torch.tensor([[0, 1, 2, 0, 1, 2]]), torch.tensor([[1, 1, 0, 1, 0, 1]]).bool()
    found, wanted = dependence(law, tokens, hidden), dependence(Table.of(law), tokens, hidden)
    assert found.total.value == pytest.approx(wanted.total.value)
    torch.testing.assert_close(found.pairs, wanted.pairs)
    torch.testing.assert_close(found.entropies, wanted.entropies)


def test_draws_are_near_the_exact_value():
    """Totals, parts and pairs of a masked oracle without a joint law."""
    law = hmm()
    tokens, hidden = every(6)
    wanted = dependence(law, tokens, hidden)
    found = dependence(MaskedOnly(law), tokens, hidden, draws=4000)
    assert not found.exact
    assert abs(found.total.value - wanted.total.value) < 3 * found.total.half_width
    for mine, exact in zip(found.parts, wanted.parts, strict=True):
        assert abs(mine.value - exact.value) < 3 * mine.half_width + 1e-12
    assert (found.pairs - wanted.pairs).abs().max() < 0.02
    assert abs(found.tree.value - wanted.tree.value) < 4 * found.tree.half_width


def test_long_rows_of_an_hmm_are_drawn():
    tokens, hidden = every(40)
    found = dependence(hmm(40), tokens, hidden, draws=16)
    assert not found.exact
    assert found.total.low < found.total.value < found.total.high
    assert found.tree.value > 0


def test_widest_tree():
    pairs = torch.tensor([[0.0, 3, 2], [3, 0, 1], [2, 1, 0]])
    assert widest_tree(pairs) == [(0, 1), (0, 2)]


def test_a_path_and_its_steps():
    tokens, hidden = every(4)
    path = RandomOrder(schedule="2+1+1").sample(RANDOM, tokens, hidden, rng=3, record=True)
    found = path_dependence(RANDOM, path)
    assert [step.written for step in found] == [2, 1, 1]
    assert [step.lost.value for step in found[1:]] == [0, 0]
    pair = torch.nonzero(path.trace[1].written[0])[:, 0].tolist()
    both = set_entropies(RANDOM)
    single = sum(float(both[1 << place]) for place in pair)
    wanted = single - float(both[sum(1 << place for place in pair)])
    assert found[0].lost.value == pytest.approx(wanted)
    drawn = path_dependence(MaskedOnly(RANDOM), path, draws=2000)[0].lost
    assert abs(drawn.value - wanted) < 3 * drawn.half_width
    with pytest.raises(UserError):
        path_dependence(RANDOM, RandomOrder().sample(RANDOM, tokens, hidden, rng=0))


# ---------------------------------------------------------------------- plans


def test_worked_plans():
    two = set_entropies(EQUAL)
    assert two.tolist() == pytest.approx([0, LOG2, LOG2, LOG2])
    assert loss_of_sets(two, [(0, 1)]) == pytest.approx(LOG2)
    assert best_sizes(size_entropies(two), 1) == (pytest.approx(LOG2), (2,))
    assert best_sizes(size_entropies(two), 2) == (pytest.approx(0), (1, 1))
    probs = torch.zeros(2, 2, 2, dtype=torch.float64)
    probs[0, 0], probs[1, 1] = 0.25, 0.25
    three = Table(2, 3, probs.reshape(-1).log())
    plan = best_sets(set_entropies(three), 2)
    assert plan.loss == pytest.approx(0)
    assert sorted(map(len, plan.sets)) == [1, 2]
    assert {0, 1} not in map(set, plan.sets)


def test_best_sets_by_all_partitions():
    """Against every ordered partition of four positions."""
    entropies = set_entropies(RANDOM)

    def partitions(rest, rounds):
        if not rest:
            yield ()
        elif rounds:
            here = rest
            while here:
                for after in partitions(rest & ~here, rounds - 1):
                    yield (tuple(i for i in range(4) if here >> i & 1), *after)
                here = (here - 1) & rest

    for rounds in (1, 2, 3, 4):
        found = best_sets(entropies, rounds)
        wanted = min(loss_of_sets(entropies, sets) for sets in partitions(15, rounds))
        assert found.loss == pytest.approx(wanted, abs=1e-12)
        assert loss_of_sets(entropies, found.sets) == pytest.approx(found.loss, abs=1e-12)


def test_the_loss_of_uniform_sets_bounds_the_sampler():
    """KL of the truth from the random-order sampler; in one round both are equal."""
    bits = Table.random(2, 4, seed=6)
    means = size_entropies(set_entropies(bits))
    tokens, hidden = every(4)
    for sizes in ((4,), (2, 2), (1, 3), (1, 1, 1, 1)):
        schedule = "+".join(map(str, sizes))
        if len(sizes) == 1:
            schedule = "linear"
        sampler = RandomOrder(schedule=schedule, steps=len(sizes))
        law = sampler_law(sampler, bits, tokens, hidden).probs
        written = torch.tensor(
            [law[tuple(x)] for x in bits.sequences.tolist()], dtype=torch.float64
        )
        found = float(kl_divergence(bits.log_probs, written.log()))
        assert found <= loss_of_sizes(means, sizes) + 1e-12
        if sizes == (4,):
            assert found == pytest.approx(loss_of_sizes(means, sizes))
    best = [best_sizes(means, rounds).loss for rounds in (1, 2, 3, 4)]
    assert best == sorted(best, reverse=True)
    assert best[-1] == pytest.approx(0, abs=1e-12)


def test_what_is_refused():
    with pytest.raises(UserError):
        dependence(RANDOM, [[0, 0, 0, 0], [0, 0, 0, 0]], [[1, 1, 1, 1], [1, 1, 1, 1]])
    with pytest.raises(UserError):
        loss_of_sets(set_entropies(EQUAL), [(0,)])
    with pytest.raises(UserError):
        loss_of_sizes(size_entropies(set_entropies(EQUAL)), (1,))

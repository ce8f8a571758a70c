"""Translations: a dial that keeps the marginals, worked values, the denoised law by brute force."""

import itertools
import math

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.divergences import entropy
from triptych.core.estimates import tv_tolerance
from triptych.core.randomness import TorchRng
from triptych.core.table import Table
from triptych.structures.translation import Translations, TranslationWorld

SWAP = [[0, 1], [1, 0]]
ORDERS = [[1, 0, 2, 3], [0, 1, 2, 3], [0, 2, 1, 3]]


def swap(agreement):
    return Translations(
        torch.tensor(SWAP), torch.tensor([0.5, 0.5], dtype=torch.float64), agreement, 2
    )


def orders(agreement):
    weights = torch.tensor([0.4, 0.3, 0.3], dtype=torch.float64)
    return Translations(torch.tensor(ORDERS), weights, agreement, 4)


def test_worked_value_of_two_orders():
    assert Table.of(swap(1.0)).as_dict() == pytest.approx(
        {(0, 0): 0, (0, 1): 0.5, (1, 0): 0.5, (1, 1): 0}
    )
    assert Table.of(swap(0.0)).log_probs.exp().tolist() == pytest.approx([0.25] * 4)
    assert swap(1.0).total_correlation() == pytest.approx(math.log(2))
    assert swap(0.0).total_correlation() == 0.0


def test_dialects_without_a_common_word():
    """TC = (N - 1) H(π): the first word tells all the others."""
    world = TranslationWorld.dialects(agreement=1.0, words=3, weights=(0.6, 0.4))
    h = -(0.6 * math.log(0.6) + 0.4 * math.log(0.4))
    assert world.translations(0).total_correlation() == pytest.approx(2 * h)


@pytest.mark.parametrize("agreement", [0.0, 0.3, 0.9, 1.0])
def test_the_marginals_do_not_depend_on_the_dial(agreement):
    law = Table.of(orders(agreement)).log_probs.exp().reshape(4, 4, 4, 4)
    for i in range(4):
        found = law.sum([j for j in range(4) if j != i])
        assert torch.allclose(found, orders(0.5).marginals[i])


@pytest.mark.parametrize("agreement", [0.0, 0.5, 1.0])
def test_total_correlation_by_entropies(agreement):
    """Σ H(m_i) - H(p), from the table."""
    made = orders(agreement)
    h = float(entropy(Table.of(made).log_probs))
    each = sum(float(entropy(m.log())) for m in made.marginals)
    assert made.total_correlation() == pytest.approx(each - h, abs=1e-12)


@pytest.mark.parametrize("agreement", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("right", [0.0, 0.15, 0.8])
def test_the_denoised_law_by_brute_force(agreement, right):
    """Bayes' rule over all 256 sentences, one at a time."""
    made = orders(agreement)
    law = Table.of(made).as_dict()
    for h in [(0, 0, 2, 3), (3, 1, 1, 0)]:
        found = made.denoised_log_probs([list(h)], right)[0].exp()
        expected = torch.zeros(4, 4).double()
        for y, p in law.items():
            weight = p
            for a, b in zip(y, h, strict=True):
                weight *= right * (a == b) + (1 - right) / 4
            for i, v in enumerate(y):
                expected[i, v] += weight
        assert torch.allclose(found, expected / expected.sum(-1, keepdim=True), atol=1e-12)


def test_worked_value_of_the_denoised_law():
    one = Translations(
        torch.tensor([[0], [1]]), torch.tensor([0.5, 0.5], dtype=torch.float64), 1.0, 2
    )
    assert one.denoised_log_probs([[0]], 0.15).exp()[0, 0].tolist() == pytest.approx([0.575, 0.425])


def test_position_by_position_the_best_answer_repeats_a_word():
    """The marginals of the orders: a has 0.6 at the first place and 0.4 at the second."""
    made = orders(1.0)
    assert made.marginals.argmax(-1).tolist() == [0, 0, 2, 3]
    assert made.marginals[0, 0].item() == pytest.approx(0.6)
    assert made.marginals[1].tolist() == pytest.approx([0.4, 0.3, 0.3, 0.0])


def test_distillation_is_the_mode_and_leaves_no_dependency():
    for agreement in (0.0, 0.05, 0.3, 1.0):
        made = orders(agreement)
        (likeliest, p), *_ = Table.of(made).likeliest(1)
        assert made.distilled().sentences.tolist() == [list(likeliest)]
        assert made.distilled().total_correlation() == 0.0
        assert p > 0
    assert orders(1.0).distilled().sentences.tolist() == [ORDERS[0]]
    assert orders(0.0).distilled().sentences.tolist() == [[0, 0, 2, 3]]


def test_which_sentences_mix_ways():
    made = orders(0.5)
    assert made.is_one_way([[1, 0, 2, 3], [0, 0, 2, 3]]).tolist() == [True, False]


@pytest.mark.parametrize(
    ("world", "vocab", "length", "sources"),
    [
        (TranslationWorld.dialects(agreement=1.0), 8, 4, 24),
        (TranslationWorld.orders(agreement=1.0), 5, 4, 120),
        (TranslationWorld.split_words(agreement=1.0), 16, 4, 4),
    ],
)
def test_worlds(world, vocab, length, sources):
    assert (world.vocab_size, world.length, len(world.sources)) == (vocab, length, sources)
    assert len(world.sentences.unique(dim=0)) == sources
    assert int(world.sentences.max()) == vocab - 1


def test_worked_sentences_of_the_worlds():
    assert TranslationWorld.dialects(agreement=1.0, words=2).sentences.tolist() == [
        [[0, 1], [2, 3]],
        [[1, 0], [3, 2]],
    ]
    orders = TranslationWorld.orders(agreement=1.0, words=4)
    assert orders.sources[0].tolist() == [0, 1, 2, 3]
    assert orders.sentences[0].tolist() == ORDERS
    split = TranslationWorld.split_words(agreement=1.0, words=1)
    assert split.sentences.tolist() == [[[2, 3, 0, 1], [0, 1, 4, 5], [0, 1, 6, 7]]]


def test_no_way_of_a_world_repeats_a_token():
    for world in (
        TranslationWorld.dialects(agreement=1.0),
        TranslationWorld.orders(agreement=1.0),
        TranslationWorld.split_words(agreement=1.0),
    ):
        for sentence in world.sentences.flatten(0, 1).tolist():
            assert len(set(sentence)) == len(sentence)


def test_pairs_of_a_world_have_its_law():
    """40,000 pairs of a world with two sources; the tolerance fails with probability 1e-9."""
    world = TranslationWorld.dialects(agreement=0.5, words=2)
    n = 40_000
    pairs = world.sample(n, TorchRng(0))
    assert torch.equal(pairs.sources, world.sources[pairs.which])
    law = {}
    for source, y in itertools.product(range(2), itertools.product(range(4), repeat=2)):
        p = float(world.translations(source).log_prob([list(y)]).exp())
        law[source, y] = p / 2
    drawn = zip(pairs.which.tolist(), pairs.targets.tolist(), strict=True)
    found = dict.fromkeys(law, 0.0)
    for source, y in drawn:
        found[source, tuple(y)] += 1 / n
    distance = 0.5 * sum(abs(found[key] - law[key]) for key in law)
    assert distance < tv_tolerance(n, len(law), failure=1e-9)


def test_wrong_input_is_refused_in_a_sentence(unchecked_shapes):
    halves = [0.5, 0.5]
    with refused("hidden"):
        Translations([[0, 2], [1, 0]], halves, 1.0, 2)
    with refused("weights"):
        Translations(SWAP, [1.0], 1.0, 2)
    with refused("agreement"):
        Translations(SWAP, halves, 1.5, 2)
    with refused("weights"):
        TranslationWorld.orders(agreement=1.0, weights=halves)
    with refused("source"):
        TranslationWorld.dialects(agreement=1.0, words=2).translations(2)

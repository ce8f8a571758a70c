"""Means over pairs of words: brute force over the definition, worked values, controls."""

import itertools

import numpy as np
import pytest
import torch
from tests.support.refusals import refused

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.theory.topics import word_pairs as wp


def some(words=14, topics=4, seed=0, several=False):
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(words, 3, generator=generator, dtype=torch.float64) + 0.4
    of = torch.randint(topics, (words,), generator=generator)
    membership = torch.nn.functional.one_hot(of, topics).bool()
    if several:
        membership |= torch.rand(words, topics, generator=generator) < 0.2
    membership[3] = False  # a word that no topic has
    return vectors, membership


def by_hand(vectors, membership, times):
    """The definition, pair after pair."""
    same, different = [0.0, 0.0], [0.0, 0.0]
    inside = [w for w in range(len(vectors)) if membership[w].any()]
    for v, w in itertools.combinations(inside, 2):
        product = float(vectors[v] @ vectors[w])
        shared = (membership[v] & membership[w]).nonzero()[:, 0].tolist()
        if shared:
            weight = np.mean([times[t] for t in shared])
            sums = same
        else:
            each = [np.mean([times[t] for t in membership[x].nonzero()[:, 0]]) for x in (v, w)]
            weight, sums = each[0] * each[1], different
        sums[0] += weight * product
        sums[1] += weight
    return same[0] / same[1], different[0] / different[1]


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("times", [[1.0, 1.0, 1.0, 1.0], [2.0, 0.0, 1.0, 1.0]])
def test_means_are_those_of_the_definition(several, times):
    vectors, membership = some(several=several)
    found = wp.pair_sums(vectors, membership).means(torch.tensor([times], dtype=torch.float64))
    assert [float(x) for x in found] == pytest.approx(by_hand(vectors, membership, times), rel=1e-5)


def test_the_two_ways_to_sum_agree():
    vectors, membership = some(words=700)
    inside = membership.any(1)
    one, table = (
        way(vectors[inside], membership[inside].double())
        for way in (wp._one_topic_sums, wp._table_sums)
    )
    for name in ("same", "same_pairs", "different", "different_pairs"):
        assert torch.allclose(getattr(one, name), getattr(table, name), rtol=1e-4, atol=1e-2), name


def test_a_worked_ratio():
    """Two topics of two words: products 2 and 4 inside, 1 between all of them."""
    vectors = torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.5, 0.5], [0.5, 7.5]])
    membership = torch.tensor([[1, 0], [1, 0], [0, 1], [0, 1]]).bool()
    sums = wp.pair_sums(vectors, membership)
    assert sums.same.tolist() == [2.0, 4.0]
    assert sums.same_pairs.tolist() == [1.0, 1.0]
    same, different = (float(x) for x in sums.means())
    assert (same, different) == (3.0, (1 + 1 + 1 + 8) / 4)
    found = wp.topic_ratio(sums, TorchRng(0))
    assert found.ratio == pytest.approx(3 / 2.75)
    assert found.low <= found.ratio <= found.high


def test_nothing_over_nothing_is_no_ratio():
    vectors = torch.randn(60, 200, generator=torch.Generator().manual_seed(1))
    membership = torch.nn.functional.one_hot(torch.arange(60) % 6, 6).bool()
    found = wp.topic_ratio(wp.pair_sums(wp.unit_vectors(vectors), membership), TorchRng(0))
    assert found.ratio is None
    assert found.low is None
    assert wp.ratio_of(1.0, 0.5, torch.ones(4), torch.tensor([1.0, -1.0, 1.0, -1.0])).ratio is None
    given = wp.ratio_of(2.0, 4.0, torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 4.0, 4.0]))
    assert given.ratio == 0.5
    assert 0.25 <= given.low < 0.5 < given.high <= 0.75


def test_the_interval_covers():
    """Topics drawn from a law with a known ratio: 95 % intervals hold it in most of 40 trials.

    With 20 topics percentiles are a little short; 31 of 40 or fewer has probability below 0.002
    even if they cover 90 %.
    """
    inside = 0
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        centres = torch.randn(20, 1, 40, generator=generator, dtype=torch.float64)
        words = torch.ones(1, 1, 40, dtype=torch.float64) + 0.5 * centres
        words = words + torch.randn(20, 8, 40, generator=generator, dtype=torch.float64)
        membership = torch.nn.functional.one_hot(torch.arange(160) // 8, 20).bool()
        found = wp.topic_ratio(
            wp.pair_sums(words.reshape(160, 40), membership), TorchRng(seed), resamples=200
        )
        inside += found.low <= 1.25 <= found.high  # (40 + 10) / 40
    assert inside > 31


def test_multiplicities_are_draws_with_replacement():
    times = wp.multiplicities(5, 4000, TorchRng(0))
    assert (times.sum(1) == 5).all()
    assert times.mean(0).tolist() == pytest.approx([1.0] * 5, abs=6 * (0.8 / 4000) ** 0.5)
    assert float(times.var()) == pytest.approx(0.8, abs=0.05)  # binomial 5, 1/5


def test_shuffled_topics_are_as_large_and_of_the_same_words():
    _, membership = some(words=30)
    dealt = wp.shuffled(membership, TorchRng(1))
    assert dealt.sum(0).tolist() == membership.sum(0).tolist()
    assert torch.equal(dealt.any(1), membership.any(1))
    assert not torch.equal(dealt, membership)
    order = wp.permutation(50, TorchRng(0))
    assert sorted(order.tolist()) == list(range(50)) != order.tolist()


def test_matched_pairs_by_brute_force():
    vectors, membership = some(words=20, topics=3)
    frequency = torch.arange(20.0).flip(0)
    inside = [w for w in range(20) if membership[w].any()]
    ordered = sorted(inside, key=lambda w: float(frequency[w]))
    bin_of = {w: i * 2 // len(inside) for i, w in enumerate(ordered)}
    same, weights, apart = [], {}, {}
    for v, w in itertools.permutations(inside, 2):
        cell = (bin_of[v], bin_of[w])
        product = float(vectors[v] @ vectors[w])
        if (membership[v] & membership[w]).any():
            same.append(product)
            weights[cell] = weights.get(cell, 0) + 1
        else:
            apart.setdefault(cell, []).append(product)
    different = sum(n * np.mean(apart[cell]) for cell, n in weights.items()) / len(same)
    found = wp.matched_ratio(vectors, membership, frequency, bins=2)
    assert found == pytest.approx(np.mean(same) / different)
    with pytest.raises(UserError, match="one topic per word"):
        wp.matched_ratio(vectors, membership | True, frequency)


def test_frequency_alone_makes_no_matched_ratio():
    """Frequent words are alike, and topics are frequent or rare: the plain ratio is fooled."""
    rare, often = torch.tensor([1.0, 0.2]), torch.tensor([0.2, 1.0])
    of = torch.arange(40) % 4  # topics 0, 1 are rare and 2, 3 frequent
    vectors = torch.where((of < 2)[:, None], rare, often)
    membership = torch.nn.functional.one_hot(of, 4).bool()
    plain = wp.topic_ratio(wp.pair_sums(vectors, membership), TorchRng(0)).ratio
    assert plain > 1.2
    assert wp.matched_ratio(vectors, membership, of.double(), bins=2) == pytest.approx(1.0)


def test_pairs_that_occur_together():
    passages = np.array([[1, 1, 0, 2], [1, 1, 1, 0], [0, 1, 1, 0], [1, 1, 0, 0]])
    assert wp.top_pairs(passages, 3).tolist() == [[0, 1], [1, 2], [0, 2]]
    assert wp.mean_of_pairs(torch.eye(4) + 1, torch.tensor([[0, 1], [1, 1]])).tolist() == [6, 7]
    with refused("n"):
        wp.top_pairs(passages, 9)


def test_gaps_of_groups():
    cosines = torch.tensor(
        [[1.0, 0.5, 0.1, 0.3], [0.5, 1, 0, 0], [0.1, 0, 1, 0.2], [0.3, 0, 0.2, 1]]
    )
    assert wp.group_gaps(cosines, [0, 0, 1, 1]).tolist() == pytest.approx([0.3, 0.5, 0.15, 0.05])
    with refused("groups"):
        wp.group_gaps(cosines, [0, 0, 1, 2])

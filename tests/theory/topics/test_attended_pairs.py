"""Attention over pairs: kinds by hand, uniform attention has ratio 1, resampled passages."""

import itertools

import pytest
import torch

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.theory.topics import attended_pairs as ap

MEMBERSHIP = torch.tensor([[1, 0], [1, 0], [0, 1], [0, 0]]).bool()  # word 3 has no topic
WORD_OF = torch.tensor([-1, 0, 1, 2, 3])  # token 0 is special


def uniform(inputs, causal=False):
    weights = torch.ones(2, 3, len(inputs), len(inputs))
    weights = weights.tril() if causal else weights
    return weights / weights.sum(-1, keepdim=True)


def test_rescaled_to_length_100():
    assert ap.rescaled(uniform([0] * 4), causal=False).tolist() == [[[[0.01] * 4] * 4] * 3] * 2
    rows = ap.rescaled(uniform([0] * 4, causal=True), causal=True)[0, 0]
    assert torch.allclose(rows, torch.full((4, 4), 0.01).tril().double())


@pytest.mark.parametrize("causal", [False, True])
def test_kinds_of_pairs_by_hand(causal):
    words = torch.tensor([-1, 0, 1, 0, 2, 3, 1])
    together = torch.zeros(4, 4, dtype=torch.bool)
    together[0, 3] = together[3, 0] = True
    found = ap.pair_kinds(words, MEMBERSHIP, together, causal=causal)
    topic = {0: 0, 1: 0, 2: 1}
    for i, j in itertools.product(range(7), repeat=2):
        v, w = int(words[i]), int(words[j])
        fits = v != w and min(v, w) >= 0 and (j < i or not causal)
        both = fits and v in topic and w in topic
        assert bool(found[ap.SAME, i, j]) == (both and topic[v] == topic[w])
        assert bool(found[ap.DIFFERENT, i, j]) == (both and topic[v] != topic[w])
        assert bool(found[ap.TOGETHER, i, j]) == (fits and {v, w} == {0, 3})


@pytest.mark.parametrize("causal", [False, True])
def test_uniform_attention_has_ratio_1_at_every_length(causal):
    """Short passages have one topic and long ones two: without rescaling the ratio is above 1."""
    passages = [[1, 2, 0], [2, 1, 0], [1, 2, 3, 0, 3, 1, 0, 0, 0]]
    sums = ap.attention_sums(
        lambda inputs: uniform(inputs, causal), passages, WORD_OF, [MEMBERSHIP], [None],
        causal=causal,
    )  # fmt: skip
    assert sums.means(0, ap.SAME).flatten().tolist() == pytest.approx([0.01] * 6)
    found = sums.ratio(0, TorchRng(0), layer=1)
    assert (found.ratio, found.low, found.high) == pytest.approx((1, 1, 1))


def test_the_mean_over_pairs_by_hand():
    weights = torch.zeros(1, 1, 3, 3)
    weights[0, 0] = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1]])
    sums = ap.attention_sums(
        lambda inputs: weights, [[1, 2, 3]], WORD_OF, [MEMBERSHIP], [None], causal=False
    )
    assert sums.pairs[0, 0].tolist() == [2, 4, 0]
    assert float(sums.means(0, ap.SAME)) == pytest.approx(0.55 * 3 / 100)
    assert float(sums.means(0, ap.DIFFERENT)) == pytest.approx(
        (0.3 + 0.1 + 0.1 + 0.8) / 4 * 3 / 100
    )
    assert sums.ratio(0, TorchRng(0)).ratio == pytest.approx(0.55 / 0.325)
    with pytest.raises(UserError, match="no pair of words"):
        sums.ratio(0, TorchRng(0), over=ap.TOGETHER)

"""How many topics a text mixes, by hand and on drawn documents; one layer next to it."""

import math

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.randomness import TorchRng
from triptych.structures.topics import Topics
from triptych.theory.topics.attention import Value, limit_per_topic, minimiser
from triptych.theory.topics.real_text import AttentionRatio, HeadRatios
from triptych.theory.topics.topic_mixtures import (
    TopicMixture,
    beside_one_layer,
    mixed_topics,
    one_layer,
)


def test_pairs_by_hand():
    topic_of = torch.tensor([0, 0, 1, -1])
    found = mixed_topics([[0, 0, 3, 1, 2]], topic_of)
    assert (found.same, found.pairs, found.with_topic, found.inputs) == (4, 10, 4, 5)
    assert found.topics == 2.5
    assert mixed_topics([[0, 3], [1], []], topic_of).topics is None
    twice = mixed_topics([[0, 0, 3, 1, 2]] * 2, topic_of)
    assert (twice.same, twice.pairs) == (8, 20)


def test_pairs_by_all_pairs():
    """Against the definition, over every ordered pair of positions."""
    topic_of = torch.tensor([0, 1, 2, 0, 1, -1, 2])
    texts = torch.randint(0, 7, (5, 30), generator=torch.Generator().manual_seed(0)).tolist()
    same = pairs = 0
    for text in texts:
        for a in text:
            for b in text:
                if a != b and topic_of[a] >= 0 and topic_of[b] >= 0:
                    pairs += 1
                    same += int(topic_of[a] == topic_of[b])
    found = mixed_topics(texts, topic_of)
    assert (found.same, found.pairs) == (same, pairs)


def test_documents_of_four_topics_mix_four():
    """Two different words share a topic with probability (v - 1) / (τ v - 1)."""
    documents = Topics(topics=20, words=15, drawn=4, length=200).sample(200, TorchRng(0))
    found = mixed_topics(documents.tolist(), torch.arange(300) // 15)
    # 200 documents of 4 topics, each with about 50 words: τ is off by less than 1 %
    assert found.topics == pytest.approx(59 / 14, rel=0.02)
    assert found.with_topic == found.inputs == 200 * 200


def test_one_layer_is_the_best_of_the_closed_form():
    found = one_layer(100, 21.4, 6.5)
    assert (found.setting.topics, found.setting.words, found.setting.drawn) == (100, 21, 6)
    assert found.ratio == pytest.approx(minimiser(found.setting, Value.blocks(found.setting)).gamma)
    assert found.gain(1.0) == pytest.approx(0.0, abs=1e-9)
    assert found.gain(found.ratio) == pytest.approx(1.0, abs=1e-6)
    assert 0 < found.gain(1.4) < found.gain(5.0) < 1
    # γ grows like τ / (1 - a), where τ is large and T larger still
    many = one_layer(10**6, 20, 1000)
    assert many.ratio / 1000 == pytest.approx(limit_per_topic(many.setting), rel=0.01)


def test_shares_by_hand():
    found = one_layer(100, 20, 4)
    assert found.share(3.0) == 0.5
    assert found.share(1.0) == 0.25
    assert found.share() == pytest.approx(found.ratio / (found.ratio + 3))
    alone = one_layer(100, 20, 1)
    assert alone.share() == 1.0
    assert math.isnan(alone.gain(2.0))
    with refused("drawn"):
        one_layer(3, 20, 5)


ABOUT = {"model": "m", "family": "encoder", "seed": 0}
MIXTURE = TopicMixture(
    **ABOUT, threshold=0.1, topics=10, words=4.0, documents=3.0, passages=2.2, share=0.5
)


def attention(ratio, layer, **changes):
    fields = {"weights": "trained", "threshold": 0.1, "several": False, "shuffled": False}
    means = {"pairs": 5, "same": ratio, "different": 1.0, "low": ratio, "high": ratio}
    return AttentionRatio(**{**ABOUT, **fields, **means, "ratio": ratio, "layer": layer, **changes})


def test_a_model_stands_beside_one_layer():
    rows = [
        *(attention(r, layer) for r, layer in ((2.0, None), (1.0, 1), (3.0, 2))),
        *(attention(r, layer, seed=1) for r, layer in ((4.0, None), (2.0, 1), (6.0, 2))),
        *(attention(9.0, layer, weights="random") for layer in (None, 1, 2)),
        *(attention(9.0, layer, shuffled=True) for layer in (None, 1, 2)),
        *(attention(9.0, layer, several=True) for layer in (None, 1, 2)),
        *(attention(9.0, layer, threshold=0.2) for layer in (None, 1, 2)),
        *(attention(9.0, layer, model="other") for layer in (None, 1, 2)),
    ]
    heads = [
        HeadRatios(**ABOUT, weights="trained", threshold=0.1, ratios=((1.0, 2.0), (7.0, 5.0))),
        HeadRatios(**ABOUT, weights="random", threshold=0.1, ratios=((9.0, 9.0), (9.0, 9.0))),
    ]
    second = TopicMixture(**{**vars(MIXTURE), "seed": 1, "passages": 5.0})
    (found,) = beside_one_layer([second, MIXTURE], rows, heads)
    assert (found.measured, found.layers, found.heads) == (3.0, (1.5, 4.5), (2.0, 7.0))
    assert found.one_layer.setting.drawn == 2
    causal = TopicMixture(**{**vars(MIXTURE), "family": "causal"})
    assert beside_one_layer([causal], rows, heads) == []
    assert beside_one_layer([MIXTURE], [], heads) == []
    for few in (None, 1.4):
        alone = TopicMixture(**{**vars(MIXTURE), "passages": few})
        assert beside_one_layer([alone], rows, heads) == []

"""All measurements on a model whose answer is known: planted embeddings and attention."""

import pytest
from tests.support.planted_encoder import Planted
from tests.support.refusals import refused
from tests.support.tiny_encoder import ANIMALS, MUSIC, two_topics

from triptych.theory.topics import real_text as rt
from triptych.theory.topics.read_text import ReadText, Sizes, fit_text
from triptych.theory.topics.topic_mixtures import topic_mixtures

SIZES = Sizes(
    topics=2, thresholds=(0.3,), passes=5, fewest=2, most=0.9, passages=50, inputs=128, shuffles=4
)


@pytest.fixture(scope="module")
def records():
    model = Planted()
    both = zip(two_topics()[:10], two_topics()[1:11], strict=True)
    mixed = [[" ".join(first + second)] for first, second in both]
    text = ReadText.of(model, [*two_topics(), *mixed])
    return list(rt.measure(model, text, SIZES, seed=0))


def of(records, kind, **where):
    return [
        r for r in records
        if isinstance(r, kind) and all(getattr(r, k) == v for k, v in where.items())
    ]  # fmt: skip


def test_planted_topics_are_fitted(records):
    (fitted,) = of(records, rt.Fitted)
    assert {frozenset(topic[:6]) for topic in fitted.topics} == {
        frozenset(ANIMALS),
        frozenset(MUSIC),
    }
    assert (fitted.documents, fitted.words) == (50, 12)


def test_ratios_of_embeddings_are_those_of_the_planted_vectors(records):
    """Products 1 + 9 + 1 inside a topic and 1 + 3 + 3 between."""
    (dot,) = of(
        records, rt.EmbeddingRatio, weights="trained", vectors="word", measure="dot", several=False
    )
    assert (dot.same, dot.different, dot.words) == (11, 7, 12)
    assert dot.ratio == pytest.approx(11 / 7)
    (cosine,) = of(
        records,
        rt.EmbeddingRatio,
        weights="trained",
        vectors="input",
        measure="cosine",
        several=False,
    )
    assert cosine.ratio == pytest.approx(11 / 7)
    assert cosine.shuffled < 1.3
    for row in of(records, rt.EmbeddingRatio, weights="random"):
        assert row.ratio == pytest.approx(1.0)


def test_attention_by_layer(records):
    rows = of(records, rt.AttentionRatio, weights="trained", several=False, shuffled=False)
    ratios = {row.layer: row.ratio for row in rows}
    assert ratios[1] == pytest.approx(1.0)
    assert ratios[2] > 2
    assert ratios[1] < ratios[None] < ratios[2]
    for row in of(records, rt.AttentionRatio, weights="random"):
        assert row.ratio == pytest.approx(1.0)
    (heads,) = of(records, rt.HeadRatios, weights="trained")
    assert [row[0] for row in heads.ratios] == pytest.approx([ratios[1], ratios[2]])


def test_pairs_that_occur_together(records):
    (row,) = of(records, rt.TopPairs)
    assert row.pairs == 15  # 6 of 21 words a topic
    assert row.cosine_topic == pytest.approx(1.0)
    assert len(row.examples) == 8


def test_a_map_of_words():
    found = rt.word_map(Planted(), [["frog", "toad"], ["bach", "opera"]])
    assert found.groups == (0, 0, 1, 1)
    assert found.tokens == (1, 1, 1, 1)
    assert found.cosines[0] == pytest.approx((1, 1, 7 / 11, 7 / 11))
    for groups in (
        [["frog", "toad"]],
        [["frog"], ["bach", "opera"]],
        [["frog", "toad"], ["frog", "bach"]],
    ):
        with refused("groups"):
            rt.word_map(Planted(), groups)
    with refused("model"):
        rt.word_map(Planted(), [["frog", "unicorn"], ["bach", "opera"]])


def test_a_fit_that_is_there_is_used(records):
    """The same records, and LDA runs once."""
    model = Planted()
    both = zip(two_topics()[:10], two_topics()[1:11], strict=True)
    text = ReadText.of(model, [*two_topics(), *([" ".join(a + b)] for a, b in both)])
    told = []
    fitted = fit_text(model, text, SIZES, seed=0, tell=told.append)
    assert told == ["counting words", "fitting 2 topics to 50 documents"]
    told.clear()
    found = list(rt.measure(model, text, SIZES, seed=0, fitted=fitted, tell=told.append))
    assert found == records
    assert not any(what.startswith("fitting") for what in told)


def test_how_many_topics_a_text_mixes():
    """A document has 48 tokens of each topic, 16 of them words: two four times, four twice.

    Pairs of different words in both topics together: (32² - 96) = 928, of the same 2 (16² - 48).
    """
    model = Planted()
    both = zip(two_topics()[:10], two_topics()[1:11], strict=True)
    text = ReadText.of(model, [[" ".join(a + b)] for a, b in both])
    fitted = fit_text(model, ReadText.of(model, two_topics()), SIZES, seed=0)
    (found,) = topic_mixtures(model, text, fitted, SIZES)
    assert (found.topics, found.words, found.threshold) == (2, 6.0, 0.3)
    assert found.documents == found.passages == pytest.approx(928 / 416)
    assert found.share == pytest.approx(16 / 48)
    cut = Sizes(**{**vars(SIZES), "inputs": 48})  # the first half of every passage: one topic
    (half,) = topic_mixtures(model, text, fitted, cut)
    assert (half.documents, half.passages) == (found.documents, 1.0)

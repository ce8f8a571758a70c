"""All measurements on a model whose answer is known: planted embeddings and attention."""

from dataclasses import dataclass

import pytest
import torch
from tests.support.tiny_encoder import ANIMALS, MUSIC, PLAIN, two_topics

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.theory.topics import real_text as rt

NAMES = [*PLAIN, *ANIMALS, *MUSIC]
SIZES = rt.Sizes(
    topics=2, thresholds=(0.3,), passes=5, fewest=2, most=0.9, passages=50, inputs=128, shuffles=4
)


@dataclass(frozen=True)
class Planted:
    """Animals and music have directions of their own; a word attends three times to its topic."""

    planted: bool = True
    name: str = "planted"
    family: str = "encoder"
    vocab_size: int = len(NAMES)
    context: int = 512

    def encode(self, texts):
        return [[NAMES.index(word) for word in text.split()] for text in texts]

    def words(self):
        return [name if len(name) > 2 and name.isalpha() else None for name in NAMES]

    def word_tokens(self, word):
        return [NAMES.index(word)] if word in NAMES else []

    def with_specials(self, tokens):
        return list(tokens)

    def _topic(self, tokens):
        return [NAMES[t] in ANIMALS if NAMES[t] in ANIMALS + MUSIC else None for t in tokens]

    def embeddings(self):
        table = torch.ones(len(NAMES), 3)
        for i, topic in enumerate(self._topic(range(len(NAMES)))):
            if topic is not None and self.planted:
                table[i, 1 + topic] = 3.0
        return table

    def inputs(self, tokens):
        return self.embeddings()[tokens]

    def attention(self, inputs):
        of = self._topic(inputs)
        weights = torch.ones(2, 1, len(of), len(of))
        for i, a in enumerate(of):
            for j, b in enumerate(of):
                if self.planted and a is not None and a == b:
                    weights[1, 0, i, j] = 3.0
        return weights / weights.sum(-1, keepdim=True)

    def untrained(self, seed):
        return Planted(False)


@pytest.fixture(scope="module")
def records():
    model = Planted()
    both = zip(two_topics()[:10], two_topics()[1:11], strict=True)
    mixed = [[" ".join(first + second)] for first, second in both]
    text = rt.ReadText.of(model, [*two_topics(), *mixed])
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
        with pytest.raises(UserError, match="groups of words must be two or more"):
            rt.word_map(Planted(), groups)
    with pytest.raises(UserError, match="no token for the word 'unicorn'"):
        rt.word_map(Planted(), [["frog", "unicorn"], ["bach", "opera"]])


def test_text_without_words_or_sentences():
    with pytest.raises(UserError, match="the corpus is empty"):
        rt.ReadText.of(Planted(), [[" "]])
    with pytest.raises(UserError, match="no paragraph has 16 tokens"):
        rt.ReadText.of(Planted(), [["the frog"]]).passages(1, TorchRng(0))
    with pytest.raises(UserError, match="thresholds is empty"):
        rt.Sizes(thresholds=())


def test_passages_come_from_different_documents_first():
    text = rt.ReadText([[[d] * 16, [d] * 17] for d in range(4)])
    passages = text.passages(6, TorchRng(0))
    assert sorted(passage[0] for passage in passages[:4]) == [0, 1, 2, 3]
    assert len(passages) == 6

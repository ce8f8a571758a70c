"""How many topics a text mixes, and what one layer of attention would do there in closed form.

In the model of the source a document has τ topics, so that two of its words are of the same topic
with probability 1/τ. On real text we turn this round:

    τ = pairs of different words with topics / those pairs that share one

over ordered pairs of positions, in whole documents or in the passages that a model reads. With τ,
the number of topics T and the words v of a topic, `attention.minimiser` has the best ratio γ of
attention to the own topic and to others, for one layer that does nothing but predict masked words
from topics. BERT's masking is assumed: 15 % of the words, of these 80 % masked, 10 % replaced.

Notation
--------
T   topics        v   words of a topic, the mean       τ   topics of a document or a passage
γ   ratio         attention to a word of the own topic over that to another
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.validation import Count, Number, UserError, as_count, as_number
from triptych.models.pretrained.encoder import TextEncoder, cut_passage
from triptych.theory.topics.attention import Value, attention_loss, minimiser
from triptych.theory.topics.fitted_topics import assign_words, words_per_topic
from triptych.theory.topics.read_text import FittedText, ReadText, Sizes
from triptych.theory.topics.real_text import AttentionRatio, HeadRatios, Measured
from triptych.theory.topics.uniform_attention import Setting


@dataclass(frozen=True, kw_only=True)
class TopicMixture(Measured):
    """T, v and τ of a text, one topic per word.

    words       of a topic, the mean
    documents   topics of a document
    passages    topics of a passage, as the model reads it
    share       of the inputs of a passage that have a topic
    """

    threshold: float
    topics: int
    words: float
    documents: float | None
    passages: float | None
    share: float


class Mixed(NamedTuple):
    """Ordered pairs of different words: of the same topic and in all; inputs with a topic, all."""

    same: int
    pairs: int
    with_topic: int
    inputs: int

    @property
    def topics(self) -> float | None:
        """τ; None if no two words share a topic."""
        return self.pairs / self.same if self.same else None


def mixed_topics(texts: Iterable[Sequence[int]], topic_of: Int[Tensor, " vocab"]) -> Mixed:
    """Counted over pairs of positions in the same text; `topic_of` a token is -1 if it has none.

    Worked value: tokens 0, 0, 1, 2 with topics 0, 0, 1: the pairs (0, 1) twice share a topic, in
    both orders 4; (0, 2) twice and (1, 2) do not, in both orders 6. So τ = 10/4.
    """
    same = pairs = with_topic = inputs = 0
    for text in texts:
        tokens = torch.tensor(list(text), dtype=torch.long)
        inputs += len(tokens)
        words, times = tokens[topic_of[tokens] >= 0].unique(return_counts=True)
        if not len(words):
            continue
        number, twice = int(times.sum()), int(times.square().sum())
        per_topic = torch.bincount(topic_of[words], times.double())
        with_topic += number
        pairs += number**2 - twice
        same += round(float(per_topic.square().sum())) - twice
    return Mixed(same, pairs, with_topic, inputs)


def topic_mixtures(
    model: TextEncoder, text: ReadText, fitted: FittedText, sizes: Sizes
) -> list[TopicMixture]:
    """One for every threshold."""
    passages = [cut_passage(model, tokens, sizes.inputs) for tokens in text.long_paragraphs()]
    documents = text.whole()
    largest = max(max(tokens) for tokens in (*passages, *documents) if tokens)
    word_of = fitted.counted.index(max(model.vocab_size, largest + 1))
    found = []
    for threshold in sizes.thresholds:
        keep = words_per_topic(threshold, model.vocab_size)
        membership = assign_words(fitted.likelihood, keep, several=False)
        topic = torch.where(membership.any(1), membership.float().argmax(1), -1)
        topic_of = torch.where(word_of >= 0, topic[word_of.clamp(min=0)], -1)
        inside = mixed_topics(passages, topic_of)
        filled = membership.any(0)
        found.append(
            TopicMixture(
                model=model.name,
                family=model.family,
                seed=fitted.seed,
                threshold=threshold,
                topics=int(filled.sum()),
                words=float(membership.sum() / filled.sum()),
                documents=mixed_topics(documents, topic_of).topics,
                passages=inside.topics,
                share=inside.with_topic / max(1, inside.inputs),
            )
        )
    return found


# ---------------------------------------------------------------------- one layer


class OneLayer(NamedTuple):
    """The best attention of one layer, with the loss of uniform attention and of the best.

    ratio   γ, own topic over other topics, per word
    """

    setting: Setting
    ratio: float
    uniform_loss: float
    best_loss: float

    def share(self, ratio: Number | None = None) -> float:
        """The share of the attention to words of the document that goes to the own topic.

        Worked value: τ = 4 and ratio 3 give 3 / (3 + 3) = ½.
        """
        ratio = self.ratio if ratio is None else as_number("ratio", ratio, at_least=0)
        return ratio / (ratio + self.setting.drawn - 1)

    def gain(self, ratio: Number) -> float:
        """How much of what attention can give this ratio gives: 0 if uniform, 1 at the best."""
        at = torch.tensor(as_number("ratio", ratio, at_least=0), dtype=torch.float64)
        loss = float(attention_loss(self.setting, Value.blocks(self.setting), at, at))
        possible = self.uniform_loss - self.best_loss
        return (self.uniform_loss - loss) / possible if possible > 1e-12 else math.nan


def one_layer(topics: Count, words: Number, drawn: Number) -> OneLayer:
    """What uniform blocks of W^V give in one layer, for T, v and τ rounded to whole numbers.

    Worked value: with one topic in a document all words are of it, and the ratio says nothing.
    """
    topics = as_count("topics", topics, at_least=2)
    words = as_number("words", words, at_least=1)
    drawn = as_number("drawn", drawn, at_least=1)
    if round(drawn) > topics:
        raise UserError(
            f"drawn is {drawn:g}; a text cannot mix more than its {topics} topics",
            parameter="drawn",
        )
    setting = Setting(topics, round(words), round(drawn))
    value = Value.blocks(setting)
    one = torch.ones((), dtype=torch.float64)
    best = minimiser(setting, value)
    uniform = float(attention_loss(setting, value, one, one))
    return OneLayer(setting, best.gamma, uniform, min(best.loss, uniform))


# ---------------------------------------------------------------------- next to a real model


class Beside(NamedTuple):
    """One layer in closed form, and what a model does: attention, own topic over other topics.

    measured    of all layers together          layers   of every layer
    heads       the highest head of every layer, at the threshold at which heads were measured
    """

    mixture: TopicMixture
    one_layer: OneLayer
    measured: float
    layers: tuple[float, ...]
    heads: tuple[float, ...]


def beside_one_layer(
    mixtures: Sequence[TopicMixture],
    attention: Sequence[AttentionRatio],
    heads: Sequence[HeadRatios],
) -> list[Beside]:
    """For every model and threshold of which attention was measured; fits of LDA are averaged.

    The mixture is that of the first fit.

    Causal models are left out: the closed form is about masked words. So are passages of about one
    topic (τ below 1.5), where the ratio says nothing.
    """
    found = []
    first: dict[tuple[str, float], TopicMixture] = {}
    for mixture in sorted(mixtures, key=lambda each: each.seed):
        first.setdefault((mixture.model, mixture.threshold), mixture)
    for mixture in first.values():
        here = [
            row
            for row in attention
            if (row.model, row.threshold, row.weights)
            == (mixture.model, mixture.threshold, "trained")
            and not row.several
            and not row.shuffled
            and row.ratio is not None
        ]
        if not here or mixture.family == "causal" or (mixture.passages or 1.0) < 1.5:
            continue
        by_layer: dict[int, list[float]] = {}
        for row in here:
            by_layer.setdefault(row.layer or 0, []).append(row.ratio or 0.0)
        means = {layer: sum(some) / len(some) for layer, some in by_layer.items()}
        tables = [
            torch.tensor(row.ratios).max(1).values
            for row in heads
            if (row.model, row.threshold, row.weights)
            == (mixture.model, mixture.threshold, "trained")
        ]
        drawn = min(mixture.passages or 1.0, float(mixture.topics))
        found.append(
            Beside(
                mixture,
                one_layer(mixture.topics, mixture.words, drawn),
                means.pop(0),
                tuple(means[layer] for layer in sorted(means)),
                tuple(torch.stack(tables).mean(0).tolist()) if tables else (),
            )
        )
    return found

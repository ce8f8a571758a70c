"""Topics of real text in the embeddings and the attention of a model [li, 2.1.5.4, 2.1.6.2].

    text = ReadText.of(model, read_documents("wikitext2"))
    for record in measure(model, text, Sizes(), seed=0): ...

LDA is fitted to the model's own tokens. For every ambiguity threshold, with one topic per word and
with several, the records say how alike words of one topic are next to words of different topics: by
cosine and dot product of embeddings, and by attention in every layer. Next to them stand three
controls: topics dealt to other words (shuffled), pairs of different topics that are as frequent
(matched), and a copy of the model with random weights.

Records are plain dataclasses of numbers and text: rows of a study, and JSON for the command line.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from triptych.core.protocols import Rng
from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError, as_list, as_seed, as_text
from triptych.models.pretrained.encoder import TextEncoder, cut_passage
from triptych.theory.topics.attended_pairs import (
    DIFFERENT,
    SAME,
    TOGETHER,
    AttentionSums,
    attention_sums,
)
from triptych.theory.topics.fitted_topics import CountedWords, assign_words, words_per_topic
from triptych.theory.topics.read_text import FittedText, ReadText, Sizes, Tell, fit_text
from triptych.theory.topics.word_pairs import (
    RESAMPLES,
    matched_ratio,
    mean_of_pairs,
    multiplicities,
    pair_sums,
    ratio_of,
    shuffled,
    top_pairs,
    topic_ratio,
    unit_vectors,
)

Weights = Literal["trained", "random"]
Vectors = Literal["word", "input"]
Measure = Literal["cosine", "dot"]
GROUPS = (
    ("frog", "toad", "lizard"),
    ("mozart", "beethoven", "schubert"),
    ("algebra", "arithmetic", "calculus"),
)
"""The nine words of the source's figure, in three topics."""

_SHOWN = 8  # words of a topic, and pairs, that are shown


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Which model, with which seed of LDA; families are encoder, causal and stand-in."""

    model: str
    family: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Fitted(Measured):
    """The topics: documents, words that LDA saw, and the likeliest words of every topic."""

    documents: int
    tokens: int
    words: int
    topics: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class EmbeddingRatio(Measured):
    """Means over pairs of words of the same and of different topics; see `word_pairs`.

    vectors     the table of word embeddings, or what the first layer reads
    matched     the ratio with different pairs as frequent as the same ones
    shuffled    the mean ratio when topics are dealt to other words
    """

    weights: Weights
    vectors: Vectors
    measure: Measure
    threshold: float
    several: bool
    words: int
    same: float
    different: float
    ratio: float | None
    low: float | None
    high: float | None
    matched: float | None = None
    shuffled: float | None = None


@dataclass(frozen=True, kw_only=True)
class AttentionRatio(Measured):
    """Mean attention of the same and of different topics; see `attended_pairs`.

    layer       1, 2, …; None is the mean of all
    shuffled    whether the topics were dealt to other words
    """

    weights: Weights
    threshold: float
    several: bool
    shuffled: bool
    layer: int | None
    pairs: int
    same: float
    different: float
    ratio: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class HeadRatios(Measured):
    """Same over different topic, for every layer and head, one topic per word."""

    weights: Weights
    threshold: float
    ratios: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class TopPairs(Measured):
    """Pairs of one topic next to the pairs that occur together most often.

    Ratios are same topic over often together.
    """

    threshold: float
    pairs: int
    examples: tuple[str, ...]
    attention_topic: float
    attention_pairs: float
    attention_ratio: float | None
    attention_low: float | None
    attention_high: float | None
    cosine_topic: float
    cosine_pairs: float
    cosine_ratio: float | None
    cosine_low: float | None
    cosine_high: float | None


@dataclass(frozen=True, kw_only=True)
class WordMap(Measured):
    """Cosines of the embeddings of some words; a word of several tokens is their mean vector.

    groups      which group each word is in
    tokens      how many tokens each word has
    """

    weights: Weights
    words: tuple[str, ...]
    groups: tuple[int, ...]
    tokens: tuple[int, ...]
    cosines: tuple[tuple[float, ...], ...]


Record = Fitted | EmbeddingRatio | AttentionRatio | HeadRatios | TopPairs | WordMap


# ---------------------------------------------------------------------- what is measured


@dataclass(frozen=True, eq=False)
class _Setting:
    """A threshold, and which topics a word has."""

    threshold: float
    several: bool
    shuffled: bool
    membership: Bool[Tensor, "words topics"]


def measure(
    model: TextEncoder,
    text: ReadText,
    sizes: Sizes,
    *,
    seed: int,
    fitted: FittedText | None = None,
    random_copy: bool = True,
    tell: Tell | None = None,
) -> Iterator[Record]:
    """All records of one fit of LDA; `tell` hears what is being done.

    `fitted` is that of `fit_text` with the same seed, if it is there already.
    """
    seed, tell = as_seed(seed), tell or (lambda what: None)
    per_topic = [words_per_topic(each, model.vocab_size) for each in sizes.thresholds]
    rng, about = TorchRng(seed), {"model": model.name, "family": model.family, "seed": seed}
    if fitted is None:
        fitted = fit_text(model, text, sizes, seed=seed, tell=tell)
    counted, likelihood = fitted.counted, fitted.likelihood
    yield _fitted(likelihood, counted, text.whole(), about)
    settings = [
        _Setting(threshold, several, False, assign_words(likelihood, keep, several=several))
        for threshold, keep in zip(sizes.thresholds, per_topic, strict=True)
        for several in (False, True)
    ]
    tell("comparing embeddings")
    copies: list[tuple[Weights, TextEncoder]] = [("trained", model)]
    if random_copy:
        copies.append(("random", model.untrained(seed)))
    for weights, copy in copies:
        yield from _embedding_ratios(copy, weights, settings, counted, sizes, rng, about)
    middle = [each for each in settings if not each.several][len(per_topic) // 2]
    dealt = _Setting(middle.threshold, False, True, shuffled(middle.membership, rng))
    passages = [
        cut_passage(model, tokens, sizes.inputs) for tokens in text.passages(sizes.passages, rng)
    ]
    word_of = counted.index(max(model.vocab_size, max(map(max, passages)) + 1))
    found = _often_together(text, word_of, counted, per_topic)
    often = dict(zip(sizes.thresholds, found, strict=True))
    together = [
        None if each.several else _table(often[each.threshold], len(counted.tokens))
        for each in settings
    ]
    for weights, copy in copies:
        tell(f"attention on {len(passages)} passages, {weights} weights")
        sums = attention_sums(
            copy.attention,
            passages,
            word_of,
            [each.membership for each in (*settings, dealt)],
            [*together, None],
            causal=model.family == "causal",
        )
        yield from _attention_ratios(sums, weights, [*settings, dealt], rng, about)
        where = settings.index(middle)
        heads = sums.means(where, SAME) / sums.means(where, DIFFERENT)
        yield HeadRatios(**about, weights=weights, threshold=middle.threshold, ratios=_rows(heads))
        if weights == "trained":
            yield from _top_pairs(model, sums, settings, often, counted, rng, about)


def _fitted(
    likelihood: Tensor, counted: CountedWords, documents: Sequence[Sequence[int]], about: Any
) -> Fitted:
    best = likelihood.topk(min(_SHOWN, likelihood.shape[1]), dim=1).indices.tolist()
    return Fitted(
        **about,
        documents=len(documents),
        tokens=sum(map(len, documents)),
        words=len(counted.tokens),
        topics=tuple(tuple(counted.names[w] for w in row) for row in best),
    )


def _embedding_ratios(
    model: TextEncoder,
    weights: Weights,
    settings: Sequence[_Setting],
    counted: CountedWords,
    sizes: Sizes,
    rng: Rng,
    about: Any,
) -> Iterator[EmbeddingRatio]:
    """For the table of embeddings and the first layer's inputs, cosine and dot product."""
    kinds: dict[Vectors, Tensor] = {"word": model.embeddings()[counted.tokens]}
    kinds["input"] = model.inputs(counted.tokens)
    for vectors, values in kinds.items():
        measures: dict[Measure, Tensor] = {"cosine": unit_vectors(values), "dot": values.double()}
        for measured, table in measures.items():
            for setting in settings:
                if weights == "random" and vectors == "word" and setting.several:
                    continue  # 0/0
                found = topic_ratio(pair_sums(table, setting.membership), rng)
                matched = mixed = None
                if not setting.several and weights == "trained" and found.ratio is not None:
                    matched = matched_ratio(table, setting.membership, counted.frequency)
                    mixed = _shuffled_ratio(table, setting.membership, sizes.shuffles, rng)
                yield EmbeddingRatio(
                    **about,
                    weights=weights,
                    vectors=vectors,
                    measure=measured,
                    threshold=setting.threshold,
                    several=setting.several,
                    words=int(setting.membership.any(1).sum()),
                    **found._asdict(),
                    matched=matched,
                    shuffled=mixed,
                )


def _shuffled_ratio(table: Tensor, membership: Tensor, shuffles: int, rng: Rng) -> float:
    """Mean of same over mean of different, over shuffles."""
    means = [pair_sums(table, shuffled(membership, rng)).means() for _ in range(shuffles)]
    same, different = (torch.cat(some).mean() for some in zip(*means, strict=True))
    return float(same / different)


def _attention_ratios(
    sums: AttentionSums, weights: Weights, settings: Sequence[_Setting], rng: Rng, about: Any
) -> Iterator[AttentionRatio]:
    layers = sums.sums.shape[-2]
    some = [i for i in range(len(settings)) if sums.has(i, SAME, DIFFERENT)]
    for number in some or [0]:  # without any, the first says what is missing
        setting = settings[number]
        for layer in (None, *range(layers)):
            found = sums.ratio(number, rng, layer=layer)
            yield AttentionRatio(
                **about,
                weights=weights,
                threshold=setting.threshold,
                several=setting.several,
                shuffled=setting.shuffled,
                layer=None if layer is None else layer + 1,
                pairs=int(sums.pairs[:, number, SAME].sum()),
                **found._asdict(),
            )


# ---------------------------------------------------------------------- pairs that occur together


def _often_together(
    text: ReadText, word_of: Tensor, counted: CountedWords, per_topic: Sequence[int]
) -> list[Tensor]:
    """For every threshold the pairs that occur together most, as many as a topic has pairs."""
    paragraphs = [tokens for document in text.documents for tokens in document]
    rows = np.repeat(np.arange(len(paragraphs)), [len(tokens) for tokens in paragraphs])
    words = word_of[torch.tensor(list(chain.from_iterable(paragraphs)))].numpy()
    inside = words >= 0
    occurs = scipy.sparse.csr_matrix(
        (np.ones(int(inside.sum()), np.float32), (rows[inside], words[inside])),
        (len(paragraphs), len(counted.tokens)),
    )
    numbers = [keep * (keep - 1) // 2 for keep in per_topic]
    pairs = top_pairs(occurs, max(numbers))
    return [pairs[:number] for number in numbers]


def _table(pairs: Tensor, words: int) -> Bool[Tensor, "words words"]:
    found = torch.zeros(words, words, dtype=torch.bool)
    found[pairs[:, 0], pairs[:, 1]] = True
    found[pairs[:, 1], pairs[:, 0]] = True
    return found


def _top_pairs(
    model: TextEncoder,
    sums: AttentionSums,
    settings: Sequence[_Setting],
    often: dict[float, Tensor],
    counted: CountedWords,
    rng: Rng,
    about: Any,
) -> Iterator[TopPairs]:
    vectors = unit_vectors(model.embeddings()[counted.tokens])
    for number, setting in enumerate(settings):
        if setting.several or not sums.has(number, SAME, TOGETHER):
            continue
        pairs = often[setting.threshold]
        attention = sums.ratio(number, rng, over=TOGETHER)
        within = pair_sums(vectors, setting.membership)
        each = mean_of_pairs(vectors, pairs)
        topics = multiplicities(len(within.same), RESAMPLES, rng)
        again = multiplicities(len(each), RESAMPLES, rng) @ each / len(each)
        same = float(within.means()[0])
        cosine = ratio_of(same, float(each.mean()), within.means(topics)[0], again)
        yield TopPairs(
            **about,
            threshold=setting.threshold,
            pairs=len(pairs),
            examples=tuple(
                f"{counted.names[a]} {counted.names[b]}" for a, b in pairs[:_SHOWN].tolist()
            ),
            attention_topic=attention.same,
            attention_pairs=attention.different,
            attention_ratio=attention.ratio,
            attention_low=attention.low,
            attention_high=attention.high,
            cosine_topic=cosine.same,
            cosine_pairs=cosine.different,
            cosine_ratio=cosine.ratio,
            cosine_low=cosine.low,
            cosine_high=cosine.high,
        )


# ---------------------------------------------------------------------- a map of some words


def word_map(
    model: TextEncoder, groups: Sequence[Sequence[str]], *, weights: Weights = "trained"
) -> WordMap:
    """Cosines of all pairs of the words, group after group.

    The source does not say what it does with words of several tokens. Here such a word has the mean
    of their embeddings.
    """
    named = [[as_text("word", word) for word in as_list("a group", g, "words")] for g in groups]
    words = [word for group in named for word in group]
    if len(named) < 2 or min(map(len, named)) < 2 or len(set(words)) < len(words):
        raise UserError(
            "groups of words must be two or more, each of two different words or more; as "
            "frog,toad and mozart,schubert",
            parameter="groups",
        )
    table = model.embeddings()
    tokens = [model.word_tokens(word) for word in words]
    unknown = [word for word, ids in zip(words, tokens, strict=True) if not ids]
    if unknown:
        raise UserError(f"the model has no token for the word {unknown[0]!r}", parameter="model")
    vectors = torch.stack([table[ids].mean(0) for ids in tokens])
    unit = unit_vectors(vectors)
    return WordMap(
        model=model.name,
        family=model.family,
        seed=0,
        weights=weights,
        words=tuple(words),
        groups=tuple(i for i, group in enumerate(named) for _ in group),
        tokens=tuple(map(len, tokens)),
        cosines=_rows(unit @ unit.T),
    )


def _rows(table: Float[Tensor, "rows columns"]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in table.tolist())

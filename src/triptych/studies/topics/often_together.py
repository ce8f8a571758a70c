"""Words of one topic next to the words that occur together most often [li, 2.1.6.2, Table 2.5].

The source compares pairs of one topic with as many pairs that co-occur most, "with stop tokens
removed". So common words count here too: all whole words but scikit-learn's English stop words, in
10 documents or more, whatever share of the documents they stand in. Pairs are chosen by the number
of paragraphs that have both words; and, next to it, by their pointwise mutual information

    PMI(a, b) = log n(a, b) n / (n(a) n(b))

with n paragraphs, n(a) of them with a, n(a, b) with both, among pairs with 10 paragraphs or more.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.models.pretrained.encoder import PretrainedEncoder, TextEncoder, cut_passage
from triptych.models.pretrained.fetching import CATALOGUE, cached
from triptych.studies.api.decide import Verdict, above, at_least, below, decide, shown
from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Bench, Claim, Rows, Scale, Settings, Study, Unit
from triptych.studies.topics.shared.fits import ENCODERS, FITS, Found, cells, highest, lowest
from triptych.studies.topics.shared.plain_text import corpus_documents
from triptych.studies.topics.shared.stand_in import STAND_IN, stand_in
from triptych.theory.topics.attended_pairs import SAME, TOGETHER, attention_sums
from triptych.theory.topics.fitted_topics import assign_words, words_per_topic
from triptych.theory.topics.read_text import ReadText, Sizes, fit_text
from triptych.theory.topics.word_pairs import (
    RESAMPLES,
    mean_of_pairs,
    multiplicities,
    pair_sums,
    ratio_of,
    top_pairs,
    unit_vectors,
)

By = Literal["count", "pmi"]
SHOWN = 8  # pairs that a row names
# published, same topic over often together: the largest of attention, the smallest of cosines
ATTENTION_TOGETHER, COSINE_TOGETHER = 0.00621 / 0.00695, 0.425 / 0.323


@dataclass(frozen=True, kw_only=True)
class OftenTogether(Settings):
    """Models, corpus and sizes, as in `real_text`, but for common words.

    most        share of the documents that a word stands in, at most: 1 for all words
    together    paragraphs with both words, at least, for a pair that PMI may choose
    """

    seeds: int = 3
    models: tuple[str, ...] = (STAND_IN,)
    corpus: str = "docstrings"
    topics: int = 100
    thresholds: tuple[float, ...] = (0.0005, 0.001, 0.002)
    passes: int = 30
    fewest: int = 10
    most: float = 1.0
    together: int = 10
    passages: int = 150
    inputs: int = 128
    vocabulary: int = 0
    width: int = 0
    layers: int = 0
    steps: int = 0


@dataclass(frozen=True, kw_only=True)
class ComparePairs(Unit):
    """One model and one fit of LDA."""

    model: str
    corpus: str
    topics: int
    thresholds: tuple[float, ...]
    passes: int
    fewest: int
    most: float
    together: int
    passages: int
    inputs: int
    vocabulary: int
    width: int
    layers: int
    steps: int


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Pairs of one topic next to as many pairs that occur together most, by count or by PMI.

    Ratios are same topic over often together, with 95 % intervals; None where it would be 0/0, or
    where no passage has such a pair.
    """

    model: str
    family: str
    seed: int
    threshold: float
    by: By
    pairs: int
    examples: tuple[str, ...]
    attention_topic: float | None
    attention_pairs: float | None
    attention_ratio: float | None
    attention_low: float | None
    attention_high: float | None
    cosine_topic: float
    cosine_pairs: float
    cosine_ratio: float | None
    cosine_low: float | None
    cosine_high: float | None


Row = Compared


def units(settings: OftenTogether) -> Sequence[ComparePairs]:
    """One for every model and fit of LDA."""
    found: list[ComparePairs] = []
    for model in settings.models:
        sizes: dict[str, Any] = {"model": model}
        if model != STAND_IN:
            sizes |= {"vocabulary": 0, "width": 0, "layers": 0, "steps": 0}
        found += [ComparePairs.of(settings, seed=seed, **sizes) for seed in range(settings.seeds)]
    return found


def run(unit: ComparePairs, bench: Bench) -> Iterable[Row]:
    """Fit topics, choose pairs, and compare attention and cosines."""
    model = _model(unit, bench)
    sizes = Sizes(
        topics=unit.topics,
        thresholds=unit.thresholds,
        passes=unit.passes,
        fewest=unit.fewest,
        most=unit.most,
        passages=unit.passages,
        inputs=unit.inputs,
    )
    text = ReadText.of(model, corpus_documents(unit.corpus))
    fitted = fit_text(model, text, sizes, seed=unit.seed)
    counted, rng = fitted.counted, TorchRng(unit.seed)
    passages = [
        cut_passage(model, tokens, unit.inputs) for tokens in text.passages(unit.passages, rng)
    ]
    word_of = counted.index(max(model.vocab_size, max(map(max, passages)) + 1))
    occurs = occurrences(text, word_of, len(counted.tokens))
    keeps = [words_per_topic(each, model.vocab_size) for each in unit.thresholds]
    settings: list[tuple[float, Any, Bool[Tensor, "words topics"], Int[Tensor, "pairs 2"]]] = []
    for threshold, keep in zip(unit.thresholds, keeps, strict=True):
        membership = assign_words(fitted.likelihood, keep, several=False)
        number = keep * (keep - 1) // 2
        settings += [
            (threshold, "count", membership, top_pairs(occurs, number)),
            (threshold, "pmi", membership, pmi_pairs(occurs, number, fewest=unit.together)),
        ]
    sums = attention_sums(
        model.attention,
        passages,
        word_of,
        [membership for _, _, membership, _ in settings],
        [_table(pairs, len(counted.tokens)) for _, _, _, pairs in settings],
        causal=model.family == "causal",
    )
    vectors = unit_vectors(model.embeddings()[counted.tokens])
    for place, (threshold, by, membership, pairs) in enumerate(settings):
        attended = (
            sums.ratio(place, rng, over=TOGETHER) if sums.has(place, SAME, TOGETHER) else None
        )
        within, each = pair_sums(vectors, membership), mean_of_pairs(vectors, pairs)
        topics = multiplicities(len(within.same), RESAMPLES, rng)
        again = multiplicities(len(each), RESAMPLES, rng) @ each / len(each)
        cosine = ratio_of(
            float(within.means()[0]), float(each.mean()), within.means(topics)[0], again
        )
        yield Compared(
            model=model.name,
            family=model.family,
            seed=unit.seed,
            threshold=threshold,
            by=by,
            pairs=len(pairs),
            examples=tuple(
                f"{counted.names[a]} {counted.names[b]}" for a, b in pairs[:SHOWN].tolist()
            ),
            attention_topic=attended and attended.same,
            attention_pairs=attended and attended.different,
            attention_ratio=attended and attended.ratio,
            attention_low=attended and attended.low,
            attention_high=attended and attended.high,
            cosine_topic=cosine.same,
            cosine_pairs=cosine.different,
            cosine_ratio=cosine.ratio,
            cosine_low=cosine.low,
            cosine_high=cosine.high,
        )


def occurrences(text: ReadText, word_of: Int[Tensor, " vocab"], words: int) -> Any:
    """[paragraphs, words], 1 where a paragraph has a word, a sparse matrix."""
    paragraphs = [tokens for document in text.documents for tokens in document]
    rows = np.repeat(np.arange(len(paragraphs)), [len(tokens) for tokens in paragraphs])
    found = word_of[torch.tensor(list(chain.from_iterable(paragraphs)))].numpy()
    inside = found >= 0
    ones = np.ones(int(inside.sum()), np.float32)
    occurs: Any = scipy.sparse.csr_matrix(
        (ones, (rows[inside], found[inside])), (len(paragraphs), words)
    )
    occurs.sum_duplicates()
    occurs.data[:] = 1.0
    return occurs


def pmi_pairs(occurs: Any, number: int, *, fewest: int) -> Int[Tensor, "pairs 2"]:
    """The pairs of words with the largest PMI, among those that `fewest` paragraphs or more have.

    Worked value: of four paragraphs two have a, the same two b, and three have c, one of them with
    a and b. PMI(a, b) is log 2 · 4 / (2 · 2) = log 2, PMI(a, c) log 1 · 4 / (2 · 3) = log 2/3.
    """
    alone = np.asarray(occurs.sum(0)).ravel()
    both: Any = scipy.sparse.triu(occurs.T @ occurs, k=1).tocoo()
    kept = both.data >= fewest
    first, second, together = both.row[kept], both.col[kept], both.data[kept]
    if len(together) < number:
        raise UserError(
            f"{len(together)} pairs of words stand in {fewest} paragraphs or more, and {number} "
            "are wanted; give more text, or set together lower"
        )
    information = np.log(together * occurs.shape[0] / (alone[first] * alone[second]))
    order = np.lexsort((second, first, -information))[:number]
    return torch.from_numpy(np.stack([first[order], second[order]], 1).astype(np.int64))


def _table(pairs: Int[Tensor, "pairs 2"], words: int) -> Bool[Tensor, "words words"]:
    found = torch.zeros(words, words, dtype=torch.bool)
    found[pairs[:, 0], pairs[:, 1]] = True
    found[pairs[:, 1], pairs[:, 0]] = True
    return found


def _model(unit: ComparePairs, bench: Bench) -> TextEncoder:
    if unit.model == STAND_IN:
        return stand_in(
            unit.corpus,
            vocabulary=unit.vocabulary,
            width=unit.width,
            layers=unit.layers,
            steps=unit.steps,
            bench=bench,
        )
    return _pretrained(unit.model)


@functools.lru_cache(maxsize=1)
def _pretrained(name: str) -> PretrainedEncoder:
    """A fetched model, a folder, or a name on the hub; loaded once in a process."""
    place = name
    if name in CATALOGUE:
        found = cached(name)
        if found is None:
            raise UserError(f"not run: needs `triptych fetch {name}`")
        place = str(found)
    return PretrainedEncoder.from_pretrained(place, name=name)


# ------------------------------------------------------------------ the judge


def judge(rows: Rows[Row]) -> Verdict:
    """Less attention and larger cosines than the pairs that occur together in most paragraphs.

    Encoders decide, where the claim is weakest. Pairs chosen by PMI are shown next to it: the
    source counts.
    """
    encoders = [row for row in rows.of(Compared) if row.family == "encoder"]
    fits: dict[str, set[int]] = {}
    for row in encoders:
        if row.by == "count":
            fits.setdefault(row.model, set()).add(row.seed)
    done = sum(len(seeds) >= FITS for seeds in fits.values())
    needs = [at_least(f"pretrained encoders with {FITS} fits of LDA", done, ENCODERS)]
    if not fits:
        return decide(needs=needs)
    attended, alike = _attended(encoders, "count"), _alike(encoders, "count")
    topic = "two words of one topic divided by two that often occur together"
    checks = [
        below(
            f"attention, {topic}: the highest of models and thresholds",
            highest(attended),
            1.0,
            published=ATTENTION_TOGETHER,
        ),
        above(
            f"cosine of embeddings, {topic}: the lowest of models and thresholds",
            lowest(alike),
            1.0,
            published=COSINE_TOGETHER,
        ),
        shown(f"attention, {topic}: the lowest", lowest(attended)),
        shown(f"cosine of embeddings, {topic}: the highest", highest(alike)),
    ]
    if any(row.by == "pmi" for row in encoders):
        checks += [
            shown(
                f"pairs by pointwise mutual information: attention, {topic}: the highest",
                highest(_attended(encoders, "pmi")),
            ),
            shown(
                f"pairs by pointwise mutual information: cosine of embeddings, {topic}: the lowest",
                lowest(_alike(encoders, "pmi")),
            ),
        ]
    return decide(*checks, needs=needs)


def _attended(rows: Sequence[Compared], by: By) -> list[Found]:
    return [
        Found(r.model, r.threshold, r.seed, r.attention_ratio, r.attention_low, r.attention_high)
        for r in rows
        if r.by == by
    ]


def _alike(rows: Sequence[Compared], by: By) -> list[Found]:
    return [
        Found(r.model, r.threshold, r.seed, r.cosine_ratio, r.cosine_low, r.cosine_high)
        for r in rows
        if r.by == by
    ]


_HELD = [
    Compared(
        model=model, family="encoder", seed=seed, threshold=threshold, by=by, pairs=105,
        examples=("a b",), attention_topic=0.0066, attention_pairs=0.0075, attention_ratio=0.88,
        attention_low=0.85, attention_high=0.91, cosine_topic=0.46, cosine_pairs=0.32,
        cosine_ratio=1.44, cosine_low=1.38, cosine_high=1.5,
    )
    for model in ("first", "second")
    for seed in range(FITS)
    for threshold in (0.0005, 0.001)
    for by in ("count", "pmi")
]  # fmt: skip
_ATTENDED = {"attention_ratio": 1.0, "attention_low": 0.98, "attention_high": 1.02}
_ALIKE = {"cosine_ratio": 1.0, "cosine_low": 0.95, "cosine_high": 1.05}
_REFUTED = [
    [replace(row, **_ATTENDED) for row in _HELD],
    [replace(row, **_ALIKE) for row in _HELD],
    [replace(row, **(_ALIKE if row.model == "first" else {})) for row in _HELD],
    [replace(row, **_ATTENDED, **_ALIKE) for row in _HELD],
]


# ------------------------------------------------------------------ pictures


def ratios_figure(rows: Rows[Row]) -> Figure:
    """Same topic over often together, attention and cosine, for every model and threshold."""
    panels = []
    kinds: dict[By, SeriesKind] = {"count": "ours", "pmi": "control"}
    for name, find in (("attention", _attended), ("cosine of embeddings", _alike)):
        series = []
        for by, kind in kinds.items():
            found = sorted(cells(find(rows.of(Compared), by)).items())
            known = [(i, e) for i, (_, e) in enumerate(found, 1) if e.value == e.value]
            if known:
                series.append(
                    Series(
                        f"pairs chosen by {by}",
                        kind,
                        [i for i, _ in known],
                        [e.value for _, e in known],
                        [e.low for _, e in known],
                        [e.high for _, e in known],
                        line=False,
                    )
                )
        if series:
            where = sorted({(row.model, row.threshold) for row in rows.of(Compared)})
            axis = ", ".join(f"{i} {model} {t:g}" for i, (model, t) in enumerate(where, 1))
            panels.append(Panel(series, axis, "same topic over often together", name))
    return Figure(
        "often_together",
        "Words of one topic over words that often stand together, by model and threshold",
        panels,
        "Means over fits of LDA, from the lowest to the highest end of their 95 % intervals. "
        "Common words count. Published, for BERT: attention 0.88 to 0.89, cosine 1.3 to 1.5.",
    )


STUDY = Study(
    name="often_together",
    question="Are words of one topic alike because they often stand together?",
    settings={
        Scale.SMOKE: OftenTogether(
            seeds=1,
            corpus="python-help",
            topics=4,
            thresholds=(0.01,),
            passes=3,
            fewest=3,
            together=2,
            passages=8,
            inputs=48,
            vocabulary=800,
            width=16,
            layers=2,
            steps=8,
        ),
        Scale.LAPTOP: OftenTogether(
            topics=30,
            thresholds=(0.0025, 0.005, 0.01),
            passes=10,
            passages=100,
            inputs=64,
            vocabulary=4000,
            width=64,
            layers=4,
            steps=600,
        ),
        Scale.PAPER: OftenTogether(models=("minilm", "mpnet"), corpus="wikitext2"),
    },
    units=units,
    run=run,
    rows=(Compared,),
    claims=[Claim("li.tab-2.5", judge, _REFUTED, held_by=_HELD)],
    figures=[ratios_figure],
)

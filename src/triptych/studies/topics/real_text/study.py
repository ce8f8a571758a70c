"""Do pretrained models keep words of one topic together [li, 2.1.2.2, 2.1.5.4, 2.1.6.2]?

LDA is fitted to a corpus in the tokens of each model, and pairs of words of the same topic are
compared with pairs of different topics: cosine and dot product of embeddings, and attention in
every layer. `theory.topics.real_text` says what is measured and with which controls.

The largest run reads WikiText-2 with two sentence encoders (MiniLM, MPNet) and a causal model
(SmolLM2). The source has Bert, Albert, Bart, Electra and Roberta on a sample of Wikipedia; any of
them can be named in `models` where the hub of Hugging Face can be reached. Laptop scale needs no
download: docstrings, and a small encoder trained here, which is a stand-in and decides nothing
about pretrained models.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from triptych.core.validation import UserError
from triptych.models.pretrained.encoder import PretrainedEncoder, TextEncoder
from triptych.models.pretrained.fetching import CATALOGUE, cached
from triptych.studies.api.study import Bench, Claim, Scale, Settings, Study, Unit
from triptych.studies.topics.real_text import figures, judge
from triptych.studies.topics.shared.plain_text import corpus_documents
from triptych.studies.topics.shared.stand_in import STAND_IN, stand_in
from triptych.theory.topics.read_text import ReadText, Sizes, fit_text
from triptych.theory.topics.real_text import (
    GROUPS,
    AttentionRatio,
    EmbeddingRatio,
    Fitted,
    HeadRatios,
    TopPairs,
    WordMap,
    measure,
    word_map,
)
from triptych.theory.topics.topic_mixtures import TopicMixture, topic_mixtures

Row = Fitted | EmbeddingRatio | AttentionRatio | HeadRatios | TopPairs | WordMap | TopicMixture


@dataclass(frozen=True, kw_only=True)
class RealText(Settings):
    """Models, corpus and sizes.

    models          names to fetch, folders, names on the hub, or "stand-in"
    groups          words of the map
    vocabulary, width, layers, steps    of the stand-in
    """

    seeds: int = 3
    models: tuple[str, ...] = (STAND_IN,)
    corpus: str = "docstrings"
    groups: tuple[tuple[str, ...], ...] = GROUPS
    topics: int = 100
    thresholds: tuple[float, ...] = (0.0005, 0.001, 0.002)
    passes: int = 30
    fewest: int = 10
    most: float = 0.1
    passages: int = 150
    inputs: int = 128
    vocabulary: int = 0
    width: int = 0
    layers: int = 0
    steps: int = 0


@dataclass(frozen=True, kw_only=True)
class ReadModel(Unit):
    """A model to read a corpus with."""

    model: str
    corpus: str
    vocabulary: int
    width: int
    layers: int
    steps: int


@dataclass(frozen=True, kw_only=True)
class MeasureTopics(ReadModel):
    """One fit of LDA, and all that is measured with it."""

    topics: int
    thresholds: tuple[float, ...]
    passes: int
    fewest: int
    most: float
    passages: int
    inputs: int


@dataclass(frozen=True, kw_only=True)
class CountTopics(MeasureTopics):
    """How many topics the text mixes, by the same fit: what the closed form of one layer needs."""


@dataclass(frozen=True, kw_only=True)
class MapWords(ReadModel):
    """Cosines of a few words."""

    groups: tuple[tuple[str, ...], ...]


def units(settings: RealText) -> Sequence[ReadModel]:
    """For every model a map of words, a fit for every seed, and the topics of its text."""
    found: list[ReadModel] = []
    for model in settings.models:
        sizes = {"model": model}
        if model != STAND_IN:
            sizes |= {"vocabulary": 0, "width": 0, "layers": 0, "steps": 0}
        found.append(MapWords.of(settings, seed=0, **sizes))
        seeds = range(settings.seeds)
        found += [MeasureTopics.of(settings, seed=seed, **sizes) for seed in seeds]
        found.append(CountTopics.of(settings, seed=0, **sizes))
    return found


def run(unit: ReadModel, bench: Bench) -> Iterable[Row]:
    """Load the model; measure, count topics, or map words."""
    model = _model(unit, bench)
    if isinstance(unit, MapWords):
        yield word_map(model, unit.groups)
        yield word_map(model.untrained(0), unit.groups, weights="random")
        return
    assert isinstance(unit, MeasureTopics)
    sizes = Sizes(
        topics=unit.topics,
        thresholds=unit.thresholds,
        passes=unit.passes,
        fewest=unit.fewest,
        most=unit.most,
        passages=unit.passages,
        inputs=unit.inputs,
    )
    text = _read(unit, model)
    if isinstance(unit, CountTopics):
        yield from topic_mixtures(model, text, fit_text(model, text, sizes, seed=unit.seed), sizes)
        return
    yield from measure(model, text, sizes, seed=unit.seed)


def _model(unit: ReadModel, bench: Bench) -> TextEncoder:
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


_TEXT: dict[tuple[str, str], ReadText] = {}  # the last one, for the next seed


def _read(unit: ReadModel, model: TextEncoder) -> ReadText:
    """The corpus in the model's tokens, read once in a process."""
    key = (unit.corpus, f"{unit.model} {unit.vocabulary}")
    if key not in _TEXT:
        _TEXT.clear()
        _TEXT[key] = ReadText.of(model, corpus_documents(unit.corpus))
    return _TEXT[key]


_PYTHON = (
    ("file", "directory", "path"),
    ("matrix", "vector", "eigenvalues"),
    ("probability", "distribution", "variance"),
)

STUDY = Study(
    name="real_text",
    question="Do pretrained models keep words of one topic together?",
    settings={
        Scale.SMOKE: RealText(
            seeds=1,
            corpus="python-help",
            groups=(("class", "instance"), ("string", "bytes")),
            topics=4,
            thresholds=(0.01, 0.02),
            passes=3,
            fewest=3,
            most=0.5,
            passages=8,
            inputs=48,
            vocabulary=800,
            width=16,
            layers=2,
            steps=8,
        ),
        Scale.LAPTOP: RealText(
            groups=_PYTHON,
            topics=30,
            thresholds=(0.0025, 0.005, 0.01),
            passes=10,
            most=0.2,
            passages=100,
            inputs=64,
            vocabulary=4000,
            width=64,
            layers=4,
            steps=600,
        ),
        Scale.PAPER: RealText(models=("minilm", "mpnet", "smollm2-135m"), corpus="wikitext2"),
    },
    units=units,
    run=run,
    rows=(Fitted, EmbeddingRatio, AttentionRatio, HeadRatios, TopPairs, WordMap, TopicMixture),
    claims=[
        Claim("li.tab-2.3", judge.one_topic, judge.ONE_TOPIC_REFUTED, held_by=judge.HELD),
        Claim("li.tab-2.4", judge.several_topics, judge.SEVERAL_REFUTED, held_by=judge.HELD),
        Claim("li.fig-2.3", judge.map_of_words, judge.MAP_REFUTED, held_by=judge.HELD),
    ],
    figures=[
        figures.ratios_figure,
        figures.layers_figure,
        figures.closed_form_figure,
        figures.heads_figure,
        figures.map_figure,
    ],
)

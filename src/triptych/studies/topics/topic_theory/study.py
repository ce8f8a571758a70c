"""What one layer of attention learns about topics, in closed form [li, 2.1.3, 2.1.4, 2.1.7].

Everything is exact: the loss over infinitely long documents is a quadratic of the matrices and a
rational function of the attention weights. The only randomness is in where training starts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never, get_args

import torch

from triptych.core.validation import UserError
from triptych.studies.api.study import Bench, Scale, Settings, Study
from triptych.studies.topics.topic_theory.figures import FIGURES
from triptych.studies.topics.topic_theory.judge import CLAIMS
from triptych.studies.topics.topic_theory.optima import (
    MASKINGS,
    embeddings,
    masked_documents,
    optima,
)
from triptych.studies.topics.topic_theory.rows import (
    DrawLandscape,
    Embedding,
    FindOptima,
    FindWeights,
    Landscape,
    MaskDocuments,
    Masked,
    Optima,
    Row,
    TrainEmbedding,
    ValueName,
    Weights,
)
from triptych.studies.topics.topic_theory.weights import landscapes, weights

SQUARE = ((3, 2, 1), (4, 3, 2), (5, 2, 3))  # T, v, τ of embeddings with d = T v + 1
ALL_TOPICS = ((3, 2, 3), (4, 1, 4))  # the same at τ = T
NARROW = ((3, 2, 1, 2), (4, 1, 2, 3))  # T, v, τ and d < T


@dataclass(frozen=True)
class TopicTheory(Settings):
    """Sizes.

    seeds       starts of training the embeddings
    topics      T of the optima and of the masked documents, with every τ from 1 to T
    words       v of these
    maskings    names of p_m, p_c, p_r within the assumptions;  outside: others
    growing     T of the attention weights, τ = T^exponent;  many_words: v there
    dense       τ as shares of T, where nothing is promised;  few_words: v, likewise
    drawn       τ of the landscapes, T = 100, v = 300
    """

    seeds: int = 5
    topics: tuple[int, ...] = (2, 3, 5, 8)
    words: tuple[int, ...] = (1, 2, 4)
    maskings: tuple[str, ...] = ("as in BERT", "many masked", "many kept and replaced")
    growing: tuple[int, ...] = (100, 10_000, 100_000, 1_000_000)
    exponents: tuple[float, ...] = (0.25, 0.5, 0.75)
    many_words: tuple[int, ...] = (10, 17, 50, 300)
    dense: tuple[float, ...] = (0.2, 0.5, 0.9)
    outside: tuple[str, ...] = ("most masked", "mostly replaced")
    few_words: tuple[int, ...] = (2, 4)
    drawn: tuple[int, ...] = (20, 40, 60, 80)


AnyUnit = FindOptima | TrainEmbedding | FindWeights | DrawLandscape | MaskDocuments


def units(settings: TopicTheory) -> Sequence[AnyUnit]:
    """One per statement and masking, and per T, v or τ."""
    wrong = [name for name in (*settings.maskings, *settings.outside) if name not in MASKINGS]
    if wrong:
        raise UserError(f"maskings are {', '.join(MASKINGS)}; given {', '.join(wrong)}")
    planned: list[AnyUnit] = []
    for masking in settings.maskings:
        planned += [FindOptima(masking, count, settings.words, seed=0) for count in settings.topics]
        planned += _trainings(settings, masking, [(*s, s[0] * s[1] + 1) for s in SQUARE])
    pairs = [(m, v) for m in settings.maskings for v in settings.many_words]
    pairs += [(m, v) for m in settings.outside for v in settings.many_words[-1:]]
    pairs += [(settings.maskings[0], v) for v in settings.few_words]
    planned += [FindWeights.of(settings, masking=m, words=v, seed=0) for m, v in pairs]
    for name in get_args(ValueName):
        planned += [DrawLandscape(name, tau, seed=0) for tau in settings.drawn]
    for masking in settings.maskings:
        planned += [
            MaskDocuments(masking, count, settings.words, seed=0) for count in settings.topics
        ]
        edges = [(*s, s[0] * s[1] + 1) for s in ALL_TOPICS]
        planned += _trainings(settings, masking, [*edges, *NARROW])
    return planned


def _trainings(
    settings: TopicTheory, masking: str, sizes: Sequence[tuple[int, int, int, int]]
) -> list[TrainEmbedding]:
    return [
        TrainEmbedding(masking, *each, seed=seed)
        for each in sizes
        for seed in range(settings.seeds)
    ]


def run(unit: AnyUnit, bench: Bench) -> Iterable[Row]:
    """Dispatch on the kind of unit."""
    generator = torch.Generator().manual_seed(bench.rng("topics").seed)
    match unit:
        case FindOptima():
            yield from optima(unit, generator)
        case TrainEmbedding():
            yield from embeddings(unit, generator)
        case FindWeights():
            yield from weights(unit)
        case DrawLandscape():
            yield from landscapes(unit)
        case MaskDocuments():
            yield from masked_documents(unit)
        case _:
            assert_never(unit)


STUDY = Study(
    name="topic_theory",
    question="What does one layer of attention learn about topics, in closed form?",
    settings={
        Scale.SMOKE: TopicTheory(
            seeds=2,
            topics=(2, 4),
            words=(1, 2),
            maskings=("as in BERT",),
            growing=(100, 10_000),
            exponents=(0.5,),
            many_words=(10,),
            dense=(),
            outside=(),
            few_words=(),
            drawn=(20, 80),
        ),
        Scale.LAPTOP: TopicTheory(),
        Scale.PAPER: TopicTheory(
            seeds=20,
            topics=(2, 3, 4, 5, 8, 10, 16),
            words=(1, 2, 3, 4, 10),
            growing=(100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000),
            exponents=(0.2, 0.25, 0.4, 0.5, 0.6, 0.75, 0.8),
        ),
    },
    units=units,
    run=run,
    rows=(Optima, Embedding, Weights, Landscape, Masked),
    claims=CLAIMS,
    figures=FIGURES,
)

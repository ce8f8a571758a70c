"""Do all layers of a transformer on natural text learn W^V before W^K and W^Q [li, 2.1.6.1]?

A masked language model with 4 layers of 4 heads, W^K, W^Q and W^V near zero at the start, all else
as usual, trained on all its weights at once. Every 10 steps the Frobenius norms of the three
matrices of every layer are kept (all heads together), and how far W^V has turned in 10 steps:

    rotation(t) = (1 - cos(W^V_t, W^V_{t-10})) / 2

What two stages are is in `shared.stages`; a run has them if each of its layers has. The source says
neither the optimiser nor the rates nor the size of its network. Laptop scale reads docstrings of
Python, numpy, scipy and torch, which every machine with Triptych has; the largest run reads
WikiText-2.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from triptych.models.language_models import MaskedLM
from triptych.models.layers import Block
from triptych.models.transformer import Shape, Transformer
from triptych.studies.api.study import Bench, Claim, Scale, Settings, Study, Unit
from triptych.studies.topics.shared.plain_text import words_and_chunks
from triptych.studies.topics.two_stages_text import figures, judge
from triptych.studies.topics.two_stages_text.rows import Diverged, LayerCurves
from triptych.training.corpus import Corpus
from triptych.training.gap import Gap
from triptych.training.loop import fit
from triptych.training.objectives import masked
from triptych.training.step import Recipe

EVERY = 10  # steps between two that are kept
DEFAULT = 0.02  # standard deviation of the other matrices

Row = LayerCurves | Diverged
Optimiser = Literal["sgd", "adam"]


@dataclass(frozen=True, kw_only=True)
class TextStages(Settings):
    """Sizes of the network and of its training.

    momentum        of SGD
    scales          standard deviation of W^K, W^Q and W^V at the start
    longer          steps of further runs with SGD, at `longer_rates`; 0 for none
    """

    seeds: int = 3
    corpus: str = "docstrings"
    vocabulary: int = 1000
    length: int = 32
    width: int = 64
    layers: int = 4
    heads: int = 4
    steps: int = 400
    batch: int = 8
    momentum: float = 0.9
    sgd_rates: tuple[float, ...] = (0.3,)
    adam_rates: tuple[float, ...] = (0.0003, 0.001)
    scales: tuple[float, ...] = (0.000001, 0.001)
    longer: int = 0
    longer_rates: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrainOnText(Unit):
    """One network."""

    corpus: str
    vocabulary: int
    length: int
    width: int
    layers: int
    heads: int
    steps: int
    batch: int
    momentum: float
    optimiser: Optimiser
    learning_rate: float
    init_scale: float


def units(settings: TextStages) -> Sequence[TrainOnText]:
    """One per optimiser, rate, scale and seed; then the longer ones."""
    plans: tuple[tuple[Optimiser, tuple[float, ...], int], ...] = (
        ("sgd", settings.sgd_rates, settings.steps),
        ("adam", settings.adam_rates, settings.steps),
        ("sgd", settings.longer_rates if settings.longer else (), settings.longer),
    )
    return [
        TrainOnText.of(
            settings,
            optimiser=optimiser,
            learning_rate=rate,
            init_scale=scale,
            momentum=settings.momentum if optimiser == "sgd" else 0.0,
            steps=steps,
            seed=seed,
        )
        for optimiser, rates, steps in plans
        for rate in rates
        for scale in settings.scales
        for seed in range(1, settings.seeds + 1)
    ]


class Layer(NamedTuple):
    """The three matrices of a layer, as they are now."""

    key: Tensor
    query: Tensor
    value: Tensor


def layers_of(net: Transformer) -> list[Layer]:
    """W^K, W^Q and W^V of every layer, all heads together."""
    found = []
    for block in net.blocks:
        assert isinstance(block, Block)
        of = block.attention
        found.append(Layer(of.key.weight, of.query.weight, of.value.weight))
    return found


def rotation(now: Tensor, before: Tensor) -> float:
    """(1 - cos) / 2, from 0 to 1. Worked value: 0 for the same matrix, 1 for its negative."""
    cosine = torch.nn.functional.cosine_similarity(now.flatten(), before.flatten(), dim=0, eps=0.0)
    return float((1 - cosine.clamp(-1, 1)) / 2)


def network(unit: TrainOnText, words: int, device: str = "cpu") -> Transformer:
    """As usual, but for W^K, W^Q and W^V near zero."""
    shape = Shape(
        vocab_size=words + 1,  # the mask
        length=unit.length,
        width=unit.width,
        layers=unit.layers,
        heads=unit.heads,
        causal=False,
        norm="post",  # as in BERT
    )
    net = Transformer(shape, seed=unit.seed, init_scale=DEFAULT, device=device)
    with torch.no_grad():
        for layer in layers_of(net):
            for matrix in layer:
                matrix.mul_(unit.init_scale / DEFAULT)
    return net


def run(unit: TrainOnText, bench: Bench) -> Iterable[Row]:
    """Train, and keep norms and turns."""
    words, chunks = words_and_chunks(unit.corpus, unit.vocabulary, unit.length)
    net = network(unit, len(words.names), bench.device)
    norms = [[[float(m.detach().norm())] for m in layer] for layer in layers_of(net)]
    turns: list[list[float]] = [[] for _ in norms]
    before = [layer.value.detach().clone() for layer in layers_of(net)]
    steps = [0.0]

    def watch(step: int, loss: float, gap: Gap | None) -> None:
        if step % EVERY:
            return
        steps.append(float(step))
        for i, layer in enumerate(layers_of(net)):
            for kept, matrix in zip(norms[i], layer, strict=True):
                kept.append(float(matrix.detach().norm()))
            turns[i].append(rotation(layer.value.detach(), before[i]))
            before[i] = layer.value.detach().clone()

    recipe = Recipe(
        unit.steps,
        batch=unit.batch,
        optimiser=unit.optimiser,
        learning_rate=unit.learning_rate,
        momentum=unit.momentum,
        clip=1.0,
    )
    same = {
        "seed": unit.seed,
        "corpus": unit.corpus,
        "optimiser": unit.optimiser,
        "learning_rate": unit.learning_rate,
        "init_scale": unit.init_scale,
    }
    objective = masked(words=len(words.names), p_m=0.15, p_c=0.1, p_r=0.1)
    try:
        history = fit(
            MaskedLM(net),
            Corpus(chunks.to(bench.device)).sample,
            objective,
            recipe,
            bench.rng("training"),
            report=watch,
        )
    except FloatingPointError:
        yield Diverged(**same)
        return
    some = max(1, min(20, unit.steps // 2))
    yield LayerCurves(
        **same,
        first_loss=sum(history.losses[:some]) / some,
        last_loss=sum(history.losses[-some:]) / some,
        step=tuple(steps),
        key=tuple(tuple(kept[0]) for kept in norms),
        query=tuple(tuple(kept[1]) for kept in norms),
        value=tuple(tuple(kept[2]) for kept in norms),
        rotation=tuple(map(tuple, turns)),
    )


STUDY = Study(
    name="two_stages_text",
    question="Do all layers of a transformer on natural text learn W^V before W^K and W^Q?",
    settings={
        Scale.SMOKE: TextStages(
            seeds=1,
            corpus="python-help",
            vocabulary=200,
            length=16,
            width=16,
            layers=2,
            heads=2,
            steps=40,
            batch=4,
            sgd_rates=(0.3,),
            adam_rates=(0.001,),
            scales=(0.001,),
        ),
        Scale.LAPTOP: TextStages(),
        Scale.PAPER: TextStages(
            seeds=5,
            corpus="wikitext2",
            vocabulary=5000,
            length=64,
            width=128,
            batch=16,
            sgd_rates=(0.1, 0.3, 1.0),
            adam_rates=(0.0001, 0.0003, 0.001),
            scales=(0.000001, 0.0001, 0.01),
            longer=2000,
            longer_rates=(0.1, 0.2, 0.3, 0.5),
        ),
    },
    units=units,
    run=run,
    rows=(LayerCurves, Diverged),
    claims=[Claim("li.fig-2.9", judge.judge, judge.REFUTED, held_by=judge.HELD)],
    figures=[figures.settings_figure, figures.norms_figure, figures.turns_figure],
)

"""Networks that copy their input: which attention looks meaningful, and whether it is needed
[li, 2.2.4.1, Figures 2.19-2.21].

Four layers start as in the rest of the chapter. One layer starts with larger queries and keys, as
PyTorch would make them, so that its attention is not uniform from the first. Eighty networks of
each kind are enough to tell "one in twenty" from "none".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import torch

from triptych.core.estimates import proportion
from triptych.core.randomness import TorchRng
from triptych.models.layers import Block
from triptych.models.transformer import Shape, Transformer
from triptych.studies.api.decide import Verdict, above, at_least, decide, shown
from triptych.studies.api.study import Bench, Claim, Rows, Scale, Settings, Study, Unit
from triptych.studies.brackets.shared.copying import (
    ENOUGH,
    FOUR,
    HELD,
    LENGTH,
    LOOKS,
    MAX_DEPTH,
    REFUTED,
    ROW,
    SOMETIMES,
    TYPES,
    UNCHANGED,
    Copier,
    Copying,
    TrainCopying,
    copying,
    copying_figure,
    good,
    judge_four_layers,
    judge_misleading,
    looks_meaningful,
    many,
    measured,
)
from triptych.studies.brackets.shared.networks import DATA_SEED, Language
from triptych.studies.brackets.shared.pictures import WORD
from triptych.training.corpus import Corpus
from triptych.training.ensembles import fit_ensemble
from triptych.training.objectives import RowByRow
from triptych.training.step import Recipe

GPT_START = 0.02  # standard deviation of the weights of a Transformer before training


@dataclass(frozen=True)
class CopyingPatterns(Settings):
    """Sizes.

    start    standard deviation of queries and keys before training, with one layer: that of
             PyTorch's linear layers, 1 / √(3 · width)
    """

    seeds: int = 12
    first_seed: int = 300
    start: float = 0.0816
    steps: int = 150
    batch: int = 16
    width: int = 50
    learning_rate: float = 3e-3
    strings: int = 3572
    tested: int = 100


@dataclass(frozen=True)
class TrainStarted(Unit):
    """Networks with seeds seed, seed + 1, …, trained at once; else as in `TrainCopying`."""

    layers: int
    start: float
    steps: int
    batch: int
    width: int
    learning_rate: float
    strings: int
    members: int
    tested: int


@dataclass(frozen=True)
class Started(Copying):
    """A network, and the standard deviation of its queries and keys before training."""

    start: float = GPT_START


def units(settings: CopyingPatterns) -> Sequence[TrainStarted]:
    """Four layers, then one."""
    return [
        TrainStarted.of(
            replace(settings, start=start),
            layers=layers,
            members=settings.seeds,
            seed=settings.first_seed,
        )
        for layers, start in ((4, GPT_START), (1, settings.start))
    ]


def run(unit: TrainStarted, bench: Bench) -> Iterable[Started]:
    """Train, and replace patterns."""
    law = Language(TYPES, MAX_DEPTH, "prefixes").law(LENGTH)
    corpus = Corpus.draw(law, unit.strings, TorchRng(DATA_SEED), chunk=LENGTH, device=bench.device)
    shape = Shape(
        2 * TYPES,
        LENGTH,
        width=unit.width,
        layers=unit.layers,
        heads=1,
        feedforward=unit.width,
        positions="none",
        embedding="one_hot",
        norm="feedforward",
    )
    seeds = range(unit.seed, unit.seed + unit.members)
    models = [Copier(started(shape, seed, unit.start, bench.device)) for seed in seeds]
    recipe = Recipe(unit.steps, unit.batch, learning_rate=unit.learning_rate, decay="cosine")
    streams = [TorchRng(seed, bench.device) for seed in seeds]
    fit_ensemble(models, corpus, RowByRow(copying), recipe, streams)
    tokens = law.sample(unit.tested, TorchRng(10_000)).to(bench.device)
    word = law.tokens(WORD).to(bench.device)
    same = {field.name: getattr(unit, field.name) for field in fields(TrainCopying)}
    for seed, model in zip(seeds, models, strict=True):
        row = measured(model.net, tokens, word, seed, TrainCopying(**same))
        yield Started(**vars(row), start=unit.start)


@torch.no_grad()
def started(shape: Shape, seed: int, start: float, device: str) -> Transformer:
    """A network before training, with queries and keys of this standard deviation."""
    net = Transformer(shape, seed=seed, device=device)
    for block in net.blocks:
        assert isinstance(block, Block)
        for part in (block.attention.query, block.attention.key):
            part.weight.mul_(start / GPT_START)
    return net


# ------------------------------------------------------------------ the judges

ITSELF = 0.5  # most of the weight


def judge_one_layer(rows: Rows[Copying]) -> Verdict:
    """Figure 2.20: such networks of one layer exist."""
    return judge_misleading(rows, 1)


def judge_both_kinds(rows: Rows[Copying]) -> Verdict:
    """Figure 2.21: layers that look at closing brackets, and layers that look at themselves."""
    every = good(rows, 4)
    needs = [at_least("networks as accurate as published", len(every), ENOUGH)]
    if not every:
        return decide(needs=needs)
    closing = sum(max(row.closing) > LOOKS for row in every)
    itself = sum(max(row.itself) > ITSELF for row in every)
    needed = sum(looks_meaningful(row) and row.accuracy - row.uniform > UNCHANGED for row in every)
    return decide(
        above(
            "share of networks with a layer that looks at closing brackets, "
            f"at least {LOOKS:g} times as much as uniform attention",
            proportion(closing, len(every)),
            SOMETIMES,
        ),
        above(
            "share of networks with a layer that has most weight on the present position",
            proportion(itself, len(every)),
            SOMETIMES,
        ),
        shown(
            "share of networks whose attention looks meaningful and is needed",
            proportion(needed, len(every)),
        ),
        needs=needs,
    )


_BOTH = replace(FOUR, itself=(0.1, 0.1, 0.1, 0.9))
BOTH_HELD = many(_BOTH)
BOTH_REFUTED = [many(replace(_BOTH, closing=(1.0,) * 4)), many(FOUR)]
ONE_HELD = many(ROW)
ONE_REFUTED = [many(ROW, uniform=0.5), many(ROW, closing=(1.0,), one_kind=(1.0,))]


STUDY = Study(
    name="copying_patterns",
    question="Which patterns of copying networks look meaningful, and are they needed?",
    settings={
        Scale.SMOKE: CopyingPatterns(seeds=2, steps=2, batch=4, width=8, strings=20, tested=4),
        Scale.LAPTOP: CopyingPatterns(),
        Scale.PAPER: CopyingPatterns(seeds=80, steps=1440, batch=100, tested=1000),
    },
    units=units,
    run=run,
    rows=(Started,),
    claims=[
        Claim("li.fig-2.19", judge_four_layers, REFUTED, HELD),
        Claim("li.fig-2.20", judge_one_layer, ONE_REFUTED, ONE_HELD),
        Claim("li.fig-2.21", judge_both_kinds, BOTH_REFUTED, BOTH_HELD),
    ],
    figures=[copying_figure],
)

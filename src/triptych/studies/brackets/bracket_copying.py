"""Does attention that looks meaningful matter? Networks that copy brackets [li, 2.2.4].

The output should be the input, so that no position needs any other. The learned patterns are
replaced, in all layers or in one: by uniform attention, or by the pattern of another string. The
accuracy that is lost says whether a layer's attention matters. What its weights are on (closing
brackets, the position itself, a certain bracket) says whether it looks meaningful.

Replacing patterns treats all other layers as they are, the first of the two notions of importance
of [li, 2.2.4.2]; nothing is trained again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from triptych.core.randomness import TorchRng
from triptych.models.transformer import Shape, Transformer
from triptych.studies.api.study import Bench, Claim, Scale, Settings, Study
from triptych.studies.brackets.shared.copying import (
    HELD,
    LENGTH,
    MAX_DEPTH,
    REFUTED,
    TYPES,
    Copier,
    Copying,
    TrainCopying,
    copying,
    copying_figure,
    judge_four_layers,
    measured,
)
from triptych.studies.brackets.shared.networks import DATA_SEED, Language
from triptych.studies.brackets.shared.pictures import WORD
from triptych.training.corpus import Corpus
from triptych.training.ensembles import fit_ensemble
from triptych.training.objectives import RowByRow
from triptych.training.step import Recipe


@dataclass(frozen=True)
class BracketCopying(Settings):
    """Sizes; `seeds` networks for each number of layers."""

    seeds: int = 12
    layers: tuple[int, ...] = (1, 4)
    steps: int = 150
    batch: int = 16
    width: int = 50
    learning_rate: float = 3e-3
    strings: int = 3572
    tested: int = 100


def units(settings: BracketCopying) -> Sequence[TrainCopying]:
    """One for each number of layers."""
    return [
        TrainCopying.of(settings, layers=layers, members=settings.seeds, seed=100)
        for layers in settings.layers
    ]


def run(unit: TrainCopying, bench: Bench) -> Iterable[Copying]:
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
    models = [Copier(Transformer(shape, seed=seed, device=bench.device)) for seed in seeds]
    recipe = Recipe(unit.steps, unit.batch, learning_rate=unit.learning_rate, decay="cosine")
    streams = [TorchRng(seed, bench.device) for seed in seeds]
    fit_ensemble(models, corpus, RowByRow(copying), recipe, streams)
    tokens = law.sample(unit.tested, TorchRng(10_000)).to(bench.device)
    word = law.tokens(WORD).to(bench.device)
    for seed, model in zip(seeds, models, strict=True):
        yield measured(model.net, tokens, word, seed, unit)


STUDY = Study(
    name="bracket_copying",
    question="Is attention that looks meaningful needed, where a network copies brackets?",
    settings={
        Scale.SMOKE: BracketCopying(
            seeds=2, steps=2, batch=4, width=8, strings=20, tested=4, layers=(1, 2)
        ),
        Scale.LAPTOP: BracketCopying(),
        Scale.PAPER: BracketCopying(seeds=40, steps=1440, batch=100, tested=1000),
    },
    units=units,
    run=run,
    rows=(Copying,),
    claims=[Claim("li.fig-2.19", judge_four_layers, REFUTED, HELD)],
    figures=[copying_figure],
)

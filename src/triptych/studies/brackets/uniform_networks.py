"""Networks of brackets that can attend in no other way than uniformly [li, 2.2.2.1, footnote 11].

Queries and keys are 0 and stay 0, so that every position attends equally to itself and to all that
stand before it. All else is trained, as in `bracket_attention`. Corollary 2.2.1 writes the weights
of such a network down; here they are found by training.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from triptych.core.estimates import Estimate, mean
from triptych.core.randomness import TorchRng
from triptych.models.language_models import CausalLM
from triptych.studies.api.decide import Check, Verdict, above, at_least, decide, shown
from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Bench, Claim, Rows, Scale, Settings, Study, Unit
from triptych.studies.api.summaries import scaled
from triptych.studies.brackets.shared.measures import accuracy
from triptych.studies.brackets.shared.networks import (
    DATA_SEED,
    Architecture,
    First,
    Language,
    at_closing_brackets,
    new_network,
)
from triptych.training.corpus import Corpus
from triptych.training.ensembles import fit_ensemble
from triptych.training.step import Recipe

TYPES, MAX_DEPTH = 2, 4
FIRST_LONG, LAST_LONG = 400, 500


@dataclass(frozen=True)
class UniformNetworks(Settings):
    """Sizes; `seeds` networks of each kind."""

    seeds: int = 12
    first_seed: int = 400
    steps: int = 400
    batch: int = 16
    width: int = 50
    strings: int = 3572
    tested: int = 500
    long_tested: int = 20


@dataclass(frozen=True)
class TrainUniform(Unit):
    """Networks with seeds seed, seed + 1, …, trained at once with uniform attention.

    first    of `networks`: a minimal first layer and one layer, or two layers on one-hot tokens
    """

    first: First
    layers: int
    learning_rate: float
    steps: int
    batch: int
    width: int
    strings: int
    members: int
    tested: int
    long_tested: int


@dataclass(frozen=True)
class Uniform:
    """One network with uniform attention.

    best, sure             accuracy in distribution, by the largest probability and by the authors'
                           rule, which asks for 0.8 of the probability of all closing brackets
    long_best, long_sure   of the brackets number 400 to 500 of prefixes
    """

    seed: int
    first: First
    layers: int
    steps: int
    batch: int
    best: float
    sure: float
    long_best: float
    long_sure: float


def units(settings: UniformNetworks) -> Sequence[TrainUniform]:
    """A minimal first layer, then two layers; learning rates as in `bracket_attention`."""
    wanted: tuple[tuple[First, int, float], ...] = (("joint", 1, 1e-2), ("standard", 2, 3e-3))
    return [
        TrainUniform.of(
            settings,
            first=first,
            layers=layers,
            learning_rate=rate,
            members=settings.seeds,
            seed=settings.first_seed,
        )
        for first, layers, rate in wanted
    ]


def run(unit: TrainUniform, bench: Bench) -> Iterable[Uniform]:
    """Train with attention that stays uniform, and measure."""
    language = Language(TYPES, MAX_DEPTH, "complete")
    architecture = Architecture(unit.first, unit.layers, width=unit.width)
    law = language.law()
    corpus = Corpus.draw(
        law, unit.strings, TorchRng(DATA_SEED), chunk=law.length, device=bench.device
    )
    seeds = range(unit.seed, unit.seed + unit.members)
    models = [
        even_network(new_network(language, architecture, seed, bench.device), unit.layers)
        for seed in seeds
    ]
    recipe = Recipe(unit.steps, unit.batch, learning_rate=unit.learning_rate, decay="cosine")
    streams = [TorchRng(seed, bench.device) for seed in seeds]
    fit_ensemble(models, corpus, at_closing_brackets(TYPES), recipe, streams)
    strings = law.sample(unit.tested, TorchRng(10_000)).to(bench.device)
    long = language.long(LAST_LONG).sample(unit.long_tested, TorchRng(30_000)).to(bench.device)
    for seed, model in zip(seeds, models, strict=True):
        near = accuracy(model, strings, language)
        far = accuracy(model, long, language, first=FIRST_LONG)
        yield Uniform(
            seed=seed,
            first=unit.first,
            layers=unit.layers,
            steps=unit.steps,
            batch=unit.batch,
            best=near.best,
            sure=near.sure,
            long_best=far.best,
            long_sure=far.sure,
        )


def even_network(model: CausalLM, layers: int) -> CausalLM:
    """The network with queries and keys of 0, which training leaves as they are."""
    for layer in range(layers):
        for part in ("query", "key"):
            for kind in ("weight", "bias"):
                name = f"blocks.{layer}.attention.{part}.{kind}"
                zero = dict(model.net.named_parameters())[name].detach() * 0.0
                model.net.set_matrix(name, zero)
    return model


# ------------------------------------------------------------------ the judge

WANTED = 99.0  # per cent
ENOUGH = 10


def judge_uniform(rows: Rows[Uniform]) -> Verdict:
    """With a minimal first layer, which the footnote is about, the mean accuracy is above 99 %.

    The verdict is by the accuracy of the authors' program; that of the text is a second finding.
    """
    found = [row for row in rows.of(Uniform) if row.first == "joint"]
    others = [row for row in rows.of(Uniform) if row.first == "standard"]
    sentence = "minimal first layer: mean accuracy in distribution, %"
    checks: list[Check] = []
    printed: list[Check] = []
    if found:
        checks = [above(sentence, percent([row.sure for row in found]), WANTED)]
        printed = [above(sentence, percent([row.best for row in found]), WANTED)]
        far = percent([row.long_sure for row in found])
        checks.append(shown("minimal first layer: at brackets 400 to 500, %", far))
    if others:
        near = percent([row.sure for row in others])
        checks.append(shown("two layers on tokens: mean accuracy in distribution, %", near))
        best = percent([row.best for row in others])
        checks.append(shown("two layers on tokens: share of likeliest brackets right, %", best))
    needs = [at_least("networks with a minimal first layer", len(found), ENOUGH)]
    return decide(*checks, needs=needs, printed=printed)


def percent(shares: Sequence[float]) -> Estimate:
    return scaled(mean(shares), 100.0)


def uniform_figure(rows: Rows[Uniform]) -> Figure:
    """Accuracy in distribution, a point for a network."""
    kinds: tuple[tuple[First, str, SeriesKind], ...] = (
        ("joint", "minimal first layer", "ours"),
        ("standard", "two layers on tokens", "control"),
    )
    series = []
    for first, label, kind in kinds:
        found = [row for row in rows.of(Uniform) if row.first == first]
        numbers = [*range(1, len(found) + 1)]
        shares = [100 * row.sure for row in found]
        series.append(Series(label, kind, numbers, shares, line=False))
    return Figure(
        "uniform_networks",
        "Networks whose attention is uniform, and how well they close brackets",
        [Panel(series, "network", "accuracy in distribution, %")],
        "A position counts as right when the right closing bracket has more than 0.8 of the "
        "probability of all closing brackets. Published: more than 99 %.",
    )


_ROW = Uniform(0, "joint", 1, 400, 16, best=0.999, sure=0.998, long_best=0.9, long_sure=0.8)


def _many(**fields: float) -> list[Uniform]:
    rows = [replace(_ROW, seed=i, sure=0.998 + 0.0001 * (i % 3)) for i in range(12)]
    return [replace(row, **fields) for row in rows]


STUDY = Study(
    name="uniform_networks",
    question="Can networks learn brackets when their attention is uniform?",
    settings={
        Scale.SMOKE: UniformNetworks(
            seeds=1, steps=2, batch=4, width=18, strings=20, tested=10, long_tested=2
        ),
        Scale.LAPTOP: UniformNetworks(),
        Scale.PAPER: UniformNetworks(seeds=40, steps=1440, batch=100, tested=2000, long_tested=100),
    },
    units=units,
    run=run,
    rows=(Uniform,),
    claims=[Claim("li.cor-2.2.1-trained", judge_uniform, [_many(sure=0.97)], _many())],
    figures=[uniform_figure],
)

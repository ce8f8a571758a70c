"""Does the attention of networks that learned brackets look like a stack, and how much does it vary
from one start to another [li, 2.2.3.2, 2.2.3.4, 2.2.3.5]?

The networks of one setting are trained at once, with other weights at the start and another order
of the same training strings. The published training (100 strings a step, 40 passes over 3572
strings, 40 networks) is the largest run; laptop scale has fewer and smaller steps.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from triptych.core.randomness import TorchRng
from triptych.structures.brackets.dyck import Dyck
from triptych.studies.api.study import Bench, Scale, Settings, Study
from triptych.studies.brackets.bracket_attention.figures import FIGURES
from triptych.studies.brackets.bracket_attention.judge import CLAIMS
from triptych.studies.brackets.shared.attention_judges import WIDE_MINIMAL, WIDE_STANDARD
from triptych.studies.brackets.shared.attention_rows import (
    Duration,
    Network,
    Row,
    Sentences,
    Setting,
    TrainDuration,
    TrainNetworks,
    setting_of,
)
from triptych.studies.brackets.shared.measures import accuracy, patterns, stack_readings
from triptych.studies.brackets.shared.networks import Architecture, Data, Language, Q, trained
from triptych.studies.brackets.shared.pictures import SENTENCE, WORD
from triptych.studies.brackets.shared.spread import rounded
from triptych.theory.brackets.patterns import random_variation, stack_likeness
from triptych.training.step import Recipe

FIRST_SEED = 200  # 0 to 5 chose the steps of laptop scale; judges were tried on 100 to 115


@dataclass(frozen=True)
class BracketAttention(Settings):
    """Sizes.

    seeds           networks of each setting;  together: how many are trained at once
    steps           on whole strings, with a standard first layer;  prefix_steps: on prefixes
    minimal_steps   of networks with a minimal first layer;  table_steps: of Table 2.6
    table           k, D, layers of the rows of Table 2.6
    durations       other numbers of steps on whole strings and prefixes, without positions
    wide            whether networks of width 200 and 500 are trained, too: Figures 2.11a and 2.12a
    """

    seeds: int = 12
    together: int = 12
    steps: int = 1400
    prefix_steps: int = 1500
    minimal_steps: int = 400
    table_steps: int = 1100
    batch: int = 8
    width: int = 50
    strings: int = 3572
    tested: int = 500
    sentences: int = 40
    table: tuple[tuple[int, int, int], ...] = ((2, 4, 2), (2, 4, 3))
    wide: bool = False
    durations: tuple[int, ...] = (250,)


def settings_of(settings: BracketAttention) -> list[Setting]:
    """Those of the figures, of the variation, and of the table."""
    width = settings.width
    minimal = Setting(2, 4, "complete", "joint", 1, "none", "feedforward", 1e-2, width)
    standard = Setting(2, 4, "complete", "standard", 2, "none", "feedforward", 3e-3, width)
    found = [
        minimal,
        minimal._replace(learning_rate=3e-3),
        minimal._replace(first="separate", learning_rate=3e-3),
        minimal._replace(first="angle", learning_rate=3e-3),
        minimal._replace(data="prefixes"),
    ]
    for data in ("complete", "prefixes"):
        found += [standard._replace(data=data, positions=p) for p in ("none", "linear")]
    found += [
        standard._replace(types=k, max_depth=depth, layers=layers, norm="kept")
        for k, depth, layers in settings.table
    ]
    if settings.wide:
        found += [
            standard._replace(width=WIDE_STANDARD, learning_rate=3e-4),
            minimal._replace(width=WIDE_MINIMAL),
        ]
    return found


AnyUnit = TrainNetworks | TrainDuration


def units(settings: BracketAttention) -> Sequence[AnyUnit]:
    """One for each setting and group of networks that are trained at once."""
    return [*_of_settings(settings), *_of_durations(settings)]


def _of_durations(settings: BracketAttention) -> list[TrainDuration]:
    kinds: tuple[Data, ...] = ("complete", "prefixes")
    return [
        TrainDuration(
            data=data,
            learning_rate=3e-3,
            width=settings.width,
            steps=steps,
            batch=settings.batch,
            strings=settings.strings,
            members=settings.seeds,
            tested=settings.tested,
            seed=FIRST_SEED,
        )
        for data in kinds
        for steps in settings.durations
    ]


def _of_settings(settings: BracketAttention) -> list[TrainNetworks]:
    return [
        TrainNetworks(
            **setting._asdict(),
            steps=steps_of(setting, settings),
            batch=settings.batch,
            strings=settings.strings,
            members=min(settings.together, settings.seeds - first),
            tested=settings.tested,
            sentences=settings.sentences,
            seed=FIRST_SEED + first,
        )
        for setting in settings_of(settings)
        for first in range(0, settings.seeds, settings.together)
    ]


def steps_of(setting: Setting, settings: BracketAttention) -> int:
    if setting.first != "standard":
        return settings.minimal_steps
    if setting.norm == "kept":
        return settings.table_steps
    return settings.steps if setting.data == "complete" else settings.prefix_steps


def run(unit: AnyUnit, bench: Bench) -> Iterable[Row]:
    """Train, and look at the attention."""
    if isinstance(unit, TrainDuration):
        yield from _durations(unit, bench)
    else:
        yield from _networks(unit, bench)


def _durations(unit: TrainDuration, bench: Bench) -> Iterable[Duration]:
    language = Language(2, 4, unit.data)
    recipe = Recipe(unit.steps, unit.batch, learning_rate=unit.learning_rate, decay="cosine")
    seeds = range(unit.seed, unit.seed + unit.members)
    architecture = Architecture("standard", 2, width=unit.width)
    models = trained(
        language, architecture, recipe, seeds, strings=unit.strings, device=bench.device
    )
    strings = language.law().sample(unit.tested, TorchRng(10_000)).to(bench.device)
    word = Dyck.prefixes(2, 4, SENTENCE, q=Q).tokens(WORD)
    for seed, model in zip(seeds, models, strict=True):
        last = patterns(model, word.to(bench.device))[-1][0].double().cpu()
        yield Duration(
            seed=seed,
            data=unit.data,
            learning_rate=unit.learning_rate,
            steps=unit.steps,
            batch=unit.batch,
            best=accuracy(model, strings, language).best,
            likeness=stack_likeness(last, word[0], 2),
            sharpness=float(last.square().sum()),
            pattern=rounded(last),
        )


def _networks(unit: TrainNetworks, bench: Bench) -> Iterable[Network | Sentences]:
    language = Language(unit.types, unit.max_depth, unit.data)
    architecture = Architecture(unit.first, unit.layers, unit.positions, unit.norm, unit.width)
    recipe = Recipe(unit.steps, unit.batch, learning_rate=unit.learning_rate, decay="cosine")
    seeds = range(unit.seed, unit.seed + unit.members)
    models = trained(
        language, architecture, recipe, seeds, strings=unit.strings, device=bench.device
    )
    same = {**setting_of(unit)._asdict(), "steps": unit.steps, "batch": unit.batch}
    # The same strings for every setting of a language, whatever device computes.
    strings = language.law().sample(unit.tested, TorchRng(10_000)).to(bench.device)
    law = Dyck.prefixes(unit.types, unit.max_depth, SENTENCE, q=Q)
    sentences = law.sample(unit.sentences, TorchRng(20_000)).to(bench.device)
    word = law.tokens(WORD).to(bench.device)
    scores = [accuracy(model, strings, language) for model in models]
    on_sentences = [patterns(model, sentences) for model in models]
    for seed, model, score, layers in zip(seeds, models, scores, on_sentences, strict=True):
        last = patterns(model, word)[-1][0].double().cpu()
        reading = stack_readings(layers[-1], sentences, unit.types)
        yield Network(
            seed=seed,
            **same,
            best=score.best,
            sure=score.sure,
            likeness=stack_likeness(last, word[0].cpu(), unit.types),
            sampled=reading.weight,
            top=reading.top,
            sharpness=float(last.square().sum()),
            pattern=rounded(last),
        )
    for layer in range(unit.layers):
        stacked = torch.stack([found[layer] for found in on_sentences]).double()
        apart = (stacked[:, None] - stacked[None]).square().sum((-1, -2)).cpu()
        pairs = unit.members * (unit.members - 1)
        yield Sentences(
            seed=unit.seed,
            **same,
            layer=layer + 1,
            apart=rounded(apart.mean(-1)),
            by_sentence=tuple((apart.sum((0, 1)) / max(1, pairs)).tolist()),
            random=random_variation(SENTENCE + 1),
            least=min(score.best for score in scores),
        )


STUDY = Study(
    name="bracket_attention",
    question="Does trained attention on brackets look like a stack, and how much does it vary?",
    settings={
        Scale.SMOKE: BracketAttention(
            seeds=1,
            steps=2,
            prefix_steps=2,
            minimal_steps=2,
            table_steps=2,
            batch=4,
            width=18,
            strings=20,
            tested=10,
            sentences=3,
            table=((2, 4, 2), (3, 4, 3)),
            durations=(1,),
        ),
        Scale.LAPTOP: BracketAttention(),
        Scale.PAPER: BracketAttention(
            seeds=40,
            together=40,
            steps=1440,
            prefix_steps=1440,
            minimal_steps=1440,
            table_steps=1440,
            batch=100,
            tested=2000,
            table=tuple((k, d, layers) for k in (2, 3) for d in (4, 8) for layers in (2, 3)),
            wide=True,
            durations=(90, 180, 360, 720, 2880),
        ),
    },
    units=units,
    run=run,
    rows=(Network, Sentences, Duration),
    claims=CLAIMS,
    figures=FIGURES,
)

"""How long networks of brackets train, and how far their attention is apart then [li, 2.2.3.2,
2.2.3.4, 2.2.3.5].

The settings of the published variation are trained for several lengths, each from its start to a
learning rate of 0; the rows of Table 2.6 are trained four times as long as the 40 passes of the
authors' settings. Of all layers it is measured how far they are from uniform attention (Figure
2.18). The seeds are not those of `bracket_attention`, whose judges decide here, too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from triptych.core.estimates import mean
from triptych.core.randomness import TorchRng
from triptych.structures.brackets.dyck import Dyck
from triptych.studies.api.decide import Check, Verdict, above, at_least, below, decide, shown
from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Bench, Claim, Rows, Scale, Settings, Study
from triptych.studies.brackets.shared.attention_judges import (
    GOOD,
    NAMES,
    OF_LENGTHS,
    ON_PREFIXES,
    PUBLISHED,
    RANDOM_SENTENCE,
    TABLE_HELD,
    by_length,
    variation,
)
from triptych.studies.brackets.shared.attention_rows import (
    Network,
    Sentences,
    Setting,
    TrainNetworks,
    setting_of,
)
from triptych.studies.brackets.shared.measures import accuracy, patterns, stack_readings
from triptych.studies.brackets.shared.networks import Architecture, Language, Q, trained
from triptych.studies.brackets.shared.pictures import SENTENCE, WORD
from triptych.studies.brackets.shared.spread import rounded, variation_over_networks
from triptych.theory.brackets.patterns import random_variation, stack_likeness
from triptych.training.step import Recipe

FIRST_SEED = 3000  # no network with these seeds was looked at before the judges were written


@dataclass(frozen=True)
class BracketTraining(Settings):
    """Sizes.

    seeds          networks of each setting and length, trained at once
    lengths        numbers of steps for the settings of the published variation
    table          types, depth and layers of the rows of Table 2.6
    table_steps    of their training
    """

    seeds: int = 10
    first_seed: int = FIRST_SEED
    lengths: tuple[int, ...] = (60, 120, 240, 480)
    table: tuple[tuple[int, int, int], ...] = ()
    table_steps: int = 1440
    batch: int = 16
    width: int = 50
    strings: int = 3572
    tested: int = 500
    sentences: int = 40


@dataclass(frozen=True)
class FromUniform:
    """How far one layer of the networks of a setting is from uniform attention.

    distances    for every network, the mean of ‖A - U‖² over sampled sentences; U is uniform on all
                 positions up to the present one
    random       of a pattern that is uniform on simplices
    least        accuracy of the worst network
    """

    seed: int
    types: int
    max_depth: int
    layers: int
    norm: str
    data: str
    steps: int
    layer: int
    distances: tuple[float, ...]
    random: float
    least: float


Row = Network | Sentences | FromUniform


def units(settings: BracketTraining) -> Sequence[TrainNetworks]:
    """The settings of the variation at every length, then the rows of the table."""
    wanted: list[tuple[Setting, int]] = []
    for data, first, positions in PUBLISHED:
        standard = first == "standard"
        rate, layers = (3e-3, 2) if standard else (1e-2, 1)
        setting = Setting(2, 4, data, first, layers, positions, "feedforward", rate, settings.width)
        wanted += [(setting, steps) for steps in settings.lengths]
    for types, depth, layers in settings.table:
        setting = Setting(
            types, depth, "complete", "standard", layers, "none", "kept", 3e-3, settings.width
        )
        wanted.append((setting, settings.table_steps))
    return [
        TrainNetworks.of(
            settings,
            **setting._asdict(),
            steps=steps,
            members=settings.seeds,
            seed=settings.first_seed,
        )
        for setting, steps in wanted
    ]


def run(unit: TrainNetworks, bench: Bench) -> Iterable[Row]:
    """Train, and look at the attention on the word and on sampled sentences."""
    language = Language(unit.types, unit.max_depth, unit.data)
    seeds = range(unit.seed, unit.seed + unit.members)
    models = trained(
        language,
        Architecture(unit.first, unit.layers, unit.positions, unit.norm, unit.width),
        Recipe(unit.steps, unit.batch, learning_rate=unit.learning_rate, decay="cosine"),
        seeds,
        strings=unit.strings,
        device=bench.device,
    )
    same = {**setting_of(unit)._asdict(), "steps": unit.steps, "batch": unit.batch}
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
    least = min(score.best for score in scores)
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
            least=least,
        )
        yield FromUniform(
            seed=unit.seed,
            types=unit.types,
            max_depth=unit.max_depth,
            layers=unit.layers,
            norm=unit.norm,
            data=unit.data,
            steps=unit.steps,
            layer=layer + 1,
            distances=from_uniform(stacked),
            random=random_variation(SENTENCE + 1) / 2,
            least=least,
        )


def from_uniform(stacked: torch.Tensor) -> tuple[float, ...]:
    """The mean of ‖A - U‖² over sentences, for every network of [networks, sentences, n, n].

    Worked value: two positions. U has rows (1, 0), (½, ½); rows (1, 0), (0, 1) are ½ away. A row of
    n weights that is uniform on the simplex is (n - 1)/(n (n + 1)) away on average: 1/6 in all.
    """
    n = stacked.shape[-1]
    allowed = torch.ones(n, n, dtype=torch.float64, device=stacked.device).tril()
    even = allowed / allowed.sum(-1, keepdim=True)
    return tuple((stacked - even).square().sum((-1, -2)).mean(-1).tolist())


# ------------------------------------------------------------------ Figure 2.18

NEAR = 0.25  # of the distance of random patterns: "close to uniform"
THREE_LAYER_ROWS = 4  # of Table 2.6


def judge_third_layer(rows: Rows[Row]) -> Verdict:
    """First layers are close to uniform; third layers of one setting are far apart."""
    near: list[Check] = []
    far: list[Check] = []
    cells = set()
    for row in rows.of(FromUniform):
        if row.norm == "kept" and row.layers == 3 and row.least >= GOOD and len(row.distances) > 1:
            label = f"{row.types} types, depth {row.max_depth}"
            share = mean([distance / row.random for distance in row.distances])
            sentence = (
                f"{label}: distance of layer {row.layer} from uniform attention, random "
                "patterns = 1"
            )
            if row.layer == 1:
                near.append(below(sentence, share, NEAR))
                cells.add((row.types, row.max_depth))
            else:
                near.append(shown(sentence, share))
    for row in rows.of(Sentences):
        if row.norm == "kept" and row.layers == row.layer == 3 and row.least >= GOOD:
            label = f"{row.types} types, depth {row.max_depth}"
            found = variation_over_networks(torch.tensor(row.apart).double().numpy())
            far.append(
                above(
                    f"{label}: variation of two third layers (random patterns: "
                    f"{RANDOM_SENTENCE:.2f})",
                    found,
                    RANDOM_SENTENCE,
                )
            )
    return decide(
        *near,
        *far,
        needs=[at_least("rows of three layers, all at 97 % or more", len(cells), THREE_LAYER_ROWS)],
    )


def length_figure(rows: Rows[Any]) -> Figure:
    """The variation of each published setting against the steps of training."""
    kinds: tuple[SeriesKind, ...] = ("ours", "control", "truth", "ours", "control", "truth")
    panels = []
    for data, title in (("complete", "whole strings"), ("prefixes", "prefixes")):
        series = []
        for kind, (setting, (name, published)) in zip(kinds, PUBLISHED.items(), strict=True):
            if setting[0] != data:
                continue
            found = {n: some for n, some in by_length(rows, *setting).items() if len(some) > 2}
            values = [variation(some) for some in found.values()]
            if values:
                steps = [*found]
                label = NAMES[name].split(", ")[1]
                low, high = [max(0.0, e.low) for e in values], [e.high for e in values]
                series.append(Series(label, kind, steps, [e.value for e in values], low, high))
                wanted = [published] * len(steps)
                series.append(Series(f"published, {label}", "published", steps, wanted))
        y = "mean ‖A − A′‖² over pairs of networks"
        panels.append(Panel(series, "steps of training", y, title, True, True))
    return Figure(
        "bracket_training",
        "How far the attention of networks is apart, by the length of training",
        panels,
        f"On {WORD}. Every number of steps is a run of its own; all networks count, accurate or "
        "not. The source does not say how long its networks were trained.",
    )


# ------------------------------------------------------------------ rows that hold, and refute


def _third(types: int, depth: int, share: float) -> list[Row]:
    row = FromUniform(0, types, depth, 3, "kept", "complete", 5760, 1, (), 1.7, 0.99)
    distances = tuple(1.7 * share * (1 + 0.01 * i) for i in range(12))
    return [replace(row, distances=distances)]


CELLS = ((2, 4), (2, 8), (3, 4), (3, 8))


def _threes(near: tuple[int, int] = (0, 0), far: tuple[int, int] = (0, 0)) -> list[Row]:
    """First layers near uniform and third ones far apart, but for the cell named."""
    found: list[Row] = []
    for cell in CELLS:
        found += _third(*cell, 0.9 if cell == near else 0.02)
        found += [
            replace(row, apart=tuple(tuple(x / 100 for x in each) for each in row.apart))
            if cell == far
            else row
            for row in TABLE_HELD
            if isinstance(row, Sentences) and (row.types, row.max_depth, row.layers) == (*cell, 3)
        ]
    return found


THIRD_HELD = _threes()
THIRD_REFUTED = [_threes(near=cell) for cell in CELLS] + [_threes(far=cell) for cell in CELLS]

SHARED: list[Claim[Any]] = [*OF_LENGTHS, *ON_PREFIXES]  # judged in `bracket_attention`, too

STUDY = Study(
    name="bracket_training",
    question="How far is trained attention on brackets apart, after how much training?",
    settings={
        Scale.SMOKE: BracketTraining(
            seeds=1,
            lengths=(2,),
            table=((2, 4, 3),),
            table_steps=2,
            batch=4,
            width=18,
            strings=20,
            tested=10,
            sentences=3,
        ),
        Scale.LAPTOP: BracketTraining(),
        Scale.PAPER: BracketTraining(
            seeds=40,
            lengths=(90, 180, 360, 720, 1440),
            table=tuple((k, d, layers) for k in (3, 2) for d in (8, 4) for layers in (2, 3)),
            table_steps=5760,
            batch=100,
            tested=2000,
        ),
    },
    units=units,
    run=run,
    rows=(Network, Sentences, FromUniform),
    claims=[
        *SHARED,
        Claim("li.fig-2.18", judge_third_layer, THIRD_REFUTED, THIRD_HELD),
    ],
    figures=[length_figure],
)

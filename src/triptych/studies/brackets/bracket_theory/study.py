"""Which attention can write brackets, and what a pattern or one matrix tells [li, 2.2.2, 2.2.5].

Weights are written down by proofs, and their predictions, limits and constants are compared with
the truth. Only the constant of Theorem 2.2.2 is also measured on small networks that are trained.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never, get_args

import torch

from triptych.studies.api.study import Bench, Scale, Settings, Study
from triptych.studies.brackets.bracket_theory import (
    near_balance,
    predictions,
    prunings,
    trained_constants,
)
from triptych.studies.brackets.bracket_theory.figures import FIGURES
from triptych.studies.brackets.bracket_theory.judge import CLAIMS
from triptych.studies.brackets.bracket_theory.rows import (
    Approximate,
    Approximated,
    Baseline,
    ComparePatterns,
    Decay,
    Decayed,
    DrawBaseline,
    Encode,
    Encoded,
    Near,
    Patterns,
    Predict,
    Predicted,
    Prune,
    Pruned,
    Pumped,
    PumpPairs,
    Row,
    Scores,
    Share,
    Shared,
    Silenced,
    SilenceHead,
    TrainConstants,
    TrainedConstant,
    Weights,
)

Sizes = tuple[tuple[int, int], ...]
NEAR: tuple[tuple[Near, float], ...] = (
    ("balanced", 0.0),
    ("leak", 0.1),
    ("leak", 1.0),
    ("noise", 1e-4),
    ("noise", 1e-2),
)


@dataclass(frozen=True)
class BracketTheory(Settings):
    """Sizes.

    seeds           of prunings and of pumped models
    random          k, D of constructions with random balanced scores;  uniform, both: with uniform
                    attention in one layer and in both
    enumerated      tokens of prefixes that are all tried;  long: tokens of a sampled one
    models          whose patterns are compared
    pumped          k, D of pumped models;  pairs: how many are inserted
    lengths         N of the constants, for k = D = 2
    decays          λ of weight decay;  steps: of descent
    widths          m of targets;  blocks: random units for one input
    large           m, L, block of single prunings
    trained_lengths     N of the networks that are trained;  trained_decays: their λ
    networks        of each N and λ;  network_steps: of their training
    """

    seeds: int = 3
    random: Sizes = tuple((k, d) for k in (2, 3, 4) for d in range(2, 9))
    uniform: Sizes = ((2, 2), (3, 4), (4, 8))
    both: Sizes = ((2, 2), (2, 8), (3, 4), (4, 3))
    enumerated: int = 5
    long: int = 10_000
    models: int = 40
    repeats: int = 100
    pumped: Sizes = ((2, 2), (2, 3), (3, 3), (1, 3))
    pairs: tuple[int, ...] = (1, 10, 100, 1000, 10_000, 100_000, 1_000_000)
    lengths: tuple[int, ...] = (17, 33, 65, 129)
    decays: tuple[float, ...] = (1e-4, 1e-6, 1e-8)
    steps: int = 10
    widths: tuple[int, ...] = (2,)
    blocks: tuple[int, ...] = (8, 16, 24, 32, 48)
    large: tuple[tuple[int, int, int], ...] = ((3, 1, 48), (4, 1, 48), (2, 2, 48))
    shared: tuple[int, ...] = (0, 1, 2, 3)
    trained_lengths: tuple[int, ...] = (17, 33, 65)
    trained_decays: tuple[float, ...] = (0.0, 1e-4, 1e-3)
    networks: int = 12
    network_steps: int = 300


AnyUnit = (
    Predict
    | ComparePatterns
    | DrawBaseline
    | Encode
    | PumpPairs
    | Approximate
    | Decay
    | TrainConstants
    | Prune
    | Share
    | SilenceHead
)


def units(settings: BracketTheory) -> Sequence[AnyUnit]:
    """One for each model and size."""
    planned: list[AnyUnit] = []
    chosen: list[tuple[Scores, Sizes]] = [
        ("random", settings.random),
        ("uniform", settings.uniform),
        ("uniform in both layers", settings.both),
    ]
    for scores, sizes in chosen:
        planned += [
            Predict(k, d, scores, settings.enumerated, settings.long, seed=0) for k, d in sizes
        ]
    planned += [ComparePatterns(settings.models, scale, seed=0) for scale in (0.5, 1.5, 2.5)]
    planned += [DrawBaseline(n, settings.repeats, seed=0) for n in (16, 17, 19, 20)]
    planned += [Encode(k, d, seed=0) for k, d in ((2, 3), (2, 4), (3, 4))]
    for k, d in settings.pumped:
        for weights in get_args(Weights):
            seeds = settings.seeds if weights == "random scores" else 1
            planned += [PumpPairs(k, d, weights, settings.pairs, seed=s) for s in range(seeds)]
    for near, amount in NEAR:
        planned += [Approximate(2, 2, n, near, amount, seed=0) for n in settings.lengths]
        planned += [Approximate(3, 3, 2 * n, near, amount, seed=0) for n in settings.lengths]
    planned += [
        Decay(settings.lengths[0], rate, settings.steps, seed=0) for rate in settings.decays
    ]
    planned += [
        TrainConstants(2, 2, n, rate, settings.networks, settings.network_steps, 8, 20, seed=100)
        for n in settings.trained_lengths
        for rate in settings.trained_decays
    ]
    for m in settings.widths:
        planned += [
            Prune(m, 2 * m, 1, block, seed=seed)
            for block in settings.blocks
            for seed in range(settings.seeds)
        ]
    planned += [Prune(m, 2 * m, layers, block, seed=99) for m, layers, block in settings.large]
    planned += [Share(2, 4, settings.blocks[-1], layer, seed=0) for layer in settings.shared]
    planned += [SilenceHead(k, d, seed=0) for k, d in ((2, 3), (3, 2))]
    return planned


def run(unit: AnyUnit, bench: Bench) -> Iterable[Row]:
    """Dispatch on the kind of unit."""
    generator = torch.Generator().manual_seed(bench.rng("weights").seed)
    match unit:
        case Predict():
            yield from predictions.predictions(unit, bench.rng("strings"), generator)
        case ComparePatterns():
            yield from predictions.patterns(unit, generator)
        case DrawBaseline():
            yield from predictions.baselines(unit, generator)
        case Encode():
            yield from predictions.encodings(unit)
        case SilenceHead():
            yield from predictions.silenced(unit, generator)
        case PumpPairs():
            yield from near_balance.pumps(unit, generator)
        case Approximate():
            yield from near_balance.approximations(unit, generator)
        case Decay():
            yield from near_balance.decayed(unit)
        case TrainConstants():
            yield from trained_constants.trained_constants(unit, bench.device)
        case Prune():
            yield from prunings.prunings(unit, generator)
        case Share():
            yield from prunings.shared(unit, generator)
        case _:
            assert_never(unit)


STUDY = Study(
    name="bracket_theory",
    question="Which attention can write brackets, and what do a pattern or one matrix tell?",
    settings={
        Scale.SMOKE: BracketTheory(
            seeds=1,
            random=((2, 2), (2, 3)),
            uniform=(),
            both=((2, 2),),
            enumerated=4,
            long=300,
            models=4,
            repeats=3,
            pumped=((2, 2), (1, 3)),
            pairs=(1, 100, 1_000_000),
            lengths=(17, 33),
            decays=(1e-6,),
            steps=1,
            blocks=(8, 12, 16),
            large=(),
            shared=(1,),
            trained_lengths=(17,),
            trained_decays=(0.0, 1e-3),
            networks=2,
            network_steps=2,
        ),
        Scale.LAPTOP: BracketTheory(),
        Scale.PAPER: BracketTheory(
            seeds=10,
            both=tuple((k, d) for k in (2, 3, 4) for d in range(2, 9)),
            enumerated=7,
            widths=(2, 3, 4),
            blocks=(8, 16, 24, 32, 48, 64),
            large=((8, 1, 64), (4, 2, 64)),
            trained_lengths=(17, 33, 65, 129),
            trained_decays=(0.0, 1e-6, 1e-5, 1e-4, 1e-3),
            networks=40,
            network_steps=1440,
        ),
    },
    units=units,
    run=run,
    rows=(
        Predicted,
        Patterns,
        Baseline,
        Encoded,
        Pumped,
        Approximated,
        Decayed,
        TrainedConstant,
        Pruned,
        Shared,
        Silenced,
    ),
    claims=CLAIMS,
    figures=FIGURES,
)

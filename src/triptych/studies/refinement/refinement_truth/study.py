"""What does parallel decoding by refinement write, where the law of translations is known?

A sentence can be written in several dialects or word orders, and a dial says how often the whole
sentence agrees on one (`structures.translation`). Everything is computed exactly: the truth, the
best refiner that training can give, and the law of what it writes after T steps from a random
start. Small networks are trained on the same pairs, to see whether training finds that refiner.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.structures.translation import Translations
from triptych.studies.api.study import Bench, Scale, Settings, Study, Unit
from triptych.studies.refinement.refinement_truth.figures import FIGURES
from triptych.studies.refinement.refinement_truth.judge import CLAIMS
from triptych.studies.refinement.refinement_truth.networks import Size, trained
from triptych.studies.refinement.refinement_truth.rows import (
    PIECES,
    ROWS,
    Decoded,
    Learned,
    Row,
    Truth,
    translations,
)
from triptych.theory.masking.blocks.dynamics import BlockDynamics, poincare_constant
from triptych.theory.refinement.ideal import (
    Ideal,
    TabledRefiner,
    corruption,
    ideal_refiner,
)
from triptych.theory.refinement.output_laws import (
    Quality,
    Stutter,
    output_laws,
    product_of_marginals,
    quality,
    total_correlation,
)

RIGHT = 0.15  # of the thesis


@dataclass(frozen=True)
class RefinementTruth(Settings):
    """What is computed, and what is trained.

    agreements   values of the dial: how often the whole sentence is written in one way
    rights       shares of right tokens in training, for the ideal refiner
    steps        T
    learned      worlds for which networks are trained, at each of `learned_agreements`
    variants     networks that are trained besides the base
    """

    seeds: int = 3
    worlds: tuple[str, ...] = ("dialects", "orders", "split words")
    agreements: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
    rights: tuple[float, ...] = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85)
    steps: tuple[int, ...] = (1, 2, 3, 4, 6, 10)
    learned: tuple[str, ...] = ("orders", "split words")
    learned_agreements: tuple[float, ...] = (0.9,)
    variants: tuple[str, ...] = ("base", "one stage", "half right", "distilled")
    train_steps: int = 300
    batch: int = 128
    width: int = 32
    layers: int = 1
    learning_rate: float = 1e-2


@dataclass(frozen=True)
class Compute(Unit):
    """One law, and all that the ideal refiner writes for it."""

    world: str
    agreement: float
    data: str
    rights: tuple[float, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Train(Unit):
    """One trained network."""

    world: str
    agreement: float
    variant: str
    steps: tuple[int, ...]
    train_steps: int
    batch: int
    width: int
    layers: int
    learning_rate: float


def units(settings: RefinementTruth) -> Sequence[Compute | Train]:
    """The exact laws first, then the networks."""
    found: list[Compute | Train] = [
        Compute.of(settings, world=world, agreement=agreement, data=data, seed=0)
        for world in settings.worlds
        for agreement in settings.agreements
        for data in ("truth", "distilled")
    ]
    found += [
        Train.of(settings, world=world, agreement=agreement, variant=variant, seed=seed)
        for world in settings.learned
        for agreement in settings.learned_agreements
        for variant in settings.variants
        for seed in range(settings.seeds)
    ]
    return found


def run(unit: Compute | Train, bench: Bench) -> Iterable[Row]:
    yield from computed(unit) if isinstance(unit, Compute) else learned(unit, bench)


# ------------------------------------------------------------------ exactly


def computed(unit: Compute) -> Iterable[Row]:
    """The truth, and what the ideal refiner writes: by T, decoding, remasking, ratio and stages."""
    law = translations(unit.world, unit.agreement)
    if unit.data == "distilled":
        law = law.distilled()
    world = World(law, PIECES[unit.world])
    yield truth_row(unit, world)
    base = ideal_refiner(world.table, right=RIGHT)
    cases: list[tuple[Ideal, float, int, str, Stutter]] = [
        (base, RIGHT, 1, "sample", "previous"),
        (base, RIGHT, 1, "argmax", "random"),
        (base, RIGHT, 1, "argmax", "keep"),
    ]
    for right in unit.rights:
        for stages in (1, 2):
            ideal = ideal_refiner(world.table, right=right, stages=stages)
            cases.append((ideal, right, stages, "argmax", "previous"))
    for ideal, right, stages, decoding, remask in cases:
        laws = output_laws(
            ideal.refiner, steps=max(unit.steps), sample=decoding == "sample", stutter=remask
        )
        for steps in unit.steps:
            found = world.quality(laws[steps - 1])
            yield Decoded(
                unit.world,
                unit.agreement,
                unit.data,
                right=right,
                stages=stages,
                settled=ideal.settled,
                decoding=decoding,
                remask=remask,
                steps=steps,
                tv=found.tv,
                kl=found.kl if math.isfinite(found.kl) else None,
                mixed=found.mixed,
                stutter=found.stutter,
                word_stutter=found.word_stutter,
            )


class World:
    """A law of translations with its table."""

    def __init__(self, law: Translations, pieces: int) -> None:
        self.law, self.pieces = law, pieces
        self.table = Table.of(law)
        self.one_way = law.is_one_way(self.table.sequences)

    def quality(self, law: torch.Tensor) -> Quality:
        return quality(law, self.table, self.one_way, pieces=self.pieces)


def truth_row(unit: Compute, world: World) -> Truth:
    """The truth itself, the identity of one step, and the constants of samplers by blocks."""
    nothing = ideal_refiner(world.table, right=0.0).refiner
    one_step = output_laws(nothing, steps=1, sample=True)[0]
    itself = world.quality(world.table.log_probs.exp())
    return Truth(
        unit.world,
        unit.agreement,
        unit.data,
        length=world.law.length,
        total_correlation=total_correlation(world.table),
        one_step_kl=world.quality(one_step).kl,
        product_tv=world.quality(product_of_marginals(world.table).log_probs.exp()).tv,
        mixed=itself.mixed,
        stutter=itself.stutter,
        word_stutter=itself.word_stutter,
        poincare=poincare_constants(world.law),
    )


def poincare_constants(law: Translations) -> tuple[float | None, ...]:
    """For blocks of 1, 2, ... positions that are redrawn jointly; None where it is infinite.

    Tokens are numbered again at every position: no constant changes, and the table stays small.
    """
    numbered = torch.stack([column.unique(return_inverse=True)[1] for column in law.sentences.T], 1)
    small = Translations(numbered, law.weights, law.agreement, max(2, int(numbered.max()) + 1))
    table = Table.of(small)
    found = []
    for k in range(1, law.length + 1):
        if len(law.sentences) == 1:
            found.append(1.0)  # one sentence: nothing to move between
            continue
        constant = poincare_constant(BlockDynamics(table, MaskLaw.of_size(law.length, k)))
        found.append(constant if math.isfinite(constant) else None)
    return tuple(found)


# ------------------------------------------------------------------ trained


def learned(unit: Train, bench: Bench) -> Iterable[Learned]:
    """Train a network of one variant, and compute the law of what it writes."""
    truth = translations(unit.world, unit.agreement)
    data = truth.distilled() if unit.variant == "distilled" else truth
    right = 0.5 if unit.variant == "half right" else RIGHT
    stages = 1 if unit.variant == "one stage" else 2
    size = Size(unit.train_steps, unit.batch, unit.width, unit.layers, unit.learning_rate)
    refiner = trained(data, right=right, stages=stages, size=size, seed=unit.seed, bench=bench)
    ideal = ideal_refiner(Table.of(data), right=right, stages=stages).refiner
    world = World(truth, PIECES[unit.world])
    apart = distance_from_ideal(refiner, Table.of(data), right)
    own = output_laws(refiner, steps=max(unit.steps))
    best = output_laws(ideal, steps=max(unit.steps))
    for steps in unit.steps:
        found, wanted = world.quality(own[steps - 1]), world.quality(best[steps - 1])
        yield Learned(
            unit.world,
            unit.agreement,
            unit.variant,
            unit.seed,
            kl_from_ideal=apart,
            steps=steps,
            mixed=found.mixed,
            stutter=found.stutter,
            word_stutter=found.word_stutter,
            ideal_mixed=wanted.mixed,
            ideal_word_stutter=wanted.word_stutter,
        )


def distance_from_ideal(refiner: TabledRefiner, table: Table, right: float) -> float:
    """E KL(ideal ‖ refiner), summed over positions, over the hypotheses of one-stage training."""
    ideal = ideal_refiner(table, right=right).refiner
    targets = table.support
    seen = table.log_prob(targets).exp() @ corruption(targets, table.vocab_size, right)
    p = ideal.log_laws.exp()
    gap = torch.where(p > 0, ideal.log_laws, 0.0) - torch.where(p > 0, refiner.log_laws, 0.0)
    return float((seen * (p * gap).sum((1, 2))).sum())


STUDY = Study(
    name="refinement_truth",
    question="What does parallel decoding write, where the law of translations is known?",
    settings={
        Scale.SMOKE: RefinementTruth(
            seeds=1,
            worlds=("orders",),
            agreements=(0.5, 1.0),
            rights=(0.15, 0.5),
            steps=(1, 4),
            learned=("orders",),
            train_steps=4,
            batch=8,
            width=8,
            layers=1,
        ),
        Scale.LAPTOP: RefinementTruth(),
        Scale.PAPER: RefinementTruth(
            seeds=10,
            learned=("dialects", "orders", "split words"),
            learned_agreements=(0.5, 0.9, 1.0),
            train_steps=5000,
            batch=512,
            width=64,
            layers=2,
            learning_rate=3e-3,
        ),
    },
    units=units,
    run=run,
    rows=ROWS,
    claims=CLAIMS,
    figures=FIGURES,
)

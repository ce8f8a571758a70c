"""Masked training on enumerable models, exactly: information, order, bounds [li, 4.1].

Lemma 4.1.2 and Theorems 4.1.1 to 4.1.3: the matrices of masked estimators, under many mask laws.
Lemma 4.1.1: the law of the estimate against its normal limit. Proposition 4.1.1: the Dirichlet
form, on sequences and on pairs with their block. Lemma 4.3.1: what conditioning on the block is
for. Proposition 4.3.6: convexity. Theorem 4.1.4 and Proposition 4.3.1: both sides of the bound on
the joint law.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from triptych.core.validation import UserError
from triptych.studies.api.study import Bench, Scale, Settings, Study, Unit
from triptych.studies.masking.exact_masking.figures import FIGURES
from triptych.studies.masking.exact_masking.judge import CLAIMS
from triptych.studies.masking.exact_masking.matrices import (
    conditioning,
    curvatures,
    trained_under_masks,
)
from triptych.studies.masking.exact_masking.rows import ROWS, Row
from triptych.studies.masking.exact_masking.samples import (
    NARROW,
    WIDE,
    Box,
    bounded_samples,
    entropy_rates,
    estimates,
    one_parameter,
    tensorised_losses,
)
from triptych.studies.masking.shared.models import DRAWN

LIMITS = (100, 10**4, 10**8, 10**12)  # n of the laws that are bounded and not drawn
LAWS = ("size 1", "size 2", "independent 0.3")  # of the normal limit, before those that look at x


@dataclass(frozen=True)
class ExactMasking(Settings):
    """Sizes.

    models          "chain 4 0.3": spins and coupling; "grid 2 3 0.4"; "clique 4 0.3";
                    "random 4 0.8"; "hmm 3": two states, three letters, length 3; "table 2 3": a law
                    on 2^3 strings
    adaptive        mask laws that look at x: "ones 1.5" prefers blocks with ones, "changes 1.5"
                    pairs of unlike neighbours; the number is how strongly
    strengths       of "ones" on which forgetting the block is measured
    points          parameters at which convexity is measured
    samples         models of the finite-sample bound, with `sizes` as n
    narrow          the same in a narrow box of parameters, with `narrow_sizes` as n
    repeats         samples of each size
    normal          models of the law of the estimate
    normal_sizes    n of the estimates that are drawn, `estimates` data sets of each
    tensorised      models of the bound on the joint law, at `tensorised_points` parameters
    first_seed      of everything that is drawn, models apart
    """

    models: tuple[str, ...] = (
        "chain 3 0.5",
        "chain 5 0.2",
        "chain 5 1.0",
        "grid 2 3 0.4",
        "clique 4 0.05",
        "clique 4 0.3",
        "clique 5 0.8",
        "random 4 0.8",
        "hmm 2",
        "hmm 3",
        "table 2 3",
        "table 3 2",
    )
    adaptive: tuple[str, ...] = ("ones 1.5", "changes 1.5")
    strengths: tuple[float, ...] = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
    points: int = 20
    samples: tuple[str, ...] = ("chain 2 0.4", "chain 3 0.4")
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    narrow: tuple[str, ...] = ("chain 2 0.1",)
    narrow_sizes: tuple[int, ...] = (10_000, 100_000)
    repeats: int = 150
    normal: tuple[str, ...] = ("chain 3 0.5", "clique 4 0.3", "table 2 2")
    normal_sizes: tuple[int, ...] = (1_000, 1_000_000)
    estimates: int = 20_000
    tensorised: tuple[str, ...] = ("chain 2 0.4", "chain 3 0.5", "hmm 2", "table 2 3")
    tensorised_points: int = 50
    first_seed: int = 0


@dataclass(frozen=True)
class TrainUnderMasks(Unit):
    """Matrices of one model under many mask laws."""

    model: str
    adaptive: tuple[str, ...]


@dataclass(frozen=True)
class MeasureCurvature(Unit):
    """The masked loss of one model at random parameters."""

    model: str
    points: int


@dataclass(frozen=True)
class ConditionOnBlock(Unit):
    """The example of Lemma 4.3.1, and training that forgets the block."""

    strengths: tuple[float, ...]


@dataclass(frozen=True)
class MeasureEntropy(Unit):
    """Entropy of one bit in continuous time."""


@dataclass(frozen=True)
class BoundSamples(Unit):
    """Theorem 4.1.4 on samples of one model, mask law and size; see `Box`."""

    model: str
    law: str
    n: int
    repeats: int
    radius: float
    masks: int
    epsilon: float


@dataclass(frozen=True)
class BoundEstimate(Unit):
    """The law of the estimate of one parameter."""

    model: str
    law: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class DrawEstimates(Unit):
    """Drawn estimates of all parameters."""

    model: str
    law: str
    n: int
    repeats: int


@dataclass(frozen=True)
class TensoriseLoss(Unit):
    """Proposition 4.3.1 at random parameters of one model."""

    model: str
    law: str
    points: int
    sequences: tuple[int, ...]


MaskingUnit = (
    TrainUnderMasks
    | MeasureCurvature
    | ConditionOnBlock
    | MeasureEntropy
    | BoundSamples
    | BoundEstimate
    | DrawEstimates
    | TensoriseLoss
)


def units(settings: ExactMasking) -> Sequence[MaskingUnit]:
    """One per model and statement."""
    counts = (settings.points, settings.repeats, settings.estimates, settings.tensorised_points)
    if min(counts) < 1:
        raise UserError("points, repeats, estimates and tensorised_points must be at least 1")
    found: list[MaskingUnit] = [
        TrainUnderMasks(model, settings.adaptive, seed=seed)
        for model in settings.models
        for seed in range(settings.seeds if model.split()[0] in DRAWN else 1)
    ]
    found += [
        MeasureCurvature(model, settings.points, seed=0)
        for model in settings.models
        if not model.startswith("table")
    ]
    found += [ConditionOnBlock(settings.strengths, seed=0), MeasureEntropy(seed=0)]
    for box, models, sizes in (
        (WIDE, settings.samples, settings.sizes),
        (NARROW, settings.narrow, settings.narrow_sizes),
    ):
        found += [
            BoundSamples(
                model,
                law,
                n,
                settings.repeats,
                box.radius,
                box.masks,
                box.epsilon,
                seed=settings.first_seed,
            )
            for model in models
            for law in ("size 1", *settings.adaptive[:1])
            for n in sizes
        ]
    laws = (*LAWS, *settings.adaptive[:1])
    for model in settings.normal:
        found += [BoundEstimate(model, law, LIMITS, seed=0) for law in laws]
        found += [
            DrawEstimates(model, law, n, settings.estimates, seed=settings.first_seed)
            for law in laws
            for n in settings.normal_sizes
        ]
    found += [
        TensoriseLoss(model, law, settings.tensorised_points, (1, 10, 1000), seed=seed)
        for model in settings.tensorised
        for law in ("size 1", "independent 0.3", *settings.adaptive[:1])
        for seed in range(settings.first_seed, settings.first_seed + settings.seeds)
    ]
    return found


def run(unit: MaskingUnit, bench: Bench) -> Iterable[Row]:
    """The rows of one model and statement."""
    match unit:
        case TrainUnderMasks():
            return trained_under_masks(unit.model, unit.seed, unit.adaptive)
        case MeasureCurvature():
            return curvatures(unit.model, unit.seed, unit.points)
        case ConditionOnBlock():
            return conditioning(unit.strengths)
        case MeasureEntropy():
            return entropy_rates()
        case BoundSamples():
            box = Box(unit.radius, unit.masks, unit.epsilon)
            return bounded_samples(bench, unit.model, unit.law, unit.n, unit.repeats, box)
        case BoundEstimate():
            return one_parameter(unit.model, unit.law, unit.sizes)
        case DrawEstimates():
            return estimates(bench, unit.model, unit.law, unit.seed, unit.n, unit.repeats)
        case TensoriseLoss():
            return tensorised_losses(
                bench, unit.model, unit.law, unit.seed, unit.points, unit.sequences
            )
        case _:
            assert_never(unit)


STUDY = Study(
    name="exact_masking",
    question="What do masks cost a masked estimator in variance, in bias, on finite samples?",
    settings={
        Scale.SMOKE: ExactMasking(
            models=("chain 3 0.5", "clique 3 0.3", "hmm 2", "table 2 2"),
            strengths=(0.0, 1.0),
            points=3,
            samples=("chain 2 0.4",),
            sizes=(100, 10_000),
            narrow_sizes=(10_000,),
            repeats=8,
            normal=("chain 2 0.4", "table 2 2"),
            normal_sizes=(1_000,),
            estimates=200,
            tensorised=("chain 2 0.4", "table 2 2"),
            tensorised_points=3,
        ),
        Scale.LAPTOP: ExactMasking(first_seed=100),
        Scale.PAPER: ExactMasking(
            seeds=5,
            models=(*ExactMasking.models, "grid 2 3 1.0", "chain 6 0.6", "random 5 0.5", "hmm 4"),
            points=200,
            sizes=(10, 100, *ExactMasking.sizes),
            repeats=200,
            first_seed=100,
        ),
    },
    units=units,
    run=run,
    rows=ROWS,
    claims=CLAIMS,
    figures=FIGURES,
)

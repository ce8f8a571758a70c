"""How far from the truth is a trained network, over training, with sampled and exact targets?

Transformers learn an HMM, a Dyck language and an Ising model, as causal and as masked models. Since
the truth is known, every measurement splits the loss into the entropy that nobody can beat and the
divergence from the exact conditionals, and the exact conditional can be the target itself.
"""

import difflib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from triptych.core.estimates import mean
from triptych.core.protocols import Structure
from triptych.core.validation import UserError
from triptych.models.language_models import CausalLM, MaskedLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.ising import Ising
from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Bench, Rows, Scale, Settings, Study, Unit
from triptych.training.loop import fit, gap_meter
from triptych.training.objectives import Objective, masked, next_token
from triptych.training.step import Recipe

STRUCTURES = ("hmm", "dyck", "ising")
NAMES = {"hmm": "HMM", "dyck": "Dyck", "ising": "Ising"}


@dataclass(frozen=True)
class ExactGap(Settings):
    """Size of the networks and of their training.

    modes     next_token (causal) and masked (bidirectional, 15 % masks)
    targets   sampled: the token; exact: the exact conditional in its place
    """

    seeds: int = 1
    structures: tuple[str, ...] = STRUCTURES
    modes: tuple[str, ...] = ("next_token", "masked")
    targets: tuple[str, ...] = ("sampled", "exact")
    steps: int = 600
    batch: int = 64
    width: int = 64
    layers: int = 2
    heads: int = 4
    learning_rate: float = 2e-3
    measurements: int = 12
    rows: int = 256

    def __post_init__(self) -> None:
        for name, known in (
            ("structures", STRUCTURES),
            ("modes", ("next_token", "masked")),
            ("targets", ("sampled", "exact")),
        ):
            for value in getattr(self, name):
                if value not in known:
                    near = difflib.get_close_matches(value, known, n=1)
                    hint = f"; did you mean {near[0]!r}?" if near else ""
                    raise UserError(f"{name} has {value!r}, none of {', '.join(known)}{hint}")


def truth(name: str) -> Structure:
    """The three laws: small enough to measure exactly in passing, rich enough to be learned."""
    match name:
        case "hmm":
            return HMM.random_permutation_mixture(10, 10, 24, seed=1, transition_temperature=0.1)
        case "dyck":
            types = torch.tensor([0.2, 0.8], dtype=torch.float64)
            return Dyck.fixed_length(16, type_probs=types, q=0.5, max_depth=5)
        case "ising":
            return Ising.random(12, scale=0.5, seed=1)
        case _:
            raise ValueError(f"structure is {name!r}; it must be one of {', '.join(STRUCTURES)}")


@dataclass(frozen=True)
class TrainNetwork(Unit):
    """One network: what it learns, how, and its size."""

    structure: str
    mode: str
    target: str
    steps: int
    batch: int
    width: int
    layers: int
    heads: int
    learning_rate: float
    measurements: int
    rows: int


@dataclass(frozen=True)
class Measured:
    """The gap of a network at one step, in nats: loss = bayes_loss + kl."""

    structure: str
    mode: str
    target: str
    seed: int
    step: int
    loss: float
    bayes_loss: float
    kl: float
    training_seconds: float


def units(settings: ExactGap) -> Sequence[TrainNetwork]:
    """One trained network each."""
    return [
        TrainNetwork.of(settings, structure=structure, mode=mode, target=target, seed=seed)
        for structure in settings.structures
        for mode in settings.modes
        for target in settings.targets
        for seed in range(settings.seeds)
    ]


def run(unit: TrainNetwork, bench: Bench) -> Iterable[Measured]:
    """Train one network and yield the gap at every measurement."""
    structure = truth(unit.structure)
    structure = structure if bench.device == "cpu" else structure.to(bench.device)  # pyright: ignore[reportAttributeAccessIssue]
    causal = unit.mode == "next_token"

    def objective(exact: bool) -> Objective:
        target = structure if exact else None
        if causal:
            return next_token(target)
        return masked(words=structure.vocab_size, p_m=0.15, truth=target)

    shape = Shape(
        vocab_size=structure.vocab_size + 1,
        length=structure.length + 1,
        width=unit.width,
        layers=unit.layers,
        heads=unit.heads,
        causal=causal,
    )
    net = Transformer(shape, seed=unit.seed, device=bench.device)
    model = CausalLM(net) if causal else MaskedLM(net)
    recipe = Recipe(
        steps=unit.steps,
        batch=unit.batch,
        learning_rate=unit.learning_rate,
        warmup=max(1, unit.steps // 20),
        decay="cosine",
        clip=1.0,
        meter_every=max(1, unit.steps // unit.measurements),
        quick=True,
    )
    held_out = structure.sample(unit.rows, bench.rng("held out"))
    started = time.perf_counter()
    history = fit(
        model,
        structure.sample,
        objective(unit.target == "exact"),
        recipe,
        bench.rng("training"),
        meter=gap_meter(objective(True), held_out),
    )
    seconds = time.perf_counter() - started
    for step, gap in history.gaps:
        yield Measured(
            structure=unit.structure,
            mode=unit.mode,
            target=unit.target,
            seed=unit.seed,
            step=step,
            loss=gap.loss,
            bayes_loss=gap.bayes_loss,
            kl=gap.kl,
            training_seconds=seconds,
        )


def _curve(
    rows: Rows[Measured], structure: str, mode: str, target: str
) -> tuple[list[int], list[float], list[float], list[float]]:
    """Steps, means of the KL over seeds and their intervals, cut at a factor of 10."""
    mine = [
        row
        for row in rows.of(Measured)
        if (row.structure, row.mode, row.target) == (structure, mode, target)
    ]
    steps = sorted({row.step for row in mine})
    found = [mean([row.kl for row in mine if row.step == step]) for step in steps]
    low = [max(e.low, e.value / 10) if e.n > 1 else e.value for e in found]
    high = [min(e.high, e.value * 10) if e.n > 1 else e.value for e in found]
    return steps, [e.value for e in found], low, high


def _figure(rows: Rows[Measured], mode: str, title: str) -> Figure:
    kinds: dict[str, SeriesKind] = {"exact": "ours", "sampled": "control"}
    panels = []
    for structure in STRUCTURES:
        series = []
        for target, kind in kinds.items():
            steps, value, low, high = _curve(rows, structure, mode, target)
            if steps:
                series.append(Series(f"{target} targets", kind, steps, value, low, high))
        if series:
            panels.append(
                Panel(series, "step", "KL to the truth (nats)", NAMES[structure], y_log=True)
            )
    return Figure(
        f"gap_{mode}",
        title,
        panels,
        "Loss minus the smallest possible loss, which is the KL divergence from the exact "
        "conditionals; means over seeds with 95 % intervals (cut at a factor of 10).",
    )


def causal_figure(rows: Rows[Measured]) -> Figure:
    return _figure(
        rows,
        "next_token",
        "Distance of causal networks to the exact next-token law while they train",
    )


def masked_figure(rows: Rows[Measured]) -> Figure:
    return _figure(
        rows,
        "masked",
        "Distance of masked networks to the exact conditionals while they train",
    )


STUDY = Study(
    name="exact_gap",
    question="How far is a trained network from the truth, and do exact targets bring it closer?",
    settings={
        Scale.SMOKE: ExactGap(
            steps=6, batch=8, width=16, layers=1, heads=2, measurements=2, rows=16
        ),
        Scale.LAPTOP: ExactGap(seeds=3),
        Scale.PAPER: ExactGap(
            seeds=10, steps=5000, batch=256, width=128, layers=4, measurements=25
        ),
    },
    units=units,
    run=run,
    rows=(Measured,),
    figures=[causal_figure, masked_figure],
    revision=2,
)

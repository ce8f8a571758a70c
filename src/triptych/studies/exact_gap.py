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
from triptych.models.language_models import CausalLM, MaskedLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.dyck import Dyck
from triptych.structures.hmm import HMM
from triptych.structures.ising import Ising
from triptych.studies.figures import Figure, Kind, Panel, Series
from triptych.studies.study import Bench, Row, Rows, Scale, Settings, Study, Unit
from triptych.training.loop import Recipe, fit, gap_meter
from triptych.training.objectives import Objective, masked, next_token

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
                    raise ValueError(f"{name} has {value!r}, none of {', '.join(known)}{hint}")


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


def units(settings: ExactGap) -> Sequence[Unit]:
    """One trained network each."""
    common = {
        name: getattr(settings, name)
        for name in (
            "steps",
            "batch",
            "width",
            "layers",
            "heads",
            "learning_rate",
            "measurements",
            "rows",
        )
    }
    return [
        Unit({"structure": structure, "mode": mode, "target": target, **common}, seed)
        for structure in settings.structures
        for mode in settings.modes
        for target in settings.targets
        for seed in range(settings.seeds)
    ]


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    """Train one network and yield the gap at every measurement."""
    p = unit.parameters
    structure = truth(p["structure"])
    structure = structure if bench.device == "cpu" else structure.to(bench.device)  # pyright: ignore[reportAttributeAccessIssue]
    causal = p["mode"] == "next_token"

    def objective(exact: bool) -> Objective:
        target = structure if exact else None
        if causal:
            return next_token(target)
        return masked(words=structure.vocab_size, p_m=0.15, truth=target)

    shape = Shape(
        vocab_size=structure.vocab_size + 1,
        length=structure.length + 1,
        width=p["width"],
        layers=p["layers"],
        heads=p["heads"],
        causal=causal,
    )
    net = Transformer(shape, seed=unit.seed, device=bench.device)
    model = CausalLM(net) if causal else MaskedLM(net)
    recipe = Recipe(
        steps=p["steps"],
        batch=p["batch"],
        learning_rate=p["learning_rate"],
        warmup=max(1, p["steps"] // 20),
        decay="cosine",
        clip=1.0,
        meter_every=max(1, p["steps"] // p["measurements"]),
    )
    held_out = structure.sample(p["rows"], bench.rng("held out"))
    started = time.perf_counter()
    history = fit(
        model,
        structure.sample,
        objective(p["target"] == "exact"),
        recipe,
        bench.rng("training"),
        meter=gap_meter(objective(True), held_out),
    )
    seconds = time.perf_counter() - started
    for step, gap in history.gaps:
        yield {
            "structure": p["structure"],
            "mode": p["mode"],
            "target": p["target"],
            "seed": unit.seed,
            "step": step,
            "loss": gap.loss,
            "bayes_loss": gap.bayes_loss,
            "kl": gap.kl,
            "training_seconds": seconds,
        }


def _curve(rows: Rows, structure: str, mode: str, target: str) -> tuple[list, list, list, list]:
    mine = [
        row
        for row in rows
        if (row["structure"], row["mode"], row["target"]) == (structure, mode, target)
    ]
    steps = sorted({row["step"] for row in mine})
    found = [mean([row["kl"] for row in mine if row["step"] == step]) for step in steps]
    low = [max(e.low, e.value / 10) if e.n > 1 else e.value for e in found]
    high = [min(e.high, e.value * 10) if e.n > 1 else e.value for e in found]
    return steps, [e.value for e in found], low, high


def _figure(rows: Rows, mode: str, title: str) -> Figure:
    kinds: dict[str, Kind] = {"exact": "ours", "sampled": "control"}
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


def causal_figure(rows: Rows) -> Figure:
    return _figure(
        rows,
        "next_token",
        "Causal networks approach the exact next-token law, from exact and from sampled targets",
    )


def masked_figure(rows: Rows) -> Figure:
    return _figure(
        rows,
        "masked",
        "Masked networks approach the exact conditionals, from exact and from sampled targets",
    )


STUDY = Study(
    name="exact_gap",
    about="How far is a trained network from the truth, and do exact targets bring it closer?",
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
    figures=[causal_figure, masked_figure],
)

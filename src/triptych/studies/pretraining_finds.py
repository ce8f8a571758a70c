"""When does pretraining find it? Heads and prompts along training, beside two controls [wei, 5].

A prompt of k vectors has many parameters of its own. So the same head and prompt are also tuned on
a network that was never trained, and on one that was pretrained on another HMM of the same size:
what they reach there is their own capacity, and the rest of the gain is due to pretraining on the
right law.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from triptych.core.estimates import mean
from triptych.studies.downstream import (
    PAPER,
    SMOKE,
    VOCAB,
    Tuned,
    best_rate,
    downstream,
    exact_head_accuracy,
    head_accuracies,
    kl_at_first,
    parameters,
    pretrained,
    prompt_accuracies,
    use_fast_products,
    vanilla,
)
from triptych.studies.figures import Figure, Kind, Panel, Series
from triptych.studies.study import Bench, Row, Rows, Scale, Study, Unit


@dataclass(frozen=True)
class PretrainingFinds(Tuned):
    """As `Tuned`, for hidden sizes below and above the number of symbols."""

    hidden: tuple[int, ...] = (10, 25)
    learning_rates: tuple[float, ...] = (2e-3,)


def units(settings: PretrainingFinds) -> Sequence[Unit]:
    """One task each, on networks of its own law or of another law."""
    common = parameters(settings)
    return [
        Unit({"states": states, "source": source, "learning_rate": rate, **common}, seed)
        for rate in settings.learning_rates
        for seed in range(1, settings.seeds + 1)
        for states in settings.hidden
        for source in ("own", "other")
    ]


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    """A row per network: every snapshot of its own training, or the end of another law's."""
    p, seed, states = unit.parameters, unit.seed, unit.parameters["states"]
    use_fast_products(bench.device)
    law = vanilla(states, p["length"], seed)
    data = downstream(law.to(bench.device), p, seed, bench.rng("inputs"))
    of = seed if p["source"] == "own" else seed + 1
    name = {"kind": "hmm", "states": states, "seed": of}
    found = pretrained(bench, vanilla(states, p["length"], of), name, p, p["learning_rate"], of)
    for snapshot in found if p["source"] == "own" else found[-1:]:
        yield {
            "kind": "snapshot",
            "states": states,
            "source": p["source"],
            "learning_rate": p["learning_rate"],
            "seed": seed,
            "step": snapshot.step,
            **data.row,
            "kl_first": kl_at_first(snapshot.lm, data.test),
            "exact_head": exact_head_accuracy(data),
            **head_accuracies(snapshot.lm, data, p, seed),
            **prompt_accuracies(snapshot.lm, data, p, seed),
        }


def _panel(rows: Rows, states: int) -> Panel:
    own = [row for row in rows if row["states"] == states and row["source"] == "own"]
    other = [row for row in rows if row["states"] == states and row["source"] == "other"]
    steps = sorted({row["step"] for row in own})
    series = []
    columns: Sequence[tuple[str, str, Kind]] = (
        ("prompt", "prompt tuning", "ours"),
        ("head", "head tuning", "control"),
    )
    for column, label, kind in columns:
        found = [mean([row[column] for row in own if row["step"] == step]) for step in steps]
        kl = [mean([row["kl_first"] for row in own if row["step"] == step]).value for step in steps]
        ends = [
            (max(0.0, e.low), min(1.0, e.high)) if e.n > 1 else (e.value, e.value) for e in found
        ]
        series.append(
            Series(
                label,
                kind,
                kl,
                [100 * e.value for e in found],
                [100 * low for low, _ in ends],
                [100 * high for _, high in ends],
            )
        )
    if other:
        kl = [mean([row["kl_first"] for row in other]).value]
        for column, label in (
            ("prompt", "prompt, another HMM"),
            ("head", "head, another HMM"),
        ):
            e = mean([row[column] for row in other])
            low, high = (max(0.0, e.low), min(1.0, e.high)) if e.n > 1 else (e.value, e.value)
            series.append(
                Series(label, "control", kl, [100 * e.value], [100 * low], [100 * high], line=False)
            )
    majority = 100 * mean([row["majority"] for row in own]).value
    if steps:
        ends_x = [series[0].x[0], series[0].x[-1]]
        series.append(Series("always the majority label", "truth", ends_x, [majority, majority]))
    size = f"|H| = {states}: " + ("more" if states > VOCAB else "no more")
    return Panel(
        series,
        "KL to the truth at the first position (nats)",
        "test accuracy (%)",
        f"{size} states than symbols",
        x_log=True,
    )


def training_figure(rows: Rows) -> Figure:
    """Accuracy against the distance to the truth, with both controls."""
    rows = best_rate(rows)
    sizes = sorted({row["states"] for row in rows})
    return Figure(
        "pretraining_finds",
        "What heads and prompts reach along pretraining, and on a network of another HMM",
        [_panel(rows, states) for states in sizes],
        "One line is one training, from the untrained network (right) to the end (left); means "
        "over trials with 95 % intervals. Single marks: the same tuning on a network pretrained on "
        "another HMM of the same size.",
    )


_SMOKE: dict[str, Any] = {**SMOKE, "tuning_steps": 3, "head_steps": 5}
_PAPER: dict[str, Any] = {**PAPER, "snapshots": (0.0, 0.0625, 0.125, 0.25, 0.5, 1.0)}

STUDY = Study(
    name="pretraining_finds",
    about="How much of what prompts reach is pretraining, and how much their own capacity?",
    settings={
        Scale.SMOKE: PretrainingFinds(seeds=1, **_SMOKE),
        Scale.LAPTOP: PretrainingFinds(seeds=3),
        Scale.PAPER: PretrainingFinds(seeds=5, learning_rates=(1e-4,), **_PAPER),
    },
    units=units,
    run=run,
    figures=[training_figure],
)

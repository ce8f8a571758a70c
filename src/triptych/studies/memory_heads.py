"""An attention head on a memory HMM against a linear head on a vanilla HMM of equal size [wei, 5].

The memory of the first never changes, so every position of an input says something about it, and an
attention head may gather that; the task on the vanilla HMM is about the first hidden state, and a
linear head reads the network's law at the masked first position.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from triptych.core.estimates import Outcome, above, mean
from triptych.studies.downstream import (
    PAPER,
    SMOKE,
    Tuned,
    best_rate,
    downstream,
    exact_head_accuracy,
    head_accuracies,
    kl_at_first,
    parameters,
    pretrained,
    use_fast_products,
    vanilla,
    with_memory,
)
from triptych.studies.figures import Figure, Kind, Panel, Series
from triptych.studies.judging import all_of, difference, mean_series
from triptych.studies.study import Bench, Claim, Row, Rows, Scale, Study, Unit, Verdict

# Figure 3 right of [wei], per cent, means over 5 trials: read from the figure's vector graphics.
PUBLISHED = {
    "states": (8, 12, 20, 28),
    "memory": (99.8, 99.9, 99.9, 97.8),
    "vanilla": (83.2, 80.7, 64.4, 66.2),
}
HIDDEN = 4  # |H| of the memory HMMs; the states are |M| |H|
NEAR = 0.95  # "near 100 %": the published means are 97.8 to 99.9


@dataclass(frozen=True)
class MemoryHeads(Tuned):
    """As `Tuned`, for every memory size and learning rate of the pretraining.

    memories         |M|, with |H| = 4: 4 |M| states in all, and as many in the vanilla HMM
    learning_rates   of the pretraining; the paper prints 1e-5
    data             memory, vanilla or both
    """

    memories: tuple[int, ...] = (2, 5)
    learning_rates: tuple[float, ...] = (2e-3,)
    data: tuple[str, ...] = ("memory", "vanilla")


def units(settings: MemoryHeads) -> Sequence[Unit]:
    """One pretrained network and one task each; the memory HMMs of a seed come first."""
    if min(settings.memories) < 2:
        raise ValueError("a memory needs at least 2 values: with one there is nothing to tell")
    for data in settings.data:
        if data not in ("memory", "vanilla"):
            raise ValueError(f"data has {data!r}; it must be memory or vanilla")
    common = parameters(settings)
    return [
        Unit({"data": data, "values": values, "learning_rate": rate, **common}, seed)
        for rate in settings.learning_rates
        for seed in range(1, settings.seeds + 1)
        for data in settings.data
        for values in settings.memories
    ]


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    """Pretrain, then tune the head that belongs to the data."""
    p, seed, values = unit.parameters, unit.seed, unit.parameters["values"]
    use_fast_products(bench.device)
    states = values * HIDDEN
    if p["data"] == "memory":
        law = with_memory(values, HIDDEN, p["length"], seed)
        name = {"kind": "memory hmm", "values": values, "hidden": HIDDEN, "seed": seed}
    else:
        law = vanilla(states, p["length"], seed)
        name = {"kind": "hmm", "states": states, "seed": seed}
    last = pretrained(bench, law, name, p, p["learning_rate"], seed)[-1]
    data = downstream(law.to(bench.device), p, seed, bench.rng("inputs"))
    linear = head_accuracies(last.lm, data, p, seed)
    attention = head_accuracies(last.lm, data, p, seed, "attention")["head"]
    yield {
        "kind": "tuned",
        "data": p["data"],
        "states": states,
        "learning_rate": p["learning_rate"],
        "seed": seed,
        **data.row,
        "kl": last.kl,
        "kl_first": kl_at_first(last.lm, data.test),
        "exact_head": exact_head_accuracy(data),
        "linear": linear["head"],
        "best_linear": linear["best_head"],
        "attention": attention,
    }


def _memory(rows: Rows) -> list[float]:
    return [float(row["attention"]) for row in rows if row["data"] == "memory"]


def _vanilla(rows: Rows, column: str = "linear") -> list[float]:
    """The linear head on vanilla data, trained with the paper's recipe as the attention head is."""
    return [float(row[column]) for row in rows if row["data"] == "vanilla"]


def _vanilla_attention(rows: Rows) -> float:
    """What the attention head reaches on the other data, which the paper's text leaves out.

    The authors' scripts train the attention head on both kinds of data.
    """
    return mean([float(row["attention"]) for row in rows if row["data"] == "vanilla"]).value


def judge(rows: Rows) -> Verdict:
    """The attention head is near 100 % on memory data, above the linear head on vanilla data."""
    columns = ("attention", "linear", "best_linear", "kl_first", "learning_rate")
    if any(math.isnan(float(row[name])) for row in rows for name in columns):
        return Verdict(Outcome.UNDECIDED, "an accuracy or a distance to the truth is nan")
    rows = best_rate(rows)
    ours, theirs = _memory(rows), _vanilla(rows)
    if len(ours) < 3 or len(theirs) < 3:
        because = f"{len(ours)} memory and {len(theirs)} vanilla trials: at least three of each"
        return Verdict(Outcome.UNDECIDED, because)
    memory, other, gain = mean(ours), mean(theirs), difference(ours, theirs)
    found = {
        "the attention head is above the linear head": above(gain, 0.0),
        f"it is near 100 % (mean above {NEAR:.0%})": above(memory, NEAR),
    }
    open_ = [name for name, value in found.items() if value is not Outcome.HOLDS]
    because = (
        f"attention head on memory data {memory.value:.1%}, linear head on vanilla data "
        f"{other.value:.1%}; difference {100 * gain.value:+.1f} "
        f"[{100 * gain.low:.1f}, {100 * gain.high:.1f}] points"
        + (f"; not shown: {', '.join(open_)}" if open_ else "")
        + f". On the vanilla data the best linear head reaches "
        f"{mean(_vanilla(rows, 'best_linear')).value:.1%} and the attention head "
        f"{_vanilla_attention(rows):.1%}"
    )
    sizes = sorted({row["states"] for row in rows})
    measured = {
        "states": sizes,
        "memory": [_mean_percent(_memory(_of(rows, size))) for size in sizes],
        "vanilla": [_mean_percent(_vanilla(_of(rows, size))) for size in sizes],
        "best_linear_on_vanilla": _mean_percent(_vanilla(rows, "best_linear")),
        "attention_on_vanilla": round(100 * _vanilla_attention(rows), 1),
    }
    return Verdict(all_of(list(found.values())), because, measured)


def _of(rows: Rows, states: int) -> list[Row]:
    return [dict(row) for row in rows if row["states"] == states]


def _mean_percent(values: Sequence[float]) -> float | None:
    return round(100 * mean(values).value, 1) if values else None


def accuracy_figure(rows: Rows) -> Figure:
    """Figure 3 right, with the published means."""
    rows = best_rate(rows)
    memory = [row for row in rows if row["data"] == "memory"]
    plain = [row for row in rows if row["data"] == "vanilla"]
    series = [
        *_series(memory, "attention", "memory HMM, attention head", "ours"),
        *_series(plain, "linear", "vanilla HMM, linear head", "control"),
        Series(
            "published, memory", "published", PUBLISHED["states"], PUBLISHED["memory"], line=False
        ),
        Series(
            "published, vanilla", "published", PUBLISHED["states"], PUBLISHED["vanilla"], line=False
        ),
        *(replace(majority, low=(), high=()) for majority in _series(memory, *_MAJORITY)),
    ]
    return Figure(
        "memory_heads",
        "An attention head on data with a memory, against a linear head on plain data",
        [Panel(series, "states |M| |H|, |H| = 4", "test accuracy (%)")],
        "Means over trials (data, network and task) with 95 % intervals.",
    )


def crossed_figure(rows: Rows) -> Figure:
    """Is it the data or the head? Both heads on both kinds of data."""
    rows, panels = best_rate(rows), []
    for data, title in (("memory", "memory HMM"), ("vanilla", "vanilla HMM")):
        mine = [row for row in rows if row["data"] == data]
        if mine:
            series = [
                *_series(mine, "attention", "attention head", "ours"),
                *_series(mine, "best_linear", "best linear head at the first position", "control"),
                *_series(mine, "exact_head", "the same on the exact law", "truth"),
            ]
            panels.append(Panel(series, "states", "test accuracy (%)", title))
    return Figure(
        "crossed_heads",
        "Both heads on both kinds of data tell apart what the head and what the data contributes",
        panels,
        "Means over trials with 95 % intervals. On the memory HMM the label is about the memory, "
        "on the vanilla HMM about the first hidden state.",
    )


_MAJORITY: tuple[str, str, Kind] = ("majority", "memory tasks: the majority label", "truth")


def _series(rows: Rows, column: str, label: str, kind: Kind) -> list[Series]:
    return [mean_series(rows, "states", column, label, kind)] if rows else []


def _trials(attention: float, linear: float) -> list[Row]:
    return [
        {
            "kind": "tuned",
            "data": data,
            "states": 8,
            "learning_rate": 1e-4,
            "seed": seed,
            "kl_first": 0.05,
            "attention": attention - 0.002 * seed,
            "linear": linear + 0.002 * seed,
            "best_linear": linear,
        }
        for data in ("memory", "vanilla")
        for seed in range(1, 6)
    ]


STUDY = Study(
    name="memory_heads",
    about="Does long memory in the data let an attention head learn the task?",
    settings={
        Scale.SMOKE: MemoryHeads(seeds=1, memories=(2,), **SMOKE),
        Scale.LAPTOP: MemoryHeads(seeds=3),
        Scale.PAPER: MemoryHeads(
            seeds=5, memories=(2, 3, 5, 7), learning_rates=(1e-4, 1e-5), **PAPER
        ),
    },
    units=units,
    run=run,
    claims=[
        Claim(
            "wei.fig-3-right",
            judge,
            [_trials(0.99, 0.999), _trials(0.8, 0.6)],
            held_by=_trials(0.99, 0.7),
        )
    ],
    figures=[accuracy_figure, crossed_figure],
)

"""Does W^V grow first, and W^K and W^Q only when it has stopped [li, 2.1.4.1, 2.1.6.1]?

Norms of the three matrices over 1000 steps of simultaneous training, for several initial scales and
learning rates, SGD and Adam, cross-entropy and squared loss (the source does not say which its
figure has). Of each matrix

    growth(t) = (‖W_t‖ - ‖W_0‖) / (max_s ‖W_s‖ - ‖W_0‖),

and the switch of a run is the first step at which W^K or W^Q has made a tenth of its growth. What
share of the growth of W^V lies before the switch says whether there are two stages. Inputs are
one-hot words, of length 1 or as long as the authors' code makes them (see `topic_attention`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from triptych.core.estimates import Outcome
from triptych.models.transformer import Transformer
from triptych.studies.figures import Figure, Heatmap, Panel, Series
from triptych.studies.judging import rows_of, without_nan
from triptych.studies.study import Bench, Claim, Row, Rows, Scale, Study, Unit, Verdict
from triptych.studies.topic_judges import NAMES, PAIRS
from triptych.studies.trained_topics import (
    TINY,
    TopicSizes,
    Training,
    from_parameters,
    held_out_loss,
    norms,
    parameters,
    trained,
)

MATRICES = ("key", "query", "value")
POINTS = 50  # of every curve that are kept
STARTED = 0.1  # of its growth: a matrix has started to move
FIRST = 0.8  # of the growth of W^V lies before the switch, or there are no two stages
FLAT = 0.25  # of its speed before the switch: W^V is flat when it is slower
GROWN = 2.0  # times its initial norm: a matrix has grown
SETTINGS = 12  # fewest of them, none with two stages, that fail the claim


@dataclass(frozen=True)
class TwoStages(TopicSizes):
    """Sizes: learning rates of both optimisers and initial scales.

    long   also inputs of length √V, beside those of length 1
    """

    seeds: int = 2
    steps: int = 1000
    long: bool = True
    adam_rates: tuple[float, ...] = (0.001, 0.003, 0.01)
    sgd_rates: tuple[float, ...] = (0.03, 0.3, 3.0)
    scales: tuple[float, ...] = (0.00001, 0.001)


def units(settings: TwoStages) -> Sequence[Unit]:
    """One per loss, optimiser, length, rate, scale and seed."""
    documents = settings.documents
    rates = {"adam": settings.adam_rates, "sgd": settings.sgd_rates}
    lengths = (1.0, math.sqrt(documents.mask_token + 1))
    return [
        Unit(
            parameters(
                documents,
                Training(
                    loss=loss,
                    optimiser=optimiser,
                    learning_rate=rate,
                    init_scale=scale,
                    input_length=length,
                    steps=settings.steps,
                ),
            ),
            seed,
        )
        for loss, optimiser in PAIRS
        for length in lengths[: 1 + settings.long]
        for rate in rates[optimiser]
        for scale in settings.scales
        for seed in range(1, settings.seeds + 1)  # seed 0 helped to choose the grid
    ]


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    """Train, and keep the norms at some steps."""
    documents, training = from_parameters(unit.parameters)
    kept = {round(training.steps * i / POINTS) for i in range(POINTS + 1)}
    curves: dict[str, list[float]] = {"step": []} | {name: [] for name in MATRICES}

    def watch(step: int, net: Transformer) -> None:
        if step in kept:
            curves["step"].append(float(step))
            for name, value in norms(net).items():
                curves[name].append(value)

    same = {
        "loss": training.loss,
        "optimiser": training.optimiser,
        "learning_rate": training.learning_rate,
        "init_scale": training.init_scale,
        "input_length": training.input_length,
        "seed": unit.seed,
    }
    try:
        net, _ = trained(documents, training, unit.seed, watch=watch)
    except FloatingPointError:
        yield {"kind": "diverged", **same}
        return
    loss = held_out_loss(net, documents, training, 10_000 + unit.seed)
    yield {"kind": "run", **same, "held_out": loss, **curves}


# ------------------------------------------------------------------ when a run has two stages


class Stages(NamedTuple):
    """switch: the step at which W^K or W^Q starts. value_first: share of W^V's growth by then.

    slowdown: growth of W^V per step after the switch, over that before it.
    grown: whether W^V, and W^K and W^Q, reach GROWN times their first norms.
    """

    switch: float
    value_first: float
    slowdown: float
    value_grown: bool
    attention_grown: bool

    @property
    def two(self) -> bool:
        first = self.value_first >= FIRST and self.slowdown <= FLAT
        return self.value_grown and self.attention_grown and first


def stages(row: Mapping[str, Any]) -> Stages:
    """The change point of a run; W^V is interpolated between kept steps.

    Worked value: steps 0, 1, 2, 3; keys and queries 1, 1, 2, 3; values 1, 10, 10.5, 11. A tenth of
    2 is made at 1.2, where the value has grown 9.1 of 10: value_first 0.91, slowdown
    (0.9 / 1.8) / (9.1 / 1.2) = 0.066, two stages.
    """
    steps, value = row["step"], row["value"]
    starts = [_first_at(steps, growth(row[name]), STARTED) for name in ("key", "query")]
    switch = min(starts)
    grown = growth(value)
    first = _at(steps, grown, switch)
    before, after = switch - steps[0], steps[-1] - switch
    quick = first * after > 0  # else there is nothing before the switch, or nothing after it
    return Stages(
        switch,
        first,
        (grown[-1] - first) / after / (first / before) if quick else 1.0,
        max(value) >= GROWN * value[0],
        all(max(row[name]) >= GROWN * row[name][0] for name in ("key", "query")),
    )


def growth(norm: Sequence[float]) -> list[float]:
    """(‖W_t‖ - ‖W_0‖) over the largest such, 0 throughout where nothing grows."""
    most = max(norm) - norm[0]
    return [(value - norm[0]) / most if most > 0 else 0.0 for value in norm]


def _first_at(steps: Sequence[float], values: Sequence[float], level: float) -> float:
    """Where a broken line first reaches a level; the last step where it does not."""
    for (a, x), (b, y) in pairwise(zip(steps, values, strict=True)):
        if y >= level:
            return a if x >= level else a + (b - a) * (level - x) / (y - x)
    return steps[-1]


def _at(steps: Sequence[float], values: Sequence[float], step: float) -> float:
    for (a, x), (b, y) in pairwise(zip(steps, values, strict=True)):
        if step <= b:
            return x + (y - x) * (step - a) / (b - a)
    return values[-1]


Setting = tuple[str, str, float, float, float]


def by_setting(rows: Rows) -> dict[Setting, list[Row]]:
    """Runs of each loss, optimiser, rate, scale and length of inputs."""
    found: dict[Setting, list[Row]] = {}
    for row in rows_of(rows, "run"):
        found.setdefault(setting_of(row), []).append(row)
    return found


def setting_of(row: Mapping[str, Any]) -> Setting:
    """What the runs of one setting share."""
    names = ("loss", "optimiser", "learning_rate", "init_scale", "input_length")
    loss, optimiser, rate, scale, length = (row[name] for name in names)
    return loss, optimiser, rate, scale, length


def name_of(key: Setting) -> str:
    """Worked value: ("squared", "sgd", 0.1, 0.001, 1.0) is "squared loss + SGD 0.1 from 0.001"."""
    loss, optimiser, rate, scale, length = key
    inputs = "" if length == 1 else f", inputs of length {length:.3g}"
    return f"{NAMES[loss]} + {NAMES[optimiser]} {rate:g} from {scale:g}{inputs}"


def judge(rows: Rows) -> Verdict:
    """Two stages in all runs, two or more, of some setting; FAILS where no run of 12 or more
    settings has them."""
    groups = {key: some for key, some in by_setting(rows).items() if len(some) >= 2}
    if not groups:
        return Verdict(Outcome.UNDECIDED, "no setting has two runs yet")
    found = {key: [stages(row) for row in some] for key, some in groups.items()}
    two = {key: some for key, some in found.items() if all(stage.two for stage in some)}
    shares = {
        name_of(key): sum(s.value_first for s in some) / len(some) for key, some in found.items()
    }
    measured = {"settings": len(groups), "two_stage": len(two), "value_first": shares}
    if two:
        switches = [stage.switch for some in two.values() for stage in some]
        measured["switch"] = [min(switches), max(switches)]
        names = "; ".join(map(name_of, two))
        because = (
            f"{len(two)} of {len(groups)} settings have two stages ({names}): W^V makes {FIRST:.0%}"
            f" of its growth before W^K or W^Q makes {STARTED:.0%} of theirs and is then flat, at "
            f"step {min(switches):.0f} to {max(switches):.0f} (the source: 400)"
        )
        return Verdict(Outcome.HOLDS, because, measured)
    some_run = {
        key: f"{sum(s.two for s in some)} of {len(some)} runs, {_percents(some)} first"
        for key, some in found.items()
        if any(stage.two for stage in some)
    }
    if some_run:
        near = "; ".join(f"{name_of(key)} ({told})" for key, told in some_run.items())
        because = (
            f"no setting of {len(groups)} has two stages in all its runs, {len(some_run)} in some: "
            f"{near}; {FIRST:.0%} of W^V's growth must lie before W^K and W^Q start"
        )
        return Verdict(Outcome.UNDECIDED, because, measured)
    if len(groups) < SETTINGS:
        because = f"none of {len(groups)} settings has two stages; {SETTINGS} are needed"
        return Verdict(Outcome.UNDECIDED, because, measured)
    grown = [s.value_first for some in found.values() for s in some if s.attention_grown]
    highest = max(grown, default=0.0)
    because = (
        f"none of {len(groups)} settings has two stages, {FIRST:.0%} of W^V's growth before W^K "
        f"and W^Q start and at most {FLAT:.0%} of its speed after: where these grow at all, at "
        f"most {highest:.0%} lies before, and W^V goes on growing"
    )
    return Verdict(Outcome.FAILS, because, measured)


def _percents(some: Sequence[Stages]) -> str:
    return " and ".join(f"{stage.value_first:.1%}" for stage in some)


def _curves(seed: int, rate: float, value: Sequence[float], key: Sequence[float]) -> Row:
    return {
        "kind": "run",
        "loss": "squared",
        "optimiser": "adam",
        "learning_rate": rate,
        "init_scale": 0.001,
        "input_length": 1.0,
        "seed": seed,
        "step": [0.0, 1.0, 2.0, 3.0],
        "key": list(key),
        "query": list(key),
        "value": list(value),
    }


_LATE, _EARLY, _STILL = (1.0, 1.0, 2.0, 3.0), (1.0, 2.0, 3.0, 4.0), (1.0, 1.0, 1.1, 1.2)
_QUICK, _SLOW, _NO = (1.0, 10.0, 10.5, 11.0), (1.0, 2.0, 3.0, 11.0), (10.0, 18.0, 19.0, 19.5)
_STEADY, _LAST = (0.0, 4.0, 8.0, 9.6), (1.0, 1.0, 1.0, 9.0)
_RATES = [0.001 * (i + 1) for i in range(SETTINGS)]
_HELD = [_curves(seed, 0.01, _QUICK, _LATE) for seed in range(2)]


def _everywhere(value: Sequence[float], key: Sequence[float]) -> list[Row]:
    return [_curves(seed, rate, value, key) for rate in _RATES for seed in range(2)]


_REFUTED = [
    _everywhere(_QUICK, _EARLY),
    _everywhere(_SLOW, _LATE),
    _everywhere(_QUICK, _STILL),
    _everywhere(_NO, _LATE),
    _everywhere(_STEADY, _LAST),
]


# ------------------------------------------------------------------ pictures


def curves_figure(rows: Rows) -> Figure:
    """Norms of the most and the least two-stage run."""
    runs = rows_of(rows, "run")
    grown = [row for row in runs if stages(row).value_grown and stages(row).attention_grown]
    panels = []
    if grown:
        ordered = sorted(grown, key=_clearness)
        for name, row in (("the clearest", ordered[-1]), ("the least clear", ordered[0])):
            found = stages(row)
            labels = {"value": "W^V", "key": "W^K", "query": "W^Q"}
            series = [
                Series(
                    labels[matrix],
                    "ours" if matrix == "value" else "control",
                    row["step"],
                    [value / max(row[matrix]) for value in row[matrix]],
                )
                for matrix in ("value", "key", "query")
            ]
            title = f"{name}: {name_of(setting_of(row))}, {found.value_first:.0%} first"
            panels.append(Panel(series, "training step", "norm / its largest value", title))
    return Figure(
        "norm_curves",
        "Norms of the value, key and query matrices, trained together",
        panels,
        f"First: the share of W^V's growth before W^K or W^Q has made {STARTED:.0%} of its own. "
        f"Two stages are called so from {FIRST:.0%} on, if W^V is {1 / FLAT:g} times slower after.",
    )


def _clearness(row: Mapping[str, Any]) -> tuple[bool, float]:
    """Runs in which W^V is flat after the switch come last, the largest share first at the end."""
    found = stages(row)
    return found.slowdown <= FLAT, found.value_first


def map_figure(rows: Rows) -> Figure:
    """Where in (initial scale, rate) there are two stages."""
    groups = by_setting(rows)
    panels: list[Panel | Heatmap] = []
    for loss, optimiser, length in sorted({(key[0], key[1], key[4]) for key in groups}):
        mine = [key for key in groups if (key[0], key[1], key[4]) == (loss, optimiser, length)]
        rates, scales = sorted({key[2] for key in mine}), sorted({key[3] for key in mine})
        table = [
            [_share(groups.get((loss, optimiser, rate, scale, length), [])) for rate in rates]
            for scale in scales
        ]
        inputs = "" if length == 1 else f", inputs × {length:.2g}"
        title = f"{NAMES[loss]} + {NAMES[optimiser]}{inputs}"
        if any(math.isfinite(share) for line in table for share in line):
            axes = ("learning rate", "initial scale")
            panels.append(Heatmap(table, title, *axes, x=rates, y=scales, limits=(0.0, 1.0)))
    return Figure(
        "two_stage_map",
        "Share of W^V's growth before W^K and W^Q start, by initial scale and learning rate",
        panels,
        f"Means over runs; two stages need {FIRST} or more, and W^V flat from then on: with "
        "cross-entropy and SGD it grows steadily instead. A cell is empty where a "
        f"matrix has not reached {GROWN:g} times its first norm after all steps, so that nothing "
        "can be told.",
    )


def _share(rows: Sequence[Row]) -> float:
    found = [stages(row) for row in rows]
    told = [s.value_first for s in found if s.value_grown and s.attention_grown]
    return sum(told) / len(told) if told and len(told) == len(found) else math.nan


STUDY = Study(
    name="two_stages",
    about="Does the value matrix grow first, and keys and queries only when it has stopped?",
    settings={
        Scale.SMOKE: TwoStages(
            **TINY,
            steps=50,
            long=False,
            adam_rates=(0.01,),
            sgd_rates=(0.3,),
            scales=(0.001, 0.05),
        ),
        Scale.LAPTOP: TwoStages(),
        Scale.PAPER: TwoStages(
            seeds=3,
            adam_rates=(0.0003, 0.001, 0.003, 0.01, 0.03),
            sgd_rates=(0.03, 0.1, 0.3, 1.0, 3.0),
            scales=(0.00001, 0.0001, 0.001, 0.01, 0.05),
        ),
    },
    units=units,
    run=run,
    claims=[Claim("li.fig-2.4", without_nan(judge), _REFUTED, held_by=_HELD)],
    figures=[curves_figure, map_figure],
)

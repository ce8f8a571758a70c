"""Does W^V grow first, and W^K and W^Q only when it has stopped [li, 2.1.4.1, 2.1.6.1]?

Norms of the three matrices over 1000 steps of simultaneous training, for several initial scales and
learning rates, SGD and Adam, cross-entropy and squared loss (the source does not say which its
figure has). What two stages are is in `stages`. Inputs are one-hot words, of length 1 or as long as
the authors' code makes them (see `topic_attention`).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from triptych.core.validation import UserError
from triptych.models.bags import StackedBags
from triptych.studies.api.decide import Verdict, at_least, decide, shown
from triptych.studies.api.figures import Figure, Heatmap, Panel, Series
from triptych.studies.api.study import Bench, Claim, Rows, Scale, Study
from triptych.studies.topics.shared.measures import held_out_meter
from triptych.studies.topics.shared.networks import (
    PAIRS,
    TINY,
    Optimiser,
    TopicSettings,
    TopicUnit,
    Training,
    pair_name,
    trained_together,
)
from triptych.studies.topics.shared.stage_checks import clearest as clearest_setting
from triptych.studies.topics.shared.stage_checks import rank, run_clearness
from triptych.studies.topics.shared.stages import EARLY, GROWN, HALF, SMALL, Stages, stages
from triptych.training.objectives import LossName

POINTS = 50  # of every curve that are kept
RUNS = 5  # of a setting, before it counts
SETTINGS = 12  # fewest that refute
LONG = 10_000  # steps after which W^K and W^Q that have not grown count as ones that do not


@dataclass(frozen=True, kw_only=True)
class TwoStages(TopicSettings):
    """Sizes: learning rates of both optimisers and initial scales.

    lengths    of the one-hot inputs; 0 stands for √V, as in the authors' code
    """

    seeds: int = 5
    steps: int = 1000
    lengths: tuple[float, ...] = (1.0, 0.0)
    adam_rates: tuple[float, ...] = (0.003,)
    sgd_rates: tuple[float, ...] = (0.3, 1.0)
    scales: tuple[float, ...] = (0.00001, 0.0001, 0.001)


@dataclass(frozen=True, kw_only=True)
class TrainScales(TopicUnit):
    """W^K, W^Q and W^V together; a network for every initial scale, all on the same documents."""

    loss: LossName
    optimiser: Optimiser
    learning_rate: float
    scales: tuple[float, ...]
    input_length: float
    steps: int

    def training(self, scale: float) -> Training:
        return Training(
            loss=self.loss,
            optimiser=self.optimiser,
            learning_rate=self.learning_rate,
            init_scale=scale,
            input_length=self.input_length,
            steps=self.steps,
        )


class Setting(NamedTuple):
    """What the runs of one setting share."""

    loss: LossName
    optimiser: Optimiser
    learning_rate: float
    init_scale: float
    input_length: float

    def __str__(self) -> str:
        """As "squared loss + SGD 0.1 from 0.001", with the length of inputs if it is not 1."""
        inputs = "" if self.input_length == 1 else f", inputs of length {self.input_length:.3g}"
        pair = pair_name(self.loss, self.optimiser)
        return f"{pair} {self.learning_rate:g} from {self.init_scale:g}{inputs}"


@dataclass(frozen=True, kw_only=True)
class Curves:
    """‖W^K‖, ‖W^Q‖ and ‖W^V‖ at some steps of one run."""

    seed: int
    loss: LossName
    optimiser: Optimiser
    learning_rate: float
    init_scale: float
    input_length: float
    held_out: float
    step: tuple[float, ...]
    key: tuple[float, ...]
    query: tuple[float, ...]
    value: tuple[float, ...]

    @property
    def setting(self) -> Setting:
        return Setting(
            self.loss, self.optimiser, self.learning_rate, self.init_scale, self.input_length
        )

    @property
    def stages(self) -> Stages:
        return stages(self.step, self.key, self.query, self.value)


@dataclass(frozen=True, kw_only=True)
class Diverged:
    """A run whose loss became infinite."""

    seed: int
    loss: LossName
    optimiser: Optimiser
    learning_rate: float
    init_scale: float
    input_length: float


Row = Curves | Diverged


def units(settings: TwoStages) -> Sequence[TrainScales]:
    """One per loss, optimiser, length, rate and seed."""
    if min(settings.lengths) < 0:
        raise UserError(f"lengths are {settings.lengths}; none may be below 0")
    rates = {"adam": settings.adam_rates, "sgd": settings.sgd_rates}
    root = math.sqrt(settings.documents.mask_token + 1)
    return [
        TrainScales.of(
            settings,
            loss=loss,
            optimiser=optimiser,
            learning_rate=rate,
            input_length=length or root,
            seed=seed,
        )
        for loss, optimiser in PAIRS
        for length in settings.lengths
        for rate in rates[optimiser]
        for seed in settings.run_seeds
    ]


def run(unit: TrainScales, bench: Bench) -> Iterable[Row]:
    """Train, and keep the norms at some steps."""
    documents, trainings = unit.documents, [unit.training(scale) for scale in unit.scales]
    kept = {round(unit.steps * i / POINTS) for i in range(POINTS + 1)}
    steps: list[float] = []
    norms: dict[str, list[list[float]]] = {"key": [], "query": [], "value": []}

    def watch(step: int, nets: StackedBags) -> None:
        steps.append(float(step))
        for part, found in norms.items():
            found.append(nets.norms(part).tolist())

    nets = trained_together(documents, trainings, unit.seed, watch=watch, at=kept)
    meter = held_out_meter(documents, trainings[0], 10_000 + unit.seed)
    for number, (scale, net) in enumerate(zip(unit.scales, nets, strict=True)):
        same = {
            "seed": unit.seed,
            "loss": unit.loss,
            "optimiser": unit.optimiser,
            "learning_rate": unit.learning_rate,
            "init_scale": scale,
            "input_length": unit.input_length,
        }
        if net is None:
            yield Diverged(**same)
            continue
        curves = {part: tuple(each[number] for each in found) for part, found in norms.items()}
        yield Curves(held_out=meter(net), step=tuple(steps), **curves, **same)


# ------------------------------------------------------------------ the judge


def by_setting(rows: Sequence[Curves]) -> dict[Setting, list[Curves]]:
    """Runs of each loss, optimiser, rate, scale and length of inputs."""
    found: dict[Setting, list[Curves]] = {}
    for row in rows:
        found.setdefault(row.setting, []).append(row)
    return found


def judge(rows: Rows[Row]) -> Verdict:
    """Some setting has two stages, by intervals over its runs.

    To confirm, one setting is enough: the clearest of many is chosen, so its confidence is
    corrected for their number, times four conditions. To refute, many settings must fail, each by
    its own 95 % intervals, and none may end before LONG steps when W^V has stopped and W^K and W^Q
    have not begun: a run that is cut off there says nothing about what comes second.
    """
    groups = {key: some for key, some in _by_steps(rows.of(Curves)).items() if len(some) >= RUNS}
    enough = at_least(f"settings with {RUNS} runs", len(groups), SETTINGS)
    if not groups:
        return decide(needs=[enough])
    found = {key: [row.stages for row in some] for key, some in groups.items()}
    clearest, checks = clearest_setting(found, 0.95)
    if rank(checks) > 0:
        clearest, checks = clearest_setting(found, 1 - 0.05 / (4 * len(groups)))
    two = sum(all(each.two for each in some) for some in found.values())
    own = sum(all(_in_its_own_scale(each) for each in some) for some in found.values())
    switch = sum(each.switch for each in found[clearest]) / len(found[clearest])
    stopped = {k: some for k, some in found.items() if all(map(_first_stage_over, some))}
    told = sum(
        steps >= LONG or all(each.grown > GROWN for each in some)
        for (_, steps), some in stopped.items()
    )
    until = at_least(
        f"settings that run until W^K and W^Q grow, or for {LONG:,} steps, of those whose W^V has "
        "stopped",
        told,
        len(stopped),
    )
    (setting, steps) = clearest
    return decide(
        *checks,
        shown(
            "clearest setting: step at which W^V has 80 % of its growth",
            switch,
            published=400.0,
        ),
        shown("settings in which every run has two stages", float(two)),
        shown(
            "settings that meet all conditions but the size of W^K and W^Q against W^V",
            float(own - two),
        ),
        needs=[] if rank(checks) == 2 else [enough, until],
        measured={"settings": len(groups), "clearest": str(setting), "steps": int(steps)},
    )


def _by_steps(rows: Sequence[Curves]) -> dict[tuple[Setting, float], list[Curves]]:
    """Settings of other lengths are other settings."""
    return {
        (key, steps): [row for row in some if row.step[-1] == steps]
        for key, some in by_setting(rows).items()
        for steps in sorted({row.step[-1] for row in some})
    }


def _first_stage_over(found: Stages) -> bool:
    """W^V has stopped in the first half, and W^K and W^Q are small then."""
    return found.size < SMALL and found.when < HALF


def _in_its_own_scale(found: Stages) -> bool:
    """Two stages if every matrix is drawn on axes of its own, as in the source."""
    return found.early < EARLY and found.when < HALF and found.grown > GROWN


# Norms at steps 0, 100, …, 1000: W^V rises until 400, W^K and W^Q only after that.
_LATE = (0.1, 0.1, 0.1, 0.1, 0.1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
_RISING = (0.1, 1.1, 2.1, 3.1, 4.1, 4.2, 4.2, 4.3, 4.3, 4.4, 4.4)


def _curves(seed: int, rate: float, value: Sequence[float], key: Sequence[float]) -> Curves:
    factor = 1 + 0.001 * seed
    return Curves(
        seed=seed,
        loss="squared",
        optimiser="adam",
        learning_rate=rate,
        init_scale=0.001,
        input_length=1.0,
        held_out=0.95,
        step=tuple(100.0 * i for i in range(11)),
        key=tuple(key),
        query=tuple(key),
        value=tuple(factor * norm for norm in value),
    )


_HELD = [_curves(seed, 0.001 * i, _RISING, _LATE) for i in range(1, 13) for seed in range(RUNS)]


def _with(
    *, value: Sequence[float] = _RISING, key: Sequence[float] = _LATE, first: float = 0.1
) -> list[Row]:
    """Every run with other curves; `first` is where W^K and W^Q start."""
    keys = tuple(max(norm, first) for norm in key)
    return [
        replace(row, key=keys, query=keys, value=tuple((1 + 0.001 * row.seed) * v for v in value))
        for row in _HELD
    ]


_REFUTED = [
    _with(first=1.4, key=tuple(3 * norm for norm in _LATE)),  # W^K is never small
    _with(key=(0.1, 0.2, 0.3, 0.4, 0.4, 0.5, 0.5, 0.6, 0.6, 0.7, 0.7)),  # W^K grows meanwhile
    _with(  # W^V never stops
        value=(0.1, 0.8, 1.4, 2.1, 2.7, 3.4, 4.0, 4.7, 5.3, 6.0, 6.6),
        key=(*[0.1] * 9, 0.5, 3.0),
    ),
    [  # W^K stays
        replace(row, step=tuple(12 * step for step in row.step))
        for row in _with(key=(0.1, 0.1, 0.1, 0.1, 0.1, 0.11, 0.12, 0.12, 0.13, 0.13, 0.13))
        if isinstance(row, Curves)
    ],
    _with(key=_RISING),  # all three alike
]


# ------------------------------------------------------------------ pictures


def curves_figure(rows: Rows[Row]) -> Figure:
    """Norms of the most and the least two-stage run."""
    ordered = sorted(rows.of(Curves), key=lambda row: run_clearness(row.stages))
    panels = []
    if ordered:
        chosen = {"the clearest": ordered[-1], "the least clear": ordered[0]}
        for name, row in chosen.items():
            series = [
                Series("W^V", "ours", row.step, row.value),
                Series("W^K", "control", row.step, row.key),
                Series("W^Q", "truth", row.step, row.query),
            ]
            title = f"{name}: {row.setting}"
            panels.append(Panel(series, "training step", "Frobenius norm", title))
    return Figure(
        "norm_curves",
        "Norms of the value, key and query matrices, trained together",
        panels,
        "Two stages: when W^V has made 80 % of its growth, W^K and W^Q have at most a fifth of its "
        "norm and of their own growth, and that is in the first half of the steps.",
    )


def map_figure(rows: Rows[Row]) -> Figure:
    """How large W^K and W^Q are at the switch, over (initial scale, rate)."""
    groups = by_setting(rows.of(Curves))
    panels: list[Panel | Heatmap] = []
    kinds = [
        (*pair, length) for pair in PAIRS for length in sorted({k.input_length for k in groups})
    ]
    scales = sorted({key.init_scale for key in groups})
    for loss, optimiser, length in kinds:
        rates = sorted({key.learning_rate for key in groups if key.optimiser == optimiser})
        table = [
            [_size(groups.get(Setting(loss, optimiser, rate, scale, length), [])) for rate in rates]
            for scale in scales
        ]
        inputs = "" if length == 1 else f", inputs × {length:.2g}"
        title = f"{pair_name(loss, optimiser)}{inputs}"
        if any(math.isfinite(size) for line in table for size in line):
            axes = ("learning rate", "initial scale")
            panels.append(Heatmap(table, title, *axes, x=rates, y=scales, limits=(0.0, 1.0)))
    return Figure(
        "two_stage_map",
        "W^K or W^Q over W^V when W^V has made 80 % of its growth, by initial scale and rate",
        panels,
        f"Means over runs, the larger norm of W^K and W^Q; two stages need {SMALL} or less. A cell "
        f"is empty where the second stage is missing: W^K or W^Q has not reached {GROWN:g} times "
        f"its first norm, or the switch is later than in the first half.",
    )


def _size(rows: Sequence[Curves]) -> float:
    found = [row.stages for row in rows]
    told = [each.size for each in found if each.grown > GROWN and each.when < HALF]
    return sum(told) / len(told) if told and len(told) == len(found) else math.nan


STUDY = Study(
    name="two_stages",
    question="Does the value matrix grow first, and keys and queries only when it has stopped?",
    settings={
        Scale.SMOKE: TwoStages(
            **TINY,
            first_seed=1,
            steps=50,
            lengths=(1.0,),
            adam_rates=(0.01,),
            sgd_rates=(0.3,),
            scales=(0.001, 0.05),
        ),
        Scale.LAPTOP: TwoStages(),
        Scale.PAPER: TwoStages(
            seeds=10,
            adam_rates=(0.001, 0.003, 0.01),
            sgd_rates=(0.1, 0.3, 1.0),
            scales=(0.00001, 0.0001, 0.001, 0.01),
        ),
    },
    units=units,
    run=run,
    rows=(Curves, Diverged),
    claims=[Claim("li.fig-2.4", judge, _REFUTED, held_by=_HELD)],
    figures=[curves_figure, map_figure],
    revision=2,
)

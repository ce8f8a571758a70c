"""The walk of VGB on enumerable trees: its law, the mass of the leaves, how fast it mixes
[li, 3.3.1].

A unit is a task with a verifier that is off by a known factor, at every height: V̂ is V* times
1 + ε or its inverse, by a coin for each prefix, and exact on full strings. Everything is exact;
the only randomness is in the choice of tables and errors.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from triptych.core.enumeration import exact_transition_matrix
from triptych.core.estimates import Estimate, mean
from triptych.core.protocols import Value
from triptych.core.table import Table, all_sequences
from triptych.core.validation import UserError
from triptych.inference.guided import vgb
from triptych.studies.api.decide import (
    Verdict,
    at_least,
    decide,
    exactly,
    largest,
    none,
    shown,
    within,
)
from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.study import Bench, Claim, Rows, Scale, Settings, Study, Unit
from triptych.studies.generation.shared.vgb_tasks import (
    DRAWN,
    TASKS,
    off_by,
    slope,
    task,
    trials,
)
from triptych.theory.generation import walks

FIRST_FITTED = 4  # lower trees have hardly an inner level, and mix in a handful of steps
EXPONENT, NEARER = 2.0, 0.5  # an exponent within this of 2 is nearer to it than to 1 or 3
HIGHEST_BY_STEPS = 5  # 2^5 leaves: the matrix is also enumerated from the sampler's step
LEAST_HEIGHT = 7  # below, a leaf mass of 2^-H could pass for one of order 1/H
LEAST_FITTED = 10  # and an exponent says little


@dataclass(frozen=True)
class VgbWalk(Settings):
    """Which walks.

    heights    H of the trees; with three letters those of at most 2^(largest H) leaves
    epsilons   the verifier is off by the factor 1 + ε or its inverse
    """

    seeds: int = 5
    heights: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
    epsilons: tuple[float, ...] = (0.0, 0.1, 0.3, 1.0)
    tasks: tuple[str, ...] = TASKS


@dataclass(frozen=True)
class WalkAlong(Unit):
    """A task and an error of the values, at every height."""

    task: str
    epsilon: float
    heights: tuple[int, ...]


@dataclass(frozen=True)
class Walked:
    """The walk on one tree, from its transition matrix.

    matrix_error    largest distance to the matrix of the sampler's own step; None for larger trees
    """

    task: str
    epsilon: float
    height: int
    seed: int
    invariance_error: float
    balance_error: float
    leaf_law_error: float
    leaf_mass: float
    relaxation_time: float
    mixing_time: float
    matrix_error: float | None


def units(settings: VgbWalk) -> Sequence[WalkAlong]:
    """One per task, error and seed; where nothing is random one seed does."""
    wrong = [name for name in settings.tasks if name not in TASKS]
    if wrong or min(settings.heights) < 1:
        raise UserError(
            f"tasks are {', '.join(TASKS)}, heights at least 1; given {settings.tasks} and "
            f"{settings.heights}"
        )
    found = []
    for name in settings.tasks:
        for epsilon in settings.epsilons:
            seeds = settings.seeds if epsilon > 0 or name in DRAWN else 1
            found += [
                WalkAlong(name, epsilon, settings.heights, seed=seed) for seed in range(seeds)
            ]
    return found


def run(unit: WalkAlong, bench: Bench) -> Iterable[Walked]:
    """One row per height."""
    for height in unit.heights:
        if unit.task == "three letters" and 3**height > 2 ** max(unit.heights):
            continue
        table, outcome = task(unit.task, height, unit.seed)
        value = off_by(unit.epsilon, table, outcome, unit.seed)
        yield _walked(unit, height, table, outcome, value)


def _walked(unit: WalkAlong, height: int, table: Table, outcome: Value, value: Value) -> Walked:
    """Invariance, balance, the law of the leaves and the speed, from the transition matrix."""
    walk = walks.Walk.of(table, value)
    step, law = walk.transition(), walk.stationary.numpy()
    flow = step.multiply(law[:, None]).tocsr()
    target = table.tilt(outcome.log_value).log_probs.exp()
    leaves = walks.given_leaf(walk, walk.stationary).log_probs.exp()
    small = table.vocab_size**table.length <= 2**HIGHEST_BY_STEPS
    return Walked(
        task=unit.task,
        epsilon=unit.epsilon,
        height=height,
        seed=unit.seed,
        invariance_error=float(np.abs(law @ step - law).max()),
        balance_error=float(abs(flow - flow.T).max()),
        leaf_law_error=float((leaves - target).abs().max()),
        leaf_mass=walks.leaf_mass(walk),
        relaxation_time=walks.relaxation_time(walk),
        mixing_time=float(walks.mixing_time(walk)),
        matrix_error=_difference_from_steps(walk, table, value)
        if small and unit.seed == 0
        else None,
    )


def _difference_from_steps(walk: walks.Walk, table: Table, value: Value) -> float:
    """Largest entry by which the matrix differs from that of the sampler's own step."""
    nodes = [
        tuple(all_sequences(table.vocab_size, depth)[rank].tolist())
        for depth, rank in zip(walk.depth.tolist(), walk.rank.tolist(), strict=True)
    ]
    matrix = exact_transition_matrix(
        nodes, lambda node, rng: vgb.walk_step(node, table, value, table.length, rng)
    )
    return float((matrix - torch.from_numpy(walk.transition().toarray())).abs().max())


# ------------------------------------------------------------------ the stationary law


def judge_stationary(rows: Rows[Walked]) -> Verdict:
    """Reversible, right on the leaves, with the mass there that values within 1 + ε promise.

    That is 1 / (2 (1 + (H - 1)(1 + ε))), of order 1/H. The matrix must be that of the sampler's own
    step: else the rows are about another walk, and decide nothing.
    """
    walked = rows.of(Walked)
    compared = [row.matrix_error for row in walked if row.matrix_error is not None]
    short = [
        row
        for row in walked
        if not row.leaf_mass >= walks.leaf_mass_bound(row.height, row.epsilon) * (1 - 1e-9)
    ]
    least = (
        [
            shown(
                "smallest share of the time spent on leaves, times H",
                min(r.leaf_mass * r.height for r in walked),
            )
        ]
        if walked
        else []
    )
    return decide(
        exactly(
            "one step leaves the stationary law as it is (π P = π), largest error",
            largest([r.invariance_error for r in walked]),
        ),
        exactly(
            "the walk is reversible (detailed balance), largest error",
            largest([r.balance_error for r in walked]),
        ),
        exactly(
            "stationary law on the leaves minus the target, largest error",
            largest([row.leaf_law_error for row in walked]),
        ),
        none(
            "trees on whose leaves the walk spends less of its time than promised",
            len(short),
            of=len(walked),
        ),
        *least,
        needs=[
            at_least("height of the trees", _highest(walked), LEAST_HEIGHT),
            at_least("trees compared with the sampler's own step", len(compared), 1),
            at_least(
                "of these with the same matrix", sum(e <= 1e-9 for e in compared), len(compared)
            ),
        ],
    )


def _highest(rows: Sequence[Walked]) -> int:
    return max((row.height for row in rows), default=0)


# ------------------------------------------------------------------ the speed


def exponents(rows: Sequence[Walked], time: Callable[[Walked], float]) -> list[float]:
    """Slope of log time on log H, over heights from 4 on; a mean over tasks for each seed.

    The rows are of one ε. Where nothing is random a task has one seed, and counts in every one.
    Worked value: 16, 36, 64 at H = 4, 6, 8 have slope 2.
    """
    series: dict[tuple[str, int], list[tuple[float, float]]] = {}
    seeds = {row.seed for row in rows}
    for row in rows:
        if row.height >= FIRST_FITTED:
            point = (math.log(row.height), math.log(time(row)))
            fixed = row.epsilon == 0 and row.task not in DRAWN
            for seed in seeds if fixed else (row.seed,):
                series.setdefault((row.task, seed), []).append(point)
    return trials({key: slope(points) for key, points in series.items() if len(points) >= 3})


def judge_mixing(rows: Rows[Walked]) -> Verdict:
    """For every ε, relaxation and mixing time grow with an exponent nearer to 2 than to 1 or 3.

    And no relaxation time exceeds what is proved, 8 (2H - 1)² (1 + ε)⁴, nor (1 + ε)² times that of
    exact values: every conductance changes by at most 1 + ε. Exponents have t intervals over seeds,
    of means over tasks, at 95 % for all of them together.
    """
    walked = rows.of(Walked)
    epsilons = sorted({row.epsilon for row in walked})
    over = [
        row
        for row in walked
        if not row.relaxation_time <= walks.relaxation_bound(row.height, row.epsilon) * (1 + 1e-9)
    ]
    slower = _slower(walked)
    times: dict[str, Callable[[Walked], float]] = {
        "relaxation time": lambda row: row.relaxation_time,
        "mixing time": lambda row: row.mixing_time,
    }
    found: list[tuple[str, list[float]]] = []
    for epsilon in epsilons:
        chosen = [row for row in walked if row.epsilon == epsilon]
        for name, time in times.items():
            said = f"ε = {epsilon:g}: power of the height H with which the {name} grows"
            found.append((said, exponents(chosen, time)))
    fitted = [(said, slopes) for said, slopes in found if slopes]
    return decide(
        none("walks whose relaxation time is above the proved bound", len(over), of=len(walked)),
        *[
            exactly(
                f"ε = {epsilon:g}: relaxation time divided by that of exact values",
                factor,
                below=(1 + epsilon) ** 2 * (1 + 1e-6),
            )
            for epsilon, factor in slower.items()
        ],
        *[
            within(said, _together(slopes, len(fitted)), EXPONENT, by=NEARER)
            for said, slopes in fitted
        ],
        needs=[
            at_least("exponents with three heights from 4 on", len(fitted), max(1, len(found))),
            at_least("height of the trees", _highest(walked), LEAST_FITTED),
        ],
    )


def _together(slopes: Sequence[float], intervals: int) -> Estimate:
    """An interval that, with the others, is right with 95 %."""
    return mean(slopes, confidence=1 - 0.05 / intervals)


def _slower(rows: Sequence[Walked]) -> Mapping[float, float]:
    """For every ε, the largest ratio of relaxation times to that of exact values."""
    exact = {
        (row.task, row.height, _table_seed(row)): row.relaxation_time
        for row in rows
        if row.epsilon == 0
    }
    ratios: dict[float, list[float]] = {}
    for row in rows:
        base = exact.get((row.task, row.height, _table_seed(row)))
        if base is not None and row.epsilon > 0:
            ratios.setdefault(row.epsilon, []).append(row.relaxation_time / base)
    return {epsilon: largest(values) for epsilon, values in sorted(ratios.items())}


def _table_seed(row: Walked) -> int:
    """Only the random tables depend on the seed."""
    return row.seed if row.task in DRAWN else 0


def speed_figure(rows: Rows[Walked]) -> Figure:
    """Relaxation and mixing times against H, by ε, with an H² guide."""
    walked = rows.of(Walked)
    heights = sorted({row.height for row in walked})
    epsilons = sorted({row.epsilon for row in walked})
    times: list[tuple[Callable[[Walked], float], str, float]] = [
        (lambda row: row.relaxation_time, "relaxation time 1 / gap", 16 / math.pi**2),
        (lambda row: row.mixing_time, "steps from the root to total variation ¼", 0.4),
    ]
    panels = []
    for time, title, guide in times:
        series = [
            Series(f"H² × {guide:.2g}", "truth", heights, [guide * h * h for h in heights]),
        ]
        for epsilon in epsilons:
            of = [
                sorted(time(r) for r in walked if r.height == h and r.epsilon == epsilon)
                for h in heights
            ]
            ends = epsilon == epsilons[-1]
            series.append(
                Series(
                    "exact values" if epsilon == 0 else f"ε = {epsilon:g}",
                    "control" if epsilon == 0 else "ours",
                    heights,
                    [values[len(values) // 2] for values in of],
                    [values[0] for values in of] if ends else (),
                    [values[-1] for values in of] if ends else (),
                )
            )
        panels.append(Panel(series, "height H", "steps", title, x_log=True, y_log=True))
    return Figure(
        "mixing",
        "How many steps VGB's walk takes to mix, also with values off by a factor 1 + ε",
        panels,
        "Exact, by linear algebra on the whole tree. Lines are medians over tasks and seeds; the "
        "band, for the largest ε, runs from the fastest (the single path of “all zeros”) to the "
        "slowest.",
    )


def leaves_figure(rows: Rows[Walked]) -> Figure:
    """Leaf mass against H."""
    walked = rows.of(Walked)
    heights = sorted({row.height for row in walked})
    worst = max(row.epsilon for row in walked)
    of = [
        sorted(row.leaf_mass for row in walked if row.height == h and row.epsilon == worst)
        for h in heights
    ]
    series = [
        Series("exact values: 1 / 2H", "truth", heights, [1 / (2 * h) for h in heights]),
        Series(
            f"promised for ε = {worst:g}",
            "control",
            heights,
            [walks.leaf_mass_bound(h, worst) for h in heights],
        ),
        Series(
            f"ε = {worst:g}, all tasks",
            "ours",
            heights,
            [values[len(values) // 2] for values in of],
            [values[0] for values in of],
            [values[-1] for values in of],
        ),
    ]
    return Figure(
        "leaf_mass",
        "How much of its time the walk is at a full string",
        [Panel(series, "height H", "stationary mass of the leaves", x_log=True, y_log=True)],
        "Median over tasks and seeds; the band runs from the smallest to the largest.",
    )


def _law(height: int) -> Walked:
    return Walked("parity", 0.0, height, 0, 0.0, 0.0, 0.0, 1 / (2 * height), 1.0, 1.0, 0.0)


def _speed(name: str, height: int, seed: int = 0) -> Walked:
    row = replace(_law(height), task=name, seed=seed, relaxation_time=2.0 * height**2)
    return replace(row, mixing_time=1.0 * height**2)


_SEEDS = {"parity": (0,), "random": (0, 1, 2)}  # with exact values nothing is random in parity
_SPEED = [
    _speed(name, height, seed)
    for name, seeds in _SEEDS.items()
    for seed in seeds
    for height in (4, 7, 10)
]
_OFF = [
    *_SPEED,
    *(
        replace(_speed(name, height, seed), epsilon=0.1)
        for name in _SEEDS
        for seed in (0, 1, 2)
        for height in (4, 7, 10)
    ),
]

STUDY = Study(
    name="vgb_walk",
    question="Which law does VGB's walk have, how often is it at a leaf, how fast does it mix?",
    settings={
        Scale.SMOKE: VgbWalk(
            seeds=1, heights=(2, 6, 8), epsilons=(0.0, 1.0), tasks=("some zero", "random")
        ),
        Scale.LAPTOP: VgbWalk(),
        Scale.PAPER: VgbWalk(
            seeds=20, heights=tuple(range(2, 15)), epsilons=(0.0, 0.1, 0.3, 0.5, 1.0, 2.0)
        ),
    },
    units=units,
    run=run,
    rows=(Walked,),
    claims=[
        Claim(
            "li.vgb-stationary",
            judge_stationary,
            refuted_by=[
                [replace(_law(10), leaf_law_error=0.01)],
                [replace(_law(10), balance_error=0.01)],
                [replace(_law(10), invariance_error=0.01)],
                [replace(_law(10), leaf_mass=2.0**-10)],
            ],
            held_by=[_law(10)],
        ),
        Claim(
            "li.vgb-mixing",
            judge_mixing,
            refuted_by=[
                [replace(row, relaxation_time=float(row.height)) for row in _OFF],
                [replace(row, mixing_time=float(row.height) ** 3) for row in _OFF],
                [replace(row, relaxation_time=10.0, mixing_time=10.0) for row in _OFF],  # no growth
                [replace(row, relaxation_time=1e6) for row in _OFF],
                [*_OFF, replace(_speed("parity", 7), epsilon=0.1, relaxation_time=98.0 * 1.3)],
            ],
            held_by=_OFF,
        ),
    ],
    figures=[speed_figure, leaves_figure],
)

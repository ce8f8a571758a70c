"""The walk of VGB on enumerable trees: its law, the mass of the leaves, how fast it mixes
[li, 3.3.1].

A unit is a task with a verifier that is off by a known factor, at every height: V̂ is V* times
1 + ε or its inverse, by a coin for each prefix, and exact on full strings. Everything is exact;
the only randomness is in the choice of tables and errors.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from triptych.core.estimates import Estimate, Outcome, mean
from triptych.core.protocols import Value
from triptych.core.randomness import exact_transition_matrix
from triptych.core.table import Table, all_sequences
from triptych.inference import vgb
from triptych.studies.figures import Figure, Panel, Series
from triptych.studies.judging import all_of, judge_equal, largest, rows_of
from triptych.studies.study import Bench, Claim, Row, Rows, Scale, Settings, Study, Unit, Verdict
from triptych.studies.vgb_tasks import DRAWN, TASKS, off_by, slope, task, trials
from triptych.theory import walks

FIRST_FITTED = 4  # lower trees have hardly an inner level, and mix in a handful of steps
LOW, HIGH = 1.5, 2.5  # an exponent between these is nearer to 2 than to 1 or 3
HIGHEST_BY_STEPS = 5  # 2^5 leaves: the matrix is also enumerated from the sampler's step
LEAST_HEIGHT = 7  # below, a leaf mass of 2^-H could pass for one of order 1/H


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


def units(settings: VgbWalk) -> Sequence[Unit]:
    """One per task, error and seed; where nothing is random one seed does."""
    wrong = [name for name in settings.tasks if name not in TASKS]
    if wrong or min(settings.heights) < 1:
        raise ValueError(
            f"tasks are {', '.join(TASKS)}, heights at least 1; given {settings.tasks} and "
            f"{settings.heights}"
        )
    found = []
    for name in settings.tasks:
        for epsilon in settings.epsilons:
            random = epsilon > 0 or name in DRAWN
            common = {"task": name, "epsilon": epsilon, "heights": settings.heights}
            found += [Unit(common, seed) for seed in range(settings.seeds if random else 1)]
    return found


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    """One row per height."""
    name, epsilon = unit.parameters["task"], unit.parameters["epsilon"]
    heights = unit.parameters["heights"]
    for height in heights:
        if name == "three letters" and 3**height > 2 ** max(heights):
            continue
        table, outcome = task(name, height, unit.seed)
        value = off_by(epsilon, table, outcome, unit.seed)
        yield {
            "kind": "walk",
            "task": name,
            "epsilon": epsilon,
            "height": height,
            "seed": unit.seed,
            **_facts(table, outcome, value, compared=unit.seed == 0),
        }


def _facts(table: Table, outcome: Value, value: Value, *, compared: bool) -> Row:
    """Invariance, balance, the law of the leaves and the speed, from the transition matrix."""
    walk = walks.Walk.of(table, value)
    step, law = walk.transition(), walk.stationary.numpy()
    flow = step.multiply(law[:, None]).tocsr()
    target = table.tilt(outcome.log_value).log_probs.exp()
    leaves = walks.given_leaf(walk, walk.stationary).log_probs.exp()
    row: Row = {
        "invariance_error": float(np.abs(law @ step - law).max()),
        "balance_error": float(abs(flow - flow.T).max()),
        "leaf_law_error": float((leaves - target).abs().max()),
        "leaf_mass": walks.leaf_mass(walk),
        "relaxation_time": walks.relaxation_time(walk),
        "mixing_time": float(walks.mixing_time(walk)),
    }
    small = table.vocab_size**table.length <= 2**HIGHEST_BY_STEPS
    off = _difference_from_steps(walk, table, value) if small and compared else None
    row["matrix_error"] = off
    return row


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


def judge_stationary(rows: Rows) -> Verdict:
    """Reversible, right on the leaves, with the mass there that values within 1 + ε promise.

    That is 1 / (2 (1 + (H - 1)(1 + ε))), of order 1/H. UNDECIDED without trees of height 7.
    """
    mine = rows_of(rows, "walk")
    verdict = judge_equal(
        mine,
        ["invariance_error", "balance_error", "leaf_law_error"],
        "reversible, leaves follow pV",
    )
    if verdict.outcome is not Outcome.HOLDS:
        return verdict
    compared = [row["matrix_error"] for row in mine if row["matrix_error"] is not None]
    off = largest(compared) if compared else math.nan
    share = -largest(
        [-row["leaf_mass"] / walks.leaf_mass_bound(row["height"], row["epsilon"]) for row in mine]
    )
    order = -largest([-row["leaf_mass"] * row["height"] for row in mine])
    measured = {
        **verdict.measured,
        "matrix_error": off,
        "leaf_mass_over_bound": share,
        "leaf_mass_times_height": order,
    }
    because = (
        f"{verdict.because}; the sampler's own step agrees to {off:.0e}; leaf mass is at least "
        f"{order:.2f} / H, and {share:.2f} times what values within 1 + ε promise"
    )
    if off > 1e-9 or not share >= 1 - 1e-9:
        return Verdict(Outcome.FAILS, because, measured)
    if math.isnan(off) or max(row["height"] for row in mine) < LEAST_HEIGHT:
        because = f"trees of height {LEAST_HEIGHT} and enumerated ones are needed; {because}"
        return Verdict(Outcome.UNDECIDED, because, measured)
    return Verdict(Outcome.HOLDS, because, measured)


# ------------------------------------------------------------------ the speed


def exponents(rows: Sequence[Row], column: str) -> list[float]:
    """Slope of log column on log H, over heights from 4 on; a mean over tasks for each seed.

    The rows are of one ε. Where nothing is random a task has one seed, and counts in every one.
    Worked value: 16, 36, 64 at H = 4, 6, 8 have slope 2.
    """
    series: dict[tuple[str, int], list[tuple[float, float]]] = {}
    seeds = {row["seed"] for row in rows}
    for row in rows:
        if row["height"] >= FIRST_FITTED:
            point = (math.log(row["height"]), math.log(row[column]))
            fixed = row["epsilon"] == 0 and row["task"] not in DRAWN
            for seed in seeds if fixed else (row["seed"],):
                series.setdefault((row["task"], seed), []).append(point)
    return trials({key: slope(points) for key, points in series.items() if len(points) >= 3})


def judge_mixing(rows: Rows) -> Verdict:
    """For every ε, relaxation and mixing time grow with an exponent nearer to 2 than to 1 or 3.

    And no relaxation time exceeds what is proved, 8 (2H - 1)² (1 + ε)⁴, nor (1 + ε)² times that of
    exact values: every conductance changes by at most 1 + ε. Exponents have 95 % t intervals over
    seeds, of means over tasks; UNDECIDED while one of them crosses 1.5 or 2.5, or no tree is as
    high as 10.
    """
    mine = rows_of(rows, "walk")
    if not mine:
        return Verdict(Outcome.UNDECIDED, "there are no rows yet")
    numbers = [float(row[k]) for row in mine for k in ("relaxation_time", "mixing_time", "epsilon")]
    if not all(value > -1 and math.isfinite(value) for value in numbers):
        return Verdict(Outcome.UNDECIDED, "a time is not a number")
    share = largest(
        [
            row["relaxation_time"] / walks.relaxation_bound(row["height"], row["epsilon"])
            for row in mine
        ]
    )
    slower = _slower(mine)
    measured: dict[str, Any] = {
        "relaxation_over_bound": share,
        "slower_by": {str(e): s for e, s in slower.items()},
    }
    if not share <= 1 + 1e-9:
        because = f"a relaxation time is {share:.2f} times the proved bound"
        return Verdict(Outcome.FAILS, because, measured)
    if any(not s <= (1 + e) ** 2 * (1 + 1e-6) for e, s in slower.items()):
        because = "values off by 1 + ε slow the walk by more than (1 + ε)²"
        return Verdict(Outcome.FAILS, because, measured)
    found: list[Estimate] = []
    for epsilon in sorted({row["epsilon"] for row in mine}):
        chosen = [row for row in mine if row["epsilon"] == epsilon]
        for column in ("relaxation_time", "mixing_time"):
            slopes = exponents(chosen, column)
            if not slopes:
                return Verdict(Outcome.UNDECIDED, "three heights from 4 on are needed", measured)
            estimate = mean(slopes)
            found.append(estimate)
            measured[f"{column}, ε = {epsilon:g}"] = [estimate.value, estimate.low, estimate.high]
    outcomes = [_about_two(estimate) for estimate in found]
    shown = ", ".join(f"×{slow:.2f} at ε = {e:g}" for e, slow in slower.items() if e > 0)
    because = (
        f"relaxation and mixing times grow like H to the power {min(e.value for e in found):.2f} "
        f"to {max(e.value for e in found):.2f} (95 % intervals within "
        f"{min(e.low for e in found):.2f}..{max(e.high for e in found):.2f}); slower with wrong "
        f"values by at most {shown or 'nothing'}"
    )
    outcome = all_of(outcomes)
    if outcome is Outcome.HOLDS and max(row["height"] for row in mine) < 10:
        return Verdict(Outcome.UNDECIDED, "trees of height 10 are needed; " + because, measured)
    return Verdict(outcome, because, measured)


def _about_two(exponent: Estimate) -> Outcome:
    if exponent.low > LOW and exponent.high < HIGH:
        return Outcome.HOLDS
    apart = exponent.high < LOW or exponent.low > HIGH
    return Outcome.FAILS if apart else Outcome.UNDECIDED


def _slower(rows: Sequence[Row]) -> Mapping[float, float]:
    """For every ε, the largest ratio of relaxation times to that of exact values."""
    exact = {
        (row["task"], row["height"], _table_seed(row)): row["relaxation_time"]
        for row in rows
        if row["epsilon"] == 0
    }
    ratios: dict[float, list[float]] = {}
    for row in rows:
        base = exact.get((row["task"], row["height"], _table_seed(row)))
        if base is not None:
            ratios.setdefault(row["epsilon"], []).append(row["relaxation_time"] / base)
    return {epsilon: largest(values) for epsilon, values in sorted(ratios.items())}


def _table_seed(row: Mapping[str, Any]) -> int:
    """Only the random tables depend on the seed."""
    return row["seed"] if row["task"] in DRAWN else 0


def speed_figure(rows: Rows) -> Figure:
    """Relaxation and mixing times against H, by ε, with an H² guide."""
    mine = rows_of(rows, "walk")
    heights = sorted({row["height"] for row in mine})
    epsilons = sorted({row["epsilon"] for row in mine})
    panels = []
    for column, title, guide in (
        ("relaxation_time", "relaxation time 1 / gap", 16 / math.pi**2),
        ("mixing_time", "steps from the root to total variation ¼", 0.4),
    ):
        series = [
            Series(f"H² × {guide:.2g}", "truth", heights, [guide * h * h for h in heights]),
        ]
        for epsilon in epsilons:
            of = [
                [row[column] for row in mine if row["height"] == h and row["epsilon"] == epsilon]
                for h in heights
            ]
            series.append(
                Series(
                    "exact values" if epsilon == 0 else f"ε = {epsilon:g}",
                    "control" if epsilon == 0 else "ours",
                    heights,
                    [sorted(values)[len(values) // 2] for values in of],
                    [min(values) for values in of] if epsilon == epsilons[-1] else (),
                    [max(values) for values in of] if epsilon == epsilons[-1] else (),
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


def leaves_figure(rows: Rows) -> Figure:
    """Leaf mass against H."""
    mine = rows_of(rows, "walk")
    heights = sorted({row["height"] for row in mine})
    worst = max(row["epsilon"] for row in mine)
    series = [
        Series("exact values: 1 / 2H", "truth", heights, [1 / (2 * h) for h in heights]),
        Series(
            f"promised for ε = {worst:g}",
            "control",
            heights,
            [walks.leaf_mass_bound(h, worst) for h in heights],
        ),
    ]
    of = [
        [row["leaf_mass"] for row in mine if row["height"] == h and row["epsilon"] == worst]
        for h in heights
    ]
    series.append(
        Series(
            f"ε = {worst:g}, all tasks",
            "ours",
            heights,
            [sorted(values)[len(values) // 2] for values in of],
            [min(values) for values in of],
            [max(values) for values in of],
        )
    )
    return Figure(
        "leaf_mass",
        "The walk is at a full string a share of the time that falls like 1/H",
        [Panel(series, "height H", "stationary mass of the leaves", x_log=True, y_log=True)],
        "Median over tasks and seeds; the band runs from the smallest to the largest.",
    )


def _law_row(height: int, **changes: Any) -> Row:
    errors = ("invariance_error", "balance_error", "leaf_law_error", "matrix_error")
    row: Row = {"kind": "walk", "epsilon": 0.0, "height": height, "leaf_mass": 1 / (2 * height)}
    return row | dict.fromkeys(errors, 0.0) | changes


def _speed_row(name: str, height: int, **changes: Any) -> Row:
    row: Row = {"kind": "walk", "task": name, "epsilon": 0.0, "height": height, "seed": 0}
    return row | {"relaxation_time": 2.0 * height**2, "mixing_time": 1.0 * height**2} | changes


def _speed_rows(**changes: Any) -> list[Row]:
    of = [("parity", 0), ("random", 0), ("random", 1), ("random", 2)]
    return [_speed_row(name, h, seed=s, **changes) for name, s in of for h in (4, 7, 10)]


def _grown(column: str, power: float) -> list[Row]:
    return [row | {column: float(row["height"]) ** power} for row in _speed_rows()]


STUDY = Study(
    name="vgb_walk",
    about="Which law does the walk of VGB have, how often is it at a leaf, how fast does it mix?",
    settings={
        Scale.SMOKE: VgbWalk(
            seeds=3, heights=(2, 6, 8, 10), epsilons=(0.0, 1.0), tasks=("some zero", "random")
        ),
        Scale.LAPTOP: VgbWalk(),
        Scale.PAPER: VgbWalk(
            seeds=20, heights=tuple(range(2, 15)), epsilons=(0.0, 0.1, 0.3, 0.5, 1.0, 2.0)
        ),
    },
    units=units,
    run=run,
    claims=[
        Claim(
            "li.vgb-stationary",
            judge_stationary,
            [
                [_law_row(10, leaf_law_error=0.01)],
                [_law_row(10, balance_error=0.01)],
                [_law_row(10, invariance_error=0.01)],
                [_law_row(10, matrix_error=0.01)],
                [_law_row(10, leaf_mass=2.0**-10)],
            ],
            held_by=[_law_row(10)],
        ),
        Claim(
            "li.vgb-mixing",
            judge_mixing,
            [
                _grown("relaxation_time", 1.0),
                _grown("mixing_time", 3.0),
                _speed_rows(relaxation_time=1e6),
                [
                    *_speed_rows(),
                    _speed_row("parity", 7, epsilon=0.1, relaxation_time=2.0 * 49 * 1.3),
                ],
            ],
            held_by=_speed_rows(),
        ),
    ],
    figures=[speed_figure, leaves_figure],
)

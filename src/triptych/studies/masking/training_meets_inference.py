"""One constant for two questions: how well do masks train, how fast do they sample [li, 4.1.2]?

A mask law hides blocks in training and redraws blocks in sampling. The Poincaré constant C of the
second bounds what is lost by the first: the variance of masked training is at most C times that of
maximum likelihood, in every direction [li, Thms 4.1.2, 4.1.3]. And C is the relaxation time of the
sampler, so (C - 1) ln 2 ≤ t_mix ≤ C ln(4 / p_min). Here all of it is computed on eight spins, with
many mask laws and couplings. No entry of the ledger is decided here; `exact_masking` does that.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.study import Bench, Rows, Scale, Settings, Study, Unit
from triptych.studies.masking.shared.models import efficiency, ising_named, law_named
from triptych.theory.masking import information
from triptych.theory.masking.blocks.dynamics import BlockDynamics, poincare_constant
from triptych.theory.masking.blocks.mixing import mixing_time
from triptych.theory.masking.families import IsingFamily

DISTANCE = 0.25  # total variation at which a sampler counts as mixed
_DRAWN = {  # mask laws with a line of their own
    "size 1": "one position",
    "size 2": "two positions",
    "size 4": "four positions",
    "spans 4": "a run of four",
    "ones 1.5": "masks that prefer ones",
}


@dataclass(frozen=True)
class Meeting(Settings):
    """Sizes.

    graphs   by name and size
    pulls    coupling times the largest number of neighbours of a spin
    laws     mask laws
    """

    graphs: tuple[str, ...] = ("chain 8", "grid 2 4", "clique 8")
    pulls: tuple[float, ...] = (0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.4, 2.8)
    laws: tuple[str, ...] = (
        "size 1",
        "size 2",
        "size 3",
        "size 4",
        "size 6",
        "spans 2",
        "spans 4",
        "independent 0.15",
        "independent 0.4",
        "ones 1.5",
        "changes 1.5",
    )


@dataclass(frozen=True)
class Measure(Unit):
    """One graph at one coupling, under every mask law."""

    graph: str
    pull: float
    laws: tuple[str, ...]


@dataclass(frozen=True)
class MaskLawCosts:
    """What one mask law costs in training and in sampling.

    poincare       C of the sampler
    worst_ratio    variance over that of maximum likelihood, in the worst direction
    trace_ratio    the same on average over the parameters
    mixing_time    steps to total variation ¼ from the worst start
    smallest       p_min, of the law of the spins
    """

    graph: str
    pull: float
    law: str
    adaptive: bool
    poincare: float
    worst_ratio: float
    trace_ratio: float
    mixing_time: float
    smallest: float


def units(settings: Meeting) -> Sequence[Measure]:
    """One per graph and pull."""
    return [
        Measure(graph, pull, settings.laws, seed=0)
        for graph in settings.graphs
        for pull in settings.pulls
    ]


def neighbours(graph: str) -> int:
    """The largest number of neighbours of a spin. Worked value: 3 in a grid of 2 × 4."""
    kind, *sizes = graph.split()
    if kind == "clique":
        return int(sizes[0]) - 1
    sides = [1, *map(int, sizes)][-2:]
    return sum(min(side - 1, 2) for side in sides)


def run(unit: Measure, bench: Bench) -> Iterable[MaskLawCosts]:
    """One row per mask law."""
    family = IsingFamily(ising_named(f"{unit.graph} {unit.pull / neighbours(unit.graph)}"))
    table, fisher = family.table, information.fisher(family)
    for law in unit.laws:
        masks = law_named(law, family.length)
        dynamics = BlockDynamics(table, masks)
        # at the truth the Hessian is the covariance of the scores [li, Lemma 4.1.2]
        gamma = torch.linalg.inv(information.score_covariance(family, masks))
        worst, average = efficiency(fisher, gamma)
        yield MaskLawCosts(
            graph=unit.graph,
            pull=unit.pull,
            law=law,
            adaptive=masks.adaptive,
            poincare=poincare_constant(dynamics),
            worst_ratio=worst,
            trace_ratio=average,
            mixing_time=mixing_time(dynamics, DISTANCE),
            smallest=float(table.log_probs.exp().min()),
        )


# ------------------------------------------------------------------ what the rows say

Column = Callable[[MaskLawCosts], float]


def worst_ratio(row: MaskLawCosts) -> float:
    return row.worst_ratio


def trace_ratio(row: MaskLawCosts) -> float:
    return row.trace_ratio


def steps_to_mix(row: MaskLawCosts) -> float:
    return row.mixing_time


def share(rows: Sequence[MaskLawCosts], column: Column) -> tuple[float, float]:
    """The least and the largest of column / C. Worked value: 3 at C = 4 and 1 at C = 1: ¾, 1."""
    found = [column(row) / row.poincare for row in rows] or [math.nan]
    return min(found), max(found)


def rank_correlation(rows: Sequence[MaskLawCosts], column: Column) -> float:
    """Spearman's correlation of the column with C over all rows; nan with fewer than three.

    Worked value: 1 where the one is an increasing function of the other.
    """
    constants, values = [row.poincare for row in rows], [column(row) for row in rows]
    if len(rows) < 3 or min(values) == max(values) or min(constants) == max(constants):
        return math.nan
    return float(np.corrcoef(stats.rankdata(constants), stats.rankdata(values))[0, 1])


def _figure(rows: Rows[MaskLawCosts], graph: str) -> Figure:
    """Loss in training and time of sampling against C, on one graph."""
    every = rows.of(MaskLawCosts)
    chosen = [row for row in every if row.graph.split()[0] == graph]
    spins = max((math.prod(map(int, row.graph.split()[1:])) for row in chosen), default=0)
    constants = [row.poincare for row in chosen] or [1.0, 2.0]
    low, high = min(constants), max(constants)
    along = [max(low, 1.5) * (high / max(low, 1.5)) ** (i / 40) for i in range(41)]
    widest = max((math.log(4 / row.smallest) for row in chosen), default=1.0)
    bound = Series("at most C", "truth", [low, high], [low, high])
    least = Series("at least (C − 1) ln 2", "truth", along, [(c - 1) * math.log(2) for c in along])
    most = Series(f"at most C × {widest:.2g}", "truth", along, [c * widest for c in along])
    used, mixed = share(chosen, worst_ratio), share(chosen, steps_to_mix)
    average = [row.trace_ratio for row in chosen] or [math.nan]
    times = "times maximum likelihood"
    return Figure(
        f"training_meets_inference_{graph}",
        "Variance lost in training and steps to mix, against the Poincaré constant of the masks "
        f"({spins} spins, {graph})",
        [
            _panel(chosen, worst_ratio, times, "Training: lost in the worst direction", [bound]),
            _panel(chosen, steps_to_mix, "steps", "Sampling: steps until mixed", [least, most]),
            _panel(chosen, trace_ratio, times, "Training: lost on average", [bound]),
        ],
        "A line is one law of the block that training hides and sampling redraws; along it the "
        "coupling of the spins grows from none. Left: variance of masked training divided by that "
        f"of maximum likelihood in its worst direction, {used[0]:.0%} to {used[1]:.0%} of C here. "
        "Middle: steps to total variation ¼ from the worst start, "
        f"{mixed[0]:.2g} to {mixed[1]:.2g} times C, between (C − 1) ln 2 and C ln(4/p_min). "
        "Right: the left ratio averaged over the parameters, which is "
        f"between {min(average):.2g} and {max(average):.2g}. Rank correlation with C over all "
        f"{len(every)} combinations of graph, coupling and law: "
        f"{rank_correlation(every, worst_ratio):.2f}, {rank_correlation(every, steps_to_mix):.2f} "
        f"and {rank_correlation(every, trace_ratio):.2f}.",
    )


def grid_figure(rows: Rows[MaskLawCosts]) -> Figure:
    return _figure(rows, "grid")


def chain_figure(rows: Rows[MaskLawCosts]) -> Figure:
    return _figure(rows, "chain")


def clique_figure(rows: Rows[MaskLawCosts]) -> Figure:
    return _figure(rows, "clique")


def _panel(
    rows: Sequence[MaskLawCosts], column: Column, label: str, title: str, lines: Sequence[Series]
) -> Panel:
    series = list(lines)
    for law, name in _DRAWN.items():
        found = sorted((row for row in rows if row.law == law), key=lambda row: row.pull)
        if found:
            x, y = [row.poincare for row in found], [column(row) for row in found]
            series.append(Series(name, "ours", x, y))
    return Panel(series, "Poincaré constant C of the sampler", label, title, x_log=True, y_log=True)


STUDY = Study(
    name="training_meets_inference",
    question="Does one constant say both what masks lose in training and how slowly they sample?",
    settings={
        Scale.SMOKE: Meeting(
            graphs=("chain 4", "clique 4"),
            pulls=(0.0, 1.0, 2.0),
            laws=("size 1", "size 2", "ones 1.5"),
        ),
        Scale.LAPTOP: Meeting(),
        Scale.PAPER: Meeting(
            graphs=("chain 9", "grid 3 3", "clique 9"),
            pulls=tuple(round(0.2 * i, 1) for i in range(16)),
        ),
    },
    units=units,
    run=run,
    rows=(MaskLawCosts,),
    figures=[clique_figure, grid_figure, chain_figure],
)

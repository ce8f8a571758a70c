"""One constant for two questions: how well do masks train, how fast do they sample [li, 4.1.2]?

A mask law hides blocks in training and redraws blocks in sampling. The Poincaré constant C of the
second bounds what is lost by the first: the variance of masked training is at most C times that of
maximum likelihood, in every direction [li, Thms 4.1.2, 4.1.3]. And C is the relaxation time of the
sampler, so (C - 1) ln 2 ≤ t_mix ≤ C ln(4 / p_min). Here all of it is computed on eight spins, with
many mask laws and couplings. No entry of the ledger is decided here; `exact_masking` does that.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from triptych.studies.figures import Figure, Panel, Series
from triptych.studies.judging import rows_of
from triptych.studies.masking_models import efficiency, ising_named, law_named
from triptych.studies.study import Bench, Row, Rows, Scale, Settings, Study, Unit
from triptych.theory import masking
from triptych.theory.block_dynamics import BlockDynamics, poincare_constant
from triptych.theory.block_mixing import mixing_time
from triptych.theory.families import IsingFamily

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


def units(settings: Meeting) -> Sequence[Unit]:
    """One per graph and pull."""
    return [
        Unit({"graph": graph, "pull": pull, "laws": settings.laws}, 0)
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


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    """One row per mask law."""
    graph, pull = unit.parameters["graph"], unit.parameters["pull"]
    family = IsingFamily(ising_named(f"{graph} {pull / neighbours(graph)}"))
    table, fisher = family.table, masking.fisher(family)
    for law in unit.parameters["laws"]:
        masks = law_named(law, family.length)
        dynamics = BlockDynamics(table, masks)
        # at the truth the Hessian is the covariance of the scores [li, Lemma 4.1.2]
        gamma = torch.linalg.inv(masking.score_covariance(family, masks))
        worst, mean = efficiency(fisher, gamma)
        constant = poincare_constant(dynamics)
        yield {
            "kind": "meeting",
            "graph": graph,
            "pull": pull,
            "law": law,
            "adaptive": masks.adaptive,
            "poincare": constant,
            "worst_ratio": worst,
            "trace_ratio": mean,
            "mixing_time": mixing_time(dynamics, DISTANCE),
            "smallest": float(table.log_probs.exp().min()),
        }


# ------------------------------------------------------------------ what the rows say


def share(rows: Rows, column: str) -> tuple[float, float]:
    """The least and the largest of column / C. Worked value: 3 at C = 4 and 1 at C = 1: ¾, 1."""
    found = [row[column] / row["poincare"] for row in rows_of(rows, "meeting")] or [math.nan]
    return min(found), max(found)


def rank_correlation(rows: Rows, column: str) -> float:
    """Spearman's correlation of the column with C over all rows; nan with fewer than three.

    Worked value: 1 where the one is an increasing function of the other.
    """
    mine = rows_of(rows, "meeting")
    constants, values = [row["poincare"] for row in mine], [row[column] for row in mine]
    if len(mine) < 3 or min(values) == max(values) or min(constants) == max(constants):
        return math.nan
    return float(np.corrcoef(stats.rankdata(constants), stats.rankdata(values))[0, 1])


def _figure(rows: Rows, graph: str) -> Figure:
    """Loss in training and time of sampling against C, on one graph."""
    every = rows_of(rows, "meeting")
    mine = [row for row in every if row["graph"].split()[0] == graph]
    spins = max((math.prod(map(int, row["graph"].split()[1:])) for row in mine), default=0)
    constants = [row["poincare"] for row in mine] or [1.0, 2.0]
    low, high = min(constants), max(constants)
    along = [max(low, 1.5) * (high / max(low, 1.5)) ** (i / 40) for i in range(41)]
    widest = max((math.log(4 / row["smallest"]) for row in mine), default=1.0)
    bound = Series("at most C", "truth", [low, high], [low, high])
    least = Series("at least (C − 1) ln 2", "truth", along, [(c - 1) * math.log(2) for c in along])
    most = Series(f"at most C × {widest:.2g}", "truth", along, [c * widest for c in along])
    used, mixed = share(mine, "worst_ratio"), share(mine, "mixing_time")
    mean = [row["trace_ratio"] for row in mine] or [math.nan]
    return Figure(
        f"training_meets_inference_{graph}",
        "One constant, two costs: masks that sample slowly train badly in their worst direction "
        f"({spins} spins, {graph})",
        [
            _panel(mine, "worst_ratio", "Training: variance lost in the worst direction", [bound]),
            _panel(mine, "mixing_time", "Sampling: steps until mixed", [least, most]),
            _panel(mine, "trace_ratio", "Not governed: variance lost on average", [bound]),
        ],
        "A line is one law of the block that training hides and sampling redraws; along it the "
        "coupling of the spins grows from none. Left: variance of masked training divided by that "
        f"of maximum likelihood in its worst direction, {used[0]:.0%} to {used[1]:.0%} of C here. "
        "Middle: steps to total variation ¼ from the worst start, "
        f"{mixed[0]:.2g} to {mixed[1]:.2g} times C, between (C − 1) ln 2 and C ln(4/p_min). "
        "Right: the left ratio averaged over the parameters, of which C is a bound and no more: it "
        f"stays between {min(mean):.2g} and {max(mean):.2g}. Rank correlation with C over all "
        f"{len(every)} combinations of graph, coupling and law: "
        f"{rank_correlation(rows, 'worst_ratio'):.2f}, {rank_correlation(rows, 'mixing_time'):.2f} "
        f"and {rank_correlation(rows, 'trace_ratio'):.2f}.",
    )


def grid_figure(rows: Rows) -> Figure:
    return _figure(rows, "grid")


def chain_figure(rows: Rows) -> Figure:
    return _figure(rows, "chain")


def clique_figure(rows: Rows) -> Figure:
    return _figure(rows, "clique")


def _panel(rows: Sequence[Row], column: str, title: str, lines: Sequence[Series]) -> Panel:
    series = list(lines)
    for law, label in _DRAWN.items():
        chosen = [row for row in rows if row["law"] == law]
        found = sorted((row["pull"], row["poincare"], row[column]) for row in chosen)
        if found:
            series.append(Series(label, "ours", [c for _, c, _ in found], [y for *_, y in found]))
    label = "steps" if column == "mixing_time" else "times maximum likelihood"
    return Panel(series, "Poincaré constant C of the sampler", label, title, x_log=True, y_log=True)


STUDY = Study(
    name="training_meets_inference",
    about="Does one constant say both what masks lose in training and how slowly they sample?",
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
    figures=[clique_figure, grid_figure, chain_figure],
)

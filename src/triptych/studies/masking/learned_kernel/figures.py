"""Figures of the study of learned kernels, from its rows."""

import math
from collections.abc import Sequence

from triptych.core.estimates import mean
from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.masking.learned_kernel.rows import (
    MASKINGS,
    ORDERS,
    SAMPLERS,
    STRUCTURES,
    Chain,
    Oracle,
    Row,
    Unmasked,
)

SHOWN = "any"  # the masking of figures that show one network
FLOOR = 1e-3  # a curve on logarithmic axes ends below this distance
TV = "total variation to the truth"


def _chains(rows: Rows[Row], structure: str, masking: str | None = None) -> list[Chain]:
    """Rows of one structure, and of one masking if it is given."""
    return [
        row
        for row in rows.of(Chain)
        if row.structure == structure and masking in (None, row.masking)
    ]


def _by_sampler(chains: Sequence[Chain]) -> dict[str, list[Chain]]:
    """Label of a sampler -> its chains, in the order in which samplers are drawn."""
    found = {label: [c for c in chains if c.sampler == name] for name, label in SAMPLERS.items()}
    return {label: mine for label, mine in found.items() if mine}


def _filled(rows: Rows[Row], structure: str, masking: str, order: str) -> dict[float, list[float]]:
    """Rounds -> distances of filling in from nothing."""
    points: dict[float, list[float]] = {}
    for row in rows.of(Unmasked):
        if (row.structure, row.masking, row.order) == (structure, masking, order):
            points.setdefault(float(row.rounds), []).append(row.tv)
    return points


def _series(
    label: str,
    kind: SeriesKind,
    points: dict[float, list[float]],
    *,
    log: bool,
    line: bool = True,
    most: float = 1.0,
) -> Series:
    """Means over seeds with 95 % intervals that end at 0 and at `most`.

    On a logarithmic axis they are means and intervals of logarithms, where all values are positive.
    """
    x = sorted(points)
    logs = log and all(value > 0 for at in x for value in points[at])
    found = [mean([math.log(v) for v in points[at]] if logs else points[at]) for at in x]
    ends = [(e.low, e.high) if e.n > 1 else (e.value, e.value) for e in found]
    back = math.exp if logs else float
    low = [max(0.0, back(end[0])) for end in ends]
    high = [min(most, back(end[1])) for end in ends]
    return Series(label, kind, x, [back(e.value) for e in found], low, high, line=line)


def _curve(
    chains: Sequence[Chain], label: str, kind: SeriesKind, *, questions: bool = False
) -> Series:
    """TV against steps, or against questions asked of the oracle; it ends at the floor."""
    points: dict[float, list[float]] = {}
    for chain in chains:
        cost = chain.queries if questions else 1.0
        for steps, tv in zip(chain.steps, chain.tv, strict=True):
            points.setdefault(cost * steps, []).append(tv)
    shown: dict[float, list[float]] = {}
    for x in sorted(points):
        if sum(points[x]) / len(points[x]) < FLOOR:
            break
        shown[x] = points[x]
    return _series(label, kind, shown, log=True)


_ORACLES: tuple[tuple[str, str, SeriesKind], ...] = (
    ("truth", "the truth", "control"),
    (SHOWN, "a trained network", "ours"),
)


def _convergence(rows: Rows[Row], structure: str, name: str, subject: str) -> Figure:
    panels = []
    for masking, oracle, kind in _ORACLES:
        series = [
            _curve(mine, label, kind)
            for label, mine in _by_sampler(_chains(rows, structure, masking)).items()
        ]
        if series:
            title = f"With {oracle} as oracle"
            panels.append(Panel(series, "steps", TV, title, x_log=True, y_log=True))
    return Figure(
        name,
        f"{subject}: distance of four samplers to the truth, step by step",
        panels,
        "Exact laws of chains that start from the sequence 00...0. A step of 1-Gibbs redraws one "
        "position; the others redraw half of them one after another, half of them from one answer, "
        "or all of them each from its own answer about the old state. Curves end at 0.001. The "
        "network was trained with any number of hidden positions; geometric means over seeds with "
        "95 % intervals.",
    )


def spins_figure(rows: Rows[Row]) -> Figure:
    return _convergence(rows, "strong", "steps_spins", "Spins")


def words_figure(rows: Rows[Row]) -> Figure:
    return _convergence(rows, "hmm", "steps_words", "HMM")


def questions_figure(rows: Rows[Row]) -> Figure:
    """What a number of questions to the network buys."""
    panels = []
    for structure, heading in STRUCTURES.items():
        series = [
            _curve(mine, label, "ours", questions=True)
            for label, mine in _by_sampler(_chains(rows, structure, SHOWN)).items()
        ]
        if points := _filled(rows, structure, SHOWN, "random"):
            series.append(_series("filling in from nothing", "ours", points, log=True))
        if series:
            panels.append(
                Panel(series, "questions per sequence", TV, heading, x_log=True, y_log=True)
            )
    return Figure(
        "questions",
        "What a number of questions buys: chains against filling in from nothing",
        panels,
        "A question is one masked sequence read by the network. Chains start from 00...0 and go on "
        "as long as one likes; filling in reveals positions in random order, in 1, 2, ... rounds "
        "of one question each, and is then finished. Networks trained with any number of hidden "
        "positions; geometric means over seeds with 95 % intervals.",
    )


def masking_figure(rows: Rows[Row]) -> Figure:
    """The law in which a chain settles, against how much was hidden in training."""
    panels = []
    for structure, heading in STRUCTURES.items():
        chains = _chains(rows, structure)
        if not chains:
            continue
        series = []
        for label, mine in _by_sampler(chains).items():
            points: dict[float, list[float]] = {}
            for chain in mine:
                if chain.masking in _RATES:
                    points.setdefault(_RATES[chain.masking], []).append(chain.long_run_tv)
            if points:
                series.append(_series(label, "ours", points, log=True))
        for sampler, masking in (("1-Gibbs", "one"), ("k-Gibbs", "one"), ("1-Gibbs", "any")):
            apart = [c for c in chains if (c.sampler, c.masking) == (sampler, masking)]
            if apart:
                n = chains[0].length
                share = 100 / n if masking == "one" else 50 * (n + 1) / n
                label = f"{SAMPLERS[sampler]}; {MASKINGS[masking]}"
                values = {share: [chain.long_run_tv for chain in apart]}
                series.append(_series(label, "control", values, log=True, line=False))
        panels.append(Panel(series, "positions hidden in training (%)", TV, heading, y_log=True))
    return Figure(
        "masking",
        "Where a chain settles, by how much was hidden when its network was trained",
        panels,
        "Total variation between the truth and the stationary law of each chain. In training each "
        "position was hidden with probability 15, 40, 80 or 100 %; open marks stand at the mean "
        "share where exactly one position was hidden, or a uniform number of them. A network that "
        "always saw everything hidden knows the marginals only. Geometric means over seeds with "
        "95 % intervals.",
    )


_RATES = {"15%": 15.0, "40%": 40.0, "80%": 80.0, "all": 100.0}  # hidden in training, per cent


def unmasking_figure(rows: Rows[Row]) -> Figure:
    """Random against confident orders."""
    panels = []
    for structure in ("strong", "hmm"):
        for masking, oracle, kind in _ORACLES:
            filled = {
                label: _filled(rows, structure, masking, order) for order, label in ORDERS.items()
            }
            series = [
                _series(label, kind, points, log=False)
                for label, points in filled.items()
                if points
            ]
            if series:
                panels.append(Panel(series, "rounds", TV, f"{STRUCTURES[structure]}: {oracle}"))
    return Figure(
        "unmasking",
        "Filling in from nothing: three orders of revealing, by the number of rounds",
        panels,
        "From nothing shown, each round asks once and reveals some positions: random ones, those "
        "where the law is most certain, or those whose drawn token is most probable. The first two "
        "choose a position before its token; the third draws tokens everywhere and keeps the most "
        "probable ones, so it redraws the rare ones. Equal certainties go from the left. Means "
        "over seeds with 95 % intervals.",
    )


def errors_figure(rows: Rows[Row]) -> Figure:
    """How well a network answers, by the number of hidden positions and by its training."""
    panels = []
    for structure, heading in STRUCTURES.items():
        series = []
        for masking in ("one", "40%", "80%", "all"):
            points: dict[float, list[float]] = {}
            for row in rows.of(Oracle):
                if (row.structure, row.masking) == (structure, masking):
                    for hidden, kl in zip(row.hidden, row.kl, strict=True):
                        points.setdefault(float(hidden), []).append(kl)
            if points:
                kind: SeriesKind = "control" if masking == "all" else "ours"
                series.append(_series(MASKINGS[masking], kind, points, log=True, most=math.inf))
        if series:
            label = "KL of the network from the exact law (nats)"
            panels.append(Panel(series, "positions hidden", label, heading, y_log=True))
    return Figure(
        "errors",
        "Error of a network by the number of hidden positions, for four ways to hide in training",
        panels,
        "Mean over contexts of the truth and over their hidden positions. 1-Gibbs and the "
        "independent sampler ask with one position hidden, blocks with half of them, unmasking "
        "with all numbers of them. Geometric means over seeds with 95 % intervals.",
    )


FIGURES = [
    spins_figure,
    words_figure,
    questions_figure,
    masking_figure,
    unmasking_figure,
    errors_figure,
]

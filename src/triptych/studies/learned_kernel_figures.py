"""Figures of the study of learned kernels, from its rows."""

import math
from collections.abc import Sequence

from triptych.core.estimates import mean
from triptych.studies.figures import Figure, Kind, Panel, Series
from triptych.studies.judging import rows_of
from triptych.studies.study import Row, Rows

STRUCTURES = {"weak": "Weak clique", "strong": "Strong clique", "hmm": "HMM, three words"}
MASKINGS = {
    "one": "one position hidden",
    "15%": "15 % hidden",
    "40%": "40 % hidden",
    "80%": "80 % hidden",
    "all": "all hidden",
    "any": "any number hidden",
}
SAMPLERS = {
    "1-Gibbs": "1-Gibbs",
    "k-Gibbs": "half the positions, in turn",
    "block at once": "half the positions, at once",
    "independent": "all positions, at once",
}
ORDERS = {
    "random": "random positions",
    "confident position": "confident positions",
    "confident token": "confident tokens",
}
SHOWN = "any"  # the masking of figures that show one network
FLOOR = 1e-3  # a curve on logarithmic axes ends below this distance
TV = "total variation to the truth"


def _picked(rows: Sequence[Row], **wanted: object) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def _series(
    label: str,
    kind: Kind,
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


def _curve(rows: Sequence[Row], label: str, kind: Kind, per_step: str | None = None) -> Series:
    """TV against steps, or against what a column says that a step costs; it ends at the floor."""
    points: dict[float, list[float]] = {}
    for row in rows:
        cost = 1.0 if per_step is None else float(row[per_step])
        for steps, tv in zip(row["steps"], row["tv"], strict=True):
            points.setdefault(cost * steps, []).append(float(tv))
    shown: dict[float, list[float]] = {}
    for x in sorted(points):
        if sum(points[x]) / len(points[x]) < FLOOR:
            break
        shown[x] = points[x]
    return _series(label, kind, shown, log=True)


def _convergence(rows: Rows, structure: str, name: str, title: str) -> Figure:
    panels = []
    oracles: list[tuple[str, str, Kind]] = [
        ("truth", "The truth as oracle", "control"),
        (SHOWN, "A trained network as oracle", "ours"),
    ]
    for masking, heading, kind in oracles:
        mine = _picked(rows_of(rows, "chain"), structure=structure, masking=masking)
        series = [
            _curve(_picked(mine, sampler=sampler), label, kind)
            for sampler, label in SAMPLERS.items()
            if _picked(mine, sampler=sampler)
        ]
        if series:
            panels.append(Panel(series, "steps", TV, heading, x_log=True, y_log=True))
    return Figure(
        name,
        title,
        panels,
        "Exact laws of chains that start from the sequence 00...0. A step of 1-Gibbs redraws one "
        "position; the others redraw half of them one after another, half of them from one answer, "
        "or all of them each from its own answer about the old state. With the truth as oracle "
        "Gibbs goes on to 0 (curves end at 0.001). The network was trained with any number of "
        "hidden positions; geometric means over seeds with 95 % intervals.",
    )


def spins_figure(rows: Rows) -> Figure:
    return _convergence(
        rows,
        "strong",
        "steps_spins",
        "Spins: on the truth only Gibbs converges; a trained network stops every chain before",
    )


def words_figure(rows: Rows) -> Figure:
    return _convergence(
        rows,
        "hmm",
        "steps_words",
        "HMM: on the truth only Gibbs converges; a trained network stops every chain before",
    )


def questions_figure(rows: Rows) -> Figure:
    """What a number of questions to the network buys."""
    panels = []
    for structure, heading in STRUCTURES.items():
        mine = _picked(rows_of(rows, "chain"), structure=structure, masking=SHOWN)
        series = [
            _curve(_picked(mine, sampler=sampler), label, "ours", "queries")
            for sampler, label in SAMPLERS.items()
            if _picked(mine, sampler=sampler)
        ]
        filled = _picked(
            rows_of(rows, "unmask"), structure=structure, masking=SHOWN, order="random"
        )
        points: dict[float, list[float]] = {}
        for row in filled:
            points.setdefault(float(row["rounds"]), []).append(float(row["tv"]))
        if points:
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


def masking_figure(rows: Rows) -> Figure:
    """The law in which a chain settles, against how much was hidden in training."""
    panels = []
    for structure, heading in STRUCTURES.items():
        mine = _picked(rows_of(rows, "chain"), structure=structure)
        if not mine:
            continue
        series = []
        for sampler, label in SAMPLERS.items():
            points: dict[float, list[float]] = {}
            for row in _picked(mine, sampler=sampler):
                if (rate := _rate(row)) is not None:
                    points.setdefault(rate, []).append(float(row["long_run_tv"]))
            if points:
                series.append(_series(label, "ours", points, log=True))
        for sampler, masking in (("1-Gibbs", "one"), ("k-Gibbs", "one"), ("1-Gibbs", "any")):
            apart = _picked(mine, sampler=sampler, masking=masking)
            if values := [float(row["long_run_tv"]) for row in apart]:
                n = mine[0]["length"]
                share = 100 / n if masking == "one" else 50 * (n + 1) / n
                label = f"{SAMPLERS[sampler]}; {MASKINGS[masking]}"
                series.append(_series(label, "control", {share: values}, log=True, line=False))
        panels.append(Panel(series, "positions hidden in training (%)", TV, heading, y_log=True))
    return Figure(
        "masking",
        "Where a chain settles depends on how much was hidden when its network was trained",
        panels,
        "Total variation between the truth and the stationary law of each chain. In training each "
        "position was hidden with probability 15, 40, 80 or 100 %; open marks stand at the mean "
        "share where exactly one position was hidden, or a uniform number of them. A network that "
        "always saw everything hidden knows the marginals only. Geometric means over seeds with "
        "95 % intervals.",
    )


def _rate(row: Row) -> float | None:
    """The probability with which a position was hidden, in per cent; None if there is none."""
    rates = {"15%": 15.0, "40%": 40.0, "80%": 80.0, "all": 100.0}
    return rates.get(row["masking"])


def unmasking_figure(rows: Rows) -> Figure:
    """Random against confident orders."""
    panels = []
    oracles: list[tuple[str, str, Kind]] = [
        ("truth", "the truth", "control"),
        (SHOWN, "a trained network", "ours"),
    ]
    for structure in ("strong", "hmm"):
        for masking, heading, kind in oracles:
            series = []
            for order, label in ORDERS.items():
                mine = _picked(
                    rows_of(rows, "unmask"), structure=structure, masking=masking, order=order
                )
                points: dict[float, list[float]] = {}
                for row in mine:
                    points.setdefault(float(row["rounds"]), []).append(float(row["tv"]))
                if points:
                    series.append(_series(label, kind, points, log=False))
            if series:
                panels.append(Panel(series, "rounds", TV, f"{STRUCTURES[structure]}: {heading}"))
    return Figure(
        "unmasking",
        "Keeping the most confident tokens is wrong even with the truth as oracle",
        panels,
        "From nothing shown, each round asks once and reveals some positions. Random positions, "
        "and positions where the law is most certain, end at 0 with the truth as oracle when each "
        "round reveals one: the position was chosen before its token. Drawing tokens everywhere "
        "and keeping the most probable ones redraws the rare ones, so the result is too typical, "
        "and more rounds do not mend it. Equal certainties go from the left. Means over "
        "seeds with 95 % intervals.",
    )


def errors_figure(rows: Rows) -> Figure:
    """Where a network answers well: at the numbers of hidden positions it was trained on."""
    panels = []
    for structure, heading in STRUCTURES.items():
        series = []
        for masking in ("one", "40%", "80%", "all"):
            label = MASKINGS[masking]
            points: dict[float, list[float]] = {}
            for row in _picked(rows_of(rows, "oracle"), structure=structure, masking=masking):
                for hidden, kl in zip(row["hidden"], row["kl"], strict=True):
                    points.setdefault(float(hidden), []).append(float(kl))
            if points:
                kind: Kind = "control" if masking == "all" else "ours"
                series.append(_series(label, kind, points, log=True, most=math.inf))
        if series:
            label = "KL of the network from the exact law (nats)"
            panels.append(Panel(series, "positions hidden", label, heading, y_log=True))
    return Figure(
        "errors",
        "A network is right where it was trained: chains ask about few hidden positions, "
        "unmasking about all numbers of them",
        panels,
        "Mean over contexts of the truth and over their hidden positions, a curve for each of four "
        "ways to hide in training. 1-Gibbs and the independent sampler ask with one position "
        "hidden, blocks with half of them. Geometric means over seeds with 95 % intervals.",
    )

"""The figures of `who_wins`, and the winners that their titles and captions tell."""

from collections.abc import Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from triptych.core.estimates import mean
from triptych.studies.figures import Figure, Kind, Panel, Series
from triptych.studies.judging import rows_of
from triptych.studies.study import Row, Rows

Cost = Literal["generator_calls", "verifier_calls"]
Measure = Literal["accuracy", "distance"]

BUDGETS = (10.0, 20.0, 50.0, 200.0)  # calls a string
TOLD = 20.0  # the budget of the titles
CALLS = {"generator_calls": "generator calls", "verifier_calls": "verifier calls"}
UNRANKED = ("greedy",)  # always the same string
LOOKS: dict[str, Kind] = {
    "tokenwise": "ours",
    "Alg. 1, B = 2": "ours",
    "Alg. 1, B = 4": "ours",
    "Alg. 1, drawn": "ours",
    "SMC, yes/no": "ours",
    "SMC, soft": "ours",
    "VGB, leaf": "ours",
    "VGB, node": "ours",
    "ancestral": "control",
    "greedy": "control",
    "rejection": "control",
    "best of n": "control",
    "blocks of 2": "control",
    "blocks of 4": "control",
}


class Point(NamedTuple):
    """One algorithm at one value of its knob: its mean cost, and a measure for every seed."""

    algorithm: str
    knob: int
    cost: float
    by_seed: dict[int, float]

    @property
    def value(self) -> float:
        return sum(self.by_seed.values()) / len(self.by_seed)


class Winner(NamedTuple):
    """Who is best within a budget of calls.

    tied   algorithms with a setting within the budget that is not told apart from it: the 95 % t
           interval of their difference, paired by seed, holds 0; with one seed, those equal to it
    """

    error: float
    budget: float
    algorithm: str
    knob: int
    cost: float
    value: float
    tied: tuple[str, ...]


def points(rows: Rows, error: float, cost: Cost, measure: Measure) -> list[Point]:
    """Every algorithm and knob at an error rate, in the order of the rows."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows_of(rows, "point"):
        if row["error"] == error:
            groups.setdefault((row["algorithm"], row["knob"]), []).append(row)
    return [
        Point(
            *name,
            sum(row[cost] for row in some) / len(some),
            {row["seed"]: float(row[measure]) for row in some},
        )
        for name, some in groups.items()
    ]


def winners(
    rows: Rows,
    *,
    measure: Measure,
    cost: Cost = "generator_calls",
    budgets: Sequence[float] = BUDGETS,
) -> list[Winner]:
    """For every budget and error rate the algorithm with the best mean over seeds.

    Equally good ones are ranked by cost. Accuracy is best when large, the distance when small.
    A budget that no algorithm keeps to is left out, and so is greedy decoding.

    Worked value: A is right 60 % of the time with 5 calls and 90 % with 30, B 80 % with 15. Within
    10 calls A wins, within 20 B, within 40 A again.
    """
    sign = 1.0 if measure == "accuracy" else -1.0
    found = []
    for budget in budgets:
        for error in _errors(rows):
            every = points(rows, error, cost, measure)
            some = [p for p in every if p.cost <= budget and p.algorithm not in UNRANKED]
            if not some:
                continue
            best = max(some, key=lambda point: (sign * point.value, -point.cost))
            tied = {p.algorithm for p in some if not _told_apart(best, p)} - {best.algorithm}
            found.append(
                Winner(
                    error,
                    budget,
                    best.algorithm,
                    best.knob,
                    best.cost,
                    best.value,
                    tuple(sorted(tied)),
                )
            )
    return found


def _told_apart(best: Point, other: Point) -> bool:
    seeds = best.by_seed.keys() & other.by_seed.keys()
    gaps = [best.by_seed[seed] - other.by_seed[seed] for seed in sorted(seeds)]
    if len(gaps) < 2:
        return best.value != other.value
    found = mean(gaps)
    return not found.low <= 0 <= found.high


def sentence(found: Sequence[Winner], adjective: str, calls: str) -> str:
    """Winners of one budget in words, error rates with the same one together.

    Worked value: "Within 20 generator calls a string the most accurate is A at 0 % errors and B at
    5 to 30 %."
    """
    if not found:
        return "Nothing was run yet"
    said = []
    for name, some in groupby(found, key=lambda winner: winner.algorithm):
        rates = [f"{100 * winner.error:g}" for winner in some]
        span = rates[0] if len(rates) == 1 else f"{rates[0]} to {rates[-1]}"
        said.append(f"{name} at {span} %{'' if said else ' errors'}")
    listed = said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"
    return f"Within {found[0].budget:g} {calls} a string the {adjective} is {listed}"


def _errors(rows: Rows) -> list[float]:
    return sorted({row["error"] for row in rows_of(rows, "point")})


def _shown_errors(rows: Rows) -> list[float]:
    """No errors, the middle rate and the largest."""
    errors = _errors(rows)
    return sorted({errors[0], errors[len(errors) // 2], errors[-1]}) if errors else []


def _table(rows: Rows, measure: Measure, cost: Cost, percent: bool) -> str:
    """The winners of every budget, with their values and who cannot be told apart from them."""
    said = []
    for budget, some in groupby(winners(rows, measure=measure, cost=cost), key=lambda w: w.budget):
        each = []
        for w in some:
            value = f"{100 * w.value:.0f} %" if percent else f"{w.value:.2f}"
            tied = f", level with {', '.join(w.tied)}" if w.tied else ""
            each.append(f"{100 * w.error:g} % errors: {w.algorithm} ({value}{tied})")
        said.append(f"within {budget:g} {CALLS[cost]}, {'; '.join(each)}")
    return ". ".join(said)


def _panel(rows: Rows, error: float, cost: Cost, measure: Measure) -> Panel:
    factor = 100.0 if measure == "accuracy" else 1.0
    found = points(rows, error, cost, measure)
    series = []
    for name, kind in LOOKS.items():
        mine = [p for p in found if p.algorithm == name and p.cost > 0]
        if not mine:
            continue
        spread = [mean(list(p.by_seed.values())) for p in mine]
        ends = [
            (max(0.0, e.low), min(1.0, e.high)) if e.n > 1 else (e.value, e.value) for e in spread
        ]
        series.append(
            Series(
                name,
                kind,
                [p.cost for p in mine],
                [factor * e.value for e in spread],
                [factor * low for low, _ in ends],
                [factor * high for _, high in ends],
            )
        )
    if measure == "distance" and found:
        floor = max(row["floor"] for row in rows_of(rows, "point"))
        costs = [p.cost for p in found if p.cost > 0]
        series.append(Series("exact draws", "truth", [min(costs), max(costs)], [floor, floor]))
    label = "right strings (%)" if measure == "accuracy" else "total variation to the target"
    title = f"{100 * error:g} % errors of the verifier" if error else "A verifier without errors"
    return Panel(series, f"{CALLS[cost]} per string", label, title, x_log=True)


def accuracy_figure(rows: Rows) -> Figure:
    """Share of right strings against calls of the generator, and of the verifier."""
    costs: tuple[Cost, Cost] = ("generator_calls", "verifier_calls")
    shown = _shown_errors(rows)
    told = winners(rows, measure="accuracy", budgets=(TOLD,))
    caption = (
        "Brackets from a model that leaks, a process verifier that is wrong at a fixed share of "
        "the prefixes, full strings included. A line is one algorithm with its knob turned up; "
        "means over seeds of the noise with 95 % intervals; a row that is given up is wrong. "
        f"Winners {_table(rows, 'accuracy', 'generator_calls', True)}."
    )
    return Figure(
        "accuracy",
        sentence(told, "most accurate", CALLS["generator_calls"]),
        [_panel(rows, error, cost, "accuracy") for cost in costs for error in shown],
        caption,
    )


def law_figure(rows: Rows) -> Figure:
    """Distance to the target against calls of the generator."""
    shown = _shown_errors(rows)
    told = winners(rows, measure="distance", budgets=(TOLD,))
    caption = (
        "The law of everything that a row may give, wrong strings and nothing included, against "
        "the model's law restricted to right strings. Exact draws: the distance that as many draws "
        "of the target show by chance. "
        f"Winners {_table(rows, 'distance', 'generator_calls', False)}."
    )
    return Figure(
        "law",
        sentence(told, "closest to the target", CALLS["generator_calls"]),
        [_panel(rows, error, "generator_calls", "distance") for error in shown],
        caption,
    )

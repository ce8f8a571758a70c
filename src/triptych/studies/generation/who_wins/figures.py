"""The figures of `who_wins`, and the winners that their titles and captions tell."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from triptych.core.estimates import mean
from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.generation.who_wins.rows import Measured

Cost = Literal["generator_calls", "verifier_calls"]
Measure = Literal["accuracy", "distance"]
READ: Mapping[Cost | Measure, Callable[[Measured], float]] = {
    "generator_calls": lambda row: row.generator_calls,
    "verifier_calls": lambda row: row.verifier_calls,
    "accuracy": lambda row: row.accuracy,
    "distance": lambda row: row.distance,
}

FEW, MANY = 4, 32  # budgets of the figures, as strings of the model that they would pay for
CALLS = {"generator_calls": "generator calls", "verifier_calls": "verifier calls"}
_LABELS = {"accuracy": "right strings (%)", "distance": "total variation to the target"}
UNRANKED = ("greedy",)  # always the same string
LOOKS: dict[str, SeriesKind] = {
    "tokenwise": "ours",
    "Alg. 1, B = 2": "ours",
    "Alg. 1, B = 4": "ours",
    "Alg. 1, drawn": "ours",
    "SMC, yes/no": "ours",
    "SMC, soft": "ours",
    "VGB, leaf": "ours",
    "VGB, node": "ours",
    "rejection": "control",
    "best of n": "control",
    "blocks of 2": "control",
    "blocks of 4": "control",
    "ancestral": "control",  # last, as these two never ask: looks go by the order in a panel
    "greedy": "control",
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

    tied   algorithms whose best setting within the budget is not told apart from it: the 95 % t
           interval of their difference, paired by seed, holds 0; with one seed, those equal to it
    """

    error: float
    budget: float
    algorithm: str
    knob: int
    cost: float
    value: float
    tied: tuple[str, ...]


def points(rows: Rows[Measured], error: float, cost: Cost, measure: Measure) -> list[Point]:
    """Every algorithm and knob at an error rate, in the order of the rows."""
    groups: dict[tuple[str, int], list[Measured]] = {}
    for row in rows.of(Measured):
        if row.error == error:
            groups.setdefault((row.algorithm, row.knob), []).append(row)
    return [
        Point(
            *name,
            sum(READ[cost](row) for row in some) / len(some),
            {row.seed: READ[measure](row) for row in some},
        )
        for name, some in groups.items()
    ]


def winners(
    rows: Rows[Measured],
    *,
    measure: Measure,
    cost: Cost = "generator_calls",
    budgets: Sequence[float],
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
            ranked = sorted(some, key=lambda point: (-sign * point.value, point.cost))
            best, others = ranked[0], {p.algorithm: p for p in reversed(ranked)}
            tied = {p.algorithm for p in others.values() if not _told_apart(best, p)}
            found.append(
                Winner(
                    error,
                    budget,
                    best.algorithm,
                    best.knob,
                    best.cost,
                    best.value,
                    tuple(sorted(tied - {best.algorithm})),
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


def sentence(found: Sequence[Winner], adjective: str) -> str:
    """Winners of one budget in words, error rates with the same one together.

    Who is level with the winner at all of these rates is named too, or counted if there are more.
    Worked value: "the most accurate is A or B at 0 % errors and C at 5 to 30 %".
    """
    said = []
    for name, some in groupby(found, key=lambda winner: winner.algorithm):
        group = list(some)
        rates = [f"{100 * winner.error:g}" for winner in group]
        span = rates[0] if len(rates) == 1 else f"{rates[0]} to {rates[-1]}"
        level = sorted(set.intersection(*(set(winner.tied) for winner in group)))
        beside = f" or {level[0]}" if len(level) == 1 else f" or one of {len(level)} others"
        said.append(f"{name}{beside if level else ''} at {span} %{'' if said else ' errors'}")
    if not said:
        return f"nobody is the {adjective} yet"
    listed = said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"
    return f"the {adjective} is {listed}"


def _calls(rows: Rows[Measured], strings: int) -> float:
    """Generator calls that this many strings cost without a verifier."""
    return float(strings * max((row.length for row in rows.of(Measured)), default=0))


def _errors(rows: Rows[Measured]) -> list[float]:
    return sorted({row.error for row in rows.of(Measured)})


def _shown(rows: Rows[Measured]) -> list[float]:
    """No errors, the middle rate and the largest."""
    errors = _errors(rows)
    return sorted({errors[0], errors[len(errors) // 2], errors[-1]}) if errors else []


def _list(rows: Rows[Measured], measure: Measure, budget: float) -> str:
    """The winner at every error rate with its value, and how many are level with it."""
    each = []
    for w in winners(rows, measure=measure, budgets=(budget,)):
        value = f"{100 * w.value:.0f} %" if measure == "accuracy" else f"{w.value:.2f}"
        level = f", {len(w.tied)} level" if w.tied else ""
        each.append(f"{100 * w.error:g} % {w.algorithm} ({value}{level})")
    return "; ".join(each)


def _series(name: str, places: Sequence[float], found: Sequence[Point], factor: float) -> Series:
    """Means over seeds with their intervals, which end at 0 and 1."""
    spread = [mean(list(p.by_seed.values())) for p in found]
    ends = [(max(0.0, e.low), min(1.0, e.high)) if e.n > 1 else (e.value, e.value) for e in spread]
    low, high = ([factor * end[side] for end in ends] for side in (0, 1))
    return Series(name, LOOKS[name], places, [factor * e.value for e in spread], low, high)


def _floor(rows: Rows[Measured], places: Sequence[float]) -> Series:
    floor = max(row.floor for row in rows.of(Measured))
    ends = [min(places), max(places)]
    return Series("exact draws", "truth", ends, [floor, floor])


def _best_panel(rows: Rows[Measured], measure: Measure, budget: float) -> Panel:
    """Every algorithm's best within a budget of generator calls, against the error rate."""
    sign, factor = (1.0, 100.0) if measure == "accuracy" else (-1.0, 1.0)
    best: dict[str, dict[float, Point]] = {}
    for error in _errors(rows):
        for p in points(rows, error, "generator_calls", measure):
            mine = best.setdefault(p.algorithm, {})
            if p.cost <= budget and (
                error not in mine or sign * p.value > sign * mine[error].value
            ):
                mine[error] = p
    series = [
        _series(name, [100 * error for error in best[name]], list(best[name].values()), factor)
        for name in LOOKS
        if best.get(name)
    ]
    if measure == "distance" and series:
        series.append(_floor(rows, [100 * error for error in _errors(rows)]))
    title = f"Best within {budget:g} generator calls a string"
    return Panel(series, "errors of the verifier (%)", _LABELS[measure], title)


def _panel(rows: Rows[Measured], error: float, cost: Cost, measure: Measure) -> Panel:
    """Every algorithm with its knob turned up, at one error rate."""
    factor = 100.0 if measure == "accuracy" else 1.0
    found = [p for p in points(rows, error, cost, measure) if p.cost > 0]
    series = []
    for name in LOOKS:
        mine = [p for p in found if p.algorithm == name]
        if mine:
            series.append(_series(name, [p.cost for p in mine], mine, factor))
    if measure == "distance" and found:
        series.append(_floor(rows, [p.cost for p in found]))
    title = f"{100 * error:g} % errors of the verifier" if error else "A verifier without errors"
    return Panel(series, f"{CALLS[cost]} a string", _LABELS[measure], title, x_log=True)


def winners_figure(rows: Rows[Measured]) -> Figure:
    """The best of every algorithm within a budget, against the error rate."""
    few, many = _calls(rows, FEW), _calls(rows, MANY)
    right = winners(rows, measure="accuracy", budgets=(few,))
    near = winners(rows, measure="distance", budgets=(few,))
    return Figure(
        "winners",
        f"Within {few:g} generator calls a string {sentence(right, 'most accurate')}; "
        f"{sentence(near, 'closest to the target')}",
        [
            _best_panel(rows, "accuracy", few),
            _best_panel(rows, "distance", few),
            _best_panel(rows, "distance", many),
        ],
        f"The budgets pay for {FEW} and {MANY} strings of the model alone. Brackets from a model "
        "that leaks, and a process verifier that is wrong at a fixed share of the prefixes, full "
        "strings included. A row that is given up is wrong. Total variation is "
        "that of all rows, wrong strings and nothing included, to the model's law restricted to "
        "right strings; exact draws show as much by chance. Means over seeds of the noise with "
        "95 % intervals; level: the paired difference may be 0. Greedy decoding is not ranked. "
        f"Most accurate within {few:g} calls: {_list(rows, 'accuracy', few)}. Closest: "
        f"{_list(rows, 'distance', few)}. Closest within {many:g}: "
        f"{_list(rows, 'distance', many)}.",
    )


def accuracy_figure(rows: Rows[Measured]) -> Figure:
    """Share of right strings against calls of the generator, and of the verifier."""
    costs: tuple[Cost, Cost] = ("generator_calls", "verifier_calls")
    many = _calls(rows, MANY)
    told = winners(rows, measure="accuracy", budgets=(many,))
    return Figure(
        "accuracy",
        f"Within {many:g} generator calls a string {sentence(told, 'most accurate')}",
        [_panel(rows, error, cost, "accuracy") for cost in costs for error in _shown(rows)],
        "A line is one algorithm with its knob turned up: attempts, tries of a token, quota, "
        "candidates, particles, steps of the walk to a leaf, or walks until a uniform node is one. "
        "Alg. 1, drawn: B = 4 without the redo by argmax. SMC is run with yes or no, and with soft "
        "answers, which VGB gets too. Ancestral sampling and greedy decoding ask no verifier.",
    )


def law_figure(rows: Rows[Measured]) -> Figure:
    """Distance to the target against calls of the generator."""
    many = _calls(rows, MANY)
    told = winners(rows, measure="distance", budgets=(many,))
    return Figure(
        "law",
        f"Within {many:g} generator calls a string {sentence(told, 'closest to the target')}",
        [_panel(rows, error, "generator_calls", "distance") for error in _shown(rows)],
        "Exact draws: the distance that as many draws of the target show by chance.",
    )

"""What does more computation buy when the verifier of full strings is wrong?

Best of n keeps the string that the value rates highest, so that it looks for its errors; particles
and VGB weigh strings by the value. All laws here are exact: the best of n and VGB on strings of
some length, particles on shorter ones. The value of a prefix is the exact one of the wrong value
of full strings, so that no other error is in play [applied to li, 3.3].
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.estimates import mean
from triptych.core.protocols import Value
from triptych.core.streams import hashed_uniform
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.studies.api.decide import (
    Check,
    Verdict,
    above,
    at_least,
    decide,
    exactly,
    largest,
    shown,
)
from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Bench, Claim, Rows, Scale, Settings, Study, Unit
from triptych.studies.generation.shared.vgb_tasks import task
from triptych.theory.generation.over_optimisation import (
    best_of_n_kl_bound,
    over_optimisation,
    tilted_kl_bound,
)
from triptych.theory.generation.value_errors import tilted_distance_bound
from triptych.verifiers.exact import ExactValue

NONE, BOUNDED, HEAVY, FOOLED = "no error", "bounded error", "heavy tail", "fooled"
ERRORS = (NONE, BOUNDED, HEAVY, FOOLED)
FALLING = (HEAVY, FOOLED)
FEW, MANY = 8, 4096  # strings of the best of n whose true values are compared
FIRST = 100  # seeds below were seen before the heavy tail had its size
NOISE = 10_000  # seeds of noise and of the outcome differ


@dataclass(frozen=True)
class OverOptimised(Settings):
    """Which tables and errors.

    length     of strings of two tokens; `short` for particles
    n          strings of the best of n; `particles` of sequential Monte Carlo
    steps      of VGB, in units of the squared length
    size       of a bounded error: V̂ = τ + size u, u uniform on [0, 1) for each string
    tail       size of one with a heavy tail: V̂ = τ + tail (1/(1-u) - 1)
    share      of the strings that fool the value: they get the largest value that there is, and a
               half more
    """

    seeds: int = 20
    errors: tuple[str, ...] = ERRORS
    length: int = 8
    short: int = 3
    n: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    particles: tuple[int, ...] = (1, 2, 4, 8)
    steps: tuple[int, ...] = (1, 2, 4, 8, 16)
    size: float = 0.2
    tail: float = 0.05
    share: float = 0.02


@dataclass(frozen=True)
class WrongValue(Unit):
    """A table, an outcome, and a value of full strings that is wrong in one way."""

    error: str
    length: int
    short: int
    n: tuple[int, ...]
    particles: tuple[int, ...]
    steps: tuple[int, ...]
    size: float
    tail: float
    share: float


@dataclass(frozen=True)
class Bought:
    """What a law is worth: said E[V̂], right E[τ], kl to the model.

    law   "best of n", "particles" or "VGB"; n strings, particles or steps
    """

    error: str
    seed: int
    length: int
    law: str
    n: int
    said: float
    right: float
    kl: float


@dataclass(frozen=True)
class Limits:
    """The model, the limit p V̂ of particles and VGB, and the target p τ.

    epsilon    V̂ is within a factor 1 + ε of τ times a constant
    spread     largest τ minus smallest
    """

    error: str
    seed: int
    length: int
    model: float
    tilted: float
    target: float
    tilted_kl: float
    tilted_kl_bound: float
    epsilon: float
    spread: float


def units(settings: OverOptimised) -> Sequence[WrongValue]:
    """One for each error and seed."""
    wrong = [name for name in settings.errors if name not in ERRORS]
    if wrong or not 0 < settings.share < 1 or min(settings.size, settings.tail) <= 0:
        raise UserError(
            f"errors are {', '.join(ERRORS)}, size and tail above 0 and share between 0 and 1; "
            f"given {settings.errors}, {settings.size:g}, {settings.tail:g} and {settings.share:g}"
        )
    return [
        WrongValue.of(settings, error=error, seed=seed)
        for error in settings.errors
        for seed in range(FIRST, FIRST + settings.seeds)
    ]


@dataclass(frozen=True, eq=False)
class WrongOutcome:
    """The value of full strings, with its error."""

    outcome: Value
    error: str
    seed: int
    size: float
    tail: float
    fooled: Int[Tensor, "strings length"]
    most: float

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, " batch"]:
        right = self.outcome.log_value(prefix).double()
        u = hashed_uniform(NOISE + self.seed, prefix)
        if self.error == BOUNDED:
            return (right.exp() + self.size * u).log()
        if self.error == HEAVY:
            return (right.exp() + self.tail * (1 / (1 - u) - 1)).log()
        if self.error == FOOLED:
            found = (prefix[:, None] == self.fooled[None]).all(-1).any(-1)
            return right.masked_fill(found, math.log(1.5 * self.most))
        return right


def wrong_outcome(unit: WrongValue, table: Table, outcome: Value) -> WrongOutcome:
    """The error of a unit on one table; the strings that fool it are drawn by a hash."""
    number = max(1, round(unit.share * len(table.sequences)))
    order = hashed_uniform(2 * NOISE + unit.seed, table.sequences).argsort()
    most = float(outcome.log_value(table.sequences).exp().max())
    fooled = table.sequences[order[:number]]
    return WrongOutcome(outcome, unit.error, unit.seed, unit.size, unit.tail, fooled, most)


def run(unit: WrongValue, bench: Bench) -> Iterable[Bought | Limits]:
    """The best of n and VGB on long strings; the best of n and particles on short ones."""
    for length in (unit.length, unit.short):
        table, outcome = task("random", length, unit.seed)
        wrong = wrong_outcome(unit, table, outcome)
        long = length == unit.length
        value = ExactValue(table, wrong)
        found = over_optimisation(
            table,
            value,
            outcome,
            n=unit.n,
            particles=() if long else unit.particles,
            steps=[factor * length**2 for factor in unit.steps] if long else (),
        )
        laws = {"best of n": found.best_of_n, "particles": found.particles, "VGB": found.vgb}
        for law, points in laws.items():
            for point in points:
                assert point.n is not None
                yield Bought(
                    unit.error,
                    unit.seed,
                    length,
                    law,
                    point.n,
                    point.said,
                    point.right,
                    point.kl,
                )
        right = outcome.log_value(table.sequences)
        ratio = wrong.log_value(table.sequences) - right
        yield Limits(
            error=unit.error,
            seed=unit.seed,
            length=length,
            model=found.model.right,
            tilted=found.tilted.right,
            target=found.target.right,
            tilted_kl=found.tilted.kl,
            tilted_kl_bound=tilted_kl_bound(table, wrong),
            epsilon=float(((ratio.max() - ratio.min()) / 2).expm1()),
            spread=float(right.exp().max() - right.exp().min()),
        )


# ------------------------------------------------------------------ the judges


def _curves(rows: Rows[Bought | Limits], error: str) -> dict[int, dict[int, float]]:
    """True value of the best of n by seed and n, on the longest strings."""
    mine = [row for row in rows.of(Bought) if row.law == "best of n" and row.error == error]
    longest = max((row.length for row in mine), default=0)
    found: dict[int, dict[int, float]] = {}
    for row in mine:
        if row.length == longest:
            found.setdefault(row.seed, {})[row.n] = row.right
    return found


def judge_curves(rows: Rows[Bought | Limits]) -> Verdict:
    """Best of n rises from 1 to 8 strings; to 4,096 it falls where few strings have the largest
    errors, and does not where errors are bounded. p V̂, the limit of particles and VGB, is better
    than the model in every case. t intervals over tables, at 95 % for all checks together; without
    error no step from n to the next may lose anything.
    """
    checks: list[Check] = []
    seeds: dict[str, int] = {}
    confidence = 1 - 0.05 / 7
    for error in (BOUNDED, *FALLING):
        curves = {s: c for s, c in _curves(rows, error).items() if {1, FEW, MANY} <= set(c)}
        limits = [row for row in rows.of(Limits) if row.error == error]
        longest = max((row.length for row in limits), default=0)
        gains = [row.tilted - row.model for row in limits if row.length == longest]
        seeds[error] = min(len(curves), len(gains))
        if seeds[error] < 2:
            continue
        rise = [curve[FEW] - curve[1] for curve in curves.values()]
        late = [curve[MANY] - curve[FEW] for curve in curves.values()]
        if error in FALLING:
            rising = f"{error}: true value that the best of {FEW} gains over one string"
            falling = f"{error}: true value that the best of {MANY} has less than that of {FEW}"
            checks.append(above(rising, mean(rise, confidence=confidence), 0.0))
            checks.append(above(falling, mean([-x for x in late], confidence=confidence), 0.0))
        else:
            rising = f"{error}: true value that the best of {MANY} gains over that of {FEW}"
            checks.append(above(rising, mean(late, confidence=confidence), 0.0))
        tilted = f"{error}: true value that p V̂ gains over the model"
        checks.append(above(tilted, mean(gains, confidence=confidence), 0.0))
    clean = list(_curves(rows, NONE).values())
    falls = [curve[a] - curve[b] for curve in clean for a, b in pairwise(sorted(curve))]
    return decide(
        exactly("no error: most that a step from n to the next loses", largest(falls)),
        *checks,
        needs=[
            at_least("tables without error", len(clean), 2),
            *(at_least(f"tables, {error}", number, 5) for error, number in seeds.items()),
        ],
    )


def judge_bounds(rows: Rows[Bought | Limits]) -> Verdict:
    """KL of the best of n is at most log n - (n - 1)/n; that of p V̂ at most log (max V̂ / E[V̂]); and
    p V̂ is right within ε / (2 + ε) of the target, times the spread of τ.
    """
    best = [row for row in rows.of(Bought) if row.law == "best of n"]
    limits = rows.of(Limits)
    particles = [row for row in rows.of(Bought) if row.law == "particles"]
    return decide(
        exactly(
            "best of n: most that its KL is above log n - (n - 1)/n",
            largest([row.kl - best_of_n_kl_bound(row.n) for row in best]),
        ),
        exactly(
            "p V̂: most that its KL is above log (max V̂ / E[V̂])",
            largest([row.tilted_kl - row.tilted_kl_bound for row in limits]),
        ),
        exactly(
            "p V̂: most that its true value is off the target's, beyond ε / (2 + ε) of the spread",
            largest(
                [
                    abs(row.tilted - row.target) - tilted_distance_bound(row.epsilon) * row.spread
                    for row in limits
                ]
            ),
        ),
        shown(
            "particles: most that their KL is above log n - (n - 1)/n",
            largest([row.kl - best_of_n_kl_bound(row.n) for row in particles]),
        ),
        needs=[
            at_least("laws of the best of n", len(best), 10),
            at_least("laws p V̂", len(limits), 4),
        ],
    )


# ------------------------------------------------------------------ the figures


def value_figure(rows: Rows[Bought | Limits]) -> Figure:
    """True value against n, a panel for each error."""
    panels = [_value_panel(rows, error) for error in ERRORS if _curves(rows, error)]
    return Figure(
        "value",
        "True value of the best of n, and of the law that particles and VGB tend to",
        panels,
        "Exact laws on strings of two tokens; means over tables, with 95 % intervals. The value of "
        "full strings is wrong as the title of each panel says; τ is between 0.05 and 1. The lines "
        "for p V̂ and p τ do not depend on n; the best of 1 is the model.",
    )


def _value_panel(rows: Rows[Bought | Limits], error: str) -> Panel:
    curves = list(_curves(rows, error).values())
    ns = sorted(set.intersection(*(set(curve) for curve in curves)))
    limits = [row for row in rows.of(Limits) if row.error == error]
    longest = max(row.length for row in limits)
    limits = [row for row in limits if row.length == longest]
    lines: dict[str, tuple[SeriesKind, Callable[[Limits], float]]] = {
        "p V̂: particles, VGB": ("ours", lambda row: row.tilted),
        "p τ, the target": ("truth", lambda row: row.target),
    }
    series = [_series("best of n", "control", ns, [[curve[n] for curve in curves] for n in ns])]
    for label, (kind, read) in lines.items():
        values = [read(row) for row in limits]
        series.append(_series(label, kind, [ns[0], ns[-1]], [values, values]))
    return Panel(series, "n", "true value E[τ]", error, x_log=True)


def kl_figure(rows: Rows[Bought | Limits]) -> Figure:
    """KL from the model against n, with the bound."""
    best = [row for row in rows.of(Bought) if row.law == "best of n"]
    longest = max((row.length for row in best), default=0)
    panels: list[Panel] = []
    kinds: tuple[SeriesKind, SeriesKind] = ("control", "ours")
    for law in ("best of n", "particles"):
        mine = [
            row
            for row in rows.of(Bought)
            if row.law == law and (row.length == longest or law == "particles")
        ]
        ns = sorted({row.n for row in mine})
        series = [
            _series(
                error,
                kind,
                ns,
                [[row.kl for row in mine if row.n == n and row.error == error] for n in ns],
            )
            for error, kind in zip(FALLING, kinds, strict=True)
            if any(row.error == error for row in mine)
        ]
        bound = Series("log n - (n - 1)/n", "truth", ns, [best_of_n_kl_bound(n) for n in ns])
        panels.append(Panel([*series, bound], "n", "KL from the model, nats", law, x_log=True))
    return Figure(
        "kl",
        "How far from the model the best of n and particles go",
        panels,
        "Exact laws; means over tables with 95 % intervals. Particles are resampled after every "
        "token, on shorter strings. The bound is proven for the best of n alone.",
    )


def _series(
    label: str, kind: SeriesKind, ns: Sequence[int], values: Sequence[Sequence[float]]
) -> Series:
    found = [mean(several) for several in values]
    ends = [(e.low, e.high) if e.n > 1 else (e.value, e.value) for e in found]
    return Series(
        label, kind, ns, [e.value for e in found], [a for a, _ in ends], [b for _, b in ends]
    )


# ------------------------------------------------------------------ rows that refute


def _rows(
    rise: float = 0.2,
    fall: float = 0.2,
    late: float = 0.1,
    gain: float = 0.1,
    dip: float = 0.0,
    only: str = "",
) -> list[Bought | Limits]:
    """Curves with these differences, a little apart between seeds; of `only` one error, if named,
    and of the others as they should be."""
    found: list[Bought | Limits] = []
    for error in ERRORS:
        own = error == only or not only
        up, down = (rise, fall) if own else (0.2, 0.2)
        more, better = (late, gain) if own else (0.1, 0.1)
        for seed in range(6):
            wobble = 0.001 * seed
            high = 0.4 + up + wobble
            end = high - down if error in FALLING else high + more - (dip if error == NONE else 0.0)
            for n, right in ((1, 0.4), (FEW, high), (MANY, end)):
                kl = 0.5 * best_of_n_kl_bound(n)
                found.append(Bought(error, seed, 8, "best of n", n, 1.0, right, kl))
            found.append(
                Limits(error, seed, 8, 0.4, 0.4 + better + wobble, 0.6, 0.1, 0.2, 1.0, 1.0)
            )
    return found


_HELD = _rows()


def _first(kind: type[Bought | Limits], **changes: float) -> list[Bought | Limits]:
    """The rows that hold, with the last one of a kind changed."""
    place = max(i for i, row in enumerate(_HELD) if isinstance(row, kind))
    return [replace(row, **changes) if i == place else row for i, row in enumerate(_HELD)]


STUDY = Study(
    name="over_optimisation",
    question="What does more computation buy when the verifier of full strings is wrong?",
    settings={
        Scale.SMOKE: OverOptimised(
            seeds=2, length=4, n=(1, FEW, MANY), particles=(1, 2), steps=(1, 4)
        ),
        Scale.LAPTOP: OverOptimised(),
        Scale.PAPER: OverOptimised(seeds=100, length=10, particles=(1, 2, 4, 8, 12)),
    },
    units=units,
    run=run,
    rows=(Bought, Limits),
    claims=[
        Claim(
            "li.over-optimisation",
            judge_curves,
            refuted_by=[
                _rows(rise=-0.1, fall=0.05, late=0.3, only=HEAVY),
                _rows(rise=-0.1, fall=0.05, late=0.3, only=FOOLED),
                _rows(fall=-0.1, only=HEAVY),
                _rows(fall=-0.1, only=FOOLED),
                _rows(late=-0.1, only=BOUNDED),
                *(_rows(gain=-0.1, only=error) for error in (BOUNDED, *FALLING)),
                _rows(dip=0.3, only=NONE),
                _rows(rise=-0.01, fall=-0.01, late=-0.01, gain=-0.01),  # no effect
            ],
            held_by=_HELD,
        ),
        Claim(
            "li.over-optimisation-bounds",
            judge_bounds,
            refuted_by=[
                _first(Bought, kl=10.0),
                _first(Limits, tilted_kl=0.5),
                _first(Limits, tilted=1.6),
            ],
            held_by=_HELD,
        ),
    ],
    figures=[value_figure, kl_figure],
)

"""`exact_masking` on finite samples: units and judge of Theorem 4.1.4, and the decay of entropy."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from triptych.core.estimates import Outcome, proportion
from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.studies.judging import all_of, largest, rows_of, without_nan
from triptych.studies.masking_models import ising_named, law_named
from triptych.studies.study import Bench, Row, Rows, Unit, Verdict
from triptych.theory import finite_sample, tensorisation
from triptych.theory.block_dynamics import BlockDynamics
from triptych.theory.families import IsingFamily

RADIUS = 1.0  # of the box of parameters
EPSILON = 0.01  # of the covering number that is printed
MASKS = 10**9  # per sequence: the bound is empty with few
DELTAS = (0.1, 0.5)
READINGS = ("cross-entropy", "divergence")  # as defined, and as in the proof
FEWEST = 50  # samples of every setting
INFORMATIVE = 3  # settings, in each reading, in which every right side is below 1


def rate_rows() -> Iterator[Row]:
    """One bit redrawn whole, C_AT = 1: entropy in continuous time against two rates."""
    times = torch.tensor([0.1, 0.5, 1.0, 2.0], dtype=torch.float64)
    for chance in (0.5, 0.1, 0.01):
        table = Table(2, 1, torch.tensor([1 - chance, chance], dtype=torch.float64).log())
        dynamics = BlockDynamics(table, MaskLaw.of_size(1, 1))
        even = torch.tensor([0.4, 0.6], dtype=torch.float64)
        start = tensorisation.both_sides(dynamics, even)[0]
        left = tensorisation.continuous_decay(dynamics, even, times) / start
        yield {
            "kind": "rate",
            "chance": chance,
            "over_printed": float((left / (-2 * times).exp()).max()),
            "over_proved": float((left / (-times).exp()).max()),
        }


def finite_rows(unit: Unit, bench: Bench) -> Iterator[Row]:
    """Both sides of Theorem 4.1.4 for samples of one size, in both readings of the loss.

    The samples are the same for both readings and all δ, and others for every model, law and n.
    """
    parameters = unit.parameters
    name, law, n = parameters["model"], parameters["law"], parameters["n"]
    family = IsingFamily(ising_named(name))
    masks, dimension = law_named(law, family.length), len(family.names)
    margin = finite_sample.support_margin(family, masks, RADIUS)
    cover = finite_sample.covering_number(dimension, RADIUS, EPSILON)
    samples = [
        finite_sample.draw_sample(
            family.table, masks, n, MASKS, bench.rng(f"{name}, {law}, {n}, {repeat}").seed
        )
        for repeat in range(parameters["repeats"])
    ]
    for reading in READINGS:
        fits = [
            finite_sample.fitted(family, masks, sample, RADIUS, divergence=reading == "divergence")
            for sample in samples
        ]
        for delta in DELTAS:
            common = {
                "margin": margin,
                "delta": delta,
                "length": family.length,
                "vocab_size": 2,
                "n": n,
                "m": float(MASKS),
            }
            strict, printed = (
                [
                    finite_sample.right_side(
                        constant=getattr(fit, side), loss=fit.loss, cover=c, epsilon=e, **common
                    )
                    for fit in fits
                ]
                for side, c, e in (("lower", 1.0, 0.0), ("upper", cover, EPSILON))
            )
            distances = [fit.distance for fit in fits]
            yield {
                "kind": "finite",
                "model": name,
                "law": law,
                "n": n,
                "reading": reading,
                "delta": delta,
                "repeats": len(fits),
                "held": sum(d < r for d, r in zip(distances, strict, strict=True)),
                "distance": sum(distances) / len(fits),
                "strict": sum(strict) / len(fits),
                "printed": sum(printed) / len(fits),
                "below_one": sum(r < 1 for r in strict),
                "closest": max(d / r for d, r in zip(distances, strict, strict=True)),
            }


# ------------------------------------------------------------------ the judge


@without_nan
def judge_finite(rows: Rows) -> Verdict:
    """The inequality holds with frequency 1 - δ, for every n, in both readings of the loss.

    With the smallest right side: one cell, ε = 0, the Poincaré constant in place of C_AT. A Wilson
    interval of the frequency that reaches below 1 - δ leaves it UNDECIDED. So do fewer than 50
    samples of a setting (a model, a mask law and n), and fewer than 3 settings, in either reading,
    whose right sides are below 1: a bound above 1 says nothing.
    """
    mine = rows_of(rows, "finite")
    if not mine:
        return Verdict(Outcome.UNDECIDED, "there are no rows yet")
    columns = ("distance", "strict", "printed", "closest", "delta")
    if not all(math.isfinite(row[column]) for row in mine for column in columns):
        return Verdict(Outcome.UNDECIDED, "a side of the inequality is not a number")
    outcomes = []
    for row in mine:
        frequency = proportion(int(row["held"]), int(row["repeats"]))
        wanted = 1 - row["delta"]
        low = Outcome.FAILS if frequency.high < wanted else Outcome.UNDECIDED
        outcomes.append(Outcome.HOLDS if frequency.low >= wanted else low)
    settings: dict[tuple[Any, ...], list[Row]] = {}
    for row in mine:
        settings.setdefault((row["model"], row["law"], row["n"]), []).append(row)
    held = sum(min(row["held"] for row in found) for found in settings.values())
    samples = sum(found[0]["repeats"] for found in settings.values())
    telling = {reading: _telling(settings, reading) for reading in READINGS}
    closest = max(row["closest"] for row in mine)
    empty = {
        side: sum(row[side] >= 1 for row in mine) / len(mine) for side in ("strict", "printed")
    }
    measured: dict[str, Any] = {
        "held": [held, samples],
        "closest": closest,
        "right_side_at_least_1": empty,
        "informative_settings": telling,
    }
    because = (
        f"held in {held} of {samples} independent samples, counted in the worse reading of the "
        f"loss and the worse δ, with the smallest right side (at most {closest:.1%} of it used). "
        f"All right sides are below 1 in {telling['cross-entropy']} of {len(settings)} settings "
        f"with the loss as defined and in {telling['divergence']} with that of the proof; with "
        f"the covering number and a proved C_AT the right side says nothing in "
        f"{empty['printed']:.0%} of the rows"
    )
    because += _levels(mine) + _rates(rows_of(rows, "rate"), measured)
    few = min(row["repeats"] for row in mine)
    thin = []
    if few < FEWEST:
        thin.append(f"a setting has {few} samples and {FEWEST} are needed")
    if min(telling.values()) < INFORMATIVE:
        thin.append(
            f"right sides below 1 are needed in {INFORMATIVE} settings in each reading of the loss"
        )
    outcome = all_of([*outcomes, *[Outcome.UNDECIDED] * bool(thin)])
    said = "; ".join(thin) + ": " if thin and outcome is Outcome.UNDECIDED else ""
    return Verdict(outcome, said + because, measured)


def _telling(settings: dict[tuple[Any, ...], list[Row]], reading: str) -> int:
    """Settings in which, for some δ, every sample has a right side below 1."""
    return sum(
        any(row["reading"] == reading and row["below_one"] == row["repeats"] for row in found)
        for found in settings.values()
    )


def _levels(mine: Sequence[Row]) -> str:
    """Where the right sides end, at the largest n, as far as the rows say."""
    sizes = sorted({row["n"] for row in mine})
    found = ""
    for reading, label in zip(READINGS, ("as defined", "of the proof"), strict=True):
        ends = [
            min((r["strict"] for r in mine if r["reading"] == reading and r["n"] == n), default=0.0)
            for n in (sizes[0], sizes[-1])
        ]
        if len(sizes) > 1 and min(ends) > 0:
            found += (
                f". With the loss {label} the least is {ends[0]:.3g} at n = {sizes[0]:g} and "
                f"{ends[1]:.3g} at n = {sizes[-1]:g}"
            )
    return found


def _rates(rates: Sequence[Row], measured: dict[str, Any]) -> str:
    """What the entropy of one bit says of two rates, 2/C_AT and 1/C_AT."""
    if not rates:
        return ""
    over, proved = (largest([row[c] for row in rates]) for c in ("over_printed", "over_proved"))
    measured |= {"entropy_over_printed_rate": over, "entropy_over_proved_rate": proved}
    clauses = [
        f"the rate {rate}/C_AT is {'met' if value <= 1 + 1e-9 else 'not met'} ({value:.2f} times "
        "what it allows)"
        for rate, value in ((2, over), (1, proved))
    ]
    return f". Entropy of one bit in continuous time: {', '.join(clauses)}"


# ------------------------------------------------------------------ rows made by hand


def _finite(reading: str, n: int, **changes: Any) -> Row:
    row: Row = {"kind": "finite", "model": "chain 2 0.4", "law": "size 1", "n": n}
    row |= {"reading": reading, "delta": 0.1, "repeats": 60, "held": 60, "distance": 0.1}
    return row | {"strict": 0.9, "printed": 9.0, "closest": 0.2, "below_one": 60} | changes


RATE: Row = {"kind": "rate", "chance": 0.01, "over_printed": 1.3, "over_proved": 0.9}
FINITE_HELD: list[Row] = [
    *(_finite(reading, n) for reading in READINGS for n in (100, 1000, 10_000)),
    RATE,
]
FINITE_REFUTED: list[list[Row]] = [
    [*FINITE_HELD, _finite(reading, 100, held=40)] for reading in READINGS
]

"""Exact laws of samplers guided by a verifier: query counts, tokenwise rejection, and VGB's walk
[li, 3.1.3 and 3.3.1].

Each unit enumerates a sampler's choices or its transition matrix and gathers the distance from
what is claimed.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from triptych.core.counting import Counted
from triptych.core.estimates import Outcome, mean
from triptych.core.laws import check_sampler
from triptych.core.protocols import Rng
from triptych.core.randomness import TorchRng, exact_law
from triptych.core.samplers import Chain
from triptych.core.table import Table, places
from triptych.inference import rejection, tokenwise, vgb
from triptych.structures.constraints import AllZeros, SomeZero, restricted
from triptych.structures.uniform import Uniform
from triptych.studies.figures import Figure, Panel, Series
from triptych.studies.judging import EXACT, judge_equal, largest, rows_of
from triptych.studies.study import Bench, Claim, Row, Rows, Scale, Settings, Study, Unit, Verdict


@dataclass(frozen=True)
class ExactSampling(Settings):
    """Sizes of what is enumerated.

    depths    D of the strings
    repeats, rejection_repeats   runs per query count, token by token and by plain rejection
    heights   H of the enumerated trees
    """

    seeds: int = 2
    depths: tuple[int, ...] = (2, 4, 6)
    repeats: int = 100
    rejection_repeats: int = 100
    heights: tuple[int, ...] = (2, 3)


def units(settings: ExactSampling) -> Sequence[Unit]:
    """One per statement and size; the walk also per seed."""
    if min(settings.depths) < 2 or min(settings.heights) < 1:
        raise ValueError("depths must be at least 2 and heights at least 1")
    runs = {"repeats": settings.repeats, "rejection_repeats": settings.rejection_repeats}
    counted = [Unit({"kind": "queries", "depth": d, **runs}, 0) for d in settings.depths]
    laws = [Unit({"kind": "tokenwise", "depth": d}, 0) for d in settings.depths]
    walks = [
        Unit({"kind": "walk", "height": height}, seed)
        for height in settings.heights
        for seed in range(settings.seeds)
    ]
    return [*counted, *laws, *walks]


def run(unit: Unit, bench: Bench) -> Iterable[Row]:
    """Dispatch on the statement; every row carries the unit's parameters and seed."""
    gather: dict[str, Callable[[Unit, Bench], Row]] = {
        "queries": _queries,
        "tokenwise": _tokenwise,
        "walk": _walk,
    }
    row = gather[unit.parameters["kind"]](unit, bench)
    yield {**unit.parameters, "seed": unit.seed, **row}


def _queries(unit: Unit, bench: Bench) -> Row:
    """Calls of the model until {0^D} is hit, by rejection and token by token."""
    depth = unit.parameters["depth"]
    repeats = {
        "rejection": unit.parameters["rejection_repeats"],
        "tokenwise": unit.parameters["repeats"],
    }
    constraint, rng = AllZeros(depth), TorchRng(bench.rng("queries").seed)
    counts: dict[str, list[float]] = {"rejection": [], "tokenwise": []}
    samplers = {"rejection": rejection.sample, "tokenwise": tokenwise.sample}
    for name, draw in samplers.items():
        for _ in range(repeats[name]):
            lm = Counted(Uniform(2, depth))
            draw(lm, constraint, depth, rng)
            counts[name].append(float(lm.queries))
    accepted = exact_law(
        lambda r: rejection.attempt(Uniform(2, depth), constraint, depth, r) is not None
    )
    return {
        "rejection_calls": counts["rejection"],
        "tokenwise_calls": counts["tokenwise"],
        "rejection_expected": depth / accepted.probs[True],
        "tokenwise_expected": depth / _acceptance_of_a_zero(depth),
    }


def _acceptance_of_a_zero(depth: int) -> float:
    """Probability that one draw of one token is accepted, by enumeration."""
    lm, constraint = Uniform(2, depth), AllZeros(depth)

    def accepted(rng: Rng) -> bool:
        drawn = rng.categorical(lm.next_token_log_probs(torch.zeros((1, 0), dtype=torch.long)))
        return bool(constraint.completable(drawn[:, None])[0])

    return exact_law(accepted).probs[True]


def _tokenwise(unit: Unit, bench: Bench) -> Row:
    """The exact law of tokenwise rejection on "at least one 0" against the restricted law."""
    depth = unit.parameters["depth"]
    base, constraint = Table.of(Uniform(2, depth)), SomeZero(depth)
    law, target = tokenwise.law(base, constraint), restricted(base, constraint)
    special = torch.tensor([[1] * (depth - 1) + [0]])
    return {
        "special_probability": float(law.log_prob(special).exp()),
        "restricted_probability": float(target.log_prob(special).exp()),
        "total_variation": float(0.5 * (law.log_probs.exp() - target.log_probs.exp()).abs().sum()),
    }


class _RoughValue:
    """The probability of being accepted, exact on leaves, off by a factor in [1/2, 2] elsewhere."""

    def __init__(self, table: Table, constraint: SomeZero, seed: int) -> None:
        self.length = table.length
        generator = torch.Generator().manual_seed(seed)
        accepted = table.log_probs + constraint.log_value(table.sequences)
        self.log_values = []
        for t in range(table.length + 1):
            exact = accepted.reshape(2**t, -1).logsumexp(-1)
            exact = exact - table.log_probs.reshape(2**t, -1).logsumexp(-1)
            noise = 2 * torch.rand(2**t, generator=generator, dtype=torch.float64) - 1
            self.log_values.append(exact + (noise * math.log(2) if t < table.length else 0.0))

    def log_value(self, prefix: torch.Tensor) -> torch.Tensor:
        t = prefix.shape[1]
        return self.log_values[t][(prefix * places(2, t)).sum(-1)]


def _walk(unit: Unit, bench: Bench) -> Row:
    """The walk's exact transition matrix: invariance, balance, law and mass of the leaves."""
    height = unit.parameters["height"]
    p, constraint = Table.random(2, height, seed=unit.seed), SomeZero(height)
    value = _RoughValue(p, constraint, unit.seed)
    weights = {x: w for x, w in vgb.stationary_weights(p, value).items() if w > 0}
    chain = Chain(lambda x, rng: vgb.walk_step(x, p, value, height, rng), weights, reversible=True)
    invariance, balance = check_sampler(chain)
    leaves = {x: w for x, w in weights.items() if len(x) == height}
    target = p.tilt(constraint.log_value).as_dict()
    mass = sum(leaves.values())
    return {
        "invariance_error": invariance.error,
        "balance_error": balance.error,
        "leaf_law_error": max(abs(w / mass - target[x]) for x, w in leaves.items()),
        "leaf_mass": mass / sum(weights.values()),
    }


def judge_queries(rows: Rows) -> Verdict:
    """Expected calls equal 2^D D and 2D exactly; 99.9 % intervals of the measured means agree.

    UNDECIDED while an interval is wider than half of what it should contain.
    """
    mine = rows_of(rows, "queries")
    if not mine:
        return Verdict(Outcome.UNDECIDED, "there are no rows yet")
    exact, outside, wide, measured = [], [], [], {}
    for row in mine:
        depth = row["depth"]
        published = {"rejection": 2**depth * depth, "tokenwise": 2 * depth}
        for name, value in published.items():
            exact.append(abs(row[f"{name}_expected"] / value - 1))
            estimate = mean(row[f"{name}_calls"], confidence=0.999)
            measured[f"{name}, D = {depth}"] = [value, estimate.value, estimate.low, estimate.high]
            if not estimate.low <= value <= estimate.high:
                outside.append(f"{name} at D = {depth}")
            if not estimate.half_width <= value / 2:
                wide.append(f"{name} at D = {depth}")
    off = largest(exact)
    if not off <= EXACT:
        return Verdict(Outcome.FAILS, f"the exact expectation is off by {off:.1e}", measured)
    if outside:
        because = "the measured mean excludes the formula: " + ", ".join(outside)
        return Verdict(Outcome.FAILS, because, measured)
    if wide:
        because = "too few runs to tell: " + ", ".join(wide)
        return Verdict(Outcome.UNDECIDED, because, measured)
    depths = ", ".join(str(row["depth"]) for row in mine)
    because = f"exact expectations are 2^D D and 2D, and measured means agree, for D = {depths}"
    return Verdict(Outcome.HOLDS, because, measured)


def judge_tokenwise(rows: Rows) -> Verdict:
    mine = rows_of(rows, "tokenwise")
    if not mine:
        return Verdict(Outcome.UNDECIDED, "there are no rows yet")
    off = largest([abs(row["special_probability"] * 2 ** (row["depth"] - 1) - 1) for row in mine])
    apart = -largest([-row["total_variation"] for row in mine])
    measured = {"largest_relative_error": off, "smallest_total_variation": apart}
    if off <= EXACT and apart > EXACT:
        because = (
            f"1…10 has probability 2^-(D-1) to {off:.0e}; TV to the restricted law ≥ {apart:.2g}"
        )
        return Verdict(Outcome.HOLDS, because, measured)
    return Verdict(Outcome.FAILS, f"off by {off:.1e}, total variation {apart:.1e}", measured)


def judge_walk(rows: Rows) -> Verdict:
    """Reversible, right on the leaves, with at least 1 / (8 · 2 · H) of the mass there.

    That bound is what values within a factor 2 promise. A mass of 2^-H would pass it up to H = 6,
    so smaller trees alone leave the claim UNDECIDED.
    """
    mine = rows_of(rows, "walk")
    verdict = judge_equal(
        mine,
        ["invariance_error", "balance_error", "leaf_law_error"],
        "reversible, leaves follow pV",
    )
    if verdict.outcome is not Outcome.HOLDS:
        return verdict
    share = -largest([-row["leaf_mass"] * row["height"] for row in mine])
    because = f"{verdict.because}; leaf mass times H is at least {share:.2f}"
    measured = {**verdict.measured, "leaf_mass_times_height": share}
    if not share >= 1 / 16:
        return Verdict(Outcome.FAILS, because, measured)
    if max(row["height"] for row in mine) < 7:
        return Verdict(Outcome.UNDECIDED, "trees of height 7 or more are needed; " + because)
    return Verdict(Outcome.HOLDS, because, measured)


def queries_figure(rows: Rows) -> Figure:
    """Measured calls against the formulas."""
    mine = sorted(rows_of(rows, "queries"), key=lambda row: row["depth"])
    depths = [row["depth"] for row in mine]
    series = []
    for name, label in (("rejection", "rejection"), ("tokenwise", "token by token")):
        found = [mean(row[f"{name}_calls"]) for row in mine]
        series.append(
            Series(
                label,
                "ours" if name == "tokenwise" else "control",
                depths,
                [e.value for e in found],
                [e.low for e in found],
                [e.high for e in found],
                line=False,
            )
        )
    series.append(Series("2^D D", "truth", depths, [2.0**d * d for d in depths]))
    series.append(Series("2 D", "truth", depths, [2.0 * d for d in depths]))
    return Figure(
        "queries",
        "Rejection needs 2^D D calls to hit one string, token-by-token rejection 2D",
        [Panel(series, "string length D", "calls of the model", y_log=True)],
        "Means over runs with 95 % intervals; the lines are the exact expectations.",
    )


def law_figure(rows: Rows) -> Figure:
    """How far tokenwise rejection is from the restricted law."""
    mine = sorted(rows_of(rows, "tokenwise"), key=lambda row: row["depth"])
    depths = [row["depth"] for row in mine]
    special = [row["special_probability"] for row in mine]
    return Figure(
        "tokenwise_law",
        "Token-by-token rejection does not sample the restricted law: 1…10 gets 2^-(D-1)",
        [
            Panel(
                [
                    Series("token by token (exact)", "ours", depths, special),
                    Series(
                        "restricted law",
                        "truth",
                        depths,
                        [row["restricted_probability"] for row in mine],
                    ),
                ],
                "string length D",
                "probability of 1…10",
                y_log=True,
            )
        ],
        "Both laws by enumeration; there is no sampling noise.",
    )


_QUERIES: Row = {
    "kind": "queries",
    "depth": 2,
    "rejection_calls": [7.9, 8.0, 8.1],
    "tokenwise_calls": [3.9, 4.0, 4.1],
    "rejection_expected": 8.0,
    "tokenwise_expected": 4.0,
}
_LAW: Row = {
    "kind": "tokenwise",
    "depth": 3,
    "special_probability": 1 / 4,
    "total_variation": 1 / 4 - 1 / 7,
}
_WALK: Row = {
    "kind": "walk",
    "height": 10,
    "invariance_error": 0.0,
    "balance_error": 0.0,
    "leaf_law_error": 0.0,
    "leaf_mass": 0.05,
}

STUDY = Study(
    name="exact_sampling",
    about="What do verifier-guided samplers cost, and which law do they really have?",
    settings={
        Scale.SMOKE: ExactSampling(
            seeds=1, depths=(2, 3), repeats=100, rejection_repeats=200, heights=(2, 3, 7)
        ),
        Scale.LAPTOP: ExactSampling(
            seeds=5,
            depths=(2, 4, 6, 8),
            repeats=400,
            rejection_repeats=100,
            heights=(2, 4, 6, 8),
        ),
        Scale.PAPER: ExactSampling(
            seeds=20,
            depths=(2, 4, 6, 8, 10, 12),
            repeats=2000,
            rejection_repeats=200,
            heights=(2, 4, 6, 8, 10),
        ),
    },
    units=units,
    run=run,
    claims=[
        Claim(
            "li.prop-3.1.1",
            judge_queries,
            [
                [_QUERIES | {"tokenwise_calls": [8.0, 8.1, 8.2]}],
                [_QUERIES | {"rejection_calls": [16.0, 16.1, 16.2]}],
                [_QUERIES | {"rejection_expected": 8.1}],
            ],
        ),
        Claim(
            "li.prop-3.1.2",
            judge_tokenwise,
            [[_LAW | {"special_probability": 1 / 7}], [_LAW | {"total_variation": 0.0}]],
        ),
        Claim(
            "li.vgb-stationary",
            judge_walk,
            [
                [_WALK | {"leaf_law_error": 0.01}],
                [_WALK | {"balance_error": 0.01}],
                [_WALK | {"leaf_mass": 2.0**-10}],
            ],
        ),
    ],
    figures=[queries_figure, law_figure],
)

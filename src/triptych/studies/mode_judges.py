"""The judges of `reaching_the_mode`, but for figure 4.3 (`mode_figures`) and `mode_decoders`.

Exact laws are compared with two kinds of draws, each count by an exact binomial test: draws of the
same matrix, which check the arithmetic of first times, and runs of the samplers on the spins, which
check that the matrix is theirs.
"""

import math
from collections.abc import Sequence
from typing import Any

from scipy import stats

from triptych.core.estimates import Outcome
from triptych.studies.judging import EXACT, largest, rows_of, without_nan
from triptych.studies.study import Row, Rows, Verdict
from triptych.theory import ferromagnet

FAILURE = 1e-9  # chance that a right share is found wrong, for each comparison
FEWEST_MODELS = 5
NO_ROWS = Verdict(Outcome.UNDECIDED, "there are no rows yet")


def share_fits(count: int | None, runs: int, exact: float) -> bool:
    """Whether so many of the runs are compatible with an exact probability; None was not drawn.

    Worked value: 1 of 2000 at probability 1e-5 fits, its p-value is 0.02; 10 of 2000 do not.
    """
    if count is None:
        return True
    return float(stats.binomtest(count, runs, min(1.0, exact)).pvalue) > FAILURE


def first_misfit(rows: Sequence[Row]) -> Row | None:
    """The first row of which a count of T ≤ t, for a t of its `times`, does not fit."""
    for row in rows:
        for count, exact in zip(row["counts"], row["exact_shares"], strict=True):
            if not share_fits(count, row["runs"], exact):
                return row
    return None


def sampler_rows(rows: Rows, setting: str, *, parallel: bool) -> list[Row]:
    """Runs on the spins in one setting: of independent parallel, or of k-Gibbs."""
    of = [row for row in rows_of(rows, "sampler") if row["setting"] == setting]
    return [row for row in of if (row["k"] == 0) is parallel]


def sampler_row(setting: str, k: int, **changes: Any) -> Row:
    """A made-up run that fits: half of the chains arrive in the first step."""
    row: Row = {"kind": "sampler", "setting": setting, "k": k, "coupling": 1.0, "runs": 2000}
    row |= {"times": [1, 30], "exact_shares": [0.5, 1.0], "counts": [1000, 2000]}
    return row | changes


def _out_of_scope(rows: Sequence[Row]) -> Verdict | None:
    if any(row["violated"] for row in rows):
        return Verdict(Outcome.UNDECIDED, "a model does not satisfy the assumptions of the claim")
    return None


# ------------------------------------------------------------------ Proposition 4.3.3


@without_nan
def judge_modes(rows: Rows) -> Verdict:
    """Every inequality as printed, strict ones strictly, on the exact extremes over all states."""
    mine = rows_of(rows, "modes")
    if not mine:
        return NO_ROWS
    if out := _out_of_scope(mine):
        return out
    checked = [row["enumeration_error"] for row in mine if row["enumeration_error"] is not None]
    turned = largest([abs(row["flipped"] - row["twice_clique_sum"]) for row in mine])
    counted = largest([0.0, *checked])
    least = -largest([row["twice_margin"] - row["small_over_rest"] for row in mine])
    first = -largest([-row["large_over_small"] for row in mine])
    measured = {"models": len(mine), "error": counted, "least_excess": least, "turned": turned}
    if not counted <= EXACT:
        return Verdict(Outcome.FAILS, f"all states give ratios off by {counted:.1e}", measured)
    if not turned <= EXACT:
        return Verdict(Outcome.FAILS, f"the bijection is off by {turned:.1e}", measured)
    if not first > 0:
        return Verdict(Outcome.FAILS, f"R_1 is not above R_-1: log-ratio {first:.3g}", measured)
    if least < -EXACT:
        because = f"p(y) ≥ e^(2 J_0) p(z) is broken by {-least:.3g} in the logarithm"
        return Verdict(Outcome.FAILS, because, measured)
    equal = [row for row in mine if not row["small_over_rest"] > row["twice_margin"]]
    if equal:
        row = min(equal, key=lambda row: row["spins"])
        because = (
            f"the printed p(y) > e^(2 J_0) p(z) is an equality in {len(equal)} of {len(mine)} "
            f"models, all with |C| = {max(row['clique'] for row in equal)}: at J = "
            f"{row['coupling']:g} and clique fields {row['clique_fields']} both sides of the "
            f"log-ratio are {row['small_over_rest']:g}. With ≥, which is what the proof shows, all "
            "models satisfy it; > holds when |C| ≥ 3 or no clique field is 0. This counts every "
            "pair once, as the proofs in 4.3.5 and 4.3.7 do; ordered pairs i ≠ j in (4.6) would "
            "double J and make it strict. The other parts, p(x) > p(y) and the bijection, hold as "
            "printed"
        )
        return Verdict(Outcome.FAILS, because, measured)
    if len(mine) < FEWEST_MODELS or not checked:
        return Verdict(Outcome.UNDECIDED, "five models, some enumerated, are needed", measured)
    because = f"all inequalities hold in {len(mine)} models, by at least {least:.3g}"
    return Verdict(Outcome.HOLDS, because, measured)


def _mode(**changes: Any) -> Row:
    row: Row = {"kind": "modes", "spins": 2, "clique": 2, "coupling": 3.0, "violated": 0}
    row |= {"clique_fields": [1.0, 0.25], "twice_margin": 3.5, "twice_clique_sum": 2.5}
    row |= {"large_over_small": 2.5, "small_over_rest": 4.0, "flipped": 2.5}
    return row | {"enumeration_error": 0.0} | changes


MODES_HELD = [_mode()] * FEWEST_MODELS
MODES_REFUTED = [
    [*MODES_HELD, _mode(enumeration_error=0.1)],
    [*MODES_HELD, _mode(flipped=2.6)],
    [*MODES_HELD, _mode(large_over_small=0.0)],
    [*MODES_HELD, _mode(small_over_rest=3.4)],
    [*MODES_HELD, _mode(small_over_rest=3.5)],
]

# ------------------------------------------------------------------ Proposition 4.1.4


@without_nan
def judge_reach(rows: Rows) -> Verdict:
    """From every start, R_1 is missed for ⌈log_c δ⌉ steps with probability at most δ."""
    mine = rows_of(rows, "reach")
    if not mine:
        return NO_ROWS
    if out := _out_of_scope(mine):
        return out
    worst = max(mine, key=lambda row: row["missed"] / row["delta"])
    step = -largest([row["log_step_bound"] - row["log_step"] for row in mine])
    loose = sorted(row["steps"] / row["exact_steps"] for row in mine)
    measured = {
        "cases": len(mine),
        "largest_missed_over_delta": worst["missed"] / worst["delta"],
        "least_log_step_over_bound": step,
        "bound_over_exact_steps": [loose[0], loose[len(loose) // 2], loose[-1]],
    }
    if not worst["missed"] <= worst["delta"] + EXACT:
        shown = f"{worst['missed']:.3g} > δ = {worst['delta']:g}"
        because = f"R_1 is missed with {shown}: {_case(worst)}"
        return Verdict(Outcome.FAILS, because, measured)
    if not step >= -EXACT:
        because = f"a step reaches R_1 less often than 1 - c, by {-step:.3g} in the logarithm"
        return Verdict(Outcome.FAILS, because, measured)
    for row in mine:
        if not share_fits(row["drawn_missed"], row["runs"], row["missed_from_small"]):
            because = f"draws of the chain and its exact law disagree: {_case(row)}"
            return Verdict(Outcome.FAILS, because, measured)
    spins = sampler_rows(rows, "bounds", parallel=False)
    if row := first_misfit(spins):
        because = f"k-Gibbs on the spins and the exact law disagree at k = {row['k']}"
        return Verdict(Outcome.FAILS, because, measured)
    drawn = sum(row["drawn_missed"] is not None for row in mine)
    if len(mine) < 4 or not drawn or not spins:
        because = "four cases, some drawn, and k-Gibbs on the spins are needed"
        return Verdict(Outcome.UNDECIDED, because, measured)
    because = (
        f"in {len(mine)} cases, exactly, R_1 is missed with at most "
        f"{worst['missed'] / worst['delta']:.2f} δ from the worst start; the bound is "
        f"{loose[0]:.2g} to {loose[-1]:.2g} times the steps that are needed from there, "
        f"{loose[len(loose) // 2]:.2g} in the middle. Draws of the same chain agree in {drawn} "
        f"cases, k-Gibbs on the spins in {len(spins)}"
    )
    return Verdict(Outcome.HOLDS, because, measured)


def _case(row: Row) -> str:
    return (
        f"N = {row['spins']}, |C| = {row['clique']}, k = {row['block']}, "
        f"J_0 = {row['margin']:g}, h_G = {row['clique_sum']:g}, T = {row['steps']}"
    )


def _reached(**changes: Any) -> Row:
    row: Row = {"kind": "reach", "spins": 4, "clique": 2, "block": 3, "delta": 0.1, "violated": 0}
    row |= {"margin": 0.5, "clique_sum": 1.0, "steps": 5, "missed": 0.05, "exact_steps": 4}
    row |= {"log_step": -0.5, "log_step_bound": -0.6, "missed_from_small": 0.04}
    return row | {"drawn_missed": 40, "runs": 1000} | changes


REACH_HELD = [sampler_row("bounds", 4), *[_reached()] * 4]
REACH_REFUTED = [
    [*REACH_HELD, _reached(missed=0.11)],
    [*REACH_HELD, _reached(log_step=-0.7)],
    [*REACH_HELD, _reached(drawn_missed=400)],
    [*REACH_HELD, sampler_row("bounds", 8, counts=[1000, 1900])],
]

# ------------------------------------------------------------------ Proposition 4.1.5


@without_nan
def judge_stuck(rows: Rows) -> Verdict:
    """The magnetisation stays at most -2 for ⌊δ/2 exp(c_stuck)⌋ steps with probability 1 - δ.

    UNDECIDED unless steps are promised both where the proof's radius is positive and where not.
    """
    mine = rows_of(rows, "stuck")
    if not mine:
        return NO_ROWS
    if out := _out_of_scope(mine):
        return out
    promised = [row for row in mine if row["steps"] >= 1]
    inside = [row for row in promised if row["radius"] > 0]
    broken = [row for row in promised if not row["stayed"] >= 1 - row["delta"] - EXACT]
    measured: dict[str, Any] = {
        "cases": len(mine),
        "with_steps_promised": len(promised),
        "of_these_with_positive_radius": len(inside),
        "broken": len(broken),
        "broken_with_positive_radius": sum(row["radius"] > 0 for row in broken),
    }
    for row in promised:
        if not share_fits(row["drawn_stayed"], row["runs"], row["stayed_from_small"]):
            because = f"draws of the chain and its exact law disagree at |C| = {row['clique']}"
            return Verdict(Outcome.FAILS, because, measured)
    spins = sampler_rows(rows, "bounds", parallel=True)
    if row := first_misfit(spins):
        because = f"the sampler on the spins and the exact law disagree at J = {row['coupling']:g}"
        return Verdict(Outcome.FAILS, because, measured)
    if broken:
        row = min(broken, key=lambda row: row["stayed"] - (1 - row["delta"]))
        low, high = ferromagnet.stuck_gap(row["margin"])
        because = (
            f"false as printed in {len(broken)} of {len(promised)} cases that promise a step: at "
            f"|C| = {row['clique']}, J_0 = {row['margin']:g}, δ = {row['delta']:.4f}, T = "
            f"{row['steps']} and both spins stay down with {row['stayed']:.4f}, less than "
            f"1 - δ = {1 - row['delta']:.4f}. The proof needs r = -1 + tanh(J_0) |C| / 2 > 0 and "
            f"r = {row['radius']:.3f} is squared. "
        )
        if measured["broken_with_positive_radius"] == 0:
            because += (
                f"All {len(inside)} cases with r > 0 hold. For r ≤ 0 a step is promised at |C| = 2 "
                f"alone, and the promise is broken for δ from {low:.4f} up to {high:.4f} at this "
                "J_0, and for no δ from J_0 = 0.0072 on: r > 0, or |C| ≥ 3, saves the statement"
            )
        return Verdict(Outcome.FAILS, because, measured)
    if not inside or len(inside) == len(promised) or not spins:
        because = "promises with r > 0, with r ≤ 0, and a run on the spins are needed to tell"
        return Verdict(Outcome.UNDECIDED, because, measured)
    because = f"stays as promised in {len(promised)} cases, {len(inside)} of them with r > 0"
    return Verdict(Outcome.HOLDS, because, measured)


def _stayed(**changes: Any) -> Row:
    row: Row = {"kind": "stuck", "clique": 8, "margin": 2.0, "delta": 0.5, "violated": 0}
    row |= {"radius": 2.9, "steps": 1, "stayed": 0.99, "stayed_from_small": 0.995}
    return row | {"drawn_stayed": 995, "runs": 1000} | changes


STUCK_HELD = [
    _stayed(radius=-0.9, clique=2, stayed=0.6, drawn_stayed=None),
    _stayed(),
    sampler_row("bounds", 0),
]
STUCK_REFUTED = [
    [*STUCK_HELD, _stayed(stayed=0.49)],
    [*STUCK_HELD, _stayed(radius=-0.9, clique=2, margin=0.001, delta=0.745, stayed=0.2505)],
    [*STUCK_HELD, _stayed(drawn_stayed=500)],
    [*STUCK_HELD, sampler_row("bounds", 0, counts=[1200, 2000])],
]

# ------------------------------------------------------------------ Corollary 4.1.1


@without_nan
def judge_corollary(rows: Rows) -> Verdict:
    """Both parts together fail with probability at most δ; r > 0 follows from Assumption 4.1.6."""
    mine = rows_of(rows, "corollary")
    if not mine:
        return NO_ROWS
    if out := _out_of_scope(mine):
        return out
    worst = max(mine, key=lambda row: row["failure"] / row["delta"])
    part = largest([row["log_parallel_reached"] for row in mine])
    ratio = worst["failure"] / worst["delta"]
    measured = {"cases": len(mine), "failure_over_delta": ratio, "log_parallel_reached": part}
    for row in mine:
        both = math.exp(row["log_gibbs_missed"]) + math.exp(row["log_parallel_reached"])
        if not abs(both - row["failure"]) <= EXACT:
            return Verdict(Outcome.FAILS, "the parts do not add up to the whole", measured)
        if not share_fits(row["drawn_missed"], row["runs"], row["missed_from_small"]):
            return Verdict(Outcome.FAILS, "draws of the chain and its exact law disagree", measured)
    if not ratio <= 1 + EXACT:
        shown = f"{worst['failure']:.3g} > δ = {worst['delta']:g}"
        because = f"fails with {shown}, M = {worst['horizon']}"
        return Verdict(Outcome.FAILS, because, measured)
    if not all(row["radius"] > 0 for row in mine):
        return Verdict(Outcome.FAILS, "Assumption 4.1.6 is met with a radius r ≤ 0", measured)
    partial = sum(row["block"] < row["spins"] for row in mine)
    if len(mine) < 2 or not partial or partial == len(mine):
        return Verdict(Outcome.UNDECIDED, "cases with k = N and with k < N are needed", measured)
    sizes = sorted({row["clique"] for row in mine})
    because = (
        f"in {len(mine)} cases (|C| = {sizes[0]}..{sizes[-1]}, {partial} with k < N) both parts "
        f"fail together with at most {ratio:.2f} δ; independent parallel is in R_1 within M steps "
        f"with probability at most 10^{math.ceil(part / math.log(10))}"
    )
    return Verdict(Outcome.HOLDS, because, measured)


def _separated(**changes: Any) -> Row:
    row: Row = {"kind": "corollary", "horizon": 1, "delta": 0.5, "clique": 25, "violated": 0}
    row |= {"spins": 100, "block": 100, "radius": 11.0, "log_gibbs_missed": math.log(0.25)}
    row |= {"log_parallel_reached": -900.0, "failure": 0.25, "missed_from_small": 0.25}
    return row | {"drawn_missed": 250, "runs": 1000} | changes


COROLLARY_HELD = [_separated(), _separated(block=99)]
COROLLARY_REFUTED = [
    [*COROLLARY_HELD, _separated(failure=0.6, log_gibbs_missed=math.log(0.6))],
    [*COROLLARY_HELD, _separated(radius=-0.5)],
    [*COROLLARY_HELD, _separated(log_parallel_reached=math.log(0.5))],
    [*COROLLARY_HELD, _separated(drawn_missed=600)],
]

"""The judges of `reaching_the_mode`."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from scipy import stats

from triptych.core.estimates import Outcome
from triptych.studies.judging import EXACT, largest, rows_of, without_nan
from triptych.studies.study import Row, Rows, Verdict
from triptych.theory import ferromagnet

REPEATS, BUDGET = 10, 1000  # of figure 4.3
NEVER = 0.01  # chance that one of ten repetitions arrives, below which "never" is what one sees
VISIBLE = 1e-3  # a relative change that no figure shows
FAILURE = 1e-9  # chance that a right simulation is found wrong, for each comparison
FEWEST_COUPLINGS, FEWEST_MODELS = 4, 5
_NO_ROWS = Verdict(Outcome.UNDECIDED, "there are no rows yet")


def mean_tolerance(deviation: float, width: float, n: int) -> float:
    """P(|mean of n draws - expectation| > this) ≤ 1e-9, by Bernstein, for draws `width` wide.

    Worked value: no deviation, width 3, n = log(2e9): 2.
    """
    log = math.log(2 / FAILURE)
    return deviation * math.sqrt(2 * log / n) + 2 * width * log / (3 * n)


def _share_fits(count: int | None, runs: int, exact: float) -> bool:
    """Whether a simulated share is compatible with its exact probability; None was not run."""
    if count is None:
        return True
    return float(stats.binomtest(count, runs, min(1.0, exact)).pvalue) > FAILURE


def _out_of_scope(rows: Sequence[Row]) -> Verdict | None:
    if any(row["violated"] for row in rows):
        return Verdict(Outcome.UNDECIDED, "a model does not satisfy the assumptions of the claim")
    return None


# ------------------------------------------------------------------ figure 4.3


@without_nan
def judge_figure(rows: Rows) -> Verdict:
    """Larger k is faster at every J, larger J slower at every k < N, both exactly.

    Independent parallel must be out of reach from some J of the grid on: the source does not say
    which J it tried. UNDECIDED without four couplings and every k at each.
    """
    mine, lumped = rows_of(rows, "figure"), rows_of(rows, "lumping")
    if not mine or not lumped:
        return _NO_ROWS
    off = largest([row["lumping_error"] for row in lumped])
    if not off <= EXACT:
        return Verdict(Outcome.FAILS, f"the chain of the count is off by {off:.1e}")
    table = {(row["coupling"], row["k"]): row for row in mine}
    couplings = sorted({row["coupling"] for row in mine})
    sizes = sorted({row["k"] for row in mine} - {0})
    complete = all((j, k) in table for j in couplings for k in (0, *sizes))
    if len(couplings) < FEWEST_COUPLINGS or not complete or len(sizes) < 3:
        return Verdict(Outcome.UNDECIDED, "four couplings with all samplers at each are needed")
    for row in mine:
        reach = mean_tolerance(row["exact_deviation"], BUDGET - 1.0, row["runs"])
        if not abs(row["simulated"] - row["exact"]) <= reach:
            at = f"J = {row['coupling']:g}, k = {row['k']}"
            return Verdict(Outcome.FAILS, f"simulation and exact mean disagree at {at}")
    for j in couplings:
        for k, more in pairwise(sizes):
            if not table[j, more]["log_mean"] < table[j, k]["log_mean"]:
                at = f"at J = {j:g}"
                return Verdict(Outcome.FAILS, f"k = {more} is not faster than k = {k} {at}")
    for k in sizes[:-1]:  # k = N draws afresh at every step
        means = [table[j, k]["exact"] for j in couplings]
        falls = any(b < a * (1 - VISIBLE) for a, b in pairwise(means))
        if falls or not means[-1] > means[0] * (1 + VISIBLE):
            return Verdict(Outcome.FAILS, f"larger J is not slower for k = {k}: {means}")
    return _figure_verdict(table, couplings, sizes)


def _arrives(row: Row) -> float:
    """P(one of ten repetitions arrives within the budget)."""
    return -math.expm1(REPEATS * math.log1p(-min(math.exp(row["log_reached"]), 1 - 1e-16)))


def _figure_verdict(
    table: dict[tuple[float, int], Row], couplings: Sequence[float], sizes: Sequence[int]
) -> Verdict:
    last = couplings[-1]

    def never_from(k: int) -> float | None:
        """The least J of the grid from which on the sampler does not arrive."""
        found = None
        for j in reversed(couplings):
            if not _arrives(table[j, k]) < NEVER:
                break
            found = j
        return found

    first = never_from(0)
    measured: dict[str, Any] = {
        "couplings": list(couplings),
        "independent_parallel": [table[j, 0]["exact"] for j in couplings],
        **{f"k = {k}": [table[j, k]["exact"] for j in couplings] for k in sizes},
        "never_from": {str(k): never_from(k) for k in (0, *sizes)},
    }
    if first is None:
        share = math.exp(table[last, 0]["log_reached"])
        because = f"independent parallel still arrives at J = {last:g}, in {share:.2g} of the runs"
        return Verdict(Outcome.FAILS, because, measured)
    reached = [j for j in couplings if _arrives(table[j, 0]) > 0.5]
    sooner = [j for j in couplings if table[j, 0]["exact"] < table[j, 1]["exact"] * (1 - VISIBLE)]
    also = [k for k in sizes if _arrives(table[last, k]) < NEVER]
    ends = ", ".join(f"{table[last, k]['exact']:.3g} (k = {k})" for k in sizes if k not in also)
    because = (
        f"larger k is faster at every J = {couplings[0]:g}..{last:g} and larger J slower at every "
        f"k < N, exactly (at J = {last:g}: {ends}); independent parallel never arrives from "
        f"J = {first:g} on. The source does not say which J it tried"
    )
    if reached:
        because += f"; up to J = {reached[-1]:g} independent parallel does arrive"
    if sooner:
        because += f", up to J = {sooner[-1]:g} in fewer steps than 1-Gibbs"
    if also:
        because += f"; at J = {last:g} k ≤ {also[-1]} never arrives either"
    if any(row["violated"] for row in table.values()):
        because += (
            ". The printed setting is outside of Assumption 4.1.5: h_G = 20 is below 30, the free "
            "|h|, and J would have to exceed 50"
        )
    return Verdict(Outcome.HOLDS, because, measured)


def _steps(j: float, k: int, exact: float, **changes: Any) -> Row:
    row: Row = {"kind": "figure", "coupling": j, "k": k, "exact": exact, "exact_deviation": 0.0}
    row |= {"log_mean": math.log(exact), "log_reached": 0.0, "simulated": exact, "runs": 10_000}
    return row | {"violated": 2} | changes


_LUMPED: Row = {"kind": "lumping", "k": 1, "lumping_error": 0.0}
FIGURE_HELD = [
    _LUMPED,
    *(_steps(float(j), k, 10.0 * j / k) for j in (1, 2, 3, 4) for k in (1, 2, 3)),
    *(_steps(float(j), 0, 1000.0, log_reached=-30.0) for j in (1, 2, 3, 4)),
]
FIGURE_REFUTED = [
    [_LUMPED | {"lumping_error": 0.1}, *FIGURE_HELD[1:]],
    [*FIGURE_HELD, _steps(4.0, 2, 20.0, simulated=60.0)],
    [*FIGURE_HELD, _steps(2.0, 2, 5.0, log_mean=3.0)],
    [*FIGURE_HELD, _steps(4.0, 2, 5.0, log_mean=math.log(20.0))],
    [*FIGURE_HELD, _steps(4.0, 1, 10.0), _steps(3.0, 1, 10.0), _steps(2.0, 1, 10.01)],
    [*FIGURE_HELD, _steps(4.0, 0, 900.0, log_reached=-2.0)],
]

# ------------------------------------------------------------------ Proposition 4.3.3


@without_nan
def judge_modes(rows: Rows) -> Verdict:
    """Every inequality as printed, strict ones strictly, on the exact extremes over all states."""
    mine = rows_of(rows, "modes")
    if not mine:
        return _NO_ROWS
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
            "models satisfy it; > holds when |C| ≥ 3 or no clique field is 0. The other parts, "
            "p(x) > p(y) and the bijection, hold as printed"
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
        return _NO_ROWS
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
        if not _share_fits(row["simulated_missed"], row["runs"], row["missed_from_small"]):
            because = f"simulation and exact law disagree: {_case(row)}"
            return Verdict(Outcome.FAILS, because, measured)
    simulated = sum(row["simulated_missed"] is not None for row in mine)
    if len(mine) < 4 or not simulated:
        return Verdict(Outcome.UNDECIDED, "four cases, some simulated, are needed", measured)
    because = (
        f"in {len(mine)} cases ({simulated} simulated) R_1 is missed with at most "
        f"{worst['missed'] / worst['delta']:.2f} δ, from the worst start; the bound is "
        f"{loose[0]:.2g} to {loose[-1]:.2g} times the steps that are needed, "
        f"{loose[len(loose) // 2]:.2g} in the middle"
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
    return row | {"simulated_missed": 40, "runs": 1000} | changes


REACH_HELD = [_reached()] * 4
REACH_REFUTED = [
    [*REACH_HELD, _reached(missed=0.11)],
    [*REACH_HELD, _reached(log_step=-0.7)],
    [*REACH_HELD, _reached(simulated_missed=400)],
]

# ------------------------------------------------------------------ Proposition 4.1.5


@without_nan
def judge_stuck(rows: Rows) -> Verdict:
    """The magnetisation stays at most -2 for ⌊δ/2 exp(c_stuck)⌋ steps with probability 1 - δ.

    UNDECIDED unless steps are promised both where the proof's radius is positive and where not.
    """
    mine = rows_of(rows, "stuck")
    if not mine:
        return _NO_ROWS
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
        if not _share_fits(row["simulated_stayed"], row["runs"], row["stayed_from_small"]):
            because = f"simulation and exact law disagree at |C| = {row['clique']}"
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
    if not inside or len(inside) == len(promised):
        because = "steps must be promised with r > 0 and with r ≤ 0 to tell"
        return Verdict(Outcome.UNDECIDED, because, measured)
    because = f"stays as promised in {len(promised)} cases, {len(inside)} of them with r > 0"
    return Verdict(Outcome.HOLDS, because, measured)


def _stayed(**changes: Any) -> Row:
    row: Row = {"kind": "stuck", "clique": 8, "margin": 2.0, "delta": 0.5, "violated": 0}
    row |= {"radius": 2.9, "steps": 1, "stayed": 0.99, "stayed_from_small": 0.995}
    return row | {"simulated_stayed": 995, "runs": 1000} | changes


STUCK_HELD = [_stayed(radius=-0.9, clique=2, stayed=0.6, simulated_stayed=None), _stayed()]
STUCK_REFUTED = [
    [*STUCK_HELD, _stayed(stayed=0.49)],
    [*STUCK_HELD, _stayed(radius=-0.9, clique=2, margin=0.001, delta=0.745, stayed=0.2505)],
    [*STUCK_HELD, _stayed(simulated_stayed=500)],
]

# ------------------------------------------------------------------ Corollary 4.1.1


@without_nan
def judge_corollary(rows: Rows) -> Verdict:
    """Both parts together fail with probability at most δ; r > 0 follows from Assumption 4.1.6."""
    mine = rows_of(rows, "corollary")
    if not mine:
        return _NO_ROWS
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
        if not _share_fits(row["simulated_missed"], row["runs"], row["missed_from_small"]):
            return Verdict(Outcome.FAILS, "simulation and exact law disagree", measured)
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
        f"with probability below 10^{part / math.log(10):.0f}"
    )
    return Verdict(Outcome.HOLDS, because, measured)


def _separated(**changes: Any) -> Row:
    row: Row = {"kind": "corollary", "horizon": 1, "delta": 0.5, "clique": 25, "violated": 0}
    row |= {"spins": 100, "block": 100, "radius": 11.0, "log_gibbs_missed": math.log(0.25)}
    row |= {"log_parallel_reached": -900.0, "failure": 0.25, "missed_from_small": 0.25}
    return row | {"simulated_missed": 250, "runs": 1000} | changes


COROLLARY_HELD = [_separated(), _separated(block=99)]
COROLLARY_REFUTED = [
    [*COROLLARY_HELD, _separated(failure=0.6, log_gibbs_missed=math.log(0.6))],
    [*COROLLARY_HELD, _separated(radius=-0.5)],
    [*COROLLARY_HELD, _separated(log_parallel_reached=math.log(0.5))],
    [*COROLLARY_HELD, _separated(simulated_missed=600)],
]

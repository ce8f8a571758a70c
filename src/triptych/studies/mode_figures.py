"""Figure 4.3 of `reaching_the_mode`, gathered, judged and drawn; and pictures of the two bounds."""

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.estimates import Outcome
from triptych.core.mask_laws import MaskLaw
from triptych.core.randomness import TorchRng
from triptych.core.table import Table, all_sequences
from triptych.studies.figures import Figure, Kind, Panel, Series
from triptych.studies.judging import EXACT, largest, rows_of, without_nan
from triptych.studies.mode_judges import NO_ROWS, first_misfit, sampler_row, sampler_rows
from triptych.studies.study import Row, Rows, Unit, Verdict
from triptych.theory import ferromagnet, parallel
from triptych.theory.block_dynamics import BlockDynamics
from triptych.theory.ferromagnet import Ferromagnet
from triptych.theory.hitting import Hitting, simulate

SPINS, CLIQUE, FIELD, BUDGET, REPEATS = 10, 4, 5.0, 1000, 10
NEVER = 0.01  # chance that one of ten repetitions arrives, below which "never" is what one sees
VISIBLE = 1e-3  # a relative change that no figure shows
FEWEST_COUPLINGS = 4
_QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99, 0.999)  # of T, where shares are compared
_DELTA, _MARGIN = 0.1, 0.5  # of the bound on k-Gibbs that is drawn
_STUCK_DELTA, _STUCK_MARGIN = 0.9, 0.3  # of the bound on independent parallel
_EDGE = 0.001  # J_0 where the printed bound is false

# ------------------------------------------------------------------ what is gathered


def compared(hitting: Hitting, drawn: Int[Tensor, " runs"], most: int) -> Row:
    """How many drawn T are at most t, beside P(T ≤ t), at quantiles t of T up to `most`.

    Shares, because the mean of a fast cell says little: a tail of few runs can carry it anywhere.
    Worked value: T geometric with ½, most 2, drawn 1, 2, 3: of three runs 1 and 2 are there by
    t = 1 and t = 2, where ½ and ¾ are expected.
    """
    alive = hitting.survival(most, 0)
    times = sorted({most, *(min(most, int((alive > 1 - q).sum())) for q in _QUANTILES)})
    return {
        "times": times,
        "exact_shares": [float(hitting.within(t)[0][0].exp()) for t in times],
        "counts": [int((drawn <= t).sum()) for t in times],
        "runs": len(drawn),
    }


def figure_rows(unit: Unit, rng: TorchRng) -> Iterable[Row]:
    """Steps from R_-1 to R_1, at most the budget: every k, and independent parallel as k = 0."""
    coupling, runs = unit.parameters["coupling"], unit.parameters["runs"]
    model = Ferromagnet.equal(SPINS, CLIQUE, coupling, FIELD, FIELD)
    for k in range(SPINS + 1):
        chain = ferromagnet.gibbs_chain(model, k) if k else ferromagnet.parallel_chain(model)
        hitting = Hitting(chain.log_matrix, chain.large)
        drawn = simulate(hitting, torch.zeros(runs, dtype=torch.long), BUDGET, rng)
        yield {
            "coupling": coupling,
            "k": k,
            "exact": hitting.capped_mean(BUDGET, 0)[0],
            "log_mean": float(hitting.log_mean()[0]),
            "log_reached": max(float(hitting.within(BUDGET)[0][0]), -1e6),
            **compared(hitting, drawn, BUDGET),
            "repeats": drawn[:REPEATS].clamp(max=BUDGET).double().tolist(),
            "violated": len(model.violations),
        }


def lumping_rows(unit: Unit, rng: TorchRng) -> Iterable[Row]:
    """The chain of the count against all 2^10 states of the same setting."""
    model = Ferromagnet.equal(SPINS, CLIQUE, 2.5, FIELD, FIELD)
    table = Table.of(model.ising())
    up = all_sequences(2, SPINS)[:, :CLIQUE].sum(-1)
    onto = torch.nn.functional.one_hot(up, CLIQUE + 1).double()
    for k in unit.parameters["blocks"]:
        if k:
            full = BlockDynamics(table, MaskLaw.of_size(SPINS, k)).transition()
            chain = ferromagnet.gibbs_chain(model, k)
        else:
            full = parallel.product_chain(parallel.independent_parallel_laws(table))
            chain = ferromagnet.parallel_chain(model)
        off = (full @ onto - chain.log_matrix.exp()[up]).abs().max()
        yield {"k": k, "lumping_error": float(off)}


# ------------------------------------------------------------------ what it decides


@without_nan
def judge_figure(rows: Rows) -> Verdict:
    """Larger k is faster at every J, larger J not faster at any k < N by a visible amount.

    Independent parallel must be out of reach from some J of the grid on: the source does not say
    which J it tried. UNDECIDED without four couplings and every k at each, and without runs of both
    samplers on the spins.
    """
    mine, lumped = rows_of(rows, "figure"), rows_of(rows, "lumping")
    if not mine or not lumped:
        return NO_ROWS
    off = largest([row["lumping_error"] for row in lumped])
    if not off <= EXACT:
        return Verdict(Outcome.FAILS, f"the chain of the count is off by {off:.1e}")
    table = {(row["coupling"], row["k"]): row for row in mine}
    couplings = sorted({row["coupling"] for row in mine})
    sizes = sorted({row["k"] for row in mine} - {0})
    spins = [sampler_rows(rows, "figure", parallel=which) for which in (False, True)]
    for what, of in (("draws of the chain", mine), ("runs on the spins", [*spins[0], *spins[1]])):
        if row := first_misfit(of):
            at = f"J = {row['coupling']:g}, k = {row['k']}"
            return Verdict(Outcome.FAILS, f"{what} and the exact law disagree at {at}")
    complete = all((j, k) in table for j in couplings for k in (0, *sizes))
    if len(couplings) < FEWEST_COUPLINGS or not complete or len(sizes) < 3 or not all(spins):
        because = "four couplings with all samplers at each, and runs on the spins, are needed"
        return Verdict(Outcome.UNDECIDED, because)
    for j in couplings:
        for k, more in pairwise(sizes):
            if not table[j, more]["log_mean"] < table[j, k]["log_mean"]:
                at = f"at J = {j:g}"
                return Verdict(Outcome.FAILS, f"k = {more} is not faster than k = {k} {at}")
    falls = [0.0]
    for k in sizes[:-1]:  # k = N draws afresh at every step
        means = [table[j, k]["exact"] for j in couplings]
        falls.append(max(1 - b / a for a, b in zip(accumulate(means, max), means, strict=True)))
        if not falls[-1] <= VISIBLE or not means[-1] > means[0] * (1 + VISIBLE):
            return Verdict(Outcome.FAILS, f"larger J is not slower for k = {k}: {means}")
    return _figure_verdict(table, couplings, sizes, max(falls), len(spins[0] + spins[1]))


def _arrives(row: Row) -> float:
    """P(one of ten repetitions arrives within the budget)."""
    return -math.expm1(REPEATS * math.log1p(-min(math.exp(row["log_reached"]), 1 - 1e-16)))


def never_from(rows: Sequence[Row], k: int) -> float | None:
    """The least J of the grid from which on the sampler does not arrive."""
    found = None
    for row in sorted(rows, key=lambda row: -row["coupling"]):
        if row["k"] != k:
            continue
        if not _arrives(row) < NEVER:
            break
        found = row["coupling"]
    return found


def _figure_verdict(
    table: dict[tuple[float, int], Row],
    couplings: Sequence[float],
    sizes: Sequence[int],
    fall: float,
    runs: int,
) -> Verdict:
    last = couplings[-1]
    never = {k: never_from(list(table.values()), k) for k in (0, *sizes)}
    first = never[0]
    measured: dict[str, Any] = {
        "couplings": list(couplings),
        "independent_parallel": [table[j, 0]["exact"] for j in couplings],
        **{f"k = {k}": [table[j, k]["exact"] for j in couplings] for k in sizes},
        "never_from": {str(k): j for k, j in never.items()},
        "largest_fall_with_J": fall,
    }
    if first is None:
        share = math.exp(table[last, 0]["log_reached"])
        because = f"independent parallel still arrives at J = {last:g}, in {share:.2g} of the runs"
        return Verdict(Outcome.FAILS, because, measured)
    reached = [j for j in couplings if _arrives(table[j, 0]) > 0.5]
    sooner = [j for j in couplings if table[j, 0]["exact"] < table[j, 1]["exact"] * (1 - VISIBLE)]
    also = [k for k in sizes if _arrives(table[last, k]) < NEVER]
    ends = ", ".join(f"{table[last, k]['exact']:.3g} (k = {k})" for k in sizes if k not in also)
    but = f", but for falls of the mean by at most {_rounded_up(fall)}" if fall > 0 else ""
    because = (
        f"larger k is faster at every J = {couplings[0]:g}..{last:g}; larger J is never faster at "
        f"any k < N{but}, and slower from the first J to the last (exact means, at J = {last:g}: "
        f"{ends}); independent parallel never arrives from J = {first:g} on. The "
        "source does not say which J it tried"
    )
    if reached:
        because += f"; up to J = {reached[-1]:g} independent parallel does arrive"
    if sooner:
        because += f", up to J = {sooner[-1]:g} in fewer steps than 1-Gibbs"
    if also:
        because += f"; at J = {last:g} k ≤ {also[-1]} never arrives either"
    because += f". The samplers on the spins agree with the exact law in all {runs} cells tried"
    if any(row["violated"] for row in table.values()):
        because += (
            ". The printed setting is outside of Assumption 4.1.5: h_G = 20 is below 30, the free "
            "|h|, and J would have to exceed 50"
        )
    return Verdict(Outcome.HOLDS, because, measured)


def _rounded_up(share: float) -> str:
    """One digit, never less than the share: 0.00000066 is 7e-07."""
    unit = 10.0 ** math.floor(math.log10(share))
    return f"{math.ceil(share / unit) * unit:.0e}"


def _steps(j: float, k: int, exact: float, **changes: Any) -> Row:
    row: Row = {"kind": "figure", "coupling": j, "k": k, "exact": exact, "runs": 2000}
    row |= {"log_mean": math.log(exact), "log_reached": 0.0, "violated": 2}
    row |= {"times": [1, 1000], "exact_shares": [0.99, 1.0], "counts": [1980, 2000]}
    return row | changes


_LUMPED: Row = {"kind": "lumping", "k": 1, "lumping_error": 0.0}
FIGURE_HELD = [
    _LUMPED,
    sampler_row("figure", 0),
    sampler_row("figure", 2),
    *(_steps(float(j), k, 10.0 * j / k) for j in (1, 2, 3, 4) for k in (1, 2, 3)),
    *(_steps(float(j), 0, 1000.0, log_reached=-30.0) for j in (1, 2, 3, 4)),
]
FIGURE_REFUTED = [
    [_LUMPED | {"lumping_error": 0.1}, *FIGURE_HELD[1:]],
    [*FIGURE_HELD, _steps(4.0, 2, 20.0, counts=[0, 2000])],  # all at step 8, say, and not at 1
    [*FIGURE_HELD, sampler_row("figure", 8, counts=[800, 2000])],
    [*FIGURE_HELD, sampler_row("figure", 0, coupling=2.0, counts=[1000, 1990])],
    [*FIGURE_HELD, _steps(2.0, 2, 5.0, log_mean=3.0)],
    [*FIGURE_HELD, _steps(4.0, 2, 5.0, log_mean=math.log(20.0))],
    [*FIGURE_HELD, _steps(4.0, 1, 10.0), _steps(3.0, 1, 10.0), _steps(2.0, 1, 10.01)],
    [*FIGURE_HELD, _steps(4.0, 0, 900.0, log_reached=-2.0)],
]

# ------------------------------------------------------------------ how it looks


def steps_figure(rows: Rows) -> Figure:
    """Figure 4.3: steps against J for some k, and independent parallel, which it leaves out."""
    mine = sorted(rows_of(rows, "figure"), key=lambda row: row["coupling"])
    return Figure(
        "steps_to_the_mode",
        "Larger blocks reach the large mode sooner; where J is large a block must hold the clique",
        [
            _steps_panel(mine, (1, 2, 3), "k-Gibbs, blocks smaller than the clique"),
            _steps_panel(mine, (4, 6, 8), "k-Gibbs, blocks that can hold the clique"),
            _steps_panel(mine, (1, 0), "all positions at once, beside 1-Gibbs"),
        ],
        "Ten spins, four of them a clique with coupling J, field 5 on every spin, from the clique "
        "all down to all up; 1000 steps is the budget, and a mark there means: not reached. Marks "
        "are means of ten runs with ± half a standard deviation, dashed lines exact means; k = 10 "
        "takes one step at every J. The source draws k-Gibbs and says that independent parallel "
        f"never arrives: {_where_never(mine)}. Where J is large a block of k ≥ 4 needs "
        "C(10, k) / C(6, k − 4) draws until it holds the clique, and no more than that.",
    )


def _where_never(rows: Sequence[Row]) -> str:
    first = never_from(rows, 0)
    if first is None:
        return "it does at every J drawn"
    ends = {k: never_from(rows, k) for k in range(1, SPINS + 1)}
    also = [k for k, j in ends.items() if j is not None and j <= first]
    other = f", where blocks of k ≤ {also[-1]} do not arrive either" if also else ""
    return f"true from J = {first:g} on{other}"


def _steps_panel(rows: Sequence[Row], sizes: Sequence[int], title: str) -> Panel:
    series, x, y = [], [], []
    for k in sizes:
        of = [row for row in rows if row["k"] == k]
        whole = [row for row in of if row["coupling"] == round(row["coupling"])]
        mean = [statistics.fmean(row["repeats"]) for row in whole]
        half = [0.5 * statistics.stdev(row["repeats"]) for row in whole]
        kind: Kind = "ours" if k else "control"
        series.append(
            Series(
                f"k = {k}" if k else "independent parallel",
                kind,
                [row["coupling"] for row in whole],
                mean,
                [max(1.0, m - h) for m, h in zip(mean, half, strict=True)],
                [m + h for m, h in zip(mean, half, strict=True)],
                line=False,
            )
        )
        x += [row["coupling"] for row in of] + [of[-1]["coupling"]] if of else []
        y += [row["exact"] for row in of] + [math.nan] if of else []  # lifts the pen
    series.append(Series("exact", "truth", x, y))
    return Panel(series, "coupling J", "steps", title, y_log=True)


def reach_figure(rows: Rows) -> Figure:
    """Proposition 4.1.4: the bound and the exact steps against k, and against |C|."""
    mine = [row for row in rows_of(rows, "reach") if row["delta"] == _DELTA]
    mine = [row for row in mine if row["margin"] == _MARGIN and row["clique_sum"] == 1.0]
    panels = []
    for title, label, chosen in (
        (
            "half of the free spins in the block",
            "clique size |C|",
            [row for row in mine if row["spins"] == 4 * row["clique"] and _middle(row)],
        ),
        (
            "all spins in the block, k = N",
            "clique size |C|",
            [row for row in mine if row["block"] == row["spins"] == 4 * row["clique"]],
        ),
    ):
        of = sorted(chosen, key=lambda row: row["clique"])
        x = [row["clique"] for row in of]
        panels.append(
            Panel(
                [
                    Series("promised: ⌈log_c δ⌉", "published", x, [row["steps"] for row in of]),
                    Series("exact", "truth", x, [row["exact_steps"] for row in of]),
                ],
                label,
                "steps",
                title,
                y_log=True,
            )
        )
    return Figure(
        "reaching_bound",
        "k-Gibbs: steps that the bound asks for and steps that are needed to reach the large mode",
        panels,
        f"Steps after which the large mode has been met with probability {1 - _DELTA:g}, from the "
        f"worst start; N = 4 |C|, J₀ = {_MARGIN:g}, h_G = 1.",
    )


def _middle(row: Row) -> bool:
    return row["block"] == row["clique"] + (row["spins"] - row["clique"]) // 2


def stuck_figure(rows: Rows) -> Figure:
    """Proposition 4.1.5: promised and exact steps; and the corner where the promise is broken."""
    mine = rows_of(rows, "stuck")
    of = [row for row in mine if (row["margin"], row["delta"]) == (_STUCK_MARGIN, _STUCK_DELTA)]
    of = sorted(of, key=lambda row: row["clique"])
    sizes, ten = [row["clique"] for row in of], math.log(10)
    promised = [(math.log(_STUCK_DELTA / 2) + row["exponent"]) / ten for row in of]
    edge = [row for row in mine if row["margin"] == _EDGE and row["steps"] == 1]
    edge = sorted(edge, key=lambda row: row["delta"])
    deltas, (low, high) = [row["delta"] for row in edge], ferromagnet.stuck_gap(_EDGE)
    return Figure(
        "stuck_bound",
        "Independent parallel is stuck for far longer than promised, but for one corner",
        [
            Panel(
                [
                    Series("promised", "published", sizes, promised),
                    Series("exact mean", "truth", sizes, [row["log_mean"] / ten for row in of]),
                ],
                "clique size |C|",
                "log₁₀ of steps",
                f"steps until freed, J₀ = {_STUCK_MARGIN:g}",
            ),
            Panel(
                [
                    Series(
                        "promised: at least 1 − δ", "published", deltas, [1 - d for d in deltas]
                    ),
                    Series("exact", "truth", deltas, [row["stayed"] for row in edge]),
                ],
                "δ",
                "probability",
                f"two spins stay down for a step, J₀ = {_EDGE:g}",
            ),
        ],
        "Left: δ/2 exp(c_stuck) for δ = 0.9 before it is rounded down (below 0, no step is "
        "promised), and the exact mean number of steps until the magnetisation of the clique "
        f"exceeds −2. Right: from δ = {low:.4f} on the printed bound promises one step, and up to "
        f"δ = {high:.4f} the spins stay down less often than it says.",
    )

"""The figures of `reaching_the_mode`."""

import math
import statistics
from collections.abc import Sequence

from triptych.studies.figures import Figure, Kind, Panel, Series
from triptych.studies.judging import rows_of
from triptych.studies.study import Row, Rows
from triptych.theory import ferromagnet

_DELTA, _MARGIN = 0.1, 0.5  # of the bound on k-Gibbs that is drawn
_STUCK_DELTA, _STUCK_MARGIN = 0.9, 0.3  # of the bound on independent parallel
_EDGE = 0.001  # J_0 where the printed bound is false


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
        "never arrives: true from J = 5 on, where blocks of one or two spins do not arrive either. "
        "From J = 7 on a block of k ≥ 4 needs C(10, k) / C(6, k − 4) draws until it holds the "
        "clique, and no more than that.",
    )


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
        f"small one; N = 4 |C|, J₀ = {_MARGIN:g}, h_G = 1.",
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

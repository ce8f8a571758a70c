"""Pictures of `reaching_the_mode`: Figure 4.3, the two bounds, and distances from product laws."""

import math
import statistics
from collections.abc import Callable, Sequence

from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.masking.reaching_the_mode.judge import never_from
from triptych.studies.masking.reaching_the_mode.rows import BlockStep, Reached, Row, Steps, Stuck
from triptych.studies.masking.reaching_the_mode.steps import SPINS
from triptych.theory.masking import ferromagnet

_DELTA, _MARGIN = 0.1, 0.5  # of the bound on k-Gibbs that is drawn
_STUCK_DELTA, _STUCK_MARGIN = 0.9, 0.3  # of the bound on independent parallel
_EDGE = 0.001  # J_0 where the printed bound is false


def steps_figure(rows: Rows[Row]) -> Figure:
    """Figure 4.3: steps against J for some k, and independent parallel, which it leaves out."""
    cells = sorted(rows.of(Steps), key=lambda row: row.coupling)
    return Figure(
        "steps_to_the_mode",
        "Steps from the small mode to the large one, by k-Gibbs and by all positions at once",
        [
            _steps_panel(cells, (1, 2, 3), "k-Gibbs, blocks smaller than the clique"),
            _steps_panel(cells, (4, 6, 8), "k-Gibbs, blocks that can hold the clique"),
            _steps_panel(cells, (1, 0), "all positions at once, and 1-Gibbs"),
        ],
        "Ten spins, four of them a clique with coupling J, field 5 on every spin, from the clique "
        "all down to all up; 1000 steps is the budget, and a mark there means: not reached. Marks "
        "are means of ten runs with ± half a standard deviation, dashed lines exact means; k = 10 "
        "takes one step at every J. The source draws k-Gibbs and says that independent parallel "
        f"never arrives: {_where_never(cells)}. Where J is large a block of k ≥ 4 needs "
        "C(10, k) / C(6, k − 4) draws until it holds the clique, and no more than that.",
    )


def _where_never(rows: Sequence[Steps]) -> str:
    first = never_from(rows, 0)
    if first is None:
        return "it does at every J drawn"
    ends = {k: never_from(rows, k) for k in range(1, SPINS + 1)}
    also = [k for k, j in ends.items() if j is not None and j <= first]
    other = f", where blocks of k ≤ {also[-1]} do not arrive either" if also else ""
    return f"true from J = {first:g} on{other}"


def _steps_panel(rows: Sequence[Steps], sizes: Sequence[int], title: str) -> Panel:
    series, x, y = [], [], []
    for k in sizes:
        cells = [row for row in rows if row.k == k]
        whole = [row for row in cells if row.coupling == round(row.coupling)]
        mean = [statistics.fmean(row.repeats) for row in whole]
        half = [0.5 * statistics.stdev(row.repeats) for row in whole]
        kind: SeriesKind = "ours" if k else "control"
        series.append(
            Series(
                f"k = {k}" if k else "independent parallel",
                kind,
                [row.coupling for row in whole],
                mean,
                [max(1.0, m - h) for m, h in zip(mean, half, strict=True)],
                [m + h for m, h in zip(mean, half, strict=True)],
                line=False,
            )
        )
        if cells:
            x += [row.coupling for row in cells] + [cells[-1].coupling]
            y += [row.capped_mean for row in cells] + [math.nan]  # lifts the pen
    series.append(Series("exact", "truth", x, y))
    return Panel(series, "coupling J", "steps", title, y_log=True)


def reach_figure(rows: Rows[Row]) -> Figure:
    """Proposition 4.1.4: the bound and the exact steps against |C|."""
    cases = [row for row in rows.of(Reached) if row.delta == _DELTA and row.margin == _MARGIN]
    cases = [row for row in cases if row.clique_sum == 1.0 and row.spins == 4 * row.clique]
    halves = [row for row in cases if row.block == row.clique + (row.spins - row.clique) // 2]
    return Figure(
        "reaching_bound",
        "k-Gibbs: steps that the bound asks for and steps that are needed to reach the large mode",
        [
            _reach_panel(halves, "half of the free spins in the block"),
            _reach_panel([r for r in cases if r.block == r.spins], "all spins in the block, k = N"),
        ],
        f"Steps after which the large mode has been met with probability {1 - _DELTA:g}, from the "
        f"worst start; N = 4 |C|, J₀ = {_MARGIN:g}, h_G = 1.",
    )


def _reach_panel(rows: Sequence[Reached], title: str) -> Panel:
    cases = sorted(rows, key=lambda row: row.clique)
    x = [row.clique for row in cases]
    return Panel(
        [
            Series("promised: ⌈log_c δ⌉", "published", x, [row.steps for row in cases]),
            Series("exact", "truth", x, [row.exact_steps for row in cases]),
        ],
        "clique size |C|",
        "steps",
        title,
        y_log=True,
    )


def stuck_figure(rows: Rows[Row]) -> Figure:
    """Proposition 4.1.5: promised and exact steps; and the edge where the promise is broken."""
    cases = rows.of(Stuck)
    drawn = [row for row in cases if (row.margin, row.delta) == (_STUCK_MARGIN, _STUCK_DELTA)]
    drawn = sorted(drawn, key=lambda row: row.clique)
    sizes, ten = [row.clique for row in drawn], math.log(10)
    promised = [(math.log(_STUCK_DELTA / 2) + row.exponent) / ten for row in drawn]
    edge = [row for row in cases if row.margin == _EDGE and row.steps == 1]
    edge = sorted(edge, key=lambda row: row.delta)
    deltas, (low, high) = [row.delta for row in edge], ferromagnet.stuck_gap(_EDGE)
    return Figure(
        "stuck_bound",
        "How long independent parallel stays in the small mode: promised and exact",
        [
            Panel(
                [
                    Series("promised", "published", sizes, promised),
                    Series("exact mean", "truth", sizes, [row.log_mean / ten for row in drawn]),
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
                    Series("exact", "truth", deltas, [row.stayed for row in edge]),
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


def decoder_figure(rows: Rows[Row]) -> Figure:
    """How far from a product each k is; what factorised blocks do to the stationary law."""
    steps = sorted(rows.of(BlockStep), key=lambda row: row.k)
    names = list(dict.fromkeys(row.model for row in rows.of(BlockStep)))
    first_of = {name: [row for row in steps if row.model == name] for name in names}
    first_of = {name: [r for r in of if r.seed == of[0].seed] for name, of in first_of.items()}
    last = names[-1] if names else ""
    shown, sizes = first_of.get(last, []), [row.k for row in first_of.get(last, [])]
    columns: list[tuple[str, SeriesKind, Callable[[BlockStep], float]]] = [
        ("k-Gibbs, drawn jointly", "truth", lambda row: row.joint_off),
        ("same block, drawn independently", "ours", lambda row: row.factorised_off),
        ("closest product chain to k-Gibbs", "control", lambda row: row.closest_off),
        ("independent parallel", "control", lambda row: row.independent_off),
    ]
    return Figure(
        "parallel_decoding",
        "How far a step of k-Gibbs is from a product law, and what drawing independently changes",
        [
            Panel(
                [
                    Series(
                        name,
                        "ours" if name == last else "control",
                        [row.k for row in of],
                        [row.distance for row in of],
                    )
                    for name, of in first_of.items()
                ],
                "block size k",
                "total variation",
                "distance of one step from a product law",
            ),
            Panel(
                [
                    Series(label, kind, sizes, [value(row) for row in shown])
                    for label, kind, value in columns
                ],
                "block size k",
                "total variation",
                "distance of the stationary law from the truth",
            ),
        ],
        "Exact, on Ising models of 2 to 4 spins. Left: the state furthest from a product law, with "
        "the random block of k-Gibbs; at k = 1 the position alone is random. Right: the model "
        f"“{last}”.",
    )


FIGURES = [steps_figure, reach_figure, stuck_figure, decoder_figure]

"""The figures of `exact_masking`."""

from collections.abc import Sequence

from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.study import Rows
from triptych.studies.masking.exact_masking.rows import (
    READINGS,
    Bounded,
    Estimates,
    Forgetting,
    MaskedTraining,
    OneParameter,
    Row,
)

_SHOWN = 5  # lines in one panel


def order_figure(rows: Rows[Row]) -> Figure:
    """Variance of k-masked training, in units of maximum likelihood, against k."""
    laws = [
        row
        for row in rows.of(MaskedTraining)
        if row.law.startswith("size") and row.model.split()[0] not in ("hmm", "table")
    ]
    models = sorted(dict.fromkeys(row.model for row in laws), key=lambda m: -_variance(laws, m))
    longest = max((_size(row) for row in laws), default=1)
    average = [Series("maximum likelihood", "truth", [1, longest], [1.0, 1.0])]
    worst = list(average)
    for model in models[:_SHOWN]:
        found = sorted((r for r in laws if r.model == model and r.seed == 0), key=_size)
        k = [_size(row) for row in found]
        average.append(Series(_title(model), "ours", k, [row.trace_ratio for row in found]))
        worst.append(Series(_title(model), "ours", k, [row.worst_ratio for row in found]))
    axes = ("k, positions hidden at once", "variance ratio")
    return Figure(
        "masking_more",
        "Variance of masked training over that of maximum likelihood, by positions hidden together",
        [
            Panel(average, *axes, "On average over the parameters"),
            Panel(worst, *axes, "In the worst direction", y_log=True),
        ],
        "Exact asymptotic variance of the estimator with one uniform block of k positions per "
        "sequence, divided by that of maximum likelihood, which is k = N.",
    )


def _size(row: MaskedTraining) -> int:
    return int(row.law.split()[1])


def _variance(rows: Sequence[MaskedTraining], model: str) -> float:
    return max(row.worst_ratio for row in rows if row.model == model)


def _title(model: str) -> str:
    """ "grid 2 3 0.4" as "grid 2×3, J = 0.4"."""
    kind, *sizes, coupling = model.split()
    return f"{kind} {'×'.join(sizes)}, {'scale' if kind == 'random' else 'J'} = {coupling}"


def forgetting_figure(rows: Rows[Row]) -> Figure:
    """Where training goes that forgets how its masks were drawn."""
    found = sorted(rows.of(Forgetting), key=lambda row: row.strength)
    x = [row.strength for row in found]
    given, forgotten = "given the block: p(x_K | x_-K, K)", "block forgotten: p(x_K | x_-K)"
    return Figure(
        "forgetting_the_block",
        "Where training ends under masks that look at the sequence, with and without the block",
        [
            Panel(
                [
                    Series(given, "truth", x, [row.given_distance for row in found]),
                    Series(forgotten, "control", x, [row.distance for row in found]),
                ],
                "how strongly masks prefer ones",
                "total variation from the truth",
            ),
            Panel(
                [
                    Series(given, "truth", x, [row.given_bias for row in found]),
                    Series(forgotten, "control", x, [row.bias for row in found]),
                ],
                "how strongly masks prefer ones",
                "largest error of a parameter",
            ),
        ],
        "Infinite data on three coupled spins. A block is drawn in proportion to e^(a · ones in "
        "it), a on the axis. One loss conditions on the block that was drawn, the other does not.",
    )


def finite_figure(rows: Rows[Row]) -> Figure:
    """Both sides of the finite-sample bound against n, for blocks of one."""
    chosen = [row for row in rows.of(Bounded) if row.law == "size 1" and row.delta == 0.1]
    panels = []
    for model, radius in dict.fromkeys((row.model, row.radius) for row in chosen):
        defined, proof = (
            sorted(
                (r for r in chosen if (r.model, r.radius, r.reading) == (model, radius, reading)),
                key=lambda row: row.n,
            )
            for reading in READINGS
        )
        n = [row.n for row in proof]
        series = [
            Series("above 1 a bound says nothing", "truth", n, [1.0] * len(n)),
            Series("measured distance", "ours", n, [row.distance for row in proof]),
            Series("smallest right side, loss of the proof", "control", n, _smallest(proof)),
            Series(
                "smallest right side, loss as defined",
                "control",
                [row.n for row in defined],
                _smallest(defined),
            ),
            Series(
                "largest right side, loss of the proof", "control", n, [r.largest for r in proof]
            ),
        ]
        title = f"{model.split()[1]} spins, parameters up to {radius:g}"
        label = "total variation"
        panels.append(Panel(series, "n, sequences", label, title, x_log=True, y_log=True))
    return Figure(
        "finite_samples",
        "Both sides of the finite-sample bound against the number of sequences",
        panels,
        "Coupled spins, blocks of one, 10⁹ masks per sequence (10¹² in the narrow box), δ = 0.1; "
        "means over samples. The smallest right side has one cell, ε = 0 and the Poincaré "
        "constant, the largest a covering number and a proved tensorisation constant. With the "
        "loss as defined, a cross-entropy, a right side stays at √(½ C H(X_K | X_-K, K)) or more "
        "for n → ∞.",
    )


def _smallest(rows: Sequence[Bounded]) -> list[float]:
    return [row.smallest for row in rows]


def normal_figure(rows: Rows[Row]) -> Figure:
    """Distance to the normal limit against n: proved for one parameter, drawn for all."""
    panels = []
    laws = ("size 1", "size 2", "independent 0.3")
    proved = [row for row in rows.of(OneParameter) if row.law in laws]
    drawn = [row for row in rows.of(Estimates) if row.law in laws]
    for model in dict.fromkeys(row.model for row in [*proved, *drawn]):
        series = []
        for law in laws:
            found = [row for row in proved if (row.model, row.law) == (model, law)]
            n = sorted({row.n for row in found})
            if n:
                most = [max(row.at_most for row in found if row.n == size) for size in n]
                series.append(Series(f"one parameter, at most; {law}", "truth", n, most))
        for law in laws:
            pairs = sorted((r.n, r.distance) for r in drawn if (r.model, r.law) == (model, law))
            if pairs:
                n, distance = zip(*pairs, strict=True)
                label = f"all parameters, drawn; {law}"
                series.append(Series(label, "ours", n, distance, line=False))
        title, y = model, "Kolmogorov distance"
        panels.append(Panel(series, "n, sequences", y, title, x_log=True, y_log=True))
    return Figure(
        "normal_limit",
        "Distance of the law of the estimate from its normal limit, by the number of sequences",
        panels,
        "Lines: every parameter free alone, the largest bound of them, which is proved and ends at "
        "the grid on which laws are compared, 1/16384. Marks: drawn estimates of all parameters, "
        "the largest distance over many directions; with R data sets chance alone gives about "
        "1.5/√R.",
    )


FIGURES = [order_figure, forgetting_figure, finite_figure, normal_figure]

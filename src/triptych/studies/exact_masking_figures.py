"""The figures of `exact_masking`."""

from triptych.studies.figures import Figure, Panel, Series
from triptych.studies.judging import rows_of
from triptych.studies.study import Rows

_SHOWN = 5  # lines in one panel


def order_figure(rows: Rows) -> Figure:
    """Variance of k-masked training, in units of maximum likelihood, against k."""
    mine = [
        row
        for row in rows_of(rows, "law")
        if row["law"].startswith("size") and row["model"].split()[0] not in ("hmm", "table")
    ]
    models = list(dict.fromkeys(row["model"] for row in mine))
    longest = max((int(row["law"].split()[1]) for row in mine), default=1)
    models = sorted(models, key=lambda name: -_variance(mine, name))[:_SHOWN]
    panels = []
    for column, title, log in (
        ("trace_ratio", "On average over the parameters", False),
        ("worst_ratio", "In the worst direction", True),
    ):
        series = [Series("maximum likelihood", "truth", [1, longest], [1.0, 1.0])]
        for model in models:
            found = sorted(
                (int(row["law"].split()[1]), row[column])
                for row in mine
                if row["model"] == model and row["seed"] == 0
            )
            x, y = [k for k, _ in found], [value for _, value in found]
            series.append(Series(_title(model), "ours", x, y))
        panels.append(
            Panel(series, "k, positions hidden at once", "variance ratio", title, y_log=log)
        )
    return Figure(
        "masking_more",
        "The more positions are hidden together, the less masked training loses to likelihood",
        panels,
        "Exact asymptotic variance of the estimator with one uniform block of k positions per "
        "sequence, divided by that of maximum likelihood, which is k = N.",
    )


def _variance(rows: Rows, model: str) -> float:
    return max(row["worst_ratio"] for row in rows if row["model"] == model)


def _title(model: str) -> str:
    """ "grid 2 3 0.4" as "grid 2×3, J = 0.4"."""
    kind, *sizes, coupling = model.split()
    return f"{kind} {'×'.join(sizes)}, {'scale' if kind == 'random' else 'J'} = {coupling}"


def forgetting_figure(rows: Rows) -> Figure:
    """Where training goes that forgets how its masks were drawn."""
    mine = sorted(rows_of(rows, "forgetting"), key=lambda row: row["strength"])
    x = [row["strength"] for row in mine]
    panels = []
    for column, title in (
        ("distance", "total variation from the truth"),
        ("bias", "largest error of a parameter"),
    ):
        series = [
            Series(
                "given the block: p(x_K | x_-K, K)",
                "truth",
                x,
                [row[f"given_{column}"] for row in mine],
            ),
            Series("block forgotten: p(x_K | x_-K)", "control", x, [row[column] for row in mine]),
        ]
        panels.append(Panel(series, "how strongly masks prefer ones", title))
    return Figure(
        "forgetting_the_block",
        "Masks that look at the text bias a model that does not know how they were drawn",
        panels,
        "Infinite data on three coupled spins. A block is drawn in proportion to e^(a · ones in "
        "it), a on the axis. The loss that conditions on the block is least at the truth for "
        "every a; the other one is least elsewhere.",
    )


def finite_figure(rows: Rows) -> Figure:
    """Both sides of the finite-sample bound against n, for blocks of one."""
    mine = [
        row for row in rows_of(rows, "finite") if row["law"] == "size 1" and row["delta"] == 0.1
    ]
    defined = [row["strict"] for row in mine if row["reading"] == "cross-entropy"]
    floor = f" (least here: {min(defined):.2f})" if defined else ""
    panels = []
    for model in dict.fromkeys(row["model"] for row in mine):
        of = {
            reading: sorted(
                (row for row in mine if row["model"] == model and row["reading"] == reading),
                key=lambda row: row["n"],
            )
            for reading in ("cross-entropy", "divergence")
        }
        n = [row["n"] for row in of["divergence"]]
        series = [
            Series("above 1 a bound says nothing", "truth", n, [1.0] * len(n)),
            Series("measured distance", "ours", n, [row["distance"] for row in of["divergence"]]),
            Series(
                "smallest right side, loss as in the proof",
                "control",
                n,
                [row["strict"] for row in of["divergence"]],
            ),
            Series(
                "smallest right side, loss as defined",
                "control",
                n,
                [row["strict"] for row in of["cross-entropy"]],
            ),
            Series(
                "right side with its covering number",
                "control",
                n,
                [row["printed"] for row in of["divergence"]],
            ),
        ]
        title = f"{model.split()[1]} spins"
        label = "total variation"
        panels.append(Panel(series, "n, sequences", label, title, x_log=True, y_log=True))
    return Figure(
        "finite_samples",
        "The finite-sample bound is true and far from the error it bounds",
        panels,
        "Coupled spins, blocks of one, 10⁹ masks per sequence, δ = 0.1; means over samples. The "
        "smallest right side has one cell, ε = 0 and the Poincaré constant. With the loss as "
        "defined, a cross-entropy, it does not fall to 0: for n → ∞ it stays at "
        f"√(½ C H(X_K | X_-K, K)){floor}.",
    )

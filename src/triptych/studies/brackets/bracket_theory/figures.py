"""The figures of `bracket_theory`."""

from triptych.core.estimates import mean
from triptych.studies.api.figures import Figure, Heatmap, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.brackets.bracket_theory.rows import (
    Approximated,
    Baseline,
    Patterns,
    Pruned,
    Pumped,
    Row,
    TrainedConstant,
)

PUBLISHED = {16: 2.85, 19: 3.33}  # variation of random patterns, [li, 2.2.3.2 and Table 2.6]


def pattern_figure(rows: Rows[Row]) -> Figure:
    """Three optimal models on one word."""
    found = sorted(rows.of(Patterns), key=lambda row: row.scale)
    row = found[-1] if found else None
    maps = [
        Heatmap(
            picture,
            f"likeness to a stack {likeness:.2f}",
            "position that is attended to",
            "position",
            limits=(0.0, 1.0),
        )
        for picture, likeness in zip(
            row.pictures if row else (), row.likeness if row else (), strict=False
        )
    ]
    return Figure(
        "bracket_patterns",
        "Attention patterns of models that all predict brackets exactly",
        maps,
        "Second-layer attention on [[[[]]]](((()))) after a start token (position 0), for three "
        "second layers with random balanced scores. Each gives the exact law of the next bracket "
        "at every length. A stack-like pattern, with all weight on the innermost open bracket, "
        "has likeness 1.",
    )


def variation_figure(rows: Rows[Row]) -> Figure:
    """How far optimal patterns are apart, and random ones."""
    found = sorted(rows.of(Patterns), key=lambda row: row.scale)
    drawn = sorted(rows.of(Baseline), key=lambda row: row.positions)
    shown = [row for row in drawn if row.positions in PUBLISHED]
    scales = [row.scale for row in found]
    return Figure(
        "bracket_variation",
        "Mean squared distance of attention patterns: optimal models, and random patterns",
        [
            Panel(
                [
                    Series("optimal models", "ours", scales, [row.variation for row in found]),
                    Series("random patterns", "truth", scales, [row.random for row in found]),
                ],
                "scale of the random balanced scores",
                "mean ‖A − A′‖² over pairs of models",
                "Optimal models",
            ),
            Panel(
                [
                    Series(
                        "mean of 40 patterns, ± 2 spreads",
                        "ours",
                        [row.positions for row in drawn],
                        [row.mean for row in drawn],
                        [row.mean - 2 * row.spread for row in drawn],
                        [row.mean + 2 * row.spread for row in drawn],
                        line=False,
                    ),
                    Series(
                        "formula",
                        "truth",
                        [row.positions for row in drawn],
                        [row.formula for row in drawn],
                    ),
                    Series(
                        "published",
                        "published",
                        [row.positions for row in shown],
                        [PUBLISHED[row.positions] for row in shown],
                        line=False,
                    ),
                ],
                "positions",
                "mean ‖A − A′‖² over pairs of patterns",
                "Random patterns",
            ),
        ],
        "Left: models with random balanced scores on [[[[]]]](((()))), all of which predict "
        "exactly. Right: causal patterns whose rows are uniform on the simplex. The formula is "
        "the sum of 2(n − 1)/(n(n + 1)) over rows of n weights.",
    )


def pumping_figure(rows: Rows[Row]) -> Figure:
    """Distance from the limit, and what is left between two stacks."""
    found = [row for row in rows.of(Pumped) if row.types > 1]
    loose = [row for row in found if row.weights != "balanced"]
    tight = [row for row in found if row.weights == "balanced"]
    pairs = loose[0].pairs if loose else ()

    def median(columns: list[tuple[float, ...]]) -> tuple[list[float], list[float], list[float]]:
        ordered = [sorted(column) for column in zip(*columns, strict=True)]
        middle = [column[len(column) // 2] for column in ordered]
        return middle, [column[0] for column in ordered], [column[-1] for column in ordered]

    distances = median([row.distances for row in loose])
    apart, kept = median([row.apart for row in loose]), median([row.apart for row in tight])
    return Figure(
        "bracket_pumping",
        "Matching pairs that are inserted drown the open brackets of an unbalanced model",
        [
            Panel(
                [Series("unbalanced", "ours", pairs, *distances)] if loose else [],
                "inserted pairs β",
                "‖LN − S/‖S‖‖",
                "Distance from the limit",
                True,
                True,
            ),
            Panel(
                ([Series("unbalanced", "ours", pairs, *apart)] if loose else [])
                + ([Series("balanced", "truth", tight[0].pairs, *kept)] if tight else []),
                "inserted pairs β",
                "distance of the two outputs",
                "Two stacks with different innermost brackets",
                True,
            ),
        ],
        "Median, least and most over models, pairs and queries. Left: the layer norm of the "
        "attention output approaches the limit of (2.49) like 1/β. Right: what the network makes "
        "of the difference between two open brackets.",
    )


def constant_figure(rows: Rows[Row]) -> Figure:
    """‖S‖ N / P against N."""
    found = sorted(rows.of(Approximated), key=lambda row: row.length)
    series = []
    for near, amount in dict.fromkeys((row.near, row.amount) for row in found):
        chosen = [r for r in found if (r.near, r.amount, r.types) == (near, amount, 2)]
        if near != "balanced" and chosen:
            series.append(
                Series(
                    f"{near} {amount:g}",
                    "ours" if near == "leak" else "control",
                    [row.length for row in chosen],
                    [row.constant for row in chosen],
                )
            )
    return Figure(
        "bracket_constants",
        "The constant of Theorem 2.2.2 for models that are optimal up to length N, and noisy ones",
        [Panel(series, "length N", "largest ‖S‖ N / P", "", True, True)],
        "k = D = 2. A leak adds a vector to the value of every closing bracket: the model is "
        "optimal up to length N with an MLP whose slope grows with N, and no constant bounds "
        "‖S‖ N / P. Noise is added to the value matrix of a balanced model.",
    )


def trained_constant_figure(rows: Rows[Row]) -> Figure:
    """‖S‖ N / P and the loss of trained networks against N, by weight decay."""
    found = sorted(rows.of(TrainedConstant), key=lambda row: (row.decay, row.length))
    constants, losses = [], []
    for decay in dict.fromkeys(row.decay for row in found):
        chosen = [row for row in found if row.decay == decay]
        lengths = list(dict.fromkeys(row.length for row in chosen))
        groups = [[row for row in chosen if row.length == n] for n in lengths]
        kind: SeriesKind = "ours" if decay else "control"
        for series, values in (
            (constants, [mean([row.constant for row in group]) for group in groups]),
            (losses, [mean([row.excess for row in group]) for group in groups]),
        ):
            low = [max(e.low, e.value / 100) for e in values]
            series.append(
                Series(
                    f"λ = {decay:g}",
                    kind,
                    lengths,
                    [e.value for e in values],
                    low,
                    [e.high for e in values],
                )
            )
    return Figure(
        "bracket_trained_constants",
        "The constant of Theorem 2.2.2 on trained networks, by length and weight decay",
        [
            Panel(constants, "length N", "largest ‖S‖ N / P", "Balance", True, True),
            Panel(losses, "length N", "squared loss − that of the truth", "Loss", True, True),
        ],
        "k = D = 2, one layer of attention on the minimal first layer (2.55). Means over networks "
        "with 95 % intervals. The theorem asks for a loss of (q (1 − q) / k²)^N, 10^-20 at N = 17, "
        "which no training reaches, so these constants test no bound.",
    )


def pruning_figure(rows: Rows[Row]) -> Figure:
    """Error against the number of random units."""
    found = sorted(rows.of(Pruned), key=lambda row: row.block)
    series = []
    for width, layers in dict.fromkeys((row.width, row.layers) for row in found):
        chosen = [row for row in found if (row.width, row.layers) == (width, layers)]
        blocks = list(dict.fromkeys(row.block for row in chosen))
        columns = [sorted(r.error for r in chosen if r.block == block) for block in blocks]
        series.append(
            Series(
                f"m = {width}, {layers} layers",
                "ours",
                blocks,
                [column[len(column) // 2] for column in columns],
                [column[0] for column in columns],
                [column[-1] for column in columns],
                line=len(blocks) > 1,
            )
        )
    return Figure(
        "bracket_pruning",
        "A random transformer, pruned by subset sums, computes a given one",
        [
            Panel(
                series,
                "random units for one input",
                "largest relative error",
                "",
                False,
                True,
            )
        ],
        "Every weight of the pruned network is the random one or 0. Median, least and most over "
        "seeds of ‖f(X) − g(X)‖ / ‖X‖, the largest that ascent over inputs found.",
    )


FIGURES = [
    pattern_figure,
    variation_figure,
    pumping_figure,
    constant_figure,
    trained_constant_figure,
    pruning_figure,
]

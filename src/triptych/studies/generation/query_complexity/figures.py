"""The figures of `query_complexity`."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from triptych.core.estimates import mean
from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.generation.query_complexity.rows import (
    Calls,
    Hidden,
    Row,
    SubsetSum,
    TokenwiseLaw,
)


def _means(points: Sequence[tuple[int, Sequence[float]]], label: str, kind: SeriesKind) -> Series:
    """Means with intervals, which end at half of the smallest sample on the way down."""
    found = [mean(samples) for _, samples in points]
    low = [max(e.low, min(s) / 2) for e, (_, s) in zip(found, points, strict=True)]
    values, high = [e.value for e in found], [e.high for e in found]
    return Series(label, kind, [depth for depth, _ in points], values, low, high, line=False)


def hidden_figure(rows: Rows[Row]) -> Figure:
    """Questions against D for every algorithm; and as shares of the printed bound."""
    mine = sorted(rows.of(Hidden), key=lambda row: row.depth)
    names = list(dict.fromkeys(row.algorithm for row in mine))
    bounds = {row.depth: row for row in mine}
    depths = list(bounds)
    best = [bounds[d].optimum for d in depths]
    printed = [bounds[d].printed for d in depths]
    every, shares = [], []
    for name in names:
        points = [(row.depth, row.questions) for row in mine if row.algorithm == name]
        kind: SeriesKind = "ours" if name.startswith("each") else "control"
        found = replace(_means(points, name, kind), line=True)
        if "random start" not in name:  # the same line
            every.append(found)
        if "rejection" not in name:
            scaled = {
                side: [v / n for v, n in zip(getattr(found, side), printed, strict=True)]
                for side in ("y", "low", "high")
            }
            shares.append(replace(found, **scaled))
    least = "best possible: (N + 1)/2 − 1/N"
    every.append(Series(least, "truth", depths, best))
    shares.append(
        Series(least, "truth", depths, [b / n for b, n in zip(best, printed, strict=True)])
    )
    shares.append(Series("printed bound: N = 2^(D−1)", "published", depths, [1.0] * len(depths)))
    return Figure(
        "hidden_parity",
        "Questions that find a hidden string, on the oracle of the proof",
        [
            Panel(every, "string length D", "questions to the model", y_log=True),
            Panel(shares, "string length D", "questions / 2^(D−1)"),
        ],
        "Means over secrets and runs with 95 % intervals. To ask each prefix of D − 1 bits at most "
        "once is the best possible on this oracle; a searcher that forgets what it asked needs "
        "2^(D−1). On an oracle whose even bit is rare every searcher needs that many.",
    )


def subset_sum_figure(rows: Rows[Row]) -> Figure:
    """Calls with a process verifier, with a membership test alone, and the cost of that test."""
    mine = [row for row in rows.of(SubsetSum) if row.solvable]
    depths = sorted({row.depth for row in mine})

    def middle(
        read: Callable[[SubsetSum], float],
    ) -> tuple[list[float], list[float], list[float]]:
        of = [sorted(read(row) for row in mine if row.depth == d) for d in depths]
        return (
            [v[len(v) // 2] for v in of],
            [v[len(v) // 4] for v in of],
            [v[-1 - len(v) // 4] for v in of],
        )

    without = middle(lambda row: row.rejection_calls or 0.0)
    guided = middle(lambda row: float(row.calls))
    operations = middle(lambda row: float(row.membership_operations))[0]
    return Figure(
        "subset_sum",
        "Subset sum by generation, with and without the process verifier",
        [
            Panel(
                [
                    Series("rejection, membership test only (exact)", "control", depths, *without),
                    Series("tokenwise, process verifier", "ours", depths, *guided),
                    Series("operations of one membership test", "truth", depths, operations),
                ],
                "number of weights D",
                "calls of the model",
                y_log=True,
            )
        ],
        "Solvable instances with weights up to 2^D: medians and quartiles. The price of the "
        "process verifier itself is a table of all sums, exponential in the digits of the weights.",
    )


def calls_figure(rows: Rows[Row]) -> Figure:
    """Measured calls against the formulas."""
    mine = sorted(rows.of(Calls), key=lambda row: row.depth)
    depths = [row.depth for row in mine]
    series = [
        _means([(row.depth, row.rejection_calls) for row in mine], "rejection", "control"),
        _means([(row.depth, row.tokenwise_calls) for row in mine], "token by token", "ours"),
        Series("2^D D", "truth", depths, [2.0**d * d for d in depths]),
        Series("2 D", "truth", depths, [2.0 * d for d in depths]),
    ]
    return Figure(
        "queries",
        "Calls until one string comes out, by rejection and by token-by-token rejection",
        [Panel(series, "string length D", "calls of the model", y_log=True)],
        "Means over runs with 95 % intervals; the lines are the exact expectations.",
    )


def law_figure(rows: Rows[Row]) -> Figure:
    """How far tokenwise rejection is from the restricted law."""
    mine = sorted(rows.of(TokenwiseLaw), key=lambda row: row.depth)
    depths = [row.depth for row in mine]
    special = [row.special_probability for row in mine]
    target = [row.restricted_probability for row in mine]
    return Figure(
        "tokenwise_law",
        "Probability of 1…10 under token-by-token rejection and under the restricted law",
        [
            Panel(
                [
                    Series("token by token (exact)", "ours", depths, special),
                    Series("restricted law", "truth", depths, target),
                ],
                "string length D",
                "probability of 1…10",
                y_log=True,
            )
        ],
        "Both laws by enumeration; there is no sampling noise.",
    )


FIGURES = [hidden_figure, subset_sum_figure, calls_figure, law_figure]

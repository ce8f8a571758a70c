"""The figures of `topic_theory`."""

from collections.abc import Callable, Sequence

from triptych.studies.api.figures import Figure, Heatmap, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.topics.topic_theory.rows import (
    Embedding,
    Landscape,
    Optima,
    Row,
    ValueName,
    Weights,
)
from triptych.studies.topics.topic_theory.weights import HIGHEST, LOWEST

MASKING = "as in BERT"  # of the curves


# ------------------------------------------------------------------ uniform attention


def family_figure(rows: Rows[Row]) -> Figure:
    """Dimensions of the minimisers against those of the family."""
    found = rows.of(Optima)

    def points(label: str, kind: SeriesKind, chosen: Sequence[Optima], *, line: bool) -> Series:
        pairs = sorted({(row.family, row.free) for row in chosen})
        return Series(label, kind, [x for x, _ in pairs], [y for _, y in pairs], line=line)

    sparse = [row for row in found if row.drawn < row.topics]
    dense = [row for row in found if row.drawn == row.topics]
    top = max((row.free for row in found), default=1)
    return Figure(
        "topic_optima",
        "Free dimensions of the optimal value matrices and of the family of Lemma 2.1.1",
        [
            Panel(
                [
                    points("τ < T: some topic is missing", "ours", sparse, line=True),
                    points("τ = T: all documents are alike", "control", dense, line=False),
                    Series("equal", "truth", [1, top], [1, top]),
                ],
                "free dimensions of the family, T (v − 1) + 1 in each row",
                "free dimensions of the minimisers",
            )
        ],
        "T topics of v words, τ of them in a document. One row of W^V (the prediction of one word) "
        "with uniform attention: how many directions leave the loss at its least, by the rank of "
        "the second moments, against what Lemma 2.1.1 says. A point may stand for many settings.",
    )


def ridge_figure(rows: Rows[Row]) -> Figure:
    """Distance to the closed form against the penalty."""
    found = [row for row in rows.of(Optima) if row.drawn < row.topics]
    series = []
    for name in dict.fromkeys(row.masking for row in found):
        chosen = [row for row in found if row.masking == name]
        columns = [sorted(errors) for errors in zip(*(r.ridge_errors for r in chosen), strict=True)]
        middle = [values[len(values) // 2] for values in columns]
        low, high = [values[0] for values in columns], [values[-1] for values in columns]
        series.append(Series(name, "ours", chosen[0].penalties, middle, low, high))
    if found:
        ends = [found[0].penalties[0], found[0].penalties[-1]]
        series.append(Series("proportional to λ", "truth", ends, [10 * x for x in ends]))
    return Figure(
        "topic_ridge",
        "Distance of the optimum under a small L2 penalty from the closed form of Theorem 2.1.2",
        [Panel(series, "penalty λ", "largest distance of an entry", "", True, True)],
        "The exact minimiser of the loss plus λ ‖W‖² against the closed form: median over T, v and "
        "τ < T for each masking; bands from the nearest to the farthest.",
    )


def embedding_figure(rows: Rows[Row]) -> Figure:
    """One trained Gram matrix, and what its constants u are like."""
    found = [
        row
        for row in rows.of(Embedding)
        if row.bias == "words" and row.drawn < row.topics <= row.width
    ]
    shown = next((row for row in found if row.matrix is not None), None)
    matrix = shown.matrix if shown and shown.matrix else ()
    sums = [
        [sum(line[t * shown.words : (t + 1) * shown.words]) for t in range(shown.topics)]
        for line in matrix[:-1]
        if shown
    ]
    points = [(row.level, mean) for row in found for mean in row.topic_means]
    top = max((x for x, _ in points), default=1.0)
    return Figure(
        "topic_embeddings",
        "Dot products of trained embeddings, and the constants u of Theorem 2.1.1",
        [
            Heatmap(matrix, "E = W_E'W_E, 4 topics of 3 words, the mask last", "token", "token"),
            Heatmap(sums, "E summed over the words of a topic", "topic", "word"),
            Panel(
                [
                    Series(
                        "a topic of a trained E",
                        "ours",
                        [x for x, _ in points],
                        [y for _, y in points],
                        line=False,
                    ),
                    Series("equal", "truth", [0.0, top], [0.0, top]),
                ],
                "−u_0 / c₂, from the mask's row",
                "mean of u_i over the words of a topic",
                "The constants of every E",
            ),
        ],
        "Left: the dot products of one embedding trained on the exact loss from a random start. "
        "Middle: the same summed over topics; by the theorem own topic less other topic is "
        "1/(1 − (1 − p_c) p_m) in every row. Right: the free constants u_i of the theorem for all "
        "starts and settings with τ < T; a Gram matrix allows those with the same mean, at least "
        "0, in every topic.",
    )


# ------------------------------------------------------------------ attention weights


def weights_figure(rows: Rows[Row]) -> Figure:
    """γ*/τ, β*/(vτ) and α*/β* against T, for documents of T^a topics."""
    found = [
        row
        for row in rows.of(Weights)
        if row.sparse and row.assumed and row.masking == MASKING and row.reading == "printed"
    ]
    most = max((row.words for row in found), default=0)
    found = sorted((row for row in found if row.words == most), key=lambda row: row.topics)
    rates = sorted({row.rate for row in found})
    at = {rate: [row for row in found if row.rate == rate] for rate in rates}
    middle = at[rates[len(rates) // 2]] if rates else []

    def curves(value: Callable[[Weights], float]) -> list[Series]:
        return [
            Series(f"τ = T^{rate:g}", "ours", [r.topics for r in of], [value(r) for r in of])
            for rate, of in at.items()
        ]

    def line(label: str, kind: SeriesKind, value: Callable[[Weights], float]) -> Series:
        return Series(label, kind, [r.topics for r in middle], [value(r) for r in middle])

    rate = f"{rates[len(rates) // 2]:g}" if rates else ""
    gamma = [
        *curves(lambda r: r.gamma / r.drawn),
        line("exact limit", "truth", lambda r: r.limit),
        line("lower bound λ₁ (τ − 1)", "published", lambda r: r.gamma_low / r.drawn),
        line(
            f"√(τT), used in the proof (τ = T^{rate})",
            "control",
            lambda r: (r.topics / r.drawn) ** 0.5,
        ),
    ]
    beta = [
        *curves(lambda r: r.beta / (r.words * r.drawn)),
        line("exact limit", "truth", lambda r: r.limit),
        line("lower bound λ₃ τ", "published", lambda r: r.beta_low / (r.words * r.drawn)),
        line(
            f"upper bound λ₄ T (τ = T^{rate})",
            "published",
            lambda r: r.beta_high / (r.words * r.drawn),
        ),
    ]
    alpha = [
        *curves(lambda r: r.alpha / r.beta),
        line("upper bound λ₅", "published", lambda r: r.ratio),
    ]
    return Figure(
        "topic_attention_weights",
        "The best attention weights as the number of topics grows, with the bounds of the theorems",
        [
            Panel(gamma, "topics T", "γ* / τ", "Uniform blocks", True, True),
            Panel(beta, "topics T", "β* / (v τ)", "Diagonal: attention to the word", True, True),
            Panel(alpha, "topics T", "α* / β*", "Diagonal: to its topic, per β", True, True),
        ],
        "A word attends β to itself, α to others of its topic, 1 to the rest; γ is the mean within "
        f"the topic. Minimisers of the exact loss with v = {most} words, masking {MASKING}, masks "
        "as in the formulas of the source; bounds of Theorems 2.1.3 and 2.1.5. A triangle at the "
        "edge: the best α is 0.",
    )


# ------------------------------------------------------------------ Figures 2.7 and 2.8


def _ticks(count: int) -> list[float]:
    """The weights of the landscapes, evenly spaced in their logarithms."""
    return [10.0 ** (LOWEST + (HIGHEST - LOWEST) * k / max(1, count - 1)) for k in range(count)]


def _landscape_figure(
    rows: Rows[Row], value: ValueName, name: str, title: str, caption: str
) -> Figure:
    found = sorted(rows.of(Landscape), key=lambda row: row.drawn)
    panels = [
        Heatmap(
            row.picture,
            f"τ = {row.drawn} of 100 topics",
            "α, to other words of the topic",
            "β, to the same word",
            x=_ticks(len(row.picture[0])),
            y=_ticks(len(row.picture))[::-1],
        )
        for row in found
        if row.value == value and row.picture is not None
    ]
    return Figure(
        name,
        title,
        panels,
        "Loss over the weights α (to other words of the topic, 10^−4 at the left to 10^7) and β "
        "(to the word itself, 10^−4 at the bottom to 10^7), both in logarithms, as a share of its "
        f"range: 0 is the least, dark. T = 100, v = 300, masking as in BERT. {caption}",
    )


def diagonal_figure(rows: Rows[Row]) -> Figure:
    """The landscape of a diagonal value matrix."""
    return _landscape_figure(
        rows,
        "diagonal",
        "topic_landscape_diagonal",
        "Loss over the attention weights, diagonal value matrix",
        "As in Figure 2.7.",
    )


def blocks_figure(rows: Rows[Row]) -> Figure:
    """The landscape of uniform blocks."""
    return _landscape_figure(
        rows,
        "blocks",
        "topic_landscape_blocks",
        "Loss over the attention weights, value matrix with uniform blocks",
        "As in Figure 2.8. The loss depends on γ = (v−1)/v α + β/v alone.",
    )


FIGURES = [
    family_figure,
    ridge_figure,
    embedding_figure,
    weights_figure,
    diagonal_figure,
    blocks_figure,
]

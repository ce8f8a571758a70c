"""The figures of `topic_theory`, and the judges of the two landscapes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from triptych.core.estimates import Outcome
from triptych.studies.figures import Figure, Heatmap, Kind, Panel, Series
from triptych.studies.judging import largest, rows_of
from triptych.studies.study import Row, Rows, Verdict
from triptych.studies.topic_theory_judges import of_kind

LANDSCAPES = 4  # values of τ
MASKING = "as in BERT"  # of the curves
TOPICS_SHOWN = 4  # of the matrix that is drawn

# ------------------------------------------------------------------ uniform attention


def family_figure(rows: Rows) -> Figure:
    """Dimensions of the minimisers against those of the family."""
    mine = rows_of(rows, "optima")

    def points(label: str, kind: Kind, chosen: Sequence[Row], *, line: bool) -> Series:
        pairs = sorted({(row["family"], row["free"]) for row in chosen})
        return Series(label, kind, [x for x, _ in pairs], [y for _, y in pairs], line=line)

    sparse = [row for row in mine if row["drawn"] < row["topics"]]
    dense = [row for row in mine if row["drawn"] == row["topics"]]
    top = max((row["free"] for row in mine), default=1.0)
    return Figure(
        "topic_optima",
        "The optimal value matrices are the printed family, unless every document has every topic",
        [
            Panel(
                [
                    points("τ < T: some topic is missing", "ours", sparse, line=True),
                    points("τ = T: all documents are alike", "control", dense, line=False),
                    Series("equal", "truth", [1.0, top], [1.0, top]),
                ],
                "free dimensions of the family, T (v − 1) + 1 in each row",
                "free dimensions of the minimisers",
            )
        ],
        "T topics of v words, τ of them in a document. One row of W^V (the prediction of one word) "
        "with uniform attention: how many directions leave the loss at its least, by the rank of "
        "the second moments, against what Lemma 2.1.1 says. A point may stand for many settings.",
    )


def ridge_figure(rows: Rows) -> Figure:
    """Distance to the closed form against the penalty."""
    mine = [row for row in rows_of(rows, "optima") if row["drawn"] < row["topics"]]
    names = list(dict.fromkeys(row["masking"] for row in mine))
    series = []
    for name in names:
        of = [row for row in mine if row["masking"] == name]
        columns = [sorted(row["ridge_errors"][k] for row in of) for k in range(len(_penalties(of)))]
        middle = [values[len(values) // 2] for values in columns]
        low, high = [values[0] for values in columns], [values[-1] for values in columns]
        series.append(Series(name, "ours", _penalties(of), middle, low, high))
    if mine:
        ends = [_penalties(mine)[0], _penalties(mine)[-1]]
        series.append(Series("proportional to λ", "truth", ends, [10 * x for x in ends]))
    return Figure(
        "topic_ridge",
        "Vanishing L2 picks the printed matrix among the optima",
        [Panel(series, "penalty λ", "largest distance of an entry", "", True, True)],
        "The exact minimiser of the loss plus λ ‖W‖² against the closed form of Theorem 2.1.2: "
        "median over T, v and τ < T for each masking; bands from the nearest to the farthest.",
    )


def _penalties(rows: Sequence[Row]) -> list[float]:
    return rows[0]["penalties"] if rows else []


def embedding_figure(rows: Rows) -> Figure:
    """One trained Gram matrix, and what its constants u are like."""
    mine = [row for row in rows_of(rows, "embedding") if row["bias"] == "words"]
    matrix = next((row["matrix"] for row in mine if "matrix" in row), [])
    points = [(row["level"], mean) for row in mine for mean in row["topic_means"]]
    top = max((x for x, _ in points), default=1.0)
    found = Series(
        "a topic of a trained E", "ours", [x for x, _ in points], [y for _, y in points], line=False
    )
    words = (len(matrix) - 1) // TOPICS_SHOWN
    sums = [
        [sum(line[t * words : (t + 1) * words]) for t in range(TOPICS_SHOWN)]
        for line in matrix[:-1]
    ]
    return Figure(
        "topic_embeddings",
        "Trained embeddings: sums over a topic are determined, single products are not",
        [
            Heatmap(matrix, "E = W_E'W_E, 4 topics of 3 words, the mask last", "token", "token"),
            Heatmap(sums, "E summed over the words of a topic", "topic", "word"),
            Panel(
                [found, Series("equal", "truth", [0.0, top], [0.0, top])],
                "−u_0 / c₂, from the mask's row",
                "mean of u_i over the words of a topic",
                "The constants that a Gram matrix can have",
            ),
        ],
        "Left: the dot products of one embedding trained on the exact loss from a random start. "
        "Middle: summed over topics, own topic less other topic is 1/(1 − (1 − p_c) p_m) in every "
        "row, so that words of a topic are more alike on average. Right: of the free constants u_i "
        "of Theorem 2.1.1 a Gram matrix allows only those with the same mean in every topic, at "
        "least 0; all starts and settings.",
    )


# ------------------------------------------------------------------ attention weights


def weights_figure(rows: Rows) -> Figure:
    """γ*/τ, β*/(vτ) and α*/β* against T, for documents of T^a topics."""
    mine = [
        row
        for row in rows_of(rows, "attention")
        if row["sparse"] and row["assumed"] and row["masking"] == MASKING
    ]
    mine = [row for row in mine if row["reading"] == "printed"]
    most = max((row["words"] for row in mine), default=0)
    mine = sorted((row for row in mine if row["words"] == most), key=lambda row: row["topics"])
    rates = sorted({row["rate"] for row in mine})
    at = {rate: [row for row in mine if row["rate"] == rate] for rate in rates}
    middle = at[rates[len(rates) // 2]] if rates else []

    def curves(value: Any) -> list[Series]:
        return [
            Series(f"τ = T^{rate:g}", "ours", [r["topics"] for r in of], [value(r) for r in of])
            for rate, of in at.items()
        ]

    def line(label: str, kind: Kind, value: Any) -> Series:
        return Series(label, kind, [r["topics"] for r in middle], [value(r) for r in middle])

    rate = f"{rates[len(rates) // 2]:g}" if rates else ""
    gamma = [
        *curves(lambda r: r["gamma"] / r["drawn"]),
        line("exact limit", "truth", lambda r: r["limit"]),
        line("printed lower bound λ₁ (τ − 1)", "published", lambda r: r["gamma_low"] / r["drawn"]),
        line(
            f"√(τT), used in the proof (τ = T^{rate})",
            "published",
            lambda r: (r["topics"] / r["drawn"]) ** 0.5,
        ),
    ]
    beta = [
        *curves(lambda r: r["beta"] / (r["words"] * r["drawn"])),
        line("exact limit", "truth", lambda r: r["limit"]),
        line(
            "printed lower bound λ₃ τ",
            "published",
            lambda r: r["beta_low"] / (r["words"] * r["drawn"]),
        ),
        line(
            f"printed upper bound λ₄ T (τ = T^{rate})",
            "published",
            lambda r: r["beta_high"] / (r["words"] * r["drawn"]),
        ),
    ]
    alpha = [
        *curves(lambda r: r["alpha"] / r["beta"]),
        line("printed upper bound λ₅", "published", lambda r: r["ratio"]),
    ]
    return Figure(
        "topic_attention_weights",
        "The best attention grows with the topics of a document, and not with all topics",
        [
            Panel(gamma, "topics T", "γ* / τ", "Uniform blocks", True, True),
            Panel(beta, "topics T", "β* / (v τ)", "Diagonal: attention to the word", True, True),
            Panel(alpha, "topics T", "α* / β*", "Diagonal: to its topic, per β", True, True),
        ],
        "A word attends β to itself, α to others of its topic, 1 to the rest; γ is the mean within "
        f"the topic. Minimisers of the exact loss with v = {most} words, masking {MASKING}, masks "
        "as in the printed formulas. The bounds of Theorems 2.1.3 and 2.1.5 hold with much room; "
        "the exact limit says what the best weight is. A triangle at the edge: the best α is 0.",
    )


# ------------------------------------------------------------------ Figures 2.7 and 2.8


def _grows(values: Sequence[float]) -> bool:
    return all(later > earlier for earlier, later in pairwise(values))


def _pictures(rows: Rows, name: str) -> dict[str, list[Row]]:
    """Rows of every reading, by growing τ."""
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["drawn"]):
        if row["value"] == name:
            found.setdefault(row["reading"], []).append(dict(row))
    return found


def _low_edges(of: Sequence[Row]) -> list[list[float]]:
    """The lower edges along τ, for every share."""
    return [[row["edges"][k][0] for row in of] for k in range(len(of[0]["edges"]))]


@of_kind("landscape")
def judge_diagonal_picture(rows: Rows) -> Verdict:
    """β in an interval whose lower edge grows with τ; the best α less than λ5 times β."""
    found = _pictures(rows, "diagonal")
    if "printed" not in found or min(len(of) for of in found.values()) < LANDSCAPES:
        return Verdict(Outcome.UNDECIDED, f"{LANDSCAPES} values of τ are needed")
    shown, wrong = found["printed"], ""
    for reading, of in found.items():
        if not all(_grows(edges) for edges in _low_edges(of)):
            wrong = f"the lower edge of β does not grow with τ (masks {reading})"
        if not all(e[0] <= row["beta"] <= e[1] for row in of for e in row["edges"]):
            wrong = f"the best β is outside its interval (masks {reading})"
        if not all(row["alpha"] < row["ratio"] * row["beta"] for row in of):
            wrong = f"the best α is not below λ5 β (masks {reading})"
    measured = {"beta": [row["beta"] for row in shown], "edges": [r["edges"] for r in shown]}
    if wrong:
        return Verdict(Outcome.FAILS, wrong, measured)
    edges = [row["edges"][1] for row in shown]
    steep = largest([row["steepest"][1] for row in shown])
    because = (
        f"within {shown[0]['shares'][1]:.0%} of the range of the loss β lies in "
        + ", ".join(f"[{low:.0f}, {high:.0f}]" for low, high in edges)
        + f" for τ = {', '.join(str(row['drawn']) for row in shown)}, and α < {steep:.4f} β there; "
        f"the best α is {max(row['alpha'] for row in shown):.2g} (λ5 = {shown[0]['ratio']:.4f})"
    )
    return Verdict(Outcome.HOLDS, because, measured)


@of_kind("landscape")
def judge_blocks_picture(rows: Rows) -> Verdict:
    """A corner: all pairs with γ in an interval and no others, whose lower edge grows with τ."""
    found = _pictures(rows, "blocks")
    if "printed" not in found or min(len(of) for of in found.values()) < LANDSCAPES:
        return Verdict(Outcome.UNDECIDED, f"{LANDSCAPES} values of τ are needed")
    shown, wrong = found["printed"], ""
    for reading, of in found.items():
        if not all(_grows(edges) for edges in _low_edges(of)):
            wrong = f"the lower edge of γ does not grow with τ (masks {reading})"
        if not all(row["strays"] == 0 for row in of):
            wrong = f"the region is not {{γ in an interval}} (masks {reading})"
        if not all(row["arms"] for row in of):
            wrong = f"the corner lacks an arm (masks {reading})"
    measured = {"gamma": [row["gamma"] for row in shown], "edges": [r["edges"] for r in shown]}
    if wrong:
        return Verdict(Outcome.FAILS, wrong, measured)
    because = (
        f"within {shown[0]['shares'][1]:.0%} of the range of the loss γ lies in "
        + ", ".join("[{:.0f}, {:.0f}]".format(*row["edges"][1]) for row in shown)
        + f" for τ = {', '.join(str(row['drawn']) for row in shown)}: a corner in logarithms, with "
        "an arm where α is about γ and β anything smaller than v γ, and one where β is about v γ "
        "and α anything smaller. Only the arms have lower edges; α and β by themselves have none, "
        "although the caption says so"
    )
    return Verdict(Outcome.HOLDS, because, measured)


def _picture_row(name: str, drawn: int, **changes: Any) -> Row:
    row: Row = {"kind": "landscape", "value": name, "drawn": drawn, "reading": "printed"}
    row |= {"shares": [0.01, 0.05], "edges": [[2.0 * drawn, 900.0], [1.0 * drawn, 1000.0]]}
    row |= {"steepest": [0.001, 0.002], "alpha": 0.1, "beta": 300.0, "gamma": 300.0, "ratio": 0.1}
    return row | {"strays": 0.0, "arms": True} | changes


def _pictured(name: str, **changes: Any) -> list[Row]:
    return [
        _picture_row(name, 20),
        _picture_row(name, 40),
        _picture_row(name, 60),
        _picture_row(name, 80, **changes),
    ]


DIAGONAL_PICTURE_HELD = _pictured("diagonal")
DIAGONAL_PICTURE_REFUTED = [
    _pictured("diagonal", edges=[[119.0, 900.0], [80.0, 1000.0]]),
    _pictured("diagonal", beta=150.0),
    _pictured("diagonal", alpha=40.0),
]
BLOCKS_PICTURE_HELD = _pictured("blocks")
BLOCKS_PICTURE_REFUTED = [
    _pictured("blocks", edges=[[160.0, 900.0], [59.0, 1000.0]]),
    _pictured("blocks", strays=3.0),
    _pictured("blocks", arms=False),
]


def _weights(count: int) -> list[float]:
    """From 10^-4 to 10^7, as the landscapes have them."""
    return [10.0 ** (-4 + 11 * k / max(1, count - 1)) for k in range(count)]


def _landscape_figure(rows: Rows, value: str, name: str, title: str, caption: str) -> Figure:
    mine = [row for row in rows_of(rows, "landscape") if row["value"] == value and "picture" in row]
    mine = sorted(mine, key=lambda row: row["drawn"])
    panels = [
        Heatmap(
            row["picture"],
            f"τ = {row['drawn']} of 100 topics",
            "α, to other words of the topic",
            "β, to the same word",
            x=_weights(len(row["picture"][0])),
            y=_weights(len(row["picture"]))[::-1],
        )
        for row in mine
    ]
    return Figure(
        name,
        title,
        panels,
        "Loss over the weights α (to other words of the topic, 10^−4 at the left to 10^7) and β "
        "(to the word itself, 10^−4 at the bottom to 10^7), both in logarithms, as a share of its "
        f"range: 0 is the least, dark. T = 100, v = 300, masking as in BERT. {caption}",
    )


def diagonal_figure(rows: Rows) -> Figure:
    """The landscape of a diagonal value matrix."""
    return _landscape_figure(
        rows,
        "diagonal",
        "topic_landscape_diagonal",
        "Diagonal value matrix: the word itself must be attended to, within an interval",
        "Low loss needs β between some 10^4 and 10^6 and α far below β; more topics raise the "
        "lower edge.",
    )


def blocks_figure(rows: Rows) -> Figure:
    """The landscape of uniform blocks."""
    return _landscape_figure(
        rows,
        "blocks",
        "topic_landscape_blocks",
        "Uniform blocks: only the mean weight within the topic matters, which makes a corner",
        "The loss depends on γ = (v−1)/v α + β/v alone; an interval of γ is a corner here, with "
        "one arm where α decides and one where β does.",
    )

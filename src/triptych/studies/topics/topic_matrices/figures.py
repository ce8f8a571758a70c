"""Pictures of topic_matrices."""

from collections.abc import Sequence

from triptych.studies.api.figures import Figure, Heatmap, Panel, Series
from triptych.studies.api.study import Rows
from triptych.studies.topics.shared.blocks import DIAGONAL, VISIBLE, maps, pattern
from triptych.studies.topics.shared.networks import pair_name
from triptych.studies.topics.topic_matrices.judge import PUBLISHED
from triptych.studies.topics.topic_matrices.rows import (
    CODED,
    Descended,
    Row,
    TiedEmbeddings,
    TrainedEmbeddings,
    TrainedValue,
    ValueKind,
)

_MAPS = (
    "The first 40 words by the first 40 words of one run; a topic has 10 words. Score: mean entry "
    "of two words of one topic minus that of two topics, the diagonal left out, in standard "
    "deviations of entries of two topics; mean over runs. "
)


_INPUTS = "One-hot inputs are as long as the authors' code makes them, where such runs were made. "


def _of(rows: Rows[Row], figure: ValueKind) -> list[TrainedValue]:
    return [row for row in rows.of(TrainedValue) if row.figure == figure]


def embeddings_figure(rows: Rows[Row]) -> Figure:
    """W_E' W_E of four trainings of the authors' network."""
    return Figure(
        "topic_embeddings",
        "Dot products of trained embeddings, by loss and optimiser",
        maps(rows.of(TrainedEmbeddings)),
        _MAPS + "The authors' network at its least held-out loss. Embeddings start as N(0, 1), "
        "whose dot products are a diagonal already: what training adds is what lies next to it.",
    )


def tied_figure(rows: Rows[Row]) -> Figure:
    """W_E' W_E of the network as printed, from small embeddings."""
    small = [row for row in rows.of(TiedEmbeddings) if row.embedding_scale < 1]
    return Figure(
        "topic_embeddings_as_printed",
        "Dot products of trained embeddings: the network as printed, from a small start",
        maps(small),
        _MAPS + "Input and output embeddings are tied and nothing is normalised; W_E starts as "
        "N(0, 0.01).",
    )


def ridge_figure(rows: Rows[Row]) -> Figure:
    mine = _of(rows, "ridge")
    weight = f"{mine[0].l2:g}" if mine else "λ"
    return Figure(
        "value_with_l2",
        "Value matrices under uniform attention, with L2",
        maps(mine),
        _MAPS + f"The term is {weight} times the sum of squares of all trained parameters.",
    )


def plain_figure(rows: Rows[Row]) -> Figure:
    """W^V without L2, with the inputs of the authors' code where they were run."""
    return Figure(
        "value_without_l2",
        "Value matrices under uniform attention, without L2",
        maps(_of(rows, "coded plain") or _of(rows, "plain")),
        _MAPS + _INPUTS,
    )


def joint_figure(rows: Rows[Row]) -> Figure:
    """W^V when attention is trained too."""
    return Figure(
        "value_with_attention",
        "Value matrices when keys and queries are trained too",
        maps(_of(rows, "coded joint") or _of(rows, "joint")),
        _MAPS + _INPUTS,
    )


def growth_figure(rows: Rows[Row]) -> Figure:
    """Block and off-block means of squared loss + SGD over steps, with the published ones."""
    panels = []
    titles: dict[ValueKind, str] = {
        "coded plain": "uniform attention, inputs of the code",
        "plain": "uniform attention, inputs of length 1",
        "coded joint": "attention trained too, inputs of the code",
        "joint": "attention trained too, inputs of length 1",
    }
    for figure, title in titles.items():
        mine = [r for r in _of(rows, figure) if (r.loss, r.optimiser) == ("squared", "sgd")]
        if not mine:
            continue
        row = mine[0]
        block, off, _ = PUBLISHED["joint" if figure in ("joint", CODED["joint"]) else "plain"]
        end = [row.path_steps[-1]] * 2
        series = [
            Series("same topic, the diagonal counted", "ours", row.path_steps, row.path_block),
            Series("different topics", "control", row.path_steps, row.path_off),
            Series("published, step unknown", "published", end, [block, off], line=False),
        ]
        panels.append(Panel(series, "training step", "mean entry of the value matrix", title))
    return Figure(
        "block_growth",
        "Mean entries within and between topics, squared loss + SGD at 0.01",
        panels,
        "One run. With inputs of length 1 the bias learns the mean frequencies within a few "
        "hundred steps; what is then added to the value matrix sums to 0 over the ten topics, so "
        "entries of two topics tend to -1/9 of those of one.",
    )


def descent_figure(rows: Rows[Row]) -> Figure:
    """Gradient descent on the theorem's own documents against the closed form."""
    mine = sorted((row for row in rows.of(Descended) if row.l2), key=lambda row: row.l2)
    weights = [row.l2 for row in mine]
    away, gap = [row.to_limit for row in mine], [row.gap for row in mine]
    return Figure(
        "closed_form_distance",
        "Distance of gradient descent from the closed form, on the theorem's own documents",
        [
            Panel(
                [
                    Series("trained to the closed form of vanishing L2", "ours", weights, away),
                    Series("height of a block in the closed form", "truth", weights, gap),
                ],
                "weight of the L2 term",
                "largest difference of an entry",
                x_log=True,
                y_log=True,
            )
        ],
        "Exact population loss of infinitely long documents of three topics of ten; no sampling.",
    )


def diagonal_figure(rows: Rows[Row]) -> Figure:
    """Diagonality of every run without L2 against what was trained, and one diagonal matrix."""
    one_hot = [row for row in rows.of(TrainedValue) if row.l2 == 0]
    points = {
        "one-hot words": [(row.diagonality, row.height) for row in one_hot],
        "trained embeddings, as printed": [
            (row.value_diagonality, row.value_height) for row in rows.of(TiedEmbeddings)
        ],
    }
    series = []
    for name, some in points.items():
        whole = [(x, y) for x, y in some if x is not None and y is not None]
        if whole:
            kind = "ours" if name.startswith("one-hot") else "control"
            xs, ys = [x for x, _ in whole], [y for _, y in whole]
            series.append(Series(name, kind, xs, ys, line=False))
    panels: list[Panel | Heatmap] = [
        Panel(
            series,
            "diagonality: 0 uniform blocks, 1 diagonal",
            "height of the diagonal, in standard deviations of entries of two topics",
            "every run without L2",
        )
    ]
    return Figure(
        "diagonal_value",
        "How diagonal the value matrix is, by what is trained",
        [*panels, *_most_diagonal(one_hot)],
        f"A matrix is called diagonal where its diagonality is at least {DIAGONAL} and the "
        f"diagonal stands out by more than {VISIBLE} standard deviations. With trained embeddings "
        "rows and columns of W^V are coordinates and not words.",
    )


def _most_diagonal(rows: Sequence[TrainedValue]) -> list[Heatmap]:
    chosen = [row for row in rows if pattern(row) == "diagonal" and row.corner]
    best = max(chosen, key=lambda row: row.diagonality or 0.0, default=None)
    if best is None or best.corner is None:
        return []
    title = f"a diagonal W^V: {pair_name(best.loss, best.optimiser)}"
    return [Heatmap(best.corner, title, "word", "word")]


FIGURES = [
    embeddings_figure,
    tied_figure,
    ridge_figure,
    plain_figure,
    joint_figure,
    growth_figure,
    descent_figure,
    diagonal_figure,
]

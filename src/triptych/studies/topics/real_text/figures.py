"""Pictures of topics in real text."""

from collections.abc import Sequence

from triptych.studies.api.figures import Figure, Heatmap, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.theory.topics.real_text import (
    AttentionRatio,
    EmbeddingRatio,
    HeadRatios,
    WordMap,
)
from triptych.theory.topics.topic_mixtures import TopicMixture, beside_one_layer

_PUBLISHED = {  # of BERT in Table 2.3
    "cosine": ((0.0005, 1.21), (0.001, 1.13), (0.002, 1.11)),
    "attention": ((0.0005, 1.32), (0.001, 1.28), (0.002, 1.22)),
}

_BY_LAYER: tuple[tuple[str, SeriesKind, str, bool], ...] = (
    ("trained", "ours", "trained", False),
    ("random weights", "control", "random", False),
    ("topics dealt to other words", "control", "trained", True),
)


def ratios_figure(rows: Rows) -> Figure:
    """Same over different topic by threshold, for embeddings and attention."""
    alike = [
        (row.model, row.weights, row.threshold, row.ratio)
        for row in rows.of(EmbeddingRatio)
        if row.measure == "cosine"
        and not row.several
        and row.vectors == ("word" if row.weights == "trained" else "input")
    ]
    attended = [
        (row.model, row.weights, row.threshold, row.ratio)
        for row in rows.of(AttentionRatio)
        if not row.several and not row.shuffled and row.layer is None
    ]
    panels = [
        _panel(alike, "embedding cosine", "cosine"),
        _panel(attended, "attention, all layers", "attention"),
    ]
    caption = (
        "Means over fits of LDA, from the lowest to the highest; one topic per word. Of a copy "
        "with random weights the cosine is that of the first layer's inputs."
    )
    if any(series.kind == "published" for panel in panels for series in panel.series):
        caption += " Diamonds: BERT in the source, with other text."
    return Figure(
        "topic_ratios",
        "Words of the same topic over words of different topics, by threshold",
        panels,
        caption,
    )


def _panel(found: Sequence[tuple[str, str, float, float | None]], title: str, name: str) -> Panel:
    series = []
    for model, weights in dict.fromkeys((m, w) for m, w, _, _ in found):
        points: dict[float, list[float]] = {}
        for m, w, threshold, ratio in found:
            if (m, w) == (model, weights) and ratio is not None:
                points.setdefault(threshold, []).append(ratio)
        kind: SeriesKind = "ours" if weights == "trained" else "control"
        if points:
            x = sorted(points)
            series.append(
                Series(
                    model if weights == "trained" else f"{model}, random",
                    kind,
                    x,
                    [sum(points[t]) / len(points[t]) for t in x],
                    [min(points[t]) for t in x],
                    [max(points[t]) for t in x],
                )
            )
    near = {threshold for _, _, threshold, _ in found}
    published = [point for point in _PUBLISHED[name] if point[0] in near]
    if published:
        x, y = zip(*published, strict=True)
        series.append(Series("BERT, published", "published", x, y, line=False))
    return Panel(series, "ambiguity threshold", "same over different topic", title, x_log=True)


def layers_figure(rows: Rows) -> Figure:
    """Attention by layer."""
    found = [
        row
        for row in rows.of(AttentionRatio)
        if row.layer is not None and not row.several and row.ratio is not None
    ]
    panels = []
    for model in dict.fromkeys(row.model for row in found):
        own = [row for row in found if row.model == model]
        thresholds = sorted({row.threshold for row in own})
        middle = thresholds[len(thresholds) // 2]
        series = []
        for label, kind, weights, dealt in _BY_LAYER:
            some = [
                row
                for row in own
                if (row.threshold, row.weights, row.shuffled) == (middle, weights, dealt)
            ]
            if some:
                series.append(_by_layer(label, kind, some))
        panels.append(Panel(series, "layer", "attention, same over different topic", model))
    return Figure(
        "topic_attention_by_layer",
        "Attention to words of the own topic over attention to others, by layer",
        panels,
        "Rescaled to length 100, heads averaged, at the middle threshold, one topic per word. "
        "Bands: bootstrap over passages, from the lowest to the highest of the fits of LDA.",
    )


def _by_layer(label: str, kind: SeriesKind, rows: Sequence[AttentionRatio]) -> Series:
    """Means over fits, with the lowest and highest ends of their intervals."""
    points: dict[int, list[AttentionRatio]] = {}
    for row in rows:
        points.setdefault(row.layer or 0, []).append(row)
    x = sorted(points)
    return Series(
        label,
        kind,
        x,
        [sum(r.ratio or 0.0 for r in points[i]) / len(points[i]) for i in x],
        [min(r.low or 0.0 for r in points[i]) for i in x],
        [max(r.high or 0.0 for r in points[i]) for i in x],
    )


def closed_form_figure(rows: Rows) -> Figure:
    """Attention by layer next to the best attention of one layer."""
    found = beside_one_layer(rows.of(TopicMixture), rows.of(AttentionRatio), rows.of(HeadRatios))
    panels = []
    for each in found:
        if not each.heads:
            continue  # another threshold
        key = (each.mixture.model, each.mixture.threshold, "trained")
        layers = [
            row
            for row in rows.of(AttentionRatio)
            if (row.model, row.threshold, row.weights) == key
            and not (row.several or row.shuffled)
            and row.layer is not None
            and row.ratio is not None
        ]
        highest = [
            [max(ratios) for ratios in row.ratios]
            for row in rows.of(HeadRatios)
            if (row.model, row.threshold, row.weights) == key
        ]
        x = range(1, len(each.layers) + 1)
        best, tau = each.one_layer.ratio, each.mixture.passages or 0.0
        low, high = ([pick(fits) for fits in zip(*highest, strict=True)] for pick in (min, max))
        series = [
            Series("one layer, closed form", "truth", x, [best] * len(x)),
            Series("model, its highest head", "control", x, each.heads, low, high),
            _by_layer("model, all heads", "ours", layers),
        ]
        title = f"{each.mixture.model}, {tau:.1f} topics a passage"
        panels.append(
            Panel(series, "layer", "attention, same over different topic", title, y_log=True)
        )
    return Figure(
        "topic_closed_form",
        "Attention to the own topic by layer, next to the closed form of one layer",
        panels,
        "The closed form is the best ratio for one layer that predicts masked words of documents "
        "with as many topics as a passage mixes (one over the chance that two words share a "
        "topic), as many topics and words of a topic as LDA gave, and BERT's masking. The model's "
        "means are over fits of LDA, at the middle threshold, one topic per word. Bands: bootstrap "
        "over passages for all heads, the lowest and highest fit for the highest head.",
    )


def heads_figure(rows: Rows) -> Figure:
    """Attention by layer and head, of the first fit."""
    panels = []
    found = [row for row in rows.of(HeadRatios) if row.weights == "trained"]
    for model in dict.fromkeys(row.model for row in found):
        row = min((r for r in found if r.model == model), key=lambda r: r.seed)
        rows_of = range(1, len(row.ratios) + 1)
        columns = range(1, len(row.ratios[0]) + 1)
        panels.append(
            Heatmap(row.ratios, model, "head", "layer", x=tuple(columns), y=tuple(rows_of))
        )
    return Figure(
        "topic_heads",
        "Attention to words of the own topic over attention to others, by head",
        panels,
        "One fit of LDA, one topic per word, the middle threshold.",
    )


def map_figure(rows: Rows) -> Figure:
    """Cosines of words in groups."""
    maps = [row for row in rows.of(WordMap) if row.weights == "trained"]
    panels = [
        Heatmap(row.cosines, row.model, names=row.words, limits=(0.0, 1.0))
        for row in {row.model: row for row in maps}.values()
    ]
    return Figure(
        "word_map",
        "Cosine similarity of the embeddings of words in groups",
        panels,
        "Words of one group stand together. A word of several tokens has the mean of their "
        "embeddings; the source does not say what it does with such words.",
    )

"""The measurements of topics as tables: rows of texts, for the terminal and the page."""

from collections.abc import Sequence
from typing import NamedTuple

from triptych.lab.topics.reading import Reading
from triptych.theory.topics.real_text import (
    AttentionRatio,
    EmbeddingRatio,
    Fitted,
    HeadRatios,
    Measure,
    TopPairs,
    WordMap,
)
from triptych.theory.topics.topic_mixtures import TopicMixture, beside_one_layer

NO_PAIRS = "no pairs"  # of the same topic, or of different ones, in the passages


class TextTable(NamedTuple):
    """A title, the names of columns, and rows of texts."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def tables(reading: Reading) -> list[TextTable]:
    """Embeddings, attention, pairs that occur together, and the closed form of one layer."""
    found = [_ratios(reading), _layers(reading), _together(reading)]
    beside = _closed_form(reading)
    return [*found, beside] if beside.rows else found


def lines(reading: Reading) -> list[str]:
    """What the terminal shows."""
    fits = reading.rows.of(Fitted)
    first = fits[0]
    found = [
        f"{reading.model} ({reading.family}) on {reading.corpus}: {first.documents} documents, "
        f"{first.tokens} tokens, {first.words} words in {len(first.topics)} topics",
    ]
    found += [f"  topic {i}: {' '.join(words)}" for i, words in enumerate(first.topics[:5], 1)]
    if len(first.topics) > 5:
        found.append(f"  and {len(first.topics) - 5} more in the page")
    for table in tables(reading):
        found += ["", table.title, *_aligned(table)]
    pieces = [
        word
        for row in reading.rows.of(WordMap)
        for word, number in zip(row.words, row.tokens, strict=True)
        if number > 1
    ]
    if pieces:
        found += ["", f"Of several tokens, embeddings averaged: {', '.join(pieces)}"]
    return found


def _aligned(table: TextTable) -> list[str]:
    every = [table.columns, *table.rows]
    widths = [max(len(row[i]) for row in every) for i in range(len(table.columns))]
    return [
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in every
    ]


def _ratios(reading: Reading) -> TextTable:
    """One line per threshold, one or several topics, and seed."""
    alike, attended = reading.rows.of(EmbeddingRatio), reading.rows.of(AttentionRatio)
    trained = [r for r in alike if r.weights == "trained" and r.vectors == "word"]
    rows = []
    for row in [r for r in trained if r.measure == "cosine"]:
        key = (row.seed, row.threshold, row.several)
        dot = next(r for r in trained if r.measure == "dot" and _key(r) == key)
        heard = [r for r in attended if r.layer is None and not r.shuffled and _key(r) == key]
        control = _random(alike, key, "cosine")
        rows.append(
            (
                f"{row.threshold:g}",
                "several" if row.several else "one",
                str(row.seed),
                str(row.words),
                *(_with_interval(r) for r in (row, dot)),
                next((_with_interval(r) for r in heard if r.weights == "trained"), NO_PAIRS),
                *(
                    _number(value) if row.different > 0 else ""
                    for value in (row.matched, row.shuffled)
                ),
                "" if control is None else _number(control.ratio, 4),
                next((_number(r.ratio, 4) for r in heard if r.weights == "random"), ""),
            )
        )
    columns = ("threshold", "topics a word", "fit", "words", "cosine", "dot product", "attention")
    columns += ("matched", "shuffled", "random cosine", "random attention")
    return TextTable("Same over different topic, with 95 % intervals", columns, rows)


def _layers(reading: Reading) -> TextTable:
    """Attention by layer, one topic per word, the middle threshold, the first fit."""
    found = [
        r
        for r in reading.rows.of(AttentionRatio)
        if r.layer is not None and not r.several and r.seed == 0
    ]
    thresholds = sorted({r.threshold for r in found})
    middle = thresholds[len(thresholds) // 2]
    rows = []
    kinds = (("trained", False), ("trained", True), ("random", False))
    weights = {"trained", *(r.weights for r in reading.rows.of(HeadRatios))}
    for layer in sorted({r.layer or 0 for r in found}):
        here = [r for r in found if r.layer == layer and r.threshold == middle]
        cells = [
            next((_with_interval(r) for r in here if (r.weights, r.shuffled) == kind), NO_PAIRS)
            for kind in kinds
            if kind[0] in weights
        ]
        rows.append((str(layer), *cells))
    title = f"Attention by layer, same over different topic, threshold {middle:g}"
    columns = ("layer", "trained", "topics shuffled", "random weights")
    return TextTable(title, columns[: len(rows[0])], rows)


def _together(reading: Reading) -> TextTable:
    rows = [
        (
            f"{r.threshold:g}",
            str(r.seed),
            str(r.pairs),
            *(f"{value:.5f}" for value in (r.attention_topic, r.attention_pairs)),
            *(f"{value:.3f}" for value in (r.cosine_topic, r.cosine_pairs)),
            ", ".join(r.examples[:2]),
        )
        for r in reading.rows.of(TopPairs)
    ]
    columns = ("threshold", "fit", "pairs", "attention, topic", "attention, together")
    columns += ("cosine, topic", "cosine, together", "together, as")
    return TextTable(
        "Pairs of one topic next to pairs that occur together most often", columns, rows
    )


def _closed_form(reading: Reading) -> TextTable:
    """What one layer would do with as many topics, words and masks; the first fit's mixture."""
    rows = []
    for each in beside_one_layer(
        reading.rows.of(TopicMixture),
        reading.rows.of(AttentionRatio),
        reading.rows.of(HeadRatios),
    ):
        best, mixture = each.one_layer, each.mixture
        layer = max(range(len(each.layers)), key=lambda i: each.layers[i])
        rows.append(
            (
                f"{mixture.threshold:g}",
                f"{mixture.words:.0f}",
                f"{mixture.passages:.1f}",
                f"{mixture.share:.1%}",
                f"{best.ratio:.1f}",
                f"{each.measured:.2f}",
                f"{each.layers[layer]:.2f} (layer {layer + 1})",
                f"{max(each.heads):.1f}" if each.heads else "",
                f"{best.share():.0%}",
                f"{best.share(each.measured):.0%}",
            )
        )
    columns = ("threshold", "words a topic", "topics a passage", "inputs with a topic")
    columns += ("closed form", "model", "highest layer", "highest head")
    columns += ("own topic's share, closed form", "model")
    return TextTable(
        "Attention next to the closed form of one layer, same over different", columns, rows
    )


def _key(row: EmbeddingRatio | AttentionRatio) -> tuple[int, float, bool]:
    return row.seed, row.threshold, row.several


def _random(
    rows: Sequence[EmbeddingRatio], key: tuple[int, float, bool], measure: Measure
) -> EmbeddingRatio | None:
    """Numbers about the first layer's inputs: raw embeddings of a random model would give 0/0."""
    return next(
        (
            r
            for r in rows
            if (r.weights, r.vectors, r.measure) == ("random", "input", measure) and _key(r) == key
        ),
        None,
    )


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _with_interval(row: EmbeddingRatio | AttentionRatio) -> str:
    """0/0 where the mean of different topics is not above 0: its ratio says nothing."""
    if row.ratio is None or row.low is None or row.high is None or row.different <= 0:
        return "0/0"
    if row.low == row.high:  # two topics or one passage: nothing to resample
        return f"{row.ratio:.2f}"
    return f"{row.ratio:.2f} [{row.low:.2f}, {row.high:.2f}]"

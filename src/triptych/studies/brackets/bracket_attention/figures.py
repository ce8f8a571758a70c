"""The figures of `bracket_attention`."""

from collections.abc import Iterable, Sequence

import numpy as np

from triptych.core.estimates import Estimate, mean
from triptych.studies.api.figures import Figure, Heatmap, Number, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.brackets.shared.attention_judges import (
    PUBLISHED,
    RANDOM_SENTENCE,
    TABLE,
    WORD_LENGTH,
    durations,
    good,
    of_variation,
    variation,
)
from triptych.studies.brackets.shared.attention_rows import Network, Row, Sentences
from triptych.studies.brackets.shared.networks import Data, First
from triptych.studies.brackets.shared.pictures import WORD, picture, picture_of_a_stack
from triptych.studies.brackets.shared.spread import variation_over_networks
from triptych.theory.brackets.patterns import random_variation

VARIATION = "mean ‖A − A′‖² over pairs of networks"
INTERVALS = "Intervals are a jackknife over networks."
ACCURATE = "All networks are at 97 % accuracy or more."


def _maps(networks: Iterable[tuple[str, Network]]) -> list[Heatmap]:
    return [picture(row.pattern, f"{label}: {row.likeness:.2f}") for label, row in networks]


def pattern_figure(rows: Rows[Row]) -> Figure:
    """Second-layer patterns of several starts, without and with positions."""
    return _standard_figure(
        rows, "complete", "bracket_attention", "on whole strings", [picture_of_a_stack()]
    )


def prefix_figure(rows: Rows[Row]) -> Figure:
    """The same for networks that were trained on prefixes."""
    return _standard_figure(rows, "prefixes", "bracket_attention_prefixes", "on prefixes", [])


def _standard_figure(
    rows: Rows[Row], data: Data, name: str, trained_on: str, first: list[Heatmap]
) -> Figure:
    plain = good(rows, first="standard", data=data, positions="none")
    placed = good(rows, first="standard", data=data, positions="linear")
    found = [(f"seed {row.seed}", row) for row in plain[:3]]
    found += [(f"seed {row.seed}, positions", row) for row in placed[: 3 - len(first)]]
    return Figure(
        name,
        f"Second-layer attention of networks trained {trained_on}, from several starts",
        first + _maps(found) if found else [],
        f"Two layers, on {WORD} after a start token. {ACCURATE} The number is the mean weight of "
        "closing brackets on the innermost bracket that is open; a stack has 1.",
    )


def minimal_figure(rows: Rows[Row]) -> Figure:
    """The three minimal first layers, and two learning rates."""
    wanted: tuple[tuple[str, First, float], ...] = (
        ("(2.55), rate 0.01", "joint", 1e-2),
        ("(2.55), rate 0.003", "joint", 3e-3),
        ("(2.56), rate 0.003", "separate", 3e-3),
        ("(2.57), rate 0.003", "angle", 3e-3),
    )
    found = []
    for label, first, rate in wanted:
        networks = good(rows, first=first, data="complete", learning_rate=rate)
        found += [(f"{label}, seed {row.seed}", row) for row in networks[:2]]
    return Figure(
        "bracket_attention_minimal",
        "Attention on a minimal first layer, by embedding and learning rate",
        _maps(found),
        f"Two networks of each kind, on {WORD} after a start token. {ACCURATE} The number is the "
        "mean weight of closing brackets on the innermost bracket that is open; a stack has 1.",
    )


def _estimates(
    label: str, kind: SeriesKind, x: Sequence[Number], found: Sequence[Estimate]
) -> Series:
    return Series(
        label,
        kind,
        x,
        [e.value for e in found],
        [max(0.0, e.low) for e in found],
        [e.high for e in found],
        line=False,
    )


def variation_figure(rows: Rows[Row]) -> Figure:
    """Measured and published variation on the word."""
    places, found, published = [], [], []
    for place, (kind, (_, value)) in enumerate(PUBLISHED.items(), 1):
        networks = of_variation(rows, *kind)
        if len(networks) > 2:
            places.append(place)
            found.append(variation(networks))
            published.append(value)
    random = random_variation(WORD_LENGTH)
    names = "; ".join(
        f"{i}: {n.replace('_', ' ')}" for i, (n, _) in enumerate(PUBLISHED.values(), 1)
    )
    series = [
        _estimates("networks", "ours", places, found),
        Series("published", "published", places, published, line=False),
        Series("random patterns", "truth", [1, len(PUBLISHED)], [random, random]),
    ]
    return Figure(
        "bracket_attention_variation",
        "How far the attention of networks from different starts is apart",
        [Panel(series if found else [], names, VARIATION, f"on {WORD}")],
        f"{INTERVALS} {ACCURATE}",
    )


def duration_figure(rows: Rows[Row]) -> Figure:
    """Variation and sharpness against the steps of training."""
    apart, sharp = [], []
    kinds: tuple[tuple[Data, str, SeriesKind], ...] = (
        ("complete", "whole strings", "ours"),
        ("prefixes", "prefixes", "control"),
    )
    for data, label, kind in kinds:
        found = {n: some for n, some in durations(rows, data).items() if len(some) > 2}
        for series, values in (
            (apart, [variation(some) for some in found.values()]),
            (sharp, [mean([row.sharpness for row in some]) for some in found.values()]),
        ):
            if found:
                low, high = [e.low for e in values], [e.high for e in values]
                series.append(Series(label, kind, [*found], [e.value for e in values], low, high))
    return Figure(
        "bracket_attention_training",
        "Attention through training: how far networks are apart, and how sharp patterns are",
        [
            Panel(apart, "steps of training", VARIATION, f"Variation on {WORD}", True),
            Panel(sharp, "steps of training", "Σ A² of a pattern", "Sharpness", True),
        ],
        "Two standard layers without positions, rate 0.003; every number of steps is a run of its "
        "own. All networks count, accurate or not. Published: 2.27 for whole strings and 14.51 for "
        "prefixes.",
    )


def table_figure(rows: Rows[Row]) -> Figure:
    """Table 2.6, a panel for each layer."""
    sizes = sorted({cell[:2] for cell in TABLE})
    names = "; ".join(f"{i}: k = {k}, D = {d}" for i, (k, d) in enumerate(sizes, 1))
    panels = []
    for layer in (1, 2, 3):
        series = []
        for layers, shift in ((2, -0.1), (3, 0.1)):
            places, ours, theirs = [], [], []
            for row in rows.of(Sentences):
                cell = (row.types, row.max_depth, row.layers)
                wanted = row.norm == "kept" and (row.layer, row.layers) == (layer, layers)
                if wanted and cell in TABLE and len(row.apart) > 2:
                    places.append(sizes.index(cell[:2]) + 1 + shift)
                    ours.append(variation_over_networks(np.array(row.apart)))
                    theirs.append(TABLE[cell][layer - 1])
            if places:
                kind: SeriesKind = "ours" if layers == 3 else "control"
                series.append(_estimates(f"{layers} layers", kind, places, ours))
                label = f"published, {layers} layers"
                series.append(Series(label, "published", places, theirs, line=False))
        if series:
            ends = [0.8, len(sizes) + 0.2]
            series.append(Series("random patterns", "truth", ends, [RANDOM_SENTENCE] * 2))
        panels.append(Panel(series, names, VARIATION, f"Layer {layer}", y_log=layer == 1))
    return Figure(
        "bracket_attention_table",
        "Table 2.6: how far networks are apart in each layer, on sentences of 19 brackets",
        panels,
        INTERVALS,
    )


FIGURES = [
    pattern_figure,
    prefix_figure,
    minimal_figure,
    variation_figure,
    duration_figure,
    table_figure,
]

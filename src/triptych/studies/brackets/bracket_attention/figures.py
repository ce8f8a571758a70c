"""The figures of `bracket_attention`."""

import numpy as np

from triptych.studies.api.figures import Figure, Heatmap, Panel, Series
from triptych.studies.api.study import Rows
from triptych.studies.brackets.bracket_attention.judge import (
    PUBLISHED,
    TABLE,
    good,
    of_variation,
    variation,
)
from triptych.studies.brackets.bracket_attention.rows import Network, Row, Sentences
from triptych.studies.brackets.shared.networks import First
from triptych.studies.brackets.shared.spread import variation_over_networks

SHOWN = 4  # heat maps side by side


def _maps(found: list[tuple[str, Network]]) -> list[Heatmap]:
    return [
        Heatmap(
            row.pattern,
            f"{label}, weight of a stack {row.likeness:.2f}",
            "position that is attended to",
            "position",
            limits=(0.0, 1.0),
        )
        for label, row in found
    ]


def pattern_figure(rows: Rows[Row]) -> Figure:
    """Second-layer patterns of several starts, and with positions."""
    plain = good(rows, first="standard", data="complete", positions="none")
    placed = good(rows, first="standard", data="complete", positions="linear")
    found = [(f"seed {row.seed}", row) for row in plain[: SHOWN - 1]]
    found += [(f"seed {row.seed}, positions", row) for row in placed[:1]]
    return Figure(
        "bracket_attention",
        "Second-layer attention of trained networks: another start, another pattern",
        _maps(found),
        "Two-layer networks on [[[[]]]](((()))) after a start token (position 0), all at 97 % "
        "accuracy or more. A stack would put all weight of a row on the innermost open bracket.",
    )


def minimal_figure(rows: Rows[Row]) -> Figure:
    """The three minimal first layers, and two learning rates."""
    wanted: tuple[tuple[str, First, float], ...] = (
        ("(2.55), rate 0.01", "joint", 1e-2),
        ("(2.55), rate 0.003", "joint", 3e-3),
        ("(2.57)", "angle", 3e-3),
        ("(2.56)", "separate", 3e-3),
    )
    found = []
    for label, first, rate in wanted:
        networks = good(rows, first=first, data="complete", learning_rate=rate)
        found += [(label, row) for row in networks[:1]]
    return Figure(
        "bracket_attention_minimal",
        "Attention on a minimal first layer, by embedding and learning rate",
        _maps(found),
        "One network of each kind, on [[[[]]]](((()))) after a start token.",
    )


def variation_figure(rows: Rows[Row]) -> Figure:
    """Measured and published variation, and the table by layer."""
    places, found, published = [], [], []
    for place, (kind, (_, value)) in enumerate(PUBLISHED.items(), 1):
        networks = of_variation(rows, *kind)
        if len(networks) > 2:
            places.append(place)
            found.append(variation(networks))
            published.append(value)
    names = ", ".join(
        f"{i} {n.replace('_', ' ')}" for i, (n, _) in enumerate(PUBLISHED.values(), 1)
    )
    word = [
        Series(
            "networks",
            "ours",
            places,
            [e.value for e in found],
            [max(0.0, e.low) for e in found],
            [e.high for e in found],
            line=False,
        ),
        Series("published", "published", places, published, line=False),
    ]
    layers, ours, theirs = [], [], []
    for row in rows.of(Sentences):
        cell = (row.types, row.max_depth, row.layers)
        if row.norm == "kept" and len(row.apart) > 2:
            layers.append(row.layer + 0.1 * (sorted(TABLE).index(cell) - 3.5) / 3.5)
            ours.append(variation_over_networks(np.array(row.apart)))
            theirs.append(TABLE[cell][row.layer - 1])
    table = [
        Series(
            "networks",
            "ours",
            layers,
            [e.value for e in ours],
            [max(0.0, e.low) for e in ours],
            [e.high for e in ours],
            line=False,
        ),
        Series("published", "published", layers, theirs, line=False),
    ]
    y_label = "mean ‖A − A′‖² over pairs of networks"
    return Figure(
        "bracket_attention_variation",
        "How far the attention of networks from different starts is apart",
        [
            Panel(word, names, y_label, "on [[[[]]]](((())))"),
            Panel(table, "layer", y_label, "Table 2.6: sentences of 19 brackets"),
        ],
        "Intervals are a jackknife over networks.",
    )


FIGURES = [pattern_figure, minimal_figure, variation_figure]

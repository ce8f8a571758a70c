"""The figure of `bracket_length`."""

from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.brackets.bracket_length.judge import PENALTY, Point, Source, points
from triptych.studies.brackets.bracket_length.rows import Balanced
from triptych.studies.brackets.shared.networks import Data

TITLES: dict[Data, str] = {"complete": "whole strings", "prefixes": "prefixes"}
SOURCES: dict[Source, str] = {"program": "as programmed", "text": "as printed"}


def balance_figure(rows: Rows[Balanced]) -> Figure:
    """Accuracy on long strings against the violation of balance, a point for a network."""
    panels = []
    for source, name in SOURCES.items():
        for data, title in TITLES.items():
            plain = points(rows, data, "none", source)
            penal = points(rows, data, PENALTY[source], source)
            kinds: tuple[tuple[str, SeriesKind, list[Point]], ...] = (
                ("no penalty", "control", plain),
                ("with the penalty", "ours", penal),
            )
            series = [
                Series(
                    label,
                    kind,
                    [point.violation for point in found],
                    [100 * point.accuracy for point in found],
                    line=False,
                )
                for label, kind, found in kinds
            ]
            panels.append(
                Panel(
                    series,
                    "balance violation",
                    "accuracy at brackets 400 to 500, %",
                    f"{title}, {name}",
                )
            )
    return Figure(
        "bracket_length",
        "Balance of the attention, and accuracy on strings that are much longer",
        panels,
        "One layer of attention on the minimal first layer (2.55), trained on fewer than 29 "
        "brackets. A point is a network that is right for 97 % of its own distribution or more. "
        "Program and text of the source differ in the penalty, the accuracy and the violation.",
    )


FIGURES = [balance_figure]

"""The figure of `bracket_length`."""

from triptych.studies.api.figures import Figure, Kind, Panel, Series
from triptych.studies.api.study import Rows
from triptych.studies.brackets.bracket_length.judge import good
from triptych.studies.brackets.bracket_length.rows import Balanced
from triptych.studies.brackets.shared.contrasts import Penalty
from triptych.studies.brackets.shared.networks import Data

LABELS: dict[Penalty, tuple[str, Kind]] = {
    "none": ("standard training", "control"),
    "programmed": ("penalty of the authors' code", "ours"),
    "printed": ("penalty as printed", "ours"),
}


def balance_figure(rows: Rows[Balanced]) -> Figure:
    """Accuracy on long strings against the violation of balance, a point for a network."""
    panels = []
    titles: dict[Data, str] = {"complete": "whole strings", "prefixes": "prefixes"}
    for data, title in titles.items():
        series = []
        for penalty, (label, kind) in LABELS.items():
            found = good(rows, data, penalty)
            violations = [row.violation for row in found]
            percents = [100 * row.long_best for row in found]
            series.append(Series(label, kind, violations, percents, line=False))
        panels.append(
            Panel(series, "balance violation", "accuracy at 400 to 500 brackets, %", title)
        )
    return Figure(
        "bracket_length",
        "Balance of the attention, and accuracy on strings that are much longer",
        panels,
        "One layer of attention on the minimal first layer (2.55), trained on fewer than 29 "
        "brackets. A point is a network that is right for 97 % of its own distribution or more.",
    )


FIGURES = [balance_figure]

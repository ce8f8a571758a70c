"""Picture of repeated words by the rule at the end."""

from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.study import Rows
from triptych.studies.refinement.shared.judging import by_system
from triptych.studies.refinement.shared.pipeline import STEPS
from triptych.studies.refinement.shared.rows import Scored
from triptych.studies.refinement.shared.scoring import AUTOREGRESSIVE
from triptych.studies.refinement.translation_rules.judge import Row

_LINES = {
    "before any is dropped": "rules before T={}",
    "as in the authors' program": "rules program T={}",
    "dropped, as printed": "padir T={}",
}


def repeats_figure(rows: Rows[Row]) -> Figure:
    """Repeated words in 1000, by the number of steps and the rule."""
    scored = [row for row in rows.of(Scored) if row.words]
    series = [_line(scored, label, name) for label, name in _LINES.items()]
    beam = by_system(scored, AUTOREGRESSIVE)
    if beam:
        rates = [1000 * row.repeats / row.words for row in beam]
        series.append(_band("beam search", "control", {1: rates, 10: rates}))
    drawn = [each for each in series if each is not None]
    return Figure(
        "translation_repeats",
        "Repeated words by the number of steps and by what is done with repeated tokens",
        [Panel(drawn, "steps of refinement", "repeated words in 1000", x_log=True)],
        "A repeated word equals the word before it, where the reference has no such repeat. Means "
        "over sets, directions and seeds, from the lowest to the highest.",
    )


def _line(rows: list[Scored], label: str, name: str) -> Series | None:
    points = {
        steps: [1000 * row.repeats / row.words for row in own]
        for steps in STEPS
        if (own := by_system(rows, name.format(steps)))
    }
    return _band(label, "ours", points) if points else None


def _band(label: str, kind: str, points: dict[int, list[float]]) -> Series:
    return Series(
        label,
        "control" if kind == "control" else "ours",
        list(points),
        [sum(each) / len(each) for each in points.values()],
        [min(each) for each in points.values()],
        [max(each) for each in points.values()],
    )

"""The figure of `vgb_dyck`."""

from collections.abc import Callable, Sequence

from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.study import Rows
from triptych.studies.generation.vgb_dyck.rows import Row, Sampled

# The algorithms of a panel: few enough to be told apart, with VGB in each.
_WALKS = ("VGB, first leaf", "VGB, uniform node")
_PANELS = {
    "one string at a time": (
        *_WALKS,
        "no verifier",
        "rejection",
        "tokenwise rejection",
        "Algorithm 1",
    ),
    "several strings at a time": (*_WALKS, "best of n", "block best of n", "particles"),
}
_Number = Callable[[Sampled], float]


def _curves(rows: Sequence[Sampled], names: Sequence[str], x: _Number, y: _Number) -> list[Series]:
    """A curve of each algorithm over its budgets, means over networks."""
    series = []
    for name in names:
        mine = [row for row in rows if row.algorithm == name]
        points = []
        for budget in sorted({row.budget for row in mine}):
            some = [row for row in mine if row.budget == budget]
            points.append((sum(map(x, some)) / len(some), sum(map(y, some)) / len(some)))
        if points:
            xs, ys = zip(*sorted(points), strict=True)
            series.append(Series(name, "ours" if name in _WALKS else "control", xs, ys))
    return series


def quality_figure(rows: Rows[Row]) -> Figure:
    """Accuracy and distance to the target against the model's cost."""
    sampled = rows.of(Sampled)
    floor = sum(row.floor for row in sampled) / max(1, len(sampled))
    tokens, questions = "tokens run through the network, per string", "questions, per string"
    kinds: list[tuple[str, _Number, str, _Number]] = [
        (
            tokens,
            lambda row: row.network_tokens,
            "share of right strings",
            lambda row: row.accuracy,
        ),
        (
            tokens,
            lambda row: row.network_tokens,
            "total variation to the target",
            lambda row: row.total_variation,
        ),
        (
            questions,
            lambda row: row.generator_calls,
            "total variation to the target",
            lambda row: row.total_variation,
        ),
    ]
    return Figure(
        "quality",
        "Right strings and distance to the target by cost, on a trained network with a trained "
        "value",
        [
            Panel(_curves(sampled, names, x, y), x_label, y_label, title, x_log=True)
            for x_label, x, y_label, y in kinds
            for title, names in _PANELS.items()
        ],
        f"Prompts on which the network errs; {floor:.2f} is the distance that as many exact draws "
        "have. Points along a curve are growing budgets; means over networks.",
    )

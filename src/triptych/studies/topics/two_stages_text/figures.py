"""Norms and turns by layer, as in Figure 2.9, and where every setting stands."""

from triptych.studies.api.figures import Figure, Panel, Series, SeriesKind
from triptych.studies.api.study import Rows
from triptych.studies.topics.two_stages_text.judge import DOUBLINGS, LATER, worst_layer
from triptych.studies.topics.two_stages_text.rows import LayerCurves, Setting

_TWO_STAGES = (
    "Two stages: in every layer W^K and W^Q make a fifth of their growth after more than twice as "
    "many steps as W^V, and grow to more than twice their first norms."
)


def _clearest(rows: Rows) -> LayerCurves | None:
    """The run that is nearest to two stages in all its layers."""
    runs = rows.of(LayerCurves)
    return max(runs, key=_clearness) if runs else None


def _clearness(run: LayerCurves) -> float:
    found = worst_layer(run)
    return min(found.later / LATER, found.doublings / DOUBLINGS)


def norms_figure(rows: Rows) -> Figure:
    """Every layer of the clearest run."""
    panels, of = [], ""
    if row := _clearest(rows):
        of = f": {row.setting}, on {row.corpus}"
        for i in range(len(row.key)):
            series = [
                Series("W^V", "ours", row.step, row.value[i]),
                Series("W^K", "control", row.step, row.key[i]),
                Series("W^Q", "truth", row.step, row.query[i]),
            ]
            panels.append(Panel(series, "training step", "Frobenius norm", f"layer {i + 1}"))
    return Figure(
        "text_stages",
        f"Norms of W^V, W^K and W^Q by layer{of}",
        panels,
        f"Of all runs, the one that comes nearest to two stages in every layer. {_TWO_STAGES}",
    )


def turns_figure(rows: Rows) -> Figure:
    """How fast W^V turns in the layers of the same run."""
    panels, of = [], ""
    if row := _clearest(rows):
        of = f": {row.setting}, on {row.corpus}"
        series = [
            Series(f"layer {i + 1}", "ours", row.step[1:], turns)
            for i, turns in enumerate(row.rotation)
        ]
        panels.append(Panel(series, "training step", "rotation of W^V in 10 steps"))
    return Figure(
        "text_turns",
        f"How far W^V turns in ten steps, by layer{of}",
        panels,
        "The same run. Rotation is the cosine distance to 10 steps before, (1 - cos) / 2.",
    )


def settings_figure(rows: Rows) -> Figure:
    """How much later W^K and W^Q start than W^V, and how much they grow, for every setting."""
    groups: dict[Setting, list[LayerCurves]] = {}
    for row in rows.of(LayerCurves):
        groups.setdefault(row.setting, []).append(row)
    panels = []
    if groups:
        series = []
        kinds: tuple[tuple[str, str, SeriesKind], ...] = (
            ("SGD", "sgd", "ours"),
            ("Adam", "adam", "control"),
        )
        for label, optimiser, kind in kinds:
            some = [
                [worst_layer(run) for run in runs]
                for setting, runs in groups.items()
                if setting.optimiser == optimiser
            ]
            if some:
                x = [sum(o.doublings for o in each) / len(each) for each in some]
                y = [sum(o.later for o in each) / len(each) for each in some]
                low, high = ([pick(o.later for o in each) for each in some] for pick in (min, max))
                series.append(Series(label, kind, x, y, low, high, line=False))
        far = max(max(s.x) for s in series)
        corner = Series(
            "two stages lie above and to the right",
            "truth",
            (DOUBLINGS, DOUBLINGS, max(far, 2 * DOUBLINGS)),
            (max(max(s.y) for s in series), LATER, LATER),
        )
        panels.append(
            Panel(
                [*series, corner],
                "how often the norms of W^K and W^Q double",
                "start of W^K or W^Q over start of W^V, in steps",
            )
        )
    return Figure(
        "text_settings",
        "How much later W^K and W^Q start than W^V, and how much they grow, for every setting",
        panels,
        "A mark is the mean over the runs of one optimiser, rate, initial scale and number of "
        "steps, from the lowest to the highest run, in the layer where the condition is worst. "
        "A matrix has started when it has made 20 % of its growth, which is counted from the first "
        "norm to the largest.",
    )

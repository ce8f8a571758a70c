"""Pictures of real translation: quality by steps, latency, attention of neighbours that stutter."""

from collections.abc import Iterable

from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.study import Rows
from triptych.studies.refinement.shared.rows import Attended, Row, Scored, Timed

_STEPS = (1, 2, 4, 10)
_SETS = ("test_2017_flickr", "test")  # what is drawn of a corpus: the set that decides, or its only
_SYSTEMS = {
    ("padir", "T=4"): "T = 4",
    ("padir", "T=10"): "T = 10",
    ("student", "beam 1"): "greedy",
    ("student", "beam 5"): "5 beams",
}
_MEASURES = {
    "self_avg": "self-attention",
    "tv_avg": "total variation",
    "cosine_avg": "cosine distance",
    "cross_top1": "same source token",
}


def quality_figure(rows: Rows[Row]) -> Figure:
    """BLEU and repeated words by the number of steps."""
    scored = [row for row in rows.of(Scored) if row.on in _SETS]
    panels = []
    for data, direction in dict.fromkeys((row.data, row.direction) for row in scored):
        own = [row for row in scored if (row.data, row.direction) == (data, direction)]
        series = [_by_steps(own, "padir", "refinement"), _level(own, "beam 5", "beam search")]
        series.append(_level(own, "beam 1", "greedy"))
        series = [each for each in series if each is not None]
        panels.append(
            Panel(series, "steps of refinement", "BLEU", f"{data}, {direction}", x_log=True)
        )
    stutter = [
        each
        for each in (_repeats(scored, "padir", "refinement"), _repeats(scored, "student", "beam 5"))
        if each is not None
    ]
    panels.append(Panel(stutter, "steps of refinement", "repeated words per 1000", x_log=True))
    return Figure(
        "translation_quality",
        "BLEU and repeated words by the number of refinement steps",
        panels,
        "Means over seeds, from the lowest to the highest, on the test set that decides. Beam "
        "search and greedy decoding have no steps and are drawn as levels. Repeated words: over "
        "corpora and directions too, after repeated tokens were dropped, as the thesis says.",
    )


def latency_figure(rows: Rows[Row]) -> Figure:
    """Milliseconds of one sentence, by system."""
    panels = []
    timed = rows.of(Timed)
    for device in dict.fromkeys(row.device for row in timed):
        own = [row for row in timed if row.device == device]
        systems = [how for how in _SYSTEMS if any((row.model, row.how) == how for row in own)]
        series = []
        for data, direction in dict.fromkeys((row.data, row.direction) for row in own):
            found = [row for row in own if (row.data, row.direction) == (data, direction)]
            series.append(
                Series(
                    f"{data}, {direction}",
                    "ours",
                    [systems.index((row.model, row.how)) for row in found],
                    [1000 * row.median for row in found],
                    [1000 * row.median for row in found],
                    [1000 * row.p99 for row in found],
                    line=False,
                )
            )
        names = [f"{_SYSTEMS[how]}, {_passes(own, how):.1f} passes" for how in systems]
        panels.append(Panel(series, "", "milliseconds", device, x_names=names))
    return Figure(
        "translation_latency",
        "Time for one sentence: refinement with T steps, and from left to right",
        panels or [Panel([], "", "milliseconds")],
        "One sentence at a time, without tokenisation, all systems in turn. A mark is the median, "
        "its line goes up to the 99th percentile. Passes of the decoder are means over sentences; "
        "of refinement, those that the chosen hypothesis took part in.",
    )


def _passes(rows: Iterable[Timed], system: tuple[str, str]) -> float:
    found = [row.passes for row in rows if (row.model, row.how) == system]
    return sum(found) / len(found)


def attention_figure(rows: Rows[Row]) -> Figure:
    """Measures of adjacent pairs that stutter next to those of other adjacent pairs."""
    attended = rows.of(Attended)
    names = tuple(_MEASURES)
    panels = []
    for steps in dict.fromkeys(row.steps for row in attended):
        series = []
        for yes, label in ((True, "same token"), (False, "other neighbours")):
            points = [_spread(_means(attended, steps, yes, name)) for name in names]
            kept = [(place, each) for place, each in enumerate(points) if each is not None]
            if kept:
                series.append(
                    Series(
                        label,
                        "ours" if yes else "control",
                        [place for place, _ in kept],
                        [each[0] for _, each in kept],
                        [each[1] for _, each in kept],
                        [each[2] for _, each in kept],
                        line=False,
                    )
                )
        title = f"after {steps} step{'' if steps == 1 else 's'}"
        panels.append(Panel(series, "", "mean", title, x_names=list(_MEASURES.values())))
    return Figure(
        "stutter_attention",
        "Attention of neighbouring positions that wrote the same token, and of other neighbours",
        panels or [Panel([], "measure", "mean")],
        "Of the last layer: how much two neighbours attend to each other; the distance of their "
        "cross-attentions, as total variation and as cosine; how often both look most at the same "
        "source token. Means of the heads; marks are means over directions and seeds, lines their "
        "range.",
    )


def _means(rows: Iterable[Attended], steps: int, stutter: bool, measure: str) -> list[float]:
    return [
        row.mean
        for row in rows
        if (row.steps, row.stutter, row.measure) == (steps, stutter, measure)
    ]


def _spread(values: list[float]) -> tuple[float, float, float] | None:
    return (sum(values) / len(values), min(values), max(values)) if values else None


def _by_steps(rows: list[Scored], model: str, label: str) -> Series | None:
    points = {}
    for steps in _STEPS:
        values = [
            row.bleu
            for row in rows
            if (row.model, row.how) == (model, f"T={steps}") and row.bleu is not None
        ]
        if found := _spread(values):
            points[steps] = found
    return _series(points, label, "ours") if points else None


def _level(rows: list[Scored], how: str, label: str) -> Series | None:
    values = [
        row.bleu
        for row in rows
        if (row.model, row.how) == ("student", how) and row.bleu is not None
    ]
    found = _spread(values)
    return _series(dict.fromkeys((1, 10), found), label, "control") if found else None


def _repeats(rows: list[Scored], model: str, label: str) -> Series | None:
    points = {}
    for steps in _STEPS:
        how = f"T={steps}" if model == "padir" else "beam 5"
        own = [row for row in rows if (row.model, row.how) == (model, how) and row.words]
        if found := _spread([1000 * row.repeats / row.words for row in own]):
            points[steps] = found
    return _series(points, label, "ours" if model == "padir" else "control") if points else None


def _series(points: dict[int, tuple[float, float, float]], label: str, kind: str) -> Series:
    return Series(
        label,
        "ours" if kind == "ours" else "control",
        list(points),
        [each[0] for each in points.values()],
        [each[1] for each in points.values()],
        [each[2] for each in points.values()],
    )

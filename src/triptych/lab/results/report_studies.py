"""The studies as the report shows them: settings, units, figures and the first rows."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from triptych.lab.results import plots
from triptych.lab.results.ranking import (
    Judged,
    NotDrawn,
    StudyRun,
    UnitRecord,
    devices,
    total_seconds,
)
from triptych.lab.results.report_text import number, words
from triptych.lab.results.typesetting import title_html
from triptych.studies.api.figures import Figure, Heatmap, Panel

MOST_ROWS = 8  # of a study, shown in the report; the store has them all
MOST_COLUMNS = 20
MOST_UNITS = 12
MOST_NUMBERS = 12  # of a figure, in the table beneath it

CHAPTERS = {
    "tuning": "Head and prompt tuning",
    "topics": "Topics",
    "brackets": "Brackets",
    "generation": "Guided generation",
    "masking": "Masking and parallel decoding",
    "refinement": "Refinement",
    "training": "Training",
}


class ReportTable(NamedTuple):
    """Column titles and cells, all text; `left_out` rows are not shown."""

    columns: list[str]
    rows: list[list[str]]
    left_out: int


class Drawn(NamedTuple):
    """A figure as SVG with its words and numbers, or the error that stopped it."""

    title: str
    caption: str
    panels: list[Markup]
    notes: list[str]
    numbers: ReportTable
    error: str


def anchors(runs: Sequence[StudyRun]) -> list[str]:
    """A distinct fragment for every run's section."""
    seen: Counter[str] = Counter()
    found = []
    for run in runs:
        anchor = "".join(c if c.isalnum() else "-" for c in f"study-{run.source}")
        seen[anchor] += 1
        found.append(anchor if seen[anchor] == 1 else f"{anchor}--{seen[anchor]}")
    return found


def chapters(runs: Sequence[StudyRun], views: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    """(title, the studies of that chapter), your own last."""
    titles = [_chapter(run) for run in runs]
    order = [*CHAPTERS.values(), *titles, "Your own studies"]
    present = [title for title in dict.fromkeys(order) if title in titles]
    own = "Your own studies"
    present = [title for title in present if title != own] + [own] * (own in present)
    return [
        (title, [view for view, of in zip(views, titles, strict=True) if of == title])
        for title in present
    ]


def _chapter(run: StudyRun) -> str:
    if run.own:
        return "Your own studies"
    return CHAPTERS.get(run.chapter, words(run.chapter).capitalize() or "Other studies")


def study_view(
    number: int,
    anchor: str,
    judged: Sequence[Judged],
    runs: Sequence[StudyRun],
    elsewhere: Mapping[str, Mapping[int, str]],
) -> dict[str, Any]:
    """The study of `runs[number]` at its scale.

    elsewhere
        Figures that stand at another place of the page: anchor of the study -> number -> anchor.
    """
    run, shown = runs[number], elsewhere.get(anchor, {})
    units = Counter(unit.status for unit in run.units)
    of_study = [other for other in runs if other.study == run.study]
    taken = {other.scale for other in of_study if not other.bundled}
    larger = _larger_drawn(run, of_study)
    return {
        "anchor": anchor,
        "name": run.study,
        "question": run.question,
        "scale": run.scale,
        "own": run.own,
        "bundled": run.bundled,
        "label": run.label,
        "follows": run.bundled and any(not other.bundled for other in of_study),
        "others": run.others,
        "file": run.file,
        "made": run.made,
        "units": run.units[:MOST_UNITS],
        "unit_count": len(run.units),
        "edited": sum(unit.edited for unit in run.units),
        "earlier": sum(unit.earlier for unit in run.units),
        "count": {status: units[status] for status in ("done", "failed", "pending")},
        "failures": _failures(run.units),
        "pending": [unit.label for unit in run.units if unit.status == "pending"],
        "seeds": _seeds([u for u in run.units if not run.bundled or u.status == "done"]),
        "devices": devices(run),
        "imported": sum(unit.imported for unit in run.units),
        "cost": total_seconds(run),
        "claims": [
            (line, title_html("" if run.own else line.id, line.entry.title), run.findings[line.id])
            for line in judged
            if line.id in run.findings
        ],
        "search": " ".join(
            [run.study, run.question, run.scale, run.chapter, *run.findings]
            + ["bundled"] * run.bundled
            + ["your own"] * run.own
        ).lower(),
        "figures": [
            draw(figure, f"f{number}-{i}")
            for i, figure in enumerate(run.figures)
            if i not in shown and not larger
        ],
        "drawn_at": larger,
        "shown": [(shown[i], run.figures[i]) for i in sorted(shown)],
        "settings": _settings(run),
        "larger": [] if run.bundled else [name for name in run.larger if name not in taken],
        "bundled_scales": [other.scale for other in of_study if other.bundled],
        "needs": ", ".join(run.needs),
        "rows": _row_table(run.rows, run.more_rows),
        "row_count": len(run.rows) + run.more_rows,
    }


def _larger_drawn(run: StudyRun, of_study: Sequence[StudyRun]) -> str:
    """The larger scale whose figures the page has; "" where most of its units are still to do.

    A page with every figure at every scale is too long to read and to send.
    """
    done = {
        other.scale
        for other in of_study
        if other.figures and 2 * sum(u.status == "done" for u in other.units) > len(other.units)
    }
    return next((scale for scale in reversed(run.larger) if scale in done), "")


def _failures(units: Sequence[UnitRecord]) -> list[tuple[str, list[str]]]:
    """(error, the units that ended with it), so that a hundred equal failures read as one."""
    by_error: dict[str, list[str]] = {}
    for unit in units:
        if unit.status == "failed":
            by_error.setdefault(unit.error or "no message", []).append(unit.label)
    return list(by_error.items())


def _seeds(units: Sequence[UnitRecord]) -> str:
    """ "0 to 4" or "3, 17"."""
    seeds = sorted({unit.seed for unit in units})
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _settings(run: StudyRun) -> list[tuple[str, str, str]]:
    """(name, value, the scale's own value where the run was given another one)."""
    return [
        (name, number(value), number(run.changed[name]) if name in run.changed else "")
        for name, value in run.settings.items()
    ]


def draw(figure: Figure | NotDrawn, prefix: str) -> Drawn:
    """A figure as SVG; one that cannot be drawn must not take the verdicts with it."""
    if isinstance(figure, NotDrawn):
        return _failed(figure.name, figure.error)
    try:
        panels = [Markup(svg) for svg in plots.panel_svgs(figure, prefix=prefix)]
        notes, numbers = plots.notes(figure), _numbers(figure)
    except Exception as error:
        return _failed(figure.name, f"{figure.name} raised {type(error).__name__}: {error}")
    return Drawn(figure.title, figure.caption, panels, notes, numbers, "")


def _failed(name: str, error: str) -> Drawn:
    return Drawn(words(name), "", [], [], ReportTable([], [], 0), f"It could not be drawn. {error}")


def _numbers(figure: Figure) -> ReportTable:
    """The points behind the lines and marks, for reading aloud and for copying."""
    rows = [row for panel in figure.panels for row in _points(panel)]
    columns = ["series", "x", "y", "interval"]
    if len(figure.panels) > 1:
        columns = ["panel", *columns]
    else:
        rows = [row[1:] for row in rows]
    return ReportTable(columns, rows[:MOST_NUMBERS], max(0, len(rows) - MOST_NUMBERS))


def _points(panel: Panel | Heatmap) -> Iterable[list[str]]:
    if isinstance(panel, Heatmap):
        return  # the colours are the table
    for series in panel.series:
        name = f"{series.label} ({series.kind})"
        for i, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
            bounded = series.low and series.high
            interval = f"[{number(series.low[i])}, {number(series.high[i])}]" if bounded else ""
            title = panel.title or panel.y_label
            yield [title, name, number(float(x)), number(float(y)), interval]


def _row_table(rows: Sequence[Mapping[str, Any]], more: int) -> ReportTable:
    shown = rows[:MOST_ROWS]
    columns = list(dict.fromkeys(str(name) for row in shown for name in row))[:MOST_COLUMNS]
    cells = [[_cut(number(row[name])) if name in row else "" for name in columns] for row in shown]
    return ReportTable(columns, cells, len(rows) + more - len(shown))


def _cut(text: str, most: int = 90) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"

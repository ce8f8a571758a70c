"""The report: one HTML file that opens from disk, a pure function of verdicts and stored rows.

`report.html.jinja` is the page, `report.css` its look, `report.js` its filters; all three end up
inside the file. Everything that comes from rows, settings or errors is escaped.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from triptych.core.validation import UserError
from triptych.lab.results import ledger, plots
from triptych.lab.results.ranking import (
    STATUSES,
    Finding,
    Judged,
    NotDrawn,
    StudyRun,
    UnitRecord,
    devices,
    last_line,
    total_seconds,
)
from triptych.studies.api.figures import Figure, Heatmap, Panel

MOST_ROWS = 40  # of a study, shown in the report; the store has them all
MOST_NUMBERS = 200  # of a figure, in the table beneath it


class Comparison(NamedTuple):
    """One quantity: what the source printed, what was measured here, what shipped rows have."""

    name: str
    published: str
    measured: str
    shipped: str


class Table(NamedTuple):
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
    numbers: Table
    error: str


def render_report(
    judged: Sequence[Judged],
    runs: Sequence[StudyRun],
    *,
    generated: str,
    environment: Mapping[str, Any],
    own: Mapping[str, Sequence[Judged]] | None = None,
    problems: Sequence[str] = (),
) -> str:
    """The whole page. `generated` says when, `environment` on what machine.

    own
        The claims of a user's own studies, by study.
    problems
        Sentences on what cannot be shown.
    """
    page = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page.filters |= {"number": number, "duration": duration, "last_line": last_line}
    anchors = _anchors(runs)
    mine, shipped = [run for run in runs if not run.shipped], [run for run in runs if run.shipped]
    counted = [line for line in judged if not line.entry.extension]
    every = [*judged, *(line for lines in (own or {}).values() for line in lines)]
    return page.get_template("report.html.jinja").render(
        style=Markup(_text("report.css")),
        script=Markup(_text("report.js")),
        score=_score(counted),
        total=len(counted),
        listed=len(every),
        groups=_groups(judged, own or {}, runs, anchors),
        parts=_parts(judged),
        kinds=[(kind, text) for kind, text in ledger.KINDS.items()],
        studies=[
            _study(run, anchor, every, runs) for run, anchor in zip(runs, anchors, strict=True)
        ],
        started=any(unit.status != "pending" for run in mine for unit in run.units),
        generated=generated,
        environment=environment,
        runs=len(mine),
        cost=sum(total_seconds(run) or 0.0 for run in mine),
        shipped=len(shipped),
        shipped_cost=sum(total_seconds(run) or 0.0 for run in shipped),
        on_shipped=sum(bool(line.headline and line.headline.shipped) for line in counted),
        problems=problems,
    )


def write_report(path: Path, html: str) -> None:
    """Write the file whole or not at all; a reader never sees half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("w", encoding="utf-8", newline="\n") as file:
            file.write(html)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise UserError(
            f"the report cannot be written to {path} ({error.strerror}): make space there, or give "
            "another place with `triptych report --to FILE`; every row is stored"
        ) from error
    finally:
        _remove(beside)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:  # the folder cannot be written: then the file is not there either
        return


def number(value: Any) -> str:
    """A JSON value as a person writes it: 0.3347, 99.7, a list with commas, 0.93 [0.9, 0.96]."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "−")
    if isinstance(value, int):
        return str(value).replace("-", "−")
    if isinstance(value, Mapping):
        if {"value", "low", "high"} <= set(value):
            value, low, high = (number(value[key]) for key in ("value", "low", "high"))
            return f"{value} [{low}, {high}]"
        return ", ".join(f"{_words(key)} {number(item)}" for key, item in value.items())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(number(item) for item in value)
    return str(value)


def duration(seconds: float | None) -> str:
    """0.42 s, 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _text(name: str) -> str:
    return files("triptych.lab.results").joinpath(name).read_text("utf-8")


def _words(name: Any) -> str:
    return str(name).replace("_", " ")


def _score(judged: Sequence[Judged]) -> list[tuple[str, int]]:
    counts = Counter(line.status for line in judged)
    return [(status, counts[status]) for status in STATUSES]


def _anchors(runs: Sequence[StudyRun]) -> list[str]:
    """A distinct fragment for every run's section."""
    seen: Counter[str] = Counter()
    anchors = []
    for run in runs:
        letters = (c if c.isalnum() else "-" for c in _section(run))
        anchor = "".join(letters)
        seen[anchor] += 1
        anchors.append(anchor if seen[anchor] == 1 else f"{anchor}--{seen[anchor]}")
    return anchors


def _section(run: StudyRun) -> str:
    return f"study-{run.study}-{run.scale}{'-shipped' if run.shipped else ''}"


def _groups(
    judged: Sequence[Judged],
    own: Mapping[str, Sequence[Judged]],
    runs: Sequence[StudyRun],
    anchors: Sequence[str],
) -> list[dict[str, Any]]:
    """The ledger cut into neighbours from one shelf: Wei et al., the thesis by part, your own."""

    def shelf(line: Judged) -> str:
        part = ledger.part(line.entry.source)
        return "wei" if part.startswith("wei:") else part

    links = {
        (run.study, run.scale, run.shipped): anchor
        for run, anchor in reversed(list(zip(runs, anchors, strict=True)))
    }
    groups = []
    for name, group in groupby(judged, shelf):
        lines = list(group)
        work = ledger.WORKS[ledger.work(name)]
        title = "head and prompt tuning" if name == "wei" else ledger.PARTS[name]
        section = "" if name == "wei" else f", {name.partition(':')[2]}"
        groups.append(_group(f"{work}{section}", title, lines, links))
    groups += [_group("Your own", name, lines, links, own=True) for name, lines in own.items()]
    return groups


def _group(
    work: str,
    title: str,
    lines: Sequence[Judged],
    links: Mapping[tuple[str, str, bool], str],
    *,
    own: bool = False,
) -> dict[str, Any]:
    shown = [
        {
            "judged": line,
            "entry": line.entry,
            "work": "own" if own else ledger.work(line.entry.source),
            "part": "own" if own else ledger.part(line.entry.source),
            "comparisons": _comparisons(line),
            "from_figure": (line.entry.published or {}).get("read") == "figure",
            "findings": [
                (finding, links.get((finding.study, finding.scale, finding.shipped)))
                for finding in line.findings
            ],
        }
        for line in lines
    ]
    return {"work": work, "title": title, "lines": shown, "score": _score(lines)}


def _parts(judged: Sequence[Judged]) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(work, its name, [(part, label), ...]) of the parts that the ledger has."""
    present = {ledger.part(line.entry.source) for line in judged}
    return [
        (
            work,
            name,
            [
                (part, f"{part.partition(':')[2]} {title}")
                for part, title in ledger.PARTS.items()
                if ledger.work(part) == work and part in present
            ],
        )
        for work, name in ledger.WORKS.items()
    ]


def _comparisons(line: Judged) -> list[Comparison]:
    given = line.entry.published or {}
    published = {name: value for name, value in given.items() if name != "read"}
    measured = _measured(line.findings, shipped=False)
    shipped = _measured(line.findings, shipped=True)
    columns = (published, measured, shipped)
    names = dict.fromkeys(name for column in columns for name in column)
    return [
        Comparison(
            _words(name), *(number(column[name]) if name in column else "" for column in columns)
        )
        for name in names
    ]


def _measured(findings: Sequence[Finding], *, shipped: bool) -> Mapping[str, Any]:
    """The numbers of the strongest finding of a kind; those of a smoke run say nothing."""
    return next((f.measured for f in findings if f.shipped is shipped and f.status in STATUSES), {})


def _study(
    run: StudyRun, anchor: str, judged: Sequence[Judged], runs: Sequence[StudyRun]
) -> dict[str, Any]:
    units = Counter(unit.status for unit in run.units)
    of_study = [other for other in runs if other.study == run.study]
    taken = {other.scale for other in of_study if not other.shipped}
    return {
        "anchor": anchor,
        "name": run.study,
        "question": run.question,
        "scale": run.scale,
        "own": run.own,
        "shipped": run.shipped,
        "follows": run.shipped and any(not other.shipped for other in of_study),
        "others": run.others,
        "file": run.file,
        "made": run.made,
        "units": run.units,
        "old": sum(unit.old for unit in run.units),
        "count": {status: units[status] for status in ("done", "failed", "pending")},
        "failures": _failures(run.units),
        "pending": [unit.label for unit in run.units if unit.status == "pending"],
        "seeds": _seeds([u for u in run.units if not run.shipped or u.status == "done"]),
        "devices": devices(run),
        "imported": sum(unit.imported for unit in run.units),
        "cost": total_seconds(run),
        "claims": [(line, run.findings[line.id]) for line in judged if line.id in run.findings],
        "figures": [_figure(f, f"{anchor}-{i}") for i, f in enumerate(run.figures)],
        "settings": _settings(run),
        "larger": [] if run.shipped else [name for name in run.larger if name not in taken],
        "shipped_scales": [other.scale for other in of_study if other.shipped],
        "needs": ", ".join(run.needs),
        "rows": _row_table(run.rows),
        "row_count": len(run.rows),
    }


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


def _figure(figure: Figure | NotDrawn, prefix: str) -> Drawn:
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
    return Drawn(_words(name), "", [], [], Table([], [], 0), f"It could not be drawn. {error}")


def _numbers(figure: Figure) -> Table:
    """The points behind the lines and marks, for reading aloud and for copying."""
    rows = [row for panel in figure.panels for row in _points(panel)]
    columns = ["series", "x", "y", "interval"]
    if len(figure.panels) > 1:
        columns = ["panel", *columns]
    else:
        rows = [row[1:] for row in rows]
    return Table(columns, rows[:MOST_NUMBERS], max(0, len(rows) - MOST_NUMBERS))


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


def _row_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    shown = rows[:MOST_ROWS]
    columns = list(dict.fromkeys(str(name) for row in shown for name in row))
    cells = [[_cut(number(row[name])) if name in row else "" for name in columns] for row in shown]
    return Table(columns, cells, len(rows) - len(shown))


def _cut(text: str, most: int = 90) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"

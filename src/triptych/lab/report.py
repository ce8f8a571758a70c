"""The report: one HTML file that opens from disk, a pure function of verdicts and stored rows.

`report.html.jinja` is the page, `report.css` its look, `report.js` its filters; all three end up
inside the file. Everything that comes from rows, settings or errors is escaped.
"""

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from triptych.lab import ledger, plots
from triptych.lab.judgement import (
    SCALES,
    VERDICTS,
    Judged,
    StudyRun,
    UnitRecord,
    devices,
    last_line,
    total_seconds,
)
from triptych.studies.figures import Figure, Heatmap, Panel

MOST_ROWS = 40  # of a study, shown in the report; the store has them all
MOST_NUMBERS = 200  # of a figure, in the table beneath it


class Comparison(NamedTuple):
    """One quantity: what the source printed, what was measured here, what the kept rows have."""

    name: str
    published: str
    measured: str
    kept: str


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
    problems: Sequence[str] = (),
) -> str:
    """The whole page. `generated` says when, `environment` on what machine.

    Runs that are kept get sections of their own; `problems` are sentences on kept rows that cannot
    be shown.
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
    own, kept = [run for run in runs if not run.kept], [run for run in runs if run.kept]
    return page.get_template("report.html.jinja").render(
        style=Markup(_text("report.css")),
        script=Markup(_text("report.js")),
        score=_score(judged),
        total=len(judged),
        groups=_groups(judged, runs, anchors),
        parts=_parts(judged),
        kinds=[(kind, text) for kind, text in ledger.KINDS.items()],
        studies=[
            _study(run, anchor, judged, runs) for run, anchor in zip(runs, anchors, strict=True)
        ],
        started=any(unit.status != "pending" for run in own for unit in run.units),
        generated=generated,
        environment=environment,
        runs=len(own),
        cost=sum(total_seconds(run) or 0.0 for run in own),
        kept=len(kept),
        kept_cost=sum(total_seconds(run) or 0.0 for run in kept),
        kept_only=sum(line.basis == "kept" for line in judged),
        problems=problems,
    )


def write_report(path: Path, html: str) -> None:
    """Write the file whole or not at all; a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8", newline="\n") as file:
            file.write(html)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


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
    return files("triptych.lab").joinpath(name).read_text("utf-8")


def _words(name: Any) -> str:
    return str(name).replace("_", " ")


def _score(judged: Sequence[Judged]) -> list[tuple[str, int]]:
    counts = Counter(line.verdict for line in judged)
    return [(verdict, counts[verdict]) for verdict in VERDICTS]


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
    return f"study-{run.study.name}-{run.scale}{'-kept' if run.kept else ''}"


def _groups(
    judged: Sequence[Judged], runs: Sequence[StudyRun], anchors: Sequence[str]
) -> list[dict[str, Any]]:
    """The ledger cut into neighbours from one shelf: Wei et al., then the thesis by part."""

    def shelf(line: Judged) -> str:
        part = ledger.part(line.source)
        return "wei" if part.startswith("wei:") else part

    links: dict[tuple[str, str | None, bool], str] = {}
    for run, anchor in zip(runs, anchors, strict=True):
        links.setdefault((run.study.name, run.scale, run.kept), anchor)
        links.setdefault((run.study.name, None, run.kept), anchor)
    groups = []
    for name, group in groupby(judged, shelf):
        lines = [
            {
                "judged": line,
                "work": ledger.work(line.source),
                "part": ledger.part(line.source),
                "comparisons": _comparisons(line),
                "from_figure": (line.published or {}).get("read") == "figure",
                "link": links.get((line.study, line.scale, line.basis == "kept"))
                if line.study
                else None,
                "beside": line.kept if line.basis == "own" else None,
                "kept_link": links.get((line.kept.study, line.kept.scale, True))
                if line.kept
                else None,
            }
            for line in group
        ]
        work = ledger.WORKS[ledger.work(name)]
        title = "head and prompt tuning" if name == "wei" else ledger.PARTS[name]
        section = "" if name == "wei" else f", {name.partition(':')[2]}"
        score = _score([line["judged"] for line in lines])
        groups.append({"work": f"{work}{section}", "title": title, "lines": lines, "score": score})
    return groups


def _parts(judged: Sequence[Judged]) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(work, its name, [(part, label), ...]) of the parts that the ledger has."""
    present = {ledger.part(line.source) for line in judged}
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
    published = {name: value for name, value in (line.published or {}).items() if name != "read"}
    measured = line.measured if line.basis != "kept" else {}
    kept = line.kept.measured if line.kept else {}
    columns = (published, measured, kept)
    names = dict.fromkeys(name for column in columns for name in column)
    return [
        Comparison(
            _words(name), *(number(column[name]) if name in column else "" for column in columns)
        )
        for name in names
    ]


def _study(
    run: StudyRun, anchor: str, judged: Sequence[Judged], runs: Sequence[StudyRun]
) -> dict[str, Any]:
    units = Counter(unit.status for unit in run.units)
    claims = {claim.id for claim in run.study.claims}
    lines = [line for line in judged if line.id in claims]
    return {
        "anchor": anchor,
        "name": run.study.name,
        "about": run.study.about,
        "scale": run.scale,
        "kept": run.kept,
        "follows": run.kept and any(r.study.name == run.study.name and not r.kept for r in runs),
        "others": run.others,
        "file": run.file,
        "units": run.units,
        "count": {status: units[status] for status in ("done", "failed", "pending")},
        "failures": _failures(run.units),
        "pending": [unit.label for unit in run.units if unit.status == "pending"],
        "seeds": _seeds([u for u in run.units if not run.kept or u.status == "done"]),
        "devices": devices(run),
        "imported": sum(unit.imported for unit in run.units),
        "cost": total_seconds(run),
        "claims": [
            (line, line.kept if run.kept else line) for line in lines if line.kept or not run.kept
        ],
        "figures": _figures(run, anchor),
        "settings": _settings(run),
        "larger": _larger_scales(run, runs),
        "kept_scales": [r.scale for r in runs if r.kept and r.study.name == run.study.name],
        "needs": ", ".join(run.study.needs),
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
    own = _declared(run)
    rows = []
    for name, value in run.settings.items():
        usual = own.get(name, value)
        changed = json.dumps(usual, default=str) != json.dumps(value, default=str)
        rows.append((name, number(value), number(usual) if changed else ""))
    return rows


def _declared(run: StudyRun) -> dict[str, Any]:
    """What the study itself sets at this scale."""
    for scale, settings in run.study.settings.items():
        if scale.value == run.scale:
            return dataclasses.asdict(settings)
    return {}


def _larger_scales(run: StudyRun, runs: Sequence[StudyRun]) -> list[str]:
    """Scales above this one that the study has and that no run here is at, the nearest first."""
    if run.kept:  # its own runs say so
        return []
    mine = SCALES.index(run.scale) if run.scale in SCALES else len(SCALES)
    taken = {r.scale for r in runs if r.study.name == run.study.name and not r.kept}
    has = {scale.value for scale in run.study.settings}
    return [scale for scale in SCALES[:mine][::-1] if scale in has - taken]


def _figures(run: StudyRun, anchor: str) -> list[Drawn]:
    if not run.rows:
        return []
    drawn = []
    for i, make in enumerate(run.study.figures):
        try:
            drawn.append(_figure(make(run.rows), f"{anchor}-{i}"))
        except Exception as error:  # a broken figure must not take the verdicts with it
            name = getattr(make, "__name__", f"figure {i + 1}")
            message = f"{name} could not be drawn: {type(error).__name__}: {error}"
            drawn.append(Drawn(_words(name), "", [], [], Table([], [], 0), message))
    return drawn


def _figure(figure: Figure, prefix: str) -> Drawn:
    panels = [Markup(svg) for svg in plots.panel_svgs(figure, prefix=prefix)]
    return Drawn(figure.title, figure.caption, panels, plots.notes(figure), _numbers(figure), "")


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

"""What crossed settings show: each claim at each combination, as a table and as a figure.

A crossing decides nothing. It is kept in a file of the run folder, next to the verdicts and apart
from them, with the keys of its units, so that its rows can be printed with their settings.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from triptych.core.errors import UserError
from triptych.core.estimates import mean
from triptych.core.files import write_json
from triptych.lab.results.ranking import scale_name
from triptych.lab.results.report_text import number
from triptych.lab.running.crossing import CrossedPlan, Crossing
from triptych.lab.running.store import JsonRow, Store, StoredUnit, records_of
from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.records import from_json, to_json
from triptych.studies.api.study import AnyStudy, Rows, Scale

FOLDER = "crossings"
MOST_PANELS = 6
_MARKS = {"holds": "✓", "fails": "✗", "undecided": "?", "": " "}


@dataclass(frozen=True)
class Measure:
    """A number at one combination: of a check of a claim, or the mean of a column of rows.

    claim
        "" for a column.
    outcome
        What the check says; "" for a number that decides nothing.
    """

    claim: str
    sentence: str
    value: float
    low: float | None
    high: float | None
    outcome: str = ""

    @property
    def name(self) -> tuple[str, str]:
        return self.claim, self.sentence

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its interval, where both ends exist."""
        if self.low is None or self.high is None:
            return None
        return (self.low, self.high) if math.isfinite(self.low + self.high) else None

    def __str__(self) -> str:
        """As "✓ 0.508 [0.485, 0.531]"."""
        ends = ", ".join(map(number, self.interval or ()))
        bounds = f" [{ends}]" if ends else ""
        return f"{_MARKS[self.outcome]} {number(self.value)}{bounds}".strip()


@dataclass(frozen=True)
class Point:
    """A combination, its units, what each claim says of their rows, and numbers."""

    values: tuple[str, ...]
    keys: tuple[str, ...]
    done: int
    verdicts: Mapping[str, str]
    measures: tuple[Measure, ...]


@dataclass(frozen=True)
class CrossedRun:
    """A crossing with what it shows; points in the order in which they were run."""

    study: str
    scale: str
    question: str
    fields: tuple[str, ...]
    points: tuple[Point, ...]
    made: str

    @property
    def measures(self) -> list[tuple[str, str]]:
        """(claim, sentence) of every number, in order."""
        return list(dict.fromkeys(m.name for point in self.points for m in point.measures))

    @property
    def claims(self) -> list[str]:
        return list(dict.fromkeys(claim for point in self.points for claim in point.verdicts))


def look(crossing: Crossing, store: Store) -> CrossedRun:
    """What the stored rows say at every combination."""
    units = {
        unit.key: unit
        for unit in store.units(crossing.study.name, crossing.scale, outdated=True)
        if unit.status == "done"
    }
    points = tuple(_point(crossing.study, point, units) for point in crossing.points)
    study = crossing.study
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    fields = crossing.fields
    return CrossedRun(study.name, crossing.scale.value, study.question, fields, points, made)


def _point(study: AnyStudy, point: CrossedPlan, units: Mapping[str, StoredUnit]) -> Point:
    keys = tuple(unit.key for unit in point.plan.units)
    done = [units[key] for key in keys if key in units]
    rows = Rows(study.row_from_json(row) for unit in done for row in unit.rows)
    verdicts: dict[str, str] = {}
    measures: list[Measure] = []
    for claim in study.claims:
        try:
            said = claim.verdict(rows)
        except Exception as error:  # a user's judge may raise anything
            verdicts[claim.id] = f"the judge raised {type(error).__name__}: {error}"
            continue
        verdicts[claim.id] = said.outcome.value
        measures += [
            Measure(
                claim.id,
                check.sentence,
                float(check.value),
                check.low,
                check.high,
                check.outcome.value if check.outcome else "",
            )
            for check in said.checks
        ]
    return Point(point.values, keys, len(done), verdicts, tuple(measures or _columns(done)))


def _columns(units: Sequence[StoredUnit]) -> Iterator[Measure]:
    """The mean of every column of numbers, for a study whose claims give none."""
    rows = [row for unit in units for row in unit.rows]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        for name in own[0]:
            values = [float(row[name]) for row in own if _is_number(row.get(name))]
            if name == "seed" or len(values) < len(own):
                continue
            found = mean(values)
            yield Measure("", f"mean of {kind}.{name}", found.value, found.low, found.high)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# ------------------------------------------------------------------ the file


def keep(run: CrossedRun, folder: Path) -> Path:
    """Write a crossing into the run folder, instead of the one before of this study and scale."""
    path = _path(folder, run.study, run.scale)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, to_json(run))
    return path


def kept(folder: Path) -> list[CrossedRun]:
    """The crossings of a run folder, by study and scale."""
    return [_read(path) for path in sorted((folder / FOLDER).glob("*.json"))]


def records(folder: Path, study: str, scale: Scale | None = None) -> list[JsonRow]:
    """The rows of a study's crossings, each with its settings: a column `set.FIELD` for each."""
    runs = [run for run in kept(folder) if run.study == study]
    runs = [run for run in runs if scale in (None, Scale(run.scale))]
    if not runs:
        raise UserError(
            f"{folder} has no crossed settings of study {study}: `triptych run {study} --set "
            "FIELD=VALUE,VALUE --cross` makes them",
            parameter="crossed",
        )
    found: list[JsonRow] = []
    with Store.read(folder) as store:
        for run in runs:
            units = store.units(study, Scale(run.scale), outdated=True)
            by_key = {unit.key: unit for unit in units}
            for point in run.points:
                named = {f"set.{f}": v for f, v in zip(run.fields, point.values, strict=True)}
                of_point = [by_key[key] for key in point.keys if key in by_key]
                found += [named | record for record in records_of(of_point)]
    return found


def _path(folder: Path, study: str, scale: str) -> Path:
    return folder / FOLDER / f"{study.replace('/', '.')}.{scale}.json"


def _read(path: Path) -> CrossedRun:
    try:
        return from_json(CrossedRun, json.loads(path.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is no file of crossed settings: {error}") from error


# ------------------------------------------------------------------ tables and a figure


def table(run: CrossedRun, name: tuple[str, str] | str) -> tuple[list[str], list[list[str]]]:
    """Titles and cells of a claim's verdicts, or of a measure: the last field has the columns."""
    last = list(dict.fromkeys(point.values[-1] for point in run.points))
    across = len(run.fields) > 1
    titles = [*run.fields[:-1], *(f"{run.fields[-1]}={value}" for value in last)]
    if not across:
        titles = [run.fields[0], "verdict" if isinstance(name, str) else "value"]
    rows: dict[tuple[str, ...], list[str]] = {}
    for point in run.points:
        front = point.values[:-1] if across else point.values
        rows.setdefault(front, list(front)).append(_cell(point, name))
    return titles, list(rows.values())


def _cell(point: Point, name: tuple[str, str] | str) -> str:
    if isinstance(name, str):
        return point.verdicts.get(name, "no rows")
    return next((str(m) for m in point.measures if m.name == name), "–")


def figure(run: CrossedRun) -> Figure:
    """A panel for each number against the first field, a line for each value of the others."""
    xs = list(dict.fromkeys(point.values[0] for point in run.points))
    as_numbers = _numbers(xs)
    log = bool(as_numbers) and min(as_numbers) > 0 and max(as_numbers) >= 10 * min(as_numbers)
    panels = []
    for name in run.measures[:MOST_PANELS]:
        lines: dict[tuple[str, ...], list[tuple[float, Measure]]] = {}
        for point in run.points:
            found = next((m for m in point.measures if m.name == name), None)
            if found is not None and math.isfinite(found.value):
                place = xs.index(point.values[0])
                x = as_numbers[place] if as_numbers else float(place)
                lines.setdefault(point.values[1:], []).append((x, found))
        series = [_series(run.fields[1:], values, marks) for values, marks in lines.items()]
        names = () if as_numbers else xs
        panels.append(Panel(series, run.fields[0], "value", name[1], x_log=log, x_names=names))
    left = len(run.measures) - len(panels)
    more = f" The tables have {left} more numbers." if left else ""
    caption = f"Rows of {scale_name(run.scale)}, {run.made}.{more}"
    title = f"{run.study} at crossed settings: {', '.join(run.fields)}"
    return Figure("crossed", title, panels, caption)


def _series(
    fields: Sequence[str], values: Sequence[str], marks: Sequence[tuple[float, Measure]]
) -> Series:
    label = ", ".join(f"{f}={v}" for f, v in zip(fields, values, strict=True)) or "value"
    bounds = [mark.interval for _, mark in marks]
    known = [found for found in bounds if found is not None]
    low, high = zip(*known, strict=True) if len(known) == len(bounds) else ((), ())
    return Series(label, "ours", [x for x, _ in marks], [m.value for _, m in marks], low, high)


def _numbers(values: Sequence[str]) -> list[float]:
    """The values as numbers; none if one is no number."""
    try:
        found = [float(value) for value in values]
    except ValueError:
        return []
    return found if all(map(math.isfinite, found)) else []

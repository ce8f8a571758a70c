"""From a run folder to what a person reads: verdicts, the table on the terminal, the report."""

import math
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from triptych.lab.environment import environment
from triptych.lab.judgement import Judged, StudyRun, UnitRecord, judge_ledger
from triptych.lab.ledger import load_ledger
from triptych.lab.report import render_report, write_report
from triptych.lab.runner import find_studies
from triptych.lab.store import Store
from triptych.studies.study import Study, Unit, short_labels

REPORT = "report.html"
_STYLE = {"holds": "green", "fails": "bold red", "undecided": "yellow", "not run yet": "dim"}


def stored_runs(store: Store | None, extra: Sequence[Study] = ()) -> list[StudyRun]:
    """Every study and scale in the store whose study is known, with its rows and units."""
    if store is None:
        return []
    studies = find_studies() | {study.name: study for study in extra}
    runs = []
    for name, scale in store.studies():
        if name not in studies:
            continue
        units = store.units(name, scale)
        label = short_labels([Unit(unit.parameters, unit.seed) for unit in units])
        records = [
            UnitRecord(
                label[Unit(unit.parameters, unit.seed).key],
                unit.seed,
                "pending" if unit.status == "running" else unit.status,
                unit.seconds,
                unit.error,
                unit.device,
            )
            for unit in units
        ]
        # A unit keeps the settings it ran under; the plan's are those of the unit touched last.
        latest = max(units, key=lambda unit: unit.finished_at or "", default=None)
        settings = latest.settings if latest else {}
        rows = [row for unit in units for row in unit.rows]
        runs.append(StudyRun(studies[name], scale.value, settings, rows, records))
    return runs


def unknown_studies(store: Store | None) -> list[str]:
    """Studies in the store that are not part of the package: a user's own, from a file."""
    known = find_studies()
    return sorted({name for name, _ in store.studies() if name not in known}) if store else []


def judged_in(store: Store | None, extra: Sequence[Study] = ()) -> list[Judged]:
    """The whole ledger, judged on what the store holds."""
    return judge_ledger(load_ledger(), stored_runs(store, extra))


def write_report_of(store: Store | None, path: Path, extra: Sequence[Study] = ()) -> list[Judged]:
    """Render the report of a run folder to `path`; returns the verdicts in it."""
    runs = stored_runs(store, extra)
    judged = judge_ledger(load_ledger(), runs)
    generated = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    write_report(path, render_report(judged, runs, generated=generated, environment=environment()))
    return judged


def print_verdicts(judged: Sequence[Judged], *, everything: bool) -> None:
    """A line per claim that has evidence, or per claim of the ledger, and the score."""
    shown = [line for line in judged if everything or line.verdict != "not run yet"]
    console = Console(width=None if sys.stdout.isatty() else 120)
    if shown:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("claim", "verdict", "scale", "because"):
            table.add_column(title, overflow="fold")
        for line in shown:
            table.add_row(
                escape(line.id),
                line.verdict.upper() if line.verdict == "fails" else line.verdict,
                line.scale or "",
                escape(line.because),
                style=_STYLE[line.verdict] if line.verdict != "holds" else None,
            )
        console.print(table)
    console.print("\n" + score(judged), highlight=False)


def score(judged: Sequence[Judged]) -> str:
    """As "6 hold, 0 fail, 0 undecided, 86 not run yet, of 92 published results."."""
    count = {verdict: sum(line.verdict == verdict for line in judged) for verdict in _STYLE}
    return (
        f"{count['holds']} hold, {count['fails']} fail, {count['undecided']} undecided, "
        f"{count['not run yet']} not run yet, of {len(judged)} published results."
    )


def as_json(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """The verdicts as plain dictionaries; what JSON has no number for (inf, nan) is null."""
    return [_finite(line._asdict()) for line in judged]


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value

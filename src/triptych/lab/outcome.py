"""From a run folder to what a person reads: verdicts, the table on the terminal, the report."""

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from triptych.lab import evidence
from triptych.lab.environment import environment
from triptych.lab.judgement import Judged, StudyRun, UnitRecord, judge_ledger
from triptych.lab.ledger import load_ledger
from triptych.lab.plots import to_svg
from triptych.lab.report import render_report, write_report
from triptych.lab.runner import find_studies
from triptych.lab.store import Store, StoredUnit
from triptych.studies.study import Scale, Study, Unit, short_labels

REPORT = "report.html"
_STYLE = {"holds": "green", "fails": "bold red", "undecided": "yellow", "not run yet": "dim"}


def stored_runs(store: Store | None, extra: Sequence[Study] = ()) -> list[StudyRun]:
    """Every study and scale in the store whose study is known, with its rows and units."""
    if store is None:
        return []
    studies = find_studies() | {study.name: study for study in extra}
    runs = []
    for name, scale in store.studies():
        if name in studies:
            units = store.units(name, scale)
            settings = evidence.last_settings(units)
            runs.append(_run(studies[name], scale, settings, units))
    return runs


def kept_runs(folder: Path | None, store: Store | None = None) -> tuple[list[StudyRun], list[str]]:
    """The evidence in a folder as runs, and a sentence for each file that cannot be shown.

    Evidence whose every unit is in the store too, with the same rows, is a part of the user's own
    run and left out.
    """
    studies, runs, problems = find_studies(), [], []
    for path in evidence.files(folder):
        try:
            found = evidence.load(path)
            if found.study not in studies:
                raise ValueError(f"there is no study {found.study} any more")
            layout = evidence.laid_out(found, studies[found.study])
            if len(layout.others) == len(found.units):
                raise ValueError(f"none of its units is planned by study {found.study} any more")
        except evidence.EvidenceError as error:
            problems.append(f"Kept rows are not shown: {error}.")
        except Exception as error:  # whatever a study does with old settings
            problems.append(f"The kept rows in {path.name} are not shown: {error}.")
        else:
            if not _has_all(store, found):
                study = studies[found.study]
                run = _run(
                    study,
                    found.scale,
                    json.loads(json.dumps(dataclasses.asdict(layout.settings))),
                    layout.units,
                )
                others = len(layout.others)
                runs.append(run._replace(kept=True, others=others, file=path.name))
    return runs, problems


def _run(
    study: Study, scale: Scale, settings: dict[str, Any], units: Sequence[StoredUnit]
) -> StudyRun:
    label = short_labels([Unit(unit.parameters, unit.seed) for unit in units])
    records = [
        UnitRecord(
            label[Unit(unit.parameters, unit.seed).key],
            unit.seed,
            "pending" if unit.status == "running" else unit.status,
            unit.seconds,
            unit.error,
            evidence.device_name(unit),
            evidence.IMPORTED in unit.versions,
        )
        for unit in units
    ]
    rows = [row for unit in units for row in unit.rows]
    return StudyRun(study, scale.value, settings, rows, records)


def _has_all(store: Store | None, found: evidence.Evidence) -> bool:
    """Whether the store has every unit of the evidence with the same rows."""
    units = store.units(found.study, found.scale) if store else []
    mine = {unit.key: unit for unit in units if unit.status == "done"}
    return all(
        unit.key in mine and evidence.same_rows(mine[unit.key], unit) for unit in found.units
    )


def unknown_studies(store: Store | None) -> list[str]:
    """Studies in the store that are not part of the package: a user's own, from a file."""
    known = find_studies()
    return sorted({name for name, _ in store.studies() if name not in known}) if store else []


def judged_in(
    store: Store | None, extra: Sequence[Study] = (), tell: Callable[[str], object] = str
) -> list[Judged]:
    """The whole ledger, judged on what the store holds and on what was kept.

    tell
        Is given a sentence for each file of kept evidence that cannot be shown.
    """
    kept, problems = kept_runs(evidence.folder(), store)
    for problem in problems:
        tell(problem)
    runs = [*stored_runs(store, extra), *kept]
    return judge_ledger(load_ledger(), runs, find_studies().values())


def write_report_of(store: Store | None, path: Path, extra: Sequence[Study] = ()) -> list[Judged]:
    """Render the report of a run folder to `path`; returns the verdicts in it."""
    kept, problems = kept_runs(evidence.folder(), store)
    # The kept rows of a study follow its own runs.
    runs = sorted([*stored_runs(store, extra), *kept], key=lambda run: run.study.name)
    judged = judge_ledger(load_ledger(), runs, find_studies().values())
    page = render_report(
        judged,
        runs,
        generated=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        environment=environment(),
        problems=problems,
    )
    write_report(path, page)
    return judged


def write_figures_of(store: Store | None, folder: Path) -> list[Path]:
    """Every figure of every run as an SVG file that stands alone: STUDY-SCALE[-kept]-NAME.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    kept, _ = kept_runs(evidence.folder(), store)
    written = []
    for run in [*stored_runs(store), *kept]:
        source = f"{run.study.name.replace('/', '.')}-{run.scale}" + ("-kept" if run.kept else "")
        for draw in run.study.figures if run.rows else ():
            figure = draw(run.rows)
            path = folder / f"{source}-{figure.name}.svg"
            path.write_text(to_svg(figure, prefix=figure.name), encoding="utf-8")
            written.append(path)
    return written


def print_verdicts(judged: Sequence[Judged], *, everything: bool) -> None:
    """A line per claim that has evidence, or per claim of the ledger, and the score."""
    shown = [line for line in judged if everything or line.verdict != "not run yet"]
    console = Console(width=None if sys.stdout.isatty() else 120)
    if shown:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("claim", "verdict", "scale", "because"):
            table.add_column(title, overflow="fold")
        for line in shown:
            if line.basis != "kept":
                _add(table, line.id, line.verdict, line.scale or "", line.because)
            if line.kept:
                name = line.id if line.basis == "kept" else ""
                because = f"on {line.kept.device or 'another machine'}: {line.kept.because}"
                _add(table, name, line.kept.verdict, f"{line.kept.scale}, kept", because)
        console.print(table)
    console.print("\n" + score(judged), highlight=False)


def _add(table: Table, name: str, verdict: str, scale: str, because: str) -> None:
    table.add_row(
        escape(name),
        verdict.upper() if verdict == "fails" else verdict,
        scale,
        escape(because),
        style=_STYLE[verdict] if verdict != "holds" else None,
    )


def score(judged: Sequence[Judged]) -> str:
    """As "6 hold, 0 fail, 0 undecided, 86 not run yet, of 92 published results."."""
    count = {verdict: sum(line.verdict == verdict for line in judged) for verdict in _STYLE}
    kept = sum(line.basis == "kept" for line in judged)
    rest = f" Verdicts that rest on kept rows alone: {kept}." if kept else ""
    return (
        f"{count['holds']} hold, {count['fails']} fail, {count['undecided']} undecided, "
        f"{count['not run yet']} not run yet, of {len(judged)} published results.{rest}"
    )


def failing(judged: Sequence[Judged]) -> bool:
    """Whether a claim fails on the user's own runs; what kept rows say is told and no more."""
    return any(line.verdict == "fails" and line.basis == "own" for line in judged)


def as_json(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """The verdicts as plain dictionaries; what JSON has no number for (inf, nan) is null."""
    return [
        _finite(line._asdict() | {"kept": line.kept._asdict() if line.kept else None})
        for line in judged
    ]


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value

"""From a run folder to verdicts: what was run here, what came with Triptych, a user's own studies.

A user's own study is judged while its file is at hand, which is when it runs. What it concluded is
kept in the store, so that the report shows it later, also when the file is gone, and so that no
report ever runs code that a folder names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from triptych.core.errors import UserError
from triptych.lab.results import evidence
from triptych.lab.results.changes import changes
from triptych.lab.results.ledger import Entry, load_ledger
from triptych.lab.results.ranking import (
    SCALES,
    Finding,
    Judged,
    NotDrawn,
    StudyRun,
    UnitRecord,
    find,
    judge_ledger,
)
from triptych.lab.results.report import render_report, write_report
from triptych.lab.running.discovery import find_studies
from triptych.lab.running.environment import environment
from triptych.lab.running.fingerprint import Code, code_of
from triptych.lab.running.runner import made_before_an_edit
from triptych.lab.running.selection import Chosen
from triptych.lab.running.store import Store, StoredUnit
from triptych.studies.api.figures import Figure
from triptych.studies.api.records import from_json, to_json
from triptych.studies.api.study import AnyStudy, Rows, Scale, short_labels

REPORT = "report.html"
LECTURE = "lecture.html"


class Results(NamedTuple):
    """Everything there is to say about a run folder.

    published
        The ledger of published results, judged; extensions are among them.
    own
        The claims of users' own studies, by the study's name.
    problems
        Sentences on what could not be shown: evidence, rows, figures.
    """

    published: list[Judged]
    own: dict[str, list[Judged]]
    runs: list[StudyRun]
    problems: list[str]

    @property
    def judged(self) -> list[Judged]:
        """All of them, the published ones first."""
        return [*self.published, *(line for lines in self.own.values() for line in lines)]


@dataclass(frozen=True)
class Concluded:
    """What is kept of a run of a user's own study."""

    question: str
    file: str
    entries: tuple[Entry, ...]
    findings: Mapping[str, Finding]
    figures: tuple[Figure | NotDrawn, ...]
    changed: Mapping[str, Any]
    larger: tuple[str, ...]
    needs: tuple[str, ...]


def gather(store: Store | None, own: Sequence[Chosen] = ()) -> Results:
    """Judge the whole ledger on what the store holds and what came with Triptych.

    own
        The user's own studies that are at hand.
    """
    shipped, problems = shipped_runs(evidence.folder(), store)
    mine, more = stored_runs(store, own)
    runs = sorted([*mine, *shipped], key=lambda run: (run.own, run.study, run.shipped))
    studies = find_studies()
    judges = {claim.id: study.name for study in studies.values() for claim in study.claims}
    published = judge_ledger(load_ledger(), [run for run in runs if not run.own], judges)
    by_study: dict[str, list[StudyRun]] = {}
    for run in runs:
        if run.own:
            by_study.setdefault(run.study, []).append(run)
    theirs = {
        name: judge_ledger(_all_entries(found), found, dict.fromkeys(_ids(found), name))
        for name, found in by_study.items()
    }
    problems += [*more, *_not_drawn(runs)]
    return Results(published, theirs, runs, problems)


def _all_entries(runs: Sequence[StudyRun]) -> list[Entry]:
    """The entries of a study's runs; those of the run made last where they differ."""
    return list({entry.id: entry for run in runs for entry in run.entries}.values())


def _ids(runs: Sequence[StudyRun]) -> list[str]:
    return [entry.id for entry in _all_entries(runs)]


def _not_drawn(runs: Sequence[StudyRun]) -> list[str]:
    return [
        f"A figure of {run.study} ({run.scale} scale) could not be drawn. {figure.error}"
        for run in runs
        for figure in run.figures
        if isinstance(figure, NotDrawn)
    ]


def stored_runs(
    store: Store | None, own: Sequence[Chosen] = ()
) -> tuple[list[StudyRun], list[str]]:
    """Every study and scale in the store, and a sentence for each that cannot be shown."""
    if store is None:
        return [], []
    known = {name: Chosen(study) for name, study in find_studies().items()}
    known |= {chosen.study.name: chosen for chosen in own}
    kept = store.remembered()
    runs, problems = [], []
    for name, scale in store.studies():
        units = store.units(name, scale)
        if name in known:
            try:
                settings = evidence.last_settings(units)
                runs.append(_judged_run(known[name], scale, units, settings))
            except UserError as error:  # rows of older code, which today's study cannot read
                problems.append(
                    f"The rows of {name} ({scale.value} scale) are not shown: {error}; "
                    f"`triptych run {name} --scale {scale.value} --fresh` makes them anew."
                )
        elif (name, scale) in kept:
            concluded = from_json(Concluded, kept[name, scale])
            runs.append(_concluded_run(name, scale, units, concluded))
        else:
            problems.append(
                f"Study {name} came from a file and was not judged yet: run the file again."
            )
    return runs, problems


def judge_study(store: Store, chosen: Chosen, scale: Scale) -> dict[str, Finding]:
    """What the rows of one study in the store say now, by the id of the claim."""
    units = store.units(chosen.study.name, scale)
    run = _judged_run(chosen, scale, units, evidence.last_settings(units), drawn=False)
    return dict(run.findings)


def remember(store: Store, results: Results, own: Sequence[Chosen]) -> None:
    """Keep what the runs of a user's own studies concluded."""
    files = {chosen.study.name: chosen.file for chosen in own if chosen.file}
    for run in results.runs:
        if run.own and run.study in files:
            content = Concluded(
                run.question,
                str(files[run.study]),
                run.entries,
                run.findings,
                run.figures,
                run.changed,
                run.larger,
                run.needs,
            )
            store.remember(run.study, Scale(run.scale), to_json(content))


def shipped_runs(
    folder: Path | None, store: Store | None = None
) -> tuple[list[StudyRun], list[str]]:
    """The evidence in a folder as runs, and a sentence for each file that cannot be shown.

    Evidence whose every unit is in the store too, with the same rows, is a part of the user's own
    run and left out.
    """
    studies, runs, problems = find_studies(), [], []
    for path in evidence.files(folder):
        try:
            found = evidence.load(path)
            if found.study not in studies:
                raise UserError(f"there is no study {found.study} any more")
            study = studies[found.study]
            layout = evidence.laid_out(found, study)
            if len(layout.others) == len(found.units):
                raise UserError(f"none of its units is planned by study {found.study} any more")
            if _has_all(store, found):
                continue
            run = _judged_run(
                Chosen(study),
                found.scale,
                layout.units,
                to_json(layout.plan.settings),
                shipped=True,
                file=path.name,
                others=len(layout.others),
            )
        except UserError as error:
            problems.append(f"The evidence in {path.name} is not shown: {error}.")
        except Exception as error:  # whatever a study does with old settings
            what = f"{type(error).__name__}: {error}"
            problems.append(f"The evidence in {path.name} is not shown: {what}.")
        else:
            runs.append(run)
    return runs, problems


def _judged_run(
    chosen: Chosen,
    scale: Scale,
    units: Sequence[StoredUnit],
    settings: Mapping[str, Any],
    drawn: bool = True,
    **more: Any,
) -> StudyRun:
    """A study at one scale with what its rows say and, where `drawn`, show."""
    study = chosen.study
    code = code_of(study)
    run = StudyRun(
        study=study.name,
        question=study.question,
        scale=scale.value,
        settings=settings,
        rows=[row for unit in units for row in unit.rows],
        units=_records(units, code, study),
        own=chosen.file is not None,
        changed=_changed(study, scale, settings),
        larger=_larger(study, scale),
        needs=tuple(study.needs),
        made=_made(units),
        chapter=_chapter(chosen),
        entries=chosen.entries,
        **more,
    )
    if not any(unit.status != "pending" for unit in run.units):
        return run
    rows = Rows(study.row_from_json(row) for row in run.rows)
    findings = {claim.id: find(run, claim, rows) for claim in study.claims}
    return replace(run, findings=findings, figures=_drawn(study, rows) if drawn else ())


def _concluded_run(
    name: str, scale: Scale, units: Sequence[StoredUnit], concluded: Concluded
) -> StudyRun:
    """A user's own study as it was judged when its file was at hand."""
    return StudyRun(
        study=name,
        question=concluded.question,
        scale=scale.value,
        settings=evidence.last_settings(units),
        rows=[row for unit in units for row in unit.rows],
        units=_records(units, None, None),
        own=True,
        file=concluded.file,
        changed=concluded.changed,
        larger=concluded.larger,
        needs=concluded.needs,
        made=_made(units),
        entries=concluded.entries,
        findings=concluded.findings,
        figures=concluded.figures,
    )


def _records(
    units: Sequence[StoredUnit], code: Code | None, study: AnyStudy | None
) -> list[UnitRecord]:
    labels = short_labels([(unit.parameters, unit.seed) for unit in units])
    old = made_before_an_edit(units, code) if code else []
    edited = {unit.key for unit in old}
    if study:
        made = [unit for unit in units if unit.status == "done"]
        edited |= {unit.key for unit in made if unit.revision != study.revision}
    return [
        UnitRecord(
            label,
            unit.seed,
            "pending" if unit.status == "running" else unit.status,
            unit.seconds,
            unit.error,
            evidence.device_name(unit),
            evidence.IMPORTED in unit.versions,
            unit.key in edited,
        )
        for label, unit in zip(labels, units, strict=True)
    ]


def _drawn(study: AnyStudy, rows: Rows[Any]) -> tuple[Figure | NotDrawn, ...]:
    """The figures of the rows; one that raises must not take the others with it."""
    found: list[Figure | NotDrawn] = []
    for make in study.figures if rows else ():
        try:
            found.append(make(rows))
        except Exception as error:
            name = getattr(make, "__name__", "figure")
            found.append(NotDrawn(name, f"{name} raised {type(error).__name__}: {error}"))
    return tuple(found)


def _changed(study: AnyStudy, scale: Scale, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that differ from the scale's own; more seeds are no change."""
    own = to_json(study.settings[scale]) if scale in study.settings else {}
    changed = {name: value for name, value in own.items() if settings.get(name, value) != value}
    if settings.get("seeds", 0) >= own.get("seeds", 0):
        changed.pop("seeds", None)
    return changed


def _larger(study: AnyStudy, scale: Scale) -> tuple[str, ...]:
    """The scales above this one that the study has, the nearest first."""
    has = {known.value for known in study.settings}
    return tuple(name for name in SCALES[: SCALES.index(scale.value)][::-1] if name in has)


def _chapter(chosen: Chosen) -> str:
    """The folder under `triptych.studies`; a user's own study is in none."""
    parts = getattr(chosen.study.run, "__module__", "").split(".")
    return parts[2] if chosen.file is None and parts[:2] == ["triptych", "studies"] else ""


def _made(units: Sequence[StoredUnit]) -> str:
    """As "2026-11-15, commit 5181ff98cd75": of the unit that was finished last.

    Units of which no commit is recorded are told too.
    """
    done = [unit for unit in units if unit.status == "done" and unit.finished_at]
    last = max(done, key=lambda unit: unit.finished_at or "", default=None)
    if last is None:
        return ""
    said = [(last.finished_at or "")[:10]]
    if last.code and last.code.commit:
        said.append(f"commit {last.code.commit}" + ("" if last.code.clean else " with edits"))
    elif last.code:
        said.append(f"version {last.code.version}")
    unknown = sum(not (unit.code and unit.code.commit) for unit in done)
    if unknown:
        some = f" for {unknown} of {len(done)} units" if unknown < len(done) else ""
        said.append(f"no commit is recorded{some}")
    return ", ".join(said)


def _has_all(store: Store | None, found: evidence.Evidence) -> bool:
    """Whether the store has every unit of the evidence with the same rows."""
    units = store.units(found.study, found.scale) if store else []
    mine = {unit.key: unit for unit in units if unit.status == "done"}
    return all(
        unit.key in mine and evidence.same_rows(mine[unit.key], unit) for unit in found.units
    )


def write_report_of(
    results: Results, path: Path, *, folder: Path | None = None, lecture: Sequence[str] = ()
) -> None:
    """Render the report of a run folder to `path`.

    folder
        The run folder, which knows the verdicts of the run before.
    lecture
        Ids of claims: a short page of these alone.
    """
    write_report(path, render_report_of(results, folder=folder, lecture=lecture))


def render_report_of(
    results: Results, *, folder: Path | None = None, lecture: Sequence[str] = ()
) -> str:
    """The report as a page; the arguments are those of `write_report_of`."""
    return render_report(
        results.published,
        results.runs,
        own=results.own,
        generated=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        environment=environment(),
        problems=results.problems,
        changes=changes(folder, results.judged),
        lecture=lecture,
    )

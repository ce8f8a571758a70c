"""A study's rows with all that they say and show: findings, figures, and what became of units."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from triptych.lab.results import evidence
from triptych.lab.results.ranking import SCALES, NotDrawn, StudyRun, UnitRecord, find
from triptych.lab.running.fingerprint import Code, fingerprint, shape_digest
from triptych.lab.running.selection import ChosenStudy
from triptych.lab.running.store import StoredUnit, made_before_an_edit
from triptych.studies.api.figures import Figure
from triptych.studies.api.records import to_json
from triptych.studies.api.study import AnyStudy, Rows, Scale, short_labels


def judged_run(
    chosen: ChosenStudy,
    scale: Scale,
    units: Sequence[StoredUnit],
    settings: Mapping[str, Any],
    drawn: bool = True,
    **more: Any,
) -> StudyRun:
    """A study at one scale with what its rows say and, where `drawn`, show."""
    study = chosen.study
    code = Code(fingerprint(study), "", shape=shape_digest(study))  # the study's own is compared
    run = StudyRun(
        study=study.name,
        question=study.question,
        scale=scale.value,
        settings=settings,
        rows=[row for unit in units for row in unit.rows],
        units=unit_records(units, code, study),
        own=chosen.file is not None,
        changed=_changed(study, scale, settings),
        larger=_larger(study, scale),
        needs=tuple(study.needs),
        made=made_by(units),
        chapter=_chapter(chosen),
        entries=chosen.entries,
        **more,
    )
    if not any(unit.status != "pending" for unit in run.units):
        return run
    rows = Rows(study.row_from_json(row) for row in run.rows)
    findings = {claim.id: find(run, claim, rows) for claim in study.claims}
    return replace(run, findings=findings, figures=_drawn(study, rows) if drawn else ())


def unit_records(
    units: Sequence[StoredUnit], code: Code | None, study: AnyStudy | None
) -> list[UnitRecord]:
    """What became of the units, in their order."""
    labels = short_labels([(unit.parameters, unit.seed) for unit in units])
    made = [unit for unit in units if unit.status == "done"]
    earlier = {unit.key for unit in made if study and unit.revision != study.revision}
    edited = {unit.key for unit in made_before_an_edit(units, code)} - earlier if code else set()
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
            unit.key in earlier,
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


def _chapter(chosen: ChosenStudy) -> str:
    """The folder under `triptych.studies`; a user's own study is in none."""
    parts = getattr(chosen.study.run, "__module__", "").split(".")
    return parts[2] if chosen.file is None and parts[:2] == ["triptych", "studies"] else ""


def made_by(units: Sequence[StoredUnit]) -> str:
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

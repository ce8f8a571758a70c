"""From stored rows to verdicts: a pure function of the ledger and the runs.

Every threshold is in the claims' own judges. This module only picks the evidence, the largest scale
that has rows, and turns what a judge says into one line per entry of the ledger.

Runs of this folder and kept rows (those that came with Triptych) are judged apart. A run that was
begun here has the first word on a claim, whatever it says; the kept rows' verdict stands beside it,
and takes its place where nothing was run here.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from triptych.lab.ledger import Entry
from triptych.studies.study import Claim, Study

VERDICTS = ("holds", "fails", "undecided", "not run yet")
SCALES = ("paper", "laptop", "smoke")  # the best evidence first


class UnitRecord(NamedTuple):
    """What became of one unit; status is "done", "failed" or "pending".

    imported
        Its rows were brought into this folder from a file.
    """

    label: str
    seed: int
    status: str
    seconds: float | None
    error: str | None
    device: str | None
    imported: bool = False


class StudyRun(NamedTuple):
    """A study at one scale: the settings it ran with, the rows of its finished units, its units.

    kept
        The rows came with Triptych and not from a run of this folder; `file` has them.
    others
        Kept units that are left out, because they were made with other settings.
    """

    study: Study
    scale: str
    settings: dict[str, Any]
    rows: list[dict[str, Any]]
    units: list[UnitRecord]
    kept: bool = False
    others: int = 0
    file: str = ""


class KeptVerdict(NamedTuple):
    """What the kept rows say about an entry, where they were made, and how many units there are."""

    study: str
    scale: str
    verdict: str
    because: str
    measured: Mapping[str, Any]
    device: str
    done: int
    planned: int
    seconds: float | None


class Judged(NamedTuple):
    """An entry of the ledger with its verdict.

    verdict is one of `VERDICTS`; seconds is the cost of the whole run behind it. scale, study and
    seconds are None where there is none.
    basis
        "own": a run of this folder; "kept": rows that came with Triptych; None: not run yet.
    kept
        What the kept rows say, if there are any: beside an own verdict, or the same as this one.
    """

    id: str
    kind: str
    source: str
    title: str
    scale: str | None
    verdict: str
    because: str
    published: Mapping[str, Any] | None
    measured: Mapping[str, Any]
    study: str | None
    seconds: float | None
    basis: str | None = None
    kept: KeptVerdict | None = None


def judge_ledger(
    ledger: Sequence[Entry], runs: Sequence[StudyRun], studies: Iterable[Study] = ()
) -> list[Judged]:
    """Every entry once, in the ledger's order, judged on the largest scale that has rows.

    studies
        Those that exist, so that an entry without a run can say which one to run.
    """
    judges = {claim.id: study.name for study in studies for claim in study.claims}
    known = {entry.id for entry in ledger}
    own = _evidence(known, [run for run in runs if not run.kept])
    kept = _evidence(known, [run for run in runs if run.kept])
    return [
        _beside(
            _judged(entry, own.get(entry.id, []), judges.get(entry.id)),
            entry,
            kept.get(entry.id, []),
        )
        for entry in ledger
    ]


def total_seconds(run: StudyRun) -> float | None:
    """What all units of a run cost together; None when no unit has been timed."""
    timed = [unit.seconds for unit in run.units if unit.seconds is not None]
    return sum(timed, 0.0) if timed else None


def devices(run: StudyRun) -> str:
    """Where its units ran, as "cpu" or "NVIDIA H200"."""
    return ", ".join(sorted({unit.device for unit in run.units if unit.device}))


def last_line(error: str) -> str:
    """The line of a traceback that says what went wrong."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def _evidence(known: set[str], runs: Sequence[StudyRun]) -> dict[str, list[tuple[StudyRun, Claim]]]:
    """Each claim's runs, the preferred one first."""
    found: dict[str, list[tuple[StudyRun, Claim]]] = {}
    for run in runs:
        for claim in run.study.claims:
            if claim.id not in known:
                raise ValueError(
                    f"study {run.study.name} has a claim {claim.id!r} that is not in the ledger"
                )
            others = found.setdefault(claim.id, [])
            if others and others[0][0].study.name != run.study.name:
                raise ValueError(
                    f"claim {claim.id!r} is judged by two studies, "
                    f"{others[0][0].study.name} and {run.study.name}"
                )
            others.append((run, claim))
    for candidates in found.values():
        candidates.sort(key=lambda pair: _preference(pair[0]))
    return found


def changed_settings(run: StudyRun) -> list[str]:
    """The settings in which a run differs from its scale's own."""
    for scale, own in run.study.settings.items():
        if scale.value == run.scale:
            wanted = json.loads(json.dumps(dataclasses.asdict(own)))
            return [
                name for name, value in wanted.items() if run.settings.get(name, value) != value
            ]
    return []


def _preference(run: StudyRun) -> tuple[bool, bool, bool, int]:
    """Rows first, then settings as they should be, then the larger scale."""
    rank = SCALES.index(run.scale) if run.scale in SCALES else len(SCALES)
    return (not run.rows, not _attempted(run), bool(changed_settings(run)), rank)


def _attempted(run: StudyRun) -> bool:
    return any(unit.status != "pending" for unit in run.units)


def _not_run(study: str) -> str:
    return f"Study {study} has not been run: triptych run {study}"


def _judged(
    entry: Entry, candidates: Sequence[tuple[StudyRun, Claim]], study: str | None = None
) -> Judged:
    if not candidates:
        if study is None:
            return _line(entry, "not run yet", "There is no study for it yet.")
        return _line(entry, "not run yet", _not_run(study))._replace(study=study)
    run, claim = candidates[0]
    if run.rows:
        try:
            outcome, because, measured = claim.judge(run.rows)
            return _line(entry, outcome.value, because + _so_far(run), run, measured)
        except Exception as error:
            because = f"The judge raised {type(error).__name__}: {error}"
            return _line(entry, "undecided", because, run)
    if not _attempted(run):
        because = _not_run(run.study.name)
        return _line(entry, "not run yet", because)._replace(study=run.study.name)
    errors = [unit.error for unit in run.units if unit.status == "failed"]
    if not errors:
        return _line(entry, "undecided", "The finished units gave no rows." + _so_far(run), run)
    because = f"No rows: {len(errors)} of {len(run.units)} units failed, the first with "
    return _line(entry, "undecided", because + last_line(errors[0] or ""), run)


def _beside(own: Judged, entry: Entry, candidates: Sequence[tuple[StudyRun, Claim]]) -> Judged:
    """An entry with what the kept rows say: beside its verdict, or in place of "not run yet"."""
    if not candidates or not candidates[0][0].rows:
        return own
    run = candidates[0][0]
    judged = _judged(entry, candidates)
    kept = KeptVerdict(
        study=run.study.name,
        scale=run.scale,
        verdict=judged.verdict,
        because=judged.because,
        measured=judged.measured,
        device=devices(run),
        done=sum(unit.status == "done" for unit in run.units),
        planned=len(run.units),
        seconds=judged.seconds,
    )
    return (judged._replace(basis="kept") if own.basis is None else own)._replace(kept=kept)


def _line(
    entry: Entry,
    verdict: str,
    because: str,
    run: StudyRun | None = None,
    measured: Mapping[str, Any] | None = None,
) -> Judged:
    return Judged(
        id=entry.id,
        kind=entry.kind,
        source=entry.source,
        title=entry.title,
        scale=run.scale if run else None,
        verdict=verdict,
        because=because,
        published=entry.published,
        measured=dict(measured or {}),
        study=run.study.name if run else None,
        seconds=total_seconds(run) if run else None,
        basis="own" if run else None,
    )


def _so_far(run: StudyRun) -> str:
    """A verdict on part of the units, or on settings other than the scale's own, says so."""
    done = sum(unit.status == "done" for unit in run.units)
    failed = sum(unit.status == "failed" for unit in run.units)
    notes = []
    if done < len(run.units):
        notes.append(
            f"{done} of {len(run.units)} units" + (f", {failed} failed" if failed else " so far")
        )
    changed = changed_settings(run)
    if changed:
        notes.append("changed: " + ", ".join(changed))
    if run.others:
        notes.append(f"{run.others} more of other settings left out")
    return f" ({'; '.join(notes)})" if notes else ""

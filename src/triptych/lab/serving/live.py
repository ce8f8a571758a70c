"""A run as it goes: its progress and its verdicts, read from the store of the run folder."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triptych.core.files import LOCK
from triptych.core.locks import is_alive
from triptych.core.validation import UserError
from triptych.lab.results.gathering import Concluded, judge_study
from triptych.lab.results.ledger import load_ledger
from triptych.lab.results.ranking import ClaimFinding
from triptych.lab.running.announced_time import announced_seconds
from triptych.lab.running.discovery import find_studies
from triptych.lab.running.progress import duration
from triptych.lab.running.selection import ChosenStudy
from triptych.lab.running.store import FILE, Store, StudyProgress
from triptych.studies.api.records import from_json


class Live:
    """What a run folder says now. A study is judged again only after units of it have ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._titles = {entry.id: entry.title for entry in load_ledger()}
        self._judged: dict[tuple[str, str], tuple[StudyProgress, list[dict[str, Any]]]] = {}

    def stamp(self) -> str:
        """A text that changes when a unit has ended; empty before the first run."""
        return repr([_ended(study) for study in self._progress()])

    def state(self) -> dict[str, Any]:
        """Studies with the numbers of their units, and verdicts, the latest study first.

        `left` is the time until the whole run is over, as it says itself: "3 min 20 s".
        """
        with self._lock:
            progress = self._progress()
            studies = [_as_json(study) for study in progress]
            latest = sorted(progress, key=lambda study: study.finished_at or "", reverse=True)
            verdicts = [line for study in latest for line in self._verdicts(study)]
        running = any(study.running for study in progress) and _run_is_alive(self.folder)
        left = announced_seconds(self.folder) if running else None
        return {
            "running": running,
            "left": duration(left) if left and left >= 1 else None,
            "studies": studies,
            "verdicts": verdicts,
        }

    def _progress(self) -> list[StudyProgress]:
        if not (self.folder / FILE).exists():
            return []
        with Store.read(self.folder) as store:
            return store.progress()

    def _verdicts(self, study: StudyProgress) -> list[dict[str, Any]]:
        if study.done + study.failed == 0:
            return []
        name = (study.study, study.scale.value)
        known = self._judged.get(name)
        if known is None or _ended(known[0]) != _ended(study):
            known = self._judged[name] = (study, self._judge(study))
        return known[1]

    def _judge(self, study: StudyProgress) -> list[dict[str, Any]]:
        ours = find_studies().get(study.study)
        with Store.read(self.folder) as store:
            if ours is not None:
                try:
                    findings: Mapping[str, ClaimFinding] = judge_study(
                        store, ChosenStudy(ours), study.scale
                    )
                except UserError as error:  # rows of older code
                    return [_line(study, study.study, "undecided", study.study, str(error))]
                titles = self._titles
            else:
                kept = store.remembered().get((study.study, study.scale))
                if kept is None:  # a user's own study, which is judged when its run is over
                    return []
                concluded = from_json(Concluded, kept)
                findings = concluded.findings
                titles = {entry.id: entry.title for entry in concluded.entries}
        return [
            _line(study, claim, finding.status, titles.get(claim, claim), _reason(finding))
            for claim, finding in findings.items()
        ]


def _ended(study: StudyProgress) -> tuple[Any, ...]:
    return study.study, study.scale.value, study.done, study.failed, study.finished_at


def _as_json(study: StudyProgress) -> dict[str, Any]:
    return {
        "study": study.study,
        "scale": study.scale.value,
        "planned": study.planned,
        "done": study.done,
        "failed": study.failed,
        "running": study.running,
    }


def _line(study: StudyProgress, claim: str, status: str, title: str, reason: str) -> dict[str, Any]:
    place = {"study": study.study, "scale": study.scale.value}
    return {"id": claim, "status": status, "title": title, "reason": reason} | place


def _reason(finding: ClaimFinding) -> str:
    """What is missing, or the first check that decides."""
    if finding.missing:
        return f"missing {finding.missing[0]}"
    for check in finding.checks:
        if check.outcome is not None:
            return check.sentence
    return ""


def _run_is_alive(folder: Path) -> bool:
    """Whether the process that last locked the folder is still there."""
    try:
        return is_alive(int((folder / LOCK).read_text()))
    except (OSError, ValueError):
        return False

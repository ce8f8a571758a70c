"""What is new since the run before: the verdicts of the last two runs, kept in the run folder.

`verdicts.json` has the status of every claim after the last run ("now") and after the one before
it ("before", null after the first run). The report and the terminal compare.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from triptych.core.files import write_json
from triptych.lab.results.ranking import STATUSES, Judged

FILE = "verdicts.json"


class Change(NamedTuple):
    """A claim whose status is another one than after the run before."""

    id: str
    title: str
    before: str
    now: str


def remember_verdicts(folder: Path, judged: Sequence[Judged]) -> None:
    """Call it after a run: what was "now" becomes "before"."""
    kept = _read(folder)
    now = {line.id: line.status for line in judged}
    content = {"before": kept.get("now"), "now": now}
    write_json(folder / FILE, content)


def changes(folder: Path | None, judged: Sequence[Judged]) -> list[Change] | None:
    """The claims whose status changed since the run before; None when there was none before."""
    before = _read(folder).get("before") if folder else None
    return None if before is None else compare(before, judged)


def compare(before: Mapping[str, str], judged: Sequence[Judged]) -> list[Change]:
    """In the order of the statuses: first what holds now, then what fails.

    A claim that is not in `before` was not run yet.
    """
    found = [
        Change(line.id, line.entry.title, before.get(line.id, STATUSES[3]), line.status)
        for line in judged
        if before.get(line.id, STATUSES[3]) != line.status
    ]
    return sorted(found, key=lambda change: STATUSES.index(change.now))


def _read(folder: Path) -> dict[str, dict[str, str] | None]:
    """What is kept; nothing where the file is missing or is not ours."""
    try:
        kept = json.loads((folder / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}

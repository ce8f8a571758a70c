"""What is under seal: bundled units, the code that made them, and which of it was edited.

A unit is under seal if it knows the code that made it and is of the study's present revision. It is
whole if that code, up to names, is today's, and broken otherwise: nobody knows then whether today's
code would make the same rows. `verification.py` finds out.
"""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from triptych.core.validation import UserError
from triptych.lab.results import evidence
from triptych.lab.running.fingerprint import code_of, same_study_code, study_shape
from triptych.lab.running.sources import PACKAGE, bindings
from triptych.lab.running.store import StoredUnit
from triptych.studies.api.study import AnyStudy, Scale

_HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


class SealedFile(NamedTuple):
    """A file of evidence.

    whole, broken
        Units that today's code makes, and those of which that is not known.
    older
        Units of an earlier revision, or from before code was recorded: not under seal.
    hours, broken_hours
        What all units under seal and the broken ones took to make, one after the other.
    """

    name: str
    study: str
    scale: Scale
    whole: int
    broken: int
    older: int
    hours: float
    broken_hours: float


class Definition(NamedTuple):
    """A function, class or constant under seal, with its lines in a file.

    edited
        Whether a diff touches these lines.
    """

    file: str
    name: str
    first: int
    last: int
    edited: bool = False


def sealed_files(
    studies: Mapping[str, AnyStudy], names: Sequence[str] = (), where: Path | None = None
) -> list[SealedFile]:
    """The files of bundled evidence, those of the named studies or all."""
    unknown = [name for name in names if name not in studies]
    if unknown:
        raise UserError(
            f"there is no study {unknown[0]!r} (studies: {', '.join(studies)})", parameter="studies"
        )
    found = []
    for path in evidence.files(where or evidence.folder()):
        study = studies.get(path.name.split(".")[0])
        if study is not None and (not names or study.name in names):
            kept = evidence.load(path)
            found.append(_sealed(path, kept.units, study, kept.scale))
    return found


def _sealed(path: Path, units: Sequence[StoredUnit], study: AnyStudy, scale: Scale) -> SealedFile:
    under = [unit for unit in units if under_seal(unit, study)]
    today = code_of(study)
    broken = [unit for unit in under if unit.code and not same_study_code(unit.code, today)]
    return SealedFile(
        evidence.called(path),
        study.name,
        scale,
        len(under) - len(broken),
        len(broken),
        len(units) - len(under),
        _hours(under),
        _hours(broken),
    )


def under_seal(unit: StoredUnit, study: AnyStudy) -> bool:
    """Whether a unit knows its code and is of the study's present revision."""
    return unit.code is not None and unit.revision == study.revision


def _hours(units: Sequence[StoredUnit]) -> float:
    return sum(unit.seconds or 0.0 for unit in units) / 3600


def definitions(study: AnyStudy, against: str | None = None) -> list[Definition]:
    """What decides a study's rows, by file and line.

    against
        A commit: definitions on whose lines the sources differ from it are marked as edited. By
        default the last one; where there is none, as in an installed package, nothing is marked.
    """
    root = PACKAGE.parents[1]
    found = []
    for own in study_shape(study).definitions:
        path = own.source.path
        file = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
        changed = _changed_lines(path, against)
        for node in bindings(own.source).get(own.name, []):
            first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
            first = min([first, *(each.lineno for each in getattr(node, "decorator_list", []))])
            edited = not changed.isdisjoint(range(first, last + 1))
            found.append(Definition(file, own.name, first, last, edited))
    return sorted(dict.fromkeys(found), key=lambda each: (each.file, each.first))


def _changed_lines(path: Path, against: str | None) -> set[int]:
    """The lines of a file that differ from a commit, or from the last one if there is one."""
    commit = "HEAD" if against is None else against
    command = ["git", "-C", str(path.parent), "diff", "--unified=0", commit, "--", path.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except FileNotFoundError:
        return set()
    except subprocess.CalledProcessError as error:
        if against is None:
            return set()
        reason = (error.stderr.strip().splitlines() or ["no reason is known"])[0]
        raise UserError(
            f"git cannot compare with {against!r}: {reason}", parameter="against"
        ) from error
    lines: set[int] = set()
    for line in done.stdout.splitlines():
        hunk = _HUNK.match(line)
        if hunk:
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines.update(range(first, first + max(count, 1)))
    return lines

"""What the rows of our own studies say, kept between commands (`lab.kept`).

Judging all bundled rows takes ten seconds. What a run says is named by all that decides it: its
rows, the sources of its study with all that they reach, the sources that judge, and the versions of
Python and of the packages that compute. So an edit of a judge asks that judge again, and nothing
else. What the report shows (figures, units, the first rows) lies in a second file, because
`triptych claims` needs none of it.
"""

import functools
import importlib.metadata
import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from triptych.core.errors import UserError
from triptych.lab import kept
from triptych.lab.results.ranking import NotDrawn, StudyRun, UnitRecord
from triptych.lab.running.reached import digest_reached, edited
from triptych.studies.api.figures import Figure
from triptych.studies.api.records import from_json, to_json

_KEPT = "verdicts"
MOST = 600
"""Files that are kept; when there are more, the half that was unused for longest goes."""
ROWS_KEPT = 16  # more than a report shows of a study
_JUDGES = "triptych.lab.results.judging"
_COMPUTE = ("numpy", "scipy", "torch", "scikit-learn", "networkx")


@dataclass(frozen=True)
class _Shown:
    """What the report shows of a run, next to what it says."""

    rows: Sequence[dict[str, Any]]
    more_rows: int
    units: Sequence[UnitRecord]
    figures: tuple[Figure | NotDrawn, ...]


def kept_or_judged(
    rows: Sequence[str], module: str, judge: Callable[[bool], StudyRun], *, shown: bool
) -> StudyRun:
    """The run as it is kept, or as `judge` makes it, which is kept then.

    rows
        Texts that name the rows.
    module
        Of the study.
    judge
        Makes the run; its argument says whether figures are made too.
    shown
        With all that a report shows; otherwise without units, rows and figures.
    """
    sources = [module, _JUDGES]
    name = kept.name_of([*rows, module, digest_reached(sources), *_versions()])
    run = _read(StudyRun, name)
    if run is not None and not shown:
        return run
    more = _read(_Shown, f"{name}.shown") if shown else None
    if run is not None and more is not None:
        return replace(run, **{field: getattr(more, field) for field in more.__dataclass_fields__})
    made = judge(shown)
    if edited(sources) or _failed(made):
        return made
    _keep(name, replace(made, rows=(), more_rows=0, units=(), figures=()))
    if shown:
        first = [dict(row) for row in made.rows[:ROWS_KEPT]]
        more_rows = made.more_rows + len(made.rows) - len(first)
        _keep(f"{name}.shown", _Shown(first, more_rows, made.units, made.figures))
        more = _read(_Shown, f"{name}.shown")
        return replace(made, figures=more.figures) if more else made  # named alike when drawn
    return made


def _failed(run: StudyRun) -> bool:
    """Whether a judge or a figure raised, which may go well the next time."""
    raised = any(each.done and not (each.checks or each.missing) for each in run.findings.values())
    return raised or any(isinstance(figure, NotDrawn) for figure in run.figures)


def _read(kind: type, name: str) -> Any:
    """What is kept, or None; what is damaged is nothing."""
    try:
        return from_json(kind, json.loads(kept.read(_KEPT, name) or ""))
    except (ValueError, TypeError, AttributeError):
        return None


def _keep(name: str, value: Any) -> None:
    try:
        text = json.dumps(to_json(value))
    except UserError:  # a judge or a figure gave what JSON has no form for
        return
    kept.keep(_KEPT, name, text, most=MOST)


@functools.cache
def _versions() -> tuple[str, ...]:
    return (platform.python_version(), *map(_version, _COMPUTE))


def _version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return package

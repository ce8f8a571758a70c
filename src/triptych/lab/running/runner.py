"""Run a study into a store: what is missing, and only that.

A second run skips every unit that is done. What a unit computes depends on its fields, the study's
revision and its code alone, so rows are the same for any engine, number of workers and order, and
after any number of interruptions. Rows that were made before the study's code was edited are not
used silently: a run stops until its caller says to make them again or to keep them.
"""

import importlib.util
import json
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from triptych.core.files import lock_folder
from triptych.core.locks import WINDOWS
from triptych.core.validation import UserError, as_device
from triptych.lab.running.database import StoreError
from triptych.lab.running.discovery import source_of
from triptych.lab.running.engines.inline import run_inline
from triptych.lab.running.engines.local import run_locally
from triptych.lab.running.engines.ray import run_on_ray
from triptych.lab.running.environment import environment
from triptych.lab.running.fingerprint import Code, code_of, same_code
from triptych.lab.running.items import Ended, UnitEvent, WorkItem
from triptych.lab.running.plan import Plan
from triptych.lab.running.progress import Progress, Quiet
from triptych.lab.running.store import Store, StoredUnit, made_before_an_edit
from triptych.lab.running.unix import refuse_on_windows
from triptych.studies.api.records import to_json
from triptych.studies.api.study import AnyStudy, short_labels

CACHE = "cache"
Engine = Literal["local", "ray"]
OldRows = Literal["ask", "fresh", "keep"]


class EditedStudy(UserError):
    """Rows in the store were made before the study's code was edited."""


class RunSummary(NamedTuple):
    """Units done and failed in this run, those it had no need to run, and its seconds.

    nan
        A sentence for each unit whose rows have a nan.
    older
        How many of the skipped units another version of the study or of the library made.
    core_seconds
        Processor time of the units that ran.
    unit_seconds
        Their own seconds, added up: two units that ran for a minute at once are two minutes. The
        store keeps these of each unit.
    """

    done: int
    failed: int
    skipped: int
    seconds: float
    nan: tuple[str, ...] = ()
    older: int = 0
    core_seconds: float = 0.0
    unit_seconds: float = 0.0


def run_study(
    plan: Plan,
    *,
    store: Store,
    engine: Engine = "local",
    workers: int | None = None,
    device: str = "cpu",
    limit_s: float | None = None,
    progress: Progress | None = None,
    ray_address: str | None = None,
    retry_failed: bool = True,
    old_rows: OldRows = "ask",
    only: Collection[str] | None = None,
) -> RunSummary:
    """Run the units of a plan that are not done yet and store their rows.

    workers
        Processes; by default one per core, or one on a GPU. 0 runs in this process.
    limit_s
        Seconds that one unit may take.
    old_rows
        What to do with rows that were made before the study's code was edited: refuse to go on
        ("ask"), make them again ("fresh", which also makes those again that another version of the
        library made), or keep them ("keep").
    only
        Keys of units; the others stay as they are.

    Ctrl-C stops the run and is raised again; units in flight are pending then. An error of the
    store stops the run too. An error of a unit is stored with it and stops nothing.
    """
    study, scale = plan.study, plan.scale
    _check(study, engine, workers, device, limit_s)
    code = code_of(study)
    show = progress or Quiet()
    started = time.monotonic()
    with lock_folder(store.folder):
        store.reset_running()  # we hold the lock, so a run that was killed left these
        stored = store.plan(study.name, scale, plan.settings, plan.units, study.revision)
        if old_rows == "fresh":
            store.reset(made_by_other_code(stored, code))
            stored = store.units(study.name, scale)
        elif old_rows == "ask":
            refuse_old_rows(study, stored, code, store.folder)
        finished = ("done",) if retry_failed else ("done", "failed")
        todo = [unit for unit in stored if unit.status not in finished]
        skipped = len(plan.units) - len(todo)
        if only is not None:
            todo = [unit for unit in todo if unit.key in only]
        older = len(made_by_other_code(stored, code))
        failed, nan, spent = 0, list[str](), (0.0, 0.0)
        count = workers if workers is not None else _default_workers(device)
        show.begin(study.name, len(todo), skipped, count)
        try:
            if todo:
                items = _items(plan, todo, device, store.folder, count > 0)
                if engine == "ray":
                    events = run_on_ray(items, workers, limit_s, ray_address)
                elif count == 0:
                    events = run_inline(items, plan)
                else:
                    events = run_locally(items, count, limit_s)
                versions = environment() | {"threads": "1", "engine": engine}
                made = _Made(device, versions, code)
                failed, nan, spent = _store_events(events, todo, stored, store, show, made)
        finally:
            show.end()
            with suppress(StoreError):  # the error that stopped the run is raised instead
                store.reset_running()
    seconds = time.monotonic() - started
    return RunSummary(len(todo) - failed, failed, skipped, seconds, tuple(nan), older, *spent)


def made_by_other_code(units: Sequence[StoredUnit], code: Code) -> list[StoredUnit]:
    """The finished units that another version of the study or of the library made."""
    return [
        unit
        for unit in units
        if unit.status == "done" and (unit.code is None or not same_code(unit.code, code))
    ]


def refuse_old_rows(study: AnyStudy, units: Sequence[StoredUnit], code: Code, folder: Path) -> None:
    """Raise if rows of these units were made before the study was edited."""
    old = made_before_an_edit(units, code)
    if old:
        raise EditedStudy(
            f"study {study.name} was edited since {len(old)} of its {len(units)} units in {folder} "
            "were made: --fresh makes their rows again, --keep uses them as they are"
        )


class _Made(NamedTuple):
    """Where and by what units are made."""

    device: str
    versions: Mapping[str, str]
    code: Code


def _store_events(
    events: Iterator[UnitEvent],
    todo: Sequence[StoredUnit],
    stored: Sequence[StoredUnit],
    store: Store,
    show: Progress,
    made: _Made,
) -> tuple[int, list[str], tuple[float, float]]:
    """Store what the engine reports.

    Returns how many units failed, a sentence for each with a nan, and what they took: processor
    time and seconds.
    """
    failed, nan, core_seconds, unit_seconds = 0, [], 0.0, 0.0
    by_key = {unit.key: unit for unit in todo}
    texts = short_labels([(unit.parameters, unit.seed) for unit in stored])
    label = {unit.key: text for unit, text in zip(stored, texts, strict=True)}
    with closing(events):  # pyright: ignore[reportArgumentType]
        for event in events:
            unit, name = by_key[event.key], label[event.key]
            if not isinstance(event, Ended):
                store.start(unit, *made)
                show.started(name)
                continue
            core_seconds += event.core_seconds
            unit_seconds += event.seconds
            if event.rows is not None:
                store.finish(unit, event.rows, event.seconds, event.device)
                show.ended(name, event.seconds, None)
                if event.nan:
                    nan.append(f"{unit.study}, {name}: nan in {', '.join(event.nan)}")
            else:
                error = event.error or "no reason is known"
                store.fail(unit, error, event.seconds)
                show.ended(name, event.seconds, error)
                failed += 1
    return failed, nan, (core_seconds, unit_seconds)


def _items(
    plan: Plan, todo: Sequence[StoredUnit], device: str, folder: Path, in_workers: bool
) -> list[WorkItem]:
    source = source_of(plan.study) if in_workers else plan.study.name
    cache, text = str((folder / CACHE).resolve()), json.dumps(to_json(plan.settings))
    return [WorkItem(source, u.key, text, plan.scale.value, u.seed, device, cache) for u in todo]


def _check(
    study: AnyStudy, engine: str, workers: int | None, device: str, limit_s: float | None
) -> None:
    """Refuse what cannot work before anything is stored."""
    missing = [name for name in study.needs if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"study {study.name} needs {', '.join(missing)}, not installed here: "
            f"pip install {' '.join(missing)}",
            parameter="study",
        )
    if engine not in ("local", "ray"):
        raise UserError(
            f"there is no engine {engine!r}; the engines are local and ray", parameter="engine"
        )
    if workers is not None and workers < (1 if engine == "ray" else 0):
        raise UserError(
            f"workers = {workers}: give 1 or more, or 0 to run in this process", parameter="workers"
        )
    if limit_s is not None and limit_s <= 0:
        raise UserError(
            f"a limit of {limit_s:g} s leaves no time; give a positive number", parameter="limit_s"
        )
    if limit_s is not None and workers == 0:
        raise UserError(
            "a limit needs worker processes: with 0 workers nothing can end a unit",
            parameter="workers",
        )
    if engine == "ray":
        refuse_on_windows("the engine ray", "run with --workers 0")
    elif workers:
        refuse_on_windows("worker processes", "run with --workers 0")
    as_device(device, here=engine != "ray")


def _default_workers(device: str) -> int:
    if WINDOWS:
        return 0
    if device != "cpu":
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

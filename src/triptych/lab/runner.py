"""Run a study into a store: what is missing, and only that.

A second run skips every unit that is done. What a unit computes depends on its parameters and seed
alone, so rows are the same for any engine, number of workers and order, and after any number of
interruptions.
"""

import dataclasses
import fcntl
import importlib.util
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from triptych.lab import engines
from triptych.lab.environment import environment
from triptych.lab.progress import Progress, Quiet
from triptych.lab.store import Store, StoredUnit, StoreError
from triptych.lab.workbench import Ended, Task, find_studies, load_study, source_of
from triptych.studies.study import Scale, Settings, Study, Unit, override, short_labels

__all__ = [
    "FolderInUse",
    "RunSummary",
    "find_studies",
    "load_study",
    "planned",
    "run_study",
    "sole_run",
]

LOCK = "run.lock"
CACHE = "cache"
Engine = Literal["local", "ray"]


class FolderInUse(RuntimeError):
    """Another run writes to this folder."""


class RunSummary(NamedTuple):
    """Units done and failed in this run, those it had no need to run, and its seconds."""

    done: int
    failed: int
    skipped: int
    seconds: float


def planned(
    study: Study, scale: Scale, overrides: Mapping[str, str] = {}, seeds: int | None = None
) -> tuple[Settings, list[Unit]]:
    """The settings of a study at a scale with changes applied, and the units they ask for."""
    if scale not in study.settings:
        known = ", ".join(known.value for known in study.settings)
        raise ValueError(f"study {study.name} has no scale {scale.value} (it has: {known})")
    settings = override(study.settings[scale], overrides)
    if seeds is not None:
        settings = dataclasses.replace(settings, seeds=seeds)
    if settings.seeds < 1:
        raise ValueError(f"seeds = {settings.seeds}: a study needs at least 1")
    return settings, list(study.units(settings))


def run_study(
    study: Study,
    scale: Scale,
    *,
    store: Store,
    engine: Engine = "local",
    workers: int | None = None,
    device: str = "cpu",
    overrides: Mapping[str, str] = {},
    seeds: int | None = None,
    limit_s: float | None = None,
    progress: Progress | None = None,
    ray_address: str | None = None,
    retry_failed: bool = True,
) -> RunSummary:
    """Run the units that are not done yet and store their rows.

    workers
        Processes; by default one per core, or one on a GPU. 0 runs in this process.
    limit_s
        Seconds that one unit may take.

    Ctrl-C stops the run and is raised again; units in flight are pending then. An error of the
    store stops the run too. An error of a unit is stored with it and stops nothing.
    """
    _check(study, engine, workers, device, limit_s)
    settings, units = planned(study, scale, overrides, seeds)
    show = progress or Quiet()
    started = time.monotonic()
    with sole_run(store.folder):
        store.release()  # nobody else runs here: these were left by a run that was killed
        stored = store.plan(study.name, scale, settings, units)
        finished = ("done",) if retry_failed else ("done", "failed")
        todo = [
            (unit, kept)
            for unit, kept in zip(units, stored, strict=True)
            if kept.status not in finished
        ]
        skipped, failed = len(units) - len(todo), 0
        crew = workers if workers is not None else _default_workers(device)
        show.begin(study.name, len(todo), skipped, crew)
        try:
            if todo:
                named = {kept.key: (unit, kept) for unit, kept in todo}
                tasks = _tasks(study, todo, device, store.folder, located=crew > 0)
                if engine == "ray":
                    events = engines.on_ray(tasks, workers, limit_s, ray_address)
                elif crew == 0:
                    events = engines.inline(tasks, study)
                else:
                    events = engines.local(tasks, crew, limit_s)
                versions = environment() | {"threads": "1", "engine": engine}
                failed = _follow(events, named, store, show, device, versions, units)
        finally:
            show.end()
            with suppress(StoreError):  # the error that stopped the run is the one to tell
                store.release()
    return RunSummary(len(todo) - failed, failed, skipped, time.monotonic() - started)


def _follow(
    events: Iterator[engines.Event],
    named: Mapping[str, tuple[Unit, StoredUnit]],
    store: Store,
    show: Progress,
    device: str,
    versions: Mapping[str, str],
    units: Sequence[Unit],
) -> int:
    """Store what the engine tells; the number of units that failed."""
    failed = 0
    label = short_labels(units)
    with closing(events):  # pyright: ignore[reportArgumentType]
        for event in events:
            unit, kept = named[event.key]
            if not isinstance(event, Ended):
                store.claim(kept, device, versions)
                show.started(label[unit.key])
            elif event.rows is not None:
                store.finish(kept, event.rows, event.seconds)
                show.ended(label[unit.key], event.seconds, None)
            else:
                error = event.error or "no reason is known"
                store.fail(kept, error, event.seconds)
                show.ended(label[unit.key], event.seconds, error)
                failed += 1
    return failed


def _tasks(
    study: Study,
    todo: list[tuple[Unit, StoredUnit]],
    device: str,
    folder: Path,
    *,
    located: bool,
) -> list[Task]:
    source = source_of(study) if located else study.name
    cache = str((folder / CACHE).resolve())
    return [
        Task(source, kept.key, dict(unit.parameters), unit.seed, device, cache)
        for unit, kept in todo
    ]


def _check(
    study: Study, engine: str, workers: int | None, device: str, limit_s: float | None
) -> None:
    """Refuse what cannot work before anything is planned."""
    missing = [name for name in study.needs if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"study {study.name} needs {', '.join(missing)}, not installed here: "
            f"pip install {' '.join(missing)}"
        )
    if engine not in ("local", "ray"):
        raise ValueError(f"there is no engine {engine!r}; the engines are local and ray")
    if workers is not None and workers < (1 if engine == "ray" else 0):
        raise ValueError(f"workers = {workers}: give 1 or more, or 0 to run in this process")
    if limit_s is not None and limit_s <= 0:
        raise ValueError(f"a limit of {limit_s:g} s leaves no time; give a positive number")
    if limit_s is not None and workers == 0:
        raise ValueError("a limit needs worker processes: with 0 workers nothing can end a unit")
    if engine == "local" and torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {device} was asked for, but torch sees no GPU here")


def _default_workers(device: str) -> int:
    if torch.device(device).type != "cpu":
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def sole_run(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the system lets go of it when this process ends, however it does."""
    try:
        file = (folder / LOCK).open("a+")
    except OSError as error:
        raise StoreError(
            f"{folder / LOCK} cannot be written ({error}): make space there, or choose a folder "
            "that you may write to"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise FolderInUse(
                f"another run is using this folder (pid {holder}): {folder}; wait for it, or run "
                "into another folder"
            ) from None
        with suppress(OSError):  # a courtesy to whoever comes second; the disk may be full
            os.truncate(file.fileno(), 0)
            os.write(file.fileno(), str(os.getpid()).encode())
        yield

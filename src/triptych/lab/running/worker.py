"""Run one unit in a process: find its study, plan its units once, and run the right one."""

import functools
import gc
import json
import random
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy
import torch

from triptych.lab.running.discovery import load_study
from triptych.lab.running.items import Ended, WorkItem
from triptych.lab.running.plan import Plan
from triptych.lab.running.tracking import Tracker, tracker
from triptych.lab.running.workbench import WorkBench, derived_seed
from triptych.studies.api.records import from_json
from triptych.studies.api.study import Scale, Unit, nan_fields

_ERROR_FRAMES, _ERROR_LINES = 4, 20


def run_item(item: WorkItem, plan: Plan | None = None) -> Ended:
    """Run one unit to its end; whatever it raises becomes its error.

    Torch uses one thread, and the global generators start from the unit's seed, so that the rows
    depend on the unit alone and not on what ran before it in this process.
    """
    started, core_started = time.perf_counter(), time.process_time()
    try:
        plan = _plan(item.source, item.scale, item.settings) if plan is None else plan
        with _isolated(item.seed), _tracker(item) as tracked:
            study, unit = plan.study, _unit(plan, item.key)
            bench = WorkBench(item.seed, item.device, Path(item.cache), tracked)
            rows, nan = [], dict[str, None]()
            for number, row in enumerate(study.run(unit, bench)):
                rows.append(json.loads(json.dumps(study.row_to_json(row, number))))
                nan |= dict.fromkeys(nan_fields(row))
            device = bench.used_device
    except KeyboardInterrupt:
        raise
    except BaseException:  # SystemExit too: a unit that calls sys.exit has not given its rows
        lines = traceback.format_exc(limit=-_ERROR_FRAMES).rstrip().splitlines()
        seconds = time.perf_counter() - started
        gc.collect()
        if torch.cuda.is_initialized():
            with suppress(RuntimeError):  # after a fault on the device every call raises it again
                torch.cuda.empty_cache()
        error, core_seconds = "\n".join(lines[-_ERROR_LINES:]), time.process_time() - core_started
        return Ended(item.key, None, error, seconds, (), core_seconds)
    seconds, core_seconds = time.perf_counter() - started, time.process_time() - core_started
    return Ended(item.key, rows, None, seconds, tuple(nan), core_seconds, device)


@functools.cache
def _plan(source: str, scale: str, settings: str) -> Plan:
    """The plan of a study: made once in a process, with generators that no unit sees."""
    with _isolated(0):
        study, at = load_study(source), Scale(scale)
        kind = type(study.settings[at])
        return Plan.under(study, at, from_json(kind, json.loads(settings)))


def _unit(plan: Plan, key: str) -> Unit:
    """The unit of this key among those that the study plans."""
    if key not in plan.by_key:
        raise RuntimeError(
            f"study {plan.study.name} plans other units here than in the process that started this "
            "one: its units must depend on the settings alone"
        )
    return plan.by_key[key]


@contextmanager
def _tracker(item: WorkItem) -> Iterator[Tracker | None]:
    """Where the unit's numbers go while it runs; nowhere by default."""
    found = tracker(item.track, Path(item.tracked)) if item.track else None
    try:
        yield found
    finally:
        if found is not None:
            found.close()


@contextmanager
def _isolated(seed: int) -> Iterator[None]:
    """One torch thread and global generators of the unit's own; the caller's are restored."""
    threads, torch_state = torch.get_num_threads(), torch.get_rng_state()
    python_state, numpy_state = random.getstate(), numpy.random.get_state()
    own, precision = derived_seed(seed, "global generators"), torch.get_float32_matmul_precision()
    torch.set_num_threads(1)
    torch.manual_seed(own)
    random.seed(own)
    numpy.random.seed(own % 2**32)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        numpy.random.set_state(numpy_state)

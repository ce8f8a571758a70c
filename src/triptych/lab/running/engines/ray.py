"""The Ray engine: units run on the machines of a Ray cluster."""

import importlib
import os
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from triptych.core.validation import UserError
from triptych.lab.running.engines.threads import one_thread
from triptych.lab.running.items import Ended, Started, UnitEvent, WorkItem
from triptych.lab.running.worker import run_item

MAX_ATTEMPTS = 3  # at a unit whose worker or machine is lost
POLL_S = 0.5


def run_on_ray(
    items: Sequence[WorkItem], workers: int | None, limit_s: float | None, address: str | None
) -> Iterator[UnitEvent]:
    """Run the units on a Ray cluster, each on one CPU.

    `address` names a running cluster ("auto", "host:6379", "ray://host:10001"); without it a local
    one with `workers` CPUs is started and stopped again. Other machines need this package, the
    file of the study under the same path, and for the disk cache a folder they share.

    When a machine is switched off or a worker is killed, that says nothing about the unit that ran
    there. So the unit goes to the end of the queue and is tried again, `MAX_ATTEMPTS` times in all.
    A unit that raises is not tried again.
    """
    ray = import_ray()
    ours = not ray.is_initialized()
    if ours:
        connect(ray, address, workers)
    running: dict[Any, _Submitted] = {}
    try:
        on_gpu = any(item.device.startswith("cuda") for item in items)
        if on_gpu and not ray.cluster_resources().get("GPU"):
            raise UserError("device cuda was asked for, but the Ray cluster has no GPU")
        options = {"num_cpus": 1, "num_gpus": int(on_gpu), "max_retries": 0}
        work = ray.remote(num_returns="streaming", **options)(begin_and_run)
        queue = deque(_Submitted(item) for item in items)
        while queue or running:
            room = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
            while queue and len(running) < room:
                unit = queue.popleft()
                unit.attempts, unit.since = unit.attempts + 1, None
                running[work.remote(unit.item)] = unit
            ready, _ = ray.wait(list(running), num_returns=1, timeout=POLL_S)
            for stream in ready:
                unit = running[stream]
                message = _receive(ray, stream, unit)
                if not isinstance(message, Started):
                    del running[stream]
                if isinstance(message, _Lost):
                    if unit.attempts < MAX_ATTEMPTS:
                        queue.append(unit)
                        continue
                    tried = f"tried {unit.attempts} times; its worker or machine was lost each time"
                    message = unit.ended(f"{message.reason}\n{tried}")
                if not unit.announced:  # it may also die before it can say that it began
                    unit.announced = True
                    yield Started(unit.item.key)
                if isinstance(message, Ended):
                    yield message
            for stream, unit in list(running.items()):
                if limit_s is not None and unit.seconds >= limit_s and stream not in ready:
                    ray.cancel(stream, force=True)
                    del running[stream]
                    yield unit.ended(f"exceeded its limit of {limit_s:g} s")
    finally:
        for stream in running:
            ray.cancel(stream, force=True)
        if ours:
            ray.shutdown()


@dataclass
class _Submitted:
    """A unit for Ray: how often it was tried, since when it runs, whether we said that it does."""

    item: WorkItem
    attempts: int = 0
    since: float | None = None
    announced: bool = False

    @property
    def seconds(self) -> float:
        return 0.0 if self.since is None else time.monotonic() - self.since

    def ended(self, error: str) -> Ended:
        return Ended(self.item.key, None, error, self.seconds)


class _Lost(NamedTuple):
    """The worker or the machine of a unit is gone, or the rows that it had kept there."""

    reason: str


def begin_and_run(item: WorkItem) -> Iterator[Ended | None]:
    """Say that a unit begins, then how it ended: a cluster may let it wait for long before."""
    yield None
    yield run_item(item)


def _receive(ray: Any, stream: Any, unit: _Submitted) -> UnitEvent | _Lost:
    """The next event of a unit on Ray, or that its worker or machine is lost."""
    errors = ray.exceptions
    worker_lost = errors.WorkerCrashedError, errors.OutOfMemoryError
    machine_lost = errors.NodeDiedError, errors.LocalRayletDiedError, errors.ObjectLostError
    try:
        ended = ray.get(next(stream))
    except errors.RayError as error:
        reason = "\n".join(str(error).strip().splitlines()[-12:])
        if isinstance(error, worker_lost):
            return _Lost(f"worker died (out of memory?): {reason}")
        if isinstance(error, machine_lost):
            return _Lost(f"machine lost: {reason}")
        return unit.ended(reason)
    if ended is None:
        unit.since = time.monotonic()
        return Started(unit.item.key)
    return Ended(*ended)


def import_ray() -> Any:
    """The package ray, or a sentence on how to get it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own, about its own dependencies
            return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise UserError(
            "the ray engine needs Ray: pip install 'ray>=2.40,<3', or use --engine local"
        ) from error


def connect(ray: Any, address: str | None, workers: int | None) -> None:
    """Join a running cluster; without an address, start one with this many CPUs here."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
    if address is None:  # "local" starts one also where another one runs
        options |= {"num_cpus": workers, "include_dashboard": False}
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore")
        try:
            ray.init(address=address or "local", **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(
                f"the Ray cluster at {address or 'this machine'} does not answer ({error}): start "
                "one with `ray start --head`, or leave the address out",
                parameter="address",
            ) from error

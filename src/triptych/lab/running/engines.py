"""Engines: how units are spread over processes. Each tells what happens as it happens.

An engine is a generator of `Started` and `Ended`, one of each for every unit. Whoever consumes it
writes to the store, so the store has one writer; closing it stops all that is still running.

    inline   in this process, one unit after the other
    local    worker processes on this machine, one torch thread each
    ray      items on a Ray cluster

A unit that raises, dies or takes too long has ended with an error; the others go on.
"""

import importlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from triptych.core.validation import UserError
from triptych.lab.running.interrupts import HeldInterrupts
from triptych.lab.running.workbench import Ended, WorkItem, run_item
from triptych.studies.api.study import AnyStudy

# A fork server imports torch once and forks workers from there: a new worker is there in
# milliseconds, shares the pages of the libraries, and has none of our threads or GPU state.
START_METHOD = "forkserver" if sys.platform == "linux" else "spawn"
PRELOADED = ["triptych.lab.running.fork_server", "triptych.lab.running.workbench"]
MAX_FAILED_STARTS = 3  # of worker processes, one after the other
MAX_ATTEMPTS = 3  # at a unit whose worker or machine is lost on Ray
RAY_POLL_S = 0.5
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Started(NamedTuple):
    """A unit began to run."""

    key: str


Event = Started | Ended


def inline(items: Sequence[WorkItem], study: AnyStudy) -> Iterator[Event]:
    """Run the units here, in order: for debugging, and for a study that no file holds."""
    for item in items:
        yield Started(item.key)
        yield run_item(item, study)


@dataclass
class _Worker:
    """A process, the connection to it, and what it is doing since when."""

    process: BaseProcess
    connection: Connection
    ready: bool = False
    item: WorkItem | None = None
    since: float = 0.0

    def ended(self, error: str) -> Ended:
        assert self.item is not None
        return Ended(self.item.key, None, error, time.monotonic() - self.since)


def local(items: Sequence[WorkItem], max_workers: int, limit_s: float | None) -> Iterator[Event]:
    """Run the units on up to `max_workers` processes, each for at most `limit_s` seconds.

    A unit whose worker is killed has failed, and this run does not try it again: on one machine
    the usual reason is that the memory is full, and a second try would fill it again.

    Ctrl-C is answered while we wait and while the consumer works, never in the middle of starting
    or ending a process.
    """
    context = multiprocessing.get_context(START_METHOD)
    waiting, workers, events = deque(items), list[_Worker](), list[Event]()
    failed_starts = 0
    with HeldInterrupts() as interrupts:
        try:
            while waiting or events or any(worker.item for worker in workers):
                wanted = len(waiting) + sum(worker.item is not None for worker in workers)
                while len(workers) < min(max_workers, wanted):
                    try:
                        workers.append(_start_worker(context))
                    except (EOFError, OSError) as error:
                        failed_starts = _count_failed_start(failed_starts, repr(error))
                        break
                # The next unit is sent before the last one is stored: nobody waits for the disk.
                for worker in workers:
                    idle = worker.ready and worker.item is None
                    if idle and waiting and _send(worker, waiting[0]):
                        events.append(Started(waiting.popleft().key))
                with interrupts.released():
                    yield from events
                events.clear()
                if not any(worker.item or not worker.ready for worker in workers):
                    continue
                with interrupts.released():
                    changed = _wait(workers, limit_s)
                for worker in changed:
                    alive, ended = _receive(worker)
                    if not alive:
                        workers.remove(worker)
                        if worker.ready:
                            failed_starts = 0
                        else:
                            failed_starts = _count_failed_start(failed_starts, _exit_reason(worker))
                    if ended is not None:
                        events.append(ended)
                        worker.item = None
                for worker in [w for w in workers if _overdue(w, limit_s)]:
                    events.append(worker.ended(f"exceeded its limit of {limit_s:g} s"))
                    workers.remove(worker)
                    _stop_workers([worker])
        finally:
            _stop_workers(workers)


def _count_failed_start(failed_starts: int, reason: str) -> int:
    """Failed starts with this one; the last one that is allowed stops the run."""
    if failed_starts + 1 == MAX_FAILED_STARTS:
        raise UserError(
            f"worker processes cannot start ({reason}); their messages are above. A script that "
            "runs studies needs the line `if __name__ == '__main__':` before it does"
        )
    return failed_starts + 1


def _start_worker(context: BaseContext) -> _Worker:
    """A new worker process; it says when it is ready."""
    method = context.get_start_method()
    if method == "forkserver":
        context.set_forkserver_preload(PRELOADED)
    if method != "fork":
        # It starts together with the first process unless it is there, and starting it unblocks
        # SIGINT in this thread: that must not happen between our blocking and the fork server.
        resource_tracker.ensure_running()
    ours, theirs = context.Pipe()
    process: BaseProcess = context.Process(target=_worker_main, args=(theirs,))  # pyright: ignore[reportAttributeAccessIssue]
    with _one_thread(), _sigint_blocked():
        process.start()
    theirs.close()
    return _Worker(process, ours)


def _worker_main(connection: Connection) -> None:
    """What a worker does: receive a unit, run it, send how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        connection.send(None)
        while True:
            connection.send(run_item(connection.recv()))
    except (EOFError, OSError):
        return


def _end_with_parent() -> None:
    """A run that is killed leaves no worker behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _send(worker: _Worker, item: WorkItem) -> bool:
    """Whether the worker was there to take the unit."""
    try:
        worker.connection.send(item)
    except OSError:  # it died while idle; the next round sees that
        return False
    worker.item, worker.since = item, time.monotonic()
    return True


def _wait(workers: Sequence[_Worker], limit_s: float | None) -> list[_Worker]:
    """The workers that sent something or died; none when a limit passes first."""
    busy = [worker.since for worker in workers if worker.item]
    timeout = max(0.0, min(busy) + limit_s - time.monotonic()) if limit_s and busy else None
    connections = [worker.connection for worker in workers]
    sentinels = [worker.process.sentinel for worker in workers]
    ready = set(wait([*connections, *sentinels], timeout))
    return [w for w in workers if w.connection in ready or w.process.sentinel in ready]


def _receive(worker: _Worker) -> tuple[bool, Ended | None]:
    """Whether the worker is alive, and how its unit ended if it did."""
    try:
        if worker.connection.poll():
            ended = worker.connection.recv()
            worker.ready = True
            return True, ended
    except (EOFError, OSError):
        pass
    _stop_workers([worker], patience_s=5.0)
    return False, worker.ended(_exit_reason(worker)) if worker.item else None


def _overdue(worker: _Worker, limit_s: float | None) -> bool:
    passed = limit_s is not None and time.monotonic() - worker.since >= limit_s
    return worker.item is not None and passed and not worker.connection.poll()


def _exit_reason(worker: _Worker) -> str:
    code = worker.process.exitcode
    if code is None or code >= 0:
        return f"worker exited with code {code} before the unit ended"
    if -code == signal.SIGKILL:
        return "worker died with signal 9 (out of memory?)"
    return f"worker died with signal {-code} ({signal.strsignal(-code)})"


def _stop_workers(workers: Sequence[_Worker], patience_s: float = 0.0) -> None:
    """End processes, at once unless they are ending by themselves."""
    for worker in workers:
        if patience_s:
            worker.process.join(patience_s)
        if worker.process.is_alive():
            worker.process.kill()
    for worker in workers:
        worker.process.join()
        worker.connection.close()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes started inside compute with one thread, whichever library they use."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Processes started inside inherit this, until they know what to do about Ctrl-C."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def on_ray(
    items: Sequence[WorkItem], workers: int | None, limit_s: float | None, address: str | None
) -> Iterator[Event]:
    """Run the units as items of one CPU each on a Ray cluster.

    `address` names a running cluster ("auto", "host:6379", "ray://host:10001"); without it a local
    one with `workers` CPUs is started and stopped again. Other machines need this package, the
    file of the study under the same path, and for the disk cache a folder they share.

    A machine that is switched off and a worker that is killed say nothing about the unit that ran
    there, so it runs again, after the units that wait already and wherever there is room; it has
    failed when that was in vain `MAX_ATTEMPTS` times. What a unit raises is not tried again.
    """
    ray = _import_ray()
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address, workers)
    running: dict[Any, _Submitted] = {}
    try:
        on_gpu = any(item.device.startswith("cuda") for item in items)
        if on_gpu and not ray.cluster_resources().get("GPU"):
            raise UserError("device cuda was asked for, but the Ray cluster has no GPU")
        options = {"num_cpus": 1, "num_gpus": int(on_gpu), "max_retries": 0}
        work = ray.remote(num_returns="streaming", **options)(begin_and_run)
        waiting = deque(_Submitted(item) for item in items)
        while waiting or running:
            room = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
            while waiting and len(running) < room:
                unit = waiting.popleft()
                unit.attempts, unit.since = unit.attempts + 1, None
                running[work.remote(unit.item)] = unit
            ready, _ = ray.wait(list(running), num_returns=1, timeout=RAY_POLL_S)
            for stream in ready:
                unit = running[stream]
                message = _receive_from_ray(ray, stream, unit)
                if not isinstance(message, Started):
                    del running[stream]
                if isinstance(message, _Lost):
                    if unit.attempts < MAX_ATTEMPTS:
                        waiting.append(unit)
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


def _receive_from_ray(ray: Any, stream: Any, unit: _Submitted) -> Event | _Lost:
    """What a unit on Ray has to tell."""
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


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own, about its own dependencies
            return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise UserError(
            "the ray engine needs Ray: pip install 'triptych[ray]', or use --engine local"
        ) from error


def _connect(ray: Any, address: str | None, workers: int | None) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
    if address is None:  # "local" starts one also where another one runs
        options |= {"num_cpus": workers, "include_dashboard": False}
    with warnings.catch_warnings(), _one_thread():
        warnings.simplefilter("ignore")
        try:
            ray.init(address=address or "local", **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(
                f"the Ray cluster at {address or 'this machine'} does not answer ({error}): start "
                "one with `ray start --head`, or leave the address out"
            ) from error

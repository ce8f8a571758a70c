"""Engines: how units are spread over processes. Each tells what happens as it happens.

An engine is a generator of `Started` and `Ended`. Whoever consumes it writes to the store, so the
store has one writer; closing it stops all that is still running.

    inline   in this process, one unit after the other
    local    worker processes on this machine, one torch thread each
    ray      tasks on a Ray cluster

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
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from triptych.lab.workbench import Ended, Task, run_task
from triptych.studies.api.study import AnyStudy

# A fork server imports torch once and forks workers from there: a new worker is there in
# milliseconds, shares the pages of the libraries, and has none of our threads or GPU state.
START_METHOD = "forkserver" if sys.platform == "linux" else "spawn"
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_STILLBORN = 3
_RAY_PATIENCE = 0.5


class Started(NamedTuple):
    """A unit began to run."""

    key: str


Event = Started | Ended


def inline(tasks: Sequence[Task], study: AnyStudy) -> Iterator[Event]:
    """Run the units here, in order: for debugging, and for a study that no file holds."""
    for task in tasks:
        yield Started(task.key)
        yield run_task(task, study)


@dataclass
class _Worker:
    """A process, the line to it, and what it is doing since when."""

    process: BaseProcess
    connection: Connection
    ready: bool = False
    task: Task | None = None
    since: float = 0.0

    def ended(self, error: str) -> Ended:
        assert self.task is not None
        return Ended(self.task.key, None, error, time.monotonic() - self.since)


def local(tasks: Sequence[Task], workers: int, limit_s: float | None) -> Iterator[Event]:
    """Run the units on `workers` processes, each for at most `limit_s` seconds."""
    context = multiprocessing.get_context(START_METHOD)
    waiting, crew, events = deque(tasks), list[_Worker](), list[Event]()
    stillborn = 0
    try:
        while waiting or events or any(worker.task for worker in crew):
            wanted = len(waiting) + sum(worker.task is not None for worker in crew)
            while len(crew) < min(workers, wanted):
                crew.append(_hire(context))
            # The next unit is given out before the last one is stored: nobody waits for the disk.
            for worker in crew:
                if worker.ready and worker.task is None and waiting and _give(worker, waiting[0]):
                    events.append(Started(waiting.popleft().key))
            yield from events
            events.clear()
            if not any(worker.task or not worker.ready for worker in crew):
                continue
            for worker in _heard(crew, limit_s):
                alive, ended = _listen(worker)
                if not alive:
                    crew.remove(worker)
                    stillborn = 0 if worker.ready else stillborn + 1
                    if stillborn == _STILLBORN:
                        raise RuntimeError(
                            f"worker processes cannot start ({_death(worker)}); their messages are "
                            "above. A script that runs studies needs the line "
                            "`if __name__ == '__main__':` before it does"
                        )
                if ended is not None:
                    events.append(ended)
                    worker.task = None
            for worker in [w for w in crew if _late(w, limit_s)]:
                events.append(worker.ended(f"exceeded its limit of {limit_s:g} s"))
                crew.remove(worker)
                _dismiss([worker])
    finally:
        _dismiss(crew)


def _hire(context: BaseContext) -> _Worker:
    """A new worker process; it says when it is ready."""
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(["triptych.lab.workbench"])
    ours, theirs = context.Pipe()
    process: BaseProcess = context.Process(target=_work, args=(theirs,))  # pyright: ignore[reportAttributeAccessIssue]
    with _one_thread(), _interrupts_held():
        process.start()
    theirs.close()
    return _Worker(process, ours)


def _work(connection: Connection) -> None:
    """The life of a worker: take a unit, run it, say how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    connection.send(None)
    while True:
        try:
            connection.send(run_task(connection.recv()))
        except (EOFError, OSError):
            return


def _end_with_parent() -> None:
    """A run that is killed leaves no worker behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _give(worker: _Worker, task: Task) -> bool:
    try:
        worker.connection.send(task)
    except OSError:  # it died while idle; the next round sees that
        return False
    worker.task, worker.since = task, time.monotonic()
    return True


def _heard(crew: Sequence[_Worker], limit_s: float | None) -> list[_Worker]:
    """The workers that spoke or died; none when a limit passes first."""
    busy = [worker.since for worker in crew if worker.task]
    timeout = max(0.0, min(busy) + limit_s - time.monotonic()) if limit_s and busy else None
    lines = {worker.connection: worker for worker in crew}
    lives = {worker.process.sentinel: worker for worker in crew}
    spoke = set(wait([*lines, *lives], timeout))
    return [w for w in crew if w.connection in spoke or w.process.sentinel in spoke]


def _listen(worker: _Worker) -> tuple[bool, Ended | None]:
    """Whether the worker lives, and how its unit ended if it did."""
    try:
        if worker.connection.poll():
            ended = worker.connection.recv()
            worker.ready = True
            return True, ended
    except (EOFError, OSError):
        pass
    _dismiss([worker], patience=5.0)
    return False, worker.ended(_death(worker)) if worker.task else None


def _late(worker: _Worker, limit_s: float | None) -> bool:
    overdue = limit_s is not None and time.monotonic() - worker.since >= limit_s
    return worker.task is not None and overdue and not worker.connection.poll()


def _death(worker: _Worker) -> str:
    code = worker.process.exitcode
    if code is None or code >= 0:
        return f"worker exited with code {code} before the unit ended"
    if -code == signal.SIGKILL:
        return "worker died with signal 9 (out of memory?)"
    return f"worker died with signal {-code} ({signal.strsignal(-code)})"


def _dismiss(crew: Sequence[_Worker], patience: float = 0.0) -> None:
    """End processes, at once unless they are ending by themselves."""
    for worker in crew:
        if patience:
            worker.process.join(patience)
        if worker.process.is_alive():
            worker.process.kill()
    for worker in crew:
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
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits, here and in processes started inside, which inherit this."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def on_ray(
    tasks: Sequence[Task], workers: int | None, limit_s: float | None, address: str | None
) -> Iterator[Event]:
    """Run the units as tasks of one CPU each on a Ray cluster.

    `address` names a running cluster ("auto", "host:6379", "ray://host:10001"); without it a local
    one with `workers` CPUs is started and stopped again. Other machines need this package, the
    file of the study under the same path, and for the disk cache a folder they share.
    """
    ray = _ray()
    ours = not ray.is_initialized()
    if ours:
        _join(ray, address, workers)
    flying: dict[Any, _Flight] = {}
    try:
        on_gpu = any(task.device.startswith("cuda") for task in tasks)
        if on_gpu and not ray.cluster_resources().get("GPU"):
            raise ValueError("device cuda was asked for, but the Ray cluster has no GPU")
        options = {"num_cpus": 1, "num_gpus": int(on_gpu), "max_retries": 0}
        work = ray.remote(num_returns="streaming", **options)(begin_and_run)
        waiting = deque(tasks)
        while waiting or flying:
            room = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
            while waiting and len(flying) < room:
                flight = _Flight(waiting.popleft())
                flying[work.remote(flight.task)] = flight
            ready, _ = ray.wait(list(flying), num_returns=1, timeout=_RAY_PATIENCE)
            for stream in ready:
                event = _next(ray, stream, flying[stream])
                if isinstance(event, Ended) and flying.pop(stream).since is None:
                    yield Started(event.key)  # it died before it could begin
                yield event
            for stream, flight in list(flying.items()):
                if limit_s is not None and flight.seconds >= limit_s and stream not in ready:
                    ray.cancel(stream, force=True)
                    error = f"exceeded its limit of {limit_s:g} s"
                    yield Ended(flying.pop(stream).task.key, None, error, flight.seconds)
    finally:
        for stream in flying:
            ray.cancel(stream, force=True)
        if ours:
            ray.shutdown()


@dataclass
class _Flight:
    """A unit given to Ray, and since when it runs."""

    task: Task
    since: float | None = None

    @property
    def seconds(self) -> float:
        return 0.0 if self.since is None else time.monotonic() - self.since


def begin_and_run(task: Task) -> Iterator[Ended | None]:
    """Say that a unit begins, then how it ended: a cluster may let it wait for long before."""
    yield None
    yield run_task(task)


def _next(ray: Any, stream: Any, flight: _Flight) -> Event:
    """What a unit on Ray has to tell."""
    try:
        ended = ray.get(next(stream))
    except ray.exceptions.RayError as error:
        crashed = isinstance(error, ray.exceptions.WorkerCrashedError)
        said = str(error).strip().splitlines()[-12:]
        reason = "worker died (out of memory?): " if crashed else ""
        return Ended(flight.task.key, None, reason + "\n".join(said), flight.seconds)
    if ended is None:
        flight.since = time.monotonic()
        return Started(flight.task.key)
    return Ended(*ended)


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own, about its own dependencies
            return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the ray engine needs Ray: pip install 'triptych[ray]', or use --engine local"
        ) from error


def _join(ray: Any, address: str | None, workers: int | None) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
    if address is None:
        options |= {"num_cpus": workers, "include_dashboard": False}
    with warnings.catch_warnings(), _one_thread():
        warnings.simplefilter("ignore")
        try:
            ray.init(address=address, **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise RuntimeError(
                f"the Ray cluster at {address or 'this machine'} does not answer ({error}): start "
                "one with `ray start --head`, or leave the address out"
            ) from error

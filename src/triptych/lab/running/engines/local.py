"""The local engine: worker processes on this machine.

A fork server imports torch once and forks the workers. So a new worker starts in milliseconds,
shares the memory of the libraries, and has none of our threads or GPU state.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from triptych.core.validation import UserError
from triptych.lab.running.engines.threads import one_thread
from triptych.lab.running.interrupts import HeldInterrupts
from triptych.lab.running.items import Ended, Started, UnitEvent
from triptych.lab.running.worker import run_item

START_METHOD = "forkserver" if sys.platform == "linux" else "spawn"
PRELOADED = ["triptych.lab.running.fork_server", "triptych.lab.running.engines.local"]
MAX_FAILED_STARTS = 3  # of worker processes, one after the other


def preload(modules: Sequence[str]) -> None:
    """Let the fork server import these too, once, and not every worker: before it starts."""
    PRELOADED.extend(name for name in modules if name not in PRELOADED)


@dataclass
class _Worker:
    """A process, the connection to it, and what it is doing since when."""

    process: BaseProcess
    connection: Connection
    ready: bool = False
    item: Any = None
    since: float = 0.0

    def ended(self, error: str) -> Ended:
        assert self.item is not None
        return Ended(self.item.key, None, error, time.monotonic() - self.since)


def run_locally(
    items: Sequence[Any],
    max_workers: int,
    limit_s: float | None,
    work: Callable[[Any], Ended] = run_item,
) -> Iterator[UnitEvent]:
    """Run the units on up to `max_workers` processes, each for at most `limit_s` seconds.

    `work` is what a worker does with an item: `run_item` with a `WorkItem`, or another function of
    a module with items that have a `key`.

    A unit whose worker is killed has failed, and this run does not try it again: on one machine
    the usual reason is that the memory is full, and a second try would fill it again.

    Ctrl-C interrupts while we wait and while the consumer works, never in the middle of starting
    or stopping a process.
    """
    context = multiprocessing.get_context(START_METHOD)
    queue, workers, events = deque(items), list[_Worker](), list[UnitEvent]()
    failed_starts = 0
    with HeldInterrupts() as interrupts:
        try:
            while queue or events or any(worker.item for worker in workers):
                wanted = len(queue) + sum(worker.item is not None for worker in workers)
                while len(workers) < min(max_workers, wanted):
                    try:
                        workers.append(_start_worker(context, work))
                    except (EOFError, OSError) as error:
                        failed_starts = _count_failed_start(failed_starts, repr(error))
                        break
                # The next unit is sent before the last one is stored: no worker waits for the disk.
                for worker in workers:
                    idle = worker.ready and worker.item is None
                    if idle and queue and _send(worker, queue[0]):
                        events.append(Started(queue.popleft().key))
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
            "runs studies needs the line `if __name__ == '__main__':` before it does",
            parameter="reason",
        )
    return failed_starts + 1


def _start_worker(context: BaseContext, work: Callable[[Any], Ended]) -> _Worker:
    """A new worker process; it says when it is ready."""
    method = context.get_start_method()
    if method == "forkserver":
        context.set_forkserver_preload(PRELOADED)
    if method != "fork":
        # It starts together with the first process unless it is there, and starting it unblocks
        # SIGINT in this thread: that must not happen between our blocking and the fork server.
        resource_tracker.ensure_running()
    ours, theirs = context.Pipe()
    process: BaseProcess = context.Process(target=_worker_main, args=(theirs, work))  # pyright: ignore[reportAttributeAccessIssue]
    with one_thread(), _sigint_blocked():
        process.start()
    theirs.close()
    return _Worker(process, ours)


def _worker_main(connection: Connection, work: Callable[[Any], Ended]) -> None:
    """What a worker does: receive a unit, run it, send how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which stops us
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        connection.send(None)
        while True:
            connection.send(work(connection.recv()))
    except (EOFError, OSError):
        return


def _exit_with_parent() -> None:
    """Exit when the parent process is gone: a run that is killed leaves no worker behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _send(worker: _Worker, item: Any) -> bool:
    """Whether the worker was there to take the unit."""
    try:
        worker.connection.send(item)
    except OSError:  # it died while idle; the next _receive sees that
        return False
    worker.item, worker.since = item, time.monotonic()
    return True


def _wait(workers: Sequence[_Worker], limit_s: float | None) -> list[_Worker]:
    """The workers that sent something or died; none after a timeout."""
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
    _stop_workers([worker], timeout_s=5.0)
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


def _stop_workers(workers: Sequence[_Worker], timeout_s: float = 0.0) -> None:
    """Kill the workers. With a timeout, wait so long for each to end by itself first."""
    for worker in workers:
        if timeout_s:
            worker.process.join(timeout_s)
        if worker.process.is_alive():
            worker.process.kill()
    for worker in workers:
        worker.process.join()
        worker.connection.close()


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Processes started inside inherit this, until they know what to do about Ctrl-C."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

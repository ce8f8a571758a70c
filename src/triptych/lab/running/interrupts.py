"""Ctrl-C: when it ends the process at once, when it is raised, and when it is deferred.

Python raises KeyboardInterrupt in the main thread, between any two steps of it. In the middle of
an import that leaves half of a library, and the user sees errors of that half. In a callback of
the interpreter it is printed and forgotten. While a process is started it leaves an orphan. So the
program exits at once while it has nothing to clean up, and a run is interrupted where it waits.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 130  # what shells report for a program that Ctrl-C ended


def end_at_once() -> None:
    """From now on Ctrl-C ends the process: for a program that has nothing to clean up yet."""
    if _is_interrupted():
        signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"\nStopped.\n")
    os._exit(EXIT_CODE)


@contextmanager
def explain_stop() -> Iterator[None]:
    """Ctrl-C inside is raised, and leaves as one sentence and exit code 130, not a traceback."""
    before = signal.getsignal(signal.SIGINT)
    if _is_interrupted():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        message = "\nStopped. What is done is stored; the same command goes on."
        print(message, file=sys.stderr, flush=True)
        raise SystemExit(EXIT_CODE) from None
    finally:
        if _is_interrupted():
            signal.signal(signal.SIGINT, before)


class HeldInterrupts:
    """Ctrl-C inside is deferred to the end, or to the next `released` block.

    The handler is replaced. Blocking the signal in the main thread is not enough: the system gives
    it to another thread, and Python then interrupts the main thread all the same.
    """

    def __init__(self) -> None:
        self._handler = signal.getsignal(signal.SIGINT) if _is_interrupted() else None
        self._arrived = False

    def __enter__(self) -> "HeldInterrupts":
        self._hold()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._release()
        except KeyboardInterrupt as interrupt:
            raise interrupt from None  # not with another Ctrl-C, or what failed because of it

    @contextmanager
    def released(self) -> Iterator[None]:
        """Ctrl-C inside, or held until now, is raised as usual."""
        try:
            self._release()
            yield
        finally:
            self._hold()

    def _hold(self) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._remember)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._arrived = True

    def _release(self) -> None:
        if self._handler is None:
            return
        signal.signal(signal.SIGINT, self._handler)
        if self._arrived:
            self._arrived = False
            signal.raise_signal(signal.SIGINT)


def _is_interrupted() -> bool:
    """Whether Ctrl-C interrupts this thread: not when ignored, nor next to the main thread."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    return in_main_thread and callable(signal.getsignal(signal.SIGINT))

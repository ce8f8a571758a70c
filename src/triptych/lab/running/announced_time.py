"""The time left of a run, in a small file of its folder, for other programs that follow the run.

The run estimates it (`time_left`) and writes it down as units begin and end. A reader takes off
what has gone by since. The file is removed when the run ends, and that of a run that was killed is
not believed.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from triptych.core.files import NotWritten, write_text
from triptych.core.locks import is_alive

FILE = "time_left.json"
EVERY_S = 1.0
"""At most one note in this many seconds."""

Announce = Callable[[float | None], None]


@contextmanager
def announced(folder: Path, clock: Callable[[], float] = time.time) -> Iterator[Announce]:
    """A function that notes the seconds left, None where nobody knows.

    A disk that is full stops no run: then nothing is noted.
    """
    path, last = folder / FILE, -float("inf")

    def announce(seconds: float | None) -> None:
        nonlocal last
        if clock() - last < EVERY_S:
            return
        last = clock()
        note = {"pid": os.getpid(), "at": last, "seconds": seconds}
        with suppress(NotWritten):
            write_text(path, json.dumps(note), durable=False)

    try:
        yield announce
    finally:
        if last > -float("inf"):  # otherwise the file may be that of another run
            with suppress(OSError):
                path.unlink(missing_ok=True)


def announced_seconds(folder: Path, clock: Callable[[], float] = time.time) -> float | None:
    """Seconds until the run in a folder is over; None where no run is alive or nobody knows.

    Worked value: 90 s were noted 30 s ago: 60 s.
    """
    try:
        note = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if not is_alive(int(note["pid"])):
            return None
        return max(float(note["seconds"]) - max(clock() - float(note["at"]), 0.0), 0.0)
    except (OSError, ValueError, TypeError, KeyError):
        return None

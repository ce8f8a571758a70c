"""Locks of open files, and whether a process is there: as far as the system knows such things.

The one file that uses what Unix alone has. Windows has no such locks here, and neither have some
network disks. There nobody is kept out, and whoever asks is told so (`Lock.NONE`).
"""

import os
import sys
from enum import Enum
from typing import IO, Any

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

WINDOWS = sys.platform == "win32"


class Lock(Enum):
    """What came of asking for a lock."""

    HELD = "ours until the file is closed or this process ends"
    TAKEN = "of another process"
    NONE = "not to be had here"


def lock(file: IO[Any], *, wait: bool = False) -> Lock:
    """Lock an open file for this process; with `wait` no other one holds it afterwards."""
    if fcntl is None:
        return Lock.NONE
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return Lock.TAKEN
    except OSError:
        return Lock.NONE
    return Lock.HELD


def is_alive(pid: int) -> bool:
    """Whether a process of this machine is there; True where the system cannot be asked.

    To Windows the question of Unix, signal 0, is a Ctrl-C.
    """
    if WINDOWS or pid <= 0:
        return WINDOWS
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it is another user's
        return True
    return True

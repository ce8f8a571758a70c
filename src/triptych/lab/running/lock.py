"""The lock of a run folder: one run at a time writes to it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from triptych.core.validation import UserError
from triptych.lab.running.database import StoreError

LOCK = "run.lock"


class FolderInUse(UserError):
    """Another run writes to this folder."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. The system releases it when this process ends, however it does."""
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
                "into another folder (`--out FOLDER`)"
            ) from None
        with suppress(OSError):  # for the message above, in another process; the disk may be full
            os.truncate(file.fileno(), 0)
            os.write(file.fileno(), str(os.getpid()).encode())
        yield


def refuse_if_locked(folder: Path) -> None:
    """Say at once that a folder is in use, before the work that comes ahead of a run."""
    if (folder / LOCK).exists():
        with lock_folder(folder):
            pass

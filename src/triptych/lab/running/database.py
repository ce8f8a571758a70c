"""The SQLite file of a run folder: its tables, its transactions, and its errors as sentences."""

import errno
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from triptych.core.errors import UserError

SCHEMA = 3
_OLDEST = 2  # its checksums are of rows alone; the store makes new ones
_BUSY_SECONDS = 30.0
_NOT_WRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)

_TABLES = (
    """CREATE TABLE units (
        study TEXT NOT NULL, scale TEXT NOT NULL, key TEXT NOT NULL,
        place INTEGER NOT NULL, current INTEGER NOT NULL,
        parameters TEXT NOT NULL, seed INTEGER NOT NULL, settings TEXT NOT NULL,
        revision INTEGER NOT NULL DEFAULT 1,
        status TEXT NOT NULL CHECK (status IN ('pending', 'running', 'done', 'failed')),
        seconds REAL, error TEXT, device TEXT, versions TEXT NOT NULL DEFAULT '{}',
        code TEXT NOT NULL DEFAULT '{}', checksum TEXT,
        started_at TEXT, finished_at TEXT,
        PRIMARY KEY (study, scale, key))""",
    """CREATE TABLE rows (
        study TEXT NOT NULL, scale TEXT NOT NULL, key TEXT NOT NULL,
        number INTEGER NOT NULL, row TEXT NOT NULL,
        PRIMARY KEY (study, scale, key, number),
        FOREIGN KEY (study, scale, key) REFERENCES units (study, scale, key))""",
    """CREATE TABLE studies (
        study TEXT NOT NULL, scale TEXT NOT NULL, content TEXT NOT NULL,
        PRIMARY KEY (study, scale))""",
)


class StoreError(UserError):
    """The store cannot be used; the sentence says why and what to do. Nothing stored is lost."""


class Database:
    """A connection to the file. One process writes; any number may read."""

    def __init__(self, file: Path, connection: sqlite3.Connection) -> None:
        self.file = file
        self.schema = SCHEMA
        self._connection = connection

    @classmethod
    def open(cls, file: Path) -> "Database":
        """The file for reading and writing, made if there is none yet."""
        with as_sentences(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(file, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            database = cls(file, connection)
            database._prepare()
        except BaseException:
            connection.close()
            raise
        return database

    @classmethod
    def read(cls, file: Path) -> "Database | None":
        """The file for reading alone, wherever it lies; None when there is none or it is empty."""
        if not file.is_file():
            return None
        address = file.resolve().as_uri() + "?mode=ro"
        for more in ("", "&immutable=1"):  # the second needs no files next to it, so no writing
            connection = sqlite3.connect(
                address + more, uri=True, timeout=_BUSY_SECONDS, isolation_level=None
            )
            database = cls(file, connection)
            try:
                if database._check() == 0:
                    connection.close()
                    return None
                return database
            except StoreError as error:
                connection.close()
                if more or _code(error.__cause__) not in _NOT_WRITABLE:
                    raise
        raise AssertionError("the loop returns or raises")

    def close(self) -> None:
        self._connection.close()

    def execute(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._connection.execute(sql, values)

    def executemany(self, sql: str, values: Iterable[Sequence[Any]]) -> sqlite3.Cursor:
        return self._connection.executemany(sql, values)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction: all of it or none of it."""
        with as_sentences(self.file):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Several questions to one state of the store, whatever is written meanwhile."""
        with as_sentences(self.file):
            try:
                self._connection.execute("BEGIN")
                yield
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def damaged(self, detail: str) -> StoreError:
        """What to raise when the content of the file is wrong."""
        return StoreError(_damaged(self.file, detail))

    def _prepare(self) -> None:
        """Check the file, or make the tables in an empty one."""
        self._check()
        with as_sentences(self.file):
            if self.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                self.execute("PRAGMA journal_mode = WAL")
            self.execute("PRAGMA synchronous = FULL")  # a finished unit may have cost hours
            self.execute("PRAGMA foreign_keys = ON")
        with self.writing():
            if self.execute("PRAGMA user_version").fetchone() == (0,):
                for table in _TABLES:
                    self.execute(table)
                self.raise_schema()

    def raise_schema(self) -> None:
        """Say that the file is as this Triptych writes it; inside a transaction."""
        self.execute(f"PRAGMA user_version = {SCHEMA}")
        self.schema = SCHEMA

    def _check(self) -> int:
        """The schema, 0 in an empty file; a damaged, newer or foreign file is refused."""
        with self.reading():
            (version,) = self.execute("PRAGMA user_version").fetchone()
            (tables,) = self.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            if 0 < version < _OLDEST:
                raise StoreError(
                    f"{self.file} was written by an older Triptych, whose rows have no types "
                    f"(schema {version}; this one needs {SCHEMA}): run into another folder, or "
                    "move that one away"
                )
            if version > SCHEMA:
                raise StoreError(
                    f"{self.file} was written by a newer Triptych (schema {version}; this one "
                    f"knows {SCHEMA}): upgrade Triptych, or run into another folder"
                )
            if version == 0 and tables:
                raise StoreError(
                    f"{self.file} is an SQLite file of another program: run into another folder"
                )
            (answer,) = self.execute("PRAGMA quick_check(1)").fetchone()
        if answer != "ok":
            raise StoreError(_damaged(self.file, answer.splitlines()[-1]))
        self.schema = version
        return version


@contextmanager
def as_sentences(file: Path) -> Iterator[None]:
    """Turn what the disk and SQLite complain of into one sentence with a remedy."""
    try:
        yield
    except UnicodeDecodeError as error:  # of SQLite's own words on a damaged file
        raise StoreError(_damaged(file, str(error))) from error
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


def _damaged(file: Path, detail: str) -> str:
    return (
        f"{file} is damaged ({detail}): it was left as it is; move it away to start again, or "
        f"try `sqlite3 {file.name} .recover` to get its content out"
    )


def _code(error: BaseException | None) -> int:
    """SQLite's primary result code; 0 when there is none."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF

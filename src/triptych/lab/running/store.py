"""The store: one SQLite file in a run folder that holds every unit and its rows.

A unit and its rows are written in one transaction, so a run that is killed leaves whole units only.
Rows are JSON texts. Python's JSON writes nan, inf and -inf as NaN, Infinity and -Infinity and reads
them back as they were, and a float comes back bit for bit.

    units     one line per unit: what it is, where it stands, what it cost, which code made it
    rows      one line per row of a finished unit, numbered in the study's order
    studies   of a user's own studies, what the last run of each concluded (see `lab/results`)

A finished unit has a checksum of its rows and of all that is stored with them (`checksums`). One
that was changed or lost rows counts as failed, so that the next run does it again.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from triptych.core.errors import UserError
from triptych.lab.running.checksums import (
    COVERED,
    Fields,
    checksum_of,
    checksum_of_rows,
    holds,
    read_fields,
)
from triptych.lab.running.database import SCHEMA, Database, StoreError
from triptych.lab.running.fingerprint import Code, same_study_code
from triptych.lab.running.plan import PlannedUnit
from triptych.studies.api.records import to_json
from triptych.studies.api.study import AnyStudy, Scale, Settings, short_labels, unit_text

FILE = "results.sqlite"

UnitStatus = Literal["pending", "running", "done", "failed"]
JsonRow = dict[str, Any]

_COLUMNS = f"{COVERED}, status, checksum, current"
_UNIT = "study = ? AND scale = ? AND key = ?"
_LOST = "what is stored of it was changed or lost; the next run does it again"


class StoredUnit(NamedTuple):
    """A unit as the store knows it.

    settings
        Those of the plan under which it was run, or last planned if it has not run yet.
    seconds, ... finished_at
        Of its last attempt; None or empty before the first. Times are UTC in ISO format.
    code
        What made its rows; None before its first attempt.
    rows
        As JSON, in the order the study gave them; empty unless `status` is "done".
    current
        Whether the last plan of this study and scale contains the unit.
    """

    study: str
    scale: Scale
    key: str
    parameters: dict[str, Any]
    seed: int
    settings: dict[str, Any]
    status: UnitStatus
    seconds: float | None
    error: str | None
    device: str | None
    versions: dict[str, str]
    rows: list[JsonRow]
    revision: int = 1
    code: Code | None = None
    current: bool = True
    started_at: str | None = None
    finished_at: str | None = None

    def __str__(self) -> str:
        return unit_text(self.parameters, self.seed)


class StudyProgress(NamedTuple):
    """How far a study is at one scale: its current units by status, and when the last one ended.

    running
        The units that run now: their seeds, and the parameters in which the units differ.
    """

    study: str
    scale: Scale
    done: int
    failed: int
    pending: int
    running: list[str]
    finished_at: str | None

    @property
    def planned(self) -> int:
        return self.done + self.failed + self.pending + len(self.running)


class Store:
    """Units and rows in `folder/results.sqlite`. One process writes; any number may read."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder
        self._db = database

    @classmethod
    def open(cls, folder: Path) -> "Store":
        """The store of a run folder, made if there is none yet."""
        store = cls(folder, Database.open(folder / FILE))
        try:
            if store._db.schema < SCHEMA:
                store._sum_all()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def read(cls, folder: Path) -> "Store":
        """The store of a run folder for reading alone: it may lie where nothing can be written."""
        database = Database.read(folder / FILE)
        if database is None:
            raise StoreError(
                f"there are no results in {folder}: run a study into that folder first"
            )
        return cls(folder, database)

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def plan(
        self,
        study: str,
        scale: Scale,
        settings: Settings,
        units: Sequence[PlannedUnit],
        revision: int = 1,
    ) -> list[StoredUnit]:
        """Make these units the current ones of a study and scale; returned in their order.

        A unit that is done stays done, with the settings it was run under. A unit that is not
        among them any more stays in the store and is marked as not current. One that is not what
        was stored is marked as failed.
        """
        text = json.dumps(to_json(settings))
        lines = [
            (study, scale.value, u.key, place, json.dumps(u.parameters), u.seed, text, revision)
            for place, u in enumerate(units)
        ]
        keys = [unit.key for unit in units]
        if len(set(keys)) < len(keys):
            twice = next(unit for unit in units if keys.count(unit.key) > 1)
            raise UserError(
                f"study {study} plans the unit ({twice}) twice; each must be distinct",
                parameter="study",
            )
        again = ("parameters", "seed", "settings", "revision")
        kept = ", ".join(
            f"{name} = CASE status WHEN 'done' THEN {name} ELSE excluded.{name} END"
            for name in again
        )
        with self._db.writing():
            texts = self._texts(study, scale.value)
            self._db.executemany(
                f"UPDATE units SET status = 'failed', error = '{_LOST}' WHERE {_UNIT}",
                [
                    (study, scale.value, line["key"])
                    for line in self._lines(study, scale.value)
                    if not _is_whole(line, texts.get(line["key"], []))
                ],
            )
            self._db.execute(
                "UPDATE units SET current = 0 WHERE study = ? AND scale = ?", (study, scale.value)
            )
            self._db.executemany(
                f"""INSERT INTO units
                   (study, scale, key, place, current, parameters, seed, settings, revision, status)
                   VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, 'pending')
                   ON CONFLICT DO UPDATE SET place = excluded.place, current = 1, {kept}""",
                lines,
            )
        return self.units(study, scale)

    def reset(self, units: Sequence[StoredUnit]) -> None:
        """Forget the rows of these units, so that they are run again."""
        with self._db.writing():
            for unit in units:
                self._db.execute(f"DELETE FROM rows WHERE {_UNIT}", _name(unit))
                self._db.execute(
                    f"""UPDATE units SET status = 'pending', seconds = NULL, error = NULL,
                        code = '{{}}', checksum = NULL, started_at = NULL, finished_at = NULL
                        WHERE {_UNIT}""",
                    _name(unit),
                )

    def start(self, unit: StoredUnit, device: str, versions: Mapping[str, str], code: Code) -> None:
        """Mark a unit as running, by this code."""
        with self._db.writing():
            changed = self._db.execute(
                f"""UPDATE units SET status = 'running', device = ?, versions = ?, code = ?,
                    started_at = ?, finished_at = NULL, seconds = NULL, error = NULL
                    WHERE {_UNIT} AND status IN ('pending', 'failed')""",
                (
                    device,
                    json.dumps(dict(versions)),
                    json.dumps(code._asdict()),
                    _now(),
                    *_name(unit),
                ),
            ).rowcount
            _expect(changed, unit, "started", "pending")

    def finish(
        self, unit: StoredUnit, rows: Sequence[JsonRow], seconds: float, device: str | None = None
    ) -> None:
        """Write a running unit's rows and mark it as done, both or neither.

        device
            Where it computed, if that is known better now than when it began.
        """
        with self._db.writing():
            self._end(unit, "done", seconds, None)
            if device is not None:
                self._db.execute(
                    f"UPDATE units SET device = ? WHERE {_UNIT}", (device, *_name(unit))
                )
            self._write_rows(unit, [json.dumps(row) for row in rows])

    def put(self, units: Sequence[StoredUnit]) -> None:
        """Write units that were done elsewhere, with their rows: all of them or none.

        A unit that is known keeps its place in the plan; its rows are replaced. For a new one
        `current` says whether it counts as planned.
        """
        with self._db.writing():
            for place, unit in enumerate(units):
                code = unit.code._asdict() if unit.code else {}
                texts = map(json.dumps, (unit.parameters, unit.settings, unit.versions, code))
                cost = (unit.seconds, unit.device, unit.finished_at, unit.revision)
                self._db.execute(
                    """INSERT INTO units (study, scale, key, place, current, seed, seconds, device,
                       finished_at, revision, status, parameters, settings, versions, code)
                       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'done', ?, ?, ?, ?)
                       ON CONFLICT DO UPDATE SET settings = excluded.settings, status = 'done',
                       parameters = excluded.parameters, seed = excluded.seed,
                       revision = excluded.revision,
                       seconds = excluded.seconds, device = excluded.device, error = NULL,
                       versions = excluded.versions, code = excluded.code, started_at = NULL,
                       finished_at = excluded.finished_at""",
                    (*_name(unit), place, unit.current, unit.seed, *cost, *texts),
                )
                self._write_rows(unit, [json.dumps(row) for row in unit.rows])

    def _write_rows(self, unit: StoredUnit, texts: Sequence[str]) -> None:
        self._db.execute(f"DELETE FROM rows WHERE {_UNIT}", _name(unit))
        self._db.executemany(
            "INSERT INTO rows (study, scale, key, number, row) VALUES (?, ?, ?, ?, ?)",
            [(*_name(unit), number, text) for number, text in enumerate(texts)],
        )
        self._db.execute(
            f"UPDATE units SET checksum = ? WHERE {_UNIT}",
            (checksum_of(self._line(unit), texts), *_name(unit)),
        )

    def _sum_all(self) -> None:
        """Make checksums of whole units where there were those of rows alone, and these hold."""
        with self._db.writing():
            pairs = self._db.execute("SELECT DISTINCT study, scale FROM units").fetchall()
            for study, scale in pairs:
                texts = self._texts(study, scale)
                self._db.executemany(
                    f"UPDATE units SET checksum = ? WHERE {_UNIT} AND checksum = ?",
                    [
                        (checksum_of(line, rows), study, scale, line["key"], checksum_of_rows(rows))
                        for line in self._lines(study, scale)
                        for rows in [texts.get(line["key"], [])]
                        if line["status"] == "done"
                    ],
                )
            self._db.raise_schema()

    def fail(self, unit: StoredUnit, error: str, seconds: float) -> None:
        """Mark a running unit as failed, with the reason."""
        with self._db.writing():
            self._end(unit, "failed", seconds, error)

    def _end(self, unit: StoredUnit, status: UnitStatus, seconds: float, error: str | None) -> None:
        changed = self._db.execute(
            f"""UPDATE units SET status = ?, seconds = ?, error = ?, finished_at = ?
                WHERE {_UNIT} AND status = 'running'""",
            (status, seconds, error, _now(), *_name(unit)),
        ).rowcount
        _expect(changed, unit, "ended", "running")

    def reset_running(self) -> int:
        """Make every running unit pending again; only for a caller that holds the folder's lock."""
        with self._db.writing():
            return self._db.execute(
                "UPDATE units SET status = 'pending', started_at = NULL WHERE status = 'running'"
            ).rowcount

    def studies(self) -> list[tuple[str, Scale]]:
        """Every study and scale that was planned in this store."""
        with self._db.reading():
            found = self._db.execute(
                "SELECT DISTINCT study, scale FROM units ORDER BY study, scale"
            ).fetchall()
        return [(study, self._scale(scale)) for study, scale in found]

    def progress(self) -> list[StudyProgress]:
        """How far every study is, without reading any rows."""
        with self._db.reading():
            counts = self._db.execute(
                """SELECT study, scale, status, COUNT(*), MAX(finished_at) FROM units
                   WHERE current = 1 GROUP BY study, scale, status ORDER BY study, scale"""
            ).fetchall()
            units = self._db.execute(
                """SELECT study, scale, status, parameters, seed FROM units
                   WHERE current = 1 AND (study, scale) IN
                     (SELECT study, scale FROM units WHERE current = 1 AND status = 'running')
                   ORDER BY place, key"""
            ).fetchall()
        found: dict[tuple[str, str], dict[str, tuple[int, str | None]]] = {}
        for study, scale, status, count, last in counts:
            found.setdefault((study, scale), {})[status] = (count, last)
        running = self._running(units)
        return [
            StudyProgress(
                study,
                self._scale(scale),
                done=by_status.get("done", (0, None))[0],
                failed=by_status.get("failed", (0, None))[0],
                pending=by_status.get("pending", (0, None))[0],
                running=running.get((study, scale), []),
                finished_at=max((last for _, last in by_status.values() if last), default=None),
            )
            for (study, scale), by_status in found.items()
        ]

    def _running(self, units: Sequence[Sequence[Any]]) -> dict[tuple[str, str], list[str]]:
        """The units that run now as text, told from the other units of their study and scale."""
        together: dict[tuple[str, str], list[tuple[dict[str, Any], int]]] = {}
        statuses: dict[tuple[str, str], list[str]] = {}
        for study, scale, status, parameters, seed in units:
            fields = self._json(parameters, f"the parameters of a unit of {study}")
            together.setdefault((study, scale), []).append((fields, seed))
            statuses.setdefault((study, scale), []).append(status)
        found = {}
        for name, own in together.items():
            labelled = zip(short_labels(own), statuses[name], strict=True)
            found[name] = [label for label, status in labelled if status == "running"]
        return found

    def units(self, study: str, scale: Scale, *, outdated: bool = False) -> list[StoredUnit]:
        """The current units in plan order; with `outdated` the ones no longer planned follow."""
        with self._db.reading():
            lines = self._lines(study, scale.value, outdated=outdated)
            texts = self._texts(study, scale.value)
        return [self._unit(scale, line, texts.get(line["key"], [])) for line in lines]

    def _lines(self, study: str, scale: str, *, outdated: bool = True) -> list[dict[str, Any]]:
        """The lines of units as they are stored, in the order of the plan."""
        lines = self._db.execute(
            f"""SELECT {_COLUMNS} FROM units WHERE study = ? AND scale = ? AND current >= ?
                ORDER BY current DESC, place, key""",
            (study, scale, 0 if outdated else 1),
        ).fetchall()
        return [dict(zip(_COLUMNS.split(", "), line, strict=True)) for line in lines]

    def _line(self, unit: StoredUnit) -> dict[str, Any]:
        found = self._db.execute(f"SELECT {_COLUMNS} FROM units WHERE {_UNIT}", _name(unit))
        return dict(zip(_COLUMNS.split(", "), found.fetchone(), strict=True))

    def _texts(self, study: str, scale: str) -> dict[str, list[str]]:
        """The texts of rows by the keys of their units."""
        rows = self._db.execute(
            "SELECT key, row FROM rows WHERE study = ? AND scale = ? ORDER BY key, number",
            (study, scale),
        )
        by_key: dict[str, list[str]] = {}
        for key, row in rows:
            by_key.setdefault(key, []).append(row)
        return by_key

    def _unit(self, scale: Scale, line: Mapping[str, Any], texts: Sequence[str]) -> StoredUnit:
        """A unit of its line and the texts of its rows; failed if they are not what was stored."""
        facts = {name: value for name, value in line.items() if name != "checksum"}
        facts |= {"scale": scale, "current": bool(line["current"])}
        facts |= (read_fields(line) or Fields({}, {}, {}, None))._asdict()
        if not _is_whole(line, texts):
            return StoredUnit(**facts | {"status": "failed", "error": _LOST, "rows": []})
        rows = [self._json(text, f"a row of {line['study']}") for text in texts]
        return StoredUnit(**facts, rows=rows if line["status"] == "done" else [])

    def _scale(self, text: Any) -> Scale:
        try:
            return Scale(text)
        except ValueError as error:
            raise self._db.damaged(f"a unit has the scale {text!r}") from error

    def _json(self, text: str, what: str) -> Any:
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise self._db.damaged(f"{what} is no JSON: {text[:40]!r}") from error

    def digest(self, study: str, scale: Scale) -> str:
        """Digest of all that is stored of a study at one scale, as it is stored."""
        with self._db.reading():
            lines = self._lines(study, scale.value, outdated=False)
            texts = self._texts(study, scale.value)
        kept = hashlib.sha256()
        for line in lines:
            kept.update(ascii([*line.values(), *texts.get(line["key"], [])]).encode())
        return kept.hexdigest()

    def rows(self, study: str | AnyStudy, scale: Scale) -> list[JsonRow]:
        """The rows of the current units that are done, as JSON, in plan order."""
        name = study if isinstance(study, str) else study.name
        return [row for unit in self.units(name, scale) for row in unit.rows]

    def frame(
        self, study: str | AnyStudy, scale: Scale | None = None, kind: str | None = None
    ) -> Any:
        """The rows of a study as a pandas DataFrame, a column per field.

        scale
            Of all scales in the store if None; the column `scale` tells them apart.
        kind
            The rows of one class alone, whose columns are then all filled.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise UserError(
                "Store.frame needs pandas: pip install pandas, or use `triptych rows --csv`"
            ) from error
        return pandas.DataFrame(self.records(study, scale, kind))

    def records(
        self, study: str | AnyStudy, scale: Scale | None = None, kind: str | None = None
    ) -> list[JsonRow]:
        """The rows of a study, each with its scale and its unit's key and seed, for a table."""
        name = study if isinstance(study, str) else study.name
        known = [(at, self.units(name, at)) for other, at in self.studies() if other == name]
        if not known:
            raise StoreError(f"{self.folder} has no rows of study {name}: run it there first")
        found = [each for at, units in known if scale in (None, at) for each in records_of(units)]
        return of_kind(found, kind, name)

    def remember(self, study: str, scale: Scale, content: Mapping[str, Any]) -> None:
        """Keep what a run of a user's own study concluded, for reports without its file."""
        with self._db.writing():
            self._db.execute(
                "INSERT OR REPLACE INTO studies (study, scale, content) VALUES (?, ?, ?)",
                (study, scale.value, json.dumps(content)),
            )

    def remembered(self) -> dict[tuple[str, Scale], dict[str, Any]]:
        """What was kept of users' own studies, by study and scale."""
        with self._db.reading():
            found = self._db.execute("SELECT study, scale, content FROM studies").fetchall()
        return {
            (study, self._scale(scale)): self._json(text, f"what is kept of {study}")
            for study, scale, text in found
        }


def made_before_an_edit(units: Sequence[StoredUnit], code: Code) -> list[StoredUnit]:
    """The finished units whose rows were made by other code of the study than today's."""
    return [
        unit
        for unit in units
        if unit.status == "done" and unit.code and not same_study_code(unit.code, code)
    ]


def records_of(units: Iterable[StoredUnit]) -> list[JsonRow]:
    """The rows of units for a table, each with its scale and its unit's key and seed."""
    return [
        {"scale": unit.scale.value, "unit": unit.key, "seed": unit.seed} | row
        for unit in units
        for row in unit.rows
    ]


def of_kind(records: Sequence[JsonRow], kind: str | None, study: str) -> list[JsonRow]:
    """The records of one class of rows; a class that none of them has is refused."""
    kinds = dict.fromkeys(row["kind"] for row in records)
    if kind is not None and kind not in kinds:
        raise StoreError(f"{study} has no rows of kind {kind!r}; it has {', '.join(kinds)}")
    return [row for row in records if kind in (None, row["kind"])]


def _is_whole(line: Mapping[str, Any], texts: Sequence[str]) -> bool:
    """Whether a unit can be read and, if it is done, is what was stored."""
    if line["status"] not in get_args(UnitStatus) or read_fields(line) is None:
        return False
    return line["status"] != "done" or holds(line["checksum"], line, texts)


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

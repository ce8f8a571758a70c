"""The line of a unit in the store: its checksum, and its JSON read and checked.

The checksum of a finished unit is of its rows and of all that is stored with them. What the
plan says of a unit (its place, and whether it is current) is written by every run and is not
covered. Older stores have checksums of the rows alone.
"""

import hashlib
import json
import typing
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from triptych.lab.running.fingerprint import Code

COVERED = (
    "study, scale, key, parameters, seed, settings, revision, seconds, error, device, versions, "
    "code, started_at, finished_at"
)
_PREFIX = "unit:"


class Fields(NamedTuple):
    """What stands in a unit's line as JSON."""

    parameters: dict[str, Any]
    settings: dict[str, Any]
    versions: dict[str, str]
    code: Code | None


def checksum_of(line: Mapping[str, Any], rows: Iterable[str]) -> str:
    """The checksum of a unit: of its line, as the database has it, and of its rows' texts."""
    facts = ascii([line[name] for name in COVERED.split(", ")])
    return _PREFIX + _digest([facts, *map(str, rows)], 32)


def checksum_of_rows(rows: Iterable[str]) -> str:
    """The checksum of older stores."""
    return _digest(map(str, rows), 16)


def holds(checksum: object, line: Mapping[str, Any], rows: Iterable[str]) -> bool:
    """Whether a finished unit is what was stored."""
    whole = isinstance(checksum, str) and checksum.startswith(_PREFIX)
    return checksum == (checksum_of(line, rows) if whole else checksum_of_rows(rows))


def read_fields(line: Mapping[str, Any]) -> Fields | None:
    """The line's JSON; None if it is damaged."""
    try:
        found = {name: json.loads(line[name]) for name in Fields._fields}
    except (ValueError, TypeError):
        return None
    if not all(isinstance(value, dict) for value in found.values()):
        return None
    try:
        code = read_code(found.pop("code"))
    except ValueError:
        return None
    return Fields(**found, code=code)


def read_code(stored: Mapping[str, Any] | None) -> Code | None:
    """What made a unit, from JSON; None where that is not known.

    A field that is missing has its default. One that a newer Triptych wrote is left out. A field of
    another type is a ValueError, as is a missing one without a default.
    """
    if not stored:
        return None
    known = {name: stored[name] for name in Code._fields if name in stored}
    missing = set(Code._fields) - set(Code._field_defaults) - set(known)
    if missing:
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    types = typing.get_type_hints(Code)
    for name, value in known.items():
        if type(value) is not types[name]:
            raise ValueError(f"{name} is {str(value)[:60]!r}")
    return Code(**known)


def _digest(texts: Iterable[str], digits: int) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:digits]

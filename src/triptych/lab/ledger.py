"""The ledger: every published result to reproduce, whether or not a study exists for it yet.

The text is `claims.toml` beside this file. An entry names its source as `work:section`, for
instance `li:2.1.7.1`; `work` and `part` cut that into the shelves that people browse by.
"""

import re
import tomllib
from importlib.resources import files
from typing import Any, NamedTuple

KINDS = {
    "theorem": "An exact statement: its objects are built and checked to float64 accuracy.",
    "number": "A published value to land near; the judge states its tolerance.",
    "direction": "An ordering or trend that must hold beyond noise: the 95 % interval excludes 0.",
    "picture": "A figure to look at, always with a number that summarises it.",
}

WORKS = {"wei": "Wei, Xie and Ma 2021", "li": "Li 2025"}

PARTS = {
    "wei:3": "hidden Markov models",
    "wei:4": "memory",
    "wei:5": "experiments",
    "wei:B": "proofs, hidden Markov models",
    "wei:C": "proofs, memory",
    "li:2.1": "topics",
    "li:2.2": "Dyck languages",
    "li:3": "verifiers",
    "li:4": "masking and parallel decoding",
}


class Entry(NamedTuple):
    """One published result.

    source is `work:section`; setting is what the source used; published are its values as printed,
    or None where it prints none.
    """

    id: str
    kind: str
    title: str
    source: str
    setting: str = ""
    published: dict[str, Any] | None = None


def load_ledger() -> list[Entry]:
    """Every entry of the packaged ledger, in its order."""
    return parse_ledger(files("triptych.lab").joinpath("claims.toml").read_text("utf-8"))


def parse_ledger(text: str) -> list[Entry]:
    """The entries of a ledger in TOML; a doubled id, an unknown kind, key or source explodes."""
    entries: list[Entry] = []
    seen: set[str] = set()
    for raw in tomllib.loads(text)["claim"]:
        name = raw.get("id", f"number {len(entries) + 1}")
        unknown = sorted(set(raw) - set(Entry._fields))
        missing = sorted({"id", "kind", "title", "source"} - set(raw))
        if unknown or missing:
            raise ValueError(f"ledger entry {name}: unknown keys {unknown}, missing {missing}")
        if raw["kind"] not in KINDS:
            raise ValueError(f"ledger entry {name}: kind {raw['kind']!r} is not in {list(KINDS)}")
        if part(raw["source"]) not in PARTS:
            raise ValueError(f"ledger entry {name}: source {raw['source']!r} is in no part of it")
        if name in seen:
            raise ValueError(f"ledger entry {name} appears twice")
        seen.add(name)
        entries.append(Entry(**raw))
    return entries


def work(source: str) -> str:
    """`wei` or `li`."""
    return source.partition(":")[0]


def part(source: str) -> str:
    """The shelf of a source: `li:2.1.7.1` is in `li:2.1`, `li:3.2.2` in `li:3`."""
    name, _, section = source.partition(":")
    numbers = re.findall(r"[A-Z]|\d+", section.split(",")[0].split(" ")[0])
    deep = 2 if numbers[:1] == ["2"] else 1
    return f"{name}:{'.'.join(numbers[:deep])}"

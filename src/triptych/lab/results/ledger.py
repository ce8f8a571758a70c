"""The ledger: every published result to reproduce, whether or not a study exists for it yet.

The text is `claims.toml` next to this file; `claims_diffusion.toml` has what goes beyond the two
works, on diffusion language models. An entry names its source as `work:section`, for
instance `li:2.1.7.1`; `work` and `part` cut that into the shelves that people browse by. A user's
own claims are entries too: they are given with the claim in the study's file, or in a `claims.toml`
next to that file, and are listed apart.
"""

import dataclasses
import re
import tomllib
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from triptych.core.errors import UserError
from triptych.studies.api.study import AnyStudy

KINDS = {
    "theorem": "An exact statement: its objects are built and checked to float64 accuracy.",
    "number": "A published value to land near; the judge states its tolerance.",
    "direction": "An ordering or trend that must hold beyond noise: the 95 % interval excludes 0.",
    "picture": "A figure to look at, always with a number that summarises it.",
}

WORKS = {
    "wei": "Wei, Xie and Ma 2021",
    "li": "Li 2025",
    "diffusion": "Diffusion language models",
}
FILES = ("claims.toml", "claims_diffusion.toml")

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
    "diffusion:1": "samplers",
    "diffusion:2": "tasks on lists",
}


SCOPES = {
    "as published": "Data, model and training are those of the source, up to what is named.",
    "scaled down": "The same kind of data, model and training, smaller or shorter.",
    "transferred": "Another model or other data.",
}
EVIDENCE_SCALES = ("laptop", "paper")  # a smoke run says nothing, and needs no scope

CHAPTERS = ("tuning", "topics", "brackets", "generation", "masking", "refinement")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One result.

    source
        `work:section` of a published result; whatever a user writes for one of their own.
    setting
        What the source used.
    published
        Its values as printed, or None where it prints none.
    remark
        What there is to say about the proof, a constant, an edge case or a caption. The verdict is
        about the statement alone.
    extension
        It is not a published result but one that goes beyond; it does not count among those.
    scope
        Where its verdict stands, by scale: one of `SCOPES`. In TOML one text is for all scales.
        Bundled rows with a label may have their own, as `longer.paper`.
    differs
        What differs from the source, by the same keys: data, model, training. Empty only where the
        scope is "as published".
    """

    id: str
    kind: str
    title: str
    source: str
    setting: str = ""
    published: dict[str, Any] | None = None
    remark: str = ""
    extension: bool = False
    scope: dict[str, str] = dataclasses.field(default_factory=dict)
    differs: dict[str, str] = dataclasses.field(default_factory=dict)


_FIELDS = {field.name for field in dataclasses.fields(Entry)}


def load_ledger() -> list[Entry]:
    """Every entry of the packaged ledger, in its order."""
    folder = files("triptych.lab.results")
    entries = parse_ledger("".join(folder.joinpath(name).read_text("utf-8") for name in FILES))
    for entry in entries:
        if part(entry.source) not in PARTS:
            raise ValueError(
                f"ledger entry {entry.id}: source {entry.source!r} is in no part of it"
            )
    return entries


def parse_ledger(text: str, where: str = "the ledger") -> list[Entry]:
    """The entries of a ledger in TOML; a doubled id, an unknown kind or key is refused."""
    try:
        claims = tomllib.loads(text).get("claim", [])
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{where} is not TOML: {error}") from error
    entries: dict[str, Entry] = {}
    for raw in claims:
        name = raw.get("id", f"number {len(entries) + 1}")
        unknown = sorted(set(raw) - _FIELDS)
        missing = sorted({"id", "kind", "title"} - set(raw))
        if unknown or missing:
            raise UserError(f"{where}, entry {name}: unknown keys {unknown}, missing {missing}")
        if raw["kind"] not in KINDS:
            raise UserError(f"{where}, entry {name}: kind {raw['kind']!r} is not in {list(KINDS)}")
        if name in entries:
            raise UserError(f"{where}: entry {name} appears twice")
        scope, differs = _by_scale(raw.get("scope", {})), _by_scale(raw.get("differs", {}))
        entry = Entry(**{"source": ""} | raw | {"scope": scope, "differs": differs})
        _check_scope(entry, where)
        entries[name] = entry
    return list(entries.values())


def _by_scale(said: str | dict[str, str]) -> dict[str, str]:
    return dict.fromkeys(EVIDENCE_SCALES, said) if isinstance(said, str) else said


def _check_scope(entry: Entry, where: str) -> None:
    """A scope is one of three, and what is not as published says what differs."""
    keys = set(entry.scope) | set(entry.differs)
    unknown = sorted(key for key in keys if key.rpartition(".")[2] not in EVIDENCE_SCALES)
    if unknown:
        raise UserError(
            f"{where}, entry {entry.id}: scope or differs is of {unknown}, which are no scales "
            f"with evidence ({', '.join(EVIDENCE_SCALES)})",
            parameter="entry",
        )
    for scale, scope in entry.scope.items():
        if scope not in SCOPES:
            raise UserError(
                f"{where}, entry {entry.id}: scope {scope!r} is not in {list(SCOPES)}",
                parameter="entry",
            )
        if scope != "as published" and not entry.differs.get(scale):
            raise UserError(
                f"{where}, entry {entry.id}: scope.{scale} is {scope}, so `differs` must say "
                "what differs from the source",
                parameter="entry",
            )


def own_entries(study: AnyStudy, file: Path) -> list[Entry]:
    """The entries of the claims of a user's own study.

    A title stands with the claim or in `claims.toml` next to the file. A published id is refused:
    those are judged by their own studies alone.
    """
    published = {entry.id for entry in load_ledger()}
    beside = file.parent / "claims.toml"
    known = {}
    if beside.is_file():
        known = {e.id: e for e in parse_ledger(beside.read_text("utf-8"), str(beside))}
    entries = []
    for claim in study.claims:
        if claim.id in published:
            raise UserError(
                f"study {study.name} has a claim {claim.id!r}, which is a published result and "
                "judged by its own study alone: give yours another id",
                parameter="study",
            )
        if claim.title:
            values = dict(claim.published) if claim.published is not None else None
            entry = Entry(claim.id, claim.kind, claim.title, claim.source, published=values)
            if claim.kind not in KINDS:
                raise UserError(f"claim {claim.id}: kind {claim.kind!r} is not in {list(KINDS)}")
        elif claim.id in known:
            entry = known[claim.id]
        else:
            raise UserError(
                f"claim {claim.id!r} of study {study.name} has no title: write "
                f"Claim({claim.id!r}, ..., title=...), or an entry in {beside}",
                parameter="study",
            )
        entries.append(entry)
    return entries


def counted(entries: Iterable[Entry]) -> int:
    """How many are published results."""
    return sum(not entry.extension for entry in entries)


def work(source: str) -> str:
    """`wei`, `li` or `diffusion`."""
    return source.partition(":")[0]


def part(source: str) -> str:
    """The shelf of a source: `li:2.1.7.1` is in `li:2.1`, `li:3.2.2` in `li:3`."""
    name, _, section = source.partition(":")
    numbers = re.findall(r"[A-Z]|\d+", section.split(",")[0].split(" ")[0])
    deep = 2 if numbers[:1] == ["2"] else 1
    return f"{name}:{'.'.join(numbers[:deep])}"


def chapter(source: str) -> str:
    """The chapter of a source: `li:2.1.7.1` is in topics, `li:4.2.3` in refinement."""
    section = source.partition(":")[2]
    if work(source) == "wei":
        return "tuning"
    if work(source) == "diffusion":
        return "masking"
    if work(source) != "li":
        return ""
    if re.match(r"4\.2\.[234]|4 \(contributions\)", section):
        return "refinement"
    starts = {"2.1": "topics", "2.2": "brackets", "3": "generation", "4": "masking"}
    return next((name for start, name in starts.items() if section.startswith(start)), "")

"""Bundled evidence: rows, nearly all of the largest runs, as files of JSON next to the code.

`evidence/STUDY.SCALE.json.xz` holds finished units of one study at one scale, as compressed JSON.
A plain `STUDY.SCALE.json` is read too. `export` writes the units of a run folder. `bring_in` puts
them into one, so that a run continues from them. Units of other settings that are worth a verdict
of their own lie in `STUDY.LABEL.SCALE.json.xz`: a file that holds no unit of the study's plan, or
the whole plan and more, is judged under its own settings.

    format, study, scale
    settings    of the run that was exported last
    units       parameters, seed, revision, settings, seconds, device, versions, code, finished_at,
                rows

Units are ordered by parameters and seed, and everything inside a unit is as the study gave it, a
line for each row: the same units are the same bytes, and a new unit is a few new lines. Numbers are
as in the store: bit for bit, with NaN, Infinity and -Infinity where JSON has no form for them.
`triptych evidence NAME` prints the JSON of a file.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from triptych.core.errors import UserError
from triptych.core.files import lock_folder
from triptych.lab.results.packed import (
    ENDING,
    NotUnpacked,
    beginning,
    called,
    read,
    write,
)
from triptych.lab.running.checksums import read_code
from triptych.lab.running.discovery import find_studies
from triptych.lab.running.fingerprint import Code, code_of, same_code
from triptych.lab.running.plan import Plan, PlannedUnit
from triptych.lab.running.store import Store, StoredUnit
from triptych.studies.api.names import check_name
from triptych.studies.api.records import from_json, to_json
from triptych.studies.api.study import AnyStudy, Scale, unit_key

FORMAT = 2
FOLDER = "evidence"
IMPORTED = "imported"  # among the versions of a unit that came from a file
_FILE_FIELDS = {"format": int, "study": str, "scale": str, "settings": dict, "units": list}
_UNIT_FIELDS = {
    "parameters": dict,
    "seed": int,
    "revision": int,
    "settings": dict,
    "seconds": int | float | None,
    "device": str | None,
    "versions": dict,
    "code": dict | None,
    "finished_at": str | None,
    "rows": list,
}


class EvidenceError(UserError):
    """A file of evidence cannot be used; the sentence says why."""


class Evidence(NamedTuple):
    """The content of one file: units that are done, in the file's order."""

    study: str
    scale: Scale
    settings: dict[str, Any]
    units: list[StoredUnit]


class Layout(NamedTuple):
    """Evidence laid over the plan of its study.

    plan
        The study's own at this scale; or with the file's settings, where none of its units belongs
        to the study's own.
    units
        One for each that is planned, in that order; pending where the file does not have it.
    others
        Units of the file that are not planned: they were made with other settings.
    """

    plan: Plan
    units: list[StoredUnit]
    others: list[StoredUnit]


def folder(package: Path | None = None) -> Path | None:
    """Where the evidence lies: in the checkout or inside the installed package; None if nowhere."""
    package = package or Path(__file__).resolve().parents[2]
    root = package.parents[1]
    checkout = package.parent.name == "src" and (root / "pyproject.toml").is_file()
    found = (root if checkout else package) / FOLDER
    return found if found.is_dir() else None


def files(where: Path | None) -> list[Path]:
    """The files of study evidence in a folder; other files there are not ours to read.

    By study, and the file of its own plan before those with a label. One that is there both
    compressed and plain is an error: which of them would count?
    """
    found = _files(where)
    names = [called(path) for path in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise EvidenceError(
            f"{where} has {twice} and {twice}{ENDING}: `triptych evidence --pack {where}` makes "
            "one file of them"
        )
    return found


def _files(where: Path | None) -> list[Path]:
    endings = tuple(f".{scale.value}.json" for scale in Scale)
    found = [path for path in where.iterdir() if called(path).endswith(endings)] if where else []
    return sorted(found, key=lambda path: (path.name.split(".")[0], called(path).count("."), path))


def file_name(study: str, scale: Scale) -> str:
    """What the file of a study is called: exact_heads.paper.json, compressed or not."""
    return f"{study.replace('/', '.')}.{scale.value}.json"


def named(name: str) -> Path:
    """A file, or one that came with Triptych by its name: exact_heads.paper."""
    for path in (Path(name), Path(f"{name}{ENDING}")):
        if path.is_file():
            return path
    known = {called(kept).removesuffix(".json"): kept for kept in files(folder())}
    wanted = name.removesuffix(ENDING).removesuffix(".json")
    if wanted in known:
        return known[wanted]
    ours = f"with Triptych came {', '.join(known)}" if known else "no rows came with Triptych"
    raise EvidenceError(f"there is no file {name} ({ours})")


def study_in(path: Path) -> str:
    """The study whose rows a file says it has, from its first lines; "" where they do not say."""
    head = beginning(path, 500).decode("utf-8", "replace")
    found = re.search(r'^\s*"study": "([^"\\]*)"', head, re.MULTILINE)
    return found.group(1) if found else ""


def text(evidence: Evidence) -> str:
    """The file's content."""
    head = {"format": FORMAT, "study": evidence.study, "scale": evidence.scale.value}
    lines = [f'  "{name}": {_json(value)},' for name, value in head.items()]
    lines.append(f'  "settings": {_json(evidence.settings)},')
    units = ",\n".join(map(_unit_text, sorted(evidence.units, key=_order)))
    return "\n".join(["{", *lines, '  "units": [', units, "  ]", "}\n"])


def load(path: Path) -> Evidence:
    """Read and check a file; what is wrong with it is a sentence."""
    try:
        content = json.loads(read(path))
    except NotUnpacked as error:
        raise EvidenceError(str(error)) from error
    except json.JSONDecodeError as error:
        raise _damaged(path, f"it is not JSON: {error}") from error
    given = content.get("format", FORMAT) if isinstance(content, dict) else FORMAT
    if given != FORMAT:
        newer = isinstance(given, int) and given > FORMAT
        remedy = "upgrade Triptych" if newer else "its rows have no types; export them again"
        raise EvidenceError(
            f"{called(path)} has format {given!r}, and this Triptych knows {FORMAT}: {remedy}"
        )
    _check(path, content, _FILE_FIELDS, "the file")
    if content["scale"] not in {scale.value for scale in Scale}:
        raise _damaged(path, f"there is no scale {content['scale']!r}")
    study, scale = content["study"], Scale(content["scale"])
    try:
        check_name("its study", study, folders=True)
    except UserError as error:
        raise _damaged(path, str(error)) from error
    units = []
    for number, facts in enumerate(content["units"]):
        where = f"unit {number + 1}"
        _check(path, facts, _UNIT_FIELDS, where)
        if not all(isinstance(row, dict) for row in facts["rows"]):
            raise _damaged(path, f"{where} has a row that is not a dictionary")
        try:
            code = read_code(facts["code"])
        except ValueError as error:
            raise _damaged(path, f"{where} has code = {facts['code']!r}") from error
        key = unit_key(facts["parameters"], facts["seed"], facts["revision"])
        facts = facts | {"study": study, "scale": scale, "key": key, "code": code}
        units.append(StoredUnit(status="done", error=None, **facts))
    if len({unit.key for unit in units}) < len(units):
        raise _damaged(path, "it has a unit twice")
    return Evidence(study, scale, content["settings"], units)


def export(
    out: Path, studies: Sequence[str], scale: Scale, to: Path, *, replace: bool = False
) -> list[str]:
    """Add what is done in a run folder to the files in `to`; a sentence for each file.

    Units that are there already stay, also those that this folder does not have. All files are
    checked before the first is written, compressed; a plain file of the same name goes. No study
    means every one that has finished units.
    """
    with lock_folder(to):
        return _export(out, studies, scale, to, replace)


def _export(out: Path, studies: Sequence[str], scale: Scale, to: Path, replace: bool) -> list[str]:
    with Store.read(out) as store:
        units = {name: store.units(name, at) for name, at in store.studies() if at is scale}
    done = {name: [u for u in found if u.status == "done"] for name, found in units.items()}
    have = [name for name, found in done.items() if found]
    missing = [name for name in studies if name not in have]
    if missing or not have:
        what = f"of {', '.join(missing)} " if missing else ""
        there = f" (there are some of {', '.join(have)})" if have else ""
        raise EvidenceError(f"{out} has no finished units {what}with --scale {scale.value}{there}")
    contents: dict[Path, str] = {}
    told, known, there = [], find_studies(), {called(path): path for path in files(to)}
    for name in studies or have:
        path = to / f"{file_name(name, scale)}{ENDING}"
        today = code_of(known[name]) if name in known else None
        finished = [_plain(unit, today) for unit in done[name]]
        fresh = Evidence(name, scale, last_settings(units[name]), finished)
        old = there.get(called(path))
        kept = load(old) if old else fresh._replace(units=[])
        if (kept.study, kept.scale) != (name, scale):
            raise EvidenceError(f"{path} has rows of {kept.study} with --scale {kept.scale.value}")
        contents[path] = text(_merged(kept, fresh, called(path), str(out), replace=replace))
        total = len({unit.key for unit in [*kept.units, *fresh.units]})
        waiting = len(units[name]) - len(done[name])
        told.append(
            f"{path}: {total} units, {total - len(kept.units)} of them new"
            + (f"; {waiting} of this run are not done yet" if waiting else "")
        )
    for path, content in contents.items():
        write(path, content)
        path.with_name(called(path)).unlink(missing_ok=True)
    return told


def pack(where: Path) -> list[str]:
    """Compress the plain files of evidence in a folder; a sentence for each.

    One that is there in both forms has the units of both afterwards. The same unit with other rows
    is refused.
    """
    if not where.is_dir():
        raise EvidenceError(f"there is no folder {where}")
    told = []
    with lock_folder(where):
        for path in [path for path in _files(where) if not path.name.endswith(ENDING)]:
            after = path.with_name(f"{path.name}{ENDING}")
            found = load(path)
            if after.exists():
                found = _merged(load(after), found, after.name, path.name, replace=False)
            content = text(found)
            write(after, content)
            path.unlink()
            sizes = f"{len(content.encode()):,} bytes are {after.stat().st_size:,}"
            told.append(f"{after}: {len(found.units)} units; {sizes}")
    return told


def bring_in(
    out: Path,
    names: Sequence[str],
    studies: Mapping[str, AnyStudy] | None = None,
    *,
    replace: bool = False,
) -> list[str]:
    """Put the units of evidence files into a run folder; a sentence for each study and scale.

    What is done there with the same rows is left alone. A run then does only what is missing. Where
    nothing is planned there yet, the study's own plan is, so that what is missing can be seen.
    """
    gathered: dict[tuple[str, Scale], Evidence] = {}
    for path in map(named, names):
        found = load(path)
        before = gathered.get((found.study, found.scale), found._replace(units=[]))
        gathered[found.study, found.scale] = _merged(
            before, found, "the files before it", called(path), replace=replace
        )
    known = find_studies() if studies is None else studies
    with Store.open(out) as store, lock_folder(out):
        for found in gathered.values():
            _refuse_clashes(_done(store, found), found.units, str(out), "the file", replace)
        return [_put(store, found, known.get(found.study), replace) for found in gathered.values()]


def laid_out(evidence: Evidence, study: AnyStudy) -> Layout:
    """The evidence over its study's plan; a study without that scale is a UserError.

    The file's own plan counts instead where it has all units, the whole of the study's plan among
    them: the study's seeds and more.

    Units that an earlier revision of the study made are laid over its plan too: they are old, and
    whoever shows them says so.
    """
    layout = _over(Plan.of(study, evidence.scale), evidence)
    if not layout.others:
        return layout
    fits = len(layout.others) < len(evidence.units)
    whole = all(unit.status == "done" for unit in layout.units)
    with suppress(UserError, TypeError, ValueError, KeyError):  # a study that has changed
        own = layout.plan.settings
        theirs = from_json(type(own), to_json(own) | evidence.settings)
        second = _over(Plan.under(study, evidence.scale, theirs), evidence)
        if (whole and not second.others) or (not fits and len(second.others) < len(evidence.units)):
            return second
    return layout


def _over(plan: Plan, evidence: Evidence) -> Layout:
    """The evidence over a plan; where a unit is there in two revisions, the later one counts."""
    revisions = {unit.revision for unit in evidence.units} | {plan.study.revision}
    names = [plan.keys(revision) for revision in sorted(revisions, reverse=True)]
    have = {unit.key: unit for unit in evidence.units}
    over = []
    for unit, keys in zip(plan.units, zip(*names, strict=True), strict=True):
        found = next((have[key] for key in keys if key in have), None)
        over.append(found or _pending(evidence, unit))
    used = {key for keys in names for key in keys}
    return Layout(plan, over, [unit for unit in evidence.units if unit.key not in used])


def same_rows(one: StoredUnit, other: StoredUnit) -> bool:
    """Bit for bit, nan included; the order of columns does not matter."""
    return json.dumps(one.rows, sort_keys=True) == json.dumps(other.rows, sort_keys=True)


def last_settings(units: Sequence[StoredUnit]) -> dict[str, Any]:
    """A unit keeps the settings it ran under; the plan's are those of the unit touched last."""
    latest = max(units, key=lambda unit: unit.finished_at or "", default=None)
    return latest.settings if latest else {}


def device_name(unit: StoredUnit) -> str | None:
    """The name of the GPU where one was used and is known, or else the device."""
    gpus = unit.versions.get("gpu", "none")
    if not (unit.device or "").startswith("cuda") or gpus == "none":
        return unit.device
    return ", ".join(dict.fromkeys(gpus.split(", ")))


def _put(store: Store, found: Evidence, study: AnyStudy | None, replace: bool) -> str:
    """Write one study's units at one scale; what was done, in a sentence."""
    name, scale = found.study, found.scale
    layout = laid_out(found, study) if study else None
    if layout and not store.units(name, scale):
        store.plan(name, scale, layout.plan.settings, layout.plan.units, layout.plan.study.revision)
    there = {unit.key for unit in _done(store, found)}
    counts = layout is None  # units of a study that is not known are all there is of its plan
    coming = [
        unit._replace(versions=unit.versions | {IMPORTED: "yes"}, current=counts)
        for unit in found.units
        if replace or unit.key not in there
    ]
    store.put(coming)
    now = store.units(name, scale)
    silent = {unit.key for unit in found.units} - {unit.key for unit in now}
    waiting = sum(unit.status != "done" for unit in now)
    said = f"{name} with --scale {scale.value}: {len(coming)} units brought in"
    if len(coming) < len(found.units):
        said += f", {len(found.units) - len(coming)} were there"
    if silent:
        said += f", {len(silent)} are of other settings than the plan of this folder"
    if layout is None:
        return f"{said}; the study is not part of Triptych: run its file to see it"
    again = f"triptych run {name} --scale {scale.value} --out {store.folder}"
    return f"{said}; {waiting} to run: {again}" if waiting else f"{said}; nothing is left to run"


def _done(store: Store, found: Evidence) -> list[StoredUnit]:
    units = store.units(found.study, found.scale, outdated=True)
    return [unit for unit in units if unit.status == "done"]


def _merged(old: Evidence, new: Evidence, here: str, coming: str, *, replace: bool) -> Evidence:
    _refuse_clashes(old.units, new.units, here, coming, replace)
    first, second = (old, new) if replace else (new, old)  # the second has the last word
    units = {unit.key: unit for unit in [*first.units, *second.units]}
    return new._replace(units=list(units.values()))


def _refuse_clashes(
    old: Sequence[StoredUnit], new: Sequence[StoredUnit], here: str, coming: str, replace: bool
) -> None:
    known = {unit.key: unit for unit in old}
    clashes = [u for u in new if u.key in known and not same_rows(known[u.key], u)]
    if clashes and not replace:
        first = clashes[0]
        more = f" (and {len(clashes) - 1} more)" if len(clashes) > 1 else ""
        raise EvidenceError(
            f"{first.study} with --scale {first.scale.value}: the unit "
            f"({first}){more} has other rows in {coming} than in "
            f"{here}; nothing was changed, and --replace takes those of {coming}"
        )


def _pending(evidence: Evidence, unit: PlannedUnit) -> StoredUnit:
    return StoredUnit(
        study=evidence.study,
        scale=evidence.scale,
        key=unit.key,
        parameters=unit.parameters,
        seed=unit.seed,
        settings={},
        status="pending",
        seconds=None,
        error=None,
        device=None,
        versions={},
        rows=[],
    )


def _plain(unit: StoredUnit, today: Code | None) -> StoredUnit:
    """Without the note that it was imported, which is about a run folder and not about the unit.

    A machine without git does not know its commit. Where its code was that of this checkout, and
    this is as committed, the commit is this one's.
    """
    versions = {name: value for name, value in unit.versions.items() if name != IMPORTED}
    code = unit.code
    if code and today and today.clean and not code.commit and same_code(code, today):
        code = code._replace(commit=today.commit, clean=True)
    return unit._replace(versions=versions, code=code)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _unit_text(unit: StoredUnit) -> str:
    facts = unit._asdict() | {"code": _code_facts(unit.code) if unit.code else None}
    lines = [f'      "{name}": {_json(facts[name])},' for name in list(_UNIT_FIELDS)[:-1]]
    if not unit.rows:
        return "\n".join(["    {", *lines, '      "rows": []', "    }"])
    rows = ",\n".join(f"        {_json(row)}" for row in unit.rows)
    return "\n".join(["    {", *lines, '      "rows": [', rows, "      ]", "    }"])


def _code_facts(code: Code) -> dict[str, Any]:
    """Without a shape where none is known, as in files from before there were shapes."""
    facts = code._asdict()
    return facts if code.shape else {name: facts[name] for name in facts if name != "shape"}


def _order(unit: StoredUnit) -> tuple[Any, int]:
    """By parameters, numbers as numbers, then by seed."""

    def place(value: Any) -> tuple[int, Any, str]:
        number = isinstance(value, int | float) and not math.isnan(value)
        return (0, value, "") if number else (1, 0.0, json.dumps(value, sort_keys=True))

    return [(name, place(value)) for name, value in sorted(unit.parameters.items())], unit.seed


def _check(path: Path, value: Any, fields: Mapping[str, Any], where: str) -> None:
    if not isinstance(value, dict):
        raise _damaged(path, f"{where} is a {type(value).__name__} and not a dictionary")
    lacking, unknown = set(fields) - set(value), set(value) - set(fields)
    if lacking or unknown:
        said = "lacks " if lacking else "has the unknown "
        raise _damaged(path, f"{where} {said}{', '.join(sorted(lacking or unknown))}")
    for name, kind in fields.items():
        if not isinstance(value[name], kind):
            raise _damaged(path, f"{where} has {name} = {str(value[name])[:60]!r}")


def _damaged(path: Path, what: str) -> EvidenceError:
    return EvidenceError(
        f"{called(path)} is damaged ({what}): take it from the repository again, or export it again"
    )

"""Which code made a row: two digests of a study's own code, one of the library, and the commit.

Both digests of a study cover what decides its rows: `run`, `units`, the classes of its rows, and
everything in the study's own modules that these reach by name. Judges and figures are no part of
it, so that mending a judge does not make rows look old.

    fingerprint   of the syntax, without comments, docstrings and layout
    shape         of the same without names of locals, arguments and private functions, places,
                  file names, import paths and annotations (`shape.py`)

Rows are of today's code if either digest is. The rest of Triptych is the library, with a digest of
its own.
"""

import ast
import functools
import hashlib
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from triptych import __version__
from triptych.lab.running.shape import CodeShape, shape_of
from triptych.lab.running.sources import (
    DEFINITIONS,
    PACKAGE,
    WHOLE,
    Place,
    Source,
    bound_name,
    is_own,
    parsed,
    places_of,
    source_of_module,
    without_docstring,
)
from triptych.studies.api.study import AnyStudy

OWN_FILE = "triptych_study_file_"  # modules that were loaded from a user's file are called so
_LENGTH = 12  # hexadecimal digits of a digest


class Code(NamedTuple):
    """What a unit was made by.

    fingerprint, shape
        Of the study's own code. The shape is "" where it is not known.
    library
        Digest of Triptych's sources without studies and lab.
    commit, clean
        Of the checkout that Triptych ran from, and whether its sources were as committed; "" and
        False where that is not known.
    """

    fingerprint: str
    library: str
    version: str = __version__
    commit: str = ""
    clean: bool = False
    shape: str = ""


def code_of(study: AnyStudy) -> Code:
    """The code that would make a study's rows now."""
    commit, clean = checkout()
    return Code(
        fingerprint(study), library_digest(), __version__, commit, clean, shape_digest(study)
    )


def same_study_code(one: Code, other: Code) -> bool:
    """Whether two units were made by the same code of their study, up to names."""
    same_shape = bool(one.shape) and one.shape == other.shape
    return same_shape or one.fingerprint == other.fingerprint


def same_code(one: Code, other: Code) -> bool:
    """Whether two units were made by the same code of their study and the same library."""
    return same_study_code(one, other) and one.library == other.library


def fingerprint(study: AnyStudy) -> str:
    """Digest of what decides a study's rows."""
    return _digest(_reached([study.run, study.units, *study.rows]))


def shape_digest(study: AnyStudy) -> str:
    """Digest of what decides a study's rows, which harmless edits do not change."""
    return _digest([study_shape(study).text])


def study_shape(study: AnyStudy) -> CodeShape:
    """What decides a study's rows: its text without names, and where it stands."""
    rows = sorted(study.rows, key=lambda kind: kind.__name__)
    return shape_of(
        [place for root in (study.run, study.units, *rows) for place in places_of(root)]
    )


def fingerprint_of(function: Callable[..., Any]) -> str:
    """Digest of a function of a study and what it reaches; "" for one that is not a study's own."""
    return _digest(_reached([function]))


@functools.cache
def library_digest() -> str:
    """Digest of Triptych's own sources, without studies (they have fingerprints) and lab."""
    names = {path: path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py"))}
    return _digest(
        f"{name.as_posix()}\n{path.read_text('utf-8')}"
        for path, name in names.items()
        if name.parts[0] not in ("studies", "lab")
    )


@functools.cache
def checkout() -> tuple[str, bool]:
    """(commit, whether src is as committed) of the repository that Triptych runs from."""
    root = PACKAGE.parents[1]
    if PACKAGE.parent.name != "src" or not (root / ".git").exists():
        return "", False
    try:
        commit = _git(root, "rev-parse", "--short=12", "HEAD")
        return commit, not _git(root, "status", "--porcelain", "--", "src")
    except (OSError, subprocess.SubprocessError):  # git is not there, or this is no repository
        return "", False


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "--no-optional-locks", "-C", str(root), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    return done.stdout.strip()


def _digest(texts: Iterable[str]) -> str:
    joined = "\n".join(texts)
    return hashlib.sha256(joined.encode()).hexdigest()[:_LENGTH] if joined else ""


# ------------------------------------------------------------------- what a function reaches


def _reached(roots: Iterable[Any]) -> list[str]:
    """The texts of all definitions that the roots reach in their own modules, in a fixed order."""
    found: dict[tuple[Source, str], str] = {}
    waiting = [place for root in roots for place in places_of(root)]
    while waiting:
        source, name = waiting.pop()
        if source is None or (source, name) in found or not is_own(source):
            continue
        text, places = _definition(source, name)
        found[source, name] = text
        waiting.extend(places)
    return sorted(f"{_stable(source)}:{name}\n{text}" for (source, name), text in found.items())


def _definition(source: Source, name: str) -> tuple[str, list[Place]]:
    """The text of a name's definition, and the places of the names that it uses."""
    tree, bound = parsed(source)
    texts: list[str] = []
    places: list[Place] = []
    for node in [tree] if name == WHOLE else bound.get(name, []):
        if isinstance(node, ast.Import | ast.ImportFrom):
            text, found = _imported(node, name)
            texts.append(text)
            places.extend(found)
            continue
        texts.append(_dump(node))
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in bound and inner.id != name:
                places.append((source, inner.id))
            elif isinstance(inner, ast.Import | ast.ImportFrom):  # inside a function
                for alias in inner.names:
                    places.extend(_imported(inner, bound_name(inner, alias))[1])
    return "\n".join(texts), places


def _imported(node: ast.Import | ast.ImportFrom, name: str) -> tuple[str, list[Place]]:
    """What an import binds to a name, as text, and where to look further."""
    for alias in node.names:
        if name not in (bound_name(node, alias), WHOLE):
            continue
        if isinstance(node, ast.Import):
            return f"import {alias.name}", [(source_of_module(alias.name), WHOLE)]
        module = node.module or ""
        inside = source_of_module(f"{module}.{alias.name}")
        if inside is not None:
            return f"import {module}.{alias.name}", [(inside, WHOLE)]
        return f"from {module} import {alias.name}", [(source_of_module(module), alias.name)]
    return "", []


def _stable(source: Source) -> str:
    """A name that is the same whether a user's file is loaded by its path or imported by name."""
    return source.name if source.name.startswith("triptych.") else source.path.stem


# -------------------------------------------------------------------------- syntax as text


def _dump(node: Any) -> str:
    """Syntax without positions, comments, docstrings, empty fields: the same in every Python."""
    if isinstance(node, list):
        return f"[{','.join(map(_dump, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = []
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(node, (*DEFINITIONS, ast.Module)):
            value = without_docstring(value)
        if value is not None and value != [] and name not in ("ctx", "type_comment", "kind"):
            parts.append(f"{name}={_dump(value)}")
    return f"{type(node).__name__}({','.join(parts)})"

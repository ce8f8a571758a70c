"""Which code made a row: a fingerprint of a study's own code, of the library, and the commit.

The fingerprint of a study covers what decides its rows: `run`, `units`, the classes of its rows,
and everything in the study's own modules that these reach by name. Comments, docstrings, layout,
judges and figures are no part of it, so that mending a judge does not make rows look old.

A study's own modules are those under `triptych.studies` (without `api`), or for a file of a user's
own the modules that lie beside it. The rest of Triptych is the library, with a digest of its own.
"""

import ast
import functools
import hashlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from triptych import __version__
from triptych.studies.api.study import AnyStudy

_PACKAGE = Path(__file__).resolve().parents[2]
_STUDIES, _API = "triptych.studies", "triptych.studies.api"
OWN_FILE = "triptych_study_file_"  # modules that were loaded from a user's file are called so
_LENGTH = 12  # hexadecimal digits of a digest
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Code(NamedTuple):
    """What a unit was made by.

    fingerprint
        Of the study's own code.
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


def code_of(study: AnyStudy) -> Code:
    """The code that would make a study's rows now."""
    commit, clean = checkout()
    return Code(fingerprint(study), library_digest(), __version__, commit, clean)


def same_code(one: Code, other: Code) -> bool:
    """Whether two units were made by the same study code and the same library."""
    return (one.fingerprint, one.library) == (other.fingerprint, other.library)


def fingerprint(study: AnyStudy) -> str:
    """Digest of what decides a study's rows."""
    return _digest(_reached([study.run, study.units, *study.rows]))


def fingerprint_of(function: Callable[..., Any]) -> str:
    """Digest of a function of a study and what it reaches; "" for one that is not a study's own."""
    return _digest(_reached([function]))


@functools.cache
def library_digest() -> str:
    """Digest of Triptych's own sources, without studies (they have fingerprints) and lab."""
    names = {path: path.relative_to(_PACKAGE) for path in sorted(_PACKAGE.rglob("*.py"))}
    return _digest(
        f"{name.as_posix()}\n{path.read_text('utf-8')}"
        for path, name in names.items()
        if name.parts[0] not in ("studies", "lab")
    )


@functools.cache
def checkout() -> tuple[str, bool]:
    """(commit, whether src is as committed) of the repository that Triptych runs from."""
    root = _PACKAGE.parents[1]
    if _PACKAGE.parent.name != "src" or not (root / ".git").exists():
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


class _Source(NamedTuple):
    """A module's name and file. It need not be imported: a study may import it when it runs."""

    name: str
    path: Path


def _reached(roots: Iterable[Any]) -> list[str]:
    """The texts of all definitions that the roots reach in their own modules, in a fixed order."""
    found: dict[tuple[_Source, str], str] = {}
    waiting = [place for root in roots for place in _places_of(root)]
    while waiting:
        source, name = waiting.pop()
        if source is None or (source, name) in found or not _own(source):
            continue
        text, places = _definition(source, name)
        found[source, name] = text
        waiting.extend(places)
    return sorted(f"{_stable(source)}:{name}\n{text}" for (source, name), text in found.items())


_Place = tuple[_Source | None, str]  # a name at the top level of a module; WHOLE for all of it
WHOLE = "*"


def _places_of(value: Any) -> Iterator[_Place]:
    """Where a function or class is defined."""
    while isinstance(value, functools.partial):
        for argument in [*value.args, *value.keywords.values()]:
            if callable(argument):
                yield from _places_of(argument)
        value = value.func
    value = inspect.unwrap(value)
    top = getattr(value, "__qualname__", WHOLE).split(".")[0]
    yield _source(getattr(value, "__module__", "")), WHOLE if top == "<lambda>" else top


def _source(name: str) -> _Source | None:
    """A module that is imported or can be; None for one without a Python file."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None and name not in sys.modules:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
        file = spec.origin if spec else None
    return _Source(name, Path(file).resolve()) if file and file.endswith(".py") else None


def _definition(source: _Source, name: str) -> tuple[str, list[_Place]]:
    """The text of a name's definition, and the places of the names that it uses."""
    tree, bound = _parsed(source.path, source.path.stat().st_mtime_ns)
    texts: list[str] = []
    places: list[_Place] = []
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
                    places.extend(_imported(inner, _bound_name(inner, alias))[1])
    return "\n".join(texts), places


def _bound_name(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    whole = isinstance(node, ast.ImportFrom)
    return alias.asname or (alias.name if whole else alias.name.split(".")[0])


def _imported(node: ast.Import | ast.ImportFrom, name: str) -> tuple[str, list[_Place]]:
    """What an import binds to a name, as text, and where to look further."""
    for alias in node.names:
        if name not in (_bound_name(node, alias), WHOLE):
            continue
        if isinstance(node, ast.Import):
            return f"import {alias.name}", [(_source(alias.name), WHOLE)]
        module = node.module or ""
        inside = _source(f"{module}.{alias.name}")
        if inside is not None:
            return f"import {module}.{alias.name}", [(inside, WHOLE)]
        return f"from {module} import {alias.name}", [(_source(module), alias.name)]
    return "", []


def _bindings(tree: ast.Module) -> dict[str, list[ast.AST]]:
    """Name -> the statements at the top level that give it a value, also inside if and try."""
    found: dict[str, list[ast.AST]] = {}

    def add(name: str, node: ast.AST) -> None:
        found.setdefault(name, []).append(node)

    def look(statements: Iterable[ast.stmt]) -> None:
        """The names that these statements bind, also those inside if, try, with and loops."""
        for node in statements:
            if isinstance(node, _DEFINITIONS):
                add(node.name, node)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    add(_bound_name(node, alias), node)
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    for inner in ast.walk(target):
                        if isinstance(inner, ast.Name):
                            add(inner.id, node)
            else:
                for block in ("body", "orelse", "finalbody"):
                    look(getattr(node, block, []))
                for handler in getattr(node, "handlers", []):
                    look(handler.body)

    look(tree.body)
    return found


def _own(source: _Source) -> bool:
    """Whether a module is a study's own: ours under `studies`, or a file in no package."""
    name = f"{source.name}."
    if name.startswith("triptych."):
        return name.startswith(f"{_STUDIES}.") and not name.startswith(f"{_API}.")
    installed = {"site-packages", "dist-packages"} & set(source.path.parts)
    return not installed and not source.path.is_relative_to(Path(sys.base_prefix).resolve())


def _stable(source: _Source) -> str:
    """A name that is the same whether a user's file is loaded by its path or imported by name."""
    return source.name if source.name.startswith("triptych.") else source.path.stem


# -------------------------------------------------------------------------- syntax as text


@functools.lru_cache(maxsize=512)
def _parsed(path: Path, changed: int) -> tuple[ast.Module, dict[str, list[ast.AST]]]:
    """A file's syntax and bindings, read once as long as it does not change."""
    tree = ast.parse(path.read_text("utf-8"))
    return tree, _bindings(tree)


def _dump(node: Any) -> str:
    """Syntax without positions, comments, docstrings, empty fields: the same in every Python."""
    if isinstance(node, list):
        return f"[{','.join(map(_dump, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = []
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(node, (*_DEFINITIONS, ast.Module)):
            value = _without_docstring(value)
        if value is not None and value != [] and name not in ("ctx", "type_comment", "kind"):
            parts.append(f"{name}={_dump(value)}")
    return f"{type(node).__name__}({','.join(parts)})"


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    text = getattr(getattr(first, "value", None), "value", None)
    return body[1:] if isinstance(first, ast.Expr) and isinstance(text, str) else body

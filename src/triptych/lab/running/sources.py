"""Modules as files: which are a study's own, and what stands at their top level.

A study's own modules are those under `triptych.studies` (without `api`). For a file of a user's own
they are the modules that lie next to it, and for a package that offers studies all of the package.
The rest of Triptych is the library. What Python brings and what was installed as any other package
is neither.
"""

import ast
import functools
import importlib.metadata
import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from triptych.core.plugins import plugins

PACKAGE = Path(__file__).resolve().parents[2]
WHOLE = "*"
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_STUDIES, _API = "triptych.studies", "triptych.studies.api"
_FOLDERS_OF_PACKAGES = {"site-packages", "dist-packages"}

Bindings = dict[str, list[ast.AST]]


class Source(NamedTuple):
    """A module's name and file. It need not be imported: a study may import it when it runs."""

    name: str
    path: Path


Place = tuple[Source | None, str]
"""A name at the top level of a module; WHOLE for all of it."""


def places_of(value: Any) -> Iterator[Place]:
    """Where a function or class is defined; a partial has several places."""
    while isinstance(value, functools.partial):
        for argument in [*value.args, *value.keywords.values()]:
            if callable(argument):
                yield from places_of(argument)
        value = value.func
    value = inspect.unwrap(value)
    top = getattr(value, "__qualname__", WHOLE).split(".")[0]
    yield source_of_module(getattr(value, "__module__", "")), WHOLE if top == "<lambda>" else top


def source_of_module(name: str) -> Source | None:
    """A module that is imported or can be; None for one without a Python file."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None and name not in sys.modules:
        file = _file_on_path(name)
    return Source(name, _resolved(file)) if file and file.endswith(".py") else None


def _file_on_path(name: str) -> str | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec else None


@functools.lru_cache(maxsize=4096)
def _resolved(file: str) -> Path:
    return Path(file).resolve()


# ----------------------------------------------------------------------------- whose a module is


def is_ours(name: str) -> bool:
    """Whether a module is Triptych's."""
    return f"{name}.".startswith("triptych.")


def is_own(source: Source) -> bool:
    """Whether a module is a study's own: ours under `studies`, a file, or one of a plug-in."""
    if is_ours(source.name):
        name = f"{source.name}."
        return name.startswith(f"{_STUDIES}.") and not name.startswith(f"{_API}.")
    if _is_pythons(source.path):
        return False
    return not is_installed(source) or source.name.split(".")[0] in _packages_with_studies()


@functools.cache
def _packages_with_studies() -> frozenset[str]:
    """The installed packages that offer studies: their code makes rows."""
    return frozenset(each.module.split(".")[0] for each in plugins("studies").values())


def _is_pythons(path: Path) -> bool:
    """Whether a file came with Python itself."""
    return any(path.is_relative_to(folder) for folder in _python_folders())


@functools.cache
def _python_folders() -> tuple[Path, ...]:
    paths = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
    return tuple({Path(path).resolve() for path in paths if path})


def is_installed(source: Source) -> bool:
    """Whether an installed distribution holds this file, wherever it was installed to.

    A project that is installed in place (`pip install --editable`) lies elsewhere than its
    distribution, so its files are its user's own.
    """
    top = source.name.split(".")[0]
    for folder in _installed_into(top):
        if source.path.parent == folder and source.path.name.split(".")[0] == top:
            return True
        if source.path.is_relative_to(folder / top):
            return True
    return False


@functools.cache
def _installed_into(top: str) -> tuple[Path, ...]:
    """The folders into which distributions have put a module or package of this name."""
    folders = []
    for name in _distributions().get(top, ()):
        distribution = importlib.metadata.distribution(name)
        folder = Path(str(distribution.locate_file(""))).resolve()
        listed = {Path(str(file)).parts[0].split(".")[0] for file in distribution.files or ()}
        placed = distribution.read_text("RECORD") is not None  # a folder of sources has none
        if (placed and top in listed) or folder.name in _FOLDERS_OF_PACKAGES:
            folders.append(folder)
    return tuple(dict.fromkeys(folders))


@functools.cache
def _distributions() -> dict[str, list[str]]:
    """Names at the top of installed packages, and the distributions that have them."""
    return dict(importlib.metadata.packages_distributions())


# --------------------------------------------------------------------- what stands in a module


def bindings(source: Source) -> Bindings:
    """What `bindings_in` finds in a module, read once as long as its file does not change."""
    return parsed(source)[1]


def parsed(source: Source) -> tuple[ast.Module, Bindings]:
    """A module's syntax, and its bindings."""
    return _parsed(source.path, source.path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=1024)
def _parsed(path: Path, changed: int) -> tuple[ast.Module, Bindings]:
    tree = ast.parse(path.read_text("utf-8"))
    return tree, bindings_in(tree)


def bindings_in(tree: ast.Module) -> Bindings:
    """Name -> the statements at the top level that give it a value, also inside if and try."""
    found: Bindings = {}

    def add(name: str, node: ast.AST) -> None:
        found.setdefault(name, []).append(node)

    def look(statements: Iterable[ast.stmt]) -> None:
        """The names that these statements bind, also those inside if, try, with and loops."""
        for node in statements:
            if isinstance(node, DEFINITIONS):
                add(node.name, node)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    add(bound_name(node, alias), node)
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


def bound_name(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """The name that an import gives a value."""
    whole = isinstance(node, ast.ImportFrom)
    return alias.asname or (alias.name if whole else alias.name.split(".")[0])


def without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    text = getattr(getattr(first, "value", None), "value", None)
    return body[1:] if isinstance(first, ast.Expr) and isinstance(text, str) else body

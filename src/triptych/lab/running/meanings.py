"""What a name in a study's module stands for: a definition of its own, or one from elsewhere.

A definition of the study's own is known by its place. One of the library is known by its name and
that of the file that defines it, as `library vgb.sample`, however it is imported. One of another
package is known by its path, as `torch.nn.functional.softmax`; its files are not read.
"""

import ast
import re
from collections import Counter
from typing import Any, NamedTuple

from triptych.lab.running.sources import (
    Bindings,
    Source,
    bound_name,
    is_ours,
    is_own,
    parsed,
    source_of_module,
)

_WORD = re.compile(r"[A-Za-z_]\w*")


class Own(NamedTuple):
    """A definition in a module of the study's own."""

    source: Source
    name: str


class Module(NamedTuple):
    """A module of the study's own, or of the library."""

    source: Source


class Library(NamedTuple):
    """What a module of the library defines."""

    label: str


class Foreign(NamedTuple):
    """A module of another package, or what it defines."""

    label: str


Meaning = Own | Module | Library | Foreign


class Meanings:
    """Answers for one look at the sources, which do not change meanwhile."""

    def __init__(self) -> None:
        self._read: dict[Source, tuple[ast.Module, Bindings]] = {}
        self._own: dict[Source, bool] = {}
        self._known: dict[tuple[Source, str], Meaning | None] = {}
        self._sources: dict[str, Source | None] = {}
        self._words: dict[Source, Counter[str]] = {}

    def bindings(self, source: Source) -> Bindings:
        if source not in self._read:
            self._read[source] = parsed(source)
        return self._read[source][1]

    def is_own(self, source: Source) -> bool:
        if source not in self._own:
            self._own[source] = is_own(source)
        return self._own[source]

    def nodes(self, own: Own) -> list[ast.AST]:
        """The statements that give a name its value."""
        return self.bindings(own.source).get(own.name, [])

    def function(self, own: Own) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The function that a name is, if it is one and nothing else."""
        nodes = self.nodes(own)
        only = nodes[0] if len(nodes) == 1 else None
        return only if isinstance(only, ast.FunctionDef | ast.AsyncFunctionDef) else None

    def words(self, source: Source) -> Counter[str]:
        """How often a module uses each attribute, or has it as a text."""
        if source not in self._words:
            self.bindings(source)
            self._words[source] = words_in(self._read[source][0])
        return self._words[source]

    def of(self, source: Source, node: ast.AST) -> Meaning | None:
        """What a name, or a name with dots, stands for at the top level of a module."""
        if isinstance(node, ast.Name):
            return self.named(source, node.id)
        if isinstance(node, ast.Attribute):
            return self.member(self.of(source, node.value), node.attr)
        return None

    def named(self, source: Source, name: str) -> Meaning | None:
        """What a module's name stands for; None where the module does not bind it (`len`)."""
        place = (source, name)
        if place not in self._known:
            self._known[place] = None  # modules that import each other in a circle
            self._known[place] = self._named(source, name)
        return self._known[place]

    def _named(self, source: Source, name: str) -> Meaning | None:
        meanings = {
            self.imported(source, node, name)
            if isinstance(node, ast.Import | ast.ImportFrom)
            else Own(source, name)
            for node in self.bindings(source).get(name, [])
        }
        if len(meanings) > 1:  # after a try, for one: all of them count
            return Own(source, name)
        return meanings.pop() if meanings else None

    def imported(
        self, source: Source, node: ast.Import | ast.ImportFrom, name: str
    ) -> Meaning | None:
        """What an import in a module binds to a name."""
        for alias in node.names:
            if bound_name(node, alias) != name:
                continue
            if isinstance(node, ast.Import):
                return self._module(alias.name if alias.asname else alias.name.split(".")[0])
            return self.member(self._module(_whole_name(source, node)), alias.name)
        return None

    def member(self, base: Meaning | None, name: str) -> Meaning | None:
        """What a module has under a name; None where `base` is no module."""
        if isinstance(base, Foreign):
            return Foreign(f"{base.label}.{name}")
        if not isinstance(base, Module):
            return None
        source = base.source
        found = self.named(source, name)
        if found is None and source.path.stem == "__init__":
            inside = self._source(f"{source.name}.{name}")
            found = Module(inside) if inside else None
        if found is None:  # made when it is asked for
            return Library(_label(source, name))
        if isinstance(found, Own) and not self.is_own(found.source):
            return Library(_label(found.source, name))
        return found

    def classes(self, source: Source, annotation: ast.AST | None) -> set[Own]:
        """The classes of the study's own that an annotation names, also by an alias."""
        found: set[Own] = set()
        seen: set[Own] = set()
        waiting = [(source, annotation)]
        while waiting:
            place, node = waiting.pop()
            for meaning in self._in_annotation(place, node):
                if isinstance(meaning, Own) and meaning not in seen:
                    seen.add(meaning)
                    for each in self.nodes(meaning):
                        if isinstance(each, ast.ClassDef):
                            found.add(meaning)
                        elif isinstance(each, ast.Assign):  # Row = Tuned | Failed
                            waiting.append((meaning.source, each.value))
        return found

    def _in_annotation(self, source: Source, node: ast.AST | None) -> set[Meaning | None]:
        found: set[Meaning | None] = set()
        for inner in ast.walk(node) if node is not None else ():
            if isinstance(inner, ast.Name | ast.Attribute):
                found.add(self.of(source, inner))
            elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                found |= {self.named(source, word) for word in _WORD.findall(inner.value)}
        return found

    def _module(self, name: str) -> Meaning:
        """A module by its name; one of another package is not looked for any further."""
        top = self._source(name.split(".")[0])
        if not is_ours(name) and (top is None or not self.is_own(top)):
            return Foreign(name)
        found = self._source(name)
        return Module(found) if found else Library(name.rpartition(".")[2])

    def _source(self, name: str) -> Source | None:
        if name not in self._sources:
            self._sources[name] = source_of_module(name)
        return self._sources[name]


def words_in(node: ast.AST) -> Counter[str]:
    """How often each attribute is used in some code, or stands there as a text."""
    found: Counter[str] = Counter()
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute):
            found[each.attr] += 1
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            found[each.value] += 1
    return found


def _label(source: Source, name: str) -> str:
    return f"{source.name.rpartition('.')[2]}.{name}"


def _whole_name(source: Source, node: ast.ImportFrom) -> str:
    """The module that `from ... import` names, also in `from .near import`."""
    if not node.level:
        return node.module or ""
    up: Any = node.level - (source.path.stem == "__init__")
    around = source.name.split(".")[: -up or None]
    return ".".join([*around, *([node.module] if node.module else [])])

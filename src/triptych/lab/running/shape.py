"""The shape of code: a text that stays the same when names change and the computing does not.

It is taken of the functions and classes that a study's rows depend on, and of all that these reach
in the study's own modules. Not seen:

    names of locals, arguments, and of functions and variables at the top level of a module
    names of private methods that nothing outside of their class uses
    where a definition stands, what its file is called, and how it is imported
    annotations, docstrings, comments, layout

    which of two names a thing of the library has that was renamed (`renames.py`)

Seen: operators, constants, control flow, defaults, decorators, the order of statements, attributes,
names of classes, fields and public methods (they are in stored rows), and what is called
(`meanings.py`).

The name of an argument is written out where Python may look it up as text: in a function that is
called with `**`, and in one that is handed on as a value, if some call has a keyword of that name.
Where code reads names (`function.__name__`, `locals()`), all of them are written out.
"""

import ast
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from triptych.lab.running.meanings import (
    Foreign,
    Library,
    Meaning,
    Meanings,
    Module,
    Own,
    words_in,
)
from triptych.lab.running.renames import ATTRIBUTES, DEFINITIONS, KEYWORDS
from triptych.lab.running.scopes import (
    Function,
    Loop,
    Scope,
    arguments,
    keywords,
    present,
    scope_of,
    scope_of_loop,
)
from triptych.lab.running.sources import WHOLE, Place, without_docstring

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_PLAIN_BASES = {"Unit", "Settings", "NamedTuple", "Protocol", "Generic"}
_MARKS = {"ClassVar", "InitVar", "KW_ONLY"}  # annotations that decide what a dataclass does
_NAMES = {"__name__", "__qualname__", "__code__"}
_READERS = {"eval", "exec", "globals", "locals", "dir"}
_ARGUMENT = re.compile("\0(top|nested) (.*?)\0")
_RENAMED = re.compile("\0renamed (.*?)\0")
_EITHER = {*ATTRIBUTES, *ATTRIBUTES.values()}
_SILENT = {"ctx", "type_comment", "kind", "type_params"}
_ANNOTATIONS = {"annotation", "returns"}


class CodeShape(NamedTuple):
    """A text, and the definitions that it is of."""

    text: str
    definitions: tuple[Own, ...]


def shape_of(roots: Sequence[Place]) -> CodeShape:
    """The shape of all that the roots reach, numbered as they are met."""
    meanings = Meanings()
    walk = _Walk(meanings)
    found = walk.all(roots)
    if walk.looks_at_names:
        return _Walk(meanings, named=True).all(roots)
    return found


class _Walk:
    """One pass over what the roots reach.

    annotated
        Classes that annotations name.
    keywords
        Those of calls whose function is not known, and of calls that are handed a function.
    values
        Functions that are used as values, and not only called.
    unpacked
        Functions that are called with `**`.
    own_attributes
        Those of the study's own classes that a renamed attribute of the library may be taken for.
    looks_at_names
        Whether some code can read the names of functions or locals.
    """

    def __init__(self, meanings: Meanings, *, named: bool = False) -> None:
        self.meanings = meanings
        self.named = named
        self.annotated: set[Own] = set()
        self.keywords: set[str] = set()
        self.values: set[Own] = set()
        self.unpacked: set[Own] = set()
        self.own_attributes: set[str] = set()
        self.looks_at_names = False
        self._numbers: dict[Own, int] = {}
        self._waiting: deque[Own] = deque()

    def all(self, roots: Iterable[Place]) -> CodeShape:
        for source, name in roots:
            if source is not None and self.meanings.is_own(source):
                self.reference(Own(source, name))
        texts = dict(self._definitions())
        while unmet := self.annotated - self._numbers.keys():  # by annotations alone
            self.reference(min(unmet, key=lambda own: (own.name, own.source.name)))
            texts |= self._definitions()
        lines = (
            f"{self._numbers[own]}: {self._with_attributes(self._with_arguments(own, text))}"
            for own, text in texts.items()
        )
        return CodeShape("\n".join(lines), tuple(texts))

    def _definitions(self) -> Iterator[tuple[Own, str]]:
        while self._waiting:
            own = self._waiting.popleft()
            yield own, _Definition(self, own).text()

    def _with_arguments(self, own: Own, text: str) -> str:
        """The text, with names of arguments where they count, which is known at the end."""

        def written(found: re.Match[str]) -> str:
            top, name = found[1] == "top", found[2]
            escapes = not top or own in self.values
            visible = own in self.unpacked or (escapes and name in self.keywords)
            return f":{name}" if visible else ""

        return _ARGUMENT.sub(written, text)

    def _with_attributes(self, text: str) -> str:
        """The text, with the earlier names of attributes that were renamed."""

        def written(found: re.Match[str]) -> str:
            now, before = found[1], ATTRIBUTES[found[1]]
            return now if {now, before} & self.own_attributes else before

        return _RENAMED.sub(written, text)

    def reference(self, own: Own) -> str:
        """How a definition is written where it is used."""
        if own not in self._numbers:
            self._numbers[own] = len(self._numbers)
            self._waiting.append(own)
        return f"#{self._numbers[own]}{own.name if self.named else ''}"


class _Definition:
    """The text of one definition at the top level of a module."""

    def __init__(self, walk: _Walk, own: Own) -> None:
        self._walk = walk
        self._meanings = walk.meanings
        self._own = own
        self._source = own.source
        self._scopes: list[Scope] = []
        self._private: list[dict[str, int]] = []
        self._locals = 0

    def text(self) -> str:
        if self._own.name != WHOLE:
            return " ".join(map(self._top, self._meanings.nodes(self._own)))
        known = {n: self._meanings.named(self._source, n) for n in self._bindings}
        return "whole " + " ".join(f"{n}={self._written(m)}" for n, m in known.items() if m)

    @property
    def _bindings(self) -> Iterable[str]:
        return self._meanings.bindings(self._source)

    def _top(self, node: ast.AST) -> str:
        if isinstance(node, ast.Import | ast.ImportFrom):  # one of several, as after a try
            found = self._meanings.imported(self._source, node, self._own.name)
            return "" if found is None else self._written(found)
        if isinstance(node, _FUNCTIONS):
            return self._function(node, top=True)
        return self._dump(node)

    # ------------------------------------------------------------------------------- names

    def _local(self, name: str) -> str | None:
        """A local by its number, an attribute of the class around it by its name."""
        for depth, scope in enumerate(reversed(self._scopes)):
            if name not in scope.names or (scope.is_class and depth > 0):
                continue
            if name in scope.imports:
                return None
            if scope.is_class:
                self._walk.own_attributes.update({name} & _EITHER)
                return f"<attribute {name}>"
            if name not in scope.numbers:
                scope.numbers[name] = self._locals
                self._locals += 1
            return f"${scope.numbers[name]}{name if self._walk.named else ''}"
        return None

    def _global(self, name: str) -> Meaning | None:
        """What a name that is no local stands for; None for Python's own."""
        for scope in reversed(self._scopes):
            if name in scope.imports:
                return self._meanings.imported(self._source, scope.imports[name], name)
        return self._meanings.named(self._source, name)

    def _meaning(self, node: ast.AST) -> Meaning | None:
        """What an expression of names and dots stands for, if it is no local."""
        if isinstance(node, ast.Name):
            return None if self._local(node.id) else self._global(node.id)
        if isinstance(node, ast.Attribute):
            return self._meanings.member(self._meaning(node.value), node.attr)
        return None

    def _written(self, meaning: Meaning) -> str:
        if isinstance(meaning, Module):
            own = Own(meaning.source, WHOLE)
            if self._meanings.is_own(meaning.source):
                return self._walk.reference(own)
            return f"<library {meaning.source.name.rpartition('.')[2]}>"
        if isinstance(meaning, Own):
            return self._walk.reference(meaning)
        if isinstance(meaning, Library):
            return f"<library {DEFINITIONS.get(meaning.label, meaning.label)}>"
        return f"<{meaning.label}>"

    def _value(self, meaning: Meaning) -> str:
        if isinstance(meaning, Own):
            self._walk.values.add(meaning)
        return self._written(meaning)

    def _name(self, node: ast.Name) -> str:
        local = self._local(node.id)
        if local:
            return local
        found = self._global(node.id)
        self._walk.looks_at_names |= found is None and node.id in _READERS
        return self._value(found) if found else f"<builtin {node.id}>"

    def _attribute(self, node: ast.Attribute) -> str:
        found = self._meaning(node)
        if found:
            return self._value(found)
        of_type = isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "type"
        self._walk.looks_at_names |= node.attr in _NAMES and not of_type  # classes keep theirs
        if isinstance(node.ctx, ast.Store) and node.attr in _EITHER:
            self._walk.own_attributes.add(node.attr)
        name = self._method(node.attr)
        written = f"\0renamed {name}\0" if name in ATTRIBUTES else name
        return f"{self._dump(node.value)}.{written}"

    def _method(self, name: str) -> str:
        for private in reversed(self._private):
            if name in private:
                return f"private {private[name]}"
        return name

    def _defined(self, name: str) -> str:
        """The name of a function or class where it is defined."""
        if self._scopes and self._scopes[-1].is_class:
            self._walk.own_attributes.update({name} & _EITHER)
            return self._method(name)
        return self._local(name) or name

    def _stored(self, name: str | None) -> str:
        return "" if name is None else self._name(ast.Name(name, ast.Store()))

    # ------------------------------------------------------------------------------- syntax

    def _dump(self, node: Any) -> str:
        if isinstance(node, list):
            return f"[{','.join(filter(None, map(self._dump, node)))}]"
        if not isinstance(node, ast.AST):
            return ascii(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            return ""  # what is imported is written where it is used
        special = _SPECIAL.get(type(node))
        return special(self, node) if special else self._plain(node)

    def _plain(self, node: ast.AST, but: str = "") -> str:
        """A node's kind and its fields, without positions and empty fields."""
        parts = []
        for name, value in ast.iter_fields(node):
            if name in _ANNOTATIONS:
                self._annotation(value)
            elif name not in _SILENT and name != but and value is not None and value != []:
                parts.append(f"{name}={self._dump(value)}")
        return f"{type(node).__name__}({','.join(parts)})"

    def _annotation(self, node: ast.AST | None) -> None:
        if node is not None:
            self._walk.annotated.update(self._meanings.classes(self._source, node))

    def _annotated(self, node: ast.AnnAssign) -> str:
        """A field in a class, an assignment elsewhere, and nothing without a value."""
        self._annotation(node.annotation)
        value = "" if node.value is None else self._dump(node.value)
        if self._scopes and self._scopes[-1].is_class:
            words = {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(node.annotation)}
            marks = " ".join(sorted(words & _MARKS))
            return f"Field({self._dump(node.target)},{marks},{value})"
        return f"Assign(targets=[{self._dump(node.target)}],value={value})" if value else ""

    def _call(self, node: ast.Call) -> str:
        found = self._meaning(node.func)
        order: dict[str, int] = {}
        if isinstance(found, Own):
            if any(keyword.arg is None for keyword in node.keywords):
                self._walk.unpacked.add(found)
            function = self._meanings.function(found)
            if function is not None:
                order = {name: number for number, name in enumerate(keywords(function))}
            callee = self._written(found)
        else:
            callee = self._dump(node.func)
        earlier = KEYWORDS.get(self._library_label(node.func), {})
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        unknown = not isinstance(found, Own) and not self._is_foreign(node.func)
        if unknown or any(map(self._is_function, given)):
            self._walk.keywords.update(earlier.get(k.arg, k.arg) for k in node.keywords if k.arg)
        named = ",".join(
            f"{'**' if k.arg is None else order.get(k.arg, earlier.get(k.arg, k.arg))}"
            f"={self._dump(k.value)}"
            for k in node.keywords
        )
        return f"Call({callee},{self._dump(node.args)},{{{named}}})"

    def _library_label(self, node: ast.AST) -> str:
        """`hmm.HMM.random` of what is called, if it belongs to the library."""
        found = self._meaning(node)
        if isinstance(found, Library):
            return found.label
        around = self._library_label(node.value) if isinstance(node, ast.Attribute) else ""
        return around and f"{around}.{node.attr}"  # pyright: ignore[reportAttributeAccessIssue]

    def _is_foreign(self, node: ast.AST) -> bool:
        """Whether what is called belongs to something that was imported."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(self._meaning(node), Foreign | Library | Module)

    def _is_function(self, node: ast.AST) -> bool:
        found = self._meaning(node)
        return isinstance(found, Own) and self._meanings.function(found) is not None

    def _function(self, node: Function, *, top: bool = False) -> str:
        """Decorators and defaults where it stands; then its arguments and its body."""
        name, decorators, a = "", "", node.args
        if not isinstance(node, ast.Lambda):
            name = "" if top else self._defined(node.name)
            decorators = self._dump(node.decorator_list)
            self._annotation(node.returns)
        defaults = self._dump([*a.defaults, *present(a.kw_defaults)])
        needed = "".join("-" if each is None else "+" for each in a.kw_defaults)
        kinds = f"{len(a.posonlyargs)}/{len(a.args)}/{len(a.kwonlyargs)}"
        kinds += ("*" if a.vararg else "") + ("**" if a.kwarg else "")
        for each in arguments(node):
            self._annotation(each.annotation)
        self._scopes.append(scope_of(node))
        named = ",".join(self._argument(each.arg, top) for each in arguments(node))
        lines = node.body if isinstance(node, ast.Lambda) else without_docstring(node.body)
        body = self._dump(lines)
        self._scopes.pop()
        return (
            f"{type(node).__name__}({name},{decorators},{kinds},{needed},{defaults},{named},{body})"
        )

    def _argument(self, name: str, top: bool) -> str:
        return f"{self._local(name)}\0{'top' if top else 'nested'} {name}\0"

    def _class(self, node: ast.ClassDef) -> str:
        local = f"{self._defined(node.name)} " if self._scopes else ""
        outside = [self._dump(each) for each in (node.decorator_list, node.bases, node.keywords)]
        self._private.append(self._private_methods(node))
        self._scopes.append(scope_of(node))
        body = self._dump(without_docstring(node.body))
        self._scopes.pop()
        self._private.pop()
        return f"ClassDef({local}{node.name},{','.join(outside)},{body})"

    def _private_methods(self, node: ast.ClassDef) -> dict[str, int]:
        """Private methods that nothing outside of the class can mean, numbered."""
        names = [
            each.name
            for each in node.body
            if isinstance(each, _FUNCTIONS)
            and each.name.startswith("_")
            and not each.name.endswith("_")
        ]
        bare = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
        bases = {getattr(base, "id", getattr(base, "attr", "?")) for base in bare}
        if not names or not bases <= _PLAIN_BASES:
            return {}
        inside, everywhere = words_in(node), self._meanings.words(self._source)
        texts = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
        hidden = [n for n in names if inside[n] == everywhere[n] and n not in texts]
        return {name: number for number, name in enumerate(hidden)}

    def _loop(self, node: Loop) -> str:
        """A comprehension; what its first loop runs over belongs to the scope around it."""
        first = self._dump(node.generators[0].iter)
        self._scopes.append(scope_of_loop(node))
        loops = []
        for number, each in enumerate(node.generators):
            over = first if number == 0 else self._dump(each.iter)
            kind = "async for" if each.is_async else "for"
            loops.append(f"{kind} {self._dump(each.target)} in {over} if {self._dump(each.ifs)}")
        parts = [value for name, value in ast.iter_fields(node) if name != "generators"]
        made = ",".join(map(self._dump, parts))
        self._scopes.pop()
        return f"{type(node).__name__}({' '.join(loops)}: {made})"

    def _binds(self, node: ast.AST) -> str:
        """Syntax that has the name of a local as a text: `except ... as`, patterns."""
        field = "rest" if isinstance(node, ast.MatchMapping) else "name"
        return f"{self._stored(getattr(node, field))}:{self._plain(node, but=field)}"

    def _outer(self, node: ast.Global | ast.Nonlocal) -> str:
        return f"{type(node).__name__}({','.join(map(self._stored, node.names))})"


_SPECIAL: dict[type, Any] = {
    ast.Name: _Definition._name,
    ast.Attribute: _Definition._attribute,
    ast.AnnAssign: _Definition._annotated,
    ast.Call: _Definition._call,
    ast.FunctionDef: _Definition._function,
    ast.AsyncFunctionDef: _Definition._function,
    ast.Lambda: _Definition._function,
    ast.ClassDef: _Definition._class,
    ast.ListComp: _Definition._loop,
    ast.SetComp: _Definition._loop,
    ast.DictComp: _Definition._loop,
    ast.GeneratorExp: _Definition._loop,
    ast.ExceptHandler: _Definition._binds,
    ast.MatchAs: _Definition._binds,
    ast.MatchStar: _Definition._binds,
    ast.MatchMapping: _Definition._binds,
    ast.Global: _Definition._outer,
    ast.Nonlocal: _Definition._outer,
}

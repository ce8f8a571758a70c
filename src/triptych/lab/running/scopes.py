"""The names that a function, a lambda, a class or a comprehension binds itself."""

import ast
from collections.abc import Iterable
from typing import Any, NamedTuple

from triptych.lab.running.sources import DEFINITIONS, bound_name

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Loop = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Scope(NamedTuple):
    """Names bound here; those that an import alone binds, with it; the numbers of names so far."""

    names: frozenset[str]
    imports: dict[str, ast.Import | ast.ImportFrom]
    numbers: dict[str, int]
    is_class: bool = False


def scope_of_loop(node: Loop) -> Scope:
    """The scope of a comprehension: its targets."""
    names = {
        each.id
        for generator in node.generators
        for each in ast.walk(generator.target)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    return Scope(frozenset(names), {}, {})


def scope_of(node: Function | ast.ClassDef) -> Scope:
    """The scope of a function or class, without what is nested in it."""
    names: set[str] = set()
    imports: dict[str, ast.Import | ast.ImportFrom] = {}
    outer: set[str] = set()
    if not isinstance(node, ast.ClassDef):
        names |= {each.arg for each in arguments(node)}

    def look(each: ast.AST) -> None:
        """Add what this syntax binds here, and not in a function inside of it."""
        if isinstance(each, DEFINITIONS):
            names.add(each.name)
            for inner in (*each.decorator_list, *_evaluated_around(each)):
                look(inner)
        elif isinstance(each, ast.Lambda):
            for inner in _evaluated_around(each):
                look(inner)
        elif isinstance(each, Loop):
            names.update(n.target.id for n in ast.walk(each) if isinstance(n, ast.NamedExpr))
        elif isinstance(each, ast.Import | ast.ImportFrom):
            imports.update({bound_name(each, alias): each for alias in each.names})
        else:
            names.update(_bound_by(each))
            if isinstance(each, ast.Global | ast.Nonlocal):
                outer.update(each.names)
            for inner in ast.iter_child_nodes(each):
                look(inner)

    for statement in [node.body] if isinstance(node, ast.Lambda) else node.body:
        look(statement)
    alone = {name: each for name, each in imports.items() if name not in names | outer}
    here = (names | imports.keys()) - outer
    return Scope(frozenset(here), alone, {}, isinstance(node, ast.ClassDef))


def _bound_by(node: ast.AST) -> Iterable[str]:
    """The name that a piece of syntax gives a value itself."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return [node.id]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        return [node.name]
    if isinstance(node, ast.MatchMapping) and node.rest:
        return [node.rest]
    return []


def _evaluated_around(node: Function | ast.ClassDef) -> list[ast.expr]:
    """Defaults, bases and the like, which belong to the scope around a definition."""
    if isinstance(node, ast.ClassDef):
        return [*node.bases, *(keyword.value for keyword in node.keywords)]
    return [*node.args.defaults, *present(node.args.kw_defaults)]


def arguments(node: Function) -> list[ast.arg]:
    """All arguments of a function, in their order."""
    a = node.args
    return [*a.posonlyargs, *a.args, *present([a.vararg]), *a.kwonlyargs, *present([a.kwarg])]


def keywords(node: Function) -> list[str]:
    """The names that a call may use as keywords, in their order."""
    return [each.arg for each in (*node.args.args, *node.args.kwonlyargs)]


def present(values: Iterable[Any]) -> list[Any]:
    """The values that are not None."""
    return [value for value in values if value is not None]

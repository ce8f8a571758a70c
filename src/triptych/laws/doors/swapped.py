"""Generators and functions that a program holds, exchanged for open ones while it runs.

It looks at arguments, the names of the program's module, its closure, its defaults and the
attributes of the object that it is a method of.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

_LOOKED_INTO = 1000  # items of a list

StandIn = Callable[[Any], Any]
"""Gives what stands for a value, or None to leave it."""


def in_arguments(value: Any, stand_in: StandIn, depth: int = 0) -> Any:
    """The argument, with generators exchanged; lists, tuples and dicts are looked into."""
    if (found := stand_in(value)) is not None:
        return found
    if depth < 3 and type(value) in (list, tuple) and len(value) < _LOOKED_INTO:
        items = [in_arguments(item, stand_in, depth + 1) for item in value]
        same = all(a is b for a, b in zip(items, value, strict=True))
        return value if same else type(value)(items)
    if depth < 3 and type(value) is dict and len(value) < _LOOKED_INTO:
        found = {key: in_arguments(item, stand_in, depth + 1) for key, item in value.items()}
        return value if all(found[key] is value[key] for key in value) else found
    return value


@contextlib.contextmanager
def in_program(program: Any, stand_in: StandIn) -> Iterator[None]:
    """The names that a program reads hold open generators; all is put back after."""
    undo: list[Callable[[], None]] = []
    try:
        _swap(program, stand_in, undo, set())
        yield
    finally:
        for put_back in reversed(undo):
            put_back()


def _swap(program: Any, stand_in: StandIn, undo: list[Callable[[], None]], seen: set[int]) -> None:
    if id(program) in seen or len(seen) > 200:
        return
    seen.add(id(program))
    if isinstance(program, functools.partial):
        for arg in (program.func, *program.args, *program.keywords.values()):
            _swap(arg, stand_in, undo, seen)
        return
    owner = getattr(program, "__self__", None)
    if owner is not None and not isinstance(owner, type):
        _swap_attributes(owner, stand_in, undo)
    function = getattr(program, "__func__", program)
    if not hasattr(function, "__code__"):
        if callable(program) and hasattr(program, "__dict__") and not isinstance(program, type):
            _swap_attributes(program, stand_in, undo)
            _swap(type(program).__call__, stand_in, undo, seen)
        return
    _swap_names(function, stand_in, undo, seen)


def _swap_attributes(owner: Any, stand_in: StandIn, undo: list[Callable[[], None]]) -> None:
    attributes = getattr(owner, "__dict__", {})
    for name, value in list(attributes.items()):
        if (found := stand_in(value)) is not None:
            attributes[name] = found
            undo.append(functools.partial(attributes.__setitem__, name, value))


def _swap_names(
    function: Any, stand_in: StandIn, undo: list[Callable[[], None]], seen: set[int]
) -> None:
    names = function.__globals__
    if id(names) not in seen:
        seen.add(id(names))
        for name, value in list(names.items()):
            if (found := stand_in(value)) is not None:
                names[name] = found
                undo.append(functools.partial(names.__setitem__, name, value))
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        if (found := stand_in(value)) is not None:
            cell.cell_contents = found
            undo.append(functools.partial(setattr, cell, "cell_contents", value))
        elif callable(value):
            _swap(value, stand_in, undo, seen)
    defaults = function.__defaults__
    if defaults and any(stand_in(value) is not None for value in defaults):
        function.__defaults__ = tuple(in_arguments(value, stand_in) for value in defaults)
        undo.append(functools.partial(setattr, function, "__defaults__", defaults))

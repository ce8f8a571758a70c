"""Frozen dataclasses to JSON and back, checked against their types.

Settings, units and rows are dataclasses in Python and JSON objects in the store and in evidence
files. A field may be an int, float, bool, str, None, Literal, Enum, tuple, Mapping with text keys,
another such dataclass, or a union of these; `Any` is any JSON value. nan, inf and -inf are written
as Python's JSON writes them.

    to_json(Flip(heads=3, share=1))             {"heads": 3, "share": 1.0}
    from_json(Flip, {"heads": 3, "share": 1})   Flip(heads=3, share=1.0)
"""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, TypeVar, Union

from triptych.core.errors import UserError

Record = TypeVar("Record")
_UNIONS = (Union, types.UnionType)


class RecordError(UserError, TypeError):
    """A value does not have the type that its field declares; the sentence names the field."""


def fields_of(kind: type) -> dict[str, Any]:
    """Name -> type of every field of a dataclass, in order."""
    return dict(_fields(kind))


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, Any], ...]:
    if not dataclasses.is_dataclass(kind):
        raise RecordError(f"{kind.__name__} is not a dataclass: write @dataclass(frozen=True)")
    hints = typing.get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in dataclasses.fields(kind))


def to_json(record: Any, *, where: str = "") -> dict[str, Any]:
    """The fields of a dataclass as JSON values; a value of another type is refused."""
    kind = type(record)
    place = where or kind.__name__
    return {
        name: _written(getattr(record, name), wanted, f"{place}: {name}")
        for name, wanted in _fields(kind)
    }


def from_json(kind: type[Record], values: Mapping[str, Any], *, where: str = "") -> Record:
    """The dataclass with these fields; an unknown, missing or ill-typed one is refused."""
    place, fields = where or kind.__name__, dict(_fields(kind))
    unknown = sorted(set(values) - set(fields))
    if unknown:
        raise RecordError(f"{place} has no field {unknown[0]!r} (fields: {', '.join(fields)})")
    given = {name: _read(values[name], fields[name], f"{place}: {name}") for name in values}
    missing = [
        field.name
        for field in dataclasses.fields(kind)  # pyright: ignore[reportArgumentType]
        if field.name not in given
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise RecordError(f"{place} needs the field {missing[0]!r}")
    return kind(**given)


def has_nan(value: Any) -> bool:
    """Whether a nan is anywhere in a value."""
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, str | int | None):
        return False
    if isinstance(value, list | tuple):
        return not _sums_to_a_number(value) and any(map(has_nan, value))
    if isinstance(value, Mapping):
        return any(map(has_nan, value.values()))
    if dataclasses.is_dataclass(value):
        return any(has_nan(getattr(value, name)) for name, _ in _fields(type(value)))
    return False


def _sums_to_a_number(values: Sequence[Any]) -> bool:
    """Then all are numbers and none is nan. A quick answer for long rows of numbers."""
    try:
        total = sum(values)
    except (TypeError, OverflowError):
        return False
    return total == total  # a nan is not equal to itself


def type_name(wanted: Any) -> str:
    """A type as one writes it: int, tuple[float, ...], str | None."""
    origin = typing.get_origin(wanted)
    if wanted is type(None):
        return "None"
    if origin is None:
        return getattr(wanted, "__name__", str(wanted))
    parts = [
        repr(a) if origin is Literal else "..." if a is Ellipsis else type_name(a)
        for a in typing.get_args(wanted)
    ]
    if origin in _UNIONS:
        return " | ".join(parts)
    return f"{getattr(origin, '__name__', origin)}[{', '.join(parts)}]"


def _written(value: Any, wanted: Any, where: str) -> Any:
    """A Python value as JSON."""
    return _converted(value, wanted, where, write=True)


def _read(value: Any, wanted: Any, where: str) -> Any:
    """A JSON value as what its field declares: lists become tuples, objects dataclasses."""
    return _converted(value, wanted, where, write=False)


class _Unfit(Exception):
    """A value does not fit a type; which one is said by whoever knows the field."""


def _converted(value: Any, wanted: Any, where: str, *, write: bool) -> Any:
    try:
        return _convert(value, wanted, write)
    except _Unfit:
        kind = type(value).__name__
        shown = repr(value) if isinstance(value, str | int | float | bool) else f"a {kind}"
        hint = ""
        if kind in ("Tensor", "ndarray") or type(value).__module__ == "numpy":
            hint = "; .item() or .tolist() turns it into plain numbers"
        elif isinstance(value, list) and write:
            hint = "; rows do not change, so write a tuple"
        needed = type_name(wanted)
        if typing.get_origin(wanted) is Literal:
            needed = " or ".join(map(repr, typing.get_args(wanted)))
        raise RecordError(f"{where} is {shown}; it must be {needed}{hint}") from None


def _convert(value: Any, wanted: Any, write: bool) -> Any:
    if wanted is float and type(value) is float:  # most of all that is stored
        return value
    known = _CONVERTERS.get((id(wanted), write))
    if known is None:
        known = _CONVERTERS[id(wanted), write] = wanted, _converter(wanted, write)
    return known[1](value)


# By identity, because int | float equals float | int and is not converted alike; a type is kept
# with its converter, so that no other one gets its place in memory.
_CONVERTERS: dict[tuple[int, bool], tuple[Any, Callable[[Any], Any]]] = {}


def _converter(wanted: Any, write: bool) -> Callable[[Any], Any]:
    """What turns a value into JSON, or back, for a field of this type; made once for each type."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in _UNIONS:
        return lambda value: _first_that_fits(value, arguments, write)
    if origin is Literal:
        return lambda value: _literal(value, arguments)
    if wanted is Any:
        return _any
    if origin is tuple:
        return lambda value: _tuple(value, arguments, write)
    if origin is Sequence:
        several = (*arguments, ...)
        return lambda value: _tuple(
            tuple(value) if isinstance(value, list) else value, several, write
        )
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return lambda value: _enum(value, wanted, write)
    if origin is not None and issubclass(origin, Mapping):
        return lambda value: _mapping(value, arguments[1], write)
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        return lambda value: _record(value, wanted, write)
    return lambda value: _plain(value, wanted)


def _literal(value: Any, known: Sequence[Any]) -> Any:
    if any(value == each and type(value) is type(each) for each in known):
        return value
    raise _Unfit


def _mapping(value: Any, wanted: Any, write: bool) -> Any:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise _Unfit
    return {key: _convert(item, wanted, write) for key, item in value.items()}


def _record(value: Any, wanted: type, write: bool) -> Any:
    if write and type(value) is wanted:
        return {n: _convert(getattr(value, n), t, write) for n, t in _fields(wanted)}
    if not write and isinstance(value, Mapping):
        return from_json(wanted, value)
    raise _Unfit


def _any(value: Any) -> Any:
    """A JSON value as it is; tuples become lists."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list | tuple):
        return [_any(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _any(item) for key, item in value.items()}
    raise _Unfit


def _enum(value: Any, wanted: type[Enum], write: bool) -> Any:
    if write:
        if isinstance(value, wanted):
            return value.value
    elif any(value == member.value for member in wanted):
        return wanted(value)
    raise _Unfit


def _plain(value: Any, wanted: Any) -> Any:
    """Numbers, text, truth values, None. An int is a float too; a bool is no number."""
    if wanted is float and type(value) in (int, float):
        return float(value)
    if wanted is type(None) or wanted is None:
        if value is None:
            return None
    elif wanted in (int, bool, str) and type(value) is wanted:
        return value
    raise _Unfit


def _first_that_fits(value: Any, kinds: Sequence[Any], write: bool) -> Any:
    """An int stays an int where the union has both int and float."""
    exact = [kind for kind in kinds if kind is type(value)]
    for kind in [*exact, *kinds]:
        try:
            return _convert(value, kind, write)
        except (_Unfit, RecordError):
            continue
    raise _Unfit


def _tuple(value: Any, arguments: tuple[Any, ...], write: bool) -> Any:
    if not isinstance(value, tuple if write else list | tuple):
        raise _Unfit
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        if arguments[0] in (float, int) and set(map(type, value)) <= {arguments[0]}:
            return list(value) if write else tuple(value)  # long ones, as a curve
        kinds = [arguments[0]] * len(value)
    elif len(arguments) == len(value):
        kinds = list(arguments)
    else:
        raise _Unfit
    items = [_convert(item, kind, write) for item, kind in zip(value, kinds, strict=True)]
    return items if write else tuple(items)

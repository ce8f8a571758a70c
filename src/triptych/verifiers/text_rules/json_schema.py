"""What a JSON value may be: the part of JSON Schema that can be read from left to right.

A schema is a dict with any of these keywords; each says something of values of its own type only.

    type                    one or a list of object array string number integer boolean null
    enum                    the allowed strings, numbers, true, false and null
    minimum, maximum        of numbers
    properties, required    of objects
    additionalProperties    False: an object has no keys but those of `properties`
    items                   the schema of every item of an array

Differences from JSON Schema: an integer is written without fraction and exponent (2.0 is none),
and an object has every key once. `title`, `description` and the like are read over; any other
keyword is refused.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, NamedTuple

from triptych.core.validation import UserError, as_flag, as_number, shown

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
LITERALS = {"true": True, "false": False, "null": None}
_ANNOTATIONS = ("title", "description", "default", "examples", "$schema", "$id", "$comment")
_KEYWORDS = (
    "type",
    "enum",
    "minimum",
    "maximum",
    "properties",
    "required",
    "additionalProperties",
    "items",
)
_MAX_DEPTH = 50  # of a schema


class Schema(NamedTuple):
    """What a value may be.

    objects, arrays, strings, numbers    whether such values are allowed
    literals       which of "true", "false" and "null" are
    enum_strings   the allowed strings; None: all
    enum_numbers   the allowed numbers; None: all between `minimum` and `maximum`
    fractions      numbers may have a fraction or an exponent
    properties     the schemas of keys
    others         keys that are not in `properties` are allowed, with any value
    items          the schema of items; None: any value
    """

    objects: bool
    arrays: bool
    strings: bool
    numbers: bool
    literals: tuple[str, ...]
    enum_strings: tuple[str, ...] | None
    enum_numbers: tuple[Decimal, ...] | None
    minimum: Decimal
    maximum: Decimal
    fractions: bool
    properties: dict[str, "Schema"]
    required: frozenset[str]
    others: bool
    items: "Schema | None"


def read_schema(schema: Mapping[str, Any] | None) -> Schema:
    """A schema as a user writes it; None allows every value.

    Worked value: {"type": "integer", "minimum": 1} allows numbers without fractions, from 1.
    """
    read = _read("schema", {} if schema is None else schema, 0)
    if not satisfiable(read):
        raise UserError(
            f"schema is {shown(schema)}; it must allow some value, and no value fits",
            parameter="schema",
        )
    return read


def satisfiable(schema: Schema) -> bool:
    """Some value fits."""
    if not isinstance(schema, Schema):
        raise UserError(
            f"schema is {shown(schema)}; it must be one that read_schema made", parameter="schema"
        )
    return bool(
        schema.objects or schema.arrays or schema.strings or schema.numbers or schema.literals
    )


def _read(where: str, schema: Any, depth: int) -> Schema:
    """The schema; a kind of values of which none fits is not allowed in it."""
    _check_keywords(where, schema, depth)
    types = _types(where, schema.get("type", TYPES))
    enum = _enum(where, schema["enum"]) if "enum" in schema else None
    minimum = _bound(where, "minimum", schema, "-Infinity")
    maximum = _bound(where, "maximum", schema, "Infinity")
    fractions = "number" in types
    enum_strings = None if enum is None else tuple(x for x in enum if isinstance(x, str))
    enum_numbers = None if enum is None else _allowed_numbers(enum, minimum, maximum, fractions)
    literals = tuple(
        text
        for text, value in LITERALS.items()
        if ("null" if value is None else "boolean") in types
        and (enum is None or any(value is allowed for allowed in enum))
    )
    properties = {
        key: _read(f"properties[{key!r}] of {where}", value, depth + 1)
        for key, value in _mapping(where, "properties", schema).items()
    }
    required = frozenset(_names(where, "required", schema))
    others = as_flag(f"additionalProperties of {where}", schema.get("additionalProperties", True))
    possible = all(satisfiable(properties[k]) if k in properties else others for k in required)
    if enum_numbers is not None:
        some_number = enum_numbers != ()
    elif fractions:
        some_number = minimum <= maximum
    else:
        low = minimum.to_integral_value(ROUND_CEILING)
        some_number = low <= maximum.to_integral_value(ROUND_FLOOR)
    return Schema(
        objects="object" in types and enum is None and possible,
        arrays="array" in types and enum is None,
        strings="string" in types and enum_strings != (),
        numbers=(fractions or "integer" in types) and some_number,
        literals=literals,
        enum_strings=enum_strings,
        enum_numbers=enum_numbers,
        minimum=minimum,
        maximum=maximum,
        fractions=fractions,
        properties=properties,
        required=required,
        others=others,
        items=_read(f"items of {where}", schema["items"], depth + 1) if "items" in schema else None,
    )


def _allowed_numbers(
    enum: list[Any], minimum: Decimal, maximum: Decimal, fractions: bool
) -> tuple[Decimal, ...]:
    values = [value for value in enum if isinstance(value, int | float)]
    numbers = [_decimal(value) for value in values if not isinstance(value, bool)]
    return tuple(
        number
        for number in numbers
        if minimum <= number <= maximum and (fractions or number == number.to_integral_value())
    )


def _decimal(value: int | float) -> Decimal:
    return Decimal(value) if isinstance(value, int) else Decimal(repr(float(value)))


# ------------------------------------------------------------------ what a user wrote


def _check_keywords(where: str, schema: Any, depth: int) -> None:
    if not isinstance(schema, Mapping):
        raise UserError(
            f"{where} is {shown(schema)}; it must be a dict of keywords of JSON Schema",
            parameter="schema",
        )
    if depth > _MAX_DEPTH:
        raise UserError(
            f"schema has more than {_MAX_DEPTH} schemas inside each other; use fewer",
            parameter="schema",
        )
    for key in schema:
        if key not in _KEYWORDS and key not in _ANNOTATIONS:
            raise UserError(
                f"{where} has the keyword {key!r}, which is not supported; these are: "
                + ", ".join(_KEYWORDS)
            )


def _types(where: str, types: Any) -> tuple[str, ...]:
    listed = [types] if isinstance(types, str) else types
    if not isinstance(listed, Sequence) or not all(
        isinstance(name, str) and name in TYPES for name in listed
    ):
        raise UserError(
            f"type of {where} is {shown(types)}; it must be one or more of {', '.join(TYPES)}",
            parameter="types",
        )
    return tuple(listed)


def _enum(where: str, values: Any) -> list[Any]:
    plain = isinstance(values, Sequence) and not isinstance(values, str)
    if not plain or not all(
        value is None
        or isinstance(value, str | bool | int)
        or (isinstance(value, float) and math.isfinite(value))
        for value in values
    ):
        raise UserError(
            f"enum of {where} is {shown(values)}; it must be a list of strings, numbers, True, "
            "False and None"
        )
    return list(values)


def _mapping(where: str, key: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    value = schema.get(key, {})
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise UserError(
            f"{key} of {where} is {shown(value)}; it must be a dict of schemas by key",
            parameter="key",
        )
    return value


def _names(where: str, key: str, schema: Mapping[str, Any]) -> list[str]:
    value = schema.get(key, [])
    plain = isinstance(value, Sequence) and not isinstance(value, str)
    if not plain or not all(isinstance(name, str) for name in value):
        raise UserError(
            f"{key} of {where} is {shown(value)}; it must be a list of keys", parameter="key"
        )
    return list(value)


def _bound(where: str, key: str, schema: Mapping[str, Any], otherwise: str) -> Decimal:
    if key not in schema:
        return Decimal(otherwise)
    number = as_number(f"{key} of {where}", schema[key])
    return _decimal(schema[key] if isinstance(schema[key], int) else number)

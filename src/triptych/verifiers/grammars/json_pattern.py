"""The regular expression of a JSON schema, in one spelling: that of `json.dumps`.

    pattern_of({"type": "array", "items": {"type": "boolean"}})

Keys stand in the order of `properties`, ", " and ": " separate, and there is no other space. So the
expression matches some of the texts that fit the schema, those in this spelling, and a law given
the expression is one given the schema so spelled. What is not regular (`$ref` to itself) or not
read here (`not`, `if`, `patternProperties`, bounds of numbers, ...) is refused in words.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from triptych.core.validation import UserError, shown

_STRING = r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})'
_INTEGER = r"-?(?:0|[1-9][0-9]*)"
_NUMBER = _INTEGER + r"(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_KEYS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"minLength", "maxLength"},
    "integer": {"minimum"},
    "number": set(),
    "boolean": set(),
    "null": set(),
}
_WORDS = {"title", "description", "default", "examples", "$schema", "$id", "$defs", "definitions"}
_DEEPEST = 32


def pattern_of(schema: Mapping[str, Any]) -> str:
    """A regular expression of values that fit a schema, each in one spelling.

    Worked value: of an array of at most one integer, `\\\\[(?:-?(?:0|[1-9][0-9]*))?\\\\]`.
    """
    if not isinstance(schema, Mapping):
        raise UserError(
            f"schema is {shown(schema)}; it must be a dict of JSON Schema", parameter="schema"
        )
    return _value(schema, schema, 0)


def _value(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    if depth > _DEEPEST:
        raise UserError(
            "the schema refers to itself, or is too deep; such values are not regular: take an "
            "engine of grammars, from left to right",
            parameter="schema",
        )
    if not isinstance(schema, Mapping) or not schema:
        raise UserError(
            f"a part of the schema is {shown(schema)}, which allows any value; these are not "
            "regular: say its type",
            parameter="schema",
        )
    if "$ref" in schema:
        return _value(_pointed(schema["$ref"], root), root, depth + 1)
    if "const" in schema:
        return re.escape(json.dumps(schema["const"], ensure_ascii=False))
    if "enum" in schema:
        return _either([re.escape(json.dumps(v, ensure_ascii=False)) for v in schema["enum"]])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return _either([_value(each, root, depth + 1) for each in schema[word]])
    kind = schema.get("type")
    if isinstance(kind, Sequence) and not isinstance(kind, str):
        return _either([_value({**schema, "type": each}, root, depth) for each in kind])
    if kind not in _KEYS:
        raise UserError(
            f"a part of the schema is {shown(dict(schema))}, without a type that is read here; the "
            f"types are {', '.join(_KEYS)}",
            parameter="schema",
        )
    if unknown := sorted(set(schema) - _WORDS - _KEYS[kind] - {"type"}):
        raise UserError(
            f"the schema says {unknown[0]!r} of a value of type {kind}; that is not read as a "
            "regular expression: take an engine of grammars, from left to right",
            parameter="schema",
        )
    if kind == "object":
        return _object(schema, root, depth)
    if kind == "array":
        return _array(schema, root, depth)
    if kind == "string":
        return f'"{_STRING}{_times(schema, "Length")}"'
    if kind == "integer" and schema.get("minimum", 0) != 0:
        raise UserError("of bounds, minimum: 0 alone is read here", parameter="schema")
    plain = {"integer": _INTEGER, "number": _NUMBER, "boolean": "(?:true|false)", "null": "null"}
    return plain[kind].removeprefix("-?") if "minimum" in schema else plain[kind]


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    """Members in the order of `properties`; one that is not required may be missing."""
    if schema.get("additionalProperties", True) is not False:
        raise UserError(
            "an object may have any other keys, which is not regular; say "
            '"additionalProperties": false',
            parameter="schema",
        )
    given, required = schema.get("properties", {}), set(schema.get("required", ()))
    if missing := required - set(given):
        raise UserError(f"{missing.pop()!r} is required and no property", parameter="schema")
    members = [
        (f"{re.escape(json.dumps(key, ensure_ascii=False))}: {_value(part, root, depth + 1)}", key)
        for key, part in given.items()
    ]
    rest = ""  # of the members behind one that stands
    alone: list[str] = []  # whole contents, by the first member that stands
    for place in range(len(members) - 1, -1, -1):
        text, key = members[place]
        alone.append(text + rest)
        rest = f", {text}{rest}" if key in required else f"(?:, {text})?{rest}"
    alone.reverse()
    first = next((i for i, (_, key) in enumerate(members) if key in required), None)
    options = alone if first is None else alone[: first + 1]
    body = _either(options) if options else ""
    return rf"\{{{body}{'?' if first is None and options else ''}\}}"


def _array(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    """Items with ", " between them."""
    item = _value(schema.get("items"), root, depth + 1)
    least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
    if most == 0:
        return r"\[\]"
    upper = "" if most is None else str(int(most) - 1)
    more = f"{item}(?:, {item}){{{max(least - 1, 0)},{upper}}}"
    return rf"\[{more}\]" if least else rf"\[(?:{more})?\]"


def _times(schema: Mapping[str, Any], what: str) -> str:
    least, most = schema.get(f"min{what}", 0), schema.get(f"max{what}")
    return f"{{{int(least)},{'' if most is None else int(most)}}}" if least or most else "*"


def _either(options: Sequence[str]) -> str:
    return f"(?:{'|'.join(options)})"


def _pointed(pointer: Any, root: Mapping[str, Any]) -> Any:
    """What a $ref within the schema stands for."""
    found: Any = root
    if not isinstance(pointer, str) or not pointer.startswith("#/"):
        raise UserError(f"$ref is {shown(pointer)}; it must begin with #/", parameter="schema")
    for part in pointer[2:].split("/"):
        if not isinstance(found, Mapping) or part not in found:
            raise UserError(f"there is no {pointer} in the schema", parameter="schema")
        found = found[part]
    return found

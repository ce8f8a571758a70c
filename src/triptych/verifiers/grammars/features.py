"""What each engine makes of each feature of JSON Schema: found by the audit, version by version.

A feature is something that a part of a schema can have, and a few schemas that try it. `measured`
audits an engine on them; `features.json` keeps the answers, which `complaints` turns into sentences
about a schema of yours. `tools/grammar_features.py` makes the file, and the table of
docs/grammars.md.
"""

import functools
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from triptych.verifiers.grammars.documents import parts
from triptych.verifiers.grammars.engines import Engine, as_engine, engine_version

Verdict = Literal["kept", "form", "partly", "refused", "narrow", "wide"]
_FILE = Path(__file__).with_name("features.json")

_OF_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_OF_STRINGS = ("minLength", "maxLength", "pattern", "format")
_OF_ARRAYS = ("minItems", "maxItems", "uniqueItems", "contains")
_OF_OBJECTS = ("required", "minProperties", "maxProperties", "propertyNames")
_IMPLIED = ("properties", "items", "prefixItems", "additionalProperties", "patternProperties")
_IN_PLACE = ("anyOf", "oneOf", "allOf")
_SAYS_NOTHING = {"title", "description", "default", "examples", "$schema", "$id", "$comment"}
_SAYS_NOTHING |= {"$defs", "definitions", "deprecated", "readOnly", "writeOnly", "$anchor"}


class Feature(NamedTuple):
    """A name, how it is found in a part of a schema, and schemas that try it."""

    name: str
    found_in: Callable[[Mapping[str, Any]], bool]
    tried: tuple[Any, ...]


class Said(NamedTuple):
    """What an engine makes of a feature.

    verdict   kept; form: some ways to write right documents are refused; narrow: right documents
              are refused; wide: wrong documents are accepted; refused: no schema with it is read;
              partly: some schemas with it are refused, in words, and others are read
    schema, text   the schema and the shortest document that show it
    """

    verdict: Verdict
    schema: Any = None
    text: str = ""


class Complaint(NamedTuple):
    """A sentence about a schema and an engine."""

    feature: str
    accepts_too_much: bool
    sentence: str


def _has(*keys: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda part: any(key in part for key in keys)


def _typed(types: set[str], *keys: str) -> Callable[[Mapping[str, Any]], bool]:
    """One of the keywords next to a `type` that is one of the types."""
    return lambda part: (
        any(key in part for key in keys)
        and isinstance(part.get("type"), str)
        and part["type"] in types
    )


def _untyped(*keys: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda part: "type" not in part and any(key in part for key in keys)


def _unnamed_required(part: Mapping[str, Any]) -> bool:
    required, named = part.get("required"), part.get("properties") or {}
    return isinstance(required, list) and any(key not in named for key in required)


def _beside(*keys: str) -> Callable[[Mapping[str, Any]], bool]:
    """A keyword that says something, next to one of these."""
    return lambda part: (
        any(key in part for key in keys) and bool(set(part) - _SAYS_NOTHING - set(keys))
    )


def _refers(begins: str, other: bool = False) -> Callable[[Mapping[str, Any]], bool]:
    def found(part: Mapping[str, Any]) -> bool:
        to = part.get("$ref")
        return isinstance(to, str) and (to == "#" or to.startswith(begins)) != other

    return found


def _of_parts(part: Mapping[str, Any]) -> bool:
    values = [*(part.get("enum") or []), part.get("const")]
    return any(isinstance(value, list | dict) and value for value in values)


def _several_types(part: Mapping[str, Any]) -> bool:
    limits = (*_OF_NUMBERS, *_OF_STRINGS, *_OF_ARRAYS, *_OF_OBJECTS, *_IMPLIED)
    return isinstance(part.get("type"), list) and any(key in part for key in limits)


def _whole_multiple(part: Mapping[str, Any]) -> bool:
    of = part.get("multipleOf")
    return part.get("type") == "integer" and isinstance(of, int | float) and float(of).is_integer()


_INT, _STR = {"type": "integer"}, {"type": "string"}
_AB = {"type": "object", "properties": {"a": _INT, "b": _STR}}
_ITEMS = {"type": "array", "items": _INT}
_BARE = {"type": "object"}

FEATURES: tuple[Feature, ...] = (
    Feature("type", _has("type"),
            (_INT, {"type": "number"}, {"type": ["null", "string"]}, _BARE)),
    Feature("enum, const", _has("enum", "const"),
            ({"enum": ["a", 1, None, 1.5]}, {"const": "aé\n"})),
    Feature("enum, const of objects and arrays", _of_parts, ({"const": {"a": 1, "b": [2]}},)),
    Feature("true and false as schemas", lambda part: False in _values(part),
            ({"type": "object", "properties": {"a": False}}, {"type": "array", "items": False})),
    Feature("type is a list, with keywords of one type", _several_types,
            ({"type": ["integer", "string"], "minimum": 2, "maxLength": 1},)),
    Feature("keywords of one type, without `type`",
            _untyped(*_OF_NUMBERS, *_OF_STRINGS, *_OF_ARRAYS, *_OF_OBJECTS),
            ({"minimum": 2}, {"maxLength": 1}, {"minItems": 1}, {"required": ["a"]},
             {"pattern": "^a$"}, {"minProperties": 1})),
    Feature("properties or items, without `type`", _untyped(*_IMPLIED),
            ({"properties": {"a": _INT}}, {"items": _INT}, {"prefixItems": [_INT]})),
    Feature("bounds of integers", _typed({"integer"}, *_OF_NUMBERS[:4]),
            ({**_INT, "minimum": 2, "maximum": 17}, {**_INT, "exclusiveMinimum": -3},
             {**_INT, "exclusiveMaximum": 3.5})),
    Feature("bounds of numbers", _typed({"number"}, *_OF_NUMBERS[:4]),
            ({"type": "number", "minimum": 1.5, "maximum": 17}, {"type": "number", "minimum": -0.5},
             {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})),
    Feature("multipleOf, whole, of integers", lambda part: _whole_multiple(part),
            ({**_INT, "multipleOf": 3},)),
    Feature("multipleOf of another kind", lambda part: "multipleOf" in part
            and not _whole_multiple(part),
            ({"type": "number", "multipleOf": 0.5}, {**_INT, "multipleOf": 1.5})),
    Feature("minLength, maxLength", _typed({"string"}, "minLength", "maxLength"),
            ({**_STR, "minLength": 1, "maxLength": 2}, {**_STR, "minLength": 3})),
    Feature("pattern", _typed({"string"}, "pattern"),
            ({**_STR, "pattern": "^[a-c]+$"}, {**_STR, "pattern": "b"}, {**_STR, "pattern": "^a"})),
    Feature("pattern with a length", lambda part: "pattern" in part
            and ("minLength" in part or "maxLength" in part),
            ({**_STR, "pattern": "^[ab]*$", "minLength": 2, "maxLength": 3},)),
    Feature("format", _has("format"),
            tuple({**_STR, "format": f} for f in ("date", "email", "ipv4", "uuid", "date-time"))),
    Feature("items", _typed({"array"}, "items"), (_ITEMS,)),
    Feature("prefixItems", _typed({"array"}, "prefixItems"),
            ({"type": "array", "prefixItems": [_INT, _STR]},
             {"type": "array", "prefixItems": [_INT], "items": _STR})),
    Feature("minItems, maxItems", _typed({"array"}, "minItems", "maxItems"),
            ({**_ITEMS, "minItems": 1, "maxItems": 2}, {"type": "array", "minItems": 2})),
    Feature("uniqueItems", lambda part: part.get("uniqueItems") is True,
            ({**_ITEMS, "uniqueItems": True}, {"type": "array", "uniqueItems": True})),
    Feature("contains", _has("contains", "minContains", "maxContains"),
            ({"type": "array", "contains": _INT},
             {"type": "array", "contains": _INT, "minContains": 2})),
    Feature("properties", _typed({"object"}, "properties"), (_AB,)),
    Feature("properties whose name is written with a backslash", lambda part: any(
        json.dumps(key, ensure_ascii=False) != f'"{key}"' for key in part.get("properties") or ()),
            ({**_BARE, "properties": {'a"': _INT, "\n": _INT}},)),
    Feature("required, of properties", lambda part: "required" in part and "properties" in part,
            ({**_AB, "required": ["a"]}, {**_AB, "required": ["b"]})),
    Feature("required, of a key not in properties", _unnamed_required,
            ({**_BARE, "required": ["a"]}, {**_AB, "required": ["c"]})),
    Feature("additionalProperties", _typed({"object"}, "additionalProperties"),
            ({**_AB, "additionalProperties": False}, {**_BARE, "additionalProperties": _INT})),
    Feature("patternProperties", _has("patternProperties"),
            ({**_BARE, "patternProperties": {"^a": _INT}},
             {**_AB, "patternProperties": {"^c": _INT}},
             {**_BARE, "patternProperties": {"^a": _INT}, "additionalProperties": False})),
    Feature("propertyNames", _has("propertyNames"),
            ({**_BARE, "propertyNames": {"pattern": "^a"}},
             {**_BARE, "propertyNames": {"maxLength": 1}})),
    Feature("minProperties, maxProperties", _has("minProperties", "maxProperties"),
            ({**_BARE, "minProperties": 1}, {**_BARE, "maxProperties": 1},
             {**_AB, "minProperties": 1})),
    Feature("dependentRequired, dependentSchemas, dependencies",
            _has("dependentRequired", "dependentSchemas", "dependencies"),
            ({**_BARE, "dependentRequired": {"a": ["b"]}},
             {**_BARE, "dependentSchemas": {"a": {"required": ["b"]}}})),
    Feature("unevaluatedItems, unevaluatedProperties",
            _has("unevaluatedItems", "unevaluatedProperties"),
            ({**_AB, "unevaluatedProperties": False},
             {"type": "array", "prefixItems": [_INT], "unevaluatedItems": False})),
    Feature("anyOf", _has("anyOf"), ({"anyOf": [_INT, {"type": "null"}]},
                                     {"anyOf": [{**_AB, "required": ["a"]}, _STR]})),
    Feature("oneOf", _has("oneOf"),
            ({"oneOf": [_INT, _STR]}, {"oneOf": [_INT, {"type": "number"}]})),
    Feature("allOf of one", lambda part: len(part.get("allOf") or ()) == 1, ({"allOf": [_INT]},)),
    Feature("allOf of several", lambda part: len(part.get("allOf") or ()) > 1,
            ({"allOf": [{"type": "number"}, {**_INT, "minimum": 2}]},
             {"allOf": [{**_AB, "required": ["a"]},
                        {**_BARE, "required": ["b"], "properties": {"b": _STR}}]})),
    Feature("keywords next to anyOf, oneOf or allOf", _beside(*_IN_PLACE),
            ({"type": "integer", "anyOf": [{"type": "integer", "minimum": 2}, {"type": "null"}]},
             {"type": "object", "properties": {"a": _INT},
              "anyOf": [{**_BARE, "required": ["a"]}, {**_BARE, "required": ["b"]}]},
             {"type": "integer", "minimum": 2, "allOf": [{"type": "number"}]})),
    Feature("not", _has("not"), ({"not": _STR}, {"type": "integer", "not": {"const": 1}})),
    Feature("if, then, else", _has("if"),
            ({"if": _INT, "then": {"type": "integer", "minimum": 3}},
             {**_AB, "if": {"required": ["a"]}, "then": {"required": ["b"]}})),
    Feature("$ref inside the schema", _refers("#/"),
            ({"$defs": {"n": _INT}, "type": "array", "items": {"$ref": "#/$defs/n"}},)),
    Feature("$ref to itself", lambda part: part.get("$ref") == "#",
            ({**_BARE, "properties": {"a": {"$ref": "#"}}, "additionalProperties": False},)),
    Feature("keywords next to $ref", _beside("$ref"),
            ({"$defs": {"n": _INT}, "$ref": "#/$defs/n", "minimum": 2},)),
    Feature("$ref by $anchor or $id", _refers("#/", other=True),
            ({"$defs": {"n": {"$anchor": "n", **_INT}}, "$ref": "#n"},
             {"$defs": {"n": {"$id": "urn:n", **_INT}}, "$ref": "urn:n"})),
    Feature("$dynamicRef", _has("$dynamicRef", "$recursiveRef"),
            ({"$defs": {"n": {"$dynamicAnchor": "n", **_INT}}, "$dynamicRef": "#n"},)),
    Feature("unknown formats", lambda part: part.get("format") not in (
        None, "date", "email", "ipv4", "uuid", "date-time", "time", "duration", "hostname", "ipv6",
        "uri"), ({**_STR, "format": "of-its-own"},)),
)  # fmt: skip


def _values(part: Mapping[str, Any]) -> list[Any]:
    """The schemas right inside a part."""
    found = [part.get("items"), part.get("additionalItems"), part.get("contains")]
    for key in ("properties", "patternProperties", "$defs"):
        inner = part.get(key)
        found += inner.values() if isinstance(inner, Mapping) else []
    for key in ("prefixItems", *_IN_PLACE):
        inner = part.get(key)
        found += inner if isinstance(inner, list) else []
    return [value for value in found if isinstance(value, bool)]


def measured(engine: Engine, *, tries: int = 600) -> dict[str, Said]:
    """What the installed engine makes of every feature, by the audit."""
    from triptych.verifiers.grammars.audit import audit

    found = {}
    for feature in FEATURES:
        answers, unread = [Said("kept")], []
        for schema in feature.tried:
            made = audit(schema, as_engine(engine), tries=tries)
            if made.refused is not None:
                unread.append(schema)
            answers += [Said(_VERDICTS[d.what], schema, d.text) for d in made.disagreements]
        if unread:
            every = len(unread) == len(feature.tried)
            answers.append(Said("refused" if every else "partly", unread[0]))
        found[feature.name] = max(answers, key=lambda said: _ORDER.index(said.verdict))
    return found


_ORDER: tuple[Verdict, ...] = ("kept", "form", "partly", "refused", "narrow", "wide")
_VERDICTS: dict[str, Verdict] = {"accepts": "wide", "refuses": "narrow", "form": "form"}


class Known(NamedTuple):
    """What the file has of an engine."""

    version: str
    said: dict[str, Said]


@functools.cache
def known(engine: Engine) -> Known:
    """What was found for the version of an engine that the file names."""
    entry = json.loads(_FILE.read_text())[as_engine(engine)]
    return Known(entry["version"], {name: Said(**said) for name, said in entry["features"].items()})


def pattern_complaints(pattern: str, engine: Engine) -> tuple[Complaint, ...]:
    """What is known of an engine about a regular expression of Python.

    Worked value: of "a.c" and xgrammar, that "." holds a newline there, and none in Python.
    """
    plain = re.sub(r"\\\\|\[(?:\\.|[^\]\\])*\]", "", pattern)  # without "\\\\" and classes
    if as_engine(engine) != "xgrammar":
        return ()
    said = []
    if re.search(r"(?<!\\)\.", plain):
        sentence = 'xgrammar reads "." as every character, a newline too: write [^\\n]'
        said.append(Complaint("any character", True, sentence))
    if re.search(r"\\[WDS]", pattern):
        sentence = r"xgrammar's \W, \D and \S are of ASCII and hold more than Python's"
        said.append(Complaint("classes", True, sentence))
    if re.search(r"\\[wds]", pattern):
        sentence = r"xgrammar's \w, \d and \s are of ASCII and hold less than Python's"
        said.append(Complaint("classes", False, sentence))
    return tuple(said)


def complaints(schema: Any, engine: Engine) -> tuple[Complaint, ...]:
    """What is known of an engine about the features of a schema.

    Worked value: for {"uniqueItems": True} and xgrammar, one that accepts too much.
    """
    found, there = known(engine), list(parts(schema))
    said = []
    for feature in FEATURES:
        answer = found.said.get(feature.name, Said("kept"))
        if answer.verdict in ("wide", "narrow") and any(map(feature.found_in, there)):
            does = "accepts" if answer.verdict == "wide" else "refuses"
            shown = json.dumps(answer.schema)
            said.append(
                Complaint(
                    feature.name,
                    answer.verdict == "wide",
                    f"{feature.name}: {engine} {found.version} {does} {answer.text} for {shown}",
                )
            )
    if any(len(part.get("properties") or ()) > 1 for part in there) and engine != "triptych":
        said.append(
            Complaint("order", False, f"{engine} writes keys in the order of the schema alone")
        )
    installed = engine_version(engine)
    if installed not in (None, found.version) and engine != "triptych":
        said.append(
            Complaint(
                "version",
                False,
                f"what is known of {engine} was found with {found.version}, and {installed} is "
                "installed: `triptych audit-grammar` looks at the one that is there",
            )
        )
    return tuple(said)

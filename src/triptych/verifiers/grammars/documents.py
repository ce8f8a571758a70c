"""Documents to try a JSON schema with, the shortest first: right ones, and ones just next to it.

What stands in a schema (keys, constants, bounds, lengths, patterns) says which documents could tell
two readers of it apart. From these, values are built from the inside to the outside: for each part
a few values that should fit, a few that should not, and objects and arrays of them.
"""

import itertools
import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from triptych.core.validation import UserError
from triptych.verifiers.text_rules.regular import RegexPrefix

MOST = 24  # values of one part of a schema
MAX_DEPTH = 6
_PLAIN: tuple[Any, ...] = (None, True, False, 0, 1, -1, 2, 1.5, 1.0, "", "a", "aa", [], {})
FORMATS = {
    "date": "2024-02-29",
    "date-time": "2024-02-29T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "a@b.cd",
    "hostname": "a.bc",
    "idn-email": "a@b.cd",
    "idn-hostname": "a.bc",
    "ipv4": "1.2.3.4",
    "ipv6": "::1",
    "iri": "http://a.bc",
    "iri-reference": "/a",
    "json-pointer": "/a",
    "regex": "a*",
    "relative-json-pointer": "0/a",
    "uri": "http://a.bc",
    "uri-reference": "/a",
    "uri-template": "/{a}",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = (
    "items",
    "additionalProperties",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
    "additionalItems",
)


def written(value: Any) -> str:
    """A document in its shortest form."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """The schema, and every schema inside of it."""
    if not isinstance(schema, Mapping):
        return
    yield schema
    for key in _MAPS:
        inner = schema.get(key)
        if isinstance(inner, Mapping):
            for value in inner.values():
                yield from parts(value)
    for key in (*_LISTS, *_SINGLE):
        inner = schema.get(key)
        for value in inner if isinstance(inner, list) else [inner]:
            yield from parts(value)


def documents(schema: Any, most: int = 2000) -> list[Any]:
    """Documents around a schema, the shortest first; the same ones at every call.

    Worked value: of {"const": 1}, 1 is among the first, and so is 2.
    """
    made = _Builder(schema)
    return sorted(_distinct([*made.of(schema, 0), *made.small()]), key=_size)[:most]


def mutated(value: Any, atoms: list[Any], draw: random.Random) -> Any:
    """A document with one change somewhere: a value, a key or an item more, less or another one."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        key = draw.choice(list(value))
        change = draw.randrange(4)
        if change == 0:
            return {k: v for k, v in value.items() if k != key}
        if change == 1:
            new = draw.choice([a for a in atoms if isinstance(a, str)] or ["a"])
            return value | {new: draw.choice(atoms)}
        if change == 2:
            keys = list(value)
            draw.shuffle(keys)
            return {k: value[k] for k in keys}
        return value | {key: mutated(value[key], atoms, draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        at, change = draw.randrange(len(value)), draw.randrange(3)
        if change == 0:
            return value[:at] + value[at + 1 :]
        if change == 1:
            return [*value, draw.choice([*value, *atoms])]
        return [*value[:at], mutated(value[at], atoms, draw), *value[at + 1 :]]
    return draw.choice(atoms)


def atoms_of(schema: Any) -> list[Any]:
    """The values without parts that the schema speaks of, and a few plain ones."""
    return _distinct([*_Builder(schema).atoms, *_PLAIN])


def smaller(value: Any) -> Iterator[Any]:
    """Documents that are one step simpler."""
    if isinstance(value, dict):
        yield from value.values()
        for key in value:
            yield {k: v for k, v in value.items() if k != key}
        for key, inner in value.items():
            for less in smaller(inner):
                yield value | {key: less}
    elif isinstance(value, list):
        yield from value
        for at in range(len(value)):
            yield value[:at] + value[at + 1 :]
        for at, inner in enumerate(value):
            for less in smaller(inner):
                yield [*value[:at], less, *value[at + 1 :]]
    elif isinstance(value, str) and value:
        yield ""
        yield value[: len(value) // 2]
        yield value[1:]
        yield value[:-1]
    elif isinstance(value, float | int) and not isinstance(value, bool):
        yield from (0, 1, int(value), int(value / 2))
    if value is not None:
        yield None


# ------------------------------------------------------------------ values around a schema


class _Builder:
    def __init__(self, schema: Any) -> None:
        self.root = schema
        self.keys = _distinct(
            key
            for part in parts(schema)
            for key in [*_names(part.get("properties")), *_names(part.get("required"))]
        )
        self.atoms = _distinct(value for part in parts(schema) for value in self._named(part))

    def small(self) -> list[Any]:
        """Every document of at most two parts, from the atoms of the schema."""
        atoms = [*self.atoms[:MOST], *_PLAIN]
        keys = [*self.keys[:6], "z"]
        return [
            *atoms,
            *([atom] for atom in atoms),
            *([one, other] for one, other in itertools.product(atoms[:10], repeat=2)),
            *({key: atom} for key in keys for atom in atoms),
            *({one: 0, other: 1} for one, other in itertools.permutations(keys, 2)),
        ]

    def of(self, schema: Any, depth: int) -> list[Any]:
        """Values around one part of the schema."""
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            return list(_PLAIN[: 6 if depth else None])
        found: list[Any] = [*self._named(schema)]
        if "$ref" in schema:
            found += self.of(self._resolved(schema["$ref"]), depth + 1)
        for key in (*_LISTS[:3], "if", "then", "else", "not"):
            inner = schema.get(key)
            for one in inner if isinstance(inner, list) else [inner] if inner is not None else []:
                found += self.of(one, depth + 1)
        if isinstance(schema.get("allOf"), list):
            found += self._joined([self.of(one, depth + 1) for one in schema["allOf"]])
        found += self._objects(schema, depth)
        found += self._arrays(schema, depth)
        if depth == 0 or not found:
            found += _PLAIN
        else:
            found += _PLAIN[1:9:4]
        return _distinct(found)[: MOST * (4 if depth == 0 else 1)]

    def _named(self, part: Mapping[str, Any]) -> list[Any]:
        """Values that a part speaks of itself: constants, and what lies at its bounds."""
        found: list[Any] = []
        if "const" in part:
            found.append(part["const"])
        for key in ("enum", "examples"):
            if isinstance(part.get(key), list):
                found += part[key][:MOST]
        for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"):
            bound = part.get(key)
            if isinstance(bound, int | float) and not isinstance(bound, bool):
                found += [bound, bound + 1, bound - 1, bound * 2, bound + 0.5, bound - 0.5]
        for key in ("minLength", "maxLength"):
            size = part.get(key)
            if isinstance(size, int) and 0 <= size <= 200:
                found += ["a" * n for n in (size, size + 1, size - 1) if n >= 0]
        if isinstance(part.get("pattern"), str):
            found += _matches(part["pattern"])
        if part.get("format") in FORMATS:
            found.append(FORMATS[part["format"]])
        found += {"string": ["a"], "integer": [0, 1], "number": [0, 1.5], "boolean": [True]}.get(
            str(part.get("type")), []
        )
        return found

    def _objects(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        speaks = {"properties", "required", "additionalProperties", "patternProperties"}
        speaks |= {"minProperties", "maxProperties", "propertyNames", "dependentRequired"}
        speaks |= {"unevaluatedProperties", "dependentSchemas", "dependencies"}
        if not speaks & set(schema) and schema.get("type") != "object":
            return []
        properties = _mapping(schema.get("properties"))
        values = {key: self.of(inner, depth + 1) for key, inner in properties.items()}
        for pattern, inner in _mapping(schema.get("patternProperties")).items():
            for key in _matches(pattern)[:2]:
                values.setdefault(key, self.of(inner, depth + 1))
        required = [key for key in _names(schema.get("required")) if isinstance(key, str)]
        extra = self.of(schema.get("additionalProperties", True), depth + 1)[:3] or [0]
        first = {key: (values.get(key) or [0])[0] for key in required}
        found: list[Any] = [{}, first, {key: v[0] for key, v in values.items() if v} | first]
        for key in required:
            found.append({k: v for k, v in first.items() if k != key})
        for key, choices in values.items():
            found += [first | {key: choice} for choice in choices[:8]]
            found.append({key: choices[0]} | first if choices else first)
        found += [first | {"z": value} for value in extra]
        for size in (schema.get("minProperties"), schema.get("maxProperties")):
            if isinstance(size, int) and size <= 20:
                names = [*self.keys, *(f"k{i}" for i in range(21))]
                found += [dict.fromkeys(names[:n], 0) for n in (size - 1, size, size + 1) if n >= 0]
        for key, others in _mapping(schema.get("dependentRequired")).items():
            found += [first | {key: 0}, first | {key: 0} | dict.fromkeys(_names(others), 0)]
        return found

    def _arrays(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        speaks = {"items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems"}
        speaks |= {"unevaluatedItems", "minContains", "maxContains", "additionalItems"}
        if not speaks & set(schema) and schema.get("type") != "array":
            return []
        items = schema.get("items", schema.get("contains", True))
        leading = schema.get("prefixItems")
        if isinstance(items, list):  # of older drafts
            leading, items = items, schema.get("additionalItems", True)
        choices = self.of(items, depth + 1)[:8] or [0]
        head = [(self.of(one, depth + 1) or [0]) for one in leading or []][:MAX_DEPTH]
        first = [values[0] for values in head]
        found: list[Any] = [[], first, [*first, choices[0]], [*first, choices[0], choices[0]]]
        found += [first[:n] for n in range(len(first))]
        found += [[*first[:i], v, *first[i + 1 :]] for i, vs in enumerate(head) for v in vs[:5]]
        found += [[*first, choice] for choice in choices]
        found += [[*first, choice, choices[0]] for choice in choices[:4]]
        for key in ("minItems", "maxItems", "minContains", "maxContains"):
            size = schema.get(key)
            if isinstance(size, int) and 0 <= size <= 20:
                found += [[choices[0]] * n for n in (size - 1, size, size + 1) if n >= 0]
                found += [[*range(n)] for n in (size - 1, size, size + 1) if n >= 0]
        return found

    def _joined(self, lists: list[list[Any]]) -> list[Any]:
        """Objects that have the keys of one of each list."""
        objects = [[v for v in values if isinstance(v, dict)][:5] for values in lists[:4]]
        if not all(objects):
            return []
        return [
            {k: v for one in chosen for k, v in one.items()}
            for chosen in itertools.product(*objects)
        ]

    def _resolved(self, where: Any) -> Any:
        """What a local reference names; True where it is none."""
        if not isinstance(where, str) or not where.startswith("#"):
            return True
        place = self.root
        for step in where[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(place, list) and step.isdigit() and int(step) < len(place):
                place = place[int(step)]
            elif isinstance(place, Mapping) and step in place:
                place = place[step]
            else:
                return True
        return place


def _matches(pattern: str) -> list[str]:
    """A few short texts with a match of the pattern in them, and one without."""
    tried = ["", "a", "A", "0", "a0", "ab", "-", "aa", "00", "A0", "AA", "abc", "000", "x-a"]
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError):
        return []
    fine = [text for text in tried if compiled.search(text)][:4]
    if not fine:
        fine = _grown(pattern)
    return [*fine, *[text for text in tried if not compiled.search(text)][:1]]


def _grown(pattern: str) -> list[str]:
    """A text that matches, character by character, with the prefix rule of the pattern."""
    try:
        rule = RegexPrefix(pattern)
    except UserError:
        return []
    text = ""
    alphabet = "a0A-_./:@ #+=,*bc1B"
    for _ in range(40):
        if rule(text, finished=True):
            return [text]
        more = next((letter for letter in alphabet if rule(text + letter)), None)
        if more is None:
            return []
        text += more
    return []


def _names(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [key for key in value if isinstance(key, str)]
    return [key for key in value if isinstance(key, str)] if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _size(value: Any) -> tuple[int, str]:
    text = written(value)
    return len(text), text


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Values of which no two are written alike."""
    return list({written(value): value for value in values}.values())

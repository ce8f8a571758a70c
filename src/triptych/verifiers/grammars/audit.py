"""Where an engine and the definition of JSON Schema disagree, with the shortest document found.

The judge is the package `jsonschema`. A document that it refuses and the engine lets be written is
an `accepts`; one that it accepts and the engine refuses in every form is a `refuses`. A document
that the engine takes with its keys in another order, or 1 instead of 1.0, is a `form`: the two
agree on the document, and not on the text. Formats are annotations for JSON Schema and rules for
engines: a document with a wrong format is held against neither.
"""

import functools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from triptych.core.validation import Count, UserError, as_count, as_seed
from triptych.verifiers.grammars.documents import (
    FORMATS,
    atoms_of,
    documents,
    mutated,
    parts,
    smaller,
    written,
)
from triptych.verifiers.grammars.engines import Compiled, Engine, Matcher, as_engine
from triptych.verifiers.grammars.grammar import Grammar
from triptych.verifiers.grammars.vocabulary import every_byte

What = Literal["accepts", "refuses", "form"]
_LONGEST = 120  # bytes of a text that an engine writes itself
_PLAIN = sorted(b'{}[]":,-.0123456789aeflnrstuxyzb')
_OTHERS = sorted({*range(32, 128)} - {*_PLAIN})
_BYTES = every_byte()


class Disagreement(NamedTuple):
    """A document on which two readers of a schema disagree.

    what   accepts: the engine accepts what JSON Schema forbids; refuses: it refuses what is right;
           form: it refuses one way to write what is right, and accepts another one
    text   the document as it was written
    why    what `jsonschema` says of it, or which form is accepted
    """

    what: What
    text: str
    why: str


class Audit(NamedTuple):
    """What was tried, and the shortest disagreement of each kind.

    refused     why the engine does not read the schema, or None
    documents   how many were tried; valid of them, by `jsonschema`
    """

    engine: Engine
    refused: str | None
    documents: int
    valid: int
    disagreements: tuple[Disagreement, ...]

    @property
    def agrees(self) -> bool:
        """On every document that was tried; forms are no documents."""
        return all(found.what == "form" for found in self.disagreements)


def audit(schema: Any, engine: Engine, *, tries: Count = 2000, seed: Count = 0) -> Audit:
    """Compare an engine with `jsonschema` on documents around a schema.

    tries   documents at most that are built from the schema; a third as many are mutated ones, and
            as many again are texts that the engine itself writes

    Worked value: xgrammar 0.2.8 says yes to {} for {"required": ["a"]}, and nothing shorter is
    wrong.
    """
    engine, seed = as_engine(engine), as_seed(seed)
    tries = as_count("tries", tries, at_least=1)
    grammar = Grammar.from_json_schema(schema)
    schema, judge = grammar.schema, Judge(grammar.schema)
    try:
        read: Compiled = grammar.compiled(engine, _BYTES)
    except UserError as error:
        return Audit(engine, str(error), 0, 0, ())
    reader = _Reader(read.start, schema)
    found: dict[What, Any] = {}
    count = valid = 0
    for value in _tried(schema, read.start, judge, tries, random.Random(seed)):
        count += 1
        valid += judge.fits(value)
        what = _disagreement(value, judge, reader)
        if what is not None and (
            what not in found or len(written(value)) < len(written(found[what]))
        ):
            found[what] = value
    said = tuple(
        _explained(what, _shrunk(value, what, judge, reader), judge, reader)
        for what, value in sorted(found.items())
    )
    return Audit(engine, None, count, valid, said)


def _tried(
    schema: Any, start: Matcher, judge: "Judge", tries: int, draw: random.Random
) -> Iterator[Any]:
    built = documents(schema, tries)
    yield from built
    right, atoms = [value for value in built if judge.fits(value)][-50:], atoms_of(schema)
    for _ in range(tries // 3 if right else 0):
        value = draw.choice(right)
        for _ in range(draw.randrange(1, 4)):
            value = mutated(value, atoms, draw)
        yield value
    for _ in range(tries // 3):
        text = _walk(start, draw)
        if text is not None:
            yield json.loads(text)


def _walk(start: Matcher, draw: random.Random) -> bytes | None:
    """A text that the engine accepts, byte by byte, with the plain ones of those that it allows."""
    state, text = start, b""
    while len(text) < _LONGEST:
        if state.accepts() and (draw.random() < 0.3 or len(text) > 60):
            break
        plain = [b for b in _PLAIN if state.allows(b)] or [b for b in _OTHERS if state.allows(b)]
        if not plain:
            break
        ending = [byte for byte in plain if byte in b'"}]']
        chosen = draw.choice(ending if ending and draw.random() < 0.4 else plain)
        state, text = state.after(chosen), text + bytes([chosen])
    if not state.accepts():
        return None
    try:
        written(json.loads(text))
    except ValueError:  # a number that no float holds, among others
        return None
    return text


def reads(compiled: Compiled, schema: Any) -> Callable[[Any], bool]:
    """Whether an engine takes a document, in some form."""
    reader = _Reader(compiled.start, schema)
    return lambda value: reader.plainly(value) or reader.form(value) is not None


# ------------------------------------------------------------------ the two readers


class Judge:
    """What `jsonschema` says of documents."""

    def __init__(self, schema: Any) -> None:
        try:
            import jsonschema
            from jsonschema.validators import validator_for
            from referencing.exceptions import Unresolvable
        except ImportError:
            raise UserError(
                "an audit needs the package jsonschema, which is not installed: "
                "pip install jsonschema"
            ) from None
        self._unresolvable = Unresolvable
        kind = validator_for(schema, default=jsonschema.Draft202012Validator)
        try:
            kind.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise UserError(
                f"the schema is none of JSON Schema: {error.message[:200]}", parameter="schema"
            ) from error
        checker = jsonschema.FormatChecker([])
        for name, example in FORMATS.items():
            checks = kind.FORMAT_CHECKER.checkers.get(name)
            checker.checkers[name] = checks or (functools.partial(_is_or_no_text, example), ())
        self._plain = kind(schema)
        self._with_formats = kind(schema, format_checker=checker)
        self._formats = any("format" in part for part in parts(schema))

    def fits(self, value: Any) -> bool:
        """The document is valid, with its formats."""
        judge = self._with_formats if self._formats else self._plain
        return self._asked(lambda: judge.is_valid(value))

    def may_fit(self, value: Any) -> bool:
        """The document is valid where formats are annotations."""
        return self._asked(lambda: self._plain.is_valid(value))

    def why_not(self, value: Any) -> str:
        """The first thing that is wrong with a document."""
        wrong = next(iter(self._plain.iter_errors(value)), None)
        return "" if wrong is None else " ".join(str(wrong.message).split())[:200]

    def _asked(self, ask: Callable[[], bool]) -> bool:
        try:
            return ask()
        except (RecursionError, OverflowError) as error:
            raise UserError(f"jsonschema cannot judge a document: {error}") from error
        except self._unresolvable as error:
            raise UserError(f"the schema refers to what is not in it: {error}") from error


def _is_or_no_text(example: str, value: Any) -> bool:
    """Where `jsonschema` has no check for a format, the example alone is surely right."""
    return not isinstance(value, str) or value == example


class _Reader:
    """Which texts an engine accepts."""

    def __init__(self, start: Matcher, schema: Any) -> None:
        self._start = start
        keys = [
            key
            for part in parts(schema)
            for key in (
                *(part.get("properties") or ()),
                *(part.get("required") or ()),
                *_keys_of([part.get("const"), part.get("enum")]),
            )
        ]
        self._order = {key: i for i, key in enumerate(dict.fromkeys(keys))}

    def reads(self, text: str) -> bool:
        state = self._start
        for byte in text.encode("utf-8", "surrogatepass"):
            if not state.allows(byte):
                return False
            state = state.after(byte)
        return state.accepts()

    def plainly(self, value: Any) -> bool:
        """The document as it stands, without and with spaces."""
        return self.reads(written(value)) or self.reads(json.dumps(value, ensure_ascii=False))

    def form(self, value: Any) -> Any:
        """The document in another form that is accepted; None where there is none."""
        for change in (_as_whole, self._ordered, lambda v: self._ordered(_as_whole(v))):
            other = change(value)
            if written(other) != written(value) and self.plainly(other):
                return other
        return None

    def _ordered(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._ordered(item) for item in value]
        if not isinstance(value, dict):
            return value
        keys = sorted(value, key=lambda key: self._order.get(key, len(self._order)))
        return {key: self._ordered(value[key]) for key in keys}


def _keys_of(value: Any) -> Iterator[str]:
    """The keys of all objects in a value, in order."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _keys_of(inner)
    elif isinstance(value, list):
        for item in value:
            yield from _keys_of(item)


def _as_whole(value: Any) -> Any:
    """The same document, with 1 for 1.0."""
    if isinstance(value, list):
        return [_as_whole(item) for item in value]
    if isinstance(value, dict):
        return {key: _as_whole(item) for key, item in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


# ------------------------------------------------------------------ a disagreement, and less of it


def _disagreement(value: Any, judge: Judge, reader: _Reader) -> What | None:
    accepted = reader.plainly(value)
    if accepted:
        return None if judge.may_fit(value) else "accepts"
    if not judge.fits(value):
        return None
    return "refuses" if reader.form(value) is None else "form"


def _shrunk(value: Any, what: What, judge: Judge, reader: _Reader) -> Any:
    """The document, made simpler step by step while the two go on to disagree in this way."""
    simpler = True
    while simpler:
        simpler = False
        for less in smaller(value):
            if len(written(less)) < len(written(value)) and (
                _disagreement(less, judge, reader) == what
            ):
                value, simpler = less, True
                break
    return value


def _explained(what: What, value: Any, judge: Judge, reader: _Reader) -> Disagreement:
    if what == "accepts":
        return Disagreement(what, written(value), judge.why_not(value))
    if what == "refuses":
        return Disagreement(what, written(value), "it fits the schema")
    return Disagreement(what, written(value), f"accepted as {written(reader.form(value))}")

"""Thousands of prefixes: what an engine lets grow can become right, and what is right may grow.

Prefixes of right documents, in the form that the engine has, are never refused. Prefixes that the
engine lets grow (random walks through it, and changes of right documents) are asked of our rule,
which is exact where it reads the schema; whole texts are asked of `jsonschema`.
"""

import json
import random

import pytest

from triptych.verifiers.grammars.audit import Judge
from triptych.verifiers.grammars.documents import documents, written
from triptych.verifiers.grammars.features import complaints
from triptych.verifiers.grammars.grammar import Grammar
from triptych.verifiers.grammars.vocabulary import every_byte
from triptych.verifiers.text_rules.json_text import JsonPrefix

BYTES = every_byte()
INTEGER, STRING = {"type": "integer"}, {"type": "string"}
SCHEMAS = [
    {"type": "array", "items": {"type": "integer", "minimum": -3, "maximum": 120}},
    {"type": "object", "properties": {"a": INTEGER, "bc": {"enum": ["x", "xy", "é"]}},
     "required": ["bc"], "additionalProperties": False},
    {"type": "object", "properties": {"in": {"type": "object", "properties": {"k": STRING},
     "required": ["k"], "additionalProperties": False}}, "additionalProperties": False},
    {"enum": ["red", "green", 1, 12, True, None]},
    {"type": ["string", "null"]},
    {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}},
    {"type": "number", "minimum": 0.5, "maximum": 20},
]  # fmt: skip
LETTERS = [*b'{}[]":,-.0123456789aeinkbcxyrdgtulsf', 0xC3, 0xA9]


def answers(engine, schema):
    """Whether a text may grow, and whether it is right, by the engine."""
    start = Grammar.from_json_schema(schema).on(BYTES, engine)._at(())

    def ask(text):
        state = start
        for byte in text:
            if not state.allows(byte):
                return False, False
            state = state.after(byte)
        return True, state.accepts()

    return start, ask


def texts(schema, start, draw, judge):
    """Right documents, what comes of a change in one, and what the engine writes."""
    right = [v for v in documents(schema, 400) if judge.fits(v) and not has_whole_floats(v)]
    while True:
        text = written(draw.choice(right)).encode()
        at = draw.randrange(len(text))
        yield text
        yield text[:at] + bytes([draw.choice(LETTERS)]) + text[at + 1 :]
        state, text = start, b""
        while len(text) < 40:
            allowed = [b for b in LETTERS if state.allows(b)]
            if not allowed:
                break
            byte = draw.choice(allowed)
            state, text = state.after(byte), text + bytes([byte])
        yield text


def has_whole_floats(value):
    if isinstance(value, list | dict):
        return any(map(has_whole_floats, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and value.is_integer()


def in_order(value, schema):
    """An object's keys stand in the order of the schema, and once."""
    keys = list(schema.get("properties") or ())
    return not isinstance(value, dict) or list(value) == [key for key in keys if key in value]


def fuzz(engine, prefixes, seed):
    draw, asked = random.Random(seed), 0
    for schema in SCHEMAS:
        assert not any(said.accepts_too_much for said in complaints(schema, engine))
        judge, rule = Judge(schema), JsonPrefix(schema)
        start, ask = answers(engine, schema)
        wanted = asked + prefixes // len(SCHEMAS)
        for text in texts(schema, start, draw, judge):
            try:
                value = json.loads(text)
                right = judge.may_fit(value)
            except ValueError:
                value, right = None, False
            sure = right and in_order(value, schema) and text == written(value).encode()
            for end in range(len(text) + 1):
                grows, accepted = ask(text[:end])
                asked += 1
                if sure and not has_whole_floats(value):
                    assert grows, (schema, text[:end])
                if grows:
                    begun = text[:end].decode("utf-8", "ignore")
                    assert rule(begun), (schema, text[:end])
                if accepted:
                    whole = json.loads(text[:end])
                    assert judge.may_fit(whole), (schema, text[:end])
                if end == len(text) and sure and not has_whole_floats(value):
                    assert accepted, (schema, text)
            if asked >= wanted:
                break
    return asked


@pytest.mark.usefixtures("unchecked_shapes")
def test_some_thousand_prefixes(foreign):
    assert fuzz(foreign, 3000, seed=0) >= 3000


@pytest.mark.slow  # a minute
@pytest.mark.usefixtures("unchecked_shapes")
def test_a_hundred_thousand_prefixes(foreign):
    assert fuzz(foreign, 100_000, seed=1) >= 100_000

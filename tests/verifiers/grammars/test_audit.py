"""The audit finds by itself what engines get wrong, and says nothing where they are right."""

import json
import random

import jsonschema
import pytest

from triptych.core.validation import UserError
from triptych.verifiers.grammars.audit import Judge, _Reader, _shrunk, audit
from triptych.verifiers.grammars.documents import (
    documents,
    mutated,
    parts,
    smaller,
    written,
)
from triptych.verifiers.grammars.engines import ENGINES, engine_version
from triptych.verifiers.grammars.features import FEATURES, Said, complaints, known, measured
from triptych.verifiers.grammars.grammar import Grammar

INTEGER = {"type": "integer"}


def by_kind(found):
    return {one.what: one.text for one in found.disagreements}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"required": ["a"]}, "{}"),
        ({"type": "object", "required": ["a"]}, "{}"),
        ({"type": "array", "items": INTEGER, "uniqueItems": True}, "[0,0]"),
        ({"not": {"type": "string"}}, '""'),
        ({"if": INTEGER, "then": {"type": "integer", "minimum": 3}}, "0"),
    ],
    ids=["required", "required of an object", "uniqueItems", "not", "if"],
)
def test_what_xgrammar_gets_wrong_is_found_with_a_shortest_document(schema, text):
    if engine_version("xgrammar") != known("xgrammar").version:
        pytest.skip(f"xgrammar {known('xgrammar').version} is not installed")
    found = audit(schema, "xgrammar")
    assert by_kind(found)["accepts"] == text
    assert not found.agrees
    assert not jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))
    assert any(said.accepts_too_much for said in complaints(schema, "xgrammar"))


@pytest.mark.parametrize(
    "schema",
    [
        {"required": ["a"]},
        {"type": "string", "pattern": "^[a-c]+$"},
        {"anyOf": [INTEGER, {"type": "null"}]},
        {"type": "integer", "minimum": 2, "maximum": 17},
        {"type": "array", "items": {"enum": ["a", 2]}, "minItems": 1, "maxItems": 2},
        {"$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}},
         "$ref": "#/$defs/n"},
    ],
    ids=lambda schema: next(iter(schema)),
)  # fmt: skip
def test_llguidance_agrees_on_what_it_reads(schema):
    if engine_version("llguidance") is None:
        pytest.skip("llguidance is not installed")
    found = audit(schema, "llguidance", tries=800)
    assert found.agrees
    assert found.documents > 500
    assert 0 < found.valid < found.documents


@pytest.mark.usefixtures("unchecked_shapes")  # they are called a million times here
def test_ours_agrees_where_it_reads():
    schema = {"type": "array", "items": {"enum": [1, 12, "a"]}}
    found = audit(schema, "triptych", tries=40)
    assert found.agrees
    assert found.valid > 0


def test_the_order_of_keys_is_a_form():
    if engine_version("llguidance") is None:
        pytest.skip("llguidance is not installed")
    two = {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}}
    found = audit(two, "llguidance", tries=600)
    assert found.agrees
    text = found.disagreements[0].text
    assert set(by_kind(found)) == {"form"}
    assert found.disagreements[0].why.startswith('accepted as {"a":')
    assert not text.startswith('{"a"')


def test_a_schema_that_is_not_read():
    found = audit({"uniqueItems": True}, "triptych")
    assert found.refused is not None
    assert (found.documents, found.disagreements) == (0, ())


class Yes:
    """An engine that accepts all JSON values of one character."""

    def mask(self):
        raise NotImplementedError

    def __init__(self, text=b""):
        self.text = text

    def allows(self, token):
        return not self.text

    def after(self, token):
        return Yes(self.text + bytes([token]))

    def accepts(self):
        return self.text in (b"0", b"1")


def test_an_engine_that_is_wrong_both_ways_is_caught(monkeypatch):
    """A planted engine: it accepts 1, which is wrong, and refuses 17, which is right."""
    from triptych.verifiers.grammars.engines import Compiled

    monkeypatch.setattr(Grammar, "compiled", lambda self, engine, vocabulary: Compiled(Yes()))
    found = audit({"enum": [0, 17]}, "triptych", tries=300)
    assert by_kind(found) == {"accepts": "1", "refuses": "17"}
    assert not found.agrees


class Everything:
    """An engine that accepts every text."""

    def mask(self):
        raise NotImplementedError

    def allows(self, token):
        return True

    def after(self, token):
        return self

    def accepts(self):
        return True


def test_a_document_is_made_simpler_step_by_step():
    """Several steps lead from here to a document of at most four letters."""
    judge, reader = Judge({"type": "integer"}), _Reader(Everything(), {})
    value = _shrunk({"a": [1, {"b": "some text"}], "c": ["d"]}, "accepts", judge, reader)
    assert len(written(value)) <= 4


@pytest.mark.parametrize("schema", [{"type": 3}, {"$ref": "#/$defs/none", "$defs": {}}])
def test_what_is_no_schema(schema):
    with pytest.raises(UserError, match="the schema"):
        Judge(schema).fits({"a": 1})


# ------------------------------------------------------------------ documents


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_documents_are_right_and_wrong_for_every_feature(feature):
    """Otherwise an audit of the feature would say nothing."""
    for schema in feature.tried:
        judge = Judge(schema)
        said = {judge.fits(document) for document in documents(schema, 600)}
        if feature.name == "unknown formats" or schema in ({"type": "object", "properties": {}},):
            continue
        assert said == {True, False}, schema


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_features_are_found_in_what_tries_them(feature):
    for schema in feature.tried:
        assert any(feature.found_in(part) for part in parts(schema)), schema


def test_documents_come_shortest_first_and_the_same_again():
    schema = {"type": "object", "properties": {"key": {"const": "value"}}, "required": ["key"]}
    made = documents(schema, 500)
    assert made == documents(schema, 500)
    assert [len(written(one)) for one in made] == sorted(len(written(one)) for one in made)
    assert {"key": "value"} in made
    assert documents({"const": 1})[:1] != []


def test_smaller_documents_are_no_larger_and_mutations_are_documents():
    draw = random.Random(0)
    value = {"a": [1, 2.5, {"b": "text"}], "c": None}
    assert {"a": [1, 2.5, {}], "c": None} in smaller(value)
    seen = {written(mutated(value, [None, 1, "a"], draw)) for _ in range(200)}
    assert len(seen) > 10


# ------------------------------------------------------------------ what is known


def test_the_file_names_every_feature_of_every_engine():
    names = {feature.name for feature in FEATURES}
    for engine in ENGINES:
        assert set(known(engine).said) == names


@pytest.mark.slow  # a minute for each engine
def test_what_the_file_says_is_what_the_audit_finds(engine):
    version = engine_version(engine)
    if version != known(engine).version:
        pytest.skip(f"the file is of {engine} {known(engine).version}, {version} is installed")
    found = measured(engine)
    for feature in FEATURES:
        assert found[feature.name].verdict == known(engine).said[feature.name].verdict


QUICK = ["uniqueItems", "required, of a key not in properties", "not", "pattern", "enum, const"]


@pytest.mark.parametrize("name", QUICK)
def test_some_of_what_the_file_says_is_what_the_audit_finds(foreign, name, monkeypatch):
    if engine_version(foreign) != known(foreign).version:
        pytest.skip(f"the file is of {foreign} {known(foreign).version}")
    from triptych.verifiers.grammars import features

    some = tuple(feature for feature in FEATURES if feature.name == name)
    monkeypatch.setattr(features, "FEATURES", some)
    assert measured(foreign)[name].verdict == known(foreign).said[name].verdict


def test_another_version_is_said(monkeypatch):
    from triptych.verifiers.grammars import features

    monkeypatch.setattr(features, "engine_version", lambda engine: "0.0.1")
    said = complaints({"type": "integer"}, "llguidance")
    assert [one.feature for one in said] == ["version"]
    assert not said[0].accepts_too_much


def test_a_kept_feature_is_no_complaint():
    assert known("triptych").said["enum, const of objects and arrays"].verdict == "refused"
    assert complaints({"type": "integer", "minimum": 2}, "triptych") == ()
    assert Said("kept").text == ""

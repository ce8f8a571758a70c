"""Regular expressions of JSON schemas, against jsonschema and json.dumps."""

import json
import re

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.core.validation import UserError
from triptych.verifiers.grammars.json_pattern import pattern_of
from triptych.verifiers.text_rules.regular import RegexPrefix

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "maxLength": 3},
        "b": {"type": ["integer", "null"]},
        "c": {"type": "array", "items": {"enum": [1, "x", None]}, "minItems": 1, "maxItems": 2},
        "d": {"anyOf": [{"type": "boolean"}, {"const": {"k": [1]}}]},
    },
    "required": ["b"],
    "additionalProperties": False,
}
PIECE = st.one_of(
    st.text(max_size=4), st.integers(), st.none(), st.booleans(), st.just({"k": [1]}),
    st.lists(st.sampled_from([1, "x", None, 2]), max_size=3),
)  # fmt: skip
PATTERN = pattern_of(SCHEMA)
RULE = RegexPrefix(PATTERN)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), PIECE)


@given(OBJECTS)
def test_it_matches_what_fits_in_one_spelling(value):
    ordered = {key: value[key] for key in "abcd" if key in value}
    text = json.dumps(ordered, ensure_ascii=False)
    right = jsonschema.Draft202012Validator(SCHEMA).is_valid(ordered)
    assert (re.fullmatch(PATTERN, text) is not None) == right
    assert RULE(text, finished=True) == right


def test_worked_value():
    pattern = pattern_of({"type": "array", "items": {"type": "integer"}, "maxItems": 1})
    for text, right in (("[]", True), ("[-3]", True), ("[03]", False), ("[1, 2]", False)):
        assert (re.fullmatch(pattern, text) is not None) == right


def test_no_key_is_required():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
        "additionalProperties": False,
    }
    texts = ["{}", '{"a": null}', '{"b": null}', '{"a": null, "b": null}']
    assert all(re.fullmatch(pattern_of(schema), text) for text in texts)
    for wrong in ('{, "b": null}', '{"b": null, "a": null}', '{"a": null,}'):
        assert re.fullmatch(pattern_of(schema), wrong) is None


def test_bounds_of_an_integer():
    pattern = pattern_of({"type": "integer", "minimum": 0})
    assert re.fullmatch(pattern, "12")
    assert re.fullmatch(pattern, "-12") is None


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "string", "pattern": "a"},
        {"type": "integer", "minimum": 3},
        {"type": "word"},
        {"$ref": "#/$defs/x"},
        {"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"},
        {"type": "object", "properties": {}, "required": ["a"], "additionalProperties": False},
    ],
)
def test_what_is_refused(schema):
    with pytest.raises(UserError):
        pattern_of(schema)


def test_states_over_pieces():
    table = RegexPrefix("ab*c").over_pieces(["a", "b", "c", "ab", ""])
    after = table.following
    assert table.matches.tolist() == [False, False, False, True]
    assert (after[0] >= 0).tolist() == [True, False, False, True, False]
    assert (after[after[0, 0]] >= 0).tolist() == [False, True, True, False, False]
    assert table.matches[after[after[0, 3], 2]]
    assert (after[3] == -1).all()

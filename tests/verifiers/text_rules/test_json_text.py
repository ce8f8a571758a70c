"""JSON, against `json.loads` on every short text and a list of endings; schemas, by jsonschema."""

import json
from itertools import product

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.enumerated_text import all_texts, check_exact, check_over
from tests.support.refusals import refused

from triptych.core.validation import UserError
from triptych.verifiers.text_rules.json_schema import read_schema, satisfiable
from triptych.verifiers.text_rules.json_text import MAX_DEPTH, JsonPrefix

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def refuse(word):
    raise ValueError(word)


def loads(text):
    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


def test_worked_values():
    rule = JsonPrefix()
    for text in ("", " ", '{"a": [1, tru', "-", "1e", '"\\u12', "[[", '"é'):
        assert rule(text), text
        assert not rule(text, finished=True), text
    for text in ('{"a" 1', "[1,]", "01", '"\\x', "nulx", "NaN", "1 2", '"\n', ".5", "{,", "'a'"):
        assert not rule(text), text
        assert not rule(text, finished=True), text
    for text in ("{}", " 1 ", '{"a":1,"a":2}', '"\\ud83d\\ude00"', '["\\ud83d"]', "9" * 5000):
        assert rule(text), text
        assert rule(text, finished=True), text
    assert repr(rule) == "JsonPrefix(schema=None, max_depth=100)"


def closed(*endings, by="", most=0):
    return [ending + by * times for ending, times in product(endings, range(most + 1))]


@pytest.mark.parametrize(
    ("alphabet", "longest", "endings"),
    [
        ("[],1-", 5, closed("", "1", by="]", most=6)),
        ('{}":a,', 4, closed("", '"', '":1', ":1", "1", '"a":1', by="}", most=3)),
        pytest.param(
            '{}":a,',
            5,
            closed("", '"', '":1', ":1", "1", '"a":1', by="}", most=3),
            marks=pytest.mark.slow,
        ),
        ("0-.e+1 ", 4, ["", "0"]),
        ("nul ", 5, ["", "null", "ull", "ll", "l"]),
        ("[tru]", 4, closed("", "true", "rue", "ue", "e", by="]", most=5)),
    ],
)
def test_every_short_text(alphabet, longest, endings):
    check_exact(JsonPrefix(), loads, all_texts(alphabet, longest), endings)


@pytest.mark.parametrize(
    ("schema", "alphabet"),
    [
        (None, "[]1 "),
        (None, '"a:{} '),
        (None, "0-.e1 "),
        (None, "true "),
        ({"enum": [1, 12, "a", None]}, '12 "anul'),
        ({"type": "integer", "minimum": 1, "maximum": 11}, "012 "),
    ],
)
def test_texts_that_are_over(schema, alphabet):
    rule = JsonPrefix(schema)
    endings = [*all_texts(alphabet, 2), ".0", "e1", "e+1", ".5"]
    check_over(rule, lambda text: rule(text, finished=True), all_texts(alphabet, 4), endings)


def test_worked_values_of_what_is_over():
    rule = JsonPrefix()
    assert [rule.over(text) for text in ("[1]", "12 ", "12", "[1", "")] == [1, 1, 0, 0, 0]


def test_every_short_string():
    texts = ('"' + text for text in all_texts('"\\u0n\t', 4))
    check_exact(
        JsonPrefix(), loads, texts, ["", '"', '""', 'n"', 'u0000"', '000"', '00"', '0"', '0000"']
    )


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.booleans(), st.sampled_from([None, 1]))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_prefixes_of_json_are_never_refused(value, escaped, indent):
    text, rule = json.dumps(value, ensure_ascii=escaped, indent=indent), JsonPrefix()
    assert all(rule(text[:end]) for end in range(len(text) + 1))
    assert rule(text, finished=True)


def test_depth():
    rule = JsonPrefix(max_depth=2)
    assert rule('[{"a": 1}]', finished=True)
    assert rule("[[")
    assert not rule("[[[")
    assert JsonPrefix(max_depth=0)("1", finished=True)
    assert not JsonPrefix(max_depth=0)("[")
    assert JsonPrefix(max_depth=MAX_DEPTH)("[" * MAX_DEPTH + "]" * MAX_DEPTH, finished=True)


# ------------------------------------------------------------------------------------ schemas

INTEGER = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
    "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
)
Validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=INTEGER)


def once(pairs):
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def fitting(schema):
    """json.loads and jsonschema, with the two differences that `json_schema` names."""
    validator = Validator(schema)

    def right(text):
        try:
            value = json.loads(text, parse_constant=refuse, object_pairs_hook=once)
        except ValueError:
            return False
        return validator.is_valid(value)

    return right


KEYS = {
    "type": "object",
    "properties": {"a": {"enum": [1]}, "aa": {"type": "array"}, "b": {"enum": []}},
    "required": ["a"],
    "additionalProperties": False,
}
KEY_ENDINGS = [
    a + b
    for a in ("", '"', '":', ":", "1", "a", 'a"', "]", '"a', '{"a"', '"a"')
    for b in ("", "}", "1}", ":1}", '":1}', ':[],"a":1}', ',"a":1}', '"a":1}', '[],"a":1}', "[]}")
] + ['"aa":[]}', 'aa":[]}', 'a":[]}']
DIGITS = [
    "".join(parts)
    for parts in product(
        ("", "0", "2", "5", "00", ".5", ".0", "25", "99", "9"),
        ("", "e-3", "e-2", "e-1", "e1", "e2", "e3"),
    )
]


@pytest.mark.parametrize(
    ("schema", "texts", "endings"),
    [
        (KEYS, list(all_texts('{":a1,}', 3)), KEY_ENDINGS),
        (KEYS, ['{"a"' + text for text in all_texts('":a1,}', 3)], KEY_ENDINGS),
        pytest.param(KEYS, list(all_texts('{":a1,}', 4)), KEY_ENDINGS, marks=pytest.mark.slow),
        pytest.param(
            KEYS,
            ['{"a"' + text for text in all_texts('":a1,}', 4)],
            KEY_ENDINGS,
            marks=pytest.mark.slow,
        ),
        (KEYS, ['{"aa":[]' + text for text in all_texts('",ab}', 3)], KEY_ENDINGS),
        (
            {"type": "object", "required": ["a"], "properties": {"b": {"enum": []}}},
            ['{"' + text for text in all_texts('":ab1}', 4)],
            [
                *KEY_ENDINGS,
                'c":1,"a":1}',
                ',"aaa":1,"a":1}',
                '":1,"a":1}',
                ':1,"a":1}',
                'c":1}',
                '1,"a":1}',
                'bb":1,"a":1}',
                '"bbb":1,"a":1}',
            ],
        ),
        (
            {"enum": ["na", "n\n", "é", "\U0001f600"]},
            ['"' + text for text in all_texts('"\\nua0', 4)],
            [
                "",
                '"',
                'a"',
                'na"',
                'n"',
                '\\n"',
                'é"',
                'u000a"',
                '000a"',
                '00a"',
                '0a"',
                '00e9"',
                '0e9"',
                'u006e\\n"',
                '006e\\n"',
                '06e\\n"',
                '6e\\n"',
                '0061"',
                '061"',
                '61"',
                '1"',
            ],
        ),
        (
            {"type": "integer", "minimum": -12, "maximum": 130},
            list(all_texts("-01234.e", 3)),
            list(all_texts("019", 3)),
        ),
        (
            {"type": "integer", "enum": [1, 20, 3.0, 2.5]},
            list(all_texts("-0123", 3)),
            ["", "0", "1"],
        ),
        ({"type": "number", "minimum": 0.5, "maximum": 20}, list(all_texts("-0.1256", 3)), DIGITS),
        ({"type": "number", "maximum": -2}, list(all_texts("-0.12", 3)), ["-2", *DIGITS]),
        ({"enum": [25, -0.5, 100]}, list(all_texts("-0.125", 4)), [*DIGITS, ".25e2", "25e4", "e4"]),
        ({"type": "integer", "maximum": 0, "minimum": 0}, list(all_texts("-01 ", 4)), ["", "0"]),
        (
            {"type": "array", "items": {"type": ["boolean", "null"], "enum": [True, None, 1]}},
            list(all_texts("[true,", 4)),
            closed("", "[", "true", "rue", "ue", "e", "null", "ull", by="]", most=2),
        ),
        ({"type": "array", "items": {"enum": []}}, list(all_texts("[]1 ", 4)), ["", "]", "[]"]),
        (
            {"items": {"type": "string"}},
            list(all_texts('[]{}"1', 4)),
            closed("", '"', '":1', ":1", "1", '"a":1', by="}", most=2)
            + closed("", '"', by="]", most=4)
            + ["}]", '":1}]'],
        ),
    ],
)
def test_every_short_text_with_a_schema(schema, texts, endings):
    check_exact(JsonPrefix(schema), fitting(schema), texts, endings)


PERSON = {
    "type": "object",
    "title": "a person",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "size": {"type": "number", "minimum": 0.3, "maximum": 2.8},
        "colour": {"enum": ["red", "grün", None]},
        "children": {"type": "array", "items": {"type": "object", "required": ["name"]}},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def test_a_schema_of_real_use():
    rule = JsonPrefix(PERSON)
    for value in (
        {"name": 'A "b"', "age": 7},
        {"age": 120, "colour": "grün", "name": ""},
        {"name": "C", "size": 1.75, "children": [{"name": 3, "x": [{}]}], "age": 0, "colour": None},
        {"name": "D", "age": 1, "size": 3e-1},
    ):
        for escaped in (True, False):
            text = json.dumps(value, ensure_ascii=escaped)
            assert all(rule(text[:end]) for end in range(len(text) + 1)), text
            assert rule(text, finished=True)
    for text in (
        "[",
        '{"h',
        '{"name": 1',
        '{"age": 121',
        '{"age": 1.',
        '{"age": 7}',
        '{"colour": "b',
        '{"size": -',
        '{"size": 3 ',
        '{"name": "a", "n',
        '{"children": [{}',
        '{"children": [1',
    ):
        assert rule(text[:-1]), text
        assert not rule(text), text


def test_exponents_are_read_at_their_end():
    rule = JsonPrefix({"type": "number", "minimum": 1, "maximum": 5})
    assert rule("20e2")  # 20e2 and 20e20 are out of bounds, which shows at the end
    assert not rule("20e2 ")
    assert not rule("20e2", finished=True)
    assert rule("20e-1", finished=True)
    assert not rule("7")  # 0.7 and 7 are out of bounds, and so are all numbers that begin with 7


def test_very_long_numbers():
    rule = JsonPrefix({"type": "number", "minimum": 1, "maximum": 5})
    for written in ("1e9999999999999999999", "1e-9999999999999999999", "-1e9999999999999999999"):
        assert not rule(written, finished=True)
    assert JsonPrefix({"type": "number", "maximum": 5})("1e-9999999999999999999", finished=True)
    assert JsonPrefix({"type": "number", "maximum": 5})("-1e9999999999999999999", finished=True)
    assert rule("4" * 3000)
    assert not rule("4" * 3000 + " ")
    assert not JsonPrefix({"type": "integer", "maximum": 10**20})("4" * 3000)


def test_large_whole_numbers_are_compared_exactly():
    rule = JsonPrefix({"type": "integer", "maximum": 2**63 - 1})
    assert rule("9223372036854775807", finished=True)
    assert not rule("9223372036854775808")


def test_schemas_of_nothing():
    assert satisfiable(read_schema(None))
    for schema in (
        {"enum": []},
        {"type": "string", "enum": [1]},
        {"type": "number", "minimum": 2, "maximum": 1},
        {"type": "integer", "minimum": 0.2, "maximum": 0.8},
        {"type": "object", "required": ["a"], "additionalProperties": False},
        {"type": "object", "required": ["a"], "properties": {"a": {"enum": []}}},
        {"type": []},
    ):
        with refused("schema"):
            JsonPrefix(schema)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ({"minLength": 3}, "schema has the keyword 'minLength', which is not supported"),
        ({"items": {"oneOf": []}}, "items of schema has the keyword 'oneOf'"),
        ({"type": "text"}, "type of schema is 'text'; it must be one or more of object, array"),
        ({"properties": {"a": 3}}, r"properties\['a'\] of schema is 3; it must be a dict"),
        ({"properties": []}, r"properties of schema is \[\]"),
        ({"required": "a"}, "required of schema is 'a'; it must be a list of keys"),
        ({"enum": [[1]]}, "enum of schema is .*; it must be a list of strings, numbers"),
        ({"enum": [float("nan")]}, "enum of schema is"),
        ({"minimum": "1"}, "minimum of schema is '1'; it must be a number"),
        ({"additionalProperties": {}}, "additionalProperties of schema is"),
        (3, "schema is 3; it must be a dict"),
    ],
)
def test_schemas_that_are_refused(schema, sentence):
    with pytest.raises(UserError, match=sentence):
        JsonPrefix(schema)


def test_depths_that_are_refused():
    for depth in (-1, MAX_DEPTH + 1, 2.0, None):
        with refused("max_depth"):
            JsonPrefix(max_depth=depth)
    schema = {}
    for _ in range(60):
        schema = {"items": schema}
    with refused("schema"):
        JsonPrefix(schema)

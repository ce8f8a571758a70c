"""Grammars as verifiers: values, masks and ends, whatever the engine."""

import dataclasses
import random
import re

import pytest
import torch
from tests.support.tiny_text_model import tiny_lm

from triptych.core.decoders import RecomputingDecoder
from triptych.core.protocols import Ends, Masks, Question, ReadsOver, Verifier
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.inference.guided import adaptive, backtracking, tokenwise, vgb
from triptych.verifiers.grammars import verifier as verifier_module
from triptych.verifiers.grammars.engines import as_engine, engine_version
from triptych.verifiers.grammars.features import pattern_complaints
from triptych.verifiers.grammars.grammar import Grammar
from triptych.verifiers.grammars.vocabulary import Vocabulary, every_byte
from triptych.verifiers.text_rules.regular import RegexPrefix

BYTES = every_byte()
JSON_PARTS = ["{", "}", "[", "]", '"', ":", ",", " ", "0", "1", "null", "nul", "l", '"a"', '": ']
MIXED = Vocabulary([*JSON_PARTS, "é", b"\xc3", b"\xa9", "true", "[1", "", "x"], (20,))
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 1}},
    "required": ["a"],
    "additionalProperties": False,
}


def ask(rows, start=0, over=None):
    """A question about rows of any lengths."""
    lengths = torch.tensor([len(row) for row in rows])
    width = max([1, *(len(row) for row in rows)])
    tokens = torch.tensor([[*row, *[-1] * (width - len(row))] for row in rows])
    finished = torch.zeros(len(rows), dtype=torch.bool) if over is None else torch.tensor(over)
    return Question(
        tokens.reshape(len(rows), width),
        lengths,
        torch.full_like(lengths, start),
        finished,
        torch.arange(len(rows)),
    )


def fits(verifier, text, finished=False):
    row = verifier.vocabulary.spelled(text)
    return verifier.log_values(ask([row], over=[finished])).tolist() == [0.0]


# ------------------------------------------------------------------ values by hand


def test_choices_by_hand(engine):
    """Of "ab" and "b" with tokens a, b and an end: the worked value of the verifier."""
    verifier = Grammar.from_choices(["ab", "b"]).on(Vocabulary(["a", "b", ""], (2,)), engine)
    rows = [[], [0], [1], [0, 0], [0, 1], [0, 1, 2], [0, 2], [1, 2, 0]]
    assert verifier.log_values(ask(rows)).exp().tolist() == [1, 1, 1, 0, 1, 1, 0, 1]
    assert verifier.masks(ask(rows)).tolist() == [
        [True, True, False],
        [False, True, False],
        [False, False, True],
        [False, False, False],
        [False, False, True],
        [False, False, False],
        [False, False, False],
        [False, False, False],
    ]
    assert verifier.over(ask(rows)).tolist() == [False, False, True, False, True, *[False] * 3]
    over = [True] * len(rows)
    assert verifier.log_values(ask(rows, over=over)).exp().tolist() == [0, 0, 1, 0, 1, 1, 0, 1]


def test_a_schema_by_hand(engine):
    verifier = Grammar.from_json_schema(SCHEMA).on(BYTES, engine, strict=False)
    right, begun = ['{"a":1}', '{"a": 12 }'], ["", "{", '{"', '{"a', '{"a":', '{"a":1']
    wrong = ["[", '{"b', '{"a":0', '{"a":-', '{"a":1,', "{}", '{"a":"', '{"a":true']
    assert all(fits(verifier, text) for text in right + begun)
    assert all(fits(verifier, text, finished=True) for text in right)
    assert not any(fits(verifier, text, finished=True) for text in begun)
    assert not any(fits(verifier, text) for text in wrong)


def test_prompts_are_not_read(engine):
    """A completion begins where the question says."""
    verifier = Grammar.from_json_schema(SCHEMA).on(BYTES, engine, strict=False)
    row = [*b"[[[x", *b'{"a":1}']
    assert verifier.log_values(ask([row], start=4)).tolist() == [0.0]
    assert verifier.log_values(ask([row], start=3)).tolist() == [float("-inf")]


def test_it_has_the_protocols():
    verifier = Grammar.from_choices(["a"]).on(BYTES, "triptych")
    for protocol in (Verifier, Masks, Ends, ReadsOver):
        assert isinstance(verifier, protocol)


# ------------------------------------------------------------------ masks, states


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar.from_json_schema({}),
        Grammar.from_json_schema({"type": "object", "properties": {"a": {"type": "string"}}}),
        Grammar.from_json_schema({"enum": [None, "é", True]}),
        Grammar.from_choices(["null", "nul", "1"]),
    ],
    ids=lambda grammar: grammar.source[:20],
)
def test_masks_are_the_values_of_children(engine, grammar):
    """Every token, at every state that random walks of 12 tokens meet; forced ones among them."""
    verifier = grammar.on(MIXED, engine, strict=False)
    draw, every = random.Random(0), range(len(MIXED))
    for _ in range(12):
        row = []
        for _ in range(12):
            mask = verifier.masks(ask([row]))[0]
            values = verifier.log_values(ask([[*row, token] for token in every]))
            assert mask.tolist() == (values == 0).tolist(), row
            allowed = [t for t in mask.nonzero()[:, 0].tolist() if t != 20]
            if not allowed:
                break
            row.append(draw.choice(allowed))


def test_rows_come_back_after_a_rollback(engine, monkeypatch):
    """Any order of questions gives the same answers, with hardly any room for states too."""
    verifier = Grammar.from_json_schema({"type": "array"}).on(MIXED, engine)
    draw = random.Random(1)
    sizes = [draw.randrange(6) for _ in range(80)]
    rows = [[2, *(draw.choice([3, 7, 6, 8, 2]) for _ in range(n))] for n in sizes]
    want = [verifier.log_values(ask([row])).item() for row in sorted(rows)]
    monkeypatch.setattr(verifier_module, "STATES", 3)
    monkeypatch.setattr(verifier_module, "MASKS", 2)
    other = Grammar.from_json_schema({"type": "array"}).on(MIXED, engine)
    got = dict(zip(map(tuple, rows), other.log_values(ask(rows)).tolist(), strict=True))
    assert [got[tuple(row)] for row in sorted(rows)] == want
    assert len(other._states) <= 3
    assert 0.0 in want
    assert float("-inf") in want


def test_half_a_character(engine):
    verifier = Grammar.from_json_schema({"type": "string"}).on(BYTES, engine)
    assert verifier.log_values(ask([[*b'"', 0xC3], [0xC3], [*b'"', 0xC3, *b'"']])).tolist() == [
        0.0,
        float("-inf"),
        float("-inf"),
    ]


def test_texts_are_over_where_nothing_may_follow(engine):
    verifier = Grammar.from_regex("ab*c?").on(Vocabulary(["a", "b", "c"]), engine)
    said = verifier.over(ask([[0], [0, 1], [0, 2], [0, 1, 2], [1]]))
    assert said.tolist() == [False, False, True, True, False]


# ------------------------------------------------------------------ regular expressions


PATTERNS = [
    r"\d{2}-\d{2}",
    r"(a|bc)*d",
    r"[^a]b?",
    r"a.c",
    r"\w+",
    r"(?i)ab",
    r"x{2,3}|y",
    r"[a-c]*b",
    r"\s?a",
    r"^ab$",
    r"a\.b",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_regular_expressions_read_as_in_python(foreign, pattern):
    """Against our automaton, on texts of a few letters, grown while they can go on."""
    rule = RegexPrefix(pattern)
    known = pattern_complaints(pattern, foreign)
    assert not known or foreign == "xgrammar"
    if foreign == "xgrammar" and ("?i" in pattern or any(one.accepts_too_much for one in known)):
        with pytest.raises(UserError, match="does not read|would accept"):
            Grammar.from_regex(pattern).on(BYTES, foreign)
        return
    verifier = Grammar.from_regex(pattern).on(BYTES, foreign)
    letters = [*"abcdxyAB01-. \n_", "é"]
    waiting, seen = [""], 0
    while waiting and seen < 400:
        text = waiting.pop(0)
        assert fits(verifier, text, finished=True) == bool(re.fullmatch(pattern, text)), text
        for letter in letters:
            seen += 1
            if not (known and letter == "é"):
                assert fits(verifier, text + letter) == rule(text + letter), text + letter
            if rule(text + letter) and not (known and letter == "é"):
                waiting.append(text + letter)


def test_a_pattern_that_is_not_regular_is_refused():
    with pytest.raises(UserError, match="regular"):
        Grammar.from_regex(r"(a)\1")


# ------------------------------------------------------------------ where grammars come from


def test_pydantic_models_with_optional_and_nested_fields(engine):
    pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")

    class Inner(pydantic.BaseModel):
        size: int

    class Outer(pydantic.BaseModel):
        name: str | None
        inner: Inner

    grammar = Grammar.from_pydantic(Outer)
    if engine == "triptych":
        with pytest.raises(UserError, match="not supported"):
            grammar.on(BYTES, engine)
        return
    verifier = grammar.on(BYTES, engine, strict=False)
    text = Outer(name=None, inner=Inner(size=2)).model_dump_json()
    assert fits(verifier, text, finished=True)
    assert not fits(verifier, '{"name":1')


def test_python_types(foreign):
    pytest.importorskip("pydantic", reason="pydantic is not installed")

    @dataclasses.dataclass
    class Point:
        x: int
        y: int | None

    verifier = Grammar.from_python_type(list[Point]).on(BYTES, foreign)
    assert fits(verifier, '[{"x":1,"y":null}]', finished=True)
    assert not fits(verifier, '[{"x":null')
    assert Grammar.from_python_type(int | None).schema["anyOf"] == [
        {"type": "integer"},
        {"type": "null"},
    ]


def test_lark(foreign):
    grammar = Grammar.from_lark('start: "a" start "b" | "c"')
    try:
        verifier = grammar.on(BYTES, foreign)
    except UserError as error:
        pytest.skip(str(error))
    assert fits(verifier, "aacbb", finished=True)
    assert fits(verifier, "aacb")
    assert not fits(verifier, "aacb", finished=True)
    assert not fits(verifier, "aacbbb")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Grammar("xml", ""), "kind is 'xml'; it must be one of json_schema"),
        (lambda: Grammar.from_json_schema("{"), "which is not JSON"),
        (lambda: Grammar.from_json_schema("3"), "must be a dict of JSON Schema"),
        (lambda: Grammar.from_json_schema({"const": {1}}), "must be what JSON can say"),
        (lambda: Grammar.from_json_schema({"const": float("nan")}), "must be what JSON can say"),
        (lambda: Grammar.from_pydantic(int), "inherits from pydantic.BaseModel"),
        (lambda: Grammar.from_python_type(object()), "pydantic makes no JSON schema"),
        (lambda: Grammar.from_choices([]), "choices is empty"),
        (lambda: Grammar.from_lark(" "), "text is empty"),
        (lambda: Grammar.from_lark("start: 'a'").on(BYTES, "triptych"), "no rule for Lark"),
        (lambda: Grammar.from_json_schema({}).on(BYTES, "outlines"), "engine is 'outlines'"),
        (lambda: as_engine(3), "engine is 3"),
    ],
)
@pytest.mark.usefixtures("unchecked_shapes")
def test_what_is_no_grammar(make, sentence):
    with pytest.raises(UserError, match=sentence):
        make()


def test_what_an_engine_does_not_read_is_a_sentence(foreign):
    with pytest.raises(UserError, match=f"{foreign} does not read the json_schema"):
        Grammar.from_json_schema({"type": "array", "minItems": 3, "maxItems": 2}).on(BYTES, foreign)


def test_an_engine_that_is_not_there_is_a_sentence(foreign, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, foreign, None)
    with pytest.raises(UserError, match=rf"{foreign} is not installed: pip install"):
        Grammar.from_choices(["a"]).on(Vocabulary(["a"]), foreign)


def test_without_a_name_the_first_engine_that_reads_it():
    there = [e for e in ("llguidance", "xgrammar", "triptych") if engine_version(e) is not None]
    assert Grammar.from_choices(["a"]).on(BYTES).engine == there[0]
    names = {"type": "object", "propertyNames": {"type": "string", "maxLength": 1}}
    only_xgrammar = Grammar.from_json_schema(names)
    if "xgrammar" in there:
        assert only_xgrammar.on(BYTES).engine == "xgrammar"
    nobody = Grammar.from_json_schema({"type": "array", "uniqueItems": True})
    with pytest.raises(UserError, match=r"no engine that is installed reads.*uniqueItems"):
        nobody.on(BYTES)


# ------------------------------------------------------------------ a schema that is read wrongly


def test_unique_items_are_a_sentence_before_the_first_token(foreign):
    """xgrammar reads past it, llguidance refuses it; neither is silence."""
    grammar = Grammar.from_json_schema({"type": "array", "uniqueItems": True})
    with pytest.raises(UserError, match="uniqueItems"):
        grammar.on(BYTES, foreign)
    if foreign == "xgrammar":
        warned = grammar.on(BYTES, foreign, strict=False)
        assert fits(warned, "[1, 1]", finished=True)
        assert any("uniqueItems" in sentence for sentence in warned.warnings)


def test_the_order_of_keys_is_a_warning(foreign):
    two = {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}}
    verifier = Grammar.from_json_schema(two).on(BYTES, foreign)
    assert any("order" in sentence for sentence in verifier.warnings)
    assert not fits(verifier, '{"b":null,"a"')
    ours = Grammar.from_json_schema(two).on(BYTES, "triptych")
    assert fits(ours, '{"b":null,"a":null}', finished=True)
    assert ours.warnings == ()


# ------------------------------------------------------------------ algorithms


@pytest.mark.parametrize("seed", range(3))
def test_algorithms_write_what_the_grammar_accepts(engine, seed):
    lm = Table.random(len(MIXED), 4, seed=seed)
    verifier = Grammar.from_regex(r"1|10|0|\[1\]").on(MIXED, engine)
    shared = {"length": 4, "end_token": 20, "rng": 0}
    for sample, options in (
        (tokenwise.sample, {}),
        (adaptive.sample, {"n": 2}),
        (backtracking.sample, {"quota": 3, "stride": 2}),
        (vgb.sample, {"steps": 40, "candidates": None}),
    ):
        made = sample(RecomputingDecoder(lm, 8), verifier, **shared, **options)
        texts = [MIXED.text(row) for row in made.completions()]
        right = [text in (b"1", b"10", b"0", b"[1]") for text in texts]
        over, rows = torch.ones_like(made.complete), torch.arange(8)
        whole = Question(made.tokens, made.lengths, made.prompt_lengths, over, rows)
        assert (verifier.log_values(whole) == 0).tolist() == right
        assert any(right) or sample is backtracking.sample  # its argmax may never be right


def test_a_pretrained_model(engine):
    lm = tiny_lm()
    verifier = Grammar.from_regex(r"[ab]\[0?1\]").on(lm, engine)
    made = tokenwise.sample(
        lm.decoder(["a", "[0"]), verifier, length=12, end_token=list(lm.end_tokens), rng=0
    )
    assert made.accepted.all()
    for b in range(2):
        text = lm.text_of(made.completions()[b])
        assert re.fullmatch(r"[ab]\[0?1\]", text)

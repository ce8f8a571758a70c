"""Grammars in `triptych generate`: an engine's masks, our rules where there is none, no mixture."""

import json

import jsonschema
import pytest
import torch
from tests.support.command_line import run as triptych

from triptych.core.validation import UserError
from triptych.lab.generating import rules
from triptych.lab.generating.completing import Completer
from triptych.lab.generating.prompts import Prompt
from triptych.lab.generating.rules import RuleSource, find_rule, grammar_warnings, on_tokens
from triptych.lab.generating.run import Spread, generate
from triptych.lab.generating.settings import GenerateSettings
from triptych.verifiers.grammars import grammar
from triptych.verifiers.grammars.engines import engine_version
from triptych.verifiers.grammars.features import Complaint
from triptych.verifiers.grammars.verifier import GrammarVerifier
from triptych.verifiers.grammars.vocabulary import every_byte

needs_engine = pytest.mark.skipif(
    engine_version("llguidance") is None, reason="llguidance is not installed"
)
ITEMS = {"anyOf": [{"enum": [0, 1]}, {"type": "string", "enum": ["ab", "b"]}]}
DEEP = {
    "$defs": {"item": ITEMS},
    "type": "array",
    "items": {"$ref": "#/$defs/item"},
    "minItems": 2,
    "maxItems": 3,
}
PLAIN = {"enum": ["a", "ab"]}
TWO_KEYS = {"type": "object", "properties": {"a": {"enum": [0]}, "b": {"enum": [1]}}}
PROMPTS = [Prompt(i, text) for i, text in enumerate(["a", "ab", "(", "b0", "[1"])]


@pytest.fixture
def schema_file(tmp_path):
    """What a user writes for a schema."""

    def write(schema):
        (tmp_path / "schema.json").write_text(json.dumps(schema))
        return f"json:{tmp_path / 'schema.json'}"

    return write


@pytest.fixture
def one_thread():
    """The rounding of the model depends on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def versions(monkeypatch):
    """Make the machine say that engines have other versions, or are not there."""

    def change(**others):
        def version(engine):
            return others[engine] if engine in others else engine_version(engine)

        monkeypatch.setattr(rules, "engine_version", version)
        monkeypatch.setattr(grammar, "engine_version", version)

    return change


@needs_engine
@pytest.mark.usefixtures("one_thread")
def test_rows_fit_a_schema_that_our_rules_refuse(schema_file, settings, tmp_path, read_rows):
    given = schema_file(DEEP)
    with pytest.raises(UserError, match="not supported"):
        find_rule(given, "triptych")
    made = settings(verifier=given, algorithm=None, max_new_tokens=20)
    assert made.algorithm == "adaptive"
    whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    generate(PROMPTS, made, whole, Spread(batch=2))
    rows = read_rows(whole)
    for row in rows.values():
        assert row["score"] == float(row["accepted"])
        assert row["costs"]["erased"] == 0
        assert row["log_evidence"] <= 0
        if row["accepted"]:
            jsonschema.validate(json.loads(row["text"]), DEEP)
    assert sum(row["accepted"] for row in rows.values()) >= 3
    generate(PROMPTS, made, parts, Spread(batch=2), limit=2)
    generate(PROMPTS, made, parts, Spread(batch=2))
    assert read_rows(parts) == rows


@needs_engine
def test_a_worker_process_reads_the_grammar_itself(schema_file, settings, tmp_path, read_rows):
    made = settings(verifier=schema_file(DEEP), algorithm=None, max_new_tokens=20)
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    generate(PROMPTS[:2], made, here, Spread(batch=2))
    generate(PROMPTS[:2], made, there, Spread("local", workers=1, batch=2))
    one, other = read_rows(here), read_rows(there)
    assert one.keys() == other.keys()
    for key, row in one.items():
        evidence = other[key].pop("log_evidence")  # rounded by the threads that a worker takes
        assert row.pop("log_evidence") == pytest.approx(evidence, abs=1e-4)
        assert row == other[key]


@needs_engine
def test_patterns_and_lark_grammars(settings, tmp_path):
    (tmp_path / "rule.lark").write_text('start: "a" ("0" | "1") "b"')
    for given in ("regex:a[01]b", f"lark:{tmp_path / 'rule.lark'}"):
        made = settings(verifier=given, algorithm=None, max_new_tokens=6)
        assert made.verifier.engine == f"llguidance {engine_version('llguidance')}"
        for row in Completer(made).complete(PROMPTS[:3]):
            assert (row["accepted"], row["text"] in ("a0b", "a1b")) == (True, True)
    assert made.read_files()["--verifier"] == str(tmp_path / "rule.lark")


def test_our_own_rules_where_no_engine_is_installed(schema_file, settings, versions):
    versions(llguidance=None, xgrammar=None)
    made = settings(verifier=schema_file(PLAIN), algorithm=None, max_new_tokens=12)
    assert made.verifier.engine == f"triptych {engine_version('triptych')}"
    assert not made.verifier.has_masks
    completer = Completer(made)
    assert completer.grammar is None
    accepted = [row["text"] for row in completer.complete(PROMPTS) if row["accepted"]]
    assert len(accepted) >= 3
    assert {json.loads(text) for text in accepted} <= {"a", "ab"}
    with pytest.raises(UserError, match=r"pip install 'triptych\[grammars\]'"):
        find_rule(schema_file(DEEP))


@needs_engine
def test_the_engine_decides_the_texts(schema_file, settings, versions, tmp_path):
    given, out = schema_file(PLAIN), tmp_path / "out.jsonl"
    ours, masked = (find_rule(given, name) for name in ("triptych", "llguidance"))
    assert (ours.has_masks, masked.has_masks) == (False, True)
    one, other = (settings(verifier=given, grammar_engine=e) for e in ("triptych", "llguidance"))
    assert one.fingerprint != other.fingerprint
    assert GenerateSettings.from_json(other.as_json()) == other
    assert "engine" not in settings(verifier="brackets").as_json()["verifier"]
    generate(PROMPTS[:1], other, out, Spread())
    with pytest.raises(UserError, match="verifier was .*llguidance"):
        generate(PROMPTS[:1], one, out, Spread())
    versions(llguidance="0.0.1")
    newer = settings(verifier=given)
    assert newer.verifier.engine == "llguidance 0.0.1"
    with pytest.raises(UserError, match=r"verifier was .*llguidance 0\.0\.1"):
        generate(PROMPTS[:1], newer, out, Spread())
    with pytest.raises(UserError, match=r"and 0\.0\.1 is installed where the model is loaded"):
        on_tokens(masked, every_byte())
    versions(llguidance=None)
    with pytest.raises(UserError, match="is not installed where the model is loaded"):
        on_tokens(masked, every_byte())


@needs_engine
def test_what_is_known_of_the_engine_is_said_once(schema_file, model_folder, tmp_path):
    (tmp_path / "prompts.jsonl").write_text('"a"\n"b"\n')
    words = ["generate", "--model", str(model_folder), "--prompts", str(tmp_path / "prompts.jsonl")]
    words += ["--verifier", schema_file(TWO_KEYS), "--max-new-tokens", "12", "--batch", "1"]
    words += ["--out", str(tmp_path / "out.jsonl")]
    done = triptych(*words, "--grammar-engine", "llguidance")
    assert done.exit_code == 0, done.output
    assert done.stderr.count("keys in the order of the schema") == 1
    assert "keys in the order" not in done.stdout
    assert done.stderr.index("keys in the order") < done.stderr.index("loading")
    ours = triptych(*words, "--grammar-engine", "triptych", "--fresh")
    assert (ours.exit_code, "keys in the order" in ours.stderr) == (0, False)


@needs_engine
def test_an_engine_that_reads_too_much_is_refused(schema_file, monkeypatch):
    def too_much(schema, engine):
        wide = Complaint("enum", True, "enum: it accepts 7")
        return (wide,) if engine == "llguidance" else ()

    monkeypatch.setattr(grammar, "complaints", too_much)
    with pytest.raises(UserError, match="would accept what is wrong: enum: it accepts 7"):
        find_rule(schema_file(PLAIN), "llguidance")
    assert not find_rule(schema_file(PLAIN)).engine.startswith("llguidance")


@needs_engine
def test_an_engine_that_stops_fails_one_row(schema_file, settings, monkeypatch):
    made = settings(verifier=schema_file(PLAIN), algorithm=None, max_new_tokens=6)
    completer, whole = Completer(made), GrammarVerifier.masks
    bad = completer.model.encode(["ab"])[0]

    def masks(self, asked):
        if any(row[: len(bad)] == bad for row in asked.tokens.tolist()):
            raise UserError("the engine stopped")
        return whole(self, asked)

    expected = completer.complete(PROMPTS[:3])
    monkeypatch.setattr(GrammarVerifier, "masks", masks)
    rows = completer.complete(PROMPTS[:3])
    assert [row["failed"] for row in rows] == [False, True, False]
    assert rows[1]["reason"] == "the verifier failed: the engine stopped"
    assert [row["text"] for row in rows[::2]] == [row["text"] for row in expected[::2]]


@pytest.mark.parametrize(
    ("given", "engine", "sentence"),
    [
        ("brackets", "llguidance", "--grammar-engine is for json:schema.json"),
        ("json", "triptych", "--grammar-engine is for json:schema.json"),
        ("json:schema.json", "outlines", "--grammar-engine is 'outlines'; it must be one of"),
        ("json:number.json", None, "holds 3; it must be an object of JSON"),
        ("json:text.json", None, "holds '{}'; it must be an object of JSON"),
        ("json:nan.json", None, "it must be what JSON can say"),
        ("lark:none.lark", None, "a Lark grammar in 'none.lark' cannot be read"),
        ("lark:latin.lark", None, "is not UTF-8"),
        ("lark:empty.lark", None, "it must be a Lark grammar with a rule"),
        ("lark:wrong.lark", None, "no engine that is installed reads the grammar"),
        ("lark:wrong.lark", "triptych", "has no rule for Lark grammars"),
    ],
)
def test_what_is_no_grammar_is_one_sentence(given, engine, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.json").write_text("{}")
    (tmp_path / "number.json").write_text("3")
    (tmp_path / "text.json").write_text('"{}"')
    (tmp_path / "nan.json").write_text('{"const": NaN}')
    (tmp_path / "latin.lark").write_bytes(b'start: "\xe9"')
    (tmp_path / "empty.lark").write_text("")
    (tmp_path / "wrong.lark").write_text("start: other")
    with pytest.raises(UserError, match=sentence):
        find_rule(given, engine)


def test_an_engine_needs_a_verifier(settings):
    with pytest.raises(UserError, match="--grammar-engine needs --verifier"):
        settings(verifier=None, algorithm="ancestral", grammar_engine="triptych")
    assert grammar_warnings(None) == grammar_warnings(RuleSource("brackets")) == ()

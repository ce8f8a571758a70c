"""`triptych audit-grammar` as a user calls it."""

import json

import pytest
from tests.support.command_line import run

from triptych.verifiers.grammars.engines import engine_version

pytestmark = pytest.mark.skipif(
    engine_version("llguidance") is None, reason="llguidance is not installed"
)


@pytest.fixture
def schema(tmp_path):
    def write(content):
        file = tmp_path / "schema.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(file)

    return write


def test_agreement_is_exit_code_0(schema):
    made = run("audit-grammar", schema({"enum": ["a", 1]}), "--tries", "200")
    assert made.exit_code == 0
    assert "no document on which it and jsonschema disagree" in made.output


def test_a_disagreement_is_exit_code_1(schema):
    if engine_version("xgrammar") is None:
        pytest.skip("xgrammar is not installed: `make test-grammars` installs it")
    file = schema({"required": ["a"]})
    made = run("audit-grammar", file, "--engine", "xgrammar", "--tries", "200", "--json")
    assert made.exit_code == 1
    found = json.loads(made.stdout)
    assert [one["text"] for one in found["disagreements"]] == ["{}"]
    assert found["known"]


def test_a_schema_that_the_engine_refuses_is_exit_code_2(schema):
    made = run("audit-grammar", schema({"not": {"type": "string"}}))
    assert made.exit_code == 2
    assert "does not read this schema" in made.output


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        ("{", [], "is not JSON"),
        ({"type": 3}, [], "none of JSON Schema"),
        ({}, ["--engine", "outlines"], "engine is 'outlines'"),
        ({}, ["--tries", "0"], "tries is 0"),
    ],
)
def test_mistakes_are_sentences(schema, content, options, sentence):
    made = run("audit-grammar", schema(content), *options)
    assert made.exit_code == 2
    assert sentence in made.output


def test_a_file_that_is_not_there(tmp_path):
    made = run("audit-grammar", str(tmp_path / "none.json"))
    assert made.exit_code == 2
    assert "cannot be read" in made.output


def test_nats_and_the_price_of_the_cures(schema):
    """Exact on the chain: the mask's law by all texts, and what three algorithms pay."""
    file = schema({"type": "array", "items": {"enum": [0, 10]}, "maxItems": 2})
    options = ["--model", "markov", "--max-new-tokens", "7", "--tries", "200", "--texts", "40"]
    made = run("audit-grammar", file, *options, "--json")
    assert made.exit_code == 0
    found = json.loads(made.stdout)
    assert found["bending"]["exact"]
    assert found["bending"]["nats"] > 0.1
    names = [cost["algorithm"] for cost in found["mending"]]
    assert names == ["tokenwise", "adaptive", "vgb"]
    assert all(cost["accepted"] for cost in found["mending"][:2])
    lines = run("audit-grammar", file, *options).output
    assert "bends its law by" in lines
    assert "adaptive" in lines


def test_a_model_of_hugging_face(schema, tmp_path):
    from tests.support.tiny_text_model import tiny_lm

    lm = tiny_lm(letters='ab01()[]{}:," <>JSON')
    lm.model.save_pretrained(tmp_path / "lm")
    lm.tokenizer.save_pretrained(tmp_path / "lm")
    made = run(
        *("audit-grammar", schema({"enum": [0, 10, [1]]}), "--model", str(tmp_path / "lm")),
        *("--tries", "100", "--texts", "30", "--max-new-tokens", "5", "--json"),
    )
    assert made.exit_code == 0, made.output
    found = json.loads(made.stdout)["bending"]
    assert not found["exact"]
    assert found["low"] <= found["nats"] <= found["high"]

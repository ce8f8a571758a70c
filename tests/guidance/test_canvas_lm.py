"""guide on canvases: text in, text out, the same words as for autoregressive models."""

import json
import math

import jsonschema
import pytest
import torch

from triptych.core.table import Table, all_sequences
from triptych.core.validation import UserError
from triptych.diffusion.guided.any_order import AnyOrder
from triptych.diffusion.guided.canvas_gibbs import CanvasGibbs
from triptych.diffusion.guided.canvas_verifier import Regular
from triptych.diffusion.guided.completion import Completion
from triptych.diffusion.guided.remasking import Remasking
from triptych.guidance.canvas_lm import CanvasLM
from triptych.guidance.guide import guide, guide_each
from triptych.guidance.languages import automaton_of
from triptych.inference.guided.particles import Particles
from triptych.structures.hidden_markov.hmm import HMM
from triptych.verifiers.grammars.grammar import Grammar
from triptych.verifiers.grammars.vocabulary import Vocabulary

WORDS = Vocabulary(["a", "[", "]", ", ", "true", "false", ""], (6,))
SCHEMA = {"type": "array", "items": {"type": "boolean"}}
BOOLEANS = Grammar.from_json_schema(SCHEMA)
AB = Vocabulary(["a", "b", ""], (2,))


def lm(length=8):
    return CanvasLM(HMM.random(3, len(WORDS), length, seed=0), WORDS)


def fits(text):
    jsonschema.validate(json.loads(text), SCHEMA)
    return True


def test_a_schema_is_kept_by_the_default():
    out = guide(lm(), ["", "a", "true"], BOOLEANS, max_new_tokens=6)
    assert out.accepted == [True] * 3
    assert all(map(fits, out.texts))
    assert isinstance(out.results[0].info.exact, bool)
    assert out.results[0].info.exact


@pytest.mark.parametrize(
    "algorithm",
    [Completion(steps=2), Completion(steps=None, n=3, order="random"), "completion"],
)
def test_completion_on_a_table_too(algorithm):
    model = CanvasLM(Table.random(3, 4, seed=0), AB)
    rule = Grammar.from_regex("(ab)*a?")
    out = guide(model, ["", "b"], rule, algorithm, max_new_tokens=3)
    assert all(text in ("", "a", "ab", "aba") for text in out.texts)
    assert out.accepted == [True, True]
    assert out.log_evidence is not None


@pytest.mark.parametrize(
    "algorithm",
    [CanvasGibbs(steps=60), Remasking(tries=200), AnyOrder(algorithm=Particles(n=64))],
)
def test_other_algorithms_of_canvases(algorithm):
    model = CanvasLM(Table.random(3, 3, seed=0), AB)
    out = guide(model, [""] * 3, Grammar.from_choices(["ab", "b"]), algorithm, max_new_tokens=3)
    for text, accepted in zip(out.texts, out.accepted, strict=True):
        assert accepted == (text in ("ab", "b"))
    assert any(out.accepted)


@pytest.mark.parametrize("algorithm", ["adaptive", "tokenwise", "particles", "backtracking", None])
def test_prefix_rules_work_from_left_to_right(algorithm):
    model = CanvasLM(Table.random(3, 4, seed=0), AB)
    out = guide(model, ["", "a"], lambda text: "bb" not in text, algorithm, max_new_tokens=3)
    kept = [text for text, fine in zip(out.texts, out.accepted, strict=True) if fine]
    assert kept
    assert not any("bb" in text for text in kept)


def test_the_evidence_is_that_of_the_marginals():
    """One round: P(L) under the product of the marginals, by hand."""
    table = Table.random(3, 2, seed=1)
    rule = Grammar.from_choices(["ab", "bb"])
    out = guide(CanvasLM(table, AB), [""] * 3, rule, Completion(), max_new_tokens=2)
    probs = table.as_dict()
    first, second = [
        [sum(q for x, q in probs.items() if x[i] == w) for w in range(3)] for i in (0, 1)
    ]
    share = (first[0] + first[1]) * second[1]
    assert out.log_evidence == pytest.approx([math.log(share)] * 3)


def test_a_prompt_does_not_depend_on_its_batch():
    prompts = ["", "a", "true", "[", "a"]
    for algorithm in (None, Completion(steps=2, n=2), "adaptive"):
        whole = guide(lm(), prompts, BOOLEANS, algorithm, max_new_tokens=6, batch=5)
        parts = guide(lm(), prompts, BOOLEANS, algorithm, max_new_tokens=6, batch=2)
        assert whole.texts == parts.texts
        each = guide_each(lm(), prompts, BOOLEANS, algorithm, max_new_tokens=6, batch=2)
        assert [row.text for row in each] == whole.texts


def test_what_is_not_regular_goes_to_an_engine():
    nested = {
        "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
        "$ref": "#/$defs/n",
    }
    grammar = Grammar.from_json_schema(nested)
    out = guide(lm(), [""], grammar, max_new_tokens=6, rng=1)
    assert set(out.texts[0]) <= set("[], ")
    with pytest.raises(UserError, match="refers to itself"):
        guide(lm(), [""], grammar, Completion(), max_new_tokens=6)


def test_what_cannot_run():
    with pytest.raises(UserError, match="regular"):
        guide(lm(), [""], lambda text: True, Completion(), max_new_tokens=6)
    with pytest.raises(UserError, match="chat"):
        guide(lm(), [""], BOOLEANS, max_new_tokens=6, chat=True)
    with pytest.raises(UserError, match="at most 8"):
        guide(lm(), [""], BOOLEANS, max_new_tokens=9)
    with pytest.raises(UserError, match="vocabulary"):
        CanvasLM(HMM.random(3, 4, 5, seed=0), WORDS)
    with pytest.raises(UserError, match="masked_log_probs"):
        CanvasLM(object(), WORDS)
    with pytest.raises(UserError, match="no algorithm"):
        guide(lm(), [""], BOOLEANS, "complete", max_new_tokens=6)

    class Reads:
        layer = 0

        def log_values(self, asked):
            return torch.zeros(len(asked.lengths)).double()

    with pytest.raises(UserError, match="canvas"):
        guide(lm(), [""], Reads(), max_new_tokens=6)


# ------------------------------------------------------------------ grammars as automata


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar.from_regex("a*b"),
        Grammar.from_choices(["a", "ab", "bba"]),
        Grammar.from_regex("(a|b){2}|"),
    ],
)
def test_an_automaton_reads_what_the_rule_reads(grammar):
    """Every row of four tokens: right where its text is, with nothing but ends behind."""
    automaton = automaton_of(grammar, AB)
    rule = grammar.on(AB, "triptych")
    for row in all_sequences(3, 4).tolist():
        end = row.index(2) if 2 in row else len(row)
        wanted = rule.finished_values([row[:end]])[0] == 1.0 and all(t == 2 for t in row[end:])
        assert bool(automaton.accepts([row])[0]) == wanted


def test_tokens_of_several_characters():
    automaton = automaton_of(Grammar.from_regex("abc|b"), Vocabulary(["a", "ab", "bc", "c", "b"]))
    assert automaton.accepts([[0, 2], [1, 3], [0, 4], [1, 2]]).tolist() == [
        True,
        True,
        False,
        False,
    ]
    assert isinstance(Regular(automaton), Regular)

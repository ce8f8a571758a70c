"""A grammar in `guide`: it is read for the model, and cut-off texts are not accepted."""

import json
from importlib.util import find_spec

import pytest
from tests.support.tiny_text_model import tiny_lm

from triptych.core.validation import UserError
from triptych.guidance.batches import default_algorithm
from triptych.guidance.guide import guide
from triptych.verifiers.grammars.grammar import Grammar

LM = tiny_lm()
CHOICES = Grammar.from_json_schema({"enum": [[0, 1], 10, "a"]})

needs_an_engine = pytest.mark.skipif(
    find_spec("llguidance") is None, reason="llguidance is missing"
)


@needs_an_engine
@pytest.mark.parametrize("algorithm", [None, "tokenwise", "adaptive", "vgb", "particles"])
def test_what_is_accepted_fits(algorithm):
    found = guide(LM, ["a", "[0", "b:"], CHOICES, algorithm, max_new_tokens=9, rng=0)
    for text, accepted, score in zip(found.texts, found.accepted, found.scores, strict=True):
        assert accepted is (score == 1.0)
        if accepted:
            assert json.loads(text) in ([0, 1], 10, "a")
    assert any(found.accepted)


def test_a_text_that_is_cut_off_is_not_accepted():
    found = guide(LM, ["a"], Grammar.from_choices(["[" * 20]), "tokenwise", max_new_tokens=3)
    assert found.texts == ["[[["]
    assert found.accepted == [False]


@needs_an_engine
def test_a_grammar_has_adaptive_particles():
    assert default_algorithm(CHOICES.on(LM)) == "adaptive"


def test_a_grammar_that_no_engine_reads_is_a_sentence():
    with pytest.raises(UserError, match="reads the grammar"):
        guide(LM, ["a"], Grammar.from_json_schema({"uniqueItems": True}), max_new_tokens=3)

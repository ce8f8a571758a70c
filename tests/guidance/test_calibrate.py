"""Calibration by roll-outs: on small laws against the exact numbers, on texts of a tiny model."""

import math

import numpy as np
import pytest
import torch
from tests.support.tiny_text_model import tiny_lm

from triptych import calibrate
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.guidance.calibrate import _Asker
from triptych.structures.constraints import EvenParity
from triptych.theory.generation.value_errors import exact_calibration
from triptych.verifiers.exact import ExactValue, Rule


class Soft:
    """√V*, pulled towards ½."""

    def __init__(self, exact):
        self.exact = exact

    def log_value(self, prefix):
        return (0.02 + 0.96 * self.exact.log_value(prefix).exp().sqrt()).log()


def law():
    table, outcome = Table.random(2, 4, seed=11), EvenParity(4)
    return table, Soft(ExactValue(table, outcome)), outcome


def every_number(found):
    yield from (found.success, found.leaf_mass, found.tilted, *found.best_of_n.values())
    yield from (x for level in found.levels for x in level[1:])
    yield from found.screen[1:]


def test_a_small_law_is_inside_the_intervals_and_near():
    table, value, outcome = law()
    exact = exact_calibration(table, value, outcome, n=(1, 4))
    found = calibrate(
        value, table, [[]], outcome, max_new_tokens=4, texts=800, depths=[1, 2, 3, 4], n=(1, 4)
    ).prompts[0]
    assert [level.depth for level in found.levels] == [1, 2, 3, 4]
    for estimate, truth in zip(every_number(found), every_number(exact), strict=True):
        if not math.isnan(truth.value):
            assert estimate.low <= truth.value <= estimate.high
            assert estimate.value == pytest.approx(truth.value, abs=0.2)
    assert 1 < found.factor.low <= exact.factor.value


def test_a_prompt_is_a_subtree():
    """After the prompt 1 the table is another one, of three tokens."""
    table, value, outcome = law()
    below = Table(2, 3, table.log_probs[8:] - table.log_probs[8:].logsumexp(0))

    class After:
        def __init__(self, inner):
            self.inner = inner

        def log_value(self, prefix):
            return self.inner.log_value(torch.nn.functional.pad(prefix, (1, 0), value=1))

    exact = exact_calibration(below, After(value), After(outcome))
    both = calibrate(value, table, [[1], [0]], outcome, max_new_tokens=3, texts=500)
    found = both.prompts[0]
    assert found.success.low <= exact.success.value <= found.success.high
    assert found.leaf_mass.low <= exact.leaf_mass.value <= found.leaf_mass.high
    assert found.leaf_mass.value == pytest.approx(exact.leaf_mass.value, rel=0.15)
    assert both.success.value == pytest.approx(np.mean([p.success.value for p in both.prompts]))
    assert both.success.low <= both.success.value <= both.success.high
    assert set(both.best_of_n) == {1, 2, 4, 8, 16}


def test_texts_that_end_early():
    """An end token stops a text; its value stays what it was, and its roll-out is itself."""
    table = Table.random(2, 4, seed=11)
    asker = _Asker(table, [], [], 4, 1, 0, 0)
    heard = Rule(lambda x: 0.5 if len(x) < 4 and 1 not in x else 0.25)
    right = Rule(lambda x: x[-1:] == [1])
    drawn = asker.draw(heard, right, 300, (1, 2), 2)
    p = float(table.next_token_log_probs(torch.zeros(1, 0).long())[0, 1].exp())
    ended = drawn.lengths == 1
    assert ended.mean() == pytest.approx(p, abs=5 * math.sqrt(0.25 / 300))
    assert (drawn.values[ended] == 0.25).all()
    assert (drawn.again[ended] == 1).all()
    assert (drawn.outcome[ended] == 1).all()
    going = drawn.lengths == 4
    assert (drawn.values[going, :3] == 0.5).all()
    again = drawn.again[~ended, 0]
    assert 0 < again.mean() < 1
    assert (again[:, 0] != again[:, 1]).any()  # roll-outs of one text differ


def test_a_text_that_is_cut_off_is_asked_about_as_a_finished_one():
    heard = {}

    class Listens:
        def log_values(self, asked):
            for length, over in zip(asked.lengths.tolist(), asked.over.tolist(), strict=True):
                heard.setdefault(length, set()).add(over)
            return torch.zeros(len(asked.lengths), dtype=torch.float64)

    table, _, outcome = law()
    calibrate(Listens(), table, [[]], outcome, max_new_tokens=4, texts=20)
    assert heard == {1: {False}, 2: {False}, 3: {False}, 4: {True}}


def test_texts_of_a_model():
    lm = tiny_lm()
    asked = []

    def verifier(text, prompt, finished):
        asked.append((text, prompt, finished))
        return 0.5 if "a" in text else 0.9

    def right(text):
        return "a" not in text

    found = calibrate(
        verifier, lm, ["a", "b0"], right, max_new_tokens=5, texts=60, n=(1, 2, 100), rng=1
    )
    assert [one.texts for one in found.prompts] == [60, 60]
    assert {prompt for _, prompt, _ in asked} == {"a", "b0"}
    assert {finished for *_, finished in asked} == {True, False}
    for one in found.prompts:
        assert one.length == 5
        assert set(one.best_of_n) == {1, 2}
        assert one.best_of_n[1].value == pytest.approx(one.success.value)
        assert one.best_of_n[2].value > one.success.value
        assert one.tilted.value > one.success.value
    again = calibrate(verifier, lm, ["a"], right, max_new_tokens=5, texts=60, rng=1)
    assert again.prompts[0].success.value == found.prompts[0].success.value
    assert "<table" in found._repr_html_()
    assert "Calibrated(2 prompts" in repr(found)


def test_a_verifier_of_states():
    lm = tiny_lm()

    class OfStates:
        layer = 1

        def log_values(self, asked):
            states = asked.decoder.hidden_state(asked.at)
            assert states.shape == (len(asked.lengths), 16)
            return states.double().mean(-1).sigmoid().log()

    found = calibrate(OfStates(), lm, "a", lambda text: "a" in text, max_new_tokens=4, texts=20)
    assert 0 < found.prompts[0].leaf_mass.value < 1


def test_bad_input_gets_a_sentence(unchecked_shapes):
    table, value, outcome = law()
    lm = tiny_lm()
    ask = {"max_new_tokens": 4}
    loud = Rule(lambda x: True)

    class Above:
        def log_value(self, prefix):
            return torch.ones(len(prefix), dtype=torch.float64)

    for given, sentence in [
        (lambda: calibrate(value, table, [[]], outcome, max_new_tokens=0), "max_new_tokens is 0"),
        (lambda: calibrate(value, table, [[]], outcome, texts=1, **ask), "texts is 1"),
        (lambda: calibrate(value, table, [[]], outcome, rollouts=0, **ask), "rollouts is 0"),
        (lambda: calibrate(value, table, [[]], outcome, depths=[5], **ask), "a depth of depths"),
        (lambda: calibrate(value, table, [[]], outcome, depths=[], **ask), r"depths is \[\]"),
        (lambda: calibrate(value, table, [[]], outcome, n=[0], **ask), "a number of n is 0"),
        (lambda: calibrate(value, table, [[]], outcome, confidence=1.0, **ask), "confidence is 1"),
        (lambda: calibrate(value, table, [[]], outcome, threshold="x", **ask), "threshold is 'x'"),
        (lambda: calibrate(value, table, [], outcome, **ask), "prompts is empty"),
        (lambda: calibrate(value, table, ["a"], outcome, **ask), "a prompt"),
        (lambda: calibrate(None, table, [[]], outcome, **ask), "verifier is None"),
        (lambda: calibrate(3, table, [[]], outcome, **ask), "verifier is 3"),
        (lambda: calibrate(value, 3, [[]], outcome, **ask), "lm is 3"),
        (lambda: calibrate(lambda t: 1, table, [[]], outcome, **ask), "the model has no text"),
        (lambda: calibrate(Above(), table, [[]], outcome, **ask), "Above says log V = 1"),
        (lambda: calibrate(loud, lm, [3], loud, **ask), r"prompts\[0\] is 3"),
    ]:
        with pytest.raises(UserError, match=sentence):
            given()

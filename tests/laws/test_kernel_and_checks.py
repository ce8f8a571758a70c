"""Kernels of chains, and what `assert_law` and `assert_invariant` say."""

import random

import pytest
import torch

from triptych.core.errors import UserError
from triptych.laws import assert_invariant, assert_law, kernel_of, law_of

TARGET = {(0, 0): 0.4, (0, 1): 0.1, (1, 0): 0.2, (1, 1): 0.3}


def gibbs(state):
    """Redraw one coordinate, chosen at random, given the other."""
    k = random.randrange(2)
    options = [tuple(v if i == k else x for i, x in enumerate(state)) for v in (0, 1)]
    return random.choices(options, [TARGET[option] for option in options])[0]


def without_the_ratio(state):
    """Metropolis that forgets to accept."""
    return random.choice(list(TARGET))


def test_worked_value():
    kernel = kernel_of(lambda x: random.randrange(2) if x == 0 else 0, [0, 1])
    assert kernel.matrix.tolist() == [[0.5, 0.5], [1.0, 0.0]]
    assert kernel.stationary()[0] == pytest.approx(2 / 3, abs=1e-12)
    assert kernel.spectral_gap() == pytest.approx(0.5, abs=1e-12)
    assert kernel.reversibility({0: 2 / 3, 1: 1 / 3}) < 1e-15
    assert kernel.distance(3) == pytest.approx(1 / 12, abs=1e-12)  # (2/3) / 2^3
    assert kernel.after({0: 1.0}, 2) == {0: 0.75, 1: 0.25}
    assert "<svg" in kernel._repr_html_()


def test_a_chain_that_does_not_settle():
    kernel = kernel_of(lambda x: x, [0, 1])
    assert kernel.spectral_gap() == 0
    with pytest.raises(UserError, match="several stationary laws"):
        kernel.stationary()


def test_a_gibbs_step_keeps_its_law():
    kernel = assert_invariant(gibbs, TARGET, reversible=True)
    assert kernel.invariance(TARGET) < 1e-15


def test_a_wrong_step_is_shown_with_its_line():
    with pytest.raises(AssertionError, match="(?s)moves the law by 0.2.*test_kernel_and_checks.py"):
        assert_invariant(without_the_ratio, TARGET)


def test_states_that_are_tensors():
    states = list(torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]))

    def flip(state):
        state[random.randrange(2)] ^= 1
        return state

    assert kernel_of(flip, states).spectral_gap() == pytest.approx(0.0, abs=1e-12)


def test_bad_states():
    with pytest.raises(UserError, match="none of the states"):
        kernel_of(lambda x: 5, [0, 1])
    with pytest.raises(UserError, match="different"):
        kernel_of(lambda x: x, [0, 0])


def test_assert_law_says_the_outcome_both_probabilities_and_the_way_there():
    assert_law(lambda: random.choice("ab"), {"a": 0.5, "b": 0.5})
    with pytest.raises(AssertionError) as caught:
        assert_law(lambda: random.choice("ab"), {"a": 0.75, "b": 0.25})
    text = str(caught.value)
    assert all(part in text for part in ("'a'", "0.5", "0.75", "test_kernel_and_checks.py:"))


def test_measures_of_a_law():
    law = law_of(lambda: (random.randrange(2), random.randrange(2)))
    assert law.marginal(0).probs == {0: 0.5, 1: 0.5}
    assert law.marginal(sum).probs == {0: 0.25, 1: 0.5, 2: 0.25}
    assert law.expectation(sum) == 1
    assert law.kl(torch.tensor([[0.25, 0.25], [0.25, 0.25]])) == 0
    assert law.kl({(0, 0): 1.0}) == float("inf")
    assert law.worst({(0, 0): 1.0}).outcome == (0, 0)
    assert "outcome" in law._repr_html_()


@pytest.mark.parametrize("target", [{"a": 0.7}, {"a": -1.0, "b": 2.0}, 3, torch.tensor([0.5])])
def test_a_target_that_is_no_law(target):
    with pytest.raises(UserError):
        assert_law(lambda: "a", target)

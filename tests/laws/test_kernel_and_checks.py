"""Kernels of chains, and what `assert_law` and `assert_invariant` say."""

import random

import pytest
import torch

from triptych.core.errors import UserError
from triptych.laws import BoundedKernel, Kernel, assert_invariant, assert_law, kernel_of, law_of
from triptych.laws.contract import Contract, judge

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


def waiting(target, waits=0.5):
    """An independent draw, after coins that may come up the same side without end."""

    def step(state):
        while random.random() < waits:
            pass
        return random.choices(list(target), list(target.values()))[0]

    return step


def test_bounds_on_a_kernel_by_hand():
    """M = [[1/2, 1/4], [1/4, 1/2]], a quarter of each row missing."""
    half = torch.tensor([[0.5, 0.25], [0.25, 0.5]], dtype=torch.float64)
    quarter = torch.full((2,), 0.25, dtype=torch.float64)
    kernel = BoundedKernel((0, 1), half, missing=quarter)
    assert kernel.invariance({0: 0.5, 1: 0.5}) == (0.0, 0.25)
    assert kernel.invariance({0: 1.0}) == (0.25, 0.5)
    assert kernel.bounds(0, 1) == (0.25, 0.5)
    assert kernel.after({0: 1.0}) == {0: (0.5, 0.75), 1: (0.25, 0.5)}
    assert kernel.after({0: 1.0}, 2) == {0: (0.3125, 0.75), 1: (0.25, 0.6875)}
    assert kernel.reversibility({0: 0.5, 1: 0.5}) == (0.0, 0.125)
    assert kernel.reversibility({0: 0.8, 1: 0.2}) == pytest.approx((0.1, 0.35))
    assert "most missing" in kernel._repr_html_()
    with pytest.raises(UserError, match="none of the states"):
        kernel.bounds(0, 2)


def test_bounds_hold_for_every_way_the_missing_mass_can_go():
    """Each kernel that agrees with what was followed has its answers within the bounds."""
    law = {0: 0.3, 1: 0.3, 2: 0.4}
    rng = torch.Generator().manual_seed(0)
    followed = torch.rand(3, 3, generator=rng, dtype=torch.float64)
    followed *= torch.tensor([0.9, 0.7, 1.0]).double()[:, None] / followed.sum(-1, keepdim=True)
    missing = 1 - followed.sum(-1)
    bounds = BoundedKernel((0, 1, 2), followed, missing=missing)
    low, high = bounds.invariance(law)
    least, most = bounds.reversibility(law)
    after = bounds.after(law, 3)
    seen = []
    for _ in range(300):
        where = torch.rand(3, 3, generator=rng, dtype=torch.float64) ** 8
        rest = missing[:, None] * where / where.sum(-1, keepdim=True)
        whole = Kernel((0, 1, 2), followed + rest)
        seen.append(whole.invariance(law))
        assert low - 1e-12 <= seen[-1] <= high + 1e-12
        assert least - 1e-12 <= whole.reversibility(law) <= most + 1e-12
        for x, p in whole.after(law, 3).items():
            assert after[x][0] - 1e-12 <= p <= after[x][1] + 1e-12
    assert max(seen) - min(seen) > 0.05


def test_a_step_with_a_loop_without_end_has_bounds():
    """Three outcomes a coin: 30 runs see ten coins, and 2^-10 of each row is missing."""
    target = {0: 0.5, 1: 0.3, 2: 0.2}
    kernel = kernel_of(waiting(target), [0, 1, 2], budget=30)
    assert isinstance(kernel, BoundedKernel)
    least, most = kernel.invariance(target)
    assert least < 1e-12
    assert most == pytest.approx(float(kernel.missing.max()))
    assert 0 < most < 0.01
    with pytest.raises(AssertionError, match="a mass of .* was not followed"):
        assert_invariant(waiting(target), target, budget=30)
    again = assert_invariant(waiting(target), target, atol=most, budget=30, reversible=True)
    assert torch.equal(again.matrix, kernel.matrix)
    with pytest.raises(AssertionError, match="at least"):
        assert_invariant(waiting(target), {0: 0.2, 1: 0.3, 2: 0.5}, budget=30)


@pytest.mark.parametrize(
    ("law", "waits", "says"),
    [
        ({0: 0.5, 1: 0.3, 2: 0.2}, 0.5, "keeps its promise"),
        ({0: 0.2, 1: 0.3, 2: 0.5}, 0.5, "breaks its promise"),
        ({0: 0.5, 1: 0.3, 2: 0.2}, 0.99, "not entered"),
    ],
)
def test_a_contract_of_a_chain_whose_step_was_not_followed_to_the_end(law, waits, says):
    step = waiting({0: 0.5, 1: 0.3, 2: 0.2}, waits)
    contract = Contract("", "", "", lambda _: step, law, step, step, kind="kernel")
    verdict = judge(contract, step, budget=60)
    assert (verdict.says, verdict.exact) == (says, False)
    if says == "keeps its promise":
        assert 0 < verdict.distance < 1e-3
    elif says == "breaks its promise":
        assert verdict.distance == pytest.approx(0.3, abs=1e-3)


def test_what_small_numbers_against_log_of_0_leave_out_of_a_kernel():
    def gumbel(state):
        noise = -torch.log(-torch.log(torch.rand(2, dtype=torch.float64) + 1e-10) + 1e-10)
        return int((torch.tensor([0.3, 0.7], dtype=torch.float64).log() + noise).argmax())

    kernel = kernel_of(gumbel, [0, 1])
    assert isinstance(kernel, Kernel)
    assert not kernel.exact
    assert 0 < kernel.left_out < 1e-8
    assert assert_invariant(gumbel, {0: 0.3, 1: 0.7}, atol=1e-12).left_out == kernel.left_out
    assert kernel_of(lambda x: x, [0]).exact


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

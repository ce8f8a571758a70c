"""Variation of patterns, its random baseline, and likeness to a stack."""

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.validation import UserError
from triptych.structures.brackets.dyck import Dyck
from triptych.theory.brackets.patterns import (
    mean_variation,
    partners,
    random_variation,
    stack_likeness,
    stack_pattern,
    variation,
)

WORD = Dyck.prefixes(2, 4, 16, q=0.5).tokens("[[[[]]]](((())))")[0]


def simplex(models, n, *, causal=True, seed=0):
    """Patterns whose rows are uniform on the simplex: exponentials, normalised."""
    generator = torch.Generator().manual_seed(seed)
    drawn = -torch.rand(models, n, n, generator=generator, dtype=torch.float64).log()
    if causal:
        drawn = drawn.tril()
    return drawn / drawn.sum(-1, keepdim=True)


def test_variation_by_hand():
    a = torch.tensor([[1.0, 0.0], [1.0, 0.0]]).double()
    b = torch.eye(2).double()
    assert float(variation(a, b)) == 2.0
    assert mean_variation(torch.stack([a, b])) == pytest.approx(2.0)


def test_the_mean_is_over_all_pairs():
    patterns = simplex(5, 6)
    pairs = [float(variation(patterns[i], patterns[j])) for i in range(5) for j in range(i)]
    assert mean_variation(patterns) == pytest.approx(sum(pairs) / 10)
    with pytest.raises(UserError, match="at least 2"):
        mean_variation(patterns[:1])


@pytest.mark.parametrize("causal", [True, False])
def test_the_random_baseline_by_simulation(causal):
    """The mean of 4000 patterns is within 5 standard errors, each about 0.006."""
    found = mean_variation(simplex(4000, 16, causal=causal))
    assert found == pytest.approx(random_variation(16, causal=causal), abs=0.03)


def test_the_random_baseline_by_hand():
    assert random_variation(2) == pytest.approx(1 / 3)
    assert random_variation(2, causal=False) == pytest.approx(2 / 3)
    assert random_variation(16) == pytest.approx(2.997, abs=1e-3)
    assert random_variation(19) == pytest.approx(3.295, abs=1e-3)


def test_the_published_baselines_are_two_draws_of_forty_patterns():
    """Each is within 2.5 standard deviations of the mean over 40 patterns."""
    for n, published in ((16, 2.85), (19, 3.33)):
        means = [mean_variation(simplex(40, n, seed=seed)) for seed in range(60)]
        spread = torch.tensor(means).std().item()
        assert abs(published - random_variation(n)) < 2.5 * spread + 0.01


def test_partners_by_hand():
    dyck = Dyck.prefixes(2, 2, 3, q=0.5)
    assert partners(dyck.tokens("[()"), 2) == [[0, 1, 0]]
    assert partners(dyck.tokens("[]"), 2) == [[0, None]]
    with pytest.raises(UserError, match="closes nothing"):
        partners([[1]], 2)


def test_likeness_of_stack_uniform_and_random_attention():
    assert stack_likeness(stack_pattern(WORD, 2), WORD, 2) == 1.0
    uniform = torch.ones(17, 17).double().tril()
    uniform = uniform / uniform.sum(-1, keepdim=True)
    rows = [6, 7, 8, 14, 15, 16]  # closing brackets that leave one open, and the start token
    expected = sum(1 / n for n in rows) / 6
    assert stack_likeness(uniform, WORD, 2) == pytest.approx(expected)
    drawn = [stack_likeness(pattern, WORD, 2) for pattern in simplex(400, 17)]
    assert sum(drawn) / 400 == pytest.approx(expected, abs=0.01)


def test_likeness_by_hand():
    word = Dyck.prefixes(2, 2, 3, q=0.5).tokens("[()")[0]
    uniform = torch.ones(4, 4).double().tril()
    assert stack_likeness(uniform / uniform.sum(-1, keepdim=True), word, 2) == 0.25
    with refused("pattern"):
        stack_likeness(uniform[:3, :3], word, 2)
    with pytest.raises(UserError, match="leaves a bracket open"):
        stack_likeness(uniform[:3, :3], word[:2] * 0 + torch.tensor([0, 1]), 2)

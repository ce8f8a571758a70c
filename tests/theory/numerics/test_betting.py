"""Intervals by betting: bounds that hold, and how often."""

import numpy as np
import pytest
from scipy import stats

from triptych.core.validation import UserError
from triptych.theory.numerics.betting import ratio_of_means


def test_worked_value():
    """a = b: the ratio is 1, and no bet against 1 wins."""
    b = np.linspace(0.1, 1, 50)
    found = ratio_of_means(b, b)
    assert found.value == 1
    assert found.low <= 1 <= found.high
    assert found.high - found.low < 0.5


def test_capital_by_hand():
    """Twenty ones: every bet against θ is the largest, half of 1 / θ, as long as
    √(2 log 40 / (20 s)) is above that; so the capital of θ is Π (1 + λ_i (1 - θ)) > 40 below `low`.
    """
    ones = np.ones(20)
    low = ratio_of_means(ones).low

    def capital(theta):
        total, square = 1.0, 0.25 * theta**2 + 1e-9
        for i in range(1, 21):
            bet = min(np.sqrt(2 * np.log(40) / (20 * square / i)), 0.5 / theta)
            total *= 1 + bet * (1 - theta)
            square += (1 - theta) ** 2
        return total

    assert capital(low * 0.999) > 40 > capital(low * 1.01)
    assert ratio_of_means(ones).high == 1


def test_it_narrows_and_is_near_clopper_and_pearson():
    rng = np.random.default_rng(0)
    widths = []
    for n in (100, 400, 1600):
        x = (rng.random(n) < 0.3).astype(float)
        found = ratio_of_means(x)
        exact = stats.binomtest(int(x.sum()), n).proportion_ci(method="exact")
        assert found.high - found.low < 1.6 * (exact.high - exact.low)
        widths.append(found.high - found.low)
    assert widths[0] > 1.5 * widths[1] > 2.25 * widths[2]


def test_without_evidence_it_says_nothing():
    empty = ratio_of_means(np.ones(5), np.zeros(5))
    assert (empty.low, empty.high) == (0.0, np.inf)
    assert ratio_of_means(np.zeros(50)).low == 0
    assert 0.02 < ratio_of_means(np.zeros(50)).high < 0.2
    few = ratio_of_means(np.ones(1))
    assert few.low < 0.5


@pytest.mark.parametrize("kind", ["mean", "ratio", "rare"])
def test_coverage(kind):
    """A 90 % interval misses in at most 10 % of 400 runs: 58 is beyond them with P < 1e-3."""
    rng, missed = np.random.default_rng(1), 0
    for _ in range(400):
        v = rng.beta(1, 3, 60)
        if kind == "mean":
            found, truth = ratio_of_means(v, confidence=0.9), 0.25
        elif kind == "ratio":
            y = (rng.random(60) < v).astype(float)
            found, truth = ratio_of_means(y, v, confidence=0.9), 1.0
        else:
            y = 50.0 * (rng.random(60) < 0.02)
            found, truth = ratio_of_means(y, most_above=50.0, confidence=0.9), 1.0
        missed += not found.low <= truth <= found.high
    assert missed <= 57


def test_bad_input_gets_a_sentence():
    for given, sentence in [
        (lambda: ratio_of_means(np.array([2.0])), "above holds numbers from 2 to 2; .* 0 and 1"),
        (lambda: ratio_of_means(np.array([0.5]), np.array([-1.0])), "below holds"),
        (lambda: ratio_of_means(np.array([0.5, 1]), np.array([1.0])), "2 numbers and below 1"),
        (lambda: ratio_of_means(np.array([np.nan])), "finite numbers"),
        (lambda: ratio_of_means(np.array([0.5]), confidence=1.0), "confidence is 1"),
    ]:
        with pytest.raises(UserError, match=sentence):
            given()

"""Tests by draws: their level over suites, their power in draws, and what they show."""

import math
import random

import numpy as np
import pytest

from triptych.core.errors import UserError
from triptych.laws import certify_by_draws, draws_needed
from triptych.laws.certify import Evidence, shared_level

TARGET = {"a": 0.5, "b": 0.3, "c": 0.2}
P = np.array([0.5, 0.3, 0.2])


def test_worked_value():
    assert math.exp(Evidence(np.array([0.5, 0.5])).log_joint(np.array([2, 0]))) == pytest.approx(
        1.5
    )


def test_the_mean_of_the_evidence_is_one():
    """Over all sequences of four draws, by enumeration; whatever one sees, it is fair."""
    evidence, total = Evidence(P), 0.0
    for code in range(3**4):
        draws = [code // 3**k % 3 for k in range(4)]
        counts = np.bincount(draws, minlength=3)
        total += math.exp(evidence.log_e(counts)) * P[draws].prod()
    assert total == pytest.approx(1.0, abs=1e-12)


def test_the_regret_is_a_bound():
    """n KL(shares || p) - log_joint is at most the regret, for all counts of 12 draws."""
    evidence, n = Evidence(P), 12
    for a in range(n + 1):
        for b in range(n + 1 - a):
            counts = np.array([a, b, n - a - b])
            shares = counts[counts > 0] / n
            kl = float((shares * np.log(shares / P[counts > 0])).sum())
            assert n * kl - evidence.log_joint(counts) <= evidence.regret(n) + 1e-9


def crossings(suites, draws, level, seed, looks):
    """The share of suites of draws from the target whose evidence ever reaches 1 / level."""
    rng = np.random.default_rng(seed)
    evidence, crossed = Evidence(P), 0
    for _ in range(suites // 500):
        drawn = rng.choice(3, size=(500, draws), p=P)
        counts = np.stack([(drawn == k).cumsum(1) for k in range(3)], -1)[:, ::looks]
        crossed += int((evidence.log_e(counts).max(1) >= math.log(1 / level)).sum())
    return crossed / suites


def test_level_whenever_one_looks():
    """At level 0.05; 1,000 suites of 300 draws. It fails by chance with probability < 1e-9."""
    assert crossings(1_000, 300, 0.05, 0, 1) < 0.05 + 6 * math.sqrt(0.05 * 0.95 / 1_000)


@pytest.mark.slow
def test_level_over_ten_thousand_suites():
    """A suite of ten tests at 1e-3 together: at most 10 of 10,000 suites are expected to fail.

    Each is looked at after every 5 of 2,000 draws; 26 or more have probability < 1e-4.
    """
    share = shared_level(1e-3, 10)
    failed = sum(crossings(10_000, 2_000, share, seed, 5) for seed in range(10)) * 10_000
    assert failed < 26


def test_power_is_kept():
    """A sampler 0.1 away is refuted within the stated draws, in 200 of 200 tries.

    1 of 100 may fail by the statement; 12 or more of 200 would have probability < 1e-6.
    """
    needed = draws_needed(TARGET, 1e-3, 0.1)
    assert 1_000 < needed < 2_500
    rng, evidence = np.random.default_rng(0), Evidence(P)
    counts = rng.multinomial(needed, [0.6, 0.3, 0.1], size=200)
    assert (evidence.log_e(counts) < math.log(1000)).sum() < 12


def test_a_distance_of_two_hundredths_in_draws():
    assert 50_000 < draws_needed(TARGET, 1e-3, 0.02) < 60_000


def test_a_right_sampler_passes_and_says_what_it_would_have_seen():
    rng = random.Random(1)
    found = certify_by_draws(lambda: rng.choices("abc", [5, 3, 2])[0], TARGET, distance=0.1)
    assert found.passed
    assert found
    assert found.detects == 0.1
    assert "0.1 away" in str(found)


def test_a_wrong_sampler_fails_at_the_outcome_that_shows_it():
    rng = random.Random(1)
    found = certify_by_draws(lambda: rng.choices("abc", [6, 3, 1])[0], TARGET, distance=0.05)
    assert not found.passed
    assert found.outcome in ("a", "c")
    assert found.draws < draws_needed(TARGET, 1e-3, 0.1)


def test_an_impossible_outcome_ends_it_at_once():
    found = certify_by_draws(lambda: "d", TARGET)
    assert (found.passed, found.draws, found.outcome) == (False, 1, "d")


def test_fewer_draws_detect_less():
    rng = random.Random(2)
    found = certify_by_draws(lambda: rng.choices("abc", [5, 3, 2])[0], TARGET, max_draws=500)
    assert 0.1 < found.detects < 0.5


@pytest.mark.parametrize("options", [{"level": 0}, {"level": 1}, {"distance": 2}, {"max_draws": 0}])
def test_bad_options(options):
    with pytest.raises(UserError):
        certify_by_draws(lambda: "a", TARGET, **options)

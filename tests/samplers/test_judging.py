"""Verdicts on samplers made for the purpose."""

import random

import pytest
import torch

from samplers.judging import ABSENT, BREAKS, KEEPS, NOT_ENTERED, Row, judged
from samplers.record import Case, Sampler

COIN = {0: 0.7, 1: 0.3}


def sampler(case, package="python", **more):
    return Sampler(package, "a coin", "P(1) = 0.3", "this test", lambda: case, **more)


def coin(p):
    return lambda: int(torch.rand(()) < p)


def test_a_kept_promise():
    row = judged(sampler(Case(coin(0.3), COIN)))
    assert (row.verdict, row.how) == (KEEPS, "exact")
    assert row.distance == pytest.approx(0.0, abs=1e-15)


def test_a_broken_promise_names_the_outcome_and_is_drawn_again():
    torch.manual_seed(0)
    row = judged(sampler(Case(coin(0.35), COIN)), draws=5_000)
    assert row.verdict == BREAKS
    assert row.distance == pytest.approx(0.05)
    assert row.worst is not None
    assert abs(row.worst.found - row.worst.promised) == pytest.approx(0.05)
    assert row.draws is not None
    assert row.draws.against == "law"
    assert row.draws.agree


def test_rounding_is_no_broken_promise():
    assert judged(sampler(Case(coin(0.3 + 1e-7), COIN), rounding=1e-6)).verdict == KEEPS
    assert judged(sampler(Case(coin(0.3 + 1e-7), COIN), rounding=1e-9)).verdict == BREAKS


def test_what_is_not_entered_is_drawn():
    torch.manual_seed(0)
    right = judged(sampler(Case(coin(0.3), COIN), entered=False))
    assert (right.verdict, right.how) == (NOT_ENTERED, "draws")
    assert right.draws is not None
    assert right.draws.agree
    assert judged(sampler(Case(coin(0.9), COIN), entered=False)).verdict == BREAKS


def test_what_is_refused_is_drawn_and_says_why():
    torch.manual_seed(0)
    own = random.SystemRandom()  # draws where no door is
    row = judged(sampler(Case(lambda: int(own.random() < 0.3), COIN)))
    assert row.verdict == NOT_ENTERED
    assert row.refusal
    assert row.draws is not None


def test_a_package_that_is_not_there():
    assert judged(sampler(Case(coin(0.3), COIN), package="no-such-package")).verdict == ABSENT


def test_a_step_is_judged_from_the_law_that_it_should_keep():
    """Always moving to the other side keeps the fair coin alone."""
    fair, biased = {0: 0.5, 1: 0.5}, {0: 0.75, 1: 0.25}
    assert judged(sampler(Case(lambda x: 1 - x, fair, start=fair))).verdict == KEEPS
    row = judged(sampler(Case(lambda x: 1 - x, biased, start=biased)))
    assert row.verdict == BREAKS
    assert row.distance == pytest.approx(0.5)
    assert row.long_run == pytest.approx(0.25)


def test_a_reading_is_compared():
    """Mean weights: 0 with weight 2 and 1 with weight 1 are worth 1.4 and 0.3."""
    weigh = {0: 2.0, 1: 1.0}
    case = Case(
        coin(0.3), {0: 1.4, 1: 0.3}, reading=lambda law: {x: p * weigh[x] for x, p in law.items()}
    )
    assert judged(sampler(case)).verdict == KEEPS


def test_a_row_survives_json():
    row = judged(sampler(Case(coin(0.35), COIN)), draws=1_000)
    assert Row.of(row.record()) == row

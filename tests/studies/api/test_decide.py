"""Checks and verdicts: every rule of judging, on numbers worked by hand."""

import math
from dataclasses import dataclass

import pytest

from triptych.core.estimates import Estimate, Status
from triptych.studies.api.decide import (
    above,
    at_edge,
    at_least,
    below,
    decide,
    exactly,
    largest,
    none,
    shown,
    within,
)
from triptych.studies.api.study import Claim
from triptych.studies.api.summaries import difference, mean_series, scaled

HOLDS, FAILS, UNDECIDED = Status.HOLDS, Status.FAILS, Status.UNDECIDED


def estimate(low, high):
    return Estimate((low + high) / 2, float(low), float(high), 5)


@pytest.mark.parametrize(
    ("interval", "limit", "published", "outcome"),
    [
        ((0.1, 0.3), 0.0, None, HOLDS),
        ((-0.3, -0.1), 0.0, None, FAILS),
        ((-0.1, 0.1), 0.0, None, UNDECIDED),
        ((0.0, 0.1), 0.0, None, UNDECIDED),  # the limit itself is in the interval
        ((-0.2, 0.1), 0.0, 31.7, FAILS),  # 0.1 < 15.85: half of the published effect is excluded
        ((-0.2, 15.9), 0.0, 31.7, UNDECIDED),
        ((0.1, 0.2), 0.0, 31.7, HOLDS),  # the direction is there
        ((0.4, 0.6), 0.5, 0.9, FAILS),  # half way from 0.5 to 0.9 is 0.7
        ((0.4, 0.8), 0.5, 0.9, UNDECIDED),
        ((-math.inf, math.inf), 0.0, 1.0, UNDECIDED),  # one sample
    ],
)
def test_above_and_its_mirror_image(interval, limit, published, outcome):
    assert above("x", estimate(*interval), limit, published=published).outcome is outcome
    mirrored = estimate(-interval[1], -interval[0])
    other = None if published is None else -published
    assert below("x", mirrored, -limit, published=other).outcome is outcome


def test_a_published_effect_on_the_wrong_side_is_our_mistake():
    with pytest.raises(ValueError, match="wrong side of its limit"):
        above("gain", estimate(0, 1), 0.0, published=-1.0)
    with pytest.raises(ValueError, match="wrong side of its limit"):
        below("gain", estimate(0, 1), 0.0, published=1.0)


@pytest.mark.parametrize(
    ("interval", "outcome"),
    [((90, 95), HOLDS), ((80, 84), FAILS), ((84, 90), UNDECIDED), ((101, 102), FAILS)],
)
def test_within(interval, outcome):
    check = within("probe, %", estimate(*interval), 93.0, by=7.8)
    assert check.outcome is outcome
    assert check.wanted == "93 ± 7.8"


def test_exact_checks():
    assert exactly("error", 1e-12).outcome is HOLDS
    assert exactly("error", 1e-3).outcome is FAILS
    assert exactly("error", 0.5, below=1.0).outcome is HOLDS
    assert none("wrong", 0, of=10).outcome is HOLDS
    assert none("wrong", 1, of=10).outcome is FAILS
    assert none("wrong", 0, of=0).outcome is UNDECIDED


@pytest.mark.parametrize(
    "check",
    [
        above("x", Estimate(math.nan, 1.0, 2.0, 3), 0.0),
        below("x", Estimate(-1.0, math.nan, -0.5, 3), 0.0),
        within("x", Estimate(1.0, 1.0, math.nan, 3), 1.0, by=1.0),
        exactly("x", math.nan),
    ],
)
def test_nan_is_never_evidence(check):
    assert check.outcome is UNDECIDED


GOOD, BAD, OPEN = (above("s", estimate(*i), 0.0) for i in ((1, 2), (-2, -1), (-1, 1)))
RIGHT, WRONG = exactly("e", 0.0), exactly("e", 1.0)
ENOUGH, FEW = at_least("trials", 3, 3), at_least("trials", 2, 3)


@pytest.mark.parametrize(
    ("checks", "needs", "outcome"),
    [
        ([GOOD, RIGHT], [ENOUGH], HOLDS),
        ([GOOD, OPEN], [], UNDECIDED),
        ([GOOD, OPEN, BAD], [], FAILS),
        ([GOOD], [FEW], UNDECIDED),
        ([BAD], [FEW], UNDECIDED),  # trials so far decide nothing
        ([WRONG], [FEW], FAILS),  # one exact counterexample is enough
        ([], [], UNDECIDED),
        ([shown("x", 3.0)], [], UNDECIDED),
        ([GOOD, shown("x", estimate(0, 1))], [], HOLDS),
    ],
)
def test_how_checks_make_a_verdict(checks, needs, outcome):
    verdict = decide(*checks, needs=needs)
    assert verdict.outcome is outcome
    assert verdict.checks == tuple(checks)


def test_what_is_missing_is_said():
    assert decide(GOOD, needs=[FEW, ENOUGH]).missing == ("trials: 2 of 3",)
    assert decide().missing == ("rows: 0",)


def test_an_edge_is_an_exception_and_no_failure():
    verdict = decide(RIGHT, at_edge("τ = T", WRONG), at_edge("T = 1", RIGHT))
    assert (verdict.outcome, verdict.exceptions) == (HOLDS, ("τ = T",))
    assert decide(WRONG, at_edge("τ = T", WRONG)).exceptions == ()
    assert (
        decide(at_edge("τ = T", WRONG)).outcome is UNDECIDED
    )  # nothing but the edge was looked at


@dataclass(frozen=True)
class Trial:
    gain: float


@dataclass(frozen=True)
class Other:
    value: float


def test_a_claim_never_holds_on_a_nan_that_its_judge_looked_at():
    claim = Claim(
        "x", lambda rows: decide(RIGHT, needs=[at_least("t", len(rows.of(Trial)), 1)]), []
    )
    assert claim.verdict([Trial(1.0)]).outcome is HOLDS
    spoiled = claim.verdict([Trial(1.0), Trial(math.nan)])
    assert spoiled.outcome is UNDECIDED
    assert spoiled.missing == ("numbers instead of nan: Trial.gain in 1 rows",)
    assert claim.verdict([Trial(1.0), Other(math.nan)]).outcome is HOLDS


def test_largest():
    assert largest([1.0, 3.0]) == 3.0
    assert math.isnan(largest([1.0, math.nan]))
    assert math.isnan(largest([]))


def test_differences_and_means():
    found = difference([2.0, 2.0], [1.0, 1.0])
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)
    assert scaled(Estimate(0.12, 0.1, 0.14, 3), 100.0).high == pytest.approx(14.0)
    assert scaled(Estimate(1.0, 0.5, 2.0, 3), -1.0).low == -2.0
    series = mean_series([(2, 1.0), (1, 0.4), (1, 0.6)], "share", "ours")
    assert (series.x, series.y) == ((1.0, 2.0), (50.0, 100.0))
    assert series.low[0] == 0.0  # the interval is wider than what a share can be
    assert series.high[0] == 100.0

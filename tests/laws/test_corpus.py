"""No false alarm on right samplers of every style, and every planted mistake is found and shown."""

import itertools

import pytest
from tests.support import right_samplers, wrong_samplers, wrong_speculation

from triptych.laws import Law, law_of
from triptych.laws.contract import all_contracts, judge, judge_law

RIGHT = right_samplers.CASES
WRONG = list(itertools.product(wrong_samplers.WRONG, range(len(wrong_samplers.CASES))))


def test_how_many_there_are():
    contracts = len(all_contracts())  # each has a wrong sampler, which test_contracts.py judges
    others = (
        len(wrong_samplers.ORDERS) + 2 * len(wrong_samplers.PAIRS) + len(wrong_speculation.WRONG)
    )
    assert len(RIGHT) >= 200
    assert len(WRONG) + others + contracts >= 60
    distinct = {*wrong_samplers.WRONG, *wrong_samplers.ORDERS, *wrong_samplers.PAIRS}
    assert len(distinct) + len(wrong_speculation.WRONG) + contracts >= 60


@pytest.mark.parametrize("style", right_samplers.STYLES)
def test_no_false_alarm(style):
    sampler = right_samplers.STYLES[style]
    for weights in right_samplers.WEIGHTS:
        law = law_of(sampler, weights)
        assert isinstance(law, Law)
        assert law.left_out < 1e-14
        assert law.total_variation(dict(enumerate(weights))) < 1e-12, (style, weights)


def shown(verdict):
    return verdict.says == "breaks its promise" and "in the target" in verdict.counterexample


@pytest.mark.parametrize(("name", "case"), WRONG)
def test_a_mistake_is_found(name, case):
    p = wrong_samplers.CASES[case]
    verdict = judge_law(lambda: wrong_samplers.WRONG[name](p), dict(enumerate(p)))
    assert shown(verdict), verdict


@pytest.mark.parametrize("name", wrong_samplers.ORDERS)
def test_a_wrong_shuffle_is_found(name):
    assert shown(judge_law(wrong_samplers.ORDERS[name], wrong_samplers.ORDERS_TARGET))


@pytest.mark.parametrize("name", wrong_samplers.PAIRS)
def test_a_wrong_pair_is_found(name):
    for p in wrong_samplers.CASES:
        program = wrong_samplers.PAIRS[name]
        assert shown(judge_law(lambda: program(p), wrong_samplers.pairs_target(p)))  # noqa: B023


@pytest.mark.parametrize("sampler", wrong_speculation.WRONG, ids=lambda f: f.__name__)
def test_wrong_speculation_is_found(sampler):
    assert shown(judge(all_contracts()["speculative"], sampler))

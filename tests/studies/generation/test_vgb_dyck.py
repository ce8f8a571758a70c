"""The judge of VGB on brackets: what it compares, by hand."""

from dataclasses import replace

import pytest

from triptych.core.estimates import Status
from triptych.studies.api.study import Rows
from triptych.studies.generation.vgb_dyck.judge import (
    OTHERS,
    SEVERAL,
    WALK,
    at_largest_budgets,
    judge_trade_off,
    rows_of,
)
from triptych.studies.generation.vgb_dyck.rows import Sampled


def walks(rows):
    return [row for row in rows if isinstance(row, Sampled) and row.algorithm == WALK]


def test_the_largest_budget_of_each_algorithm_counts():
    rows = rows_of()
    less = [replace(row, budget=4, accuracy=0.0) for row in rows if isinstance(row, Sampled)]
    more = [replace(row, budget=16, accuracy=0.9) for row in walks(rows)]
    found = at_largest_budgets([*more, *walks(rows), *less])
    assert {(name, row.budget) for (name, _), row in found.items() if name == WALK} == {(WALK, 16)}
    verdict = judge_trade_off(Rows([*rows, *less, *more]))
    assert verdict.checks[0].value == pytest.approx(60.0)  # 0.9 and 0.3 without a verifier


def test_differences_and_quotients_by_hand():
    """80 % right with 30 questions; best of n: 55 % with 72, in all networks alike."""
    checks = judge_trade_off(Rows(rows_of())).checks
    right, questions = checks[: len(OTHERS)], checks[len(OTHERS) : len(OTHERS) + len(SEVERAL)]
    assert [check.value for check in right] == pytest.approx([50, 30, 40, 45, 25, 35])
    assert [check.value for check in questions] == pytest.approx([30 / 45, 30 / 72, 30 / 72])
    # Questions 30 and 7.5, divided by 72: the geometric mean is 15 / 72.
    rows = [
        replace(row, generator_calls=7.5) if row.seed % 2 and row.algorithm == WALK else row
        for row in rows_of()
        if isinstance(row, Sampled)
    ]
    assert judge_trade_off(Rows(rows)).checks[7].value == pytest.approx(15 / 72)


def test_two_networks_or_a_missing_algorithm_decide_nothing():
    verdict = judge_trade_off(Rows(rows_of(networks=2)))
    assert verdict.outcome is Status.UNDECIDED
    assert verdict.missing == ("trained networks: 2 of 8",)
    some = [row for row in rows_of() if isinstance(row, Sampled) and row.algorithm != "rejection"]
    verdict = judge_trade_off(Rows(some))
    assert verdict.outcome is Status.UNDECIDED
    assert verdict.missing == ("algorithms besides VGB: 5 of 6",)

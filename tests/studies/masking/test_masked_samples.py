"""The steps of the finite-sample bound: rows, judges, refusals."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

import pytest

from triptych.core.estimates import Status
from triptych.core.validation import UserError
from triptych.lab.running.workbench import WorkBench
from triptych.studies.api.refutation import unmet
from triptych.studies.api.study import Rows, Scale
from triptych.studies.masking.masked_samples import judge, study
from triptych.studies.masking.masked_samples import rows as facts
from triptych.studies.masking.masked_samples.study import STUDY, MaskedSamples

pytestmark = pytest.mark.numerical
RowT = TypeVar("RowT")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    units = STUDY.units(STUDY.settings[Scale.SMOKE])
    return [row for unit in units for row in STUDY.run(unit, WorkBench(unit.seed, "cpu", folder))]


def of(rows: Iterable[facts.Row], kind: type[RowT]) -> list[RowT]:
    return [row for row in rows if isinstance(row, kind)]


@pytest.mark.parametrize("claim", STUDY.claims, ids=lambda claim: claim.id)
def test_judges_meet_the_demands(claim):
    assert not unmet(claim)


def test_rows_say_what_the_lemmas_say(rows):
    assert all(row.error < 1e-14 for row in of(rows, facts.Averaged))
    looking = [row for row in of(rows, facts.Averaged) if row.law == "ones 1.5"]
    assert all(row.moved > 0.1 for row in looking), "the mask matters, and the mean undoes it"
    assert all(0 <= row.least <= row.most <= 1 + 1e-12 for row in of(rows, facts.Bounded))
    assert all(row.most == pytest.approx(1) for row in of(rows, facts.Bounded)), "a point mass"
    assert all(row.chance <= 1 and row.telling for row in of(rows, facts.MaskBound))
    assert {row.statement for row in of(rows, facts.MaskBound)} == {
        facts.LEMMA,
        facts.POINT,
        facts.UNIFORM,
    }
    assert all(0 < row.chance < 1 for row in of(rows, facts.EmpiricalLaw) if row.outcomes == 2)


def test_a_bound_that_is_too_small_would_be_refuted(monkeypatch):
    """The corollary with a ten-thousandth of its bound: missed more often than with δ."""
    (unit,) = [u for u in STUDY.units(STUDY.settings[Scale.SMOKE]) if isinstance(u, study.Masks)]
    whole = study.concentration.corollary_bound
    monkeypatch.setattr(
        study.concentration, "corollary_bound", lambda *a, **sizes: whole(*a, **sizes) / 10_000
    )
    found = [row for row in of(study._masks(unit), facts.MaskBound) if row.statement == facts.POINT]
    assert all(row.chance > 1 for row in found)
    verdict = judge.judge_point(Rows([replace(row, model=name) for row in found for name in "ab"]))
    assert verdict.outcome is Status.FAILS


def test_a_judge_looks_at_its_own_statement(rows):
    """The bound of one statement is missed: the judges of the two others do not see it."""
    masks = of(rows, facts.MaskBound)
    judges = {
        facts.LEMMA: judge.judge_lemma,
        facts.POINT: judge.judge_point,
        facts.UNIFORM: judge.judge_uniform,
    }
    for spoiled in judges:
        changed = [replace(r, chance=2.0) if r.statement == spoiled else r for r in masks]
        for statement, says in judges.items():
            failed = says(Rows(changed)).outcome is Status.FAILS
            assert failed is (statement == spoiled)


def test_settings_that_cannot_be_are_explained():
    with pytest.raises(UserError, match="alphabets at least 2"):
        study.units(MaskedSamples(alphabets=(1,)))

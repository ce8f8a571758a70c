"""The study `unmasking`: its claims, a unit of each kind, plans and lists by hand."""

import math
from dataclasses import replace

import pytest

from triptych.core.estimates import Status
from triptych.lab.running.workbench import WorkBench
from triptych.studies.api.study import Rows, Scale
from triptych.studies.masking.unmasking.rows import Bounded, Lists, Planned, Sampled
from triptych.studies.masking.unmasking.study import STUDY, OneLaw, OneList, lists, run, truth

CLAIMS = {claim.id: claim for claim in STUDY.claims}


@pytest.mark.parametrize("name", CLAIMS)
def test_judges(name):
    claim = CLAIMS[name]
    assert claim.verdict(claim.held_by).outcome is Status.HOLDS
    assert claim.verdict([]).outcome is Status.UNDECIDED
    for rows in claim.refuted_by:
        assert claim.verdict(rows).outcome is Status.FAILS


def test_lists_by_hand():
    """Two items: AB or BA. All at once each of AA, AB, BA, BB has ¼: half are right; log 2 lost."""
    rows = {row.task: row for row in lists(2)}
    assert rows["shuffle"].lost == pytest.approx(math.log(2))
    assert rows["shuffle"].right == pytest.approx(0.5)
    assert rows["replace"].lost == pytest.approx(math.log(2))
    assert rows["copy"].lost == 0
    for row in rows.values():
        assert row.lost == pytest.approx(row.formula, abs=1e-12)
        assert row.right == pytest.approx(row.right_formula, abs=1e-12)


def test_a_law_and_its_samplers(tmp_path):
    unit = OneLaw("translation", 3, ("random order", "confidence"), (0.0, 5.0), 50, seed=0)
    rows = Rows(list(run(unit, WorkBench(0, "cpu", tmp_path))))
    by_way = {(row.way, row.rounds): row for row in rows.of(Sampled)}
    assert by_way["random order", 3].tv == pytest.approx(0, abs=1e-12)
    assert by_way["random order", 1].tv == pytest.approx(by_way["confidence", 1].tv)
    assert by_way["confidence", 3].tv > 0.01
    assert by_way["random order", 2].passes == 2
    one, *_, last = rows.of(Planned)
    assert one.sets == one.sizes == one.even == pytest.approx(by_way["random order", 1].kl)
    assert last.sets == last.even == pytest.approx(0, abs=1e-9)
    exact, loose = rows.of(Bounded)
    assert exact.kl == pytest.approx(0, abs=1e-12)
    assert loose.passes == 1


def test_figures_and_scales(tmp_path):
    rows = Rows(
        [*run(OneLaw("hmm", 3, ("confidence",), (), 5, seed=0), WorkBench(0, "cpu", tmp_path))]
    )
    for draw in STUDY.figures:
        assert draw(rows).panels
    for scale in Scale:
        found = STUDY.units(STUDY.settings[scale])
        assert {type(unit) for unit in found} == {OneLaw, OneList}
    shorter = replace(STUDY.settings[Scale.LAPTOP], structures=("dyck",))
    assert sum(isinstance(unit, OneLaw) for unit in STUDY.units(shorter)) == 1
    assert truth("dyck", 9, 0).length == 4
    assert isinstance(next(iter(lists(3))), Lists)

"""Training meets inference: rows by hand and by other ways, and what the figures say."""

import math

import pytest
import torch

from triptych.core.table import Table
from triptych.lab.results.plots import to_svg
from triptych.lab.running.workbench import WorkBench
from triptych.structures.ising import Ising
from triptych.studies.api.figures import Panel
from triptych.studies.api.study import Rows, Scale
from triptych.studies.masking import training_meets_inference as meeting
from triptych.studies.masking.shared.models import FIELD, law_named
from triptych.studies.masking.training_meets_inference import MaskLawCosts, worst_ratio
from triptych.theory.masking import information as masking
from triptych.theory.masking.blocks.dynamics import BlockDynamics
from triptych.theory.masking.families import IsingFamily


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    bench = WorkBench(0, "cpu", tmp_path_factory.mktemp("cache"))
    settings = meeting.STUDY.settings[Scale.SMOKE]
    return Rows(row for unit in meeting.units(settings) for row in meeting.run(unit, bench))


def of(rows, graph, pull, law):
    (row,) = [r for r in rows if (r.graph, r.pull, r.law) == (graph, pull, law)]
    return row


def test_worked_neighbours():
    assert meeting.neighbours("chain 8") == 2
    assert meeting.neighbours("grid 2 4") == 3
    assert meeting.neighbours("grid 3 3") == 4
    assert meeting.neighbours("clique 8") == 7
    assert meeting.neighbours("chain 2") == 1


def test_free_spins_by_hand(rows):
    """Four free spins: C = 4 and 2 for blocks of one and two, met in the direction of a field."""
    for law, constant in (("size 1", 4.0), ("size 2", 2.0)):
        row = of(rows, "chain 4", 0.0, law)
        assert row.poincare == pytest.approx(constant)
        assert row.worst_ratio == pytest.approx(constant)


def test_a_row_by_other_ways(rows):
    """Γ with the Hessian by differentiation, the matrix by its powers, one step at a time."""
    row = of(rows, "clique 4", 2.0, "ones 1.5")
    family = IsingFamily(Ising.clique_and_free(4, 4, 2 / 3, FIELD))
    masks = law_named("ones 1.5", 4)
    gamma = masking.asymptotic_covariance(family, masks)
    ratio = torch.linalg.eigvals(masking.fisher(family) @ gamma).real
    assert row.worst_ratio == pytest.approx(float(ratio.max()))
    wanted = gamma.trace() / torch.linalg.inv(masking.fisher(family)).trace()
    assert row.trace_ratio == pytest.approx(float(wanted))
    dynamics = BlockDynamics(Table.of(Ising.clique_and_free(4, 4, 2 / 3, FIELD)), masks)
    matrix, p = dynamics.transition(), dynamics.stationary
    now, steps = torch.eye(16, dtype=torch.float64), 0
    while 0.5 * (now - p).abs().sum(1).max() > 0.25:
        now, steps = now @ matrix, steps + 1
    assert row.mixing_time == steps
    values = torch.linalg.eigvals(matrix).real.sort().values
    assert row.poincare == pytest.approx(float(1 / (1 - values[-2])))
    assert row.smallest == pytest.approx(float(p.min()))


def test_both_costs_are_within_their_bounds(rows):
    assert len(rows) == 18
    for row in rows:
        assert row.worst_ratio <= row.poincare * (1 + 1e-9)
        assert 1 - 1e-9 <= row.trace_ratio <= row.worst_ratio * (1 + 1e-9)
        constant = row.poincare
        assert (constant - 1) * math.log(2) <= row.mixing_time
        assert row.mixing_time <= constant * math.log(4 / row.smallest)


def point(constant, value):
    return MaskLawCosts("chain 4", 0.0, "size 1", False, constant, value, 1.0, 1.0, 0.1)


def test_worked_summaries():
    assert meeting.share([point(4.0, 3.0), point(1.0, 1.0)], worst_ratio) == (0.75, 1.0)
    grown = [point(2.0, 1.0), point(5.0, 8.0), point(9.0, 9.0)]
    assert meeting.rank_correlation(grown, worst_ratio) == pytest.approx(1.0)
    # ranks 1, 2, 3 against 2, 3, 1: 1 - 6 · (1 + 1 + 4) / 24 = -½
    mixed = [point(2.0, 5.0), point(5.0, 8.0), point(9.0, 1.0)]
    assert meeting.rank_correlation(mixed, worst_ratio) == pytest.approx(-0.5)
    assert math.isnan(meeting.rank_correlation(grown[:2], worst_ratio))
    assert math.isnan(meeting.rank_correlation([point(2.0, 1.0)] * 3, worst_ratio))


def test_figures(rows):
    clique = meeting.clique_figure(rows)
    training, sampling, _ = clique.panels
    assert isinstance(training, Panel)
    assert isinstance(sampling, Panel)
    assert [series.label for series in training.series[1:]] == [
        "one position",
        "two positions",
        "masks that prefer ones",
    ]
    bound = training.series[0]
    assert bound.x == bound.y
    one = training.series[1]
    chosen = [r for r in rows if r.graph == "clique 4" and r.law == "size 1"]
    assert list(one.x) == [r.poincare for r in chosen]
    assert list(one.y) == [r.worst_ratio for r in chosen]
    assert list(sampling.series[2].y) == [r.mixing_time for r in chosen]
    for make in meeting.STUDY.figures:
        assert to_svg(make(rows)).startswith("<svg")
        assert to_svg(make(Rows())).startswith("<svg")
    assert not meeting.STUDY.claims


def test_units_are_graphs_and_pulls():
    found = meeting.units(meeting.Meeting(graphs=("chain 3",), pulls=(0.0, 1.0)))
    assert [unit.pull for unit in found] == [0.0, 1.0]
    assert found[0] == meeting.Measure("chain 3", 0.0, meeting.Meeting().laws, seed=0)

"""When a run has two stages: the change point by hand and by a fine grid."""

import numpy as np
import pytest

from triptych.core.estimates import Outcome
from triptych.core.randomness import TorchRng
from triptych.lab.plots import to_svg
from triptych.studies import two_stages as study
from triptych.studies.study import Scale, Unit
from triptych.studies.trained_topics import from_parameters, network, norms


class Bench:
    device = "cpu"

    def rng(self, purpose=""):
        return TorchRng(sum(map(ord, purpose)))

    def tensors(self, key, make):
        return make()


def curve(value, key, query=None, **changes):
    steps = [float(i) for i in range(len(value))]
    row = {
        "kind": "run",
        "loss": "squared",
        "optimiser": "adam",
        "learning_rate": 0.01,
        "init_scale": 0.001,
        "input_length": 1.0,
    }
    row |= {"seed": 0, "step": steps, "key": key, "query": query or key, "value": value}
    return row | changes


def test_the_worked_value():
    found = study.stages(curve([1.0, 10.0, 10.5, 11.0], [1.0, 1.0, 2.0, 3.0]))
    assert found.switch == pytest.approx(1.2)
    assert found.value_first == pytest.approx(0.91)
    assert found.slowdown == pytest.approx((0.9 / 1.8) / (9.1 / 1.2) / 1.0)
    assert found.two
    steady = study.stages(curve([0.0, 4.0, 8.0, 9.6], [1.0, 1.0, 1.0, 9.0]))
    assert steady.value_first == pytest.approx((8 + 0.16) / 9.6)
    assert steady.slowdown == pytest.approx((1.44 / 0.9) / (8.16 / 2.1))
    assert not steady.two  # most of its growth lies before, but it goes on


def test_the_first_of_keys_and_queries_starts_the_second_stage():
    value = [0.0, 1.0, 2.0, 3.0]
    late, early = [0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0]
    for key, query in ((late, early), (early, late)):
        found = study.stages(curve(value, key, query))
        assert found.switch == pytest.approx(0.1)
        assert found.value_first == pytest.approx(0.1 / 3)
    assert study.stages(curve(value, late)).switch == pytest.approx(2.1)


def test_what_does_not_grow_is_no_second_stage():
    still = study.stages(curve([1.0, 9.0, 9.0], [1.0, 1.0, 1.5]))
    assert not still.attention_grown
    assert not still.two
    constant = study.stages(curve([1.0, 9.0, 9.0], [1.0, 1.0, 1.0]))
    assert constant.switch == 2.0
    assert constant.value_first == 1.0
    assert not constant.two
    assert not study.stages(curve([5.0, 9.0, 9.0], [1.0, 1.0, 9.0])).two
    assert study.growth([3.0, 2.0, 1.0]) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("seed", range(5))
def test_change_points_on_random_curves(seed):
    """numpy's interpolation on a fine grid finds the same switch and share."""
    random = np.random.default_rng(seed)
    value, key, query = (np.cumsum(random.random(12)).tolist() for _ in range(3))
    found = study.stages(curve(value, key, query))
    fine = np.linspace(0, 11, 110_001)
    grown = [(np.array(x) - x[0]) / (max(x) - x[0]) for x in (value, key, query)]
    lines = [np.interp(fine, range(12), x) for x in grown]
    first = int(np.argmax((lines[1] >= 0.1) | (lines[2] >= 0.1)))
    assert found.switch == pytest.approx(fine[first], abs=2e-4)
    assert found.value_first == pytest.approx(lines[0][first], abs=2e-3)


def test_all_runs_of_a_setting_must_agree():
    (claim,) = study.STUDY.claims
    good = curve([1.0, 10.0, 10.5, 11.0], [1.0, 1.0, 2.0, 3.0])
    bad = curve([1.0, 2.0, 3.0, 11.0], [1.0, 1.0, 2.0, 3.0], seed=1)
    assert claim.judge([good, good | {"seed": 1}]).outcome is Outcome.HOLDS
    assert claim.judge([good, bad]).outcome is Outcome.UNDECIDED
    assert claim.judge([good]).outcome is Outcome.UNDECIDED
    elsewhere = good | {"seed": 1, "init_scale": 0.5}
    assert claim.judge([good, elsewhere]).outcome is Outcome.UNDECIDED
    verdict = claim.judge([good, good | {"seed": 1}])
    assert verdict.measured["switch"] == pytest.approx([1.2, 1.2])
    assert verdict.measured["value_first"] == {
        "squared loss + Adam 0.01 from 0.001": pytest.approx(0.91)
    }


def test_one_run_of_a_setting_is_not_enough_and_not_nothing():
    (claim,) = study.STUDY.claims
    bad = claim.refuted_by[0]
    good = curve([1.0, 10.0, 10.5, 11.0], [1.0, 1.0, 2.0, 3.0], learning_rate=0.5)
    other = curve([1.0, 2.0, 3.0, 11.0], [1.0, 1.0, 2.0, 3.0], learning_rate=0.5)
    verdict = claim.judge([*bad, good, other])
    assert verdict.outcome is Outcome.UNDECIDED
    assert "1 of 2 runs, 91.0% and " in verdict.because
    assert claim.judge(bad).outcome is Outcome.FAILS


def test_inputs_of_another_length_are_another_setting():
    rows = [curve([1.0, 2.0], [1.0, 2.0], input_length=length) for length in (1.0, 10.0)]
    assert [len(some) for some in study.by_setting(rows).values()] == [1, 1]
    names = [study.name_of(key) for key in study.by_setting(rows)]
    assert names[1] == names[0] + ", inputs of length 10"


def test_units_are_a_grid():
    settings = study.TwoStages(seeds=2)
    units = study.units(settings)
    assert len(units) == 4 * 2 * 3 * 2 * 2
    assert {unit.seed for unit in units} == {1, 2}
    lengths = sorted({unit.parameters["input_length"] for unit in units})
    assert lengths == pytest.approx([1.0, 101**0.5])
    assert {unit.parameters["optimiser"] for unit in units} == {"adam", "sgd"}
    assert all(unit.parameters["attention"] and unit.parameters["value"] for unit in units)


def test_curves_begin_before_the_first_step():
    unit = study.units(study.STUDY.settings[Scale.SMOKE])[0]
    (row,) = study.run(unit, Bench())
    assert row["step"] == [float(i) for i in range(51)]
    first = norms(network(*from_parameters(unit.parameters), unit.seed))
    assert {name: row[name][0] for name in study.MATRICES} == pytest.approx(first)
    assert row["value"][-1] > row["value"][0]
    assert len(row["key"]) == len(row["query"]) == len(row["value"]) == 51


def test_a_run_that_diverges_says_so():
    unit = study.units(study.STUDY.settings[Scale.SMOKE])[0]
    wild = Unit({**unit.parameters, "loss": "squared", "optimiser": "sgd", "learning_rate": 1e6}, 0)
    (row,) = study.run(wild, Bench())
    assert row["kind"] == "diverged"
    (claim,) = study.STUDY.claims
    assert claim.judge([row, row]).outcome is Outcome.UNDECIDED


def test_figures():
    good = curve([1.0, 10.0, 10.5, 11.0], [1.0, 1.0, 2.0, 3.0])
    bad = curve([1.0, 2.0, 3.0, 11.0], [1.0, 1.0, 2.0, 3.0], init_scale=0.1)
    still = curve([1.0, 9.0, 9.0, 9.0], [1.0, 1.0, 1.0, 1.0], learning_rate=0.1)
    for figure in study.STUDY.figures:
        assert to_svg(figure([])).startswith("<svg")
        assert to_svg(figure([good, bad, still])).startswith("<svg")
    (table,) = study.map_figure([good, bad, still]).panels
    assert table.values[0][0] == pytest.approx(0.91)
    assert np.isnan(table.values[0][1])
    assert [panel.title[:11] for panel in study.curves_figure([bad, good]).panels] == [
        "the clearest: Adam"[:11],
        "the least clear"[:11],
    ]

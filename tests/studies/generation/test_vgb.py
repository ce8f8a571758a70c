"""The studies of VGB's walk: their tasks, what their rows are, what their judges need."""

import math
from dataclasses import replace

import pytest
import torch

from triptych.core.divergences import total_variation
from triptych.core.estimates import Status
from triptych.core.table import all_sequences
from triptych.core.validation import UserError
from triptych.inference.guided import tokenwise
from triptych.lab.running.workbench import WorkBench
from triptych.studies.api.figures import Panel
from triptych.studies.api.study import Rows
from triptych.studies.generation import vgb_errors, vgb_walk
from triptych.studies.generation.shared import vgb_tasks as vgb_tasks
from triptych.verifiers.exact import ExactValue

DRIFT = vgb_errors.STUDY.claims[0]
STATIONARY, MIXING = vgb_walk.STUDY.claims


def test_the_tasks():
    table, outcome = vgb_tasks.task("few ones", 2, 0)
    target = table.tilt(outcome.log_value).as_dict()
    assert target == pytest.approx({(0, 0): 4 / 9, (0, 1): 2 / 9, (1, 0): 2 / 9, (1, 1): 1 / 9})
    table, outcome = vgb_tasks.task("three letters", 2, 3)
    assert table.vocab_size == 3
    tilt = outcome.log_value(table.sequences)
    assert ((tilt > -3) & (tilt <= 0)).all()
    assert len(tilt.unique()) == 9
    value = vgb_tasks.off_by(1.0, table, outcome, 3)
    exact = ExactValue(table, outcome)
    every = all_sequences(3, 1)
    factor = (value.log_value(every) - exact.log_value(every)).abs()
    torch.testing.assert_close(factor, torch.full((3,), math.log(2), dtype=torch.float64))
    assert torch.equal(value.log_value(table.sequences), exact.log_value(table.sequences))
    assert vgb_tasks.slope([(0.0, 1.0), (1.0, 2.0), (2.0, 6.0)]) == pytest.approx(2.5)


def test_tokenwise_rejection_one_token_late(tmp_path):
    """Bits without guidance but for the last: TV to ⅓-coins is that of the bits before it."""
    settings = vgb_errors.VgbErrors(seeds=1, heights=(2, 3, 4), sampled=0)
    late = vgb_errors.units(settings)[-1]
    for row in vgb_errors.run(late, WorkBench(0, "cpu", tmp_path)):
        n = row.height - 1
        wanted = 0.5 * sum(
            math.comb(n, k) * abs(0.5**n - (1 / 3) ** k * (2 / 3) ** (n - k)) for k in range(n + 1)
        )
        assert row.error == vgb_errors.LATE
        assert row.tokenwise == pytest.approx(wanted)
        assert row.walk_stationary < 1e-12
        assert row.walk_last < row.walk_first < row.tokenwise
        assert row.sampled is None


def test_rows_of_the_errors_study_are_the_laws(tmp_path):
    settings = vgb_errors.VgbErrors(
        seeds=1, heights=(3,), epsilons=(0.5,), tasks=("random",), sampled=0
    )
    unit = vgb_errors.units(settings)[0]
    (row,) = vgb_errors.run(unit, WorkBench(0, "cpu", tmp_path))
    table, outcome = vgb_tasks.task("random", 3, 0)
    value = vgb_tasks.off_by(0.5, table, outcome, 0)
    target = table.tilt(outcome.log_value).log_probs
    law = tokenwise.law(table, value, accept="value").log_probs
    assert row.tokenwise == pytest.approx(float(total_variation(law, target)))
    assert row.error == "ε = 0.5"


def walked(task, seed, height, time, epsilon=0.0):
    row = replace(STATIONARY.held_by[0], task=task, seed=seed, height=height, epsilon=epsilon)
    return replace(row, mixing_time=float(time))


def mixing_time(row):
    return row.mixing_time


def test_exponents():
    rows = [walked("a", 0, h, 3.0 * h**2) for h in (2, 4, 6, 8)]
    rows[0] = replace(rows[0], mixing_time=1e9)  # too low a tree to count
    assert vgb_walk.exponents(rows, mixing_time) == pytest.approx([2.0])
    assert vgb_walk.exponents(rows[:3], mixing_time) == []


def test_a_task_without_chance_counts_in_every_seed():
    """Exponent 1 for the path; 2 and 3 for the random tables of two seeds: trials 3/2 and 2."""
    powers = {("all zeros", 0): 1, ("random", 0): 2, ("random", 1): 3}
    rows = [
        walked(name, seed, h, h**power) for (name, seed), power in powers.items() for h in (4, 6, 8)
    ]
    assert vgb_walk.exponents(rows, mixing_time) == pytest.approx([1.5, 2.0])
    wrong = [replace(row, epsilon=0.3) for row in rows]  # now the path is random; seed 1 lacks it
    assert vgb_walk.exponents(wrong, mixing_time) == pytest.approx([1.5])


def test_a_seed_is_one_trial():
    found = {("a", 0): 1.0, ("b", 0): 3.0, ("a", 1): 2.0, ("b", 1): 6.0}
    assert vgb_tasks.trials(found) == [2.0, 4.0]
    assert vgb_tasks.trials(found | {("a", 2): 7.0}) == [2.0, 4.0]
    assert vgb_tasks.trials({}) == []


def test_more_tasks_make_no_interval_narrower():
    """The same rows under a second name are no new evidence."""
    drift = [replace(row, tokenwise=row.tokenwise * (1 + row.seed)) for row in DRIFT.held_by]
    speed = [
        replace(row, epsilon=0.3, mixing_time=1.0 * row.height ** (2 + row.seed / 9))
        for row in MIXING.held_by
        if row.task == "random" and row.epsilon == 0
    ]
    for claim, rows in ((DRIFT, drift), (MIXING, speed)):
        again = [replace(row, task=row.task + ", again") for row in rows]
        once, twice = (claim.verdict(found).checks for found in (rows, [*rows, *again]))
        spread = [check for check in once if check.low is not None and check.low < check.value]
        assert spread
        for check in spread:
            same = next(other for other in twice if other.sentence == check.sentence)
            assert (same.low, same.high) == pytest.approx((check.low, check.high))


def test_sequential_monte_carlo_is_shown_as_sampled():
    """The samples' own distance, and that of exact samples as a line of its own."""
    two = [row for row in DRIFT.held_by if row.seed < 2]
    rows = [replace(row, sampled=0.3 + 0.1 * row.seed, floor=0.2) for row in two]
    (panel,) = vgb_errors.errors_figure(Rows(rows)).panels
    assert isinstance(panel, Panel)
    shown = {series.label: series for series in panel.series}
    samples = shown["sequential Monte Carlo, samples"]
    assert samples.y == pytest.approx((0.35,) * 3)
    reach = 12.706 * 0.1 / 2  # t of one degree of freedom, two seeds: √2 · 0.05 / √2
    assert samples.low == pytest.approx((max(0.0, 0.35 - reach),) * 3)
    assert samples.high == pytest.approx((0.35 + reach,) * 3, rel=1e-3)
    assert shown["as many samples of the target"].y == pytest.approx((0.2,) * 3)


def test_one_seed_decides_nothing():
    for claim in (MIXING, DRIFT):
        one = [row for row in claim.held_by if row.seed == 0]
        assert claim.verdict(one).outcome is Status.UNDECIDED


def test_low_trees_decide_nothing():
    low = [row for row in MIXING.held_by if row.height < 10]
    assert MIXING.verdict(low).outcome is Status.UNDECIDED
    (row,) = STATIONARY.held_by
    assert (
        STATIONARY.verdict([replace(row, height=6, leaf_mass=1 / 12)]).outcome is Status.UNDECIDED
    )


def test_a_matrix_of_another_walk_decides_nothing():
    (row,) = STATIONARY.held_by
    for error in (None, 0.01):
        assert STATIONARY.verdict([replace(row, matrix_error=error)]).outcome is Status.UNDECIDED


def test_a_wide_spread_decides_nothing_about_drift():
    rows = list(DRIFT.held_by)
    uneven = [
        replace(row, tokenwise=row.tokenwise * (20 if i < 6 else 1)) for i, row in enumerate(rows)
    ]
    assert DRIFT.verdict(uneven).outcome is Status.UNDECIDED
    for column in ("walk_last", "walk_uniform"):
        unclear = [
            replace(row, **{column: getattr(row, column) + (0.02 * row.height if i < 6 else 0)})
            for i, row in enumerate(rows)
        ]
        assert DRIFT.verdict(unclear).outcome is Status.UNDECIDED


@pytest.mark.parametrize(
    ("study", "settings"),
    [
        (vgb_walk, vgb_walk.VgbWalk(tasks=("none",))),
        (vgb_walk, vgb_walk.VgbWalk(heights=(0, 2))),
        (vgb_errors, vgb_errors.VgbErrors(epsilons=(0.0,))),
    ],
)
def test_settings_that_make_no_sense_are_refused(study, settings):
    with pytest.raises(UserError, match="at least"):
        study.units(settings)

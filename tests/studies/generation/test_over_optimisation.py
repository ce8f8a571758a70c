"""The wrong values of the study, by hand, and its rows against the walk."""

import math
from dataclasses import replace

import pytest
import torch

from triptych.core.streams import hashed_uniform
from triptych.core.validation import UserError
from triptych.lab.running.workbench import WorkBench
from triptych.studies.generation import over_optimisation as study
from triptych.studies.generation.shared.vgb_tasks import task
from triptych.theory.generation import walks
from triptych.verifiers.exact import ExactValue

SETTINGS = study.OverOptimised(seeds=1, length=4, n=(1, 8), particles=(1, 2), steps=(4,))


def unit(error):
    return next(each for each in study.units(SETTINGS) if each.error == error)


def said(error):
    table, outcome = task("random", 4, unit(error).seed)
    wrong = study.wrong_outcome(unit(error), table, outcome)
    right = outcome.log_value(table.sequences).exp()
    return table, wrong, right, wrong.log_value(table.sequences).exp()


def test_errors_by_hand():
    """u is the hash; what is added is u times 0.2, and 0.05 (1/(1 - u) - 1)."""
    table, _, right, clean = said(study.NONE)
    assert torch.equal(clean, right)
    u = hashed_uniform(study.NOISE + unit(study.BOUNDED).seed, table.sequences)
    assert said(study.BOUNDED)[3] == pytest.approx(right + 0.2 * u)
    assert said(study.HEAVY)[3] == pytest.approx(right + 0.05 * u / (1 - u))


def test_one_string_in_fifty_fools_the_value():
    _, _, right, wrong = said(study.FOOLED)
    fooled = wrong != right
    assert int(fooled.sum()) == 1  # of 16, at least one
    assert float(wrong[fooled][0]) == pytest.approx(1.5 * float(right.max()))


def test_rows_are_of_the_laws(tmp_path):
    rows = [*study.run(unit(study.FOOLED), WorkBench(0, "cpu", tmp_path))]
    table, wrong, right, _ = said(study.FOOLED)
    (limits,) = [row for row in rows if isinstance(row, study.Limits) and row.length == 4]
    (walked,) = [row for row in rows if isinstance(row, study.Bought) and row.law == "VGB"]
    walk = walks.Walk.of(table, ExactValue(table, wrong))
    law = walks.given_leaf(walk, walks.after(walk, 64)).log_probs.exp()
    assert walked.n == 64
    assert walked.right == pytest.approx(float(law @ right))
    assert limits.epsilon > 0
    assert {row.law for row in rows if isinstance(row, study.Bought) and row.length == 3} == {
        "best of n",
        "particles",
    }
    assert math.isfinite(limits.tilted_kl)


def test_settings_that_make_no_sense():
    for changes in ({"errors": ("none",)}, {"share": 1.0}, {"tail": 0.0}):
        with pytest.raises(UserError, match="errors are"):
            study.units(replace(SETTINGS, **changes))

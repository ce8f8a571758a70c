"""Lemma C.9 by hand, the programme over all heads, and its judge."""

import pytest
import torch

from triptych.core.estimates import Status
from triptych.core.validation import UserError
from triptych.lab.running.workbench import WorkBench
from triptych.studies.api.refutation import unmet
from triptych.studies.api.study import Rows, Scale
from triptych.studies.tuning import attended_positions
from triptych.studies.tuning.attended_positions import STUDY, AttendedPositions
from triptych.theory.tuning import attended_sets, memory_prompts

pytestmark = pytest.mark.numerical


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def bools(*rows):
    return torch.tensor(rows, dtype=torch.bool)


def test_two_inputs_that_no_head_tells_apart():
    """LaKaB and LaKaA: Î is {2, 4} and {4}, the prompt makes it {2, 4} in both, and G_2 = G_4 is
    (⅝, ⅜, 0, …) in both: value 0 has the weight ¾ by the other a, ¾·¾ + ¼·¼ = ⅝."""
    case = attended_sets.worked_case()
    assert memory_prompts.conditions(case.model, case.cell, case.task).hold
    tokens = torch.tensor(attended_sets.WORKED_INPUTS)
    probs, wanted, attended = attended_sets.prompted_sets(case, tokens)
    assert [row.nonzero()[:, 0].tolist() for row in wanted] == [[2, 4], [4]]
    assert [row.nonzero()[:, 0].tolist() for row in attended] == [[2, 4], [2, 4]]
    certain = f64([5 / 8, 3 / 8, 0, 0, 0, 0])
    torch.testing.assert_close(probs[:, [2, 4]], certain.expand(2, 2, 6), atol=1e-15, rtol=0)
    assert attended_sets.attended_margin(probs, wanted) < 1e-12
    assert attended_sets.attended_margin(probs, attended) > 1
    for row in range(2):  # each input alone is no obstacle
        one = slice(row, row + 1)
        assert attended_sets.attended_margin(probs[one], wanted[one]) > 0.1


def test_the_largest_margin_by_hand():
    """a = (1, -1), c = (1, -1) score 2 and -2. With equal laws the positions alone tell: 1 and -1.
    If the wanted position changes and the laws do not, nothing tells."""
    two = f64([[[1, 0], [0, 1]]])
    same = f64([[[1, 0], [1, 0]]])
    assert attended_sets.attended_margin(two, bools([True, False])) == pytest.approx(4.0)
    assert attended_sets.attended_margin(same, bools([True, False])) == pytest.approx(2.0)
    both = torch.cat([same, same])
    assert attended_sets.attended_margin(both, bools([True, False], [False, True])) < 1e-12
    swapped = torch.cat([two, two.flip(1)])  # the laws tell, the positions cannot
    wanted = bools([True, False], [False, True])
    assert attended_sets.attended_margin(swapped, wanted) == pytest.approx(2.0)
    nothing = bools([False, False])
    assert attended_sets.attended_margin(two, nothing) == attended_sets.attended_margin(
        two, ~nothing
    )


def test_the_head_of_the_proof_attends_to_what_the_prompt_makes_certain():
    """On every short string of the worked model: I is attended by the head of Theorem C.6."""
    case = attended_sets.worked_case()
    model, cell, task = case
    tokens = torch.cartesian_prod(*[torch.arange(6)] * 4)
    kept = torch.tensor(
        [len(attended_sets.prompted_sets(case, row[None])[1]) > 0 for row in tokens[::7]]
    )
    chosen = tokens[::7][kept]
    probs, _, attended = attended_sets.prompted_sets(case, chosen)
    head = memory_prompts.witness(model, cell, task, 4).head
    assert len(chosen) > 20
    assert torch.equal(head.attention(probs) > 0, attended)


def test_rows_and_the_judge(tmp_path):
    (claim,) = STUDY.claims
    assert not unmet(claim)
    units = STUDY.units(STUDY.settings[Scale.SMOKE])
    rows = [row for unit in units for row in STUDY.run(unit, WorkBench(unit.seed, "cpu", tmp_path))]
    hand = rows[0]
    assert (hand.model, hand.conditions_hold) == ("by hand", True)
    assert hand.larger > 0
    assert hand.margin < 1e-12
    assert claim.verdict(Rows([hand])).outcome is Status.FAILS, "one counterexample is enough"
    with pytest.raises(UserError, match="values at least 2"):
        attended_positions.units(AttendedPositions(values=(1,)))

"""The claims that open the report, and those of a lecture."""

from dataclasses import replace

import pytest

from triptych.core.validation import UserError
from triptych.lab.results.chosen import ChosenClaim, choose, figure_of, load_chosen
from triptych.lab.results.ledger import load_ledger
from triptych.lab.results.ranking import ClaimFinding, NotDrawn, StudyRun, judge_ledger
from triptych.studies.api.figures import Figure

LEDGER = load_ledger()
JUDGED = judge_ledger(LEDGER, [])


def test_chosen_claims_are_published_results():
    chosen = load_chosen()
    assert {each.id for each in chosen} <= {entry.id for entry in LEDGER}
    assert {each.id.split(".")[0] for each in chosen} == {"wei", "li"}
    assert all(each.figure and each.why.endswith(".") for each in chosen)


def test_a_lecturer_chooses():
    prepared = load_chosen()[0]
    found = choose([prepared.id, "li.fig-4.2", prepared.id], JUDGED)
    assert found == [prepared, ChosenClaim("li.fig-4.2")]
    with pytest.raises(UserError, match="there is no claim 'nothing'"):
        choose(["nothing"], JUDGED)


def test_the_figure_that_is_named_or_the_first_one():
    figures = (NotDrawn("a", "x"), Figure("b", "B", ()), Figure("c", "C", ()))
    run = StudyRun("s", "?", "laptop", {}, [], [], figures=figures)
    other = replace(run, scale="paper", bundled=True, figures=figures[:1])
    finding = ClaimFinding("s", "laptop", False, "holds")
    assert figure_of(ChosenClaim("x", "c"), finding, [other, run]) == (run, 2)
    assert figure_of(ChosenClaim("x"), finding, [other, run]) == (run, 1)
    assert figure_of(ChosenClaim("x", "a"), finding, [run]) == (run, 1)  # what cannot be drawn
    assert figure_of(ChosenClaim("x"), ClaimFinding("s", "paper", True, "holds"), [other]) is None
    assert figure_of(ChosenClaim("x"), None, [run]) is None

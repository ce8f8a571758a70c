"""`triptych paper`: the plan, and a run that stops when the minutes are over."""

from dataclasses import replace

import pytest
from tests.support import toy_studies
from tests.support.command_line import run

from triptych.core.estimates import Status
from triptych.lab.cli.paper import parts, plan_lines
from triptych.lab.results import evidence, gathering, paper_plan
from triptych.lab.results.ledger import Entry
from triptych.lab.results.paper_plan import PlannedStudy
from triptych.lab.running import discovery, expected_costs
from triptych.lab.running.expected_costs import ExpectedCost
from triptych.lab.running.plan import Plan
from triptych.lab.running.store import Store
from triptych.studies.api.decide import Verdict
from triptych.studies.api.study import Claim, Scale

SETTINGS = {Scale.PAPER: toy_studies.ToySettings(seeds=2, units=3)}
CLAIM = Claim("toy.claim", lambda rows: Verdict(Status.HOLDS), [[]])
TOY = replace(toy_studies.STUDY, name="toy", settings=SETTINGS, claims=[CLAIM])
PLAN = Plan.of(TOY, Scale.PAPER)


@pytest.fixture
def _toy_alone(monkeypatch):
    """One study, one result, no bundled rows; a unit costs 10 s."""
    costs = {"toy": ExpectedCost(1.0, 1.0, 10.0, "cpu")}
    for module in (gathering, discovery):
        monkeypatch.setattr(module, "find_studies", lambda: {"toy": TOY})
    scope = {"laptop": "as published", "paper": "as published"}
    entry = Entry("toy.claim", "direction", "A toy", "li:3", scope=scope)
    monkeypatch.setattr(gathering, "load_ledger", lambda: [entry])
    monkeypatch.setattr(evidence, "folder", lambda: None)
    for module in (paper_plan, expected_costs):
        monkeypatch.setattr(module, "expected_costs", lambda: costs)


def paper(folder, *arguments):
    return run("paper", "--out", str(folder), "--workers", "0", "--device", "cpu", *arguments)


@pytest.mark.usefixtures("_toy_alone")
def test_it_plans_runs_and_goes_on(tmp_path):
    planned = paper(tmp_path / "runs", "--minutes", "0.5", "--plan")
    assert planned.exit_code == 0
    assert "toy: 3 of 6 missing units, about 30 s on cpu; decides toy.claim" in planned.stdout
    assert "0 of 1 published results have a verdict from the largest run" in planned.stdout
    assert "; 0 of 6 units, 0%" in planned.stdout
    assert not (tmp_path / "runs").exists()
    paper(tmp_path / "runs", "--minutes", "0.5")
    with Store.read(tmp_path / "runs") as store:
        done = [unit.seed for unit in store.units("toy", Scale.PAPER) if unit.status == "done"]
    assert done == [0, 0, 0]  # the first seed of every setting
    again = paper(tmp_path / "runs", "--minutes", "1")
    assert "toy: 3 of 3 missing units" in again.stdout
    nothing = paper(tmp_path / "runs", "--minutes", "1")
    assert "Nothing that is missing fits into 1 minutes." in nothing.stdout
    assert "6 of 6 units, 100%" in nothing.stdout


@pytest.mark.usefixtures("_toy_alone")
def test_its_device_is_checked_before_a_unit_runs(tmp_path):
    """A GPU that is not there does not matter to studies that run on the cores."""
    odd = run("paper", "--minutes", "1", "--device", "mps", "--out", str(tmp_path))
    assert odd.exit_code == 2
    assert "--device is 'mps'" in odd.stderr
    assert not list(tmp_path.iterdir())
    without = ["--minutes", "0.5", "--device", "cuda:99", "--workers", "0", "--out", str(tmp_path)]
    assert "Traceback" not in run("paper", *without).output
    with Store.read(tmp_path) as store:
        assert {unit.device for unit in store.units("toy", Scale.PAPER)} == {"cpu", None}


def test_no_time_is_a_sentence(tmp_path):
    done = run("paper", "--minutes", "0", "--plan", "--out", str(tmp_path))
    assert done.exit_code == 2
    assert "a plan needs a positive number of minutes" in done.stderr


def test_parts_of_a_minute():
    each = PlannedStudy(PLAN, (), tuple("abcdef"), 6, 6, 180.0, "cuda")  # 30 s a unit
    assert list(parts(each)) == [("a", "b"), ("c", "d"), ("e", "f")]
    assert next(parts(each._replace(seconds=6000.0))) == ("a",)


def test_a_plan_in_words():
    each = PlannedStudy(PLAN, (), ("a", "b"), 5, 6, 200.0, "cuda")
    assert plan_lines([each], 10.0) == [
        "The plan for 10 minutes, most decisive first:",
        "  toy: 2 of 5 missing units, about 3 min 20 s on cuda; decides nothing new: more "
        "seeds for verdicts that stand",
        "  in all about 3 min 20 s",
    ]

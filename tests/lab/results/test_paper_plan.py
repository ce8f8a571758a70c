"""What is run at the largest run in this many minutes, and what each result has at each scale."""

from dataclasses import replace

import pytest
from tests.support import toy_studies
from tests.support.refusals import refused

from triptych.lab.results import paper_plan as planning
from triptych.lab.results import scales
from triptych.lab.results.ledger import Entry
from triptych.lab.results.paper_plan import paper_plan, paper_plans
from triptych.lab.results.ranking import ClaimFinding, Judged
from triptych.lab.results.scales import AtScale, at_scale, paper_progress
from triptych.lab.running.expected_costs import ExpectedCost
from triptych.lab.running.plan import Plan
from triptych.studies.api.study import Scale


def study(name, units, seeds):
    """A toy study that plans all seeds of a setting before the next setting."""
    settings = toy_studies.ToySettings(seeds=seeds, units=units)

    def by_setting(given):
        return sorted(toy_studies.units(given), key=lambda unit: unit.number)

    return replace(toy_studies.STUDY, name=name, settings={Scale.PAPER: settings}, units=by_setting)


STUDIES = {
    "cheap": study("cheap", 2, 3),  # 6 units of 10 s on a core
    "dear": study("dear", 4, 5),  # 20 units of 100 s
    "many": study("many", 1, 4),  # 4 units of 50 s that decide two results
    "known": study("known", 1, 2),  # 2 units of 1 s; its result has a verdict
}
PLANS = paper_plans(STUDIES)
COSTS = {
    "cheap": ExpectedCost(1.0, 1.0, 10.0, "cpu"),
    "dear": ExpectedCost(1.0, 1.0, 100.0),
    "many": ExpectedCost(1.0, 1.0, 50.0),
    "known": ExpectedCost(1.0, 1.0, 1.0),
}
NONE_DONE = {name: set() for name in STUDIES}


def line(claim, study_name, *findings):
    status = findings[0].status if findings else "not run yet"
    return Judged(Entry(claim, "direction", "title", "li:3"), status, findings, study_name)


def finding(scale, status, done=0, planned=0, bundled=False):
    return ClaimFinding("s", scale, bundled, status, done=done, planned=planned)


JUDGED = [
    line("c", "cheap", finding("laptop", "holds", 3, 3)),
    line("d", "dear"),
    line("m1", "many", finding("paper", "undecided", 1, 4)),
    line("m2", "many"),
    line("k", "known", finding("paper", "holds", 1, 2)),
    line("nowhere", None),
]


@pytest.fixture(autouse=True)
def _costs(monkeypatch):
    monkeypatch.setattr(planning, "expected_costs", lambda: COSTS)
    monkeypatch.setattr(scales, "expected_costs", lambda: COSTS)


def names(plan):
    return [each.study.name for each in plan]


def test_the_cheapest_verdict_comes_first():
    """A verdict costs 30 s (cheap, 2 cores), 100 s (many, two results), 2000 s (dear)."""
    plan = paper_plan(60.0, JUDGED, PLANS, NONE_DONE, cores=2)
    assert names(plan) == ["cheap", "many", "dear", "known"]
    assert [each.seconds for each in plan] == [30, 200, 2000, 2]
    assert [each.open for each in plan] == [("c",), ("m1", "m2"), ("d",), ()]
    assert [len(each.units) for each in plan] == [6, 4, 20, 2]


def test_whole_studies_first_then_a_part_seed_by_seed():
    """In 10 minutes: 30 + 200 + 2 s of whole studies leave 368 s, 3 units of the dear one."""
    plan = paper_plan(10.0, JUDGED, PLANS, NONE_DONE, cores=2)
    assert names(plan) == ["cheap", "many", "dear", "known"]
    part = plan[2]
    assert (len(part.units), part.missing, part.total, part.seconds) == (3, 20, 20, 300)
    dear = STUDIES["dear"]
    first_seed = [u for u in dear.units(dear.settings[Scale.PAPER]) if u.seed == 0]
    assert set(part.units) <= {dear.key(unit) for unit in first_seed}
    assert sum(each.seconds for each in plan) <= 600


def test_what_has_rows_is_not_planned_again():
    cheap = STUDIES["cheap"]
    keys = [cheap.key(unit) for unit in cheap.units(cheap.settings[Scale.PAPER])]
    plan = paper_plan(60.0, JUDGED, PLANS, NONE_DONE | {"cheap": set(keys[:5])}, cores=2)
    assert plan[0].units == (keys[5],)
    assert (plan[0].missing, plan[0].total, plan[0].seconds) == (1, 6, 10)
    plan = paper_plan(60.0, JUDGED, PLANS, NONE_DONE | {"cheap": set(keys)}, cores=2)
    assert "cheap" not in names(plan)


def test_little_time_and_none():
    assert names(paper_plan(0.1, JUDGED, PLANS, NONE_DONE, cores=2)) == ["known"]
    assert paper_plan(0.01, JUDGED, PLANS, NONE_DONE, cores=2) == []
    for minutes in (0.0, -1.0, float("nan"), float("inf")):
        with refused("minutes"):
            paper_plan(minutes, JUDGED, PLANS, NONE_DONE)


def test_a_result_at_each_scale():
    both = {
        Scale.LAPTOP: toy_studies.ToySettings(units=3),
        Scale.PAPER: toy_studies.ToySettings(units=7),
    }
    two = replace(STUDIES["cheap"], settings=both)
    laptop, paper = Plan.of(two, Scale.LAPTOP), Plan.of(two, Scale.PAPER)
    assert at_scale(JUDGED[0], laptop) == AtScale("holds", 3, 3)
    assert at_scale(JUDGED[0], paper) == AtScale("not run yet", 0, 7)
    assert at_scale(JUDGED[0], laptop).decided
    assert not at_scale(JUDGED[0], paper).decided
    bundled = line("c", "cheap", finding("paper", "fails", 2, 7, True), finding("paper", "holds"))
    assert at_scale(bundled, paper) == AtScale("fails", 2, 7, True)
    other = replace(finding("paper", "fails", 4, 4, True), changed=True)
    assert at_scale(line("c", "cheap", other), paper) == AtScale("fails", 0, 7, True)
    beside = line("c", "cheap", other, finding("paper", "undecided", 2, 7))
    assert at_scale(beside, paper) == AtScale("fails", 2, 7, True)
    runs = line("c", "cheap", finding("smoke", "code runs", 1, 1))
    assert at_scale(runs, laptop).status == "not run yet"


def test_how_much_of_the_paper_plan_is_done():
    """1 of 4 units of 50 s and 1 of 2 units of 1 s, of 60 + 2000 + 200 + 2 s."""
    progress = paper_progress(JUDGED, PLANS)
    assert (progress.done, progress.units) == (2, 6 + 20 + 4 + 2)
    assert progress.share == pytest.approx(51 / 2262)
    assert (progress.decided, progress.results) == (1, 5)

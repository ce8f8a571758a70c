"""What studies are expected to cost, and the order that follows."""

import dataclasses

from triptych.lab.results.ledger import load_ledger
from triptych.lab.running.discovery import find_studies
from triptych.lab.running.expected_costs import expected_costs, expected_seconds
from triptych.lab.running.plan import Plan
from triptych.lab.running.selection import ChosenStudy, early_verdicts_first, published_studies
from triptych.studies.api.study import Scale

LAPTOP = Scale.LAPTOP


def test_every_study_has_an_expected_cost():
    """A new study needs a few lines in expected_costs.toml, and an old one has none there."""
    assert set(expected_costs()) == set(find_studies())
    for cost in expected_costs().values():
        assert min(cost.smoke, cost.laptop, cost.paper) > 0
        assert cost.paper_device in ("cpu", "cuda")


def test_the_cost_of_units_is_their_sum():
    study = find_studies()["exact_heads"]
    cost = expected_costs()["exact_heads"]
    plan = Plan.of(study, LAPTOP)
    assert expected_seconds(plan, 3) == 3 * cost.laptop
    assert expected_seconds(plan) == len(plan.units) * cost.laptop
    assert expected_seconds(Plan.of(study, Scale.PAPER), 2) == 2 * cost.paper
    assert expected_seconds(Plan.of(dataclasses.replace(study, name="mine"), LAPTOP), 3) is None


def plans_of(chosen):
    return {each.study.name: Plan.of(each.study, LAPTOP) for each in chosen}


def in_order(beyond=False):
    """What `triptych reproduce` runs, with the plans."""
    chosen, _ = published_studies(beyond=beyond)
    plans = plans_of(chosen)
    return early_verdicts_first(chosen, plans), plans


def test_cheap_verdicts_come_first():
    published = {entry.id for entry in load_ledger() if not entry.extension}
    chosen, plans = in_order(beyond=True)
    claims = [sum(claim.id in published for claim in each.study.claims) for each in chosen]
    seconds = [expected_seconds(plans[each.study.name]) for each in chosen]
    deciding = sum(count > 0 for count in claims)
    assert 0 < deciding < len(chosen)
    assert all(claims[:deciding])
    each = [cost / count for cost, count in zip(seconds, claims[:deciding], strict=False)]
    assert each == sorted(each)
    assert seconds[deciding:] == sorted(seconds[deciding:])


def test_what_nobody_has_timed_comes_last():
    study = find_studies()["exact_heads"]
    chosen = [ChosenStudy(dataclasses.replace(study, name="mine")), ChosenStudy(study)]
    assert early_verdicts_first(chosen, plans_of(chosen)) == chosen[::-1]


def test_a_plan_gives_forty_verdicts_in_five_minutes_on_two_cores():
    """The first within 30 s; by what studies are expected to cost."""
    published = {entry.id for entry in load_ledger() if not entry.extension}
    waited, verdicts, first = 0.0, 0, None
    chosen, plans = in_order()
    for each in chosen:
        waited += expected_seconds(plans[each.study.name]) / 2
        first = waited if first is None else first
        if waited <= 300:
            verdicts += sum(claim.id in published for claim in each.study.claims)
    assert first < 30
    assert verdicts >= 40


def test_published_results_and_what_goes_beyond():
    published = {entry.id for entry in load_ledger() if not entry.extension}
    chosen, others = published_studies()
    assert {"exact_gap", "who_wins", "head_importance"} <= set(others)
    assert all(any(c.id in published for c in each.study.claims) for each in chosen)
    everything, none = published_studies(beyond=True)
    assert in_order(beyond=True)[0][: len(chosen)] == in_order()[0]
    assert none == []
    assert {each.study.name for each in everything} == set(find_studies())

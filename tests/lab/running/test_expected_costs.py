"""What studies are expected to cost, and the order that follows."""

import dataclasses

from triptych.lab.results.ledger import load_ledger
from triptych.lab.running.discovery import find_studies
from triptych.lab.running.expected_costs import cheapest_first, expected_costs, expected_seconds
from triptych.lab.running.selection import published_studies
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
    assert expected_seconds(study, LAPTOP, 3) == 3 * cost.laptop
    assert expected_seconds(study, Scale.PAPER, 2) == 2 * cost.paper
    assert expected_seconds(dataclasses.replace(study, name="mine"), LAPTOP, 3) is None


def test_cheap_studies_come_first():
    studies = list(find_studies().values())
    costs = [
        expected_seconds(study, LAPTOP, len(study.units(study.settings[LAPTOP])))
        for study in cheapest_first(studies, LAPTOP)
    ]
    assert costs == sorted(costs)
    unknown = dataclasses.replace(studies[0], name="mine")
    assert cheapest_first([unknown, *studies], LAPTOP)[-1] is unknown


def test_a_plan_gives_forty_verdicts_in_five_minutes_on_two_cores():
    """The first within 30 s; by what studies are expected to cost."""
    published = {entry.id for entry in load_ledger() if not entry.extension}
    waited, verdicts, first = 0.0, 0, None
    for each in published_studies(LAPTOP)[0]:
        units = len(each.study.units(each.study.settings[LAPTOP]))
        waited += expected_seconds(each.study, LAPTOP, units) / 2
        first = waited if first is None else first
        if waited <= 300:
            verdicts += sum(claim.id in published for claim in each.study.claims)
    assert first < 30
    assert verdicts >= 40


def test_published_results_and_what_goes_beyond():
    published = {entry.id for entry in load_ledger() if not entry.extension}
    chosen, others = published_studies(LAPTOP)
    assert {"exact_gap", "who_wins", "vgb_dyck", "head_importance"} <= set(others)
    assert all(any(c.id in published for c in each.study.claims) for each in chosen)
    everything, none = published_studies(LAPTOP, beyond=True)
    assert everything[: len(chosen)] == chosen
    assert none == []
    assert {each.study.name for each in everything} == set(find_studies())

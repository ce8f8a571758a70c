"""Units are planned once: in the parent of a run, in each worker, and for each file of evidence."""

import dataclasses
import json
import random
from collections import Counter

import pytest
import torch
import typer
from tests.support import toy_studies

from triptych.core.validation import UserError
from triptych.lab.cli import running
from triptych.lab.results import evidence
from triptych.lab.running import plan as planning
from triptych.lab.running import worker
from triptych.lab.running.discovery import find_studies
from triptych.lab.running.items import WorkItem
from triptych.lab.running.plan import Plan
from triptych.studies.api.records import to_json
from triptych.studies.api.study import Scale

SMOKE, LAPTOP = Scale.SMOKE, Scale.LAPTOP
TOY = toy_studies.STUDY


@pytest.fixture
def counts(monkeypatch):
    """How often units were planned, and how often one got its name."""
    seen, name_of = Counter(), planning.unit_key

    def counted(*given):
        seen["names"] += 1
        return name_of(*given)

    monkeypatch.setattr(planning, "unit_key", counted)
    monkeypatch.setattr("triptych.studies.api.study.unit_key", counted)
    return seen


def counting(study, counts):
    """The study, with a count of its plannings."""

    def units(settings):
        counts["plannings"] += 1
        return study.units(settings)

    return dataclasses.replace(study, units=units)


def test_a_plan_has_the_units_under_their_names():
    plan = Plan.of(TOY, LAPTOP, {"units": "3"}, seeds=4)
    assert (plan.settings.units, plan.settings.seeds) == (3, 4)
    assert list(plan.by_key.values()) == list(TOY.units(plan.settings))
    assert [unit.key for unit in plan.units] == list(plan.by_key)
    for unit in plan.units:
        own = plan.by_key[unit.key]
        assert unit.key == TOY.key(own)
        assert (unit.parameters, unit.seed) == (TOY.parameters(own), own.seed)
    assert plan.keys(TOY.revision) == list(plan.by_key)
    assert plan.keys(7) == [TOY.key(own, 7) for own in plan.by_key.values()]


@pytest.mark.parametrize(
    ("sentence", "given"),
    [
        ("no field 'unit'; did you mean 'units'", {"overrides": {"unit": "3"}}),
        ("units is 'many'; it must be int", {"overrides": {"units": "many"}}),
        (r"no scale paper \(it has: smoke, laptop\)", {"scale": Scale.PAPER}),
        ("at least 1", {"seeds": 0}),
    ],
)
def test_what_cannot_be_planned_is_a_sentence(sentence, given):
    with pytest.raises(UserError, match=sentence):
        Plan.of(**{"study": TOY, "scale": SMOKE, **given})


@pytest.mark.parametrize("names", [["toy/plain"], []], ids=["named", "all"])
def test_a_run_plans_once_in_the_parent(tmp_path, monkeypatch, counts, names):
    """Selection, costs, the question about older rows, the run, the engine and the report."""
    toy = counting(TOY, counts)
    monkeypatch.setattr("triptych.lab.running.selection.find_studies", lambda: {toy.name: toy})
    monkeypatch.setattr("triptych.lab.results.gathering.find_studies", lambda: {toy.name: toy})
    monkeypatch.setattr(evidence, "folder", lambda: None)
    scale, engine = running.ScaleName.smoke, running.EngineName.local
    options = running.RunOptions(scale, None, "cpu", engine, None, 0, None, False, False)
    for _ in range(2):  # also when everything is done already
        counts.clear()
        with pytest.raises(typer.Exit):
            running.run_studies(names, options, tmp_path, as_json=True)
        assert counts == {"plannings": 1, "names": 6}


def items(study, source):
    plan = Plan.of(study, SMOKE)
    text = json.dumps(to_json(plan.settings))
    return [WorkItem(source, u.key, text, "smoke", u.seed, "cpu", ".") for u in plan.units]


def test_a_worker_plans_once(monkeypatch, counts):
    todo = items(TOY, "toy")
    monkeypatch.setattr(worker, "load_study", lambda _: counting(TOY, counts))
    worker._plan.cache_clear()
    counts.clear()
    for item in todo:
        assert worker.run_item(item).error is None
    assert counts == {"plannings": 1, "names": 6}
    worker._plan.cache_clear()


def test_rows_do_not_tell_which_unit_a_worker_planned_with(monkeypatch):
    """A study whose `units` draws from the global generators, which its `run` uses too."""

    def units(settings):
        torch.rand(3), random.random()
        return TOY.units(settings)

    todo = items(TOY, "drawing")
    monkeypatch.setattr(worker, "load_study", lambda _: dataclasses.replace(TOY, units=units))
    rows = []
    for order in (todo, todo[::-1]):
        worker._plan.cache_clear()
        before = torch.get_rng_state(), random.getstate()
        found = {item.key: worker.run_item(item).rows for item in order}
        assert torch.equal(torch.get_rng_state(), before[0])
        assert random.getstate() == before[1]
        rows.append(found)
    worker._plan.cache_clear()
    assert rows[0] == rows[1]


def test_a_unit_that_a_worker_does_not_plan_is_an_error_of_the_unit(monkeypatch):
    todo = items(TOY, "other")
    monkeypatch.setattr(worker, "load_study", lambda _: dataclasses.replace(TOY, revision=2))
    worker._plan.cache_clear()
    assert "plans other units here" in worker.run_item(todo[0]).error
    worker._plan.cache_clear()


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_file_of_evidence_is_laid_over_one_plan(counts):
    """A second one where it has settings of its own; names of earlier revisions come on top."""
    studies = find_studies()
    for path in evidence.files(evidence.folder()):
        found = evidence.load(path)
        study = counting(studies[found.study], counts)
        own = len(Plan.of(study, found.scale).units)
        counts.clear()
        layout = evidence.laid_out(found, study)
        labelled = evidence.called(path) != evidence.file_name(found.study, found.scale)
        assert counts["plannings"] == 1 + labelled, path.name
        units = own + len(layout.units) if labelled else own
        revisions = {unit.revision for unit in found.units} | {study.revision}
        assert counts["names"] == units * len(revisions), path.name

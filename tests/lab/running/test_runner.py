"""A run does what is missing, and its rows do not depend on how it was run."""

import json
from dataclasses import dataclass, replace

import numpy
import pytest
import torch
from tests.support import gpus, toy_studies

from triptych.core.files import FolderInUse
from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.lab.running.environment import environment
from triptych.lab.running.plan import Plan
from triptych.lab.running.progress import Quiet
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.lab.running.workbench import WorkBench
from triptych.studies.api.study import Scale

SMOKE = Scale.SMOKE


def rows_of(folder, study=toy_studies.STUDY, scale=SMOKE, **options):
    with Store.open(folder) as store:
        summary = run_study(Plan.of(study, scale), store=store, **options)
        assert summary.failed == 0
        return json.dumps(store.rows(study.name, scale))


def test_rows_do_not_depend_on_the_number_of_workers(tmp_path):
    scale = Scale.LAPTOP
    here = rows_of(tmp_path / "0", scale=scale, workers=0)
    assert here == rows_of(tmp_path / "1", scale=scale, workers=1)
    assert here == rows_of(tmp_path / "2", scale=scale, workers=2)
    rows = json.loads(here)
    assert [(row["seed"], row["number"], row["part"]) for row in rows] == [
        (seed, number, part) for seed in range(2) for number in range(6) for part in range(2)
    ]
    assert {row["threads"] for row in rows} == {1}
    assert len({row["share"] for row in rows}) == 2, "the draws depend on the seed"


def test_a_unit_leaves_the_callers_generators_alone(store):
    torch.manual_seed(3)
    numpy.random.seed(3)
    expected = torch.rand(1), numpy.random.rand()
    torch.manual_seed(3)
    numpy.random.seed(3)
    run_study(Plan.of(toy_studies.STUDY, SMOKE), store=store, workers=0)
    assert (torch.rand(1), numpy.random.rand()) == expected


def test_a_second_run_does_what_is_missing(store):
    study = toy_studies.STUDY
    first = run_study(Plan.of(study, SMOKE), store=store, workers=0)
    assert first[:3] == (6, 0, 0)
    stamps = [unit.finished_at for unit in store.units(study.name, SMOKE)]
    assert run_study(Plan.of(study, SMOKE), store=store, workers=0)[:3] == (0, 0, 6)
    more = run_study(Plan.of(study, SMOKE, seeds=2), store=store, workers=0)
    assert more[:3] == (6, 0, 6)
    units = store.units(study.name, SMOKE)
    assert [unit.finished_at for unit in units[:6]] == stamps
    assert [unit.settings["seeds"] for unit in units] == [1] * 6 + [2] * 6
    assert {unit.versions["torch"] for unit in units} == {torch.__version__}
    assert {unit.device for unit in units} == {"cpu"}


def test_settings_decide_the_units(store):
    study = toy_studies.STUDY
    options = {"units": "2", "sizes": "[3, 5]"}
    assert run_study(Plan.of(study, SMOKE, options), store=store, workers=0).done == 4
    assert {unit.parameters["size"] for unit in store.units(study.name, SMOKE)} == {3, 5}
    run_study(Plan.of(study, SMOKE), store=store, workers=0)
    assert len(store.units(study.name, SMOKE)) == 6
    assert len(store.units(study.name, SMOKE, outdated=True)) == 10


def test_what_cannot_work_is_refused_at_once(store):
    def refused(match, study=toy_studies.STUDY, **options):
        with pytest.raises(UserError, match=match):
            run_study(Plan.of(study, SMOKE), store=store, **options)

    refused("workers = -1", workers=-1)
    refused("leaves no time", limit_s=0.0)
    refused("needs worker processes", limit_s=1.0, workers=0)
    refused("pip install no_such_module", study=toy_studies.NEEDY)
    for device in ("mps", "meta", "cpu:3", "cuda:-1", "cuda:99"):
        refused(f"device is '{device}'", device=device)
    refused("device is 'mps'", device="mps", engine="ray", workers=1)
    assert store.studies() == []


@dataclass(frozen=True)
class Where:
    device: str


def on_its_device(unit, bench):
    """A unit that computes on its device where its number is even, and else on the CPU alone."""
    yield Where(bench.device if unit.number % 2 == 0 else "cpu")


@pytest.mark.no_gpu
def test_the_device_of_a_unit_is_where_it_computed(store, monkeypatch):
    gpus.pretend(monkeypatch, 2)
    study = replace(toy_studies.STUDY, run=on_its_device, rows=(Where,))

    def run_on(device):
        plan = Plan.of(study, SMOKE)
        run_study(plan, store=store, workers=0, device=device, old_rows="keep")
        units = store.units(study.name, SMOKE)
        store.reset(units)
        return [unit.rows[0]["device"] for unit in units][:2], [unit.device for unit in units][:2]

    assert run_on("cuda") == (["cuda", "cpu"], ["cpu", "cpu"]), "nothing was put on the GPU"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert run_on("cuda") == (["cuda", "cpu"], ["cuda:0", "cpu"])
    assert run_on("cuda:1") == (["cuda:1", "cpu"], ["cuda:1", "cpu"])
    assert run_on("cpu") == (["cpu", "cpu"], ["cpu", "cpu"])


@pytest.mark.parametrize("use", [lambda bench: bench.rng("a"), lambda bench: bench.device])
def test_a_bench_knows_whether_its_device_was_used(tmp_path, monkeypatch, use):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr("triptych.lab.running.workbench.TorchRng", lambda *_: TorchRng(0))
    bench = WorkBench(0, "cuda:1", tmp_path)
    assert bench.used_device == "cpu"
    use(bench)
    assert bench.used_device == "cuda:1"


def test_the_version_of_torch_says_its_build(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.11.0+cu130")
    assert environment()["torch"] == "2.11.0+cu130"


def test_two_runs_in_one_folder(store):
    """The second is started while the first one runs, and the first finishes."""
    said = []

    class Meddler(Quiet):
        def started(self, unit):
            with Store.open(store.folder) as other, pytest.raises(FolderInUse) as info:
                run_study(Plan.of(toy_studies.STUDY, SMOKE), store=other, workers=0)
            said.append(str(info.value))

    summary = run_study(
        Plan.of(toy_studies.STUDY, SMOKE), store=store, workers=0, progress=Meddler()
    )
    assert summary[:3] == (6, 0, 0)
    assert len(said) == 6
    assert "another run is using this folder (pid " in said[0]
    assert run_study(Plan.of(toy_studies.STUDY, SMOKE), store=store, workers=0).skipped == 6

"""A run does what is missing, and its rows do not depend on how it was run."""

import dataclasses
import importlib.util
import io
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest
import torch
from safetensors.torch import load_file
from tests.support import toy_studies

from triptych.core.validation import UserError
from triptych.lab.running.discovery import find_studies, load_study, source_of
from triptych.lab.running.lock import FolderInUse
from triptych.lab.running.progress import Bar, Lines, Quiet, duration, progress_on
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.lab.running.workbench import WorkBench, derived_seed
from triptych.studies.api.study import Scale, unit_text

SMOKE = Scale.SMOKE
TOYS = Path(toy_studies.__file__)


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "run") as opened:
        yield opened


def rows_of(folder, study=toy_studies.STUDY, scale=SMOKE, **options):
    with Store.open(folder) as store:
        summary = run_study(study, scale, store=store, **options)
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
    run_study(toy_studies.STUDY, SMOKE, store=store, workers=0)
    assert (torch.rand(1), numpy.random.rand()) == expected


def test_a_second_run_does_what_is_missing(store):
    study = toy_studies.STUDY
    first = run_study(study, SMOKE, store=store, workers=0)
    assert first[:3] == (6, 0, 0)
    stamps = [unit.finished_at for unit in store.units(study.name, SMOKE)]
    assert run_study(study, SMOKE, store=store, workers=0)[:3] == (0, 0, 6)
    more = run_study(study, SMOKE, store=store, workers=0, seeds=2)
    assert more[:3] == (6, 0, 6)
    units = store.units(study.name, SMOKE)
    assert [unit.finished_at for unit in units[:6]] == stamps
    assert [unit.settings["seeds"] for unit in units] == [1] * 6 + [2] * 6
    assert {unit.versions["torch"] for unit in units} == {torch.__version__}
    assert {unit.device for unit in units} == {"cpu"}


def test_settings_decide_the_units(store):
    study = toy_studies.STUDY
    options = {"units": "2", "sizes": "[3, 5]"}
    assert run_study(study, SMOKE, store=store, workers=0, overrides=options).done == 4
    assert {unit.parameters["size"] for unit in store.units(study.name, SMOKE)} == {3, 5}
    run_study(study, SMOKE, store=store, workers=0)
    assert len(store.units(study.name, SMOKE)) == 6
    assert len(store.units(study.name, SMOKE, outdated=True)) == 10


def test_what_cannot_work_is_refused_at_once(store):
    def refused(match, study=toy_studies.STUDY, scale=SMOKE, **options):
        with pytest.raises(UserError, match=match):
            run_study(study, scale, store=store, **options)

    refused("no field 'unit'; did you mean 'units'", overrides={"unit": "3"})
    refused("units is 'many'; it must be int", overrides={"units": "many"})
    refused(r"no scale paper \(it has: smoke, laptop\)", scale=Scale.PAPER)
    refused("at least 1", seeds=0)
    refused("workers = -1", workers=-1)
    refused("leaves no time", limit_s=0.0)
    refused("needs worker processes", limit_s=1.0, workers=0)
    refused("pip install no_such_module", study=toy_studies.NEEDY)
    if not torch.cuda.is_available():
        refused("torch sees no GPU", device="cuda")
    assert store.studies() == []


def test_two_runs_in_one_folder(store):
    """The second is started while the first one runs, and the first finishes."""
    said = []

    class Meddler(Quiet):
        def started(self, unit):
            with Store.open(store.folder) as other, pytest.raises(FolderInUse) as info:
                run_study(toy_studies.STUDY, SMOKE, store=other, workers=0)
            said.append(str(info.value))

    summary = run_study(toy_studies.STUDY, SMOKE, store=store, workers=0, progress=Meddler())
    assert summary[:3] == (6, 0, 0)
    assert len(said) == 6
    assert "another run is using this folder (pid " in said[0]
    assert run_study(toy_studies.STUDY, SMOKE, store=store, workers=0).skipped == 6


def test_studies_are_found_by_name(tmp_path):
    assert all(name == study.name for name, study in find_studies().items())
    assert load_study("tests.support.toy_studies") is toy_studies.STUDY
    assert load_study("tests.support.toy_studies:FAULTY") is toy_studies.FAULTY
    assert source_of(toy_studies.BUSY) == "tests.support.toy_studies:BUSY"
    loaded = load_study(f"{TOYS}:BUSY")
    assert loaded is not toy_studies.BUSY
    assert source_of(loaded) == f"{TOYS.resolve()}:BUSY"
    with pytest.raises(UserError, match="there is no file"):
        load_study(tmp_path / "nothing.py")
    with pytest.raises(UserError, match="there is no module nothing_here"):
        load_study("nothing_here")
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(UserError, match=r"it needs a line STUDY = Study\(...\)"):
        load_study(tmp_path / "empty.py")
    with pytest.raises(UserError, match="cannot be found by another process"):
        source_of(dataclasses.replace(toy_studies.STUDY, name="toy/nameless"))


OWN = """
from dataclasses import dataclass
from triptych.studies.api.study import Scale, Settings, Study, Unit

@dataclass(frozen=True)
class Count(Unit):
    number: int

@dataclass(frozen=True)
class Counted:
    number: int
    units: int

def units(settings):
    return [Count(number, seed=0) for number in range(3)]

def run(unit, bench):
    import sizes_of_mine
    yield Counted(unit.number, sizes_of_mine.UNITS)

STUDY = Study("mine", "How many?", {Scale.SMOKE: Settings()}, units, run, (Counted,))
"""


def test_a_users_own_file_may_import_what_lies_beside_it(tmp_path):
    (tmp_path / "sizes_of_mine.py").write_text("UNITS = 3\n")
    (tmp_path / "mine.py").write_text(OWN)
    rows = json.loads(rows_of(tmp_path / "run", study=load_study(tmp_path / "mine.py"), workers=1))
    assert rows == [{"kind": "Counted", "number": number, "units": 3} for number in range(3)]


def bench(folder, seed=1):
    return WorkBench(seed, "cpu", folder / "cache")


def test_randomness_depends_on_seed_and_purpose_alone(tmp_path):
    uniform = torch.full((64, 4), 0.25).log()

    def draw(seed, purpose):
        return bench(tmp_path, seed).rng(purpose).categorical(uniform).tolist()

    assert draw(1, "data") == draw(1, "data")
    assert len({tuple(draw(seed, purpose)) for seed in (1, 2) for purpose in ("", "data")}) == 4
    assert derived_seed(1, "data") == 5253447530577038805  # the same on every machine


def test_tensors_are_made_once(tmp_path):
    made = []

    def make():
        made.append(1)
        matrix = torch.arange(6.0).reshape(2, 3)
        return {
            "turned": matrix.T,
            "same": matrix,
            "half": torch.ones(2, dtype=torch.bfloat16),
            "scalar": torch.tensor(2),
            "empty": torch.empty(0, 3),
        }

    first = bench(tmp_path).tensors({"b": [1, 2], "a": None}, make)
    second = bench(tmp_path, seed=5).tensors({"a": None, "b": [1, 2]}, make)
    assert len(made) == 1
    assert first.keys() == second.keys() == make().keys()
    for name, tensor in make().items():
        assert torch.equal(first[name], tensor)
        assert torch.equal(second[name], tensor)
        assert second[name].dtype == tensor.dtype
    (file,) = (tmp_path / "cache").glob("*.safetensors")
    assert torch.equal(load_file(file)["scalar"], torch.tensor(2))
    assert json.loads(file.with_suffix(".json").read_text())["key"] == {"a": None, "b": [1, 2]}
    assert bench(tmp_path).tensors({"b": [2, 1]}, lambda: {"x": torch.ones(1)}).keys() == {"x"}
    with pytest.raises(TypeError, match="'x' is a float: only tensors"):
        bench(tmp_path).tensors({"c": 1}, lambda: {"x": 1.0})


@pytest.mark.parametrize("spoil", ["cut", "flipped", "garbage", "empty"])
def test_a_damaged_cache_is_made_again(tmp_path, capfd, spoil):
    def make():
        return {"weight": torch.arange(100.0)}

    bench(tmp_path).tensors({"a": 1}, make)
    (file,) = (tmp_path / "cache").glob("*.safetensors")
    content = file.read_bytes()
    flipped = content[:-50] + bytes([content[-50] ^ 1]) + content[-49:]
    file.write_bytes(
        {"cut": content[:-9], "flipped": flipped, "garbage": b"x" * 99, "empty": b""}[spoil]
    )
    (tmp_path / "cache" / f"{file.name}abc.part").write_bytes(b"left by a killed process")
    assert torch.equal(bench(tmp_path).tensors({"a": 1}, make)["weight"], torch.arange(100.0))
    assert "is damaged" in capfd.readouterr().err
    assert file.read_bytes() == content
    assert not list((tmp_path / "cache").glob("*.part"))


def test_workers_that_need_the_same_tensor_make_it_once(store):
    study = toy_studies.SHARING
    assert run_study(study, SMOKE, store=store, workers=2).done == 4
    rows = store.rows(study.name, SMOKE)
    assert sum(row["made"] for row in rows) == 1
    assert {row["sum"] for row in rows} == {6.0}


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path, capfd, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    kept = bench(tmp_path).tensors({"a": 1}, lambda: {"x": torch.ones(2)})
    assert torch.equal(kept["x"], torch.ones(2))
    assert "could not be kept" in capfd.readouterr().err


def test_plain_lines_when_nobody_watches(store):
    stream = io.StringIO()
    show = progress_on(stream)
    assert isinstance(show, Lines)
    assert isinstance(progress_on(stream, quiet=True), Quiet)
    run_study(toy_studies.STUDY, SMOKE, store=store, workers=0, progress=show)
    first, *lines = stream.getvalue().splitlines()
    assert first == "toy/plain: 6 units to run"
    assert len(lines) == 6
    assert lines[0].startswith("toy/plain: [1/6] number 0, seed 0: ")
    assert lines[0].endswith(" s, done")
    stream.truncate(0)
    show.ended(unit_text({"x": 1}, 2), 3.0, "Traceback\nValueError: no")
    assert "x=1, seed=2: 3.0 s, FAILED: ValueError: no" in stream.getvalue()


def test_a_bar_on_a_terminal(store):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    show = progress_on(stream)
    assert isinstance(show, Bar)
    show.begin("toy/[plain]", 2, 1, 1)
    show.ended("unit", 1.0, None)
    show.ended("[unit]", 1.0, "ValueError: [no]")
    show.end()
    assert "toy/[plain]" in stream.getvalue()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert "3/3 (1 failed)" in plain
    assert "failed [unit]: ValueError: [no]" in plain
    run_study(toy_studies.STUDY, SMOKE, store=store, workers=0, progress=show)


def test_durations_for_people():
    assert [duration(s) for s in (0.0213, 1.25, 59.0, 200.0, 7500.0)] == [
        "0.021 s",
        "1.2 s",
        "59 s",
        "3 min 20 s",
        "2 h 5 min",
    ]


def test_without_ray_the_error_says_what_to_install(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'triptych\[ray\]'"):
        run_study(toy_studies.STUDY, SMOKE, store=store, engine="ray")
    units = store.units("toy/plain", SMOKE)
    assert {unit.status for unit in units} == {"pending"}


RAY = """
import json, sys
from pathlib import Path
from triptych.lab.running.discovery import load_study
from triptych.lab.running.runner import run_study
from triptych.lab.running.store import Store
from triptych.studies.api.study import Scale
toys, folder = sys.argv[1:]
with Store.open(Path(folder)) as store:
    plain, faulty = load_study(toys), load_study(toys + ":FAULTY")
    # Once on a cluster that the engine starts itself, once on one that is there.
    run_study(plain, Scale.LAPTOP, store=store, engine="ray", workers=2)
    import ray
    assert not ray.is_initialized()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    run_study(faulty, Scale.SMOKE, store=store, engine="ray", limit_s=2.0)
    assert ray.is_initialized()
    ray.shutdown()
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_ray_gives_the_same_rows(tmp_path):
    """In a process of its own: Ray leaves threads and warnings behind."""
    subprocess.run(
        [sys.executable, "-c", RAY, str(TOYS), str(tmp_path / "ray")],
        check=True,
        timeout=600,
        capture_output=True,
    )
    expected = rows_of(tmp_path / "0", scale=Scale.LAPTOP, workers=0)
    with Store.open(tmp_path / "ray") as store:
        assert json.dumps(store.rows("toy/plain", Scale.LAPTOP)) == expected
        units = {unit.parameters["fault"]: unit for unit in store.units("toy/faulty", SMOKE)}
    done = {fault for fault, unit in units.items() if unit.status == "done"}
    assert done == {"none", "none ", "nan"}
    assert "ArithmeticError: the numbers do not add up" in units["raises"].error
    assert units["hangs"].error == "exceeded its limit of 2 s"
    for fault in ("killed", "exits"):  # a worker that ends is lost, whoever ended it
        assert units[fault].error.startswith("worker died")
        assert units[fault].error.endswith(
            "tried 3 times; its worker or machine was lost each time"
        )


@pytest.mark.slow
def test_two_workers_give_nearly_twice_the_throughput(tmp_path):
    """≥ 1.7 times one worker on 40 units. The best of three each: the machine may be shared."""
    rows_of(tmp_path / "warm", workers=2)  # the fork server is up

    def seconds(name, workers):
        with Store.open(tmp_path / name) as store:
            return run_study(toy_studies.BUSY, SMOKE, store=store, workers=workers).seconds

    times = [(seconds(f"one {i}", 1), seconds(f"two {i}", 2)) for i in range(3)]
    one, two = (min(column) for column in zip(*times, strict=True))
    print(f"1 worker {one:.2f} s, 2 workers {two:.2f} s: {one / two:.2f} times")
    assert one / two >= 1.7


@pytest.mark.slow
def test_the_labs_own_cost_is_small(tmp_path):
    """Under 5 % of a unit that takes a second: 50 ms of everything that is not the unit."""
    rows_of(tmp_path / "warm", workers=1)
    with Store.open(tmp_path / "run") as store:
        started = time.perf_counter()
        run_study(toy_studies.SLOW, SMOKE, store=store, workers=1, overrides={"units": "50"})
        wall = time.perf_counter() - started
        inside = sum(unit.seconds or 0 for unit in store.units("toy/slow", SMOKE))
    overhead = (wall - inside) / 50
    print(f"{1000 * overhead:.1f} ms per unit")
    assert overhead < 0.05

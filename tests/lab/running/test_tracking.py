"""Numbers of units while they run: written where the run says so, read back by other readers."""

import csv
import math

import pytest
import torch
from tests.support.command_line import OWN_STUDY, run_own
from tests.support.refusals import refused

from triptych.core.errors import UserError
from triptych.lab.running import tracking
from triptych.lab.running.store import Store
from triptych.lab.running.workbench import WorkBench
from triptych.studies.api.study import Bench, Scale

TRACKING = OWN_STUDY.replace(
    "def run(unit, bench):\n",
    "def run(unit, bench):\n"
    "    for step in range(3):\n"
    "        bench.track(step, loss=1 / (1 + step) + unit.seed, kl=0.5)\n"
    "    if FAILS: raise ValueError('after three steps')\n",
).replace("@dataclass", "FAILS = False\n\n@dataclass", 1)

FITTING = """
from triptych.models.language_models import CausalLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.uniform import Uniform
from triptych.training.loop import fit
from triptych.training.objectives import next_token
from triptych.training.step import Recipe
"""


@pytest.fixture(autouse=True)
def nothing_bundled(monkeypatch):
    monkeypatch.setattr("triptych.lab.results.evidence.folder", lambda: None)


def study(folder, text=TRACKING):
    file = folder / "mine.py"
    file.write_text(text)
    return file


def lines(path):
    with path.open() as opened:
        return [(int(r["step"]), r["name"], float(r["value"])) for r in csv.DictReader(opened)]


def test_nothing_is_written_by_default(tmp_path):
    file = study(tmp_path)
    assert run_own(file, "--no-report").exit_code == 1, "its claim fails"
    assert not (tmp_path / "runs" / tracking.FOLDER).exists()


def test_csv_by_hand_and_the_same_rows(tmp_path):
    file = study(tmp_path)
    done = run_own(file, "--no-report", "--track", "csv")
    assert done.exit_code == 1, "its claim fails"
    files = sorted((tmp_path / "runs" / "tracked" / "mine").iterdir())
    assert [path.name.partition("_seed=")[0] for path in files] == ["a=1"] * 3
    assert lines(files[1]) == [
        (step, name, value)
        for step in range(3)
        for name, value in (("loss", 1 / (1 + step) + 1), ("kl", 0.5))
    ]
    with Store.read(tmp_path / "runs") as store:
        tracked = store.rows("mine", Scale.LAPTOP)
    other = tmp_path / "other"
    other.mkdir()
    run_own(study(other), "--no-report")
    with Store.read(other / "runs") as store:
        assert store.rows("mine", Scale.LAPTOP) == tracked


def test_from_worker_processes(tmp_path):
    file = study(tmp_path)
    done = run_own(file, "--no-report", "--track", "csv", "--workers", "1", "--seeds", "1")
    assert done.exit_code == 0, done.output
    (path,) = (tmp_path / "runs" / "tracked" / "mine").iterdir()
    assert len(lines(path)) == 6


def test_what_a_unit_tracked_before_it_failed_is_there_and_written_again(tmp_path):
    file = study(tmp_path, TRACKING.replace("FAILS = False", "FAILS = True"))
    assert run_own(file, "--no-report", "--track", "csv", "--seeds", "1").exit_code == 1
    (path,) = (tmp_path / "runs" / "tracked" / "mine").iterdir()
    assert len(lines(path)) == 6
    study(tmp_path)
    run_own(file, "--no-report", "--track", "csv", "--seeds", "1")
    assert len(lines(path)) == 6


def test_the_losses_of_fit(tmp_path):
    body = (
        "    shape = Shape(vocab_size=3, length=3, width=4, layers=1, heads=1, causal=True)\n"
        "    model = CausalLM(Transformer(shape, seed=0))\n"
        "    told = lambda step, loss, gap: bench.track(step, loss=loss)\n"
        "    recipe = Recipe(steps=3, batch=2)\n"
        "    history = fit(model, Uniform(2, 3).sample, next_token(), recipe,\n"
        "        bench.rng('data'), report=told)\n"
        "    yield Gain(unit.seed, sum(history.losses))\n"
        "    return\n"
    )
    text = OWN_STUDY.replace("def run(unit, bench):\n", f"def run(unit, bench):\n{body}")
    file = study(tmp_path, FITTING + text)
    done = run_own(file, "--no-report", "--track", "csv", "--seeds", "1")
    assert done.exit_code == 0, done.output
    (path,) = (tmp_path / "runs" / "tracked" / "mine").iterdir()
    with Store.read(tmp_path / "runs") as store:
        (row,) = store.rows("mine", Scale.LAPTOP)
    assert len(lines(path)) == 3
    assert math.fsum(value for _, _, value in lines(path)) == pytest.approx(row["gain"])


@pytest.mark.filterwarnings("ignore")
def test_events_that_tensorboard_reads(tmp_path):
    """Written in a run and read by tensorboard's own reader."""
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is in the extra trackers",
    )
    file = study(tmp_path)
    for _ in range(2):  # a second attempt writes over the first
        place = tmp_path / "runs" / "tracked" / "mine" / "again"
        found = tracking.tracker("tensorboard", place)
        found.write(0, {"loss": 0.25})
        found.close()
    events = reader.EventAccumulator(str(place)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(0, 0.25)]
    done = run_own(file, "--no-report", "--track", "tensorboard", "--seeds", "1")
    assert done.exit_code == 0, done.output
    (unit,) = [path for path in place.parent.iterdir() if path.name.startswith("a=1")]
    events = reader.EventAccumulator(str(unit)).Reload()
    assert events.Tags()["scalars"] == ["loss", "kl"]
    assert [e.value for e in events.Scalars("loss")] == pytest.approx([1, 1 / 2, 1 / 3])


def test_without_the_extra_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    done = run_own(study(tmp_path), "--no-report", "--track", "tensorboard")
    assert done.exit_code == 2
    assert "triptych[trackers]" in done.stderr
    assert run_own(study(tmp_path), "--track", "wandb").exit_code == 2
    with pytest.raises(UserError, match="csv and tensorboard"):
        tracking.check("wandb")
    done = run_own(study(tmp_path), "--no-report", "--track", "csv", "--engine", "ray")
    assert done.exit_code == 2
    assert "another machine" in done.stderr or "--workers" in done.stderr


@pytest.fixture
def bench(tmp_path):
    found = tracking.tracker("csv", tmp_path / "unit")
    yield WorkBench(0, "cpu", tmp_path, found)
    found.close()


@pytest.mark.parametrize(
    ("step", "numbers", "parameter"),
    [
        (0, {}, "numbers"),
        (0, {"loss": "low"}, "loss"),
        (-1, {"loss": 1.0}, "step"),
        (0.5, {"a": 1}, "step"),
    ],
)
def test_what_is_no_number_at_a_step(bench, unchecked_shapes, step, numbers, parameter):
    assert isinstance(bench, Bench)
    with refused(parameter):
        bench.track(step, **numbers)


def test_a_tensor_of_one_number_and_a_nan(bench, tmp_path):
    bench.track(1, loss=torch.tensor(0.5), kl=math.nan)
    ((_, _, loss), (_, _, kl)) = lines(tmp_path / "unit.csv")
    assert loss == 0.5
    assert math.isnan(kl)


def test_the_name_of_a_unit_is_short_safe_and_its_own(tmp_path):
    place = tracking.place_of(tmp_path, "mine", {"kind": "T", "a": 1}, 3, "0123456789abcdef")
    assert place == tmp_path / "tracked" / "mine" / "a=1_seed=3_01234567"
    odd = tracking.place_of(tmp_path, "a/b", {"path": "../../x y" * 50}, 0, "f" * 16)
    assert odd.parent == tmp_path / "tracked" / "a.b"
    assert len(odd.name) < 100
    assert "/" not in odd.name

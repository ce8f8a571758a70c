"""What a unit is given: randomness of its own, and tensors that are made once."""

import json
import socket

import pytest
import torch
from safetensors.torch import load_file
from tests.support import toy_studies

from triptych.lab.running.plan import Plan
from triptych.lab.running.runner import run_study
from triptych.lab.running.workbench import WorkBench, derived_seed
from triptych.studies.api.study import Scale

SMOKE = Scale.SMOKE


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
    (tmp_path / "cache" / f".{file.name}.{socket.gethostname()}.{2**22 - 1}-abc.part").write_bytes(
        b"left by a killed process"
    )
    assert torch.equal(bench(tmp_path).tensors({"a": 1}, make)["weight"], torch.arange(100.0))
    assert "is damaged" in capfd.readouterr().err
    assert file.read_bytes() == content
    assert not list((tmp_path / "cache").glob(".*.part"))


def test_workers_that_need_the_same_tensor_make_it_once(store):
    study = toy_studies.SHARING
    assert run_study(Plan.of(study, SMOKE), store=store, workers=2).done == 4
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

"""Checkpoints: one of another network is refused, damage is a sentence, a kill loses nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.full_disk import small_files
from tests.support.kills import kills
from tests.support.refusals import refused
from tests.training.test_translation import corpus, recipe, shape
from torch import nn

from triptych.core.files import FolderInUse, NotWritten, lock_folder
from triptych.core.randomness import TorchRng
from triptych.models.encoder_decoder import EncoderDecoder
from triptych.models.language_models import CausalLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.hidden_markov.hmm import HMM
from triptych.training.checkpoints import DamagedCheckpoint, resume, save
from triptych.training.loop import fit
from triptych.training.objectives import next_token
from triptych.training.step import Descent, Recipe
from triptych.training.translation import fit_translator


def descent(net: nn.Module) -> Descent:
    return Descent(Recipe(5), list(net.parameters()))


@pytest.mark.parametrize("other", [nn.Linear(3, 4), nn.Linear(2, 3, bias=False)])
def test_a_network_of_another_shape_is_refused(tmp_path: Path, other: nn.Module) -> None:
    net, rng = nn.Linear(2, 3), TorchRng(0)
    save(tmp_path, descent(net), net, 2, rng, [], {"of mine": [1]})
    with refused("folder"):
        resume(tmp_path, descent(other), other, rng)
    same = nn.Linear(2, 3)
    record = resume(tmp_path, descent(same), same, rng)
    assert (record["step"], record["of mine"]) == (2, [1])
    assert same.weight.equal(net.weight)


def test_damage_names_the_file_and_the_way_out(tmp_path: Path) -> None:
    net, rng = nn.Linear(2, 3), TorchRng(0)
    save(tmp_path, descent(net), net, 2, rng, [], {"of mine": [1]})
    state, tensors = tmp_path / "state.json", tmp_path / "step-2.safetensors"
    good = {file: file.read_bytes() for file in (state, tensors)}
    for file, spoilt in [
        (state, b""),
        (state, b"[1]"),
        (state, good[state][:-20]),
        (state, json.dumps({**json.loads(good[state]), "losses": 3}).encode()),
        (state, good[state].replace(b'"of mine": [1]', b'"of mine": [2]')),
        (state, json.dumps({**json.loads(good[state]), "sum": None}).encode()),
        (tensors, good[tensors][:-9]),
        (tensors, good[tensors][:-9] + bytes([good[tensors][-9] ^ 1]) + good[tensors][-8:]),
        (tensors, b""),
        (tensors, None),
    ]:
        file.write_bytes(spoilt) if spoilt is not None else file.unlink()
        with pytest.raises(DamagedCheckpoint) as error:
            resume(tmp_path, descent(net), net, rng)
        said = str(error.value)
        assert said.startswith(f"{file} is damaged or gone (")
        assert said.endswith(f"remove {tmp_path} to begin again")
        file.write_bytes(good[file])
    assert resume(tmp_path, descent(net), net, rng)["step"] == 2


@pytest.mark.parametrize("file", ["state.json", "step-2.safetensors"])
def test_a_file_that_may_not_be_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """Its folder must not be removed for that."""
    net, rng = nn.Linear(2, 3), TorchRng(0)
    save(tmp_path, descent(net), net, 2, rng, [])
    real = Path.open

    def refusing(path: Path, *given: Any, **options: Any) -> Any:
        if path.name == file:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *given, **options)

    monkeypatch.setattr(Path, "open", refusing)
    with refused("path") as error:
        resume(tmp_path, descent(net), net, rng)
    assert not isinstance(error.value, DamagedCheckpoint)


def test_the_clock_belongs_to_the_same_record_as_the_step(tmp_path: Path) -> None:
    """Seconds spent and steps planned are of the moment of the weights."""
    net = EncoderDecoder(shape(causal=True), seed=0)
    fit_translator(net, corpus(), recipe(50), 5, seconds=1000.0, checkpoint=tmp_path, stop_after=4)
    record = json.loads((tmp_path / "state.json").read_text())
    assert record["step"] == 4
    assert record["clock"]["budget"] == 1000.0
    assert record["clock"]["spent"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.json", "step-4.safetensors"]


def trained(folder: Path | None, steps: int = 6) -> list[torch.Tensor]:
    """A translator that is saved after every second step, the last one among them."""
    net = EncoderDecoder(shape(causal=True, dropout=0.3), seed=0)
    every = {} if folder is None else {"checkpoint": folder, "checkpoint_every": 2}
    fit_translator(net, corpus(), recipe(steps), 5, **every)
    return [p.detach().clone() for p in net.parameters()]


def fitted(folder: Path | None, steps: int = 6) -> list[torch.Tensor]:
    """A language model that is saved after every second step, the last one among them."""
    hmm = HMM.random(3, 3, 5, seed=0)
    net = Transformer(Shape(4, 6, width=16, layers=1, heads=2, causal=True), seed=0)
    every = {} if folder is None else {"checkpoint": folder, "checkpoint_every": 2}
    how = Recipe(steps, batch=4, ema=0.9)
    fit(CausalLM(net), hmm.sample, next_token(), how, 0, **every)
    return [p.detach().clone() for p in net.parameters()]


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.no_gpu
@pytest.mark.parametrize("train", [trained, fitted])
def test_a_kill_at_any_moment_loses_no_training(
    tmp_path: Path, train: Callable[..., list[torch.Tensor]]
) -> None:
    """Three checkpoints of two files; after each death the same training has the same weights."""
    whole, deaths = train(None), 0
    for moment in kills(lambda moment: train(tmp_path / str(moment))):
        folder, deaths = tmp_path / str(moment), deaths + 1
        assert equal(whole, train(folder)), moment
        assert not list(folder.glob(".*.part")), "the next training has cleared up"
    assert deaths >= 3 * 2 * 3, "each file is opened, brought to the disk and renamed"


@pytest.mark.no_gpu
@pytest.mark.parametrize("train", [trained, fitted])
def test_a_kill_of_a_finished_training_that_runs_again_loses_nothing(
    tmp_path: Path, train: Callable[..., list[torch.Tensor]]
) -> None:
    whole = train(tmp_path)
    for moment in kills(lambda _: train(tmp_path)):
        assert equal(whole, train(tmp_path)), moment


@pytest.mark.parametrize("train", [trained, fitted])
def test_a_finished_training_is_not_written_again(
    tmp_path: Path, train: Callable[..., list[torch.Tensor]]
) -> None:
    whole = train(tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    with small_files(10):  # it could not write anything
        assert equal(whole, train(tmp_path))
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_a_full_disk_is_a_sentence_and_the_run_continues_after_it(tmp_path: Path) -> None:
    with small_files(5000), pytest.raises(NotWritten, match="step-2.safetensors cannot be written"):
        trained(tmp_path)
    whole, again = trained(None), trained(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(whole, again, strict=True))


def test_two_trainings_do_not_share_a_folder(tmp_path: Path) -> None:
    with lock_folder(tmp_path), pytest.raises(FolderInUse, match="another run is using"):
        trained(tmp_path)

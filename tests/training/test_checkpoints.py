"""Checkpoints: one of another network is refused, damage is a sentence, a kill loses nothing."""

import json
from pathlib import Path

import pytest
import torch
from tests.support.full_disk import small_files
from tests.training.test_translation import corpus, recipe, shape
from torch import nn

from triptych.core import files
from triptych.core.errors import UserError
from triptych.core.files import FolderInUse, NotWritten, lock_folder
from triptych.core.randomness import TorchRng
from triptych.models.encoder_decoder import EncoderDecoder
from triptych.training.checkpoints import DamagedCheckpoint, resume, save
from triptych.training.step import Descent, Recipe
from triptych.training.translation import fit_translator


def descent(net: nn.Module) -> Descent:
    return Descent(Recipe(5), list(net.parameters()))


@pytest.mark.parametrize("other", [nn.Linear(3, 4), nn.Linear(2, 3, bias=False)])
def test_a_network_of_another_shape_is_refused(tmp_path: Path, other: nn.Module) -> None:
    net, rng = nn.Linear(2, 3), TorchRng(0)
    save(tmp_path, descent(net), net, 2, rng, [], {"of mine": [1]})
    with pytest.raises(UserError, match="network of another shape"):
        resume(tmp_path, descent(other), other, rng)
    same = nn.Linear(2, 3)
    record = resume(tmp_path, descent(same), same, rng)
    assert (record["step"], record["of mine"]) == (2, [1])
    assert same.weight.equal(net.weight)


def test_damage_names_the_file_and_the_way_out(tmp_path: Path) -> None:
    net, rng = nn.Linear(2, 3), TorchRng(0)
    save(tmp_path, descent(net), net, 2, rng, [])
    state, tensors = tmp_path / "state.json", tmp_path / "step-2.safetensors"
    good = {file: file.read_bytes() for file in (state, tensors)}
    for file, spoilt in [
        (state, b""),
        (state, b"[1]"),
        (state, good[state][:-20]),
        (state, json.dumps({**json.loads(good[state]), "losses": 3}).encode()),
        (tensors, good[tensors][:-9]),
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


def trained(folder: Path | None, steps: int = 6) -> list[torch.Tensor]:
    """A translator that is saved after every second step, the last one among them."""
    net = EncoderDecoder(shape(causal=True, dropout=0.3), seed=0)
    every = {} if folder is None else {"checkpoint": folder, "checkpoint_every": 2}
    fit_translator(net, corpus(), recipe(steps), 5, **every)
    return [p.detach().clone() for p in net.parameters()]


class Killed(BaseException):
    """What a kill looks like from inside: nothing runs after it."""


@pytest.mark.parametrize("moment", ["half a file", "before the renaming", "after it"])
def test_a_kill_at_any_file_loses_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A run of 6 steps writes 6 files. At each a kill comes, and the same run finishes after it."""
    whole, moved, real = trained(None), [0], files.os.replace
    for at in range(1, 7):
        folder, moved[0] = tmp_path / f"{moment} {at}", 0

        def replace(part: Path, place: Path, at: int = at) -> None:
            moved[0] += 1
            if moved[0] == at and moment == "half a file":
                part.write_bytes(part.read_bytes()[:100])
            if moved[0] != at or moment == "after it":
                real(part, place)
            if moved[0] == at:
                raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(files.os, "replace", replace)
            with pytest.raises(Killed):
                trained(folder)
        again = trained(folder)
        assert all(torch.equal(a, b) for a, b in zip(whole, again, strict=True)), at
    assert moved == [6]


def test_a_finished_training_is_not_written_again(tmp_path: Path) -> None:
    whole = trained(tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    with small_files(10):  # it could not write anything
        again = trained(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(whole, again, strict=True))
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert {k: v for k, v in after.items() if k != "run.lock"} == {
        k: v for k, v in before.items() if k != "run.lock"
    }


def test_a_full_disk_is_a_sentence_and_the_run_continues_after_it(tmp_path: Path) -> None:
    with small_files(5000), pytest.raises(NotWritten, match="step-2.safetensors cannot be written"):
        trained(tmp_path)
    whole, again = trained(None), trained(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(whole, again, strict=True))


def test_two_trainings_do_not_share_a_folder(tmp_path: Path) -> None:
    with lock_folder(tmp_path), pytest.raises(FolderInUse, match="another run is using"):
        trained(tmp_path)

"""A training run on disk: tensors as safetensors, the rest as JSON, replaced in one move.

`state.json` is written last and names the file of tensors that it belongs to, so what it names is
whole. It has the sum of that file and one of its own content: what is damaged is never trained on.
One process at a time trains into a folder (`lock_folder`).
"""

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from triptych.core.errors import UserError
from triptych.core.files import lock_folder, sum_of, write_json, write_tensors
from triptych.core.randomness import TorchRng
from triptych.training.step import Descent

STATE = "state.json"


class DamagedCheckpoint(UserError):
    """A checkpoint cannot be read; the sentence names the file and the way out."""


Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def locked(train: Callable[Asked, Answer]) -> Callable[Asked, Answer]:
    """A function that trains, and holds the lock of its `checkpoint` folder meanwhile."""

    @functools.wraps(train)
    def training(*given: Asked.args, **options: Asked.kwargs) -> Answer:
        folder = options.get("checkpoint")
        if not isinstance(folder, Path):
            return train(*given, **options)
        with lock_folder(folder):
            return train(*given, **options)

    return training


def save(
    folder: Path,
    descent: Descent,
    net: nn.Module,
    step: int,
    rng: TorchRng,
    gaps: Sequence[Sequence[Any]],
    more: Mapping[str, Any] = {},
) -> None:
    """Tensors first, then the JSON that names them, then the tensors of before are removed.

    more
        JSON values of the caller's own; `resume` gives them back in its record.
    """
    state = descent.optimiser.state_dict()
    tensors = {f"net.{name}": p.detach().clone() for name, p in net.state_dict().items()}
    scalars: dict[str, Any] = {}
    for index, values in state["state"].items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"optimiser.{index}.{name}"] = value.detach().clone().contiguous()
            else:
                scalars[f"{index}.{name}"] = value
    for index, mean in enumerate(descent.average or []):
        tensors[f"ema.{index}"] = mean.clone()
    tensors["rng"] = rng.generator.get_state()
    name = f"step-{step}.safetensors"
    write_tensors(folder / name, tensors)
    record = {
        **more,
        "step": step,
        "tensors": name,
        "tensors_sum": sum_of(folder / name),
        "recipe": asdict(descent.recipe),
        "seed": rng.seed,
        "optimiser_scalars": scalars,
        "losses": descent.losses,
        "gaps": list(gaps),
    }
    write_json(folder / STATE, record | {"sum": _sum_of(record)}, indent=None)
    for old in folder.glob("step-*.safetensors"):
        if old.name != name:
            with suppress(OSError):  # it costs room alone
                old.unlink()


def resume(folder: Path, descent: Descent, net: nn.Module, rng: TorchRng) -> dict[str, Any]:
    """Restore weights, optimiser and rng; the record has the step to go on at, losses and gaps."""
    record = _record(folder)
    wanted = json.loads(json.dumps(asdict(descent.recipe)))
    if record["recipe"] != wanted:
        changed = sorted(k for k in wanted if record["recipe"].get(k) != wanted[k])
        raise UserError(
            f"the checkpoint in {folder} was made with another recipe ({', '.join(changed)} "
            "differ); use another folder or remove it",
            parameter="folder",
        )
    if record["seed"] != rng.seed:
        raise UserError(
            f"the checkpoint in {folder} was made from seed {record['seed']}, not {rng.seed}; "
            "use another folder or remove it",
            parameter="folder",
        )
    device = next(net.parameters()).device
    tensors = _tensors(folder / record["tensors"], record["tensors_sum"], device)
    weights = {name[4:]: value for name, value in tensors.items() if name.startswith("net.")}
    try:
        net.load_state_dict(weights)
    except RuntimeError as error:  # names or shapes of the weights are others
        raise UserError(
            f"the checkpoint in {folder} is of a network of another shape; use another folder or "
            "remove it",
            parameter="folder",
        ) from error
    state = descent.optimiser.state_dict()
    restored: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser."):
            _, index, key = name.split(".", 2)
            restored.setdefault(int(index), {})[key] = value
    for name, value in record["optimiser_scalars"].items():
        index, key = name.split(".", 1)
        restored.setdefault(int(index), {})[key] = value
    state["state"] = restored
    descent.optimiser.load_state_dict(state)
    for index, mean in enumerate(descent.average or []):
        mean.copy_(tensors[f"ema.{index}"])
    rng.generator.set_state(tensors["rng"].cpu())
    return record


def _record(folder: Path) -> dict[str, Any]:
    """What `state.json` says, checked."""
    path = folder / STATE
    try:
        record = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    told = record.pop("sum", None) if isinstance(record, dict) else None
    if told is None:
        raise _damaged(path, "it has no checksum")
    if told != _sum_of(record):
        raise _damaged(path, "its checksum is wrong")
    return record


def _tensors(path: Path, told: str, device: torch.device) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    try:
        if sum_of(path) != told:
            raise _damaged(path, "its checksum is wrong")
        return load_file(path, device=str(device))
    except OSError as error:
        raise _unreadable(path, error) from error


def _sum_of(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()


def _unreadable(path: Path, error: OSError | ValueError) -> UserError:
    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
        return UserError(
            f"{path} cannot be read ({error.strerror}): mend that, and run it again",
            parameter="path",
        )
    return _damaged(path, "there is no such file" if isinstance(error, OSError) else str(error))


def _damaged(path: Path, reason: str) -> DamagedCheckpoint:
    return DamagedCheckpoint(
        f"{path} is damaged or gone ({reason}): the training cannot continue from it; remove "
        f"{path.parent} to begin again"
    )

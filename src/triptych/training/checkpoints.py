"""A training run on disk: tensors as safetensors, the rest as JSON, replaced in one move."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.training.step import Descent


def save(
    folder: Path,
    descent: Descent,
    net: nn.Module,
    step: int,
    rng: TorchRng,
    gaps: Sequence[Sequence[Any]],
) -> None:
    """Tensors as safetensors, the rest as JSON; the JSON is replaced last and names the tensors."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
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
    save_file(tensors, folder / name)
    record = {
        "step": step,
        "tensors": name,
        "recipe": asdict(descent.recipe),
        "seed": rng.seed,
        "optimiser_scalars": scalars,
        "losses": descent.losses,
        "gaps": list(gaps),
    }
    temporary = folder / "state.json.new"
    temporary.write_text(json.dumps(record))
    os.replace(temporary, folder / "state.json")
    for old in folder.glob("step-*.safetensors"):
        if old.name != name:
            old.unlink()


def resume(folder: Path, descent: Descent, net: nn.Module, rng: TorchRng) -> dict[str, Any]:
    """Restore weights, optimiser and rng; the record has the step to go on at, losses and gaps."""
    from safetensors.torch import load_file

    record = json.loads((folder / "state.json").read_text())
    wanted = json.loads(json.dumps(asdict(descent.recipe)))
    if record["recipe"] != wanted:
        changed = sorted(k for k in wanted if record["recipe"].get(k) != wanted[k])
        raise UserError(
            f"the checkpoint in {folder} was made with another recipe ({', '.join(changed)} "
            "differ); use another folder or remove it"
        )
    if record["seed"] != rng.seed:
        raise UserError(
            f"the checkpoint in {folder} was made from seed {record['seed']}, not {rng.seed}; "
            "use another folder or remove it"
        )
    device = next(net.parameters()).device
    tensors = load_file(folder / record["tensors"], device=str(device))
    weights = {name[4:]: value for name, value in tensors.items() if name.startswith("net.")}
    try:
        net.load_state_dict(weights)
    except RuntimeError as error:  # names or shapes of the weights are others
        raise UserError(
            f"the checkpoint in {folder} is of a network of another shape; use another folder or "
            "remove it"
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

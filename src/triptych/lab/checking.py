"""`triptych check`: which theorem applies to a user's own HMM, by what margin, with its head."""

import json
from pathlib import Path
from typing import Any

import torch

from triptych.structures.hmm import HMM
from triptych.theory import heads


def check_model(model: Path, task: Path | None) -> dict[str, Any]:
    """The conditions of Theorem 3.3 for an HMM in a JSON file, and the head for a task."""
    fields = _read(model, "an object with initial, transition and emission")
    missing = {"initial", "transition", "emission"} - set(fields)
    if missing:
        raise ValueError(f"{model} lacks {', '.join(sorted(missing))}")
    initial, transition, emission = (
        _tensor(model, name, fields[name]) for name in ("initial", "transition", "emission")
    )
    hmm = HMM(initial, transition, emission, length=1)
    found = heads.conditions(hmm)
    answer: dict[str, Any] = {
        "theorem": found.theorem,
        "applies": found.hold,
        "conditions": [condition._asdict() for condition in found.conditions],
    }
    if task is not None:
        weights = _tensor(task, "the task", _read(task, "a list of one weight per state"))
        if weights.shape != (hmm.states,):
            raise ValueError(f"{task} has shape {tuple(weights.shape)}, not ({hmm.states},)")
        answer["head"] = heads.witness(hmm, weights).tolist() if found.hold else None
    return answer


def sentences(answer: dict[str, Any]) -> list[str]:
    """The answer as lines to read."""
    lines = [answer["theorem"], ""]
    for condition in answer["conditions"]:
        sign = "holds" if condition["holds"] else "FAILS"
        lines.append(
            f"  {sign}  {condition['name']}: {condition['meaning']} = {condition['margin']:.3g}"
        )
    lines += ["", "The theorem applies." if answer["applies"] else "The theorem does not apply."]
    if answer.get("head") is not None:
        lines.append("head b = " + ", ".join(f"{value:.6g}" for value in answer["head"]))
    return lines


def _read(file: Path, wanted: str) -> Any:
    try:
        return json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is not JSON ({error}); it must hold {wanted}") from error


def _tensor(file: Path, name: str, values: Any) -> torch.Tensor:
    try:
        return torch.tensor(values, dtype=torch.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} in {file} is not a table of numbers: {error}") from error

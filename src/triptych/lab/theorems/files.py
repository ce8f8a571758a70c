"""Models and tasks that a user wrote as JSON; every mistake in them becomes a sentence.

    HMM          {"initial", "transition", "emission"}
    memory HMM   {"memory", "initial", "transition", "emission"}
    task         [w_0, w_1, …], or two rows of weights, or {"weights": either, "cell": j}

Two rows are the tasks of the experiments, where the row with the larger score is the label: row 1
minus row 0 is the task whose sign is that label.
"""

import difflib
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.validation import UserError
from triptych.structures import saved
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM

MODEL_FIELDS = ("memory", "initial", "transition", "emission")
TASK_FIELDS = ("cell", "weights")
_MODEL = "an object with initial, transition and emission, and memory for a memory HMM"
_TASK = 'a list of weights, two such lists, or {"cell": 0, "weights": [...]}'


class TaskFile(NamedTuple):
    """A task as a file has it: the label of x is 1 when μᵀ P[what is asked about | x] ≥ 0.

    weights    μ: one per hidden state of an HMM, one per memory value of a memory HMM
    cell       the memory cell that is asked about; None for an HMM
    two_rows   whether the file has two rows, of which μ is the difference
    """

    weights: Float[Tensor, " outcomes"]
    cell: int | None
    two_rows: bool


def read_model(file: Path) -> HMM | MemoryHMM:
    """The HMM or the memory HMM in a JSON file, or in one that `triptych fit` wrote."""
    given = _read(file, _MODEL)
    if saved.is_saved(given):
        structure = saved.read(given, str(file)).structure
        if not isinstance(structure, HMM | MemoryHMM):
            raise UserError(
                f"{file} holds a {type(structure).__name__}; the theorems are about an HMM or a "
                "MemoryHMM",
                parameter="file",
            )
        return structure.with_length(1)
    fields = _fields(file, given, MODEL_FIELDS, _MODEL)
    required = MODEL_FIELDS if "memory" in fields else MODEL_FIELDS[1:]
    missing = [name for name in required if name not in fields]
    if missing:
        raise UserError(
            f"{file} lacks {', '.join(missing)}; it must hold {_MODEL}", parameter="file"
        )
    tables = {name: _table(file, name, fields[name]) for name in required}
    if "memory" not in fields and tables["emission"].ndim == 4:
        raise UserError(
            f"{file} lacks memory: its emission has the shape [values, cells, syntax, vocab] "
            "of a memory HMM, which needs the law of the memory too",
            parameter="file",
        )
    try:
        return (MemoryHMM if "memory" in fields else HMM)(**tables, length=1)
    except ValueError as error:
        raise UserError(f"{file}: {error}", parameter="file") from error


def read_task(file: Path, model: HMM | MemoryHMM) -> TaskFile:
    """The task in a JSON file, for this model."""
    given = _read(file, _TASK)
    fields = {"weights": given}
    if isinstance(given, dict):
        fields = _fields(file, given, TASK_FIELDS, _TASK)
        if "weights" not in fields:
            raise UserError(f"{file} lacks weights; it must hold {_TASK}", parameter="file")
    weights = _table(file, "weights", fields["weights"])
    if isinstance(model, HMM):
        count, per = model.states, f"one per hidden state, {model.states} in all"
    else:
        count, per = model.values, f"one per memory value, {model.values} in all"
    if tuple(weights.shape) not in ((count,), (2, count)):
        raise UserError(
            f"weights in {file} has shape {tuple(weights.shape)}; it must be a list of weights, "
            f"{per}, or two such lists, one for each label",
            parameter="file",
        )
    if not torch.isfinite(weights).all():
        raise UserError(f"weights in {file} must be finite numbers", parameter="file")
    two_rows = weights.ndim == 2
    if two_rows:
        weights = weights[1] - weights[0]
    if not weights.any():
        why = "both rows are the same" if two_rows else "every weight is 0"
        raise UserError(f"{file} is no task: {why}, so no input has a label", parameter="file")
    return TaskFile(weights, _cell(file, fields, model), two_rows)


def _cell(file: Path, fields: dict[str, Any], model: HMM | MemoryHMM) -> int | None:
    if isinstance(model, HMM):
        if "cell" in fields:
            raise UserError(
                f"{file} names a memory cell, but the model is an HMM without memory",
                parameter="model",
            )
        return None
    cells = f"the cells of this memory are 0..{model.cells - 1}"
    if "cell" not in fields and model.cells > 1:
        raise UserError(
            f'{file} must name the memory cell, as {{"cell": 0, "weights": [...]}}: {cells}',
            parameter="file",
        )
    cell = fields.get("cell", 0)
    if not isinstance(cell, int) or isinstance(cell, bool) or not 0 <= cell < model.cells:
        raise UserError(f"the cell in {file} is {json.dumps(cell)}; {cells}", parameter="file")
    return cell


# ---------------------------------------------------------------------- JSON


def _read(file: Path, wanted: str) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(
            f"there is no file {file}; it must hold {wanted}", parameter="file"
        ) from error
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}", parameter="file") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not text, so not JSON; it must hold {wanted}") from error
    except json.JSONDecodeError as error:
        raise UserError(f"{file} is not JSON ({error}); it must hold {wanted}") from error
    except RecursionError as error:
        raise UserError(f"{file} is nested too deep; it must hold {wanted}") from error


def _fields(file: Path, given: Any, known: tuple[str, ...], wanted: str) -> dict[str, Any]:
    """The object in the file; a field that is not known is an error, not a comment."""
    if not isinstance(given, dict):
        raise UserError(f"{file} holds {_kind(given)}; it must hold {wanted}")
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise UserError(f"{file} has a field {name}{hint}; its fields can be: {_list(known)}")
    return given


def _table(file: Path, name: str, values: Any) -> Tensor:
    """Nested lists of numbers as a tensor; rows must be equally long."""
    if not isinstance(values, list):
        raise UserError(
            f"{name} in {file} is not a table of numbers: it is {_kind(values)}", parameter=name
        )
    try:
        _shape(name, values)
        return torch.tensor(values, dtype=torch.float64)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise UserError(
            f"{name} in {file} is not a table of numbers: {error}", parameter=name
        ) from error


def _shape(name: str, values: Any) -> tuple[int, ...]:
    if isinstance(values, (int, float)) and not isinstance(values, bool):
        if isinstance(values, float) and math.isnan(values):
            raise UserError(f"{name} is NaN", parameter=name)
        return ()
    if not isinstance(values, list):
        raise UserError(f"{name} is {_kind(values)}", parameter=name)
    if not values:
        raise UserError(f"{name} is an empty list", parameter=name)
    shapes = [_shape(f"{name}[{i}]", value) for i, value in enumerate(values)]
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise UserError(
                f"{name}[{i}] has {_size(shape)} but {name}[0] has {_size(shapes[0])}",
                parameter=name,
            )
    return (len(values), *shapes[0])


def _size(shape: tuple[int, ...]) -> str:
    if not shape:
        return "no entries (it is a number)"
    return f"{shape[0]} entries" if len(shape) == 1 else f"shape {list(shape)}"


def _kind(value: Any) -> str:
    """What a JSON value is, for a sentence."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return f"the value {json.dumps(value)}"


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names)

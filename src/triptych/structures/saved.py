"""A structure in a file, and back: JSON that names the class and has its fields, and no code.

    saved.save(hmm, "weather.json", vocabulary=["sun", "rain"])
    hmm = saved.load("weather.json").structure

Numbers are written with all their digits, so what is loaded is the same to the last bit. What is
read is checked by the constructor of the class, as if a user had typed it.
"""

import dataclasses
import importlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from triptych.core.files import write_json
from triptych.core.validation import UserError, as_list, as_text, shown

FORMAT = 1
HOMES = {
    "CFG": "cfg",
    "HMM": "hidden_markov.hmm",
    "Ising": "ising",
    "LDA": "topics",
    "Markov": "markov",
    "MemoryHMM": "hidden_markov.memory_hmm",
    "Topics": "topics",
    "Uniform": "uniform",
}


class Saved(NamedTuple):
    """structure    what was saved
    vocabulary   the text of each token, in order; empty where none was saved
    about        whatever else was saved with it, as how it was fitted
    """

    structure: Any
    vocabulary: tuple[str, ...]
    about: dict[str, Any]


def save(
    structure: Any,
    path: Path | str,
    *,
    vocabulary: Sequence[str] = (),
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write a structure to a file, whole or not at all."""
    kind = type(structure).__name__
    if kind not in HOMES or not isinstance(structure, _class(kind)):
        raise UserError(
            f"structure is {shown(structure)}; these can be saved: {', '.join(HOMES)}",
            parameter="structure",
        )
    words = [as_text("vocabulary", word) for word in as_list("vocabulary", vocabulary, "texts")]
    if words and len(words) > structure.vocab_size:
        raise UserError(
            f"vocabulary has {len(words)} texts for {structure.vocab_size} tokens",
            parameter="vocabulary",
        )
    fields = {
        field.name: _plain(getattr(structure, field.name))
        for field in dataclasses.fields(structure)
        if field.name != "device"
    }
    write_json(
        Path(_as_path(path)),
        {
            "triptych": FORMAT,
            "kind": kind,
            "fields": fields,
            "vocabulary": words,
            "about": dict(about or {}),
        },
    )


def load(path: Path | str) -> Saved:
    """What `save` wrote; anything else is refused in a sentence."""
    place = Path(_as_path(path))
    try:
        given = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"path {place} cannot be read: {error}", parameter="path") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"path {place} holds no JSON: {error}", parameter="path") from error
    return read(given, str(place))


def is_saved(given: Any) -> bool:
    """Does this JSON look like a file of `save`?"""
    return isinstance(given, dict) and "triptych" in given and "kind" in given


def read(given: Any, name: str = "the file") -> Saved:
    """The structure in JSON that was read."""
    if not is_saved(given) or given["kind"] not in HOMES or given["triptych"] != FORMAT:
        raise UserError(
            f"{name} is no file of a structure: it must have triptych={FORMAT} and a kind out of "
            f"{', '.join(HOMES)}",
            parameter="path",
        )
    kind = _class(given["kind"])
    fields, words, about = (given.get(k) for k in ("fields", "vocabulary", "about"))
    known = {field.name for field in dataclasses.fields(kind) if field.name != "device"}
    if not isinstance(fields, dict) or set(fields) != known:
        raise UserError(
            f"{name} must have the fields {', '.join(sorted(known))} for kind {given['kind']}",
            parameter="path",
        )
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UserError(f"{name} must have a list of texts as vocabulary", parameter="path")
    made = kind(**{key: _unplain(value) for key, value in fields.items()})
    return Saved(made, tuple(words), about if isinstance(about, dict) else {})


def _class(kind: str) -> type:
    return getattr(importlib.import_module(f"triptych.structures.{HOMES[kind]}"), kind)


def _as_path(path: Path | str) -> str:
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise UserError(f"path is {shown(path)}; it must be a path", parameter="path")
    return os.fspath(path)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, Tensor) else value


def _unplain(value: Any) -> Any:
    """Lists of numbers as tensors, lists of texts as tuples."""
    if not isinstance(value, list):
        return value
    if not value or isinstance(value[0], str):
        return tuple(value)
    try:
        return torch.tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        return value  # which the constructor refuses

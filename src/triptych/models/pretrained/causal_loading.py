"""Causal models and their tokenizers from a folder, the Hugging Face hub or a .gguf file.

transformers is an optional dependency (`pip install 'transformers>=5,<6'`), imported when used; a
.gguf file needs the packages gguf and accelerate too.
"""

import importlib.util
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch

from triptych.core.foreign_models import as_place, on_disk_alone, refuse_own_code
from triptych.core.validation import UserError, as_flag, shown
from triptych.models.pretrained.copies import find_copy, keep_copy
from triptych.models.pretrained.fetching import CATALOGUE, fetched

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


def load_causal(
    where: str | Path,
    *,
    dtype: torch.dtype | str,
    gguf_file: str | None,
    local_files_only: bool,
    revision: str | None,
    trust_remote_code: bool = False,
) -> tuple[Any, Any]:
    """The model and its tokenizer; of a .gguf file from its copy in the cache, or with one left."""
    trust_remote_code = as_flag("trust_remote_code", trust_remote_code)
    name, gguf_file = _place(where, gguf_file)
    precision = as_dtype(dtype)
    _check_packages(gguf_file)
    options: dict[str, Any] = {
        "local_files_only": on_disk_alone(name, local_files_only),
        "trust_remote_code": trust_remote_code,
    }
    options |= {} if revision is None else {"revision": revision}
    if gguf_file is None:
        return _load(name, name, precision, options)
    file = Path(name) / gguf_file
    if not file.is_file():
        return _load(name, str(file), precision, options | {"gguf_file": gguf_file})
    if (copy := find_copy(file, precision)) is not None:
        return _load(str(copy), str(file), precision, {**options, "local_files_only": True})
    model, tokenizer = _load(name, str(file), precision, options | {"gguf_file": gguf_file})
    keep_copy(file, precision, model, tokenizer)
    return model, tokenizer


def load_tokenizer_alone(where: str | Path) -> Any:
    """The tokenizer of a model, without the model."""
    name, gguf_file = _place(where, None)
    _check_packages(gguf_file)
    from transformers import AutoTokenizer

    options: dict[str, Any] = {"local_files_only": on_disk_alone(name, False)}
    if gguf_file is not None:
        copy = find_copy(Path(name) / gguf_file, torch.float32)
        name = name if copy is None else str(copy)
        options |= {"gguf_file": gguf_file} if copy is None else {}
    try:
        return AutoTokenizer.from_pretrained(name, **options)
    except Exception as error:  # it raises many classes for one thing
        refuse_own_code(str(where), error)
        raise UserError(
            f"{str(where)!r} has no tokenizer that transformers can load: {_short(error)}",
            parameter="where",
        ) from error


def _load(
    name: str, shown_name: str, precision: torch.dtype, options: dict[str, Any]
) -> tuple[Any, Any]:
    """What transformers reads; the weights of a .gguf file are plain numbers then."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        both: Any = AutoModelForCausalLM.from_pretrained(
            name, dtype=precision, output_loading_info=True, **options
        )
    except ValueError as error:
        refuse_own_code(shown_name, error)
        raise UserError(
            f"{shown_name!r} is not a causal model that transformers can load: {_short(error)}",
            parameter="shown_name",
        ) from error
    except Exception as error:  # the readers of damaged files raise classes of their own
        raise UserError(
            f"the causal model {shown_name!r} could not be loaded: {_short(error)} Check the name "
            "and the connection, or save the model and its tokenizer with save_pretrained where "
            "there is one and pass that folder (config.json, model.safetensors, tokenizer.json)",
            parameter="shown_name",
        ) from error
    model, loaded = both
    _check_weights(shown_name, loaded)
    if "gguf_file" in options:
        model.hf_quantizer = None  # nothing is quantised any more
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
    try:
        return model, AutoTokenizer.from_pretrained(name, **options)
    except Exception as error:  # it raises many classes for one thing
        refuse_own_code(shown_name, error)
        raise UserError(
            f"{shown_name!r} has a model, and no tokenizer that transformers can load: "
            f"{_short(error)} Save it there with tokenizer.save_pretrained, or load both yourself "
            "and pass PretrainedCausalLM(model, tokenizer)",
            parameter="shown_name",
        ) from error


def as_dtype(dtype: torch.dtype | str) -> torch.dtype:
    """A floating-point type of torch, or its name."""
    if isinstance(dtype, str) and dtype in _DTYPES:
        return _DTYPES[dtype]
    if dtype in _DTYPES.values() and isinstance(dtype, torch.dtype):
        return dtype
    raise UserError(
        f"dtype is {shown(dtype)}; it must be one of {', '.join(_DTYPES)}", parameter="dtype"
    )


def _place(where: str | Path, gguf_file: str | None) -> tuple[str, str | None]:
    """Where transformers looks, and the .gguf file there; `where` may be that file itself."""
    place = as_place("where", where, "a folder, a name on the hub or a path to a .gguf file")
    path = Path(place)
    if place in CATALOGUE and not path.exists():
        path = fetched(place)
        place = str(path)
    if gguf_file is None and path.suffix == ".gguf":
        if not path.is_file():
            raise UserError(f"there is no file {str(path)!r}")
        return str(path.parent), path.name
    return place, gguf_file


def _check_packages(gguf_file: str | None) -> None:
    needs = ["transformers"] if gguf_file is None else ["transformers", "gguf", "accelerate"]
    what = "pretrained models need" if gguf_file is None else "a .gguf file needs"
    missing = [package for package in needs if importlib.util.find_spec(package) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise ModuleNotFoundError(
            f"{what} {' and '.join(missing)}, which {are} not installed: "
            f"pip install {' '.join(missing)}",
            name=missing[0],
        )


def _check_weights(name: str, loaded: dict[str, Any]) -> None:
    missing = sorted(loaded["missing_keys"])
    if missing:
        raise UserError(
            f"{name!r} has no weights for {', '.join(missing[:3])}"
            + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
            + ": transformers would draw them at random. It may not be a causal model"
        )


def _short(error: Exception) -> str:
    """The first sentence or so of an error, which may run to pages."""
    text = shorten(str(error) or type(error).__name__, width=200, placeholder=" ...")
    return text if text.endswith(".") else f"{text}."

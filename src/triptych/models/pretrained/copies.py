"""Copies of .gguf files as transformers saves a model, kept in the cache: they load in a second.

A .gguf file keeps weights in few bits. Reading one takes half a minute even of a small model: its
vocabulary and merges are read again and again, and every weight is expanded. So the first reading
leaves a copy in the precision that was asked for. It is the very same model.

    expanded/SUM-float32/   model.safetensors, config.json, tokenizer.json ...; copy.json is last

A copy is found by the sum of the .gguf file. The sums of its own files are compared whenever it is
used, so one that is cut or damaged is made again, as is one of another version of transformers. It
takes a tenth of the free space at most, or none is kept. The folder can be deleted at any time.
"""

import json
import os
import shutil
import warnings
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from triptych.core import files
from triptych.models.pretrained.fetching import cache_folder

_ABOUT = "copy.json"
_NEW = "new"  # the folder of what is not whole yet
_ADVICE = "set TRIPTYCH_CACHE to a folder with more room, that you may write to"
_SHARE = 0.1  # of the free space


def find_copy(file: Path, dtype: torch.dtype) -> Path | None:
    """The folder with the copy of a .gguf file, or None if none is here whole."""
    place = _place(file, dtype)
    return place if is_whole(place) else None


def keep_copy(file: Path, dtype: torch.dtype, model: Any, tokenizer: Any) -> None:
    """Leave a copy for the next reading, if there is room and nobody else is writing it."""
    place = _place(file, dtype)
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        if size <= _SHARE * shutil.disk_usage(cache_folder()).free:
            write_copy(place, model, tokenizer)
    except files.FolderInUse:
        return
    except Exception as error:  # a copy saves time, and the model is here without it
        warnings.warn(f"no copy of {file} was kept in {place}: {error}", stacklevel=2)


def write_copy(place: Path, model: Any, tokenizer: Any) -> None:
    """A model and its tokenizer in a folder, whole or not there."""
    from safetensors import SafetensorError

    with files.lock_folder(place):
        if is_whole(place):
            return
        new = place / _NEW
        shutil.rmtree(new, ignore_errors=True)  # of a run that was stopped
        try:
            model.save_pretrained(new)
            tokenizer.save_pretrained(new)
            names = sorted(path.name for path in new.iterdir())
            for old in place.iterdir():
                if old.is_file() and old.name not in (*names, files.LOCK):
                    old.unlink()
            for name in names:
                with files.replacing(place / name, advice=_ADVICE) as part:
                    os.replace(new / name, part)
        except (OSError, SafetensorError) as error:  # a full disk, for one
            raise files.NotWritten(f"{place} cannot be written ({error}): {_ADVICE}") from error
        finally:
            shutil.rmtree(new, ignore_errors=True)
        sums = {name: files.sum_of(place / name) for name in names}
        files.write_json(place / _ABOUT, {"transformers": version("transformers"), "sha256": sums})


def is_whole(place: Path) -> bool:
    """The copy in this folder was written to its end, and nothing of it has changed."""
    with suppress(OSError, ValueError):
        about = json.loads((place / _ABOUT).read_bytes())
        sums = about["sha256"] if isinstance(about, dict) and "sha256" in about else None
        if isinstance(sums, dict) and about.get("transformers") == version("transformers"):
            return "config.json" in sums and all(
                files.sum_of(place / name) == known for name, known in sums.items()
            )
    return False


def _place(file: Path, dtype: torch.dtype) -> Path:
    precision = str(dtype).removeprefix("torch.")
    return cache_folder() / "expanded" / f"{files.sum_of(file)[:32]}-{precision}"

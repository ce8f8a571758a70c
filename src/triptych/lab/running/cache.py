"""A cache of tensors on disk: trained networks and other things that are slow to make.

Every entry is a safetensors file with a checksum, and a JSON file that says what made it. Several
processes may use one cache: a lock per entry lets one of them make it while the others wait.
"""

import hashlib
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from triptych.core.files import NotWritten, remove_parts, write_tensors, write_text
from triptych.core.locks import Lock, lock
from triptych.lab.plain_text import plain


class TensorCache:
    """Named tensors in a folder, under a key of JSON values."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(
        self, key: Mapping[str, Any], make: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Tensor]:
        """The tensors of a key on the CPU, made once and then read from disk.

        An entry that does not read back is made again, with a warning. One that cannot be written
        is returned all the same.
        """
        text = json.dumps(dict(key), sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()
        file = self._folder / f"{name}.safetensors"
        self._folder.mkdir(parents=True, exist_ok=True)
        cached = _read(file)
        if cached is not None:
            return cached
        with _locked(file.with_suffix(".lock")):
            cached = _read(file, warn=True)
            if cached is not None:
                return cached
            for written in (file, file.with_suffix(".json")):
                remove_parts(self._folder, written.name)
            made = {title: _storable(title, tensor) for title, tensor in make().items()}
            try:
                write_text(file.with_suffix(".json"), text)
                write_tensors(file, made, {"crc32": _checksum(made)})
            except NotWritten as error:
                _warn(f"{error}; what could not be kept is made again when needed")
        return made


def _read(file: Path, *, warn: bool = False) -> dict[str, Tensor] | None:
    """The tensors of a file; None when there is none or it is damaged."""
    if not file.exists():
        return None
    try:
        with safe_open(file, framework="pt") as opened:
            tensors = {title: opened.get_tensor(title) for title in opened.keys()}  # noqa: SIM118
            intact = (opened.metadata() or {}).get("crc32") == _checksum(tensors)
        reason = "its checksum is wrong"
    except (OSError, SafetensorError) as error:
        tensors, intact, reason = {}, False, str(error)
    if intact:
        return tensors
    if warn:
        _warn(f"{file} is damaged ({reason}) and is made again")
    return None


def _storable(title: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{title!r} is a {type(value).__name__}: only tensors are kept on disk")
    return value.detach().cpu().clone(memory_format=torch.contiguous_format)


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    total = 0
    for title in sorted(tensors):
        total = zlib.crc32(title.encode(), total)
        total = zlib.crc32(tensors[title].reshape(-1).view(torch.uint8).numpy().data, total)
    return f"{total:08x}"


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold the lock of a file. The system releases it when this process ends, however it does."""
    with file.open("w") as opened:
        if lock(opened, wait=True) is Lock.NONE:  # two may make it then
            _warn(f"{file} cannot be locked here")
        yield


def _warn(sentence: str) -> None:
    print(f"triptych: {plain(sentence)}", file=sys.stderr, flush=True)

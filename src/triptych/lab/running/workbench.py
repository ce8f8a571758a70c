"""Where one unit runs: its study found by name, its bench, and what came out of it.

A study crosses from one process to another as text, so that nothing but plain data is sent:

    triptych.studies.exact_gap      a module with STUDY
    my_study.py                     a file with STUDY
    my_study.py:OTHER               another name in it
"""

import functools
import gc
import hashlib
import importlib
import importlib.util
import json
import os
import pkgutil
import random
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from triptych import __version__
from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.lab.running.fingerprint import OWN_FILE, fingerprint_of, library_digest
from triptych.studies.api.records import from_json
from triptych.studies.api.study import AnyStudy, Scale, Study, nan_fields

_ERROR_FRAMES, _ERROR_LINES = 4, 20


class WorkItem(NamedTuple):
    """A unit to run, as plain data: the study plans its units and finds this one by its key."""

    source: str
    key: str
    settings: str
    scale: str
    seed: int
    device: str
    cache: str


class Ended(NamedTuple):
    """How a unit ended: with rows, or with an error.

    nan
        The fields of its rows in which a nan stands, as "Tuned.head".
    """

    key: str
    rows: list[dict[str, Any]] | None
    error: str | None
    seconds: float
    nan: tuple[str, ...] = ()


def find_studies() -> dict[str, AnyStudy]:
    """The studies of the package by name: every module under `triptych.studies` with STUDY."""
    package = importlib.import_module("triptych.studies")
    found: dict[str, AnyStudy] = {}
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        study = vars(importlib.import_module(info.name)).get("STUDY")
        if not isinstance(study, Study):
            continue
        if study.name in found:
            raise ValueError(f"two studies are called {study.name!r}; one is in {info.name}")
        found[study.name] = study
    return dict(sorted(found.items()))


def load_study(where: str | Path) -> AnyStudy:
    """The study in a module or a Python file: "package.module", "file.py" or "file.py:NAME"."""
    place, colon, name = str(where).rpartition(":")
    if not (colon and name.isidentifier()):
        place, name = str(where), "STUDY"
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    study = vars(module).get(name)
    if not isinstance(study, Study):
        raise UserError(f"{place} has no study called {name}: it needs a line {name} = Study(...)")
    return study


def source_of(study: AnyStudy) -> str:
    """Where another process finds a study that was loaded from a module or a file here."""
    first = sys.modules.get(getattr(study.run, "__module__", ""))
    for module in [first, *list(sys.modules.values())]:
        names = vars(module) if isinstance(module, ModuleType) else {}
        candidates = names if module is first else {"STUDY"} & names.keys()
        for name in candidates:
            if names[name] is study:
                return f"{_place(names)}:{name}"
    raise UserError(
        f"study {study.name} cannot be found by another process: assign it to a name in a module "
        "or a file (STUDY = Study(...)) and load it from there, or run it with 0 workers"
    )


def _place(names: Mapping[str, Any]) -> str:
    module, file = names["__name__"], names.get("__file__")
    if module != "__main__" and not module.startswith(OWN_FILE):
        return module
    if file is None:
        raise UserError("a study typed into a session has no file: write it to one and load it")
    return str(Path(file).resolve())


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # it exists, and something it imports does not
        raise UserError(
            f"there is no module {name}; a file is given as path/to/{name}.py"
        ) from error


def _load_file(path: Path) -> ModuleType:
    """A file as a module, once as long as it is not changed; it may import what lies beside it."""
    path = path.resolve()
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    told_apart = hashlib.sha256(str(path).encode() + path.read_bytes()).hexdigest()[:8]
    name = f"{OWN_FILE}{path.stem}_{told_apart}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


class WorkBench:
    """A running unit's device, randomness and disk cache."""

    def __init__(self, seed: int, device: str, cache: Path) -> None:
        self._seed = seed
        self._device = device
        self._cache = cache

    @property
    def device(self) -> str:
        return self._device

    def rng(self, purpose: str = "") -> TorchRng:
        """A generator that depends on the unit's seed and the purpose alone."""
        return TorchRng(derived_seed(self._seed, purpose), self._device)

    def tensors(
        self, key: Mapping[str, Any], make: Callable[[], Mapping[str, Any]]
    ) -> Mapping[str, Tensor]:
        """Named tensors on the device, made once and kept on disk.

        What is kept depends on the key, and besides on the kind of device, the version of torch,
        and the code of Triptych and of the study that makes it. When several processes ask for it
        at once, one makes it and the others wait. A file that does not read back is made again,
        with a warning.
        """
        made_by = {
            "key": dict(key),
            "device": torch.device(self._device).type,
            "triptych": __version__,
            "library": library_digest(),
            "made by": fingerprint_of(make),
            "torch": torch.__version__,
        }
        text = json.dumps(made_by, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()
        file = self._cache / f"{name}.safetensors"
        self._cache.mkdir(parents=True, exist_ok=True)
        kept = self._kept(file)
        if kept is not None:
            return kept
        with _only_one(file.with_suffix(".lock")):
            kept = self._kept(file, warn=True)
            if kept is not None:
                return kept
            for left in self._cache.glob(f"{name}*.part"):  # by a process that was killed
                left.unlink(missing_ok=True)
            made = {title: _storable(title, tensor) for title, tensor in make().items()}
            try:
                _replace(file.with_suffix(".json"), lambda path: path.write_text(text))
                metadata = {"crc32": _checksum(made)}
                _replace(file, lambda path: save_file(made, path, metadata))
            except (OSError, SafetensorError) as error:
                _warn(f"{file} could not be kept ({error}); it will be made again when needed")
        return {title: tensor.to(self._device) for title, tensor in made.items()}

    def _kept(self, file: Path, *, warn: bool = False) -> dict[str, Tensor] | None:
        """The tensors of a file; None when there is none or it is damaged."""
        if not file.exists():
            return None
        try:
            with safe_open(file, framework="pt") as opened:
                kept = {title: opened.get_tensor(title) for title in opened.keys()}  # noqa: SIM118
                sound = (opened.metadata() or {}).get("crc32") == _checksum(kept)
        except (OSError, SafetensorError) as error:
            sound, kept = False, {}
            reason = str(error)
        else:
            reason = "its checksum is wrong"
        if not sound:
            if warn:
                _warn(f"{file} is damaged ({reason}) and is made again")
            return None
        return {title: tensor.to(self._device) for title, tensor in kept.items()}


def derived_seed(seed: int, purpose: str) -> int:
    """A seed of 63 bits that depends on both; different purposes give unrelated streams."""
    digest = hashlib.sha256(json.dumps([seed, purpose]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def run_item(item: WorkItem, study: AnyStudy | None = None) -> Ended:
    """Run one unit to its end; whatever it raises becomes its error.

    Torch uses one thread, and the global generators start from the unit's seed, so that the rows
    depend on the unit alone and not on what ran before it in this process.
    """
    started = time.perf_counter()
    try:
        with _alone(item.seed):
            study = study or _study(item.source)
            unit = _unit(study, Scale(item.scale), item.settings, item.key)
            bench = WorkBench(item.seed, item.device, Path(item.cache))
            rows, nan = [], dict[str, None]()
            for number, row in enumerate(study.run(unit, bench)):
                rows.append(json.loads(json.dumps(study.row_to_json(row, number))))
                nan |= dict.fromkeys(nan_fields(row))
    except KeyboardInterrupt:
        raise
    except BaseException:  # SystemExit too: a unit that calls sys.exit has not given its rows
        lines = traceback.format_exc(limit=-_ERROR_FRAMES).rstrip().splitlines()
        seconds = time.perf_counter() - started
        gc.collect()
        if torch.cuda.is_initialized():
            with suppress(RuntimeError):  # after a fault on the device every call raises it again
                torch.cuda.empty_cache()
        return Ended(item.key, None, "\n".join(lines[-_ERROR_LINES:]), seconds)
    return Ended(item.key, rows, None, time.perf_counter() - started, tuple(nan))


@functools.cache
def _study(source: str) -> AnyStudy:
    return load_study(source)


def _unit(study: AnyStudy, scale: Scale, settings: str, key: str) -> Any:
    """The unit of this key among those that the study plans."""
    kind = type(study.settings[scale])
    for unit in study.units(from_json(kind, json.loads(settings))):
        if study.key(unit) == key:
            return unit
    raise RuntimeError(
        f"study {study.name} plans other units here than in the process that started this one: "
        "its units must depend on the settings alone"
    )


@contextmanager
def _alone(seed: int) -> Iterator[None]:
    """One torch thread and global generators of the unit's own; the caller's come back after."""
    threads, torch_state = torch.get_num_threads(), torch.get_rng_state()
    python_state, numpy_state = random.getstate(), numpy.random.get_state()
    own, precision = derived_seed(seed, "global generators"), torch.get_float32_matmul_precision()
    torch.set_num_threads(1)
    torch.manual_seed(own)
    random.seed(own)
    numpy.random.seed(own % 2**32)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        numpy.random.set_state(numpy_state)


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


def _replace(file: Path, write: Callable[[Path], Any]) -> None:
    """Write a file so that it is there whole or not at all, also after a power cut."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=file.name, suffix=".part")
    os.close(descriptor)
    part = Path(name)
    try:
        write(part)
        with part.open("rb") as opened:
            os.fsync(opened.fileno())
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _only_one(file: Path) -> Iterator[None]:
    """Wait until no other process is inside; a process that dies leaves by that."""
    import fcntl

    with file.open("w") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX)
        except OSError as error:  # some network disks have no locks: then both may make it
            _warn(f"{file} cannot be locked ({error})")
        yield


def _warn(sentence: str) -> None:
    print(f"triptych: {sentence}", file=sys.stderr, flush=True)

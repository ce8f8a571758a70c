"""Find studies: those of the package by name, a user's own by file.

A study crosses from one process to another as text, so that nothing but plain data is sent:

    triptych.studies.training.exact_gap:STUDY   a name in a module
    my_study.py                                 a file with STUDY
    my_study.py:OTHER                           another name in it
"""

import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from triptych.core.errors import UserError
from triptych.lab.running.fingerprint import OWN_FILE
from triptych.studies.api.study import AnyStudy, Study


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
    digest = hashlib.sha256(str(path).encode() + path.read_bytes()).hexdigest()[:8]
    name = f"{OWN_FILE}{path.stem}_{digest}"
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

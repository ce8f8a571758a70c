"""Find studies: those of the package by name, a user's own by file.

A study crosses from one process to another as text, so that nothing but plain data is sent:

    triptych.studies.training.exact_gap:STUDY   a name in a module
    my_study.py                                 a file with STUDY
    my_study.py:OTHER                           another name in it
"""

import hashlib
import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from triptych.core.errors import UserError
from triptych.lab import kept
from triptych.lab.running.fingerprint import OWN_FILE
from triptych.lab.running.reached import digest_reached, edited
from triptych.lab.running.sources import PACKAGE
from triptych.studies.api.study import AnyStudy, Study

_KEPT = "studies"  # names and claims of studies, in the user's folder for caches
_MOST_KEPT = 400


class Known(NamedTuple):
    """What is known of a study without importing it."""

    name: str
    module: str
    claims: tuple[str, ...]


class Studies(Mapping[str, AnyStudy]):
    """Studies by name; each is imported when it is asked for."""

    def __init__(self, known: Mapping[str, Known]) -> None:
        self._known = known

    def __getitem__(self, name: str) -> AnyStudy:
        return importlib.import_module(self._known[name].module).STUDY

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def module(self, name: str) -> str:
        """The module that has the study."""
        return self._known[name].module

    def judges(self) -> dict[str, str]:
        """Id of a claim -> the study that judges it."""
        return {claim: each.name for each in self._known.values() for claim in each.claims}


def find_studies() -> Studies:
    """The studies of the package by name: every module under `triptych.studies` with STUDY."""
    found: dict[str, Known] = {}
    for file in sorted((PACKAGE / "studies").rglob("*.py")):
        if not re.search(r"^STUDY\b", file.read_text("utf-8"), re.MULTILINE):
            continue
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        module = ".".join(["triptych", *parts]).removesuffix(".__init__")
        known = _known(module)
        if known is None:
            continue
        if known.name in found:
            raise ValueError(f"two studies are called {known.name!r}; one is in {module}")
        found[known.name] = known
    return Studies(dict(sorted(found.items())))


def _known(module: str) -> Known | None:
    """What is known of the study in a module: kept as long as the sources are the same."""
    name = kept.name_of([module, digest_reached([module])])
    try:
        said, claims = json.loads(kept.read(_KEPT, name) or "")
        return Known(str(said), module, tuple(map(str, claims)))
    except (ValueError, TypeError):
        study = vars(importlib.import_module(module)).get("STUDY")
        if not isinstance(study, Study):
            return None
        claims = [claim.id for claim in study.claims]
        if not edited([module]):
            kept.keep(_KEPT, name, json.dumps([study.name, claims]), most=_MOST_KEPT)
        return Known(study.name, module, tuple(claims))


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
        "or a file (STUDY = Study(...)) and load it from there, or run it with 0 workers",
        parameter="study",
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
    """A file as a module, once as long as it is not changed; it may import what lies next to it."""
    path = path.resolve()
    if not path.is_file():
        raise UserError(f"there is no file {path}", parameter="path")
    digest = hashlib.sha256(str(path).encode() + path.read_bytes()).hexdigest()[:8]
    name = f"{OWN_FILE}{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file", parameter="path")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module

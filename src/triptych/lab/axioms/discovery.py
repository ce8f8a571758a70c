"""Find what can be checked: every module with `examples()`, ours, a plug-in's or a user's own file.

A user's file may also have a study. Its form is checked, and its claims: whether rows can refute
them. So may an installed package that offers studies.
"""

import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from triptych.core.plugins import plugins
from triptych.core.validation import UserError
from triptych.studies.api.study import Study


class Example(NamedTuple):
    """One entry of some module's `examples()`, or a claim; `about`: first line of the module."""

    module: str
    name: str
    value: Any
    about: str

    @property
    def label(self) -> str:
        return f"{self.module}: {self.name}"


def package_examples(package: str) -> list[Example]:
    """All examples of the modules of a package and its folders, in the order of their names."""
    parent = importlib.import_module(package)
    found: list[Example] = []
    for info in pkgutil.walk_packages(parent.__path__, f"{package}."):
        module = importlib.import_module(info.name)
        found += module_examples(module, info.name.rpartition(".")[2])
    return found


def offered_examples() -> list[Example]:
    """What installed packages offer: examples of structures and algorithms, claims of studies.

    What cannot be loaded or has none is an example whose value is the error.
    """
    found: list[Example] = []
    for group in ("structures", "algorithms", "studies"):
        for plugin in plugins(group).values():
            label = f"{plugin.package}: {plugin.name}"
            try:
                plugin.load()
                module = sys.modules[plugin.module]
                new = _claims(module, label) if group == "studies" else _examples(module, label)
                found += new
            except UserError as error:
                found.append(Example(label, plugin.place, error, ""))
    return found


def _examples(module: ModuleType, label: str) -> list[Example]:
    """The examples of a module that must have some."""
    found = module_examples(module, label)
    if not found:
        raise UserError(
            f"{module.__name__} has no function examples() with an example", parameter="module"
        )
    return found


def file_examples(path: Path) -> list[Example]:
    """The examples of a Python file outside the package, its studies and their claims."""
    if not path.is_file():
        raise UserError(f"there is no file {path}", parameter="path")
    name = f"triptych_user_file_{path.stem}"  # never the name of an installed module
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file", parameter="path")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
        found = [*module_examples(module, path.stem), *_claims(module, path.stem)]
    except Exception as error:
        raise UserError(
            f"{path} cannot be used: {type(error).__name__}: {error}", parameter="path"
        ) from error
    if not found:
        raise UserError(
            f"{path} has no function examples() that returns a dictionary of structures or "
            "samplers, and no study",
            parameter="path",
        )
    return found


def module_examples(module: ModuleType, label: str) -> list[Example]:
    examples = getattr(module, "examples", None)
    if examples is None:
        return []
    found = examples()
    if not isinstance(found, dict):
        raise UserError(f"examples() returned a {type(found).__name__}, not a dictionary")
    about = (module.__doc__ or "").strip().partition("\n")[0]
    return [Example(label, name, value, about) for name, value in found.items()]


def _claims(module: ModuleType, label: str) -> list[Example]:
    """The studies that a module has, each once, and their claims."""
    studies = {id(value): value for value in vars(module).values() if isinstance(value, Study)}
    about = (module.__doc__ or "").strip().partition("\n")[0]
    return [
        Example(label, name, value, about)
        for study in studies.values()
        for name, value in [(study.name, study), *((claim.id, claim) for claim in study.claims)]
    ]

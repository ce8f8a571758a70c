"""The exact law of anybody's sampler: programs of torch, numpy and Python's random, as they stand.

    law_of(program, *args)          its law, exact (`Law`) or with bounds (`BoundedLaw`)

Names are loaded when they are first used, so that the pytest plug-in costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triptych.laws.law import BoundedLaw as BoundedLaw
    from triptych.laws.law import Law as Law
    from triptych.laws.program import law_of as law_of

_HOME = {"law": ["BoundedLaw", "Law"], "program": ["law_of"]}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'triptych.laws' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"triptych.laws.{_MODULE_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)

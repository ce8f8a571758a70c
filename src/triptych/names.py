"""Public names that are loaded when they are first used: of `triptych` and its namespaces.

Each of these modules lists its names once, as imports under `if TYPE_CHECKING`, which editors and
type checkers read. `python tools/names.py` writes the table `_HOME` from them; a test compares.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loaded_when_used(
    module: str, home: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module.

    home    name -> "inference.chains.gibbs" for a module, "core.table:Table" for what is in one
    """

    def look_up(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {module!r} has no attribute {name!r}: see help({module})")
        place, _, inside = home[name].partition(":")
        found = import_module(f"triptych.{place}")
        found = getattr(found, inside) if inside else found
        setattr(sys.modules[module], name, found)
        return found

    def names() -> list[str]:
        return sorted({*home, *(name for name in vars(sys.modules[module]) if name[:2] == "__")})

    return look_up, names

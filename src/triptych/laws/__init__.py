"""The exact law of anybody's sampler: programs of torch, numpy and Python's random, as they stand.

    law_of(program, *args)          its law, exact (`Law`) or with bounds (`BoundedLaw`)
    kernel_of(step, states)         the transition matrix of a chain (`Kernel`), or bounds on it
    certify_by_draws(sampler, law)  a test that may be stopped at any time (`Certificate`)
    assert_law, assert_invariant    the same in a test

Names are loaded when they are first used, so that the pytest plug-in costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triptych.laws.certify import Certificate as Certificate
    from triptych.laws.certify import certify_by_draws as certify_by_draws
    from triptych.laws.certify import draws_needed as draws_needed
    from triptych.laws.checks import assert_invariant as assert_invariant
    from triptych.laws.checks import assert_law as assert_law
    from triptych.laws.kernel import BoundedKernel as BoundedKernel
    from triptych.laws.kernel import Kernel as Kernel
    from triptych.laws.kernel import kernel_of as kernel_of
    from triptych.laws.law import BoundedLaw as BoundedLaw
    from triptych.laws.law import Law as Law
    from triptych.laws.program import law_of as law_of

_HOME = {
    "certify": ["Certificate", "certify_by_draws", "draws_needed"],
    "checks": ["assert_invariant", "assert_law"],
    "kernel": ["BoundedKernel", "Kernel", "kernel_of"],
    "law": ["BoundedLaw", "Law"],
    "program": ["law_of"],
}
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

"""The two shapes an inference algorithm can take, and the promise each one makes.

A `OneShot` algorithm builds an outcome from nothing. A `Chain` moves from one state to the
next. Both are plain functions; these records only say what to check them against, and
`core.axioms.check_sampler` does it by enumeration, without sampling noise.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from triptych.core.protocols import Rng


class OneShot(NamedTuple):
    """`attempt(rng)` returns an outcome, or None when it rejects.

    Promise: given that it does not reject, its law is `target`. A sampler that may go on forever
    is enumerated down to branches of probability `cutoff`, and may be off by what that leaves out.
    """

    attempt: Callable[[Rng], Hashable | None]
    target: Mapping[Any, float]
    cutoff: float = 0.0


class Chain(NamedTuple):
    """`step(state, rng)` returns the next state.

    Promise: it leaves `target` invariant, and if `reversible`, satisfies detailed balance.
    """

    step: Callable[[Any, Rng], Hashable]
    target: Mapping[Any, float]
    reversible: bool = False

"""What a test of a sampler calls: it passes, or fails with what one needs to mend the sampler."""

from collections.abc import Callable
from typing import Any

from triptych.core.validation import Count, Number, as_number
from triptych.laws.kernel import BoundedKernel, Kernel, kernel_of
from triptych.laws.law import ATOL, Target
from triptych.laws.outcomes import as_probs
from triptych.laws.program import BUDGET, law_of


def assert_law(
    program: Callable[..., Any],
    target: Target,
    *args: Any,
    atol: Number = ATOL,
    budget: Count = BUDGET,
    **kwargs: Any,
) -> None:
    """The law of `program(*args)` is the target: each probability within `atol`.

    Else AssertionError names the outcome, both probabilities, the choices that lead there and the
    lines of the draws.
    """
    law_of(program, *args, budget=budget, **kwargs).assert_equals(target, float(atol))


def assert_invariant(
    step: Callable[[Any], Any],
    law: Target,
    *,
    atol: Number = ATOL,
    reversible: bool = False,
    budget: Count = BUDGET,
) -> Kernel | BoundedKernel:
    """A step keeps the law; and satisfies detailed balance, if asked. Gives the kernel.

    Of a kernel with bounds the most that the law may be moved counts: it fails if that is more
    than `atol`, and says how much was not followed.
    """
    atol = as_number("atol", atol, at_least=0)
    kernel = kernel_of(step, list(as_probs("law", law)), budget=budget)
    least, most = _bounds(kernel, kernel.invariance(law))
    if least > atol:
        raise AssertionError(
            f"a step moves the law by {least:.6g} in total variation"
            f"{'' if isinstance(kernel, Kernel) else ' at least'}; after the step "
            f"{kernel.worst(law)}"
        )
    unbalanced, at_most = _bounds(kernel, kernel.reversibility(law))
    if reversible and unbalanced > atol:
        raise AssertionError(f"detailed balance is off by {unbalanced:.6g}")
    if isinstance(kernel, BoundedKernel) and max(most, at_most if reversible else 0.0) > atol:
        raise AssertionError(
            f"a step may move the law by up to {most:.6g} in total variation, more than {atol:g}: "
            f"of one state a mass of {float(kernel.missing.max()):.3g} was not followed"
        )
    return kernel


def _bounds(
    kernel: Kernel | BoundedKernel, found: float | tuple[float, float]
) -> tuple[float, float]:
    """An answer as an interval: of an exact kernel by what small numbers change."""
    if isinstance(found, tuple):
        return found
    return max(0.0, found - kernel.left_out), found + kernel.left_out

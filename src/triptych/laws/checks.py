"""What a test of a sampler calls: it passes, or fails with what one needs to mend the sampler."""

from collections.abc import Callable
from typing import Any

from triptych.core.validation import Count, Number, as_number
from triptych.laws.kernel import Kernel, kernel_of
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
    step: Callable[[Any], Any], law: Target, *, atol: Number = ATOL, reversible: bool = False
) -> Kernel:
    """A step keeps the law; and satisfies detailed balance, if asked. Gives the kernel."""
    atol = as_number("atol", atol, at_least=0)
    kernel = kernel_of(step, list(as_probs("law", law)))
    off = kernel.invariance(law)
    if off > atol:
        raise AssertionError(
            f"a step moves the law by {off:.6g} in total variation; after the step "
            f"{kernel.worst(law)}"
        )
    if reversible and (unbalanced := kernel.reversibility(law)) > atol:
        raise AssertionError(f"detailed balance is off by {unbalanced:.6g}")
    return kernel

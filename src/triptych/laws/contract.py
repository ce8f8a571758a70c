"""A contract: what a kind of sampler promises, on a small case, and how a sampler is held to it.

Each file of `contracts` has one kind: the law or the kernel that is promised, a worked value, a
right sampler, and a wrong one that the contract catches.
"""

import importlib
import math
import pkgutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from triptych.core.errors import UserError
from triptych.laws import contracts
from triptych.laws.kernel import BoundedKernel, kernel_of
from triptych.laws.law import BoundedLaw, Worst
from triptych.laws.outcomes import as_probs
from triptych.laws.program import BUDGET, law_of

Says = Literal["keeps its promise", "breaks its promise", "not entered"]
TOLERANCE = 1e-6  # of probabilities that a sampler computes in float32
_UNKNOWN = 1e-3  # more missing mass than this, and a bound decides nothing


@dataclass(frozen=True)
class Contract:
    """A promise about `sampler`, which is called as `call` says.

    call
        The arguments of the sampler and what it returns, in words.
    program
        sampler -> a program without arguments, whose law is promised; of a chain, its step.
    target
        The promised law; of a chain, the law that a step keeps; of a mean, {mean: 1}. Where the
        best is promised and nothing is drawn, the score of every outcome.
    """

    name: str
    promise: str
    call: str
    program: Callable[[Callable[..., Any]], Callable[..., Any]]
    target: Mapping[Any, float]
    right: Callable[..., Any]
    wrong: Callable[..., Any]
    kind: Literal["law", "kernel", "mean", "best"] = "law"


@dataclass(frozen=True)
class Verdict:
    """Whether a sampler keeps a contract.

    distance
        Total variation from the promised law; of a mean, how far it is off; where the best is
        promised, the probability of anything else than one best outcome. None if not entered.
    counterexample
        The outcome that shows it, with both probabilities and the way there.
    """

    says: Says
    distance: float | None
    counterexample: str = ""
    seconds: float = 0.0
    exact: bool = True
    facts: dict[str, float] = field(default_factory=dict)


def all_contracts() -> dict[str, Contract]:
    """The ready contracts, by name."""
    found: dict[str, Contract] = {}
    for info in sorted(pkgutil.iter_modules(contracts.__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{contracts.__name__}.{info.name}")
        found |= {contract.name: contract for contract in module.CONTRACTS}
    return found


def judge(
    contract: Contract,
    sampler: Callable[..., Any],
    tolerance: float = TOLERANCE,
    *,
    budget: int = BUDGET,
) -> Verdict:
    """Hold a sampler to a contract; what cannot be enumerated is 'not entered', with the reason."""
    start = time.perf_counter()
    try:
        verdict = _JUDGES[contract.kind](
            contract.program(sampler), contract.target, tolerance, budget=budget
        )
    except UserError as reason:
        verdict = Verdict("not entered", None, str(reason))
    seconds = time.perf_counter() - start
    return Verdict(**{**vars(verdict), "seconds": seconds})


def judge_law(
    program: Callable[..., Any],
    target: Any,
    tolerance: float = TOLERANCE,
    *,
    budget: int = BUDGET,
) -> Verdict:
    """Hold the law of a program to a target."""
    law = law_of(program, budget=budget)
    if isinstance(law, BoundedLaw):
        least, most = law.total_variation(target)
        if least > tolerance:
            return Verdict("breaks its promise", least, str(law.worst(target)), exact=False)
        if most - least > max(tolerance, _UNKNOWN):
            reason = f"a mass of {law.missing:.3g} was not followed within {law.runs} runs"
            return Verdict("not entered", None, reason, exact=False)
        return Verdict("keeps its promise", most, exact=False, facts={"missing": law.missing})
    off = law.total_variation(target)
    facts = {"nats": law.kl(target)}
    if off > tolerance + law.left_out:
        return Verdict("breaks its promise", off, str(law.worst(target)), facts=facts)
    return Verdict("keeps its promise", off, facts=facts)


def _judge_kernel(
    step: Callable[..., Any], target: Any, tolerance: float, *, budget: int
) -> Verdict:
    kernel = kernel_of(step, list(as_probs("target", target)), budget=budget)
    if isinstance(kernel, BoundedKernel):
        least, most = kernel.invariance(target)
        if least > tolerance:
            text = f"after a step {kernel.worst(target)}"
            return Verdict("breaks its promise", least, text, exact=False)
        missing = float(kernel.missing.max())
        if most - least > max(tolerance, _UNKNOWN):
            reason = f"of one state a mass of {missing:.3g} was not followed"
            return Verdict("not entered", None, reason, exact=False)
        return Verdict("keeps its promise", most, exact=False, facts={"missing": missing})
    off = kernel.invariance(target)
    if off > tolerance + kernel.left_out:
        return Verdict("breaks its promise", off, f"after a step {kernel.worst(target)}")
    return Verdict("keeps its promise", off, facts={"spectral gap": kernel.spectral_gap()})


def _judge_mean(
    program: Callable[..., Any], target: Any, tolerance: float, *, budget: int
) -> Verdict:
    law = law_of(program, budget=budget)
    if isinstance(law, BoundedLaw):
        return Verdict("not entered", None, f"a mass of {law.missing:.3g} was not followed")
    (mean,) = target
    found = law.expectation(float)
    off = abs(found - mean)
    if off > tolerance * max(1.0, abs(mean)):
        least, most = min(law.probs), max(law.probs)
        text = (
            f"the mean is {found:.6g} and not {mean:.6g}; values go from {least:.6g} to {most:.6g}"
        )
        return Verdict("breaks its promise", off, text)
    return Verdict("keeps its promise", off if math.isfinite(off) else None)


def _judge_best(
    program: Callable[..., Any], scores: Any, tolerance: float, *, budget: int
) -> Verdict:
    """Whether the law is one outcome, and one of the highest score."""
    law = law_of(program, budget=budget)
    if isinstance(law, BoundedLaw):
        return Verdict("not entered", None, f"a mass of {law.missing:.3g} was not followed")
    best = max(scores.values())
    among = [x for x in law.probs if best - scores.get(x, -math.inf) <= tolerance]
    first = max(among, key=law.probs.__getitem__, default=max(scores, key=scores.__getitem__))
    off = law.total_variation({first: 1.0})
    behind = best - math.fsum(p * scores.get(x, -math.inf) for x, p in law.probs.items())
    facts = {"outcomes": float(len(law.probs)), "behind the best": behind}
    if off <= tolerance:
        return Verdict("keeps its promise", off, facts=facts)
    came = max((x for x in law.probs if x != first), key=law.probs.__getitem__)
    score = scores.get(came, -math.inf)
    said = f"has the score {score:.6g}" if score > -math.inf else "is none of those to choose from"
    way = Worst(came, law.probs[came], 0.0, law.paths.get(came, ()))
    text = f"{came!r} {said}, and {first!r} has {best:.6g}, the best; {way}"
    return Verdict("breaks its promise", off, text, facts=facts)


_JUDGES: dict[str, Callable[..., Verdict]] = {
    "law": judge_law,
    "kernel": _judge_kernel,
    "mean": _judge_mean,
    "best": _judge_best,
}

"""What is known of the law of a program: all of it (`Law`), or bounds (`BoundedLaw`).

Law           every choice was enumerated; each probability is exact, to the rounding of floats
BoundedLaw    p <= P(x) <= p + missing for every outcome x
"""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from triptych.core import enumeration
from triptych.core.display import MAX_BARS, bars, card, counted, facts_table, records_table
from triptych.core.errors import UserError
from triptych.core.validation import as_number
from triptych.laws.outcomes import as_probs, canonical
from triptych.laws.search import Choice

Target = Any
"""A law to compare with: a dict from outcomes to probabilities, a tensor, or a law."""

_SHOWN = 6  # choices of a path, and outcomes of a message
ATOL = 1e-9


class Worst(NamedTuple):
    """The outcome where two laws differ most, with both probabilities and a way there."""

    outcome: Hashable
    probability: float
    target: float
    choices: tuple[Choice, ...]

    def __str__(self) -> str:
        text = (
            f"outcome {self.outcome!r} has probability {self.probability:.6g}, "
            f"and {self.target:.6g} in the target"
        )
        if not self.choices:
            return f"{text}; no sequence of choices leads there"
        kept = self.choices[-_SHOWN:]
        cut = (
            [f"  ... {len(self.choices) - _SHOWN} choices before"]
            if len(kept) < len(self.choices)
            else []
        )
        steps = [f"  {choice}" for choice in kept]
        return "\n".join([f"{text}; the likeliest way there:", *cut, *steps])


@dataclass(frozen=True, repr=False)
class Law(enumeration.ExactLaw):
    """An exact law: outcome -> probability, and for each outcome the likeliest way to it.

    left_out
        A bound, in total variation, on what small numbers against log(0) change; 0 without them.
    runs
        How many times the program ran.

    P("HH") of two fair coins is 1/4:

    >>> from triptych.laws import law_of
    >>> import random
    >>> law_of(lambda: random.choice("HT") + random.choice("HT")).probs["HH"]
    0.25
    """

    paths: dict[Any, tuple[Choice, ...]] = field(default_factory=dict, compare=False)
    left_out: float = 0.0
    runs: int = 0

    @property
    def exact(self) -> bool:
        """Whether nothing at all was left out."""
        return self.left_out == 0

    def _repr_html_(self) -> str:
        return _page("Law", self.probs, {"runs": self.runs, "left out": self.left_out})

    def total_variation(self, target: Target) -> float:
        """½ Σ |p - q| over the union of the supports."""
        return super().total_variation(as_probs("target", target))

    def kl(self, target: Target) -> float:
        """Σ p log(p / q) in nats; infinite where q misses an outcome of p."""
        other = as_probs("target", target)
        return math.fsum(_kl_term(p, other.get(x, 0.0)) for x, p in self.probs.items())

    def marginal(self, part: "int | Callable[[Any], Any]") -> "Law":
        """The law of a component of the outcome, or of a function of it.

        >>> from triptych.laws import law_of
        >>> import random
        >>> pair = law_of(lambda: (random.randrange(2), random.randrange(3)))
        >>> pair.marginal(1).probs[2]  # doctest: +ELLIPSIS
        0.333333333333333...
        """
        function = part if callable(part) else _component(part)
        probs: dict[Any, float] = {}
        paths: dict[Any, tuple[Choice, ...]] = {}
        for outcome, p in self.probs.items():
            key = canonical(function(outcome))
            probs[key] = probs.get(key, 0.0) + p
            paths.setdefault(key, self.paths.get(outcome, ()))
        return Law(probs, 0.0, paths, self.left_out, self.runs)

    def worst(self, target: Target) -> Worst:
        """Where the laws differ most."""
        return _worst(self.probs, self.paths, as_probs("target", target))

    def assert_equals(self, target: Target, atol: float = ATOL) -> None:
        """Raise AssertionError, with the worst outcome, if some probability is off by more."""
        atol = as_number("atol", atol, at_least=0)
        found = self.worst(target)
        if abs(found.probability - found.target) > atol + self.left_out:
            raise AssertionError(
                f"the law is {self.total_variation(target):.6g} in total variation from the "
                f"target: {found}"
            )


@dataclass(frozen=True)
class BoundedLaw:
    """A law of which a part is known: p <= P(x) <= p + missing for every outcome.

    probs
        Lower bounds; of an outcome that is not here the lower bound is 0.
    missing
        The mass of what was not followed: branches after the budget, or below the cutoff.
    """

    probs: dict[Any, float]
    missing: float
    paths: dict[Any, tuple[Choice, ...]] = field(default_factory=dict, compare=False, repr=False)
    left_out: float = 0.0
    runs: int = 0

    def __repr__(self) -> str:
        law = repr(enumeration.ExactLaw(self.probs)).removeprefix("ExactLaw(")
        return f"BoundedLaw({law[:-1]}; each may be up to {self.missing:.3g} more)"

    def _repr_html_(self) -> str:
        facts = {"runs": self.runs, "mass not followed": self.missing, "left out": self.left_out}
        return _page("Bounds on a law", self.probs, facts)

    def bounds(self, outcome: Any) -> tuple[float, float]:
        """The least and the most that P(outcome) can be."""
        low = self.probs.get(canonical(outcome), 0.0)
        return max(0.0, low - self.left_out), min(1.0, low + self.missing + self.left_out)

    def total_variation(self, target: Target) -> tuple[float, float]:
        """The least and the most that the total variation from the target can be.

        Σ max(0, p - q), and that plus the missing mass.
        """
        other = as_probs("target", target)
        over = math.fsum(max(0.0, p - other.get(x, 0.0)) for x, p in self.probs.items())
        return max(0.0, over - self.left_out), min(1.0, over + self.missing + self.left_out)

    def marginal(self, part: "int | Callable[[Any], Any]") -> "BoundedLaw":
        """Bounds on the law of a component of the outcome, or of a function of it."""
        law = Law(self.probs, 0.0, self.paths).marginal(part)
        return BoundedLaw(law.probs, self.missing, law.paths, self.left_out, self.runs)

    def expectation(
        self, f: Callable[[Any], float], low: float, high: float
    ) -> tuple[float, float]:
        """The least and the most that E f(x) can be, for an f between `low` and `high`."""
        known = math.fsum(p * f(x) for x, p in self.probs.items())
        unknown = min(1.0, self.missing + self.left_out)
        return known + unknown * low, known + unknown * high

    def worst(self, target: Target) -> Worst:
        """Where the lower bound differs most from the target."""
        return _worst(self.probs, self.paths, as_probs("target", target))

    def assert_equals(self, target: Target, atol: float = ATOL) -> None:
        """Raise AssertionError if the law differs, or if too much is missing to tell."""
        least, most = self.total_variation(target)
        if least > atol:
            raise AssertionError(
                f"the law is at least {least:.6g} in total variation from the target: "
                f"{self.worst(target)}"
            )
        if most > atol:
            raise AssertionError(
                f"the law may be up to {most:.6g} in total variation from the target, more than "
                f"{atol:g}: a mass of {self.missing:.3g} was not followed within the budget"
            )


def _component(index: int) -> Callable[[Any], Any]:
    def component(outcome: Any) -> Any:
        try:
            return outcome[index]
        except (TypeError, IndexError, KeyError):
            raise UserError(f"the outcome {outcome!r} has no component {index}") from None

    return component


def _kl_term(p: float, q: float) -> float:
    if p <= 0:
        return 0.0
    return math.inf if q <= 0 else p * math.log(p / q)


def _worst(
    probs: Mapping[Any, float], paths: Mapping[Any, tuple[Choice, ...]], other: Mapping[Any, float]
) -> Worst:
    outcomes = [*probs, *(x for x in other if x not in probs)]
    if not outcomes:
        raise UserError("neither law has an outcome")
    at = max(outcomes, key=lambda x: abs(probs.get(x, 0.0) - other.get(x, 0.0)))
    return Worst(at, probs.get(at, 0.0), other.get(at, 0.0), paths.get(at, ()))


def _page(title: str, probs: Mapping[Any, float], facts: dict[str, Any]) -> str:
    likely = sorted(probs.items(), key=lambda item: -item[1])
    named = [(repr(outcome), p) for outcome, p in likely[:MAX_BARS]]
    rows = [(repr(outcome), f"{p:.10g}") for outcome, p in likely[:MAX_BARS]]
    more = max(0, len(likely) - MAX_BARS)
    return card(
        title,
        facts_table({"outcomes": len(probs), **facts}),
        bars(named, title="most likely outcomes", more=more),
        records_table(["outcome", "probability"], rows, counted(more, "more") if more else ""),
    )

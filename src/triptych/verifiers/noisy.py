"""Verifiers with a dial for how wrong they are, around any other verifier.

The noise of a prefix is a function of the seed and the prefix alone, so a verifier gives the same
answer whenever it is asked again, in any batch and on any device. `length` (and `end_token`, where
strings end earlier) tells which prefixes are full strings: there the answer is the wrapped one, as
the outcome is usually known; without them the noise is everywhere. Verifiers wrap each other; give
each its own seed, as equal seeds make equal noise.

Notation
--------
V   the wrapped verifier      V̂   the noisy one      u   uniform on [0, 1), one for each prefix
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.display import name_of
from triptych.core.protocols import Value
from triptych.core.streams import hashed_uniform
from triptych.core.validation import (
    EndToken,
    Number,
    Prefix,
    UserError,
    as_count,
    as_flag,
    as_integers,
    as_number,
    as_probability,
    check_can,
    set_fields,
)
from triptych.verifiers.exact import as_ends, finished, values_of

_LARGEST_COSH = 8e307  # exp(arccosh) of it is a float, just below 2^1024


@dataclass(frozen=True, eq=False)
class WithinFactor:
    """V̂ = V (1 + ε)^s with s uniform on [-1, 1): within a factor 1 + ε of V at every prefix.

    extremes: s is -1 or 1, each with probability ½. V̂ may be above 1.

    Worked value: ε = 1 and u = ¾ have s = ½, so V̂ = √2 V; with extremes V̂ = 2 V.
    """

    value: Value
    epsilon: float
    seed: int
    length: int | None = None
    end_token: EndToken | None = None
    extremes: bool = False

    def __post_init__(self) -> None:
        _clean(self)
        extremes = as_flag("extremes", self.extremes)
        set_fields(self, epsilon=_as_epsilon(self.epsilon), extremes=extremes)

    def __repr__(self) -> str:
        return f"WithinFactor({name_of(self.value)}, epsilon {self.epsilon:g}, seed {self.seed})"

    def log_value(self, prefix: Prefix) -> Float[Tensor, " batch"]:
        prefix = as_integers("prefix", prefix, dimensions=2)
        power = 2 * hashed_uniform(self.seed, prefix) - 1
        if self.extremes:
            power = _either(power < 0, -1.0, 1.0)
        return _times(self.value, prefix, power * math.log1p(self.epsilon), self)


@dataclass(frozen=True, eq=False)
class AverageCase:
    """V̂ = V, but with probability `rare` V times M or V / M: wrong by little only on average.

    log M = arccosh(1 + ε / rare), and M or 1/M are equally likely, so that over the noise
    E[V̂/V] = E[V/V̂] = 1 - rare + rare (M + 1/M) / 2 = 1 + ε exactly. The rarer, the larger: M is
    about 2 ε / rare. On one seed the mean over prefixes is 1 + ε only as the mean of draws is.

    Worked value: ε = 1/40 and rare = 1/10 give (M + 1/M) / 2 = 5/4, so M = 2.
    """

    value: Value
    epsilon: float
    seed: int
    rare: float = 0.01
    length: int | None = None
    end_token: EndToken | None = None

    def __post_init__(self) -> None:
        _clean(self)
        epsilon, rare = _as_epsilon(self.epsilon), as_probability("rare", self.rare)
        if rare == 0:
            raise UserError(
                "rare is 0.0; it must be a probability above 0, at most 1", parameter="rare"
            )
        if 1 + epsilon / rare > _LARGEST_COSH:
            raise UserError(
                f"epsilon is {epsilon:g} and rare is {rare:g}, so that the factor of rare errors, "
                "about 2 epsilon / rare, is beyond the range of floats; give a smaller epsilon",
                parameter="epsilon",
            )
        set_fields(self, epsilon=epsilon, rare=rare)

    def __repr__(self) -> str:
        noise = f"epsilon {self.epsilon:g}, rare {self.rare:g}, seed {self.seed}"
        return f"AverageCase({name_of(self.value)}, {noise})"

    @property
    def factor(self) -> float:
        """M, the factor of a prefix that is wrong."""
        return math.exp(math.acosh(1 + self.epsilon / self.rare))

    def log_value(self, prefix: Prefix) -> Float[Tensor, " batch"]:
        prefix = as_integers("prefix", prefix, dimensions=2)
        u = hashed_uniform(self.seed, prefix)
        sign = (u < self.rare).double() - 2 * (u < self.rare / 2).double()
        return _times(self.value, prefix, sign * math.log(self.factor), self)


@dataclass(frozen=True, eq=False)
class Delayed:
    """V̂(x_≤t) = V(x_<t): a verifier that has not seen the last token; V̂(empty) = V(empty).

    Worked value: if V says that no string has a 1, V̂(1) = V(empty) = 1, and V̂(10) = V(1) = 0.
    """

    value: Value
    length: int | None = None
    end_token: EndToken | None = None

    def __post_init__(self) -> None:
        _clean(self)

    def __repr__(self) -> str:
        return f"Delayed({name_of(self.value)})"

    def log_value(self, prefix: Prefix) -> Float[Tensor, " batch"]:
        prefix = as_integers("prefix", prefix, dimensions=2)
        full = finished(prefix, self.length, self.end_token)
        values = torch.empty(len(prefix), dtype=torch.float64, device=prefix.device)
        for rows, seen in ((full, prefix), (~full, prefix[:, :-1])):
            if rows.any():
                values[rows] = values_of(self.value, seen[rows])
        return values


@dataclass(frozen=True, eq=False)
class Flipped:
    """A hard verifier that is wrong at random: it lets bad prefixes pass, and refuses good ones.

    false_accept, false_reject
        Probability of a wrong answer at a prefix that V refuses, and at one that it accepts. More
        errors contain fewer: a prefix flipped at a rate is flipped at every higher one.
    soft
        The answer is not 1 or 0 but 1 - soft or soft, as from one who is never quite sure.

    Worked value: false_reject = 0.3 refuses a good prefix with u = 0.2 and accepts one with 0.3;
    with soft = 0.1 the answers are log 0.1 and log 0.9.
    """

    value: Value
    false_accept: float
    false_reject: float
    seed: int
    length: int | None = None
    end_token: EndToken | None = None
    soft: float = 0.0

    def __post_init__(self) -> None:
        _clean(self)
        set_fields(
            self,
            false_accept=as_probability("false_accept", self.false_accept),
            false_reject=as_probability("false_reject", self.false_reject),
            soft=as_number("soft", self.soft, at_least=0, below=0.5),
        )

    def __repr__(self) -> str:
        noise = f"false accept {self.false_accept:g}, false reject {self.false_reject:g}"
        return f"Flipped({name_of(self.value)}, {noise}, seed {self.seed})"

    def log_value(self, prefix: Prefix) -> Float[Tensor, " batch"]:
        prefix = as_integers("prefix", prefix, dimensions=2)
        values = values_of(self.value, prefix)
        accepted = self._hard(values, prefix)
        rate = _either(accepted, self.false_reject, self.false_accept)
        said = accepted ^ (hashed_uniform(self.seed, prefix) < rate)
        answers = _either(said, 1 - self.soft, self.soft).log()
        return torch.where(finished(prefix, self.length, self.end_token), values, answers)

    def _hard(
        self, values: Float[Tensor, " batch"], prefix: Int[Tensor, "batch t"]
    ) -> Bool[Tensor, " batch"]:
        between = (values != 0) & ~torch.isneginf(values)
        if between.any():
            row = int(between.nonzero()[0])
            raise UserError(
                f"only the answers of a hard verifier can be flipped, 0 or -inf; "
                f"{type(self.value).__name__} says log V = {values[row].item():g} of "
                f"{prefix[row].tolist()}"
            )
        return values == 0


def _clean(noisy: "WithinFactor | AverageCase | Delayed | Flipped") -> None:
    """Check the fields that all of them have."""
    check_can("value", noisy.value, "log_value")
    length, end_token = as_ends(noisy.length, noisy.end_token)
    set_fields(noisy, length=length, end_token=end_token)
    if not isinstance(noisy, Delayed):
        seed = as_count("seed", noisy.seed, at_least=-(2**63), at_most=2**63 - 1)
        set_fields(noisy, seed=seed)


def _as_epsilon(epsilon: Number) -> float:
    return as_number("epsilon", epsilon, at_least=0)


def _either(chosen: Bool[Tensor, " batch"], a: float, b: float) -> Float[Tensor, " batch"]:
    """a where chosen and b elsewhere, in float64 (torch.where of two numbers is float32)."""
    return torch.full(chosen.shape, b, dtype=torch.float64, device=chosen.device).masked_fill(
        chosen, a
    )


def _times(
    value: Value,
    prefix: Int[Tensor, "batch t"],
    log_factor: Float[Tensor, " batch"],
    noise: WithinFactor | AverageCase,
) -> Float[Tensor, " batch"]:
    """log V plus the noise, which full strings do not have."""
    full = finished(prefix, noise.length, noise.end_token)
    return values_of(value, prefix) + log_factor.masked_fill(full, 0.0)

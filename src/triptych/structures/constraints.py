"""Constraint sets A and their perfect process verifiers [li, 3.1].

A constraint says of a prefix whether it can be completed to a member of A (`completable`), and is
a `Value` that algorithms can use: log V = 0 where it can, -inf where it cannot. On a full string
that is membership. `restricted(p, A)` is the law p(x | x in A) that constrained sampling aims at.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.display import cut
from triptych.core.protocols import Density
from triptych.core.table import Table
from triptych.core.validation import (
    Prefix,
    UserError,
    as_count,
    as_list,
    as_size,
    as_tokens,
    check_can,
    set_fields,
)

MAX_CAPACITY = 2**31 - 1  # the sums 0..capacity are kept in a table


@runtime_checkable
class Constraint(Protocol):
    """A set A of strings, known through its perfect process verifier."""

    def completable(self, prefix: Int[Tensor, "batch t"]) -> Bool[Tensor, " batch"]: ...

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, " batch"]: ...


class _HardValue:
    """log V from `completable`."""

    def completable(self, prefix: Prefix) -> Bool[Tensor, " batch"]:
        raise NotImplementedError

    def log_value(self, prefix: Prefix) -> Float[Tensor, " batch"]:
        """0 where `completable`, -inf elsewhere."""
        possible = self.completable(prefix)
        return torch.zeros_like(possible, dtype=torch.float64).masked_fill(~possible, -torch.inf)


@dataclass(frozen=True)
class _Bits(_HardValue):
    """A constraint on bit strings of `length` bits."""

    length: int

    def __post_init__(self) -> None:
        set_fields(self, length=as_size("length", self.length))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(length {self.length})"


@dataclass(frozen=True, repr=False)
class EvenParity(_Bits):
    """Bit strings of even sum. Worked value: D = 2: 00 and 11 are in A, and every 1-bit prefix
    can be completed."""

    def completable(self, prefix: Prefix) -> Bool[Tensor, " batch"]:
        prefix = _as_bits(prefix, self.length)
        return (prefix.sum(-1) % 2 == 0) | torch.tensor(prefix.shape[1] < self.length)


@dataclass(frozen=True, repr=False)
class AllZeros(_Bits):
    """A = {0^D}. Worked value: 0 can be completed, 1 cannot."""

    def completable(self, prefix: Prefix) -> Bool[Tensor, " batch"]:
        return (_as_bits(prefix, self.length) == 0).all(-1)


@dataclass(frozen=True, repr=False)
class SomeZero(_Bits):
    """Bit strings with at least one 0. Worked value: D = 2: 1 can be completed, 11 cannot."""

    def completable(self, prefix: Prefix) -> Bool[Tensor, " batch"]:
        prefix = _as_bits(prefix, self.length)
        return (prefix == 0).any(-1) | torch.tensor(prefix.shape[1] < self.length)


@dataclass(frozen=True)
class Knapsack(_HardValue):
    """Bit strings with Σ x_i weights_i = capacity [li, Theorem 3.1.2].

    Membership is easy, generation NP-hard; the process verifier here is the pseudo-polynomial
    table of sums that the remaining weights can make. Worked value: weights (3, 5, 2), capacity
    5: members are 010 and 101; the prefix 11 overshoots and 00 falls short.
    """

    weights: tuple[int, ...]
    capacity: int

    def __post_init__(self) -> None:
        given = as_list("weights", self.weights, "whole numbers")
        weights = tuple(as_count(f"weights[{i}]", weight) for i, weight in enumerate(given))
        as_size("the number of weights", len(weights))
        capacity = as_count("capacity", self.capacity, at_most=MAX_CAPACITY)
        set_fields(self, weights=weights, capacity=capacity)

    def __repr__(self) -> str:
        weights = cut(", ".join(map(str, self.weights)), 60)
        return f"Knapsack(weights {weights}; capacity {self.capacity})"

    @property
    def length(self) -> int:
        return len(self.weights)

    def completable(self, prefix: Prefix) -> Bool[Tensor, " batch"]:
        prefix = _as_bits(prefix, self.length)
        t = prefix.shape[1]
        # A weight above the capacity fits in no member, whatever it is; cut, no sum can overflow.
        cut = [min(weight, self.capacity + 1) for weight in self.weights[:t]]
        missing = self.capacity - (prefix * torch.tensor(cut, device=prefix.device).long()).sum(-1)
        reachable = self._reachable(t).to(prefix.device)
        return (missing >= 0) & reachable[missing.clamp(min=0)]

    def _reachable(self, t: int) -> Bool[Tensor, " sums"]:
        """Which sums 0..capacity some subset of weights_t.. makes."""
        sums = torch.zeros(self.capacity + 1, dtype=torch.bool)
        sums[0] = True
        for weight in self.weights[t:]:
            if weight <= self.capacity:
                shifted = torch.zeros_like(sums)
                shifted[weight:] = sums[: self.capacity + 1 - weight]
                sums = sums | shifted
        return sums


def restricted(
    density: Density, constraint: Constraint, *, device: torch.device | str = "cpu"
) -> Table:
    """p(x | x in A), by enumeration; raises when A has no mass under p."""
    check_can("constraint", constraint, "completable", "log_value")
    return Table.of(density, device=device).tilt(constraint.log_value)


def _as_bits(prefix: Prefix, length: int) -> Int[Tensor, "batch t"]:
    bits = as_tokens(prefix, 2, name="prefix")
    if bits.shape[1] > length:
        raise UserError(
            f"the prefix has {bits.shape[1]} bits; this constraint has {length}", parameter="prefix"
        )
    return bits

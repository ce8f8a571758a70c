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

from triptych.core.protocols import Density
from triptych.core.table import Table
from triptych.core.validation import check_count, check_tokens


@runtime_checkable
class Constraint(Protocol):
    """A set A of strings, known through its perfect process verifier."""

    def completable(self, prefix: Int[Tensor, "batch t"]) -> Bool[Tensor, " batch"]: ...

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, " batch"]: ...


class _HardValue:
    """log V from `completable`."""

    def completable(self, prefix: Int[Tensor, "batch t"]) -> Bool[Tensor, " batch"]:
        raise NotImplementedError

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Float[Tensor, " batch"]:
        """0 where `completable`, -inf elsewhere."""
        possible = self.completable(prefix)
        return torch.zeros_like(possible, dtype=torch.float64).masked_fill(~possible, -torch.inf)


@dataclass(frozen=True)
class EvenParity(_HardValue):
    """Bit strings of even sum. Worked value: D = 2: 00 and 11 are in A, and every 1-bit prefix
    can be completed."""

    length: int

    def completable(self, prefix: Int[Tensor, "batch t"]) -> Bool[Tensor, " batch"]:
        _check_bits(prefix, self.length)
        return (prefix.sum(-1) % 2 == 0) | torch.tensor(prefix.shape[1] < self.length)


@dataclass(frozen=True)
class AllZeros(_HardValue):
    """A = {0^D}. Worked value: 0 can be completed, 1 cannot."""

    length: int

    def completable(self, prefix: Int[Tensor, "batch t"]) -> Bool[Tensor, " batch"]:
        _check_bits(prefix, self.length)
        return (prefix == 0).all(-1)


@dataclass(frozen=True)
class SomeZero(_HardValue):
    """Bit strings with at least one 0. Worked value: D = 2: 1 can be completed, 11 cannot."""

    length: int

    def completable(self, prefix: Int[Tensor, "batch t"]) -> Bool[Tensor, " batch"]:
        _check_bits(prefix, self.length)
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
        check_count("number of weights", len(self.weights), at_least=1)
        for value in (*self.weights, self.capacity):
            check_count("a weight or the capacity", value, at_least=0)

    @property
    def length(self) -> int:
        return len(self.weights)

    def completable(self, prefix: Int[Tensor, "batch t"]) -> Bool[Tensor, " batch"]:
        _check_bits(prefix, self.length)
        t = prefix.shape[1]
        weights = torch.tensor(self.weights, device=prefix.device)
        missing = self.capacity - (prefix * weights[:t]).sum(-1)
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
    return Table.of(density, device=device).tilt(constraint.log_value)


def _check_bits(prefix: Int[Tensor, "batch t"], length: int) -> None:
    check_tokens(prefix, 2)
    if prefix.shape[1] > length:
        raise ValueError(f"the prefix has {prefix.shape[1]} bits; this constraint has {length}")

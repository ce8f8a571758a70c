"""Exact numbers about spins on a grid: expectations, and the law of a sampler after any steps.

    p(s) ∝ exp(J Σ_{i~j} s_i s_j + h Σ_i s_i)

Expectations are derivatives of log Z, which is added up row by row, so that they are exact on wide
grids too. A law is a vector of 2^N probabilities, and a step of a sampler moves it to another one:

    at once    every spin from its conditional given the old spins, independently
    blocks     a block, uniform among some, is hidden and each of its spins is drawn from its
               marginal given the rest, independently; with blocks of one this is Gibbs sampling

Notation
--------
N   spins of the grid      J   coupling      h   field      law   [2^N], lexicographic
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.table import all_sequences, places
from triptych.core.validation import Count, Number, as_count, as_number, as_size
from triptych.inference.chains.spins import colours
from triptych.structures.ising import Ising

_MAX_COLUMNS = 16


class Expectations(NamedTuple):
    """Per spin: E[Σ_i s_i] / N and E[-J Σ s_i s_j - h Σ s_i] / N."""

    magnetisation: float
    energy: float


def expectations(rows: Count, columns: Count, coupling: Number, field: Number) -> Expectations:
    """The means of a grid with free borders, exactly.

    Worked value: two spins with coupling J and no field have energy -tanh(J) J / 2 per spin and
    magnetisation 0.
    """
    rows, columns = (
        as_size("rows", rows),
        as_count("columns", columns, at_least=1, at_most=_MAX_COLUMNS),
    )
    numbers = (as_number("coupling", coupling), as_number("field", field))
    j, h = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in numbers)
    by_j, by_h = torch.autograd.grad(_log_partition(rows, columns, j, h), [j, h])
    spins = rows * columns
    energy = -(numbers[0] * float(by_j) + numbers[1] * float(by_h)) / spins
    return Expectations(float(by_h) / spins, energy)


def _log_partition(
    rows: int, columns: int, coupling: Float[Tensor, ""], field: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """log Z: the weights of all states of a row, from the first row to the last."""
    spins = (2 * all_sequences(2, columns) - 1).double()
    within = coupling * (spins[:, :-1] * spins[:, 1:]).sum(-1) + field * spins.sum(-1)
    sign = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    log_weights = within.reshape([2] * columns)
    for _ in range(rows - 1):
        for column in range(columns):  # Σ_s exp(J s s') of one column after the other
            last = log_weights.movedim(column, -1)
            last = (last[..., None, :] + coupling * sign).logsumexp(-1)
            log_weights = last.movedim(-1, column)
        log_weights = log_weights + within.reshape([2] * columns)
    return log_weights.logsumexp(list(range(columns)))


@runtime_checkable
class Mover(Protocol):
    """Moves a law by one step of a sampler."""

    def moved(self, law: Float[Tensor, " states"]) -> Float[Tensor, " states"]: ...


class AtOnce:
    """All spins are drawn together, each from its conditional given the old ones.

    A grid has two colours, and the new spins of one colour read old spins of the other alone:
    P(s'_1, s'_2 | s_1, s_2) = P(s'_1 | s_2) P(s'_2 | s_1), two small matrices.

    Worked value: two spins with coupling J that agree agree again with σ(2J)² + σ(-2J)².
    """

    def __init__(self, ising: Ising) -> None:
        first, second = colours(ising.coupling)
        self._spins, self._order = ising.length, [*first, *second]
        self._first_given = _drawn_given(ising, first, second)
        self._second_given = _drawn_given(ising, second, first)

    def moved(self, law: Float[Tensor, " states"]) -> Float[Tensor, " states"]:
        by_spin = law.reshape([2] * self._spins).permute(self._order)
        old = by_spin.reshape(len(self._second_given), len(self._first_given))
        new = self._first_given.T @ old.T @ self._second_given
        back = [self._order.index(i) for i in range(self._spins)]
        return new.reshape([2] * self._spins).permute(back).reshape(-1)


def _drawn_given(
    ising: Ising, drawn: Sequence[int], given: Sequence[int]
) -> Float[Tensor, "old new"]:
    """P(new spins at `drawn` | old spins at `given`), independent given the old ones."""
    new, old = (2 * all_sequences(2, len(sites)) - 1 for sites in (drawn, given))
    pull = ising.field[drawn] + old.double() @ ising.coupling[given][:, drawn]
    return (2 * pull[:, None] * new).sigmoid().prod(-1)


class HiddenBlocks:
    """A block, uniform among these, is hidden; its spins are drawn independently given the rest.

    Worked value: two spins with coupling J and the block of both: after one step the four states
    have ¼ each. With the blocks [0] and [1] it is Gibbs sampling, and p stays as it is.
    """

    def __init__(self, ising: Ising, blocks: Sequence[Sequence[int]]) -> None:
        p = law_of(ising)
        self._redrawn: list[tuple[list[int], list[int], Tensor]] = []
        for block in blocks:
            shape, axes = _axes(block, ising.length)
            joint = p.reshape(shape)
            given = torch.ones_like(joint) / len(blocks)
            for axis in axes:  # Π_i p(s_i | rest)
                alone = _summed(joint, [other for other in axes if other != axis])
                given = given * alone / _summed(alone, [axis])
            self._redrawn.append((shape, axes, given))

    def moved(self, law: Float[Tensor, " states"]) -> Float[Tensor, " states"]:
        total = torch.zeros_like(law)
        for shape, axes, given in self._redrawn:
            total += (_summed(law.reshape(shape), axes) * given).reshape(-1)
        return total


def _axes(block: Sequence[int], length: int) -> tuple[list[int], list[int]]:
    """A shape in which each spin of the block has an axis and those between share one; which.

    Worked value: the block [2, 3] of 5 spins: shape [4, 2, 1, 2, 2], axes 1 and 3.
    """
    shape, axes = [1], list[int]()
    for i in range(length):
        if i in block:
            axes.append(len(shape))
            shape += [2, 1]
        else:
            shape[-1] *= 2
    return shape, axes


def _summed(law: Float[Tensor, "..."], axes: Sequence[int]) -> Float[Tensor, "..."]:
    """The sum over binary axes, which stay with one entry; faster than `sum` for short axes."""
    for axis in axes:
        law = law.narrow(axis, 0, 1) + law.narrow(axis, 1, 1)
    return law


def law_of(ising: Ising) -> Float[Tensor, " states"]:
    """p, states in lexicographic order."""
    return ising.log_prob(all_sequences(2, ising.length)).exp()


def distances(
    ising: Ising, mover: Mover, start: Sequence[int], *, records: int, every: int
) -> list[float]:
    """Total variation between p and the law of a chain from `start`, every this many steps."""
    p = law_of(ising)
    law = torch.zeros_like(p)
    law[int(torch.tensor(start) @ places(2, ising.length))] = 1.0
    found = [_distance(law, p)]
    for _ in range(records):
        for _ in range(every):
            law = mover.moved(law)
        found.append(_distance(law, p))
    return found


def _distance(law: Float[Tensor, " states"], p: Float[Tensor, " states"]) -> float:
    return 0.5 * float((law - p).abs().sum())

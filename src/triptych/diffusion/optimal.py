"""The best that parallel steps can do: which positions to write together, by dynamic programming.

A sampler that writes the sets K_1, K_2, ... of a fixed plan, each at once from the exact laws,
writes a law whose divergence from the truth is

    KL(p ‖ q) = Σ_t ( Σ_{i in K_t} H(x_i | x_S) - H(x_{K_t} | x_S) ),     S = all sets before K_t,

so entropies of all sets of positions decide it. A plan whose sets are drawn uniformly, of given
sizes, loses the mean of that over sets: a function of the mean entropy of each size alone, and an
upper bound of the divergence of the mixture of all draws.

    set_entropies   H(x_S) of all 2^N sets        best_sets    the plan with the least loss
    size_entropies  their means by size           best_sizes   the best sizes for uniform sets

Notation
--------
S   a set of positions, as a number: position i is in it if bit i is 1
N   length                    T   rounds
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.table import Table
from triptych.core.validation import Count, UserError, as_size, check_room

_LONGEST = 12


class Plan(NamedTuple):
    """loss: KL from the truth, in nats. sets: positions of each round, in turn."""

    loss: float
    sets: tuple[tuple[int, ...], ...]


class SizePlan(NamedTuple):
    """loss: the mean loss over uniform sets, in nats. sizes: positions of each round, in turn."""

    loss: float
    sizes: tuple[int, ...]


def set_entropies(table: Table) -> Float[Tensor, " sets"]:
    """H(x_S) of every set of positions, in nats.

    Worked value: two equal fair bits: 0, log 2, log 2, log 2.
    """
    length = table.length
    if length > 20:
        raise UserError(f"{length} positions have 2^{length} sets; at most 20 can be listed")
    check_room("the entropies of all sets", 2**length)
    probs = table.log_probs.exp().reshape([table.vocab_size] * length)
    found = torch.zeros(2**length, dtype=torch.float64)
    for number in range(1, 2**length):
        away = [i for i in range(length) if not number >> i & 1]
        kept = probs.sum(away) if away else probs
        found[number] = -torch.special.xlogy(kept, kept).sum()
    return found


def size_entropies(entropies: Float[Tensor, " sets"]) -> Float[Tensor, " sizes"]:
    """The mean entropy of the sets of 0, 1, ..., N positions."""
    sizes = torch.tensor([number.bit_count() for number in range(len(entropies))])
    count = int(sizes.max()) + 1
    return torch.stack([entropies[sizes == size].mean() for size in range(count)])


def loss_of_sets(entropies: Float[Tensor, " sets"], sets: Sequence[Sequence[int]]) -> float:
    """What a plan of fixed sets loses: the KL of the truth from what it writes."""
    shown, lost = 0, 0.0
    for places in sets:
        here = sum(1 << place for place in places)
        lost += _step_loss(entropies, shown, here)
        shown |= here
    if shown != len(entropies) - 1:
        raise UserError("the sets do not write every position", parameter="sets")
    return lost


def loss_of_sizes(means: Float[Tensor, " sizes"], sizes: Sequence[int]) -> float:
    """What uniform sets of these sizes lose on average.

    Worked value: two equal fair bits, both at once: 2 log 2 - log 2.
    """
    shown, lost = 0, 0.0
    for size in sizes:
        alone = float(means[min(shown + 1, len(means) - 1)] - means[shown])
        lost += size * alone - float(means[shown + size] - means[shown])
        shown += size
    if shown != len(means) - 1:
        raise UserError(f"the sizes write {shown} positions of {len(means) - 1}", parameter="sizes")
    return lost


def best_sets(entropies: Float[Tensor, " sets"], rounds: Count) -> Plan:
    """The plan of at most T rounds that loses least: over 3^N pairs of sets for each round.

    Worked value: three bits, x_0 = x_1, x_2 free. In two rounds nothing is lost: {0, 2}, then {1}.
    """
    rounds, every = as_size("rounds", rounds), len(entropies) - 1
    length = every.bit_length()
    if length > _LONGEST:
        raise UserError(f"{length} positions are too many to plan for; at most {_LONGEST}")
    steps: dict[tuple[int, int], float] = {}
    least = [math.inf] * (every + 1)
    least[0] = 0.0
    choices: list[list[int]] = []
    for _ in range(rounds):
        after, chosen = least.copy(), [-1] * (every + 1)
        for shown in range(every + 1):
            if least[shown] == math.inf:
                continue
            rest = every & ~shown
            here = rest
            while here:
                if (shown, here) not in steps:
                    steps[shown, here] = _step_loss(entropies, shown, here)
                value = least[shown] + steps[shown, here]
                if value < after[shown | here] - 1e-12:
                    after[shown | here], chosen[shown | here] = value, here
                here = (here - 1) & rest
        least = after
        choices.append(chosen)
    sets, at = [], every
    for chosen in reversed(choices):
        if chosen[at] >= 0:
            sets.append(tuple(i for i in range(length) if chosen[at] >> i & 1))
            at &= ~chosen[at]
    return Plan(max(0.0, least[every]), tuple(reversed(sets)))


def best_sizes(means: Float[Tensor, " sizes"], rounds: Count) -> SizePlan:
    """The sizes of at most T rounds that lose least on average.

    Worked value: two equal fair bits: one round loses log 2, two rounds of one nothing.
    """
    rounds, length = as_size("rounds", rounds), len(means) - 1
    least: list[tuple[float, tuple[int, ...]]] = [(math.inf, ())] * (length + 1)
    least[0] = (0.0, ())
    for _ in range(rounds):
        after = least.copy()
        for shown, (value, sizes) in enumerate(least):
            if value == math.inf or shown == length:
                continue
            alone = float(means[shown + 1] - means[shown])
            for size in range(1, length - shown + 1):
                together = float(means[shown + size] - means[shown])
                total = value + size * alone - together
                if total < after[shown + size][0] - 1e-12:
                    after[shown + size] = (total, (*sizes, size))
        least = after
    return SizePlan(max(0.0, least[length][0]), least[length][1])


def _step_loss(entropies: Float[Tensor, " sets"], shown: int, here: int) -> float:
    base, alone = float(entropies[shown]), 0.0
    rest = here
    while rest:
        one = rest & -rest
        alone += float(entropies[shown | one]) - base
        rest &= rest - 1
    return max(0.0, alone - (float(entropies[shown | here]) - base))

"""How far the conditionals of a masked oracle are from those of any joint law, and of the truth.

A joint law answers the same whichever of two hidden positions is drawn first. The conditionals of a
network are learned one by one and belong to no joint law in general; what stands for it is the law
in which its own 1-Gibbs sampler settles, the `stationary_law` of its `gibbs_matrix` in `kernels`
[li, 4.1.1 names the problem].

Notation
--------
e   context   [contexts], with V for a hidden position     p   the truth   [count]
"""

from itertools import combinations
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.divergences import kl_divergence
from triptych.core.table import places
from triptych.core.validation import check_count
from triptych.theory.masking.kernels import Conditionals


class Inconsistency(NamedTuple):
    """TV between the two orders in which two hidden positions can be drawn, given the others.

    mean    over pairs, with contexts as often as under the truth
    worst   over pairs and contexts
    """

    mean: float
    worst: float


def inconsistency(conditionals: Conditionals, truth: Float[Tensor, " count"]) -> Inconsistency:
    """p(x_i | rest) p(x_j | x_i, rest) against p(x_j | rest) p(x_i | x_j, rest).

    Conditionals of a joint law give 0. Worked value: the oracle of two bits of
    `kernels.filled_in_turn`: laws (¼, ¼, ¼, ¼) and (0.4, 0.1, 0.1, 0.4): 0.3.
    """
    length, vocab = conditionals.length, conditionals.vocab_size
    if length < 2:
        raise ValueError("two positions are needed to compare two orders")
    y, place = conditionals.sequences, places(vocab + 1, length)
    total, worst, pairs = 0.0, 0.0, list(combinations(range(length), 2))
    for pair in pairs:
        both = torch.zeros_like(y, dtype=torch.bool)
        both[:, list(pair)] = True
        joint = conditionals.rank(y, both)
        start = conditionals.possible(joint)
        each = torch.arange(len(y))
        laws = []
        for first, second in (pair, pair[::-1]):
            given = joint - (vocab - y[:, first]) * place[first]
            one = start[each, first, y[:, first]]
            laws.append((one + conditionals.log_probs[given, second, y[:, second]]).exp())
        # a sum over the V² states of the pair, for each context, stands at all of them
        apart = 0.5 * _sum_over((laws[0] - laws[1]).abs(), pair, conditionals)
        total += float((truth * apart).sum())
        worst = max(worst, float(apart.max()))
    return Inconsistency(total / len(pairs), worst)


def _sum_over(
    values: Float[Tensor, " count"], pair: tuple[int, ...], conditionals: Conditionals
) -> Float[Tensor, " count"]:
    grid = values.reshape([conditionals.vocab_size] * conditionals.length)
    return grid.sum(pair, keepdim=True).expand_as(grid).reshape(-1)


def conditional_error(
    conditionals: Conditionals,
    exact: Conditionals,
    truth: Float[Tensor, " count"],
    hidden: int,
) -> float:
    """Mean KL of the answers from the exact ones, `hidden` positions at random not shown.

    Over contexts as often as under the truth, and over their hidden positions. Worked value: an
    oracle that says ½ where the truth says (1, 0), one position: KL log 2.
    """
    check_count("hidden", hidden, at_least=1)
    y, total, number = conditionals.sequences, 0.0, 0
    for block in combinations(range(conditionals.length), hidden):
        mask = torch.zeros(conditionals.length, dtype=torch.bool)
        mask[list(block)] = True
        context = conditionals.rank(y, mask.expand_as(y))
        for i in block:
            apart = kl_divergence(exact.log_probs[context, i], conditionals.log_probs[context, i])
            total += float(torch.where(truth > 0, truth * apart, 0.0).sum())
            number += 1
    return total / number

"""Some positions of a masked oracle, the others held fixed: small enough to list, for any network.

A `Window` is a masked oracle on k positions of a longer row. With few tokens, as the 20 amino acids
of an antibody model, all of V³ states of three positions can be listed, and then

    filled      the law of writing the positions in an order, each given those before
    settle      the law in which the 1-Gibbs sampler settles, and how fast
    cycles      how far the conditionals are from those of any joint law, with a proof

A joint law p has log p(a | b) + log p(b' | a) + log p(a' | b') + log p(b | a') equal to the sum
around the other way. So if a cycle of a network's conditionals does not close, by c, then for
every joint law one of these 8 logarithms differs from the network's by at least |c| / 8.

Notation
--------
K   positions of the window, k of them      V   vocab_size
c   conditionals[i]   [V] * k, the law of x_i along axis i given all others
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.protocols import Masked
from triptych.core.table import all_sequences
from triptych.core.validation import UserError, check_can, check_room

_ROWS_AT_ONCE = 256


class Window:
    """A masked oracle on some positions of one row; the others are shown as they are."""

    def __init__(
        self, oracle: Masked, tokens: Int[Tensor, " length"], positions: Sequence[int]
    ) -> None:
        check_can("oracle", oracle, "masked_log_probs", "vocab_size")
        chosen = list(dict.fromkeys(positions))
        if not chosen or not all(0 <= place < len(tokens) for place in chosen):
            raise UserError(
                f"positions is {list(positions)}; they must be some of 0 to {len(tokens) - 1}",
                parameter="positions",
            )
        self.oracle, self.tokens, self.positions = oracle, tokens, chosen

    @property
    def vocab_size(self) -> int:
        return self.oracle.vocab_size

    @property
    def length(self) -> int:
        return len(self.positions)

    def masked_log_probs(
        self, tokens: Int[Tensor, "batch k"], hidden: Bool[Tensor, "batch k"]
    ) -> Float[Tensor, "batch k vocab"]:
        """The oracle's answers at the window's positions."""
        found = []
        for here, away in zip(
            tokens.split(_ROWS_AT_ONCE), hidden.split(_ROWS_AT_ONCE), strict=True
        ):
            rows = self.tokens.repeat(len(here), 1)
            rows[:, self.positions] = here
            masked = torch.zeros_like(rows, dtype=torch.bool)
            masked[:, self.positions] = away
            answer = self.oracle.masked_log_probs(rows, masked)
            found.append(answer[:, self.positions].double())
        return torch.cat(found)


def conditionals(oracle: Masked, length: int) -> list[Float[Tensor, "..."]]:
    """c[i] = log p(x_i = · | all others), with x_i along axis i, for every i."""
    size = oracle.vocab_size
    check_room("the conditionals", length, size**length)
    others = all_sequences(size, length - 1)
    found = []
    for place in range(length):
        rows = torch.cat([others[:, :place], others[:, :1] * 0, others[:, place:]], 1)
        hidden = torch.zeros_like(rows, dtype=torch.bool)
        hidden[:, place] = True
        law = oracle.masked_log_probs(rows, hidden)[:, place].double().log_softmax(-1)
        found.append(law.reshape([size] * length).movedim(-1, place))
    return found


def filled(oracle: Masked, order: Sequence[int]) -> Float[Tensor, "..."]:
    """log q of writing the positions in this order, each from its law given those before.

    Worked value: two bits; the oracle says ½ for both, x_1 fair given x_0, and x_0 = x_1 with 0.8
    given x_1. From the left every pair has ¼; from the right 00 has 0.4 and 10 has 0.1.
    """
    length, size = len(order), oracle.vocab_size
    if sorted(order) != list(range(length)):
        raise UserError(f"order is {list(order)}; it must have every position once")
    check_room("the law", size**length)
    total = torch.zeros([size] * length, dtype=torch.float64)
    for number, place in enumerate(order):
        before = list(order[:number])
        shown = all_sequences(size, number)
        rows = torch.zeros((len(shown), length), dtype=torch.long)
        rows[:, before] = shown
        hidden = torch.ones_like(rows, dtype=torch.bool)
        hidden[:, before] = False
        law = oracle.masked_log_probs(rows, hidden)[:, place].double().log_softmax(-1)
        axes = [*before, place]
        grid = law.reshape([size] * len(axes)).permute([axes.index(axis) for axis in sorted(axes)])
        total = total + grid.reshape([size if axis in axes else 1 for axis in range(length)])
    return total


class Settled(NamedTuple):
    """law: where the 1-Gibbs sampler settles, on all states.

    gap: 1 - its second eigenvalue in size
    residual: the total variation between the law and one step from it
    """

    law: Float[Tensor, "..."]
    gap: float
    residual: float


def gibbs_step(
    law: Float[Tensor, "..."], given: Sequence[Float[Tensor, "..."]]
) -> Float[Tensor, "..."]:
    """The law after one position, drawn uniformly, is redrawn."""
    parts = [law.sum(i, keepdim=True) * c for i, c in enumerate(given)]
    return torch.stack(parts).mean(0)


def settle(
    logs: Sequence[Float[Tensor, "..."]], *, tolerance: float = 1e-12, most: int = 100_000
) -> Settled:
    """The law that redrawing single positions leaves as it is, by repeated steps.

    Worked value: the two bits above: P(x_0 = 0) = P(x_1 = 0) = ½, and 00 has 0.325.
    """
    given = [c.exp() for c in logs]
    law = torch.full_like(given[0], 1 / given[0].numel())
    moved, rates = torch.inf, []
    for _ in range(most):
        after = gibbs_step(law, given)
        step = float((after - law).abs().sum() / 2)
        if moved < torch.inf and moved > 0:
            rates.append(step / moved)
        law, moved = after, step
        if moved < tolerance:
            break
    slow = sorted(rates[-20:-2] or rates or [0.0])
    law = law / law.sum()
    residual = float((gibbs_step(law, given) - law).abs().sum() / 2)
    return Settled(law, 1 - slow[len(slow) // 2], residual)


class Cycles(NamedTuple):
    """worst: the largest cycle that does not close.

    least: |worst| / 8, the error in some logarithm
    likely: the largest among the most probable tokens of each position, whose cycles matter.
    """

    worst: float
    least: float
    likely: float


def cycles(logs: Sequence[Float[Tensor, "..."]], *, likely: int = 3) -> Cycles:
    """How far cycles of two positions are from closing, given every value of the others.

    Worked value: the two bits above: log 0.8/0.2 twice, and 0 elsewhere: 2 log 4, least (log 4)/4.
    """
    length, worst, few = logs[0].ndim, 0.0, 0.0
    laws = torch.stack([c.exp() for c in logs]).mean(0)
    tops = []
    for place in range(length):
        weight = laws.sum([axis for axis in range(length) if axis != place])
        tops.append(weight.argsort(descending=True)[:likely])
    for i, j in combinations(range(length), 2):
        odds = (logs[i] - logs[j]).movedim((i, j), (-2, -1))
        rest = [axis for axis in range(length) if axis not in (i, j)]
        worst = max(worst, _widest(odds.reshape(-1, *odds.shape[-2:])))
        for number, axis in enumerate(rest):
            odds = odds.index_select(number, tops[axis])
        odds = odds.index_select(-2, tops[i]).index_select(-1, tops[j])
        few = max(few, _widest(odds.reshape(-1, *odds.shape[-2:])))
    return Cycles(worst, worst / 8, few)


def _widest(odds: Float[Tensor, "others a b"]) -> float:
    """max over a, a', b, b' of |o(a, b) - o(a', b) + o(a', b') - o(a, b')|."""
    rows = odds[:, :, None, :] - odds[:, None, :, :]  # a, a', b
    return float((rows.amax(-1) - rows.amin(-1)).max())

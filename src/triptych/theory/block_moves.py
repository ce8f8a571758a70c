"""The transition matrix of block dynamics, for blocks that do not look at the sequence.

A step from x to y redraws a block that holds all positions where they differ, so

    P(x, y) = Σ_{K ⊇ S} p(K) p(y_K | y_-K),    S = {i : x_i ≠ y_i},

and the sums over all S, for one y, take N additions for each of the 2^N sets. Every term is a
product of probabilities and none is negative: entries of any size are right to rounding, and p
itself is never needed, only its conditionals, which are computed from logarithms.

Notation
--------
N   length      F   F[S, y] = Σ_{K ⊇ S} p(K) p(y_K | y_-K)   [2^N, ends]
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table, all_sequences

_ENTRIES = 2**22  # of the matrix that are looked up at once


def block_moves(
    table: Table, masks: MaskLaw, starts: Int[Tensor, " starts"], ends: Int[Tensor, " ends"]
) -> Float[Tensor, "starts ends"]:
    """P(x, y) for x and y of these numbers.

    Worked value: one bit with p = (¼, ¾), the block {0}: the rows are (¼, ¾).
    """
    sets = _sets(table, masks, ends)
    # where two sequences differ is looked up for their first and their second halves
    tail = table.length // 2
    first, second = _differences(table, table.length - tail), _differences(table, tail)
    cut = len(second)
    out = torch.empty(len(starts), len(ends), dtype=torch.float64)
    rows = max(1, _ENTRIES // max(1, len(ends)))
    for part, chosen in zip(out.split(rows), starts.split(rows), strict=True):
        differ = first[chosen // cut][:, ends // cut]
        differ += second[chosen % cut][:, ends % cut] << (table.length - tail)
        torch.gather(sets, 0, differ, out=part)
    return out


def _differences(table: Table, length: int) -> Int[Tensor, "words words"]:
    """Σ_i 2^i 1[x_i ≠ y_i] for all words of this length."""
    words = all_sequences(table.vocab_size, length)
    out = torch.zeros(len(words), len(words), dtype=torch.long)
    for i in range(length):
        out += (words[:, i, None] != words[:, i]).long() << i
    return out


def block_conditional(
    log_weight: Float[Tensor, " count"], block: Tensor, vocab_size: int
) -> Float[Tensor, " count"]:
    """p(x_K | x_-K) from unnormalised log p(x); 0 where x has none.

    Worked value: two bits with p = (½, ⅓, 0, ⅙), K = {1}: 3/5, 2/5, 0, 1.
    """
    axes = [i for i, hidden in enumerate(block.tolist()) if hidden]
    if not axes:
        return (log_weight > -torch.inf).double()
    grid = log_weight.reshape([vocab_size] * len(block))
    total = grid.logsumexp(axes, keepdim=True).masked_fill_(
        torch.isneginf(grid.amax(axes, keepdim=True)), 0.0
    )
    return (grid - total).exp().reshape(-1)


def block_sum(
    values: Float[Tensor, "count *rest"], block: Tensor, vocab_size: int
) -> Float[Tensor, "count *rest"]:
    """Σ_{x_K} values, spread over all x that agree outside K. Worked value: K = {}: the values."""
    axes = [i for i, hidden in enumerate(block.tolist()) if hidden]
    if not axes:
        return values
    grid = values.reshape(*[vocab_size] * len(block), *values.shape[1:])
    return grid.sum(axes, keepdim=True).expand_as(grid).reshape(values.shape)


def _sets(
    table: Table, masks: MaskLaw, ends: Int[Tensor, " ends"]
) -> Float[Tensor, "sets ends"]:
    """F: first by K alone, then added up over supersets, one position at a time."""
    bits = 2 ** torch.arange(table.length)
    out = torch.zeros(2**table.length, len(ends), dtype=torch.float64)
    for block, prob in zip(masks.blocks, masks.log_probs.exp(), strict=True):
        given = block_conditional(table.log_probs, block, table.vocab_size)
        out[int(bits[block].sum())] += prob * given[ends]
    for i in range(table.length):
        pairs = out.reshape(-1, 2, 2**i, len(ends))
        pairs[:, 0] += pairs[:, 1]
    return out

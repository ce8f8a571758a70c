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
from jaxtyping import Bool, Float, Int
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
    sets = torch.zeros(2**table.length, len(ends), dtype=torch.float64)
    for block, log_prob in zip(masks.blocks, masks.log_probs, strict=True):
        given = block_conditional(table.log_probs, block, table.vocab_size)
        sets[_number(block)] += log_prob.exp() * given[ends]
    for i in range(table.length):
        pairs = sets.reshape(-1, 2, 2**i, len(ends))
        pairs[:, 0] += pairs[:, 1]
    return _looked_up(sets, table, starts, ends)


def block_log_moves(table: Table, masks: MaskLaw) -> Float[Tensor, "count count"]:
    """log P(x, y) for all x and y, where P(x, y) may be smaller than what floats hold.

    Worked value: as above: the rows are log ¼, log ¾.
    """
    every = torch.arange(len(table.log_probs))
    sets = torch.full((2**table.length, len(every)), -torch.inf, dtype=torch.float64)
    for block, log_prob in zip(masks.blocks, masks.log_probs, strict=True):
        given = block_log_conditional(table.log_probs, block, table.vocab_size)
        sets[_number(block)] = torch.logaddexp(sets[_number(block)], log_prob + given)
    for i in range(table.length):
        pairs = sets.reshape(-1, 2, 2**i, len(every))
        pairs[:, 0] = torch.logaddexp(pairs[:, 0], pairs[:, 1])
    return _looked_up(sets, table, every, every)


def block_log_conditional(
    log_weight: Float[Tensor, " count"], block: Bool[Tensor, " length"], vocab_size: int
) -> Float[Tensor, " count"]:
    """log p(x_K | x_-K) from unnormalised log p(x); -inf where that is."""
    axes = [i for i, hidden in enumerate(block.tolist()) if hidden]
    if not axes:
        return torch.where(log_weight > -torch.inf, 0.0, log_weight)
    grid = log_weight.reshape([vocab_size] * len(block))
    total = grid.logsumexp(axes, keepdim=True)
    return (grid - torch.where(total > -torch.inf, total, 0.0)).reshape(-1)


def block_conditional(
    log_weight: Float[Tensor, " count"], block: Bool[Tensor, " length"], vocab_size: int
) -> Float[Tensor, " count"]:
    """p(x_K | x_-K) from unnormalised log p(x); 0 where x has none.

    Worked value: two bits with p = (½, ⅓, 0, ⅙), K = {1}: 3/5, 2/5, 0, 1.
    """
    return block_log_conditional(log_weight, block, vocab_size).exp()


def block_sum(
    values: Float[Tensor, "count *rest"], block: Bool[Tensor, " length"], vocab_size: int
) -> Float[Tensor, "count *rest"]:
    """Σ_{x_K} values, spread over all x that agree outside K. Worked value: K = {}: the values."""
    axes = [i for i, hidden in enumerate(block.tolist()) if hidden]
    if not axes:
        return values
    grid = values.reshape(*[vocab_size] * len(block), *values.shape[1:])
    return grid.sum(axes, keepdim=True).expand_as(grid).reshape(values.shape)


def _number(block: Bool[Tensor, " length"]) -> int:
    """A set of positions as a number, Σ_i 2^i."""
    return sum(1 << i for i, hidden in enumerate(block.tolist()) if hidden)


def _looked_up(
    sets: Float[Tensor, "sets ends"],
    table: Table,
    starts: Int[Tensor, " starts"],
    ends: Int[Tensor, " ends"],
) -> Float[Tensor, "starts ends"]:
    """F[S, y] for the set S where x and y differ; it is found for their two halves."""
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

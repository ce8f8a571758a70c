"""Message passing over the tree of bracket stacks, for Dyck laws with hidden tokens.

A stack of bracket types is a node of a k-ary tree: the empty stack is the root, opening a
bracket goes to a child, closing the innermost goes back to the parent. Nodes are numbered level
by level, so the children of node s are s k + 1, …, s k + k, and one step of message passing is
two reshapes and two products: no transition matrix is built. One more state is "ended".

Notation
--------
nodes   stacks of at most D types          inner   those that are not full (depth < D)
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

MAX_STACKS = 2**18
_BLOCK_BYTES = 256 * 2**20


class Tree(NamedTuple):
    """depth[s]: brackets on stack s. inner: how many stacks can grow."""

    types: int
    depth: Int[Tensor, " nodes"]
    inner: int


def tree_of_stacks(types: int, max_depth: int, device: torch.device | str = "cpu") -> Tree:
    """All stacks of at most `max_depth` brackets of `types` types, level by level.

    Stack (j_1, …, j_d), outermost first, is node j_d + 1 + k (j_{d-1} + 1 + k (…)).
    """
    sizes = [types**d for d in range(max_depth + 1)]
    if sum(sizes) > MAX_STACKS:
        raise ValueError(
            f"{types} bracket types of depth {max_depth} make {sum(sizes)} stacks; masked "
            f"conditionals enumerate at most {MAX_STACKS}: lower max_depth "
            "(log_prob, next_token_log_probs and sample have no such limit)"
        )
    depth = torch.repeat_interleave(torch.arange(max_depth + 1), torch.tensor(sizes))
    return Tree(types, depth.to(device), sum(sizes[:-1]))


class StackMessages(NamedTuple):
    """log_evidence[b] = log p(shown); the others are conditional probabilities given it.

    token[b, t]   of every token at position t, the end token last
    state[b, t]   of every stack after position t, "ended" last
    """

    log_evidence: Float[Tensor, " batch"]
    token: Float[Tensor, "batch length tokens"]
    state: Float[Tensor, "batch length states"]


def stack_messages(
    moves: Float[Tensor, "length depths 3"],
    type_probs: Float[Tensor, " types"],
    tree: Tree,
    tokens: Int[Tensor, "batch length"],
    hidden: Bool[Tensor, "batch length"],
) -> StackMessages:
    """Forward and backward over all positions, in blocks of rows that fit in memory."""
    nodes, (batch, length) = len(tree.depth), tokens.shape
    rows = max(1, _BLOCK_BYTES // (8 * (length + 1) * (nodes + 1)))
    blocks = [
        _one_block(moves, type_probs, tree, tokens[at : at + rows], hidden[at : at + rows])
        for at in range(0, max(1, batch), rows)
    ]
    return StackMessages(*(torch.cat(parts) for parts in zip(*blocks, strict=True)))


class _Step(NamedTuple):
    """Weights of the moves at one position, 0 where the shown token forbids one.

    opening[b, s, j]   from inner node s to its child j        closing[b, s, j]   back from it
    ending[b]          from the root to "ended"                resting[b]   stay ended
    """

    opening: Float[Tensor, "batch inner types"]
    closing: Float[Tensor, "batch inner types"]
    ending: Float[Tensor, " batch"]
    resting: Float[Tensor, " batch"]


def _one_block(
    moves: Float[Tensor, "length depths 3"],
    type_probs: Float[Tensor, " types"],
    tree: Tree,
    tokens: Int[Tensor, "rows length"],
    hidden: Bool[Tensor, "rows length"],
) -> StackMessages:
    rows, length = tokens.shape
    nodes, inner, types = len(tree.depth), tree.inner, tree.types
    depth = tree.depth[:inner]

    def step(t: int) -> _Step:
        letters = torch.arange(2 * types + 1, device=tokens.device)
        allowed = (hidden[:, t, None] | (tokens[:, t, None] == letters)).double()
        opening = moves[t, depth, 0][:, None] * type_probs
        closing = moves[t, depth + 1, 1][:, None]
        return _Step(
            opening * allowed[:, None, 0:-1:2],
            closing * allowed[:, None, 1:-1:2],
            moves[t, 0, 2] * allowed[:, -1],
            allowed[:, -1],
        )

    before = tokens.new_zeros((length + 1, rows, nodes + 1), dtype=torch.float64)
    before[0, :, 0] = 1.0
    log_evidence = torch.zeros(rows, dtype=torch.float64, device=tokens.device)
    for t in range(length):
        now, w = before[t], step(t)
        after_move = before[t + 1]
        after_move[:, 1:-1] += (now[:, :inner, None] * w.opening).flatten(1)
        after_move[:, :inner] += (now[:, 1:-1].unflatten(1, (inner, types)) * w.closing).sum(-1)
        after_move[:, -1] += now[:, 0] * w.ending + now[:, -1] * w.resting
        total = after_move.sum(-1)
        log_evidence += total.log()
        after_move /= total.masked_fill(total == 0, 1.0)[:, None]

    token = before.new_zeros((rows, length, 2 * types + 1))
    state = before.new_zeros((rows, length, nodes + 1))
    ahead = before.new_ones((rows, nodes + 1))
    for t in range(length - 1, -1, -1):
        now, w = before[t], step(t)
        state[:, t] = _normalised(before[t + 1] * ahead)
        children = ahead[:, 1:-1].unflatten(1, (inner, types))
        up, down = w.opening * children, w.closing * ahead[:, :inner, None]
        over = torch.stack([w.ending, w.resting], -1) * ahead[:, -1:]
        token[:, t, 0:-1:2] = (now[:, :inner, None] * up).sum(1)
        token[:, t, 1:-1:2] = (now[:, 1:-1].unflatten(1, (inner, types)) * down).sum(1)
        token[:, t, -1] = now[:, 0] * over[:, 0] + now[:, -1] * over[:, 1]
        token[:, t] = _normalised(token[:, t])
        earlier = torch.zeros_like(ahead)
        earlier[:, :inner] += up.sum(-1)
        earlier[:, 1:-1] += down.flatten(1)
        earlier[:, 0] += over[:, 0]
        earlier[:, -1] += over[:, 1]
        ahead = _normalised(earlier)
    return StackMessages(log_evidence, token, state)


def _normalised(weights: Float[Tensor, "rows outcomes"]) -> Float[Tensor, "rows outcomes"]:
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)

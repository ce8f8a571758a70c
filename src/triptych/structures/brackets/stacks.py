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

from triptych.core.logspace import log_normalise
from triptych.core.validation import Count, UserError, as_device, as_size

MAX_STACKS = 2**18
_BLOCK_BYTES = 256 * 2**20


class Tree(NamedTuple):
    """depth[s]: brackets on stack s. inner: how many stacks can grow."""

    types: int
    depth: Int[Tensor, " nodes"]
    inner: int


def tree_of_stacks(types: Count, max_depth: Count, device: torch.device | str = "cpu") -> Tree:
    """All stacks of at most `max_depth` brackets of `types` types, level by level.

    Stack (j_1, …, j_d), outermost first, is node j_d + 1 + k (j_{d-1} + 1 + k (…)).
    """
    types, max_depth = as_size("types", types), as_size("max_depth", max_depth)
    device = as_device(device)
    sizes = [1]
    while len(sizes) <= max_depth and sum(sizes) <= MAX_STACKS:
        sizes.append(types ** len(sizes))
    if sum(sizes) > MAX_STACKS:
        raise UserError(
            f"types = {types} and max_depth = {max_depth} make more than {MAX_STACKS} stacks, "
            "the most that masked conditionals enumerate: lower max_depth "
            "(log_prob, next_token_log_probs and sample have no such limit)",
            parameter="types",
        )
    depth = torch.repeat_interleave(torch.arange(max_depth + 1), torch.tensor(sizes))
    return Tree(types, depth.to(device), sum(sizes[:-1]))


class StackMessages(NamedTuple):
    """log_evidence[b] = log p(shown); the others are conditional log-probabilities given it.

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
    log_moves, log_types = moves.log(), type_probs.log()
    blocks = [
        _one_block(log_moves, log_types, tree, tokens[at : at + rows], hidden[at : at + rows])
        for at in range(0, max(1, batch), rows)
    ]
    return StackMessages(*(torch.cat(parts) for parts in zip(*blocks, strict=True)))


class _Step(NamedTuple):
    """Log-weights of the moves at one position, -inf where the shown token forbids one.

    opening[b, s, j]   from inner node s to its child j        closing[b, s, j]   back from it
    ending[b]          from the root to "ended"                resting[b]   stay ended
    """

    opening: Float[Tensor, "batch inner types"]
    closing: Float[Tensor, "batch inner types"]
    ending: Float[Tensor, " batch"]
    resting: Float[Tensor, " batch"]


def _one_block(
    log_moves: Float[Tensor, "length depths 3"],
    log_types: Float[Tensor, " types"],
    tree: Tree,
    tokens: Int[Tensor, "rows length"],
    hidden: Bool[Tensor, "rows length"],
) -> StackMessages:
    """Everything in log-space: strings may be long and what is shown arbitrarily unlikely."""
    rows, length = tokens.shape
    nodes, inner, types = len(tree.depth), tree.inner, tree.types
    depth = tree.depth[:inner]
    letters = torch.arange(2 * types + 1, device=tokens.device)
    shown_other = ~hidden[..., None] & (tokens[..., None] != letters)
    allowed = torch.zeros_like(shown_other, dtype=torch.float64)
    allowed = allowed.masked_fill(shown_other, -torch.inf)  # rows length letters

    def step(t: int) -> _Step:
        opening = log_moves[t, depth, 0][:, None] + log_types
        closing = log_moves[t, depth + 1, 1][:, None]
        return _Step(
            opening + allowed[:, t, None, 0:-1:2],
            closing + allowed[:, t, None, 1:-1:2],
            log_moves[t, 0, 2] + allowed[:, t, -1],
            allowed[:, t, -1],
        )

    before = torch.full(
        (length + 1, rows, nodes + 1), -torch.inf, dtype=torch.float64, device=tokens.device
    )
    before[0, :, 0] = 0.0
    for t in range(length):
        now, w, then = before[t], step(t), before[t + 1]
        then[:, 1:-1] = (now[:, :inner, None] + w.opening).flatten(1)
        popped = (now[:, 1:-1].unflatten(1, (inner, types)) + w.closing).logsumexp(-1)
        then[:, :inner] = torch.logaddexp(then[:, :inner], popped)
        then[:, -1] = torch.logaddexp(now[:, 0] + w.ending, now[:, -1] + w.resting)
    log_evidence = before[-1].logsumexp(-1)

    token = before.new_empty((rows, length, 2 * types + 1))
    state = before.new_empty((rows, length, nodes + 1))
    ahead = before.new_zeros((rows, nodes + 1))
    for t in range(length - 1, -1, -1):
        now, w = before[t], step(t)
        state[:, t] = log_normalise(before[t + 1] + ahead)
        up = w.opening + ahead[:, 1:-1].unflatten(1, (inner, types))
        down = w.closing + ahead[:, :inner, None]
        end, rest = w.ending + ahead[:, -1], w.resting + ahead[:, -1]
        token[:, t, 0:-1:2] = (now[:, :inner, None] + up).logsumexp(1)
        token[:, t, 1:-1:2] = (now[:, 1:-1].unflatten(1, (inner, types)) + down).logsumexp(1)
        token[:, t, -1] = torch.logaddexp(now[:, 0] + end, now[:, -1] + rest)
        token[:, t] = log_normalise(token[:, t])
        ahead = torch.full_like(ahead, -torch.inf)
        ahead[:, :inner] = up.logsumexp(-1)
        ahead[:, 1:-1] = torch.logaddexp(ahead[:, 1:-1], down.flatten(1))
        ahead[:, 0] = torch.logaddexp(ahead[:, 0], end)
        ahead[:, -1] = rest
    return StackMessages(log_evidence, token, state)

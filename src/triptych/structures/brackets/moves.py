"""Tables of bracket moves: the probabilities to open, close or end, by position and depth.

A Dyck law is a walk on depths 0..D with such a table. Where a law is a walk conditioned on where
it ends, the conditioned walk is again a table, made by one backward recursion.

Notation
--------
q   probability to open where both moves are free        D   max_depth
"""

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.validation import (
    Count,
    Number,
    Numbers,
    UserError,
    as_floats,
    as_probability,
    as_size,
    as_text,
    check_room,
)

OPEN, CLOSE, END = 0, 1, 2


def free_moves(max_depth: Count, q: Number) -> Float[Tensor, "depths 3"]:
    """Open at depth 0, close at the largest depth, else open with probability q."""
    max_depth, q = as_size("max_depth", max_depth), as_probability("q", q, strictly=True)
    moves = torch.tensor([[q, 1 - q, 0.0]], dtype=torch.float64).repeat(max_depth + 1, 1)
    moves[0] = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    moves[-1] = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    return moves


def conditioned(weights: Numbers, final: Numbers, on: str) -> Float[Tensor, "length depths 3"]:
    """Moves of the walk conditioned on its end: moves ∝ weight × what can still happen.

    ahead_t(d) = Σ_move weight(t, d, move) ahead_{t+1}(d after the move), ahead_N = final;
    ending is final at once, so its weight stands alone.
    """
    weights = as_floats("weights", weights, shape=(None, None, 3), meaning="[length, depths, 3]")
    final = as_floats("final", final, shape=(weights.shape[1],), meaning="[depths], as weights has")
    as_size("the number of positions in weights", len(weights))
    as_text("on", on)
    if (weights < 0).any() or (final < 0).any():
        raise UserError("weights and final must not be negative", parameter="weights")
    # A depth from which the end cannot be reached is never visited; any legal move will do.
    moves = free_moves(weights.shape[1] - 1, 0.5).expand_as(weights).clone()
    ahead, nowhere = final.log(), torch.full((1,), -torch.inf, dtype=final.dtype)
    for t in range(len(weights) - 1, -1, -1):
        opened, closed = torch.cat([ahead[1:], nowhere]), torch.cat([nowhere, ahead[:-1]])
        joint = weights[t].log() + torch.stack([opened, closed, torch.zeros_like(ahead)], -1)
        ahead = joint.logsumexp(-1)
        reached = ~torch.isneginf(ahead)
        moves[t, reached] = (joint - ahead[:, None])[reached].exp()
    if torch.isneginf(ahead[0]):
        raise UserError(
            f"no balanced string of this depth has {on}: final is never reached", parameter="final"
        )
    return moves


def depth_for(length: Count, max_depth: Count | None) -> int:
    """The largest depth of balanced strings of this length, or the bound if that is smaller."""
    length = as_size("length", length, at_least=0)
    if length < 2 or length % 2:
        raise UserError(
            f"length is {length}; balanced strings have a positive even length", parameter="length"
        )
    return length // 2 if max_depth is None else min(length // 2, as_size("max_depth", max_depth))


def equal_types(types: Count) -> Float[Tensor, " types"]:
    types = as_size("types", types)
    return torch.full((types,), 1.0 / types, dtype=torch.float64)


def repeated(step: Numbers, length: Count) -> Float[Tensor, "length depths 3"]:
    """The same moves at every position."""
    moves = as_floats("step", step, shape=(None, 3), meaning="[depths, 3]")
    length = as_size("length", length)
    check_room("the table of moves", length, *moves.shape)
    return moves.expand(length, -1, -1).clone()

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

from triptych.core.validation import check_count

OPEN, CLOSE, END = 0, 1, 2


def free_moves(max_depth: int, q: float) -> Float[Tensor, "depths 3"]:
    """Open at depth 0, close at the largest depth, else open with probability q."""
    check_count("max_depth", max_depth, at_least=1)
    moves = torch.tensor([[q, 1 - q, 0.0]], dtype=torch.float64).repeat(max_depth + 1, 1)
    moves[0] = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    moves[-1] = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    return moves


def conditioned(
    weights: Float[Tensor, "length depths 3"], final: Float[Tensor, " depths"], on: str
) -> Float[Tensor, "length depths 3"]:
    """Moves of the walk conditioned on its end: moves ∝ weight × what can still happen.

    ahead_t(d) = Σ_move weight(t, d, move) ahead_{t+1}(d after the move), ahead_N = final;
    ending is final at once, so its weight stands alone.
    """
    # A depth from which the end cannot be reached is never visited; any legal move will do.
    moves = free_moves(weights.shape[1] - 1, 0.0).expand_as(weights).clone()
    ahead, nowhere = final.log(), torch.full((1,), -torch.inf, dtype=final.dtype)
    for t in range(len(weights) - 1, -1, -1):
        opened, closed = torch.cat([ahead[1:], nowhere]), torch.cat([nowhere, ahead[:-1]])
        joint = weights[t].log() + torch.stack([opened, closed, torch.zeros_like(ahead)], -1)
        ahead = joint.logsumexp(-1)
        reached = ~torch.isneginf(ahead)
        moves[t, reached] = (joint - ahead[:, None])[reached].exp()
    if torch.isneginf(ahead[0]):
        raise ValueError(f"no balanced string of this depth has {on}")
    return moves


def depth_for(length: int, max_depth: int | None) -> int:
    if length < 2 or length % 2:
        raise ValueError(f"length is {length}; balanced strings have a positive even length")
    return min(length // 2, max_depth) if max_depth is not None else length // 2


def equal_types(types: int) -> Float[Tensor, " types"]:
    check_count("types", types, at_least=1)
    return torch.full((types,), 1.0 / types, dtype=torch.float64)


def check_open_probability(q: float) -> None:
    if not 0 < q < 1:
        raise ValueError(f"q is {q}; it must lie strictly between 0 and 1")

"""Value-guided sampling with backtracking: a random walk on the tree of prefixes [li, 3.3.1].

At a prefix x of length h the walk stays with probability ½ (lazy) and else moves

    to the parent    with weight V(x)                    (if x is not the root)
    to the child xy  with weight p(y | x) V(xy)          (if x is not a leaf)

The edge (x, xy) then carries the conductance p(xy) V(xy) seen from either end, so the walk is
reversible, its stationary law is π(x) ∝ p(x) [V(x) 1(h > 0) + Σ_y p(y | x) V(xy)], and on the
leaves that is p(x) V(x), whatever V says at the inner nodes.
"""

import itertools

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.protocols import NextToken, Rng, Value
from triptych.core.samplers import Chain
from triptych.core.table import Table

Node = tuple[int, ...]


def move_log_weights(
    prefix: Int[Tensor, "1 t"], lm: NextToken, value: Value, length: int
) -> Float[Tensor, " moves"]:
    """log-weights of [parent, child 0, …, child vocab-1], -inf for a move that is absent."""
    t = prefix.shape[1]
    parent = value.log_value(prefix)
    if t == 0:
        parent = torch.full_like(parent, -torch.inf)
    if t == length:
        children = torch.full((lm.vocab_size,), -torch.inf, dtype=parent.dtype)
    else:
        tokens = torch.arange(lm.vocab_size, device=prefix.device)[:, None]
        below = torch.cat([prefix.expand(lm.vocab_size, t), tokens], dim=1)
        children = lm.next_token_log_probs(prefix)[0] + value.log_value(below)
    return torch.cat([parent, children])


def step(
    prefix: Int[Tensor, "1 t"],
    lm: NextToken,
    value: Value,
    length: int,
    rng: Rng,
    *,
    lazy: bool = True,
) -> Int[Tensor, "1 s"]:
    """One move of the walk."""
    weights = move_log_weights(prefix, lm, value, length)
    moves = weights - weights.logsumexp(0)
    if lazy:
        half = torch.tensor(0.5, dtype=moves.dtype).log()
        moves = torch.cat([half[None], moves + half])
    move = int(rng.categorical(moves)) - int(lazy)
    if move < 0:
        return prefix
    if move == 0:
        return prefix[:, :-1]
    return torch.cat([prefix, torch.tensor([[move - 1]], device=prefix.device)], dim=1)


def nodes(vocab_size: int, length: int) -> list[Node]:
    """Every prefix, the root first, the leaves last."""
    return [
        node for t in range(length + 1) for node in itertools.product(range(vocab_size), repeat=t)
    ]


def stationary_weights(lm: Table, value: Value) -> dict[Node, float]:
    """π(x) up to a constant: the conductance of all edges at x."""
    weights = {}
    for node in nodes(lm.vocab_size, lm.length):
        prefix = torch.tensor(node, dtype=torch.long).reshape(1, -1)
        mass = lm.log_probs.reshape(lm.vocab_size ** len(node), -1).logsumexp(-1).exp()
        rank = int(sum(x * lm.vocab_size**i for i, x in enumerate(reversed(node))))
        moves = move_log_weights(prefix, lm, value, lm.length).exp().sum()
        weights[node] = float(mass[rank] * moves)
    return weights


def walk_step(node: Node, lm: NextToken, value: Value, length: int, rng: Rng) -> Node:
    """`step` on a node written as a tuple, for enumeration."""
    prefix = torch.tensor(node, dtype=torch.long).reshape(1, -1)
    return tuple(step(prefix, lm, value, length, rng)[0].tolist())


class _Arbitrary:
    """Positive values with no structure at all."""

    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        place = torch.arange(1.0, prefix.shape[1] + 1, dtype=torch.float64)
        return torch.sin(1.0 + (prefix + 1.0).double() @ place)


def examples() -> dict[str, Chain]:
    """The walk on the tree of an arbitrary p with an arbitrary positive V."""
    p, value = Table.random(vocab_size=2, length=3, seed=0), _Arbitrary()
    return {
        "arbitrary value": Chain(
            lambda node, rng: walk_step(node, p, value, 3, rng),
            stationary_weights(p, value),
            reversible=True,
        )
    }

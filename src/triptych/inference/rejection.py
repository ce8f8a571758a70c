"""Rejection sampling: draw from the model until the verifier accepts [li, Definition 3.1.4]."""

import itertools

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.protocols import NextToken, Rng, Value
from triptych.core.samplers import OneShot
from triptych.core.table import Table


def ancestral(lm: NextToken, n: int, length: int, rng: Rng) -> Int[Tensor, "n {length}"]:
    """x_{t+1} ~ p(· | x_≤t), n rows at once, from the empty prefix."""
    tokens = torch.zeros((n, 0), dtype=torch.long, device=getattr(lm, "device", "cpu"))
    for _ in range(length):
        drawn = rng.categorical(lm.next_token_log_probs(tokens))
        tokens = torch.cat([tokens, drawn[:, None]], dim=1)
    return tokens


def attempt(
    lm: NextToken, verifier: Value, length: int, rng: Rng
) -> Int[Tensor, "1 {length}"] | None:
    """One draw from p, or None if the verifier rejects the full string."""
    tokens = ancestral(lm, 1, length, rng)
    return tokens if verifier.log_value(tokens) > -torch.inf else None


def sample(lm: NextToken, verifier: Value, length: int, rng: Rng) -> Int[Tensor, "1 {length}"]:
    """An exact draw from p(x | accepted), in 1 / p(accepted) attempts on average."""
    attempts = (attempt(lm, verifier, length, rng) for _ in itertools.count())
    return next(tokens for tokens in attempts if tokens is not None)


class _EvenSum:
    def log_value(self, prefix: Int[Tensor, "batch t"]) -> Tensor:
        return torch.where(prefix.sum(-1) % 2 == 0, 0.0, -torch.inf).double()


def examples() -> dict[str, OneShot]:
    """An arbitrary law restricted to strings of even sum."""
    p = Table.random(vocab_size=2, length=3, seed=0)

    def one(rng: Rng) -> tuple[int, ...] | None:
        tokens = attempt(p, _EvenSum(), 3, rng)
        return None if tokens is None else tuple(tokens[0].tolist())

    target = p.tilt(_EvenSum().log_value).as_dict()
    return {"even sum": OneShot(one, {x: q for x, q in target.items() if q > 0})}

"""Small truths whose laws under a sampler are found by other ways, for `examples()` and pages."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.protocols import Rng
from triptych.core.table import Table
from triptych.diffusion.sampler import Sampler, blank


def pair() -> Table:
    """p uniform on {00, 11}: the AB/BA example, where two words must agree."""
    return Table(2, 2, torch.tensor([0.5, 0.0, 0.0, 0.5], dtype=torch.float64).log())


def triple() -> Table:
    """A random law on three bits."""
    return Table.random(2, 3, seed=0)


def attempt(
    sampler: Sampler, model: Any, *, length: int | None = None, block_length: int | None = None
) -> Callable[[Rng], tuple[int, ...]]:
    """What the sampler writes on one blank row."""
    tokens, hidden = blank(1, model.length if length is None else length)

    def one(rng: Rng) -> tuple[int, ...]:
        done = sampler.sample(model, tokens, hidden, rng=rng, block_length=block_length)
        return tuple(done.tokens[0].tolist())

    return one


def summed(grid: Float[Tensor, "*grid"], over: list[int]) -> Float[Tensor, "*summed"]:
    """The sum over some positions, which become dimensions of one; of none, the grid."""
    return grid.sum(over, keepdim=True) if over else grid


def independent(
    grid: Float[Tensor, "*grid"], new: list[int], given: list[int]
) -> Float[Tensor, "*law"]:
    """Π_{j in new} p(x_j | x_given): what one answer makes of the new positions."""
    law, every = torch.ones_like(summed(grid, list(range(grid.ndim)))), range(grid.ndim)
    for j in new:
        both = summed(grid, [k for k in every if k != j and k not in given])
        law = law * both / summed(grid, [k for k in every if k not in given])
    return law


def subsets(length: int) -> list[list[int]]:
    """All sets of positions, the small ones first."""
    sizes = range(length + 1)
    return [list(chosen) for size in sizes for chosen in combinations(range(length), size)]


def product(p: Table) -> Table:
    """The product of the marginals: what one parallel step makes of p."""
    grid = p.log_probs.exp().reshape([p.vocab_size] * p.length)
    law = independent(grid, list(range(p.length)), [])
    return Table(p.vocab_size, p.length, law.reshape(-1).log())


def pair_then_one(p: Table) -> Table:
    """The mean over pairs (i, j) of p(x_i) p(x_j) p(x_l | x_i, x_j), for three positions."""
    grid = p.log_probs.exp().reshape([p.vocab_size] * 3)
    total = torch.zeros_like(grid)
    for chosen in ([0, 1], [0, 2], [1, 2]):
        last = [i for i in range(3) if i not in chosen]
        total += independent(grid, chosen, []) * independent(grid, last, chosen) / 3
    return Table(p.vocab_size, 3, total.reshape(-1).log())

"""The kernel on pairs (x, K) that redraws x_K and keeps K [li, 4.1.2.3, 4.3.3.3].

    P((x, K), (y, K')) = 1[K = K'] 1[x_-K = y_-K] p(y_K | x_-K, K)                  [li, (4.26)]

It is the projection on functions of (x_-K, K), reversible with respect to p(x) p(K | x), and its
Dirichlet form is that of [li, Prop. 4.1.1] for functions of x and K. But K never moves: a function
of K alone has variance and no Dirichlet form, so with two blocks or more the chain is not ergodic,
its Poincaré constant is infinite, and Γ ≤ C I⁻¹ [li, Thm 4.1.3] says nothing. The chain whose
constant bounds the variance of masked training is the one on x alone, `BlockDynamics`.

The proof in [li, 4.3.3.4] takes f(x, K) = v · ∇ log p(x_K | x_-K, K) and Var(f) = vᵀ I v. But f has
mean 0 given (x_-K, K), so its variance is its own Dirichlet form, vᵀ Cov v. With the joint score
f(x) = v · ∇ log p(x), and the chain on x, both are right: E(f, f) = vᵀ Cov v because the two scores
differ by a function of (x_-K, K), and Var(f) = vᵀ I v.

Notation
--------
pairs   (K, x) in the order m * count + rank of x
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.theory.masking.blocks.dynamics import BlockDynamics, outside


def pair_transition(dynamics: BlockDynamics) -> Float[Tensor, "pairs pairs"]:
    """The kernel on pairs (K, x), dense. Worked value: one fair bit, {0}: ½."""
    count = len(dynamics.stationary)
    one = torch.eye(count, dtype=torch.float64)
    return torch.block_diag(
        *(dynamics.conditional_mean(one, m) for m in range(len(dynamics.blocks)))
    )


def pair_stationary(dynamics: BlockDynamics) -> Float[Tensor, " pairs"]:
    """p(x) p(K | x), in the order of `pair_transition`."""
    every = dynamics.block_probs.expand(-1, len(dynamics.stationary))
    return (dynamics.stationary * every).reshape(-1)


def pair_dirichlet_form(
    dynamics: BlockDynamics, f: Float[Tensor, "blocks count"], g: Float[Tensor, "blocks count"]
) -> float:
    """E_{(X, K)} Cov(f(·, K), g(·, K) | X_-K, K) for functions of x and K [li, Prop. 4.1.1].

    Worked value: a function of K alone has none, whatever its variance is.
    """
    total = 0.0
    for m in range(len(dynamics.blocks)):
        weight = dynamics.stationary * dynamics.block_probs[m]
        first = f[m] - dynamics.conditional_mean(f[m], m)
        second = g[m] - dynamics.conditional_mean(g[m], m)
        total += float((weight * first * second).sum())
    return total


def pair_poincare_constant(dynamics: BlockDynamics) -> float:
    """The Poincaré constant of the kernel that keeps K: 1 if a single block occurs, else infinite.

    The kernel is the projection on functions of (x_-K, K). If those are all constant its gap is 1.
    """
    groups = 0
    for m in range(len(dynamics.blocks)):
        met = (dynamics.table.log_probs + dynamics.log_block_probs[m]) > -torch.inf
        groups += len(outside(dynamics, m)[met].unique())
    return 1.0 if groups == 1 else math.inf

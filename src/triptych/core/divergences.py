"""Distances between laws on the same finite set, from log-probabilities; batched, in nats."""

import torch
from jaxtyping import Float
from torch import Tensor


def total_variation(
    log_p: Float[Tensor, "*batch outcomes"], log_q: Float[Tensor, "*batch outcomes"]
) -> Float[Tensor, "*batch"]:
    """½ Σ |p - q|, the largest difference in the probability of an event."""
    return 0.5 * (log_p.exp() - log_q.exp()).abs().sum(-1)


def kl_divergence(
    log_p: Float[Tensor, "*batch outcomes"], log_q: Float[Tensor, "*batch outcomes"]
) -> Float[Tensor, "*batch"]:
    """Σ p log(p / q): 0 log 0 = 0, and +inf where p has mass that q has not."""
    p = log_p.exp()
    counts = p > 0  # what does not count is replaced before it could make a nan, also in gradients
    gap = torch.where(counts, log_p, 0.0) - torch.where(counts, log_q, 0.0)
    return (p * gap).sum(-1)


def chi_square(
    log_p: Float[Tensor, "*batch outcomes"], log_q: Float[Tensor, "*batch outcomes"]
) -> Float[Tensor, "*batch"]:
    """Σ (p - q)² / q, and +inf where p has mass that q has not."""
    p, q = log_p.exp(), log_q.exp()
    terms = (p - q) ** 2 / q
    return torch.where((p == 0) & (q == 0), torch.zeros_like(terms), terms).sum(-1)


def entropy(log_p: Float[Tensor, "*batch outcomes"]) -> Float[Tensor, "*batch"]:
    """-Σ p log p."""
    p = log_p.exp()
    return -(p * torch.where(p > 0, log_p, 0.0)).sum(-1)

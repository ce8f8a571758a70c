"""Distances between laws on the same finite set, from log-probabilities; batched, in nats."""

import math

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


def expected_distance(probs: Float[Tensor, " outcomes"], n: int) -> float:
    """Mean total variation between a law and the frequencies of n draws from it, exactly.

    De Moivre: E|K - np| = 2 m C(n, m) p^m (1 - p)^(n - m + 1) with m = ⌊np⌋ + 1, for K binomial.
    Worked value: one toss of a fair coin is always ½ away; the mean over two tosses is ¼.
    """
    p = probs[(probs > 0) & (probs < 1)].double()
    m = (n * p).floor() + 1
    whole = torch.tensor(float(n), dtype=torch.float64)
    choose = torch.lgamma(whole + 1) - torch.lgamma(m + 1) - torch.lgamma(whole - m + 1)
    logs = math.log(2) + m.log() + choose + m * p.log() + (n - m + 1) * torch.log1p(-p)
    return float(0.5 * logs.exp().sum() / n)

"""Distances between laws on the same finite set, from log-probabilities; batched, in nats."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.validation import Count, Numbers, UserError, as_distributions, as_floats, as_size

_ROOM = 1e-3  # a logarithm of 1 may be above 0 by the rounding of a network


def total_variation(log_p: Numbers, log_q: Numbers) -> Float[Tensor, "*batch"]:
    """½ Σ |p - q|, the largest difference in the probability of an event."""
    log_p, log_q = _as_laws(log_p, log_q)
    return 0.5 * (log_p.exp() - log_q.exp()).abs().sum(-1)


def kl_divergence(log_p: Numbers, log_q: Numbers) -> Float[Tensor, "*batch"]:
    """Σ p log(p / q): 0 log 0 = 0, and +inf where p has mass that q has not."""
    log_p, log_q = _as_laws(log_p, log_q)
    p = log_p.exp()
    counts = p > 0  # what does not count is replaced before it could make a nan, also in gradients
    gap = torch.where(counts, log_p, 0.0) - torch.where(counts, log_q, 0.0)
    return (p * gap).sum(-1)


def chi_square(log_p: Numbers, log_q: Numbers) -> Float[Tensor, "*batch"]:
    """Σ (p - q)² / q, and +inf where p has mass that q has not."""
    log_p, log_q = _as_laws(log_p, log_q)
    p, q = log_p.exp(), log_q.exp()
    terms = (p - q) ** 2 / q
    return torch.where((p == 0) & (q == 0), torch.zeros_like(terms), terms).sum(-1)


def entropy(log_p: Numbers) -> Float[Tensor, "*batch"]:
    """-Σ p log p."""
    log_p = _as_law("log_p", log_p)
    p = log_p.exp()
    return -(p * torch.where(p > 0, log_p, 0.0)).sum(-1)


def expected_distance(probs: Numbers, n: Count) -> float:
    """Mean total variation between a law and the frequencies of n draws from it, exactly.

    De Moivre: E|K - np| = 2 m C(n, m) p^m (1 - p)^(n - m + 1) with m = ⌊np⌋ + 1, for K binomial.
    Worked value: one toss of a fair coin is always ½ away; the mean over two tosses is ¼.
    """
    given = as_distributions("probs", probs, shape=(None,), meaning="[outcomes]")
    n = as_size("n", n)
    p = given[(given > 0) & (given < 1)]
    m = (n * p).floor() + 1
    whole = torch.tensor(float(n), dtype=torch.float64)
    choose = torch.lgamma(whole + 1) - torch.lgamma(m + 1) - torch.lgamma(whole - m + 1)
    logs = math.log(2) + m.log() + choose + m * p.log() + (n - m + 1) * torch.log1p(-p)
    return float(0.5 * logs.exp().sum() / n)


def _as_laws(
    log_p: Numbers, log_q: Numbers
) -> tuple[Float[Tensor, "*batch outcomes"], Float[Tensor, "*batch outcomes"]]:
    first, second = _as_law("log_p", log_p), _as_law("log_q", log_q)
    if first.shape[-1] != second.shape[-1]:
        raise UserError(
            f"log_p has {first.shape[-1]} outcomes and log_q {second.shape[-1]}; a distance is "
            "between laws on one set",
            parameter="log_p",
        )
    try:
        torch.broadcast_shapes(first.shape, second.shape)
    except RuntimeError:
        raise UserError(
            f"log_p has shape {tuple(first.shape)} and log_q {tuple(second.shape)}, which do not "
            "fit each other",
            parameter="log_p",
        ) from None
    return first, second


def _as_law(name: str, log_probs: Numbers) -> Float[Tensor, "*batch outcomes"]:
    """Log-probabilities: a tensor keeps its precision, since networks answer in float32."""
    if isinstance(log_probs, Tensor) and log_probs.dtype in (torch.float16, torch.bfloat16):
        log_probs = log_probs.float()
    if isinstance(log_probs, Tensor) and log_probs.dtype == torch.float32:
        as_floats(name, log_probs.detach().double(), finite=False)
        law = log_probs
    else:
        law = as_floats(name, log_probs, finite=False)
    if law.ndim == 0 or law.shape[-1] == 0:
        raise UserError(f"{name} has no outcomes: its last dimension is empty", parameter=name)
    if (law > _ROOM).any():
        worst = law.max().item()
        raise UserError(f"{name} holds {worst:g}; log-probabilities are at most 0", parameter=name)
    return law

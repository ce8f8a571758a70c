"""Sums and products of probabilities kept as logarithms; -inf is an answer, nan a bug."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.validation import raise_if_impossible


def log_matmul(
    log_a: Float[Tensor, "*batch rows inner"], log_b: Float[Tensor, "inner columns"]
) -> Float[Tensor, "*batch rows columns"]:
    """log(exp(a) exp(b)), exact to rounding for entries of any size."""
    return (log_a[..., :, None] + log_b).logsumexp(-2)


def log_normalise(
    log_weights: Float[Tensor, "*batch outcomes"],
) -> Float[Tensor, "*batch outcomes"]:
    """log p with p ∝ exp(log_weights); a row of only -inf stays -inf."""
    total = log_weights.logsumexp(-1, keepdim=True)
    return torch.where(torch.isneginf(total), log_weights, log_weights - total)


def log_conditional(
    log_joint: Float[Tensor, "batch outcomes"], what: str
) -> Float[Tensor, "batch outcomes"]:
    """log p(outcome | evidence) from log p(outcome, evidence); impossible evidence raises."""
    raise_if_impossible(log_joint.logsumexp(-1), what)
    return log_normalise(log_joint)


def log1mexp(log_p: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """log(1 - p) from log p ≤ 0, accurate at both ends."""
    near_one = log_p > -0.6931471805599453
    return torch.where(
        near_one, torch.log(-torch.expm1(log_p)), torch.log1p(-torch.exp(log_p.clamp(max=-0.5)))
    )


def point_mass(
    tokens: Int[Tensor, "*batch"], vocab_size: int, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "*batch {vocab_size}"]:
    """log 1[· = token]."""
    place = torch.arange(vocab_size, device=tokens.device)
    zeros = torch.zeros((*tokens.shape, vocab_size), dtype=dtype, device=tokens.device)
    return zeros.masked_fill(tokens[..., None] != place, -torch.inf)


def with_point_masses(
    log_probs: Float[Tensor, "*places vocab"],
    tokens: Int[Tensor, "*places"],
    hidden: Bool[Tensor, "*places"],
) -> Float[Tensor, "*places vocab"]:
    """`log_probs` where hidden, the shown token with certainty elsewhere."""
    if bool(hidden.all()):
        return log_probs
    shown = point_mass(tokens, log_probs.shape[-1], log_probs.dtype)
    return torch.where(hidden[..., None], log_probs, shown)

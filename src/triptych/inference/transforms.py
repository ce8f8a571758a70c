"""Temperature, top-k and nucleus sampling: transforms of a model's log-probabilities.

A transform maps normalised log-probabilities to normalised log-probabilities, so a transformed
model is a model again and every algorithm takes it in the model's place:

    sample(decoder, verifier, ..., transform=compose(temperature(0.7), nucleus(0.9)), rng=rng)
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.validation import check_count

Transform = Callable[[Float[Tensor, "rows vocab"]], Float[Tensor, "rows vocab"]]


def temperature(degree: float) -> Transform:
    """p(x)^(1/T), normalised; T = 0 is argmax.

    Worked value: (¾, ¼) at T = ½ becomes (9/10, 1/10).
    """
    if not degree >= 0:
        raise ValueError(f"a temperature of {degree} makes no sense; it must be at least 0")
    if degree == 0:
        return argmax
    return lambda log_probs: (log_probs / degree).log_softmax(-1)


def top_k(k: int) -> Transform:
    """Keep the k likeliest tokens; ties go to the smaller id."""
    check_count("k", k, at_least=1)

    def keep(log_probs: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
        order = log_probs.argsort(dim=-1, descending=True, stable=True)
        return _kept(log_probs, order, torch.arange(log_probs.shape[-1], device=order.device) < k)

    return keep


def nucleus(p: float) -> Transform:
    """Keep the likeliest tokens until their sum reaches p; the one that crosses p is kept too.

    p = 1 keeps everything and p = 0 is argmax. Worked value: of (½, 3/10, 1/5), p = 0.6 keeps the
    first two, which become (5/8, 3/8).
    """
    if not 0 <= p <= 1:
        raise ValueError(f"nucleus(p) needs p between 0 and 1, not {p}")
    if p == 0:
        return argmax
    if p == 1:
        return lambda log_probs: log_probs

    def keep(log_probs: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
        order = log_probs.argsort(dim=-1, descending=True, stable=True)
        probs = log_probs.gather(-1, order).exp()
        before = probs.cumsum(-1) - probs  # mass of the likelier ones
        # Sums such as 0.1 + 0.2 round: a set that reaches p to 12 digits has reached it.
        return _kept(log_probs, order, before < p - 1e-12)

    return keep


def argmax(log_probs: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
    """All mass on the likeliest token, the smallest id among equals."""
    best = log_probs.argmax(-1, keepdim=True)
    return torch.full_like(log_probs, -torch.inf).scatter(-1, best, 0.0)


def compose(*transforms: Transform) -> Transform:
    """One transform after the other, the first one first."""

    def every(log_probs: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
        for transform in transforms:
            log_probs = transform(log_probs)
        return log_probs

    return every


def _kept(
    log_probs: Float[Tensor, "rows vocab"], order: Tensor, keep: Tensor
) -> Float[Tensor, "rows vocab"]:
    """The tokens whose rank is kept, normalised."""
    chosen = torch.zeros_like(log_probs, dtype=torch.bool)
    chosen.scatter_(-1, order, keep.expand_as(order))
    return log_probs.masked_fill(~chosen, -torch.inf).log_softmax(-1)

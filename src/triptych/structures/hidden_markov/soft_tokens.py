"""Vectors instead of tokens, as the embedding models of [wei, B and C.2] read them."""

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.core.validation import Count, Numbers, UserError, as_count, as_floats


def as_soft_tokens(
    vectors: Numbers, states: int, *, device: torch.device | str | None = None
) -> Float[Tensor, "batch t states"]:
    """Finite nonnegative vectors instead of tokens."""
    soft = as_floats(
        "vectors",
        vectors,
        shape=(None, None, states),
        meaning=f"[batch, t, {states}], one entry for each of the {states} states",
        device=device,
    )
    if soft.shape[1] == 0:
        raise UserError(
            "vectors has no soft tokens: the sequence has length 0", parameter="vectors"
        )
    if (soft < 0).any():
        where = torch.nonzero(soft < 0)[0].tolist()
        raise UserError(
            f"vectors{where} is {soft[tuple(where)].item()}; soft tokens must not be negative",
            parameter="vectors",
        )
    return soft


def at_position(
    messages: Float[Tensor, "batch t states"], at: Count | None
) -> Float[Tensor, "batch positions states"]:
    """The messages at position `at` alone, all of them when it is None."""
    if at is None:
        return messages
    at, positions = as_count("at", at, at_least=None), messages.shape[1]
    if not 0 <= at < positions:
        raise UserError(f"at is {at}; the input has positions 0 to {positions - 1}", parameter="at")
    return messages[:, at : at + 1]

"""What samplers of full sequences share: chains and oracles as they come in, and their answers."""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.deprecation import renamed
from triptych.core.mask_laws import MaskLaw
from triptych.core.protocols import Masked, Rng
from triptych.core.samplers import Chain
from triptych.core.validation import (
    Hidden,
    Tokens,
    UserError,
    as_bool_mask,
    as_flag,
    as_number,
    as_tokens,
    check_callable,
)
from triptych.inference.answers import check_answer, check_sums


@renamed(oracle="lm")
def as_chains(
    lm: Masked,
    tokens: Tokens,
    masks: MaskLaw | None = None,
    hidden: Bool[Tensor, "chains length"] | None = None,
) -> Int[Tensor, "chains length"]:
    """Full sequences of at least one chain, which fit the blocks and the oracle."""
    check_oracle(lm)
    chains = as_tokens(tokens, lm.vocab_size, hidden=hidden)
    if chains.numel() == 0:
        raise UserError(
            f"there are no chains: tokens have shape {tuple(chains.shape)}, and need rows and "
            "positions",
            parameter="tokens",
        )
    if masks is None:
        return chains
    if masks.length != chains.shape[1]:
        raise UserError(
            f"the blocks are of {masks.length} positions and the sequences have {chains.shape[1]} "
            "tokens",
            parameter="tokens",
        )
    if masks.device.type != chains.device.type:
        raise UserError(
            f"the blocks are on {masks.device} and the tokens on {chains.device}; "
            f"use masks.to({str(chains.device)!r})",
            parameter="masks",
        )
    return chains


@renamed(oracle="lm")
def check_oracle(lm: Masked) -> None:
    if not isinstance(lm, Masked):
        raise UserError(
            f"lm: {type(lm).__name__} has no masked_log_probs and vocab_size; these "
            "samplers ask for the law of hidden positions given the shown ones",
            parameter="lm",
        )


def check_masks(masks: MaskLaw) -> None:
    if not isinstance(masks, MaskLaw):
        name = type(masks).__name__
        raise UserError(
            f"masks is a {name}; it must be a MaskLaw, as MaskLaw.of_size(length, k)",
            parameter="masks",
        )


@renamed(oracle="lm")
def masked_answer(
    lm: Masked, tokens: Int[Tensor, "rows length"], hidden: Bool[Tensor, "rows length"]
) -> Float[Tensor, "rows length vocab"]:
    """What the oracle says of every position, one column a token."""
    answer = lm.masked_log_probs(tokens, hidden)
    shape = (*tokens.shape, lm.vocab_size)
    check_answer(answer, shape, tokens.device, type(lm).__name__)
    return answer


@renamed(oracle="lm")
def laws_at(
    lm: Masked,
    tokens: Int[Tensor, "rows length"],
    hidden: Bool[Tensor, "rows length"],
    at: Int[Tensor, " rows"],
) -> Float[Tensor, "rows vocab"]:
    """The law of one hidden position of each row."""
    answer = masked_answer(lm, tokens, hidden)
    laws = answer[torch.arange(len(tokens), device=at.device), at]
    check_sums(
        laws,
        type(lm).__name__,
        lambda row: f"at position {int(at[row])} of {tokens[row].tolist()}",
    )
    return laws


def positions_of(hidden: Hidden) -> Int[Tensor, "rows k"]:
    """The hidden positions of each row from the left, for rows that hide equally many."""
    hidden = _as_rows("hidden", hidden, "True where a token is not shown")
    sizes = hidden.sum(-1)
    if len(hidden) and not (sizes == sizes[0]).all():
        raise UserError(
            "the rows of hidden hide different numbers of positions; ask for each size apart",
            parameter="hidden",
        )
    return torch.nonzero(hidden)[:, 1].reshape(len(hidden), int(sizes[0]) if len(hidden) else 0)


def uniform_on(allowed: Hidden) -> Float[Tensor, "rows length"]:
    """log of the uniform law on the allowed positions of each row."""
    allowed = _as_rows("allowed", allowed, "True where a position may be drawn")
    none = torch.nonzero(~allowed.any(-1))[:, 0].tolist()
    if none:
        raise UserError(
            f"allowed is False in all of row {none[0]}, so that nothing can be drawn",
            parameter="allowed",
        )
    weight = torch.zeros(allowed.shape, dtype=torch.float64, device=allowed.device)
    return weight.masked_fill(~allowed, -torch.inf).log_softmax(-1)


def _as_rows(name: str, values: Hidden, meaning: str) -> Bool[Tensor, "rows length"]:
    mask = as_bool_mask(name, values, meaning=meaning)
    if mask.ndim != 2:
        raise UserError(
            f"{name} has shape {tuple(mask.shape)}; it must be of shape [rows, length]",
            parameter=name,
        )
    return mask


def chain(
    step: Callable[[Int[Tensor, "1 length"], Rng], Int[Tensor, "1 length"]],
    target: Mapping[tuple[int, ...], float],
    *,
    reversible: bool,
) -> Chain:
    """A promise about one chain, whose states are tuples."""
    check_callable("step", step, "step(tokens, rng)")
    if not isinstance(target, Mapping):
        raise UserError(
            f"target is a {type(target).__name__}; it must be a dict of probabilities",
            parameter="target",
        )
    for state, probability in target.items():
        as_number(f"target[{state!r}]", probability, at_least=0)

    def one(state: tuple[int, ...], rng: Rng) -> tuple[int, ...]:
        return tuple(step(torch.tensor([state]), rng)[0].tolist())

    return Chain(one, target, as_flag("reversible", reversible))

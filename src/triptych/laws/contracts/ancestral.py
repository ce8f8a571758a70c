"""Ancestral sampling of one token, with the usual rules, in the usual order.

The law is that of the logits after, in this order, the repetition penalty (a positive logit of a
token seen before is divided by it, a negative one multiplied), the temperature (logits / T), top-k
(the k likeliest), top-p (the fewest likeliest with mass at least p), min-p (at least min_p times
the likeliest), typical (the fewest with surprise nearest to the entropy, with mass at least p).

Worked value: probabilities 1/2, 1/4, 1/8, 1/8 and top-p 0.6 keep the first two: 2/3 and 1/3.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.laws.contract import Contract

LOGITS = torch.tensor([0.5, 0.25, 0.15, 0.1], dtype=torch.float64).log()


def warped(
    logits: Float[Tensor, " vocab"],
    *,
    previous: Sequence[int] = (),
    repetition_penalty: float = 1.0,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    typical_p: float = 1.0,
) -> Float[Tensor, " vocab"]:
    """The probabilities of the next token under the rules."""
    logits = logits.clone()
    for token in set(previous):
        positive = bool(logits[token] > 0)
        logits[token] *= 1 / repetition_penalty if positive else repetition_penalty
    logits = logits / temperature
    if top_k:
        logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -torch.inf)
    if top_p < 1:
        logits = _kept(logits, logits.softmax(-1), top_p)
    if min_p > 0:
        probs = logits.softmax(-1)
        logits = logits.masked_fill(probs < min_p * probs.max(), -torch.inf)
    if typical_p < 1:
        probs = logits.softmax(-1)
        surprise = -probs.log()
        entropy = (probs * surprise.nan_to_num(posinf=0.0)).sum()
        logits = _kept(logits, -(surprise - entropy).abs(), typical_p)
    return logits.softmax(-1)


def token_of(drawn: Any) -> Any:
    """A token as a whole number; samplers return it as a tensor of one number, too."""
    return int(drawn) if isinstance(drawn, Tensor) and drawn.numel() == 1 else drawn


def _kept(
    logits: Float[Tensor, " vocab"], by: Float[Tensor, " vocab"], mass: float
) -> Float[Tensor, " vocab"]:
    """The best tokens by `by`, until their mass is at least `mass`."""
    order = by.argsort(descending=True, stable=True)
    before = logits.softmax(-1)[order].cumsum(0) - logits.softmax(-1)[order]
    return logits.masked_fill(_scattered(before >= mass, order), -torch.inf)


def _scattered(flags: Tensor, order: Tensor) -> Tensor:
    found = torch.zeros_like(flags)
    found[order] = flags
    return found


def _right(logits: Tensor, **rules: Any) -> int:
    return int(torch.multinomial(warped(logits, **rules), 1))


def _drops_the_last(logits: Tensor, *, top_p: float) -> int:
    """Cuts where the mass reaches p, and so loses the token that crosses it."""
    order = logits.argsort(descending=True)
    reached = logits.softmax(-1)[order].cumsum(0) >= top_p
    reached[0] = False
    return int(
        torch.multinomial(logits.masked_fill(_scattered(reached, order), -torch.inf).softmax(-1), 1)
    )


def _temperature_after_top_p(logits: Tensor, *, temperature: float, top_p: float) -> int:
    kept = warped(logits, top_p=top_p).log() / temperature
    return int(torch.multinomial(kept.softmax(-1), 1))


def _multiplied(logits: Tensor, *, temperature: float) -> int:
    return int(torch.multinomial((logits * temperature).softmax(-1), 1))


def _one_more(logits: Tensor, *, top_k: int) -> int:
    return int(torch.multinomial(warped(logits, top_k=top_k + 1), 1))


def _of_the_whole_mass(logits: Tensor, *, min_p: float) -> int:
    probs = logits.softmax(-1)
    return int(torch.multinomial(probs.masked_fill(probs < min_p, 0.0), 1))


def _most_likely_first(logits: Tensor, *, typical_p: float) -> int:
    return int(torch.multinomial(warped(logits, top_p=typical_p), 1))


def _once_for_every_time(
    logits: Tensor, *, previous: Sequence[int], repetition_penalty: float
) -> int:
    for token in previous:
        logits = torch.log(warped(logits, previous=[token], repetition_penalty=repetition_penalty))
    return int(torch.multinomial(logits.softmax(-1), 1))


def _contract(name: str, promise: str, wrong: Callable[..., Any], **rules: Any) -> Contract:
    target = dict(enumerate(warped(LOGITS, **rules).tolist()))
    names = ", ".join(rules)
    return Contract(
        name=name,
        promise=promise,
        call=f"sampler(logits, {names}) returns a token; logits has the shape (vocab,)",
        program=lambda sampler: lambda: token_of(sampler(LOGITS.clone(), **rules)),
        target=target,
        right=_right,
        wrong=wrong,
    )


CONTRACTS = [
    _contract("temperature", "p(x)^(1/T), normalised", _multiplied, temperature=0.5),
    _contract("top_k", "p given the k likeliest tokens", _one_more, top_k=2),
    _contract("top_p", "p given the fewest tokens with mass p", _drops_the_last, top_p=0.6),
    _contract(
        "temperature_top_p",
        "top-p of the law at temperature T",
        _temperature_after_top_p,
        temperature=2.0,
        top_p=0.7,
    ),
    _contract("min_p", "p given tokens of min_p times the best", _of_the_whole_mass, min_p=0.25),
    _contract("typical", "p given the most typical tokens", _most_likely_first, typical_p=0.3),
    _contract(
        "repetition",
        "tokens seen before have their logit penalised once",
        _once_for_every_time,
        previous=[0, 0, 1],
        repetition_penalty=1.5,
    ),
]

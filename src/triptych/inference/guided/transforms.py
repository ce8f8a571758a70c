"""Temperature, top-k and nucleus sampling: transforms of a model's log-probabilities.

A transform maps normalised log-probabilities to normalised log-probabilities, so a transformed
model is a model again and every algorithm takes it in the model's place:

    sample(decoder, verifier, ..., transform=compose(temperature(0.7), nucleus(0.9)), rng=rng)

Any function of that kind will do; what it answers is checked.
"""

import functools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.validation import (
    Count,
    Number,
    Numbers,
    UserError,
    as_count,
    as_floats,
    as_number,
    as_probability,
    check_callable,
    set_fields,
)
from triptych.inference.answers import check_laws

Transform = Callable[[Float[Tensor, "rows vocab"]], Float[Tensor, "rows vocab"]]

_RANKED = 512  # tokens that are sorted at first: a nucleus is rarely larger
_ORDINARY = (1e-3, 1e30)  # where log p / T and T itself are far from the ends of float32


class KeepsLaws:
    """A transform that makes a law of every law: what it is given is checked, not its answer.

    apply   the same without the check, for laws that were checked before
    """

    def __init__(self, apply: Transform) -> None:
        check_callable("apply", apply, "apply(log_probs)")
        self.apply = apply
        functools.update_wrapper(self, apply)

    def __call__(self, log_probs: Numbers) -> Float[Tensor, "*rows vocab"]:
        return self.apply(_as_laws(log_probs))


def keeping_laws(apply: Transform) -> Transform:
    """A transform that makes a law of every law."""
    return KeepsLaws(apply)


def of_laws(transform: Transform) -> Transform | None:
    """The same transform without checks, if it is known to make a law of every law."""
    return transform.apply if isinstance(transform, KeepsLaws) else None


def temperature(degree: Number) -> Transform:
    """p(x)^(1/T), normalised; T = 0 is argmax, T = ∞ is uniform where p is not 0.

    Worked value: (¾, ¼) at T = ½ becomes (9/10, 1/10). As T falls towards 0 the likeliest tokens
    share all mass, (½, ½, 0) from (2/5, 2/5, 1/5); T = 0 itself gives it to the first of them.
    """
    degree = as_number("the degree of a temperature", degree, at_least=0, finite=False)
    if degree == 0:
        return argmax
    if degree == 1:
        return keeping_laws(lambda log_probs: log_probs)
    if _ORDINARY[0] <= degree <= _ORDINARY[1]:
        return keeping_laws(lambda log_probs: (log_probs / degree).log_softmax(-1))
    divisor = max(degree, sys.float_info.min)  # smaller ones may count as 0; the limit is the same

    def extreme(log_probs: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
        # 0 for the likeliest tokens whatever T is; a zero stays one, where -inf / inf is nan.
        below = (log_probs - log_probs.amax(-1, keepdim=True)).double() / divisor
        return (
            below.masked_fill(torch.isneginf(log_probs), -torch.inf).log_softmax(-1).to(log_probs)
        )

    return keeping_laws(extreme)


def top_k(k: Count) -> Transform:
    """Keep the k likeliest tokens; ties go to the smaller id."""
    most = as_count("k", k, at_least=1)

    def keep(log_probs: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
        if most >= log_probs.shape[-1]:
            return log_probs.log_softmax(-1)
        return _likeliest(log_probs, most, log_probs.topk(most).values[..., -1:])

    return keeping_laws(keep)


def nucleus(p: Number) -> Transform:
    """Keep the likeliest tokens until their sum reaches p; the one that crosses p is kept too.

    p = 1 keeps everything and p = 0 is argmax. Worked value: of (½, 3/10, 1/5), p = 0.6 keeps the
    first two, which become (5/8, 3/8).
    """
    p = as_probability("p", p)
    if p == 0:
        return argmax
    if p == 1:
        return keeping_laws(lambda log_probs: log_probs)

    def keep(log_probs: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
        rows = log_probs.reshape(-1, log_probs.shape[-1])
        small = rows.shape[-1] <= _RANKED
        return (_nucleus(rows, p) if small else _small_nucleus(rows, p)).reshape(log_probs.shape)

    return keeping_laws(keep)


def min_p(share: Number) -> Transform:
    """Keep the tokens that have at least `share` of the likeliest one's probability.

    Worked value: of (½, 3/10, 1/5), a share of 0.5 keeps the first two: 1/5 is less than ½ · ½.
    """
    share = as_probability("share", share)
    if share == 0:
        return keeping_laws(lambda log_probs: log_probs)
    least = math.log(share) - 1e-12  # a token that has the share to 12 digits has it

    def keep(log_probs: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
        kept = log_probs >= log_probs.amax(-1, keepdim=True) + least
        return log_probs.masked_fill(~kept, -torch.inf).log_softmax(-1)

    return keeping_laws(keep)


@keeping_laws
def argmax(log_probs: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
    """All mass on the likeliest token, the smallest id among equals."""
    best = log_probs.argmax(-1, keepdim=True)
    return torch.full_like(log_probs, -torch.inf).scatter(-1, best, 0.0)


def compose(*transforms: Transform) -> Transform:
    """One transform after the other, the first one first."""
    for number, transform in enumerate(transforms):
        check_callable(f"transforms[{number}]", transform, "transform(log_probs)")
    plain = [one for one in map(of_laws, transforms) if one is not None]
    keeping = len(plain) == len(transforms)

    def every(log_probs: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
        for transform in plain if keeping else transforms:
            log_probs = transform(log_probs)
        return log_probs

    return keeping_laws(every) if keeping else every


@dataclass(frozen=True)
class Sampling:
    """How the model's next-token laws are changed before anything is drawn from them.

    temperature   p^(1/T), normalised; 0 gives all mass to the likeliest token
    top_k         draw from this many tokens; 0 is all
    top_p         draw from the nucleus of this mass
    min_p         draw from tokens that have this share of the likeliest one's probability

    They come one after the other in this order, as in `generate` of transformers. All algorithms
    then run on the changed model: "the model" in a promise is this one.

    Worked value: (½, 3/10, 1/5) under top_k=2, min_p=0.7 becomes (1, 0, 0), as 3/8 < 0.7 · 5/8.
    """

    temperature: int | float = 1.0
    top_p: int | float = 1.0
    top_k: int = 0
    min_p: int | float = 0.0

    def __post_init__(self) -> None:
        set_fields(
            self,
            temperature=as_number("temperature", self.temperature, at_least=0),
            top_p=as_probability("top_p", self.top_p),
            top_k=as_count("top_k", self.top_k),
            min_p=as_probability("min_p", self.min_p),
        )

    def transform(self) -> Transform | None:
        """The change as one transform; None where there is none."""
        parts: list[Transform] = []
        if self.temperature != 1:
            parts.append(temperature(self.temperature))
        if self.top_k:
            parts.append(top_k(self.top_k))
        if self.top_p < 1:
            parts.append(nucleus(self.top_p))
        if self.min_p > 0:
            parts.append(min_p(self.min_p))
        return _Sampled(compose(*parts), self) if parts else None


class _Sampled(KeepsLaws):
    """The transform of a sampling, which says which one it is: a server changes laws by itself."""

    def __init__(self, transform: Transform, sampling: Sampling) -> None:
        plain = of_laws(transform)
        assert plain is not None
        super().__init__(plain)
        self.temperature, self.top_k = sampling.temperature, sampling.top_k
        self.top_p, self.min_p = sampling.top_p, sampling.min_p


PLAIN = Sampling()
"""The model's own laws."""


def _as_laws(log_probs: Numbers) -> Float[Tensor, "*rows vocab"]:
    """Log-probabilities of any precision; lists and arrays become a tensor."""
    if not isinstance(log_probs, Tensor) or not log_probs.is_floating_point():
        log_probs = as_floats("log_probs", log_probs, finite=False)
    if log_probs.ndim == 0 or log_probs.shape[-1] == 0:
        raise UserError(
            f"log_probs has shape {tuple(log_probs.shape)}; it needs one column for every token",
            parameter="log_probs",
        )
    shape, device = tuple(log_probs.shape), log_probs.device
    check_laws(log_probs, shape, device, "log_probs", lambda row: f"in row {row}")
    return log_probs


def _nucleus(rows: Float[Tensor, "rows vocab"], p: float) -> Float[Tensor, "rows vocab"]:
    """By sorting all tokens."""
    count, least = _crossing(rows.sort(-1, descending=True).values, p)
    return _likeliest(rows, count[:, None], least[:, None])


def _small_nucleus(rows: Float[Tensor, "rows vocab"], p: float) -> Float[Tensor, "rows vocab"]:
    """The same for large vocabularies, of which a nucleus is a small part: few passes over them.

    Rows whose nucleus is not small, or ends among more equally likely tokens than were ranked, are
    sorted.
    """
    ranked, tokens = rows.topk(_RANKED)
    count, least = _crossing(ranked, p)
    above, equal = ranked > least[:, None], ranked == least[:, None]
    # Networks in half precision give many tokens the same probability: the smaller ids are kept.
    ids = tokens.masked_fill(~equal, rows.shape[-1]).sort(-1).values
    last = ids.gather(-1, (count - above.sum(-1) - 1)[:, None])
    kept = above | (equal & (tokens <= last))
    law = ranked.masked_fill(~kept, -torch.inf).log_softmax(-1)
    answer = torch.full_like(rows, -torch.inf).scatter_(-1, tokens, law)
    others = torch.nonzero(ranked[:, -1] == least)[:, 0]
    if len(others):
        answer[others] = _nucleus(rows[others], p)
    return answer


def _crossing(
    ranked: Float[Tensor, "rows ranks"], p: float
) -> tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]:
    """How many of the likeliest tokens reach p, and the log-probability of the last of them."""
    probs = ranked.exp()
    before = probs.cumsum(-1) - probs  # mass of the likelier ones
    # Sums such as 0.1 + 0.2 round: a set that reaches p to 12 digits has reached it. The likeliest
    # crosses every p that is smaller than this slack.
    count = (before < p - 1e-12).sum(-1).clamp(min=1)
    return count, ranked.gather(-1, count[:, None] - 1)[:, 0]


def _likeliest(
    log_probs: Float[Tensor, "*rows vocab"],
    count: int | Int[Tensor, "*rows 1"],
    least: Float[Tensor, "*rows 1"],
) -> Float[Tensor, "*rows vocab"]:
    """The `count` likeliest tokens, normalised; `least` is the log-probability of the last one."""
    above, equal = log_probs > least, log_probs == least
    room = count - above.sum(-1, keepdim=True)  # for those equal to the last one that is kept
    kept = above | (equal & (equal.cumsum(-1) <= room))
    return log_probs.masked_fill(~kept, -torch.inf).log_softmax(-1)

"""What a network is trained to predict: where, from what it sees, and against which target.

An objective turns tokens into a `Prediction`: what the network sees, at which positions it is
scored, and the target there. The target is the token itself, or, because the truth is known, the
exact conditional law in its place: the expected gradient is the same and the variance smaller.

    next_token(truth=None)              x_i from x_<i, at every position
    masked(p_m, p_c, p_r, truth=None)   x_i from the corrupted sequence, where selected
    positions(k, truth=None)            x_i given all but k hidden positions (k-pseudolikelihood)

Those of diffusion models are in `noise`: masks at any rate, uniform noise, blocks.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.conditionals import every_next_token_log_probs
from triptych.core.corruption import as_rates, corrupt
from triptych.core.protocols import Masked, NextToken, Rng
from triptych.core.validation import Count, Number, UserError, as_size
from triptych.models.jumps import jump_losses
from triptych.models.language_models import ScoredLogits

LossName = Literal["cross_entropy", "squared"]


class Prediction(NamedTuple):
    """seen: what the network reads. tokens: what stood there. scored: where it is judged.

    law: log-probabilities of the exact conditional, if it is the target instead of the token.
    weight: how much each scored position counts; the loss is then the weighted sum over them,
    divided by all positions. Without it, the mean over the scored ones.
    kept: in uniform noise, the chance that a token was kept; the loss is `jumps.jump_losses`.

    `seen` may have columns before the tokens, as for the level of the noise.
    """

    seen: Int[Tensor, "batch columns"]
    tokens: Int[Tensor, "batch length"]
    scored: Bool[Tensor, "batch length"]
    law: Float[Tensor, "batch length vocab"] | None
    weight: Float[Tensor, "batch length"] | None = None
    kept: Float[Tensor, " batch"] | None = None

    @property
    def tensors(self) -> list[Tensor]:
        """What it is made of, for `of`."""
        return [values for values in self if values is not None]

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> "Prediction":
        """From its `tensors`: the law has three dimensions, the weight two, the chance one."""
        seen, tokens, scored, *others = tensors
        known = {values.ndim: values for values in others}
        return cls(seen, tokens, scored, known.get(3), known.get(2), known.get(1))

    def split(self, rows: int) -> "list[Prediction]":
        """The same in parts of this many rows each."""
        parts = zip(*(values.split(rows) for values in self.tensors), strict=True)
        return [Prediction.of(each) for each in parts]


Objective = Callable[[Int[Tensor, "batch length"], Rng], Prediction]


@dataclass(frozen=True)
class RowByRow:
    """An objective that draws nothing and reads every row alone.

    So an ensemble asks it once for the rows of all members.
    """

    prepare: Callable[[Int[Tensor, "batch length"]], Prediction]

    def __call__(self, tokens: Int[Tensor, "batch length"], rng: Rng) -> Prediction:
        return self.prepare(tokens)


def next_token(truth: NextToken | None = None) -> Objective:
    """Predict every token from those before it."""

    def prepare(tokens: Int[Tensor, "batch length"]) -> Prediction:
        law = None if truth is None else every_next_token_log_probs(truth, tokens)
        return Prediction(tokens, tokens, torch.ones_like(tokens, dtype=torch.bool), law)

    return RowByRow(prepare)


def masked(
    *,
    words: Count,
    p_m: Number,
    p_c: Number = 0.0,
    p_r: Number = 0.0,
    truth: Masked | None = None,
) -> Objective:
    """Predict the selected tokens of a sequence corrupted again at every step.

    The mask token is `words`, one past the words. BERT's 80/10/10 is p_c = p_r = 0.1. An exact
    target needs p_c = p_r = 0: a kept or replaced token tells the network something that the
    conditional given the shown tokens does not know.
    """
    words = as_size("words", words)
    p_m, p_c, p_r = as_rates(p_m, p_c, p_r)
    if truth is not None and (p_c or p_r):
        raise UserError(
            f"exact targets need p_c = p_r = 0, given p_c = {p_c} and p_r = {p_r}: the exact "
            "conditional is the one given a mask, not given a kept or replaced token"
        )

    def prepare(tokens: Int[Tensor, "batch length"], rng: Rng) -> Prediction:
        seen, selected = corrupt(
            tokens, rng, words=words, mask_token=words, p_m=p_m, p_c=p_c, p_r=p_r
        )
        law = None if truth is None else truth.masked_log_probs(tokens, selected)
        return Prediction(seen, tokens, selected, law)

    return prepare


def positions(k: Count, *, words: Count, truth: Masked | None = None) -> Objective:
    """Predict k positions, drawn without replacement, from all the others [li, 4.1]."""
    k, words = as_size("k", k), as_size("words", words)

    def prepare(tokens: Int[Tensor, "batch length"], rng: Rng) -> Prediction:
        if k > tokens.shape[1]:
            raise UserError(f"k is {k}; sequences have {tokens.shape[1]} positions", parameter="k")
        hidden = torch.zeros_like(tokens, dtype=torch.bool)
        for _ in range(k):  # a taken position has no chance to be drawn again
            free = torch.zeros(tokens.shape, dtype=torch.float64, device=tokens.device)
            drawn = rng.categorical(free.masked_fill(hidden, -torch.inf).log_softmax(-1))
            hidden = hidden.scatter(1, drawn[:, None], True)
        law = None if truth is None else truth.masked_log_probs(tokens, hidden)
        return Prediction(tokens.masked_fill(hidden, words), tokens, hidden, law)

    return prepare


def loss(
    logits: Float[Tensor, "batch length vocab"],
    prediction: Prediction,
    name: LossName = "cross_entropy",
) -> Float[Tensor, ""]:
    """Mean over the scored positions, or their weighted sum (see `Prediction`).

    cross_entropy   -Σ_w target(w) log softmax(logits)(w), in nats
    squared         Σ_w (logits(w) - target(w))² [li, (2.3)]
    """
    return _means(_at_each_position(logits, prediction, name), prediction, 1)[0]


def scored_loss(
    logits: ScoredLogits, prediction: Prediction, name: LossName = "cross_entropy"
) -> Float[Tensor, ""]:
    """The `loss` from the logits of the scored positions, to rounding.

    Answers that many positions share go through the softmax once.
    """
    answers, place = logits
    tokens = prediction.tokens[prediction.scored]
    place = torch.arange(len(tokens), device=tokens.device) if place is None else place
    if prediction.law is None:
        each = _against_tokens(answers, place, tokens, name)
    else:
        law = prediction.law[prediction.scored]
        each = _against_law(answers.index_select(0, place), law, name)
    if prediction.weight is not None:
        weight = prediction.weight[prediction.scored].to(each.dtype)
        return (each * weight).sum() / prediction.scored.numel()
    return each.sum() / max(1, len(tokens))


def placed_loss(
    logits: Float[Tensor, "batch places vocab"],
    at: Int[Tensor, "batch places"],
    prediction: Prediction,
    name: LossName = "cross_entropy",
) -> Float[Tensor, ""]:
    """The `loss` from logits at the positions `at`, to rounding; nan if a scored one is missing.

    Unlike `scored_loss` its shapes do not depend on how many positions are scored, which is what a
    recorded step needs.
    """
    scored = prediction.scored.gather(1, at)
    law = prediction.law
    if law is not None:
        law = law.gather(1, at[..., None].expand(-1, -1, law.shape[-1]))
    weight, share = prediction.weight, at.shape[1] / prediction.scored.shape[1]
    weight = None if weight is None else weight.gather(1, at) * share
    tokens = prediction.tokens.gather(1, at)
    found = loss(logits, Prediction(at, tokens, scored, law, weight), name)
    missing = scored.sum() != prediction.scored.sum()
    return torch.where(missing, torch.nan, found)


def scored_places(scored: Bool[Tensor, "batch length"], most: int) -> Int[Tensor, "batch {most}"]:
    """The scored positions of every row, then others: `most` in all.

    Worked value: scored at 1 and 3 of 4 positions, most 3: 1, 3, 0.
    """
    return scored.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]


def places_needed(scored: Bool[Tensor, "batch length"]) -> int:
    """How many positions of a row hold all scored ones in every batch like this.

    Where rows differ, eight standard deviations above their mean: a chance of less than 1e-9.
    Worked value: 25 scored positions on average of 512: 25 + 8 √25 + 8 = 73, and 80 as a multiple
    of 16.
    """
    counts = scored.sum(1)
    fewest, mean, length = int(counts.min()), float(counts.double().mean()), scored.shape[1]
    if fewest == int(counts.max()):
        return max(1, fewest)
    wanted = mean + 8 * math.sqrt(mean) + 8
    return min(length, 16 * math.ceil(wanted / 16))


def member_scored_losses(
    answers: Float[Tensor, "members answers vocab"],
    place: Int[Tensor, " scored"],
    prediction: Prediction,
    name: LossName = "cross_entropy",
) -> Float[Tensor, " members"]:
    """The `scored_loss` of every member; all of them answer the same questions about tokens."""
    members, count = answers.shape[:2]
    tokens = prediction.tokens[prediction.scored]
    places = count * torch.arange(members, device=place.device)[:, None] + place
    each = _against_tokens(answers.flatten(0, 1), places.flatten(), tokens.repeat(members), name)
    return each.view(members, -1).sum(1) / max(1, len(tokens))


def _against_tokens(
    answers: Float[Tensor, "answers vocab"],
    place: Int[Tensor, " n"],
    tokens: Int[Tensor, " n"],
    name: LossName,
) -> Float[Tensor, " n"]:
    if name == "cross_entropy":
        return -_entries(_log_probs(answers), place, tokens)
    if name == "squared":
        # ‖logits - onehot‖² = ‖logits‖² - 2 logits(x) + 1
        squares = answers.square().sum(-1).index_select(0, place)
        return squares - 2 * _entries(answers, place, tokens) + 1
    raise UserError(f"loss is {name!r}; it must be 'cross_entropy' or 'squared'")


def _entries(
    table: Float[Tensor, "rows vocab"], row: Int[Tensor, " n"], column: Int[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """table[row, column]; the gradient of `index_select` is faster than that of indexing."""
    return table.reshape(-1).index_select(0, row * table.shape[1] + column)


def member_losses(
    logits: Float[Tensor, "members batch length vocab"],
    predictions: Prediction,
    name: LossName = "cross_entropy",
) -> Float[Tensor, " members"]:
    """The `loss` of every member; `predictions` holds the rows of member 0, then of member 1, …"""
    each = _at_each_position(logits.flatten(0, 1), predictions, name)
    return _means(each, predictions, len(logits))


def _means(
    each: Float[Tensor, "batch length"], predictions: Prediction, members: int
) -> Float[Tensor, " members"]:
    """The loss of every member from the losses of all positions, its rows one after the other."""
    counted = predictions.scored.to(each.dtype)
    if predictions.weight is None:
        total, count = (values.reshape(members, -1).sum(1) for values in (each * counted, counted))
        return total / count.clamp(min=1.0)
    weighted = each * predictions.weight.to(each.dtype) * counted
    return weighted.reshape(members, -1).mean(1)


def _at_each_position(
    logits: Float[Tensor, "batch length vocab"], prediction: Prediction, name: LossName
) -> Float[Tensor, "batch length"]:
    tokens, law = prediction.tokens, prediction.law
    if prediction.kept is not None:
        noisy = prediction.seen[:, -tokens.shape[1] :]
        return jump_losses(_log_probs(logits), noisy, tokens, prediction.kept)
    if law is not None:
        return _against_law(logits, law, name)
    if name == "cross_entropy":
        return -_log_probs(logits).gather(-1, tokens[..., None])[..., 0]
    if name == "squared":
        target = F.one_hot(tokens, logits.shape[-1]).to(logits.dtype)
        return (logits - target).square().sum(-1)
    raise UserError(f"loss is {name!r}; it must be 'cross_entropy' or 'squared'")


def _against_law(
    logits: Float[Tensor, "*rows vocab"], law: Float[Tensor, "*rows vocab"], name: LossName
) -> Float[Tensor, "*rows"]:
    """The expected loss when tokens are drawn from `law`, given as log-probabilities."""
    if name == "cross_entropy":
        log_probs = _log_probs(logits)
        return -(law.exp().to(log_probs.dtype) * log_probs).sum(-1)
    if name == "squared":
        # E ‖logits - onehot‖² = ‖logits - p‖² + 1 - ‖p‖²
        p = law.exp().to(logits.dtype)
        return (logits - p).square().sum(-1) + 1 - p.square().sum(-1)
    raise UserError(f"loss is {name!r}; it must be 'cross_entropy' or 'squared'")


def _log_probs(logits: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
    return F.log_softmax(logits.float() if logits.dtype == torch.bfloat16 else logits, -1)

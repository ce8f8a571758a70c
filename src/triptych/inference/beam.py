"""Beam search: of all strings that were begun, the most probable ones are continued.

At every step each of the `beams` best prefixes is continued by every token, and of these the
`beams` most probable are kept. A prefix that ends stays in the beam with the probability it has.
With one beam this is greedy decoding; with as many beams as there are strings it finds the mode.

The search compares sums of log-probabilities. At the end, hypotheses of one row are ranked by

    log p(x) / ((5 + |x|) / 6)^a        a: `length_penalty`, 0 for log p(x) itself [Wu et al., 2016]

with |x| tokens before the end token.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.protocols import Decoder
from triptych.core.validation import (
    Count,
    Number,
    UserError,
    as_count,
    as_integers,
    as_number,
    as_size,
    check_can,
)


class Beams(NamedTuple):
    """The hypotheses of every row, the best first.

    tokens      before the end token, -1 beyond
    lengths     how many those are
    log_probs   of the tokens, and of the end token where there is one
    ended       whether the end token was written; else the hypothesis was cut
    passes      questions to the model, each about all rows
    """

    tokens: Int[Tensor, "batch beams length"]
    lengths: Int[Tensor, "batch beams"]
    log_probs: Float[Tensor, "batch beams"]
    ended: Bool[Tensor, "batch beams"]
    passes: int


def beam_search(
    decoder: Decoder,
    *,
    beams: Count,
    length: Count | list[int] | Int[Tensor, " batch"],
    end_token: Count,
    length_penalty: Number = 0.0,
) -> Beams:
    """The likeliest strings that the search finds, of at most `length` tokens with the end token.

    `length` is one number, or one for each row. What is found for a row does not depend on the
    others: a row stays as it is once its beams have ended or are as long as they may be.

    The decoder is left as it was: the search works on forks.

    Worked value: p(0) = 0.6 and then p(0 | 0) = 0.5; p(1) = 0.4 and then p(1 | 1) = 0.9. One beam
    goes to 0 and finds 0.30; two beams find 1 1 with 0.36.
    """
    check_can("decoder", decoder, "next_log_probs", "append", "fork", "vocab_size", "lengths")
    beams = as_size("beams", beams)
    end = as_count("end_token", end_token, at_least=0)
    if end >= decoder.vocab_size:
        raise UserError(
            f"end_token is {end}; the model has tokens 0 to {decoder.vocab_size - 1}",
            parameter="end_token",
        )
    alpha = as_number("length_penalty", length_penalty)
    batch, vocab = len(decoder.lengths), decoder.vocab_size
    if batch == 0:
        raise UserError(
            "the decoder has no rows; beam search needs at least one", parameter="decoder"
        )
    device = decoder.lengths.device
    limits = _limits(length, batch, device)
    longest = int(limits.max())
    rows = torch.arange(batch, device=device)
    decoder = decoder.fork(rows.repeat_interleave(beams))
    total = torch.full((batch, beams), -torch.inf, device=device, dtype=torch.float64)
    total[:, 0] = 0.0  # the beams of a row begin alike: one of them counts
    written = torch.full((batch, beams, longest), -1, device=device)
    ended = torch.zeros((batch, beams), dtype=torch.bool, device=device)
    lengths = torch.zeros((batch, beams), dtype=torch.long, device=device)
    over = torch.zeros((batch, 1), dtype=torch.bool, device=device)  # rows that stay as they are
    same = torch.arange(beams, device=device).expand(batch, -1)
    passes = 0
    for position in range(longest):
        log_probs = decoder.next_log_probs().reshape(batch, beams, vocab)
        passes += 1
        # Of each beam no more than `beams` continuations can be kept.
        best, tokens = log_probs.topk(min(beams, vocab), dim=-1)
        best = total[:, :, None] + best.double()
        # A hypothesis that has ended stays as it is: one continuation, at no cost.
        kept = torch.full_like(best, -torch.inf)
        kept[:, :, 0] = total
        best = torch.where(ended[:, :, None], kept, best)
        tokens = torch.where(ended[:, :, None], end, tokens)
        top, chosen = _top(best.flatten(1), beams)
        total = torch.where(over, total, top)
        origin = torch.where(over, same, chosen // best.shape[-1])
        token = torch.where(over, tokens[:, :, 0], tokens.flatten(1).gather(1, chosen))
        written = written.gather(1, origin[:, :, None].expand(-1, -1, longest))
        ended, lengths = ended.gather(1, origin), lengths.gather(1, origin)
        writes = ~over & ~ended & (token != end)
        written[:, :, position] = torch.where(writes, token, -1)
        lengths = lengths + writes.long()
        ended = ended | (~over & (token == end))
        over = ended.all(-1, keepdim=True) | (limits[:, None] <= position + 1)
        if bool(over.all()):
            break
        if beams > 1:
            decoder = decoder.fork((rows[:, None] * beams + origin).flatten())
        decoder.append(token.flatten())
    score = total / ((5 + lengths.double()) / 6) ** alpha
    order = score.argsort(dim=-1, descending=True, stable=True)
    return Beams(
        written.gather(1, order[:, :, None].expand(-1, -1, longest)),
        lengths.gather(1, order),
        total.gather(1, order),
        ended.gather(1, order),
        passes,
    )


def _limits(
    length: Count | list[int] | Int[Tensor, " batch"], batch: int, device: torch.device
) -> Int[Tensor, " batch"]:
    """The most tokens of every row."""
    if not isinstance(length, list) and not (isinstance(length, Tensor) and length.ndim):
        return torch.full((batch,), as_size("length", length), device=device)
    limits = as_integers("length", length, dimensions=1, device=device)
    if len(limits) != batch:
        raise UserError(
            f"length has {len(limits)} numbers and the decoder {batch} rows; pass one number for "
            "each row, or one for all",
            parameter="length",
        )
    as_size("the smallest length", int(limits.min()))
    return limits


def _top(
    values: Float[Tensor, "batch candidates"], count: int
) -> tuple[Float[Tensor, "batch count"], Int[Tensor, "batch count"]]:
    """The largest values and their places; one that is impossible has the place of the best."""
    missing = max(count - values.shape[1], 0)
    padded = torch.nn.functional.pad(values, (0, missing), value=-torch.inf)
    best, places = padded.topk(count, dim=-1)
    return best, torch.where(best == -torch.inf, places[:, :1], places)

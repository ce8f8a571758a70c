"""Sentences through a translator: from left to right by beam search, or by refinement.

Sources and translations are lists of token numbers here; `models.vocabulary` turns them into text.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError, as_size
from triptych.inference.beam import beam_search
from triptych.inference.chains.refinement import (
    Refined,
    Score,
    Stutter,
    best_hypotheses,
    drop_stutter,
    mask_start,
    refine,
    stutters,
)
from triptych.models.encoder_decoder import Encoded, EncoderDecoder
from triptych.models.translators import SourceDecoder, SourceRefiner
from triptych.training.corpus import padded
from triptych.training.translation import END, FIRST_WORD, MASK, START

Tokens = list[list[int]]
Start = Literal["random", "masks"]


@dataclass(frozen=True)
class Translated:
    """What came out, a row per sentence.

    tokens      the translations
    passes      of the decoder, for each sentence
    stutter     tokens equal to their left neighbour, counted before any of them is dropped
    seconds     for all sentences together
    """

    tokens: Tokens
    passes: list[int]
    stutter: list[int]
    seconds: float


@dataclass(frozen=True)
class Refinement:
    """How a parallel decoder translates.

    steps      T, at most; a sentence that does not change any more stops
    lengths    target lengths tried for each sentence; the most probable hypothesis wins
    stutter    what replaces a repeated token between two steps
    drop       whether repeated tokens are dropped at the end
    by         hypotheses are ranked by the mean of their tokens' log-probabilities, or by the sum,
               as in the authors' program
    """

    steps: int = 4
    lengths: int = 5
    start: Start = "random"
    stutter: Stutter = "previous"
    drop: bool = True
    by: Score = "mean"


def encode(net: EncoderDecoder, sources: Sequence[Sequence[int]]) -> Encoded:
    """The sources, read by the encoder; what is too long or empty is refused."""
    longest, shortest = max(map(len, sources)), min(map(len, sources))
    if longest > net.shape.length or shortest == 0:
        wrong = longest if longest > net.shape.length else 0
        raise UserError(
            f"a source sentence has {wrong} tokens; this translator reads 1 to {net.shape.length}"
        )
    rows, lengths = padded(sources, longest, net.device)
    return net.encode(rows.long(), lengths.long())


def in_batches(
    sources: Sequence[Sequence[int]],
    batch: int,
    translate: Callable[[list[Sequence[int]]], Translated],
) -> Translated:
    """Sentences of similar length together, the answers in the order of the questions."""
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    tokens: Tokens = [[] for _ in sources]
    passes, stutter = [0] * len(sources), [0] * len(sources)
    seconds = 0.0
    for first in range(0, len(order), batch):
        rows = order[first : first + batch]
        found = translate([sources[i] for i in rows])
        seconds += found.seconds
        for place, i in enumerate(rows):
            tokens[i] = found.tokens[place]
            passes[i], stutter[i] = found.passes[place], found.stutter[place]
    return Translated(tokens, passes, stutter, seconds)


@torch.no_grad()
def search(
    net: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    *,
    beams: int,
    length_penalty: float = 1.0,
) -> Translated:
    """From left to right; one beam is greedy. A translation has at most 1.5 |source| + 10 tokens.

    The limit is each sentence's own, so a translation does not depend on the rest of the batch. The
    end token counts, and no limit is above the network's own length. Repeated tokens stay.

    A pass writes one token of every sentence, so a sentence is charged for its own tokens and the
    end token, not for the longest of its batch.
    """
    began = time.perf_counter()
    decoder = SourceDecoder(net, encode(net, sources), start_token=START)
    limits = [min(net.shape.length, int(1.5 * len(source)) + 10) for source in sources]
    found = beam_search(
        decoder, beams=beams, length=limits, end_token=END, length_penalty=length_penalty
    )
    lengths = found.lengths[:, 0].tolist()
    rows = found.tokens[:, 0].tolist()
    tokens = [row[:length] for row, length in zip(rows, lengths, strict=True)]
    passes = [min(length + 1, limit) for length, limit in zip(lengths, limits, strict=True)]
    repeated = [equal_neighbours(row) for row in tokens]
    return Translated(tokens, passes, repeated, time.perf_counter() - began)


def equal_neighbours(tokens: Sequence[int]) -> int:
    """Tokens that equal the one before them. Worked value: 5 5 5 7 7 has 3."""
    return sum(a == b for a, b in itertools.pairwise(tokens))


def first_hypotheses(
    lengths: Int[Tensor, " rows"], vocab_size: int, start: Start, rng: TorchRng
) -> Int[Tensor, "rows length"]:
    """Random words, or masks; 0 beyond the length of a row."""
    if start == "masks":
        return mask_start(lengths, MASK)
    width = int(lengths.max())
    words = vocab_size - FIRST_WORD
    law = torch.zeros(1, words, dtype=torch.float64, device=lengths.device).log_softmax(-1)
    rows = torch.zeros(len(lengths), width, dtype=torch.long, device=lengths.device)
    drawn = FIRST_WORD + rng.categorical(law, rows)
    inside = torch.arange(width, device=lengths.device) < lengths[:, None]
    return torch.where(inside, drawn, 0)


@dataclass(frozen=True)
class RefinedBatch:
    """A batch of sentences after refinement, several hypotheses each.

    encoded    sources, a row for every hypothesis
    best       the row of the most probable hypothesis of every sentence
    """

    encoded: Encoded
    lengths: Int[Tensor, " rows"]
    refined: Refined
    best: Int[Tensor, " sentences"]


@torch.no_grad()
def refine_batch(
    net: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    how: Refinement,
    rng: TorchRng,
    *,
    record: bool = False,
) -> RefinedBatch:
    """Predict lengths, begin a hypothesis of each, and refine all of them together."""
    each = as_size("lengths", how.lengths)
    encoded = encode(net, sources)
    lengths = net.likely_lengths(encoded, each)
    each = lengths.shape[1]
    rows = torch.arange(len(lengths), device=lengths.device).repeat_interleave(each)
    encoded, lengths = encoded.rows(rows), lengths.flatten()
    initial = first_hypotheses(lengths, net.shape.vocab_size, how.start, rng)
    refined = refine(
        SourceRefiner(net, encoded),
        initial,
        lengths,
        steps=how.steps,
        stutter=how.stutter,
        mask_token=MASK,
        lowest=FIRST_WORD,
        rng=rng,
        record=record,
    )
    best = best_hypotheses(refined.log_probs, lengths, each=each, by=how.by)
    return RefinedBatch(encoded, lengths, refined, best)


def refined_translations(
    net: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    how: Refinement,
    rng: TorchRng,
) -> Translated:
    """By refinement: the best of several lengths, repeated tokens dropped."""
    began = time.perf_counter()
    batch = refine_batch(net, sources, how, rng)
    tokens, lengths = batch.refined.tokens[batch.best], batch.lengths[batch.best]
    repeated = stutters(tokens, lengths).sum(-1)
    if how.drop:
        tokens, lengths = drop_stutter(tokens, lengths)
    rows = [row[:n] for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)]
    steps = batch.refined.steps[batch.best].tolist()
    return Translated(rows, steps, repeated.tolist(), time.perf_counter() - began)

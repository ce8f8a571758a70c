"""Refinement with other rules: what is done about repeated tokens, and about unsure ones.

    published    a token equal to its left neighbour is replaced, before the next step, by the token
                 that was read there; after the last step such tokens are dropped [li, 4.2.3]
    before       the same, and nothing is dropped: what there was before dropping
    program      as the authors' program does it: replaced after the last step too, and then
                 every token is left out that equals that of the first hypothesis
    least_sure   a remasking schedule: after step t of T the share (T - t) / T of the tokens that
                 the network is least sure of become random words; repeats are dropped at the end
    random       a repeated token is replaced by a random word; repeats are dropped at the end
    keep         nothing is replaced between steps; repeats are dropped at the end

The program compares the first token with the last place of its padded row, which is padding unless
a sentence fills the row. Here the first token has no left neighbour.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.randomness import TorchRng
from triptych.inference.chains.refinement import (
    Refiner,
    best_hypotheses,
    drop_stutter,
    stutters,
)
from triptych.models.encoder_decoder import EncoderDecoder
from triptych.models.translators import SourceRefiner
from triptych.studies.refinement.shared.attention import last_pass
from triptych.studies.refinement.shared.translating import (
    Refinement,
    Translated,
    encode,
    first_hypotheses,
    refine_batch,
    refined_translations,
)
from triptych.training.translation import FIRST_WORD

Rule = Literal["published", "before", "program", "least_sure", "random", "keep"]


@torch.no_grad()
def translated_by(
    net: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    rule: Rule,
    rng: TorchRng,
    *,
    steps: int,
    lengths: int,
) -> Translated:
    """Translations by refinement with one of the rules, the best of several lengths."""
    match rule:
        case "published":
            return refined_translations(net, sources, Refinement(steps, lengths), rng)
        case "before":
            how = Refinement(steps, lengths, drop=False)
            return refined_translations(net, sources, how, rng)
        case "random" | "keep":
            return refined_translations(net, sources, Refinement(steps, lengths, stutter=rule), rng)
        case "program":
            return _as_in_the_program(net, sources, Refinement(steps, lengths), rng)
        case "least_sure":
            return _with_a_schedule(net, sources, rng, steps=steps, lengths=lengths)


def _as_in_the_program(
    net: EncoderDecoder, sources: Sequence[Sequence[int]], how: Refinement, rng: TorchRng
) -> Translated:
    done = refine_batch(net, sources, how, rng, record=True)
    trace, best = done.refined.trace, done.best
    read = last_pass([each.hypotheses for each in trace], [each.active for each in trace])
    lengths, answer = done.lengths[best], done.refined.tokens[best]
    rows = finished_by_the_program(trace[0].hypotheses[best], read[best], answer, lengths)
    return Translated(
        rows,
        done.refined.steps[best].tolist(),
        stutters(answer, lengths).sum(-1).tolist(),
        done.refined.costs.seconds,
    )


def finished_by_the_program(
    first: Int[Tensor, "rows length"],
    read: Int[Tensor, "rows length"],
    answer: Int[Tensor, "rows length"],
    lengths: Int[Tensor, " rows"],
) -> list[list[int]]:
    """What the authors' program makes of the last answer.

    first     the first hypothesis
    read      what the last pass read at each position

    Worked value: the first hypothesis 7 1 2 9, the last pass read 7 8 2 9 and answered 3 3 2 4. The
    second 3 repeats its neighbour and becomes the 8 that was read. The 2 equals that of the first
    hypothesis and is left out. So 3 8 4.
    """
    replaced = torch.where(stutters(answer, lengths), read, answer)
    inside = torch.arange(answer.shape[1], device=answer.device) < lengths[:, None]
    kept = inside & (replaced != first)
    return [row[keep].tolist() for row, keep in zip(replaced, kept, strict=True)]


def _with_a_schedule(
    net: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    rng: TorchRng,
    *,
    steps: int,
    lengths: int,
) -> Translated:
    encoded = encode(net, sources)
    tried = net.likely_lengths(encoded, lengths)
    each = tried.shape[1]
    rows = torch.arange(len(tried), device=tried.device).repeat_interleave(each)
    encoded, tried = encoded.rows(rows), tried.flatten()
    vocab = net.shape.vocab_size
    first = first_hypotheses(tried, vocab, "random", rng)
    tokens, log_probs = refine_with_a_schedule(
        SourceRefiner(net, encoded), first, tried, rng, steps=steps, vocab=vocab
    )
    best = best_hypotheses(log_probs, tried, each=each)
    chosen, ends = tokens[best], tried[best]
    repeated = stutters(chosen, ends).sum(-1).tolist()
    chosen, ends = drop_stutter(chosen, ends)
    texts = [row[:n] for row, n in zip(chosen.tolist(), ends.tolist(), strict=True)]
    return Translated(texts, [steps] * len(texts), repeated, 0.0)


def refine_with_a_schedule(
    refiner: Refiner,
    first: Int[Tensor, "rows length"],
    lengths: Int[Tensor, " rows"],
    rng: TorchRng,
    *,
    steps: int,
    vocab: int,
) -> tuple[Int[Tensor, "rows length"], Float[Tensor, "rows length"]]:
    """The last answer and its log-probabilities, 0 beyond the length.

    After step t of T the floor(N (T - t) / T) least probable of the N tokens become random words.

    Worked value: N = 4 and T = 2: after the first step the two least probable.
    """
    inside = torch.arange(first.shape[1], device=first.device) < lengths[:, None]
    answer, sure = first, torch.zeros(first.shape, dtype=torch.float64, device=first.device)
    for step in range(steps):
        hypothesis = answer
        if step > 0:
            rank = sure.masked_fill(~inside, torch.inf).argsort(-1).argsort(-1)
            unsure = inside & (rank < (lengths * (steps - step) // steps)[:, None])
            hypothesis = torch.where(unsure, _random_words(answer, vocab, rng), answer)
        sure, answer = refiner.log_probs(hypothesis, lengths).max(-1)
        sure = torch.where(inside, sure.double(), 0.0)
        answer = torch.where(inside, answer, 0)
    return answer, sure


def _random_words(
    like: Int[Tensor, "rows length"], vocab: int, rng: TorchRng
) -> Int[Tensor, "rows length"]:
    words = vocab - FIRST_WORD
    law = torch.zeros(1, words, dtype=torch.float64, device=like.device).log_softmax(-1)
    return FIRST_WORD + rng.categorical(law, torch.zeros_like(like))

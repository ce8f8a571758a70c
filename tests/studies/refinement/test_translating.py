"""Beam search over sentences: what stands in a batch next to a sentence does not change it."""

import itertools

import pytest
import torch

from triptych.models.encoder_decoder import EncoderDecoder, PairShape
from triptych.studies.refinement.shared.translating import search
from triptych.training.translation import END

SOURCES = [[5], [6, 7], [8, 9, 10, 11], [12, 5] * 8, [7, 8, 9] * 9]
LIMITS = [11, 13, 16, 34, 40]  # 1.5 |source| + 10, at most 40


def net(*, ends: float = 1.0) -> EncoderDecoder:
    """A random network. With `ends` = 0 it never ends a sentence, with 0.7 some of them."""
    shape = PairShape(13, 40, width=16, layers=1, heads=2, feedforward=32, dropout=0.0)
    model = EncoderDecoder(shape, seed=3).eval()
    with torch.no_grad():
        model.embedding.weight[END] *= ends
    return model


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("ends", [0.0, 0.7])
def test_a_batch_translates_as_each_sentence_alone(beams: int, ends: float) -> None:
    model = net(ends=ends)
    together = search(model, SOURCES, beams=beams)
    alone = [search(model, [source], beams=beams) for source in SOURCES]
    assert together.tokens == [found.tokens[0] for found in alone]
    assert together.passes == [found.passes[0] for found in alone]
    assert together.stutter == [found.stutter[0] for found in alone]


def test_translations_reach_their_own_limits() -> None:
    found = search(net(ends=0.0), SOURCES, beams=1)
    assert [len(row) for row in found.tokens] == LIMITS
    assert found.passes == LIMITS


def test_repeated_tokens_are_counted() -> None:
    found = search(net(ends=0.0), SOURCES, beams=1)
    expected = [sum(a == b for a, b in itertools.pairwise(row)) for row in found.tokens]
    assert found.stutter == expected
    assert sum(expected) > 0

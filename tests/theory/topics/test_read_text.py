"""A text in a model's tokens: what is no text, and where passages come from."""

import pytest
from tests.support.planted_encoder import Planted
from tests.support.refusals import refused

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.theory.topics.read_text import ReadText, Sizes


def test_text_without_words_or_sentences():
    with refused("documents"):
        ReadText.of(Planted(), [[" "]])
    with pytest.raises(UserError, match="no paragraph has 16 tokens"):
        ReadText.of(Planted(), [["the frog"]]).passages(1, TorchRng(0))
    with refused("thresholds"):
        Sizes(thresholds=())


def test_passages_come_from_different_documents_first():
    text = ReadText([[[d] * 16, [d] * 17] for d in range(4)])
    passages = text.passages(6, TorchRng(0))
    assert sorted(passage[0] for passage in passages[:4]) == [0, 1, 2, 3]
    assert len(passages) == 6
    assert sorted(map(len, text.long_paragraphs())) == [16] * 4 + [17] * 4
    assert ReadText([[[1] * 15], [[2] * 16]]).long_paragraphs() == [[2] * 16]

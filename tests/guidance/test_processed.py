"""Logits processors see what `generate` would show them, in forks too."""

import torch
from tests.support.tiny_text_model import tiny_lm

from triptych.guidance.processed import ProcessedDecoder

LM = tiny_lm()


def test_processors_see_the_padding_and_the_row():
    seen = []

    def processors(ids, scores):
        seen.append(ids.tolist())
        return scores.index_fill(1, torch.tensor([7]), -torch.inf)

    decoder = ProcessedDecoder(LM, [[4], [4, 5]], [[0], []], processors)
    plain = LM.decoder([[4], [4, 5]])
    laws = decoder.next_log_probs()
    assert seen == [[[0, 4], [4, 5]]]
    assert torch.isneginf(laws[:, 7]).all()
    expected = plain.next_log_probs().index_fill(1, torch.tensor([7]), -torch.inf).log_softmax(-1)
    torch.testing.assert_close(laws, expected, rtol=1e-5, atol=1e-6)
    fork = decoder.fork([1, 0, 1])
    fork.append([6, 6], [0, 1])
    fork.next_log_probs()
    assert sorted(seen[1:]) == [[[4, 5]], [[4, 5, 6], [0, 4, 6]]]

"""The logits processor and a verifier with masks: one question a row, the law of `tokenwise`."""

import itertools

import pytest
import torch
from tests.support.tiny_text_model import END, EOS, tiny_lm

from triptych.core.validation import UserError
from triptych.guidance.logits import ValueLogitsProcessor

LM = tiny_lm()
MODEL, TOKENIZER, VOCAB = LM.model, LM.tokenizer, LM.vocab_size


class NoTwoAlike:
    """No completion has two equal tokens next to each other; soft ones halve V at odd tokens."""

    def __init__(self, graded=False):
        self.graded, self.asked, self.masked = graded, 0, 0

    def _last(self, asked):
        last = asked.tokens.gather(1, (asked.lengths[:, None] - 1))[:, 0]
        return torch.where(asked.lengths > asked.starts, last, -1)

    def masks(self, asked):
        self.masked += len(asked.row)
        allowed = torch.arange(VOCAB) != self._last(asked)[:, None]
        allowed[:, :2] = False  # padding and the beginning
        return allowed

    def log_values(self, asked):
        self.asked += len(asked.row)
        return torch.where(self._last(asked) % 2 == 1, 0.5, 1.0).double().log()


def after(verifier, rows, **options):
    ids = torch.tensor(rows)
    with torch.no_grad():
        scores = MODEL(input_ids=ids).logits[:, -1]
    return scores, ValueLogitsProcessor(verifier, prompt_length=2, **options)(ids, scores)


def test_what_the_mask_allows_keeps_its_score():
    verifier = NoTwoAlike()
    scores, found = after(verifier, [[1, 4, 5], [1, 4, 9]])
    for row, last in ((0, 5), (1, 9)):
        refused = {0, 1, last}
        assert set(torch.nonzero(found[row].isneginf())[:, 0].tolist()) == refused
        kept = [token for token in range(VOCAB) if token not in refused]
        assert found[row, kept].tolist() == scores[row, kept].tolist()
    assert (verifier.masked, verifier.asked) == (2, 0)


def test_a_graded_verifier_weighs_what_is_allowed():
    verifier = NoTwoAlike(graded=True)
    scores, found = after(verifier, [[1, 4, 5]], candidates=None)
    for token in range(2, VOCAB):
        gain = -torch.inf if token == 5 else torch.tensor(0.5 if token % 2 else 1.0).log()
        assert float(found[0, token]) == pytest.approx(float(scores[0, token] + gain), abs=1e-6)
    assert verifier.asked == VOCAB - 3


def test_inside_generate():
    processor = ValueLogitsProcessor(NoTwoAlike(), TOKENIZER, end_token=[EOS, END])
    torch.manual_seed(0)
    ids = torch.tensor([[1, 4], [1, 5]])
    options = {"do_sample": True, "max_new_tokens": 12, "logits_processor": [processor]}
    for row in MODEL.generate(input_ids=ids, **options)[:, 2:].tolist():
        written = [token for token in row if token > 3]
        assert all(a != b for a, b in itertools.pairwise(written))


def test_masks_that_allow_nothing_or_are_none():
    class Nothing(NoTwoAlike):
        def masks(self, asked):
            return super().masks(asked) & False

    class Wrong(NoTwoAlike):
        def masks(self, asked):
            return torch.ones(1, 2, dtype=torch.bool)

    with pytest.raises(UserError, match="refuses every token"):
        after(Nothing(), [[1, 4, 5]])
    with pytest.raises(UserError, match="Wrong must answer masks of shape"):
        after(Wrong(), [[1, 4, 5]])

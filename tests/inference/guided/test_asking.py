"""Verifiers of every form, asked the same question: one answer for rows of every length."""

import math

import pytest
import torch
from tests.support.tiny_text_model import tiny_classifier, tiny_tokenizer
from tests.support.toy_guided import Noisy, Values, standing_at

from triptych.core.protocols import Question, Verifier
from triptych.core.streams import RowStreams
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.inference.guided import best_of_n, tokenwise
from triptych.inference.guided.asking import as_verifier
from triptych.inference.guided.result import VerifierError
from triptych.verifiers.reward import RewardModel
from triptych.verifiers.text import TextRule

PROMPTS = [[], [0, 1], [2], [1, 1, 0, 2, 0], [2, 0, 1, 1], [2]]
LM = Table.random(3, 8, seed=0)


class Noted:
    """`Noisy` as a verifier, which keeps its questions."""

    def __init__(self):
        self.asked = []

    def log_values(self, asked):
        self.asked.append(asked)
        values = [Noisy().log_value(rows) for _, rows in asked.by_length()]
        places = [places for places, _ in asked.by_length()]
        return torch.cat(values)[torch.cat(places).argsort()]


class OfRows:
    """`Noisy` in the form of a verifier of a decoder's rows."""

    def decoder_log_value(self, decoder, rows):
        lengths, tokens = decoder.lengths[rows].tolist(), decoder.tokens[rows]
        return torch.cat(
            [Noisy().log_value(x[None, :t]) for x, t in zip(tokens, lengths, strict=True)]
        )


def written(verifier, algorithm=tokenwise, **options):
    decoder, rng = standing_at(LM, *PROMPTS), RowStreams(0, torch.arange(len(PROMPTS)))
    return algorithm.sample(decoder, verifier, length=8, end_token=2, rng=rng, **options)


def test_a_verifier_a_value_and_one_of_a_decoder_write_the_same():
    verifier = Noted()
    found = [written(each) for each in (verifier, Noisy(), OfRows())]
    assert found[0].completions() == found[1].completions() == found[2].completions()
    assert torch.equal(found[0].costs.verifier_calls, found[1].costs.verifier_calls)
    assert found[0].costs.verifier_passes == len(verifier.asked)
    assert found[1].costs.verifier_passes > len(verifier.asked)  # a question for every length


def test_a_question_says_whose_row_it_is_and_where_it_begins():
    verifier = Noted()
    written(verifier, best_of_n, n=2)
    (asked,) = verifier.asked
    assert asked.row.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert asked.starts.tolist() == [len(PROMPTS[row]) for row in asked.row.tolist()]
    last = asked.tokens.gather(1, asked.lengths[:, None] - 1)[:, 0]
    assert asked.over.tolist() == (last == 2).tolist()  # the others are cut off
    tokens = asked.decoder.tokens[asked.at]
    assert torch.equal(tokens, asked.tokens)
    some = asked.some(torch.tensor([3]))
    assert (some.row.tolist(), some.starts.tolist(), some.at.tolist()) == ([1], [2], [3])


def test_rows_of_one_length_by_hand():
    asked = Question.about(torch.tensor([[0, 1], [1, 1]]), start=1, over=True)
    assert (asked.lengths.tolist(), asked.starts.tolist()) == ([2, 2], [1, 1])
    assert (asked.over.tolist(), asked.row.tolist()) == ([True, True], [0, 1])
    value = Values(_01=0.5)
    assert as_verifier(value).log_values(asked).exp().tolist() == [0.5, 1.0]


@pytest.mark.parametrize("texts", [3, 64, 65])
def test_a_reward_model_reads_texts_of_all_lengths_together(texts):
    """Of ten lengths and a batch of 32: as few passes as there are batches."""
    reward = RewardModel(tiny_classifier(), tiny_tokenizer(), batch=32)
    rule = TextRule(
        reward, lambda ids: "ab" * len(ids) + "01"[sum(ids[:1]) % 2] * sum(ids[1:2]), batched=True
    )
    lengths = 2 + torch.arange(texts) % 10
    tokens = torch.arange(11).expand(texts, 11).clone()
    tokens[:, 0], tokens[:, 1] = torch.arange(texts) % 2, torch.arange(texts) // 20
    tokens = tokens.masked_fill(torch.arange(11) >= lengths[:, None], -1)
    zeros, every = torch.zeros(texts, dtype=torch.long), torch.arange(texts)
    asked = Question(tokens, lengths, zeros, every < 0, every)
    values = rule.log_values(asked)
    distinct = len({tuple(row) for row in tokens.tolist()})
    assert rule.passes == reward.passes == math.ceil(distinct / 32)
    alone = RewardModel(tiny_classifier(), tiny_tokenizer(), batch=1)
    one = TextRule(alone, rule.decode, batched=True).log_values(asked)
    torch.testing.assert_close(values, one, atol=1e-6, rtol=1e-5)
    assert alone.passes == distinct


def test_passes_of_a_reward_model_are_in_the_costs():
    reward = RewardModel(tiny_classifier(), tiny_tokenizer(), batch=2)
    letters = tiny_tokenizer().decode
    rule = TextRule(reward, lambda ids: letters([4 + i for i in ids]), batched=True)
    result = written(rule, best_of_n, n=2)
    assert result.costs.verifier_passes == reward.passes > 1


def test_who_fails_is_named():
    class Fails:
        def log_value(self, prefix):
            if prefix.shape[1] == 3:
                raise RuntimeError("no")
            return torch.zeros(len(prefix))

    with pytest.raises(VerifierError, match=r"Fails raised RuntimeError: no \(row 1, prefix"):
        written(Fails())
    with pytest.raises(UserError, match="int has neither"):
        as_verifier(3)
    assert as_verifier(None) is None
    assert isinstance(as_verifier(Noisy()), Verifier)

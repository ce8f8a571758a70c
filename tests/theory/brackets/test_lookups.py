"""Where a network must look back, against the exact law and by hand."""

import pytest
import torch

from triptych.core.validation import UserError
from triptych.structures.brackets.dyck import Dyck
from triptych.theory.brackets.lookups import (
    lookup_accuracy,
    lookup_weight,
    lookups,
    uniform_pattern,
)
from triptych.theory.brackets.patterns import stack_likeness, stack_pattern

LAW = Dyck.prefixes(2, 3, 12, q=0.5)


def test_a_lookup_by_hand():
    found = lookups(LAW.tokens("[()"), 2)
    assert [part.tolist() for part in found] == [[0], [3], [1], [0]]
    two = lookups(LAW.tokens("[(())]"), 2)
    assert two.place.tolist() == [4, 5]
    assert two.partner.tolist() == [2, 1]
    assert two.type.tolist() == [1, 0]


def test_sentences_without_lookups_get_a_sentence():
    with pytest.raises(UserError, match="no closing bracket of the sentences leaves"):
        lookups(LAW.tokens("[]()"), 2)


def test_the_truth_is_always_right_and_equal_closing_probabilities_never():
    tokens = LAW.sample(30, rng=0)
    where = lookups(tokens, 2)
    law = LAW.every_next_token_log_probs(tokens).exp()
    after = torch.cat([law, law[:, -1:]], 1)
    inside = where.place < tokens.shape[1]
    within = type(where)(*(part[inside] for part in where))
    assert lookup_accuracy(after, within) == 1.0
    even = after.clone()
    even[..., 1::2] = even[..., 1::2].mean(-1, keepdim=True)
    assert lookup_accuracy(even, within) == 0.0


def test_accuracy_by_hand():
    where = lookups(LAW.tokens("[()", "[()"), 2)
    predictions = torch.zeros(2, 4, 4)
    predictions[0, 3] = torch.tensor([0.2, 0.5, 0.2, 0.1])
    predictions[1, 3] = torch.tensor([0.2, 0.3, 0.2, 0.3])
    assert lookup_accuracy(predictions, where) == 0.5


def test_weight_is_stack_likeness_of_one_sentence():
    tokens = LAW.tokens("[(()())]")
    where = lookups(tokens, 2)
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(9, 9, generator=generator, dtype=torch.float64)
    pattern = scores.masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf).softmax(-1)
    assert lookup_weight(pattern[None], where) == pytest.approx(
        stack_likeness(pattern, tokens[0], 2)
    )
    assert lookup_weight(stack_pattern(tokens[0], 2)[None], where) == 1.0
    assert lookup_weight(uniform_pattern(4)[None], lookups(LAW.tokens("[()"), 2)) == 0.25


def test_uniform_patterns_are_laws_on_the_past():
    assert uniform_pattern(2).tolist() == [[1.0, 0.0], [0.5, 0.5]]
    assert torch.allclose(uniform_pattern(7).sum(-1), torch.ones(7, dtype=torch.float64))

"""Several heads: what a decoy changes (nothing), and what a network without types knows."""

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.validation import UserError
from triptych.models.constructions.balanced import balanced, balanced_scores, uniform
from triptych.models.constructions.heads import HeadsTransformer, with_decoy, without_types
from triptych.structures.brackets.dyck import Dyck
from triptych.theory.brackets.balance import Attention, balance_violation

TYPES, DEPTH, LENGTH = 2, 3, 20
LAW = Dyck.prefixes(TYPES, DEPTH, LENGTH, q=0.5)
TOKENS = LAW.sample(8, rng=0)
KINDS = 2 * TYPES * DEPTH + 1


def random_scores(seed, size=1.0):
    generator = torch.Generator().manual_seed(seed)
    free = size * torch.randn(KINDS, KINDS, generator=generator, dtype=torch.float64)
    return balanced_scores(free, TYPES, DEPTH)


@pytest.fixture
def model():
    return balanced(TYPES, DEPTH, LENGTH, q=0.5, scores=random_scores(0))


@pytest.fixture
def sizes():
    return 5 * torch.randn(KINDS, generator=torch.Generator().manual_seed(2)).double()


@pytest.mark.parametrize("first", [True, False])
def test_a_decoy_attends_and_writes_and_changes_nothing(model, sizes, first):
    both = with_decoy(model, random_scores(1), sizes, first=first)
    assert (both.predictions(TOKENS) - model.outputs(TOKENS)).abs().max() < 1e-12
    read, decoy = (1, 0) if first else (0, 1)
    patterns = both.patterns(TOKENS)
    assert torch.equal(patterns[:, read], model.pattern(TOKENS))
    other = balanced(TYPES, DEPTH, LENGTH, q=0.5, scores=random_scores(1))
    assert torch.allclose(patterns[:, decoy], other.pattern(TOKENS))
    written = both.inputs(TOKENS) @ both.heads[decoy].value.T
    assert written.norm(dim=-1).max() > 1.0


def test_given_patterns_are_used_as_they_stand(model, sizes):
    both = with_decoy(model, random_scores(1), sizes, first=False)
    own = both.patterns(TOKENS)
    assert torch.equal(both.predictions(TOKENS, own), both.predictions(TOKENS))
    off = own.clone()
    off[:, 1] = 0.0
    assert (both.predictions(TOKENS, off) - both.predictions(TOKENS)).abs().max() < 1e-12
    off = own.clone()
    off[:, 0] = 0.0
    assert (both.predictions(TOKENS, off) - both.predictions(TOKENS)).abs().max() > 0.4
    with refused("patterns"):
        both.predictions(TOKENS, own[:, :1])


def test_weights_go_to_a_file_and_back(model, sizes):
    both = with_decoy(model, random_scores(1), sizes, first=True)
    again = HeadsTransformer.from_weights(both.weights())
    assert torch.equal(again.predictions(TOKENS), both.predictions(TOKENS))
    assert repr(again) == repr(both)
    with pytest.raises(UserError, match="the weights have no constant"):
        HeadsTransformer.from_weights({k: v for k, v in both.weights().items() if k != "constant"})


def test_without_types_every_closing_bracket_is_as_likely(model, sizes):
    """By hand: after "[(" the law is (¼, 0, ¼, ½); without types it is (¼, ¼, ¼, ¼)."""
    both = with_decoy(model, random_scores(1), sizes, first=True)
    blind = without_types(both)
    assert torch.equal(blind.patterns(TOKENS), both.patterns(TOKENS))
    after = blind.predictions(LAW.tokens("[("))[0, 2]
    assert torch.allclose(after, torch.full((4,), 0.25, dtype=torch.float64))
    known = both.predictions(LAW.tokens("[("))[0, 2]
    assert torch.allclose(known, torch.tensor([0.25, 0.0, 0.25, 0.5]).double())
    sums = blind.predictions(TOKENS).sum(-1)
    assert torch.allclose(sums, torch.ones_like(sums))


def test_a_leak_with_scores_is_exact_up_to_its_length_and_not_balanced():
    leaky = balanced(TYPES, DEPTH, LENGTH, q=0.5, scores=random_scores(3), leak=0.5)
    wanted = LAW.every_next_token_log_probs(TOKENS).exp()
    assert (leaky.outputs(TOKENS)[:, :-1] - wanted).abs().max() < 1e-12
    assert balance_violation(Attention.of(leaky)) > 1e-3


def test_mistakes_get_a_sentence(model, sizes):
    with refused("model"):
        with_decoy(uniform(TYPES, DEPTH, LENGTH, q=0.5), random_scores(1), sizes, first=True)
    both = with_decoy(model, random_scores(1), sizes, first=True)
    with refused("heads"):
        HeadsTransformer(TYPES, DEPTH, both.vectors, (), both.mlp)
    with refused("vectors"):
        HeadsTransformer(TYPES, DEPTH, both.vectors[1:], both.heads, both.mlp)

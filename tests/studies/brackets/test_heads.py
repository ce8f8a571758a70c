"""Networks with several heads: heads that are off stay off, and patterns that are frozen stay."""

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.validation import UserError
from triptych.studies.brackets.shared.heads import TrainedHeads, heads_recipe, train
from triptych.studies.brackets.shared.networks import Language

LANGUAGE = Language(2, 3, "prefixes")
TOKENS = LANGUAGE.law(10).sample(4, rng=0)


def network(seed=0, sharpness=1.0):
    return TrainedHeads.new(LANGUAGE, 2, 16, seed=seed, sharpness=sharpness)


def test_predictions_are_the_softmax_of_the_model_on_brackets():
    one = network()
    with torch.no_grad():
        logits = one.model.token_logits(TOKENS)[..., :4]
    assert torch.allclose(one.predictions(TOKENS)[:, :-1], logits.softmax(-1).double())
    own = one.patterns(TOKENS)
    assert own.shape == (4, 2, 11, 11)
    assert torch.allclose(one.predictions(TOKENS, own), one.predictions(TOKENS))
    with refused("patterns"):
        one.predictions(TOKENS, own[:, :1])


def test_sharpness_is_the_spread_of_queries_and_keys():
    plain, sharp = network(sharpness=0.02), network(sharpness=2.0)
    ratio = sharp.attention.query.weight / plain.attention.query.weight
    assert torch.allclose(ratio, torch.full_like(ratio, 100.0))
    assert torch.equal(plain.attention.value.weight, sharp.attention.value.weight)


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_head_that_is_off_stays_off_and_frozen_patterns_stay():
    off, frozen = network(), network(seed=1)
    off.switch_off(0)
    frozen.switch_off(1)
    for one in (off, frozen):
        one.freeze_patterns()
    before = frozen.patterns(TOKENS)
    old = off.model.net.output.weight.detach().clone()
    train([off, frozen], heads_recipe(5, batch=4), [0, 1], strings=20)
    assert not torch.equal(off.model.net.output.weight, old)
    assert off.attention.output is not None
    assert not off.attention.value.weight[:8].any()
    assert not off.attention.output.weight[:, :8].any()
    assert off.attention.value.weight[8:].all()
    patterns = off.patterns(TOKENS)
    patterns[:, 0] = 0.0
    assert torch.allclose(off.predictions(TOKENS, patterns), off.predictions(TOKENS))
    assert torch.equal(frozen.patterns(TOKENS), before)


def test_weights_go_to_a_file_and_back():
    one, other = network(), network(seed=3)
    assert torch.equal(one.copy().predictions(TOKENS), one.predictions(TOKENS))
    mixed = other.with_patterns_of(one)
    assert torch.equal(mixed.patterns(TOKENS), one.patterns(TOKENS))
    assert torch.equal(mixed.attention.value.weight, other.attention.value.weight)
    with pytest.raises(UserError, match="have no trained"):
        TrainedHeads.from_weights({})
    with pytest.raises(UserError, match="not those of a trained network"):
        TrainedHeads.from_weights({"trained": torch.tensor([2, 3, 2, 16])})

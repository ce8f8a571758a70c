"""A network has an id for every token and one for its start or mask token: the sentence says so."""

from dataclasses import replace

import pytest
import torch
from tests.support.refusals import refused
from torch import nn

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.models.language_models import CausalLM, MaskedLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.hidden_markov.hmm import HMM
from triptych.training.classifier import train_classifier
from triptych.training.corpus import Corpus
from triptych.training.ensembles import fit_ensemble
from triptych.training.loop import check_tokens, fit, gap_meter
from triptych.training.objectives import masked, next_token, positions
from triptych.training.step import Recipe

TRUTH = HMM.random(states=3, vocab_size=5, length=8, seed=0)
RECIPE = Recipe(steps=2, learning_rate=1e-3, batch=16)


def model_of(kind, vocab_size, length):
    shape = Shape(vocab_size=vocab_size, length=length, width=8, layers=1, causal=kind is CausalLM)
    return kind(Transformer(shape, seed=0))


OBJECTIVES = {
    "next token": (CausalLM, next_token()),
    "next token, exact": (CausalLM, next_token(TRUTH)),
    "masked": (MaskedLM, masked(words=5, p_m=0.5)),
    "masked, exact": (MaskedLM, masked(words=5, p_m=0.5, truth=TRUTH)),
    "positions": (MaskedLM, positions(2, words=5)),
}


def one(model, objective):
    fit(model, TRUTH.sample, objective, RECIPE, 0)


def quick(model, objective):
    fit(model, TRUTH.sample, objective, replace(RECIPE, quick=True), 0)


def several(model, objective):
    fit_ensemble([model], TRUTH.sample, objective, RECIPE, [0])


def from_a_corpus(model, objective):
    corpus = Corpus.draw(TRUTH, 50, TorchRng(0), chunk=8)
    fit_ensemble([model], corpus, objective, RECIPE, [0])


def metered(model, objective):
    gap_meter(objective, TRUTH.sample(20, TorchRng(0)))(model)


@pytest.mark.parametrize("train", [one, quick, several, from_a_corpus, metered])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_network_without_room_is_a_sentence(name, train):
    kind, objective = OBJECTIVES[name]
    special = "start token" if kind is CausalLM else "mask token"
    exact = name.endswith("exact")
    if train is metered and not exact:
        with pytest.raises(UserError):  # a gap is from exact laws
            train(model_of(kind, 6, 8), objective)
    else:
        train(model_of(kind, 6, 8), objective)
    for vocab_size in (5, 3, *([7] if exact else [])):
        with pytest.raises(UserError, match=rf"{special}.*vocab_size=6, the tokens and one more"):
            train(model_of(kind, vocab_size, 8), objective)
    with refused("lm"):
        train(model_of(kind, 6, 7), objective)


def test_what_the_network_only_reads_may_be_the_special_token():
    """As padding does, where nothing is judged."""
    padded = next_token()(torch.tensor([[3, 4, 5, 5]]), TorchRng(0))
    padded.scored[:, 2:] = False
    check_tokens(model_of(CausalLM, 6, 4), padded)
    for wrong in (padded._replace(seen=padded.seen + 1), padded._replace(tokens=padded.seen + 1)):
        with pytest.raises(UserError, match="vocab_size=7"):
            check_tokens(model_of(CausalLM, 6, 4), wrong)


@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        (2, torch.tensor([0, 1, 2, 0])),
        (2, torch.tensor([[0.5, 0.25, 0.25]] * 4)),
        (4, torch.tensor([[0.5, 0.25, 0.25]] * 4)),
    ],
)
def test_a_classifier_without_room_is_a_sentence(classes, labels):
    scores = nn.Parameter(torch.zeros(4, classes))
    with refused("labels"):
        train_classifier(lambda rows: scores[rows], labels, [scores], RECIPE, TorchRng(0))
    fitting = nn.Parameter(torch.zeros(4, 3))
    train_classifier(lambda rows: fitting[rows], labels, [fitting], RECIPE, TorchRng(0))

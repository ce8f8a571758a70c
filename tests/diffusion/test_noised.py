"""A network of uniform noise as a denoiser, and the two right answers under noise."""

import math

import pytest
import torch

from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.diffusion.denoiser import Canvas, Denoiser, ExactDenoiser
from triptych.diffusion.networks.noised import NoisedDenoiser
from triptych.models.jumps import posterior_of
from triptych.models.layers import Shape
from triptych.models.noised import NoisedLM
from triptych.models.transformer import Transformer
from triptych.training.bounds import TrueDenoiser, exact_noised_gap

TRUTH = Table.random(3, 3, seed=4)


def canvas(tokens, survival=0.4, hidden=False):
    tokens = torch.tensor(tokens)
    everywhere = torch.ones_like(tokens, dtype=torch.bool)
    away = everywhere & hidden
    rows = torch.arange(len(tokens))
    return Canvas(tokens, away, everywhere & ~away, survival, 0, 3, rows), everywhere


def test_a_network_answers_as_it_does():
    net = Transformer(Shape(7, 4, width=8, layers=1, heads=2, causal=False), seed=0)
    lm = NoisedLM(net, 4)
    denoiser = NoisedDenoiser(lm)
    assert isinstance(denoiser, Denoiser)
    question, asked = canvas([[0, 1, 2], [2, 2, 0]])
    found = denoiser.clean_log_probs(question, asked)
    wanted = lm.denoised_log_probs(question.tokens, [0.4, 0.4])
    torch.testing.assert_close(found, wanted.reshape(-1, 3))
    for wrong in (canvas([[0, 1, 2]], None), canvas([[0, 1, 2]], hidden=True)):
        with pytest.raises(UserError):
            denoiser.clean_log_probs(*wrong)


def test_two_ways_to_the_posterior_of_the_truth():
    """The enumeration of bounds and the one of samplers are the same law."""
    question, asked = canvas(TRUTH.sequences.tolist())
    found = ExactDenoiser(TRUTH).clean_log_probs(question, asked)
    kept = torch.full((27,), 0.4, dtype=torch.float64)
    wanted = TrueDenoiser(TRUTH).denoised_log_probs(TRUTH.sequences, kept)
    torch.testing.assert_close(found, wanted.reshape(-1, 3))


def test_the_right_answer_in_the_wrong_place():
    """The posterior of all tokens where the law given the others belongs: two equal bits."""
    equal = Table(2, 2, torch.tensor([0.5, 0, 0, 0.5], dtype=torch.float64).log())

    class Twice(TrueDenoiser):
        def denoised_log_probs(self, tokens, kept):
            return posterior_of(super().denoised_log_probs(tokens, kept), tokens, kept)

    assert exact_noised_gap(TrueDenoiser(equal), equal).bound == pytest.approx(math.log(2))
    assert exact_noised_gap(Twice(equal), equal).bound == pytest.approx(1.179, abs=1e-3)

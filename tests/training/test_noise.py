"""Objectives and bounds of diffusion models: worked values, exact bounds, unbiased draws."""

import math

import pytest
import torch

from triptych.core.enumeration import exact_law
from triptych.core.randomness import TorchRng
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.models.jumps import jump_losses, posterior_of
from triptych.models.language_models import MaskedLM
from triptych.models.layers import Shape
from triptych.models.noised import NoisedLM, level_of
from triptych.models.transformer import Transformer
from triptych.training.bounds import (
    TrueDenoiser,
    exact_masked_gap,
    exact_noised_gap,
    masked_bounds,
    noised_bounds,
)
from triptych.training.loop import fit
from triptych.training.noise import any_rate, masks_at_any_rate, uniform_noise
from triptych.training.objectives import Prediction, loss
from triptych.training.step import Recipe

TRUTH = Table.random(3, 3, seed=2)


def masked_lm(seed=0, length=3):
    shape = Shape(4, length, width=16, layers=1, heads=2, causal=False)
    return MaskedLM(Transformer(shape, seed=seed, init_scale=0.3))


def noised_lm(seed=0, levels=8):
    shape = Shape(3 + levels, 4, width=16, layers=1, heads=2, causal=False)
    return NoisedLM(Transformer(shape, seed=seed, init_scale=0.3), levels)


def test_worked_losses_of_jumps():
    """Two words, α = ½, d = (½, ½): (2 - log 3)/6 where kept, (3 log 3)/2 - 1 where it jumped."""
    fair = torch.full((1, 2, 2), math.log(0.5), dtype=torch.float64)
    found = jump_losses(fair, torch.tensor([[0, 1]]), torch.tensor([[0, 0]]), torch.tensor([0.5]))
    wanted = [(2 - math.log(3)) / 6, 1.5 * math.log(3) - 1]
    assert found[0].tolist() == pytest.approx(wanted)


def test_the_worked_posterior():
    """Two words, α = ½, d = (½, ½), z = 0: (¾, ¼), and back again."""
    fair = torch.full((1, 1, 2), 0.5, dtype=torch.float64).log()
    zero, half = torch.zeros((1, 1), dtype=torch.long), torch.tensor([0.5], dtype=torch.float64)
    found = posterior_of(fair, zero, half)
    assert found.exp()[0, 0].tolist() == pytest.approx([0.75, 0.25])
    torch.testing.assert_close(posterior_of(found, zero, half, back=True), fair)


def test_losses_of_jumps_are_divergences():
    """Never negative, and 0 when the denoiser knows the token."""
    generator = torch.Generator().manual_seed(0)
    said = torch.randn((500, 1, 4), generator=generator, dtype=torch.float64).log_softmax(-1)
    noisy, tokens = torch.randint(4, (2, 500, 1), generator=generator)
    kept = torch.rand(500, generator=generator, dtype=torch.float64)
    assert jump_losses(said, noisy, tokens, kept).min() > 0
    sure = torch.nn.functional.one_hot(tokens, 4).double().log()
    right = jump_losses(sure, noisy, tokens, kept)
    assert right.abs().max() < 1e-9


@pytest.mark.parametrize("block", [None, 2])
def test_weights_of_masks_have_mean_one(block):
    """The exact law of the masks: every position counts 1 on average, in or out of blocks."""

    def attempt(rng):
        hidden, scored, weight = masks_at_any_rate(
            torch.Size((1, 4)), rng, torch.device("cpu"), block=block
        )
        assert (scored <= hidden).all()
        return tuple((scored * weight)[0].tolist())

    law = exact_law(attempt)
    for place in range(4):
        mean = sum(prob * weights[place] for weights, prob in law.probs.items())
        assert mean == pytest.approx(1)


def test_long_rows_are_masked_by_sorting():
    """Each number of hidden positions is as frequent, and so is each position."""
    hidden, scored, weight = masks_at_any_rate(
        torch.Size((4000, 40)), TorchRng(0), torch.device("cpu")
    )
    assert torch.equal(hidden, scored)
    counts = hidden.sum(1)
    torch.testing.assert_close(weight[:, 0], 40 / counts)
    assert (int(counts.min()), int(counts.max())) == (1, 40)
    assert abs(float(counts.double().mean()) - 20.5) < 6 * 11.6 / math.sqrt(4000)
    assert (hidden.double().mean(0) - 20.5 / 40).abs().max() < 6 * 0.5 / math.sqrt(4000)


def test_an_exact_oracle_has_the_entropy():
    """Of every bound; by two blocks as well, and for the posterior of uniform noise."""
    for block in (None, 1, 2):
        assert abs(exact_masked_gap(TRUTH, TRUTH, block=block).gap) < 1e-12
    assert abs(exact_noised_gap(TrueDenoiser(TRUTH), TRUTH).gap) < 1e-9


def test_the_worked_gap_of_a_model_that_knows_nothing():
    """Two equal fair bits; a model that says ½ has the bound 2 log 2 and the gap log 2."""
    equal = Table(2, 2, torch.tensor([0.5, 0, 0, 0.5], dtype=torch.float64).log())
    fair = Table(2, 2, torch.full((4,), 0.25, dtype=torch.float64).log())
    found = exact_masked_gap(fair, equal)
    assert found.bound == pytest.approx(2 * math.log(2))
    assert found.gap == pytest.approx(math.log(2))
    assert exact_noised_gap(TrueDenoiser(fair), equal).gap == pytest.approx(math.log(2), abs=1e-9)


@pytest.mark.parametrize("block", [None, 2])
def test_estimates_of_the_masked_bound_are_unbiased(block):
    lm = masked_lm()
    wanted = exact_masked_gap(lm, TRUTH, block=block).bound
    tokens = TRUTH.sample(4000, TorchRng(0))
    found = masked_bounds(lm, tokens, 1, draws=4, block=block)
    error = float(found.std()) / math.sqrt(len(found))
    assert abs(float(found.mean()) - wanted) < 5 * error


def test_estimates_of_the_noised_bound_are_unbiased():
    lm = noised_lm()
    wanted = exact_noised_gap(lm, TRUTH, points=400).bound  # a step at every level
    tokens = TRUTH.sample(4000, TorchRng(0))
    found = noised_bounds(lm, tokens, 1, draws=4)
    error = float(found.std()) / math.sqrt(len(found))
    assert abs(float(found.mean()) - wanted) < 5 * error


def test_the_losses_are_the_bounds_per_token():
    """One step's loss is the estimate of the bound over the same draws, divided by the length."""
    tokens = TRUTH.sample(50, TorchRng(0))
    masked, noised = masked_lm(), noised_lm()
    one = any_rate(words=3)(tokens, TorchRng(5))
    found = loss(masked.token_logits(one.seen), one)
    assert found.item() == pytest.approx(masked_bounds(masked, tokens, 5, draws=1).mean() / 3)
    two = uniform_noise(words=3, levels=8)(tokens, TorchRng(5))
    found = loss(noised.token_logits(two.seen), two)
    assert found.item() == pytest.approx(noised_bounds(noised, tokens, 5, draws=1).mean() / 3)


def test_predictions_come_back_from_their_tensors():
    tokens = TRUTH.sample(6, TorchRng(0))
    for objective in (any_rate(words=3), any_rate(words=3, truth=TRUTH), uniform_noise(words=3)):
        drawn = objective(tokens, TorchRng(0))
        again = Prediction.of(drawn.tensors)
        assert [value is None for value in again] == [value is None for value in drawn]
        assert all(a is b for a, b in zip(again, drawn, strict=True))
        assert [len(part.tokens) for part in drawn.split(4)] == [4, 2]


def test_exact_targets_have_the_same_mean_loss():
    """With the truth as target, the loss is that of the token on average."""
    tokens = TRUTH.sample(4000, TorchRng(0))
    lm = masked_lm()
    pair = [
        loss(lm.token_logits(p.seen), p)
        for p in (
            any_rate(words=3)(tokens, TorchRng(5)),
            any_rate(words=3, truth=TRUTH)(tokens, TorchRng(5)),
        )
    ]
    assert abs((pair[0] - pair[1]).item()) < 0.1


@pytest.mark.parametrize("kind", ["masked", "noised"])
def test_training_closes_the_gap(kind):
    lm = masked_lm() if kind == "masked" else noised_lm()
    objective = any_rate(words=3) if kind == "masked" else uniform_noise(words=3, levels=8)

    def gap():
        if isinstance(lm, NoisedLM):
            return exact_noised_gap(lm, TRUTH, points=40).gap
        return exact_masked_gap(lm, TRUTH).gap

    before = gap()
    fit(lm, TRUTH.sample, objective, Recipe(150, batch=128, learning_rate=5e-3), 0)
    assert gap() < 0.25 * before


def test_levels():
    assert level_of(torch.tensor([0.3, 0.5, 1.0]), 2).tolist() == [0, 1, 1]
    lm = noised_lm()
    assert (lm.length, lm.vocab_size) == (3, 3)
    said = lm.denoised_log_probs([[0, 1, 2]], [0.25])
    assert said.exp().sum(-1).tolist()[0] == pytest.approx([1, 1, 1])
    other = lm.denoised_log_probs([[0, 1, 2]], [0.75])
    assert (said - other).abs().max() > 1e-6


def test_what_a_denoiser_refuses():
    with pytest.raises(UserError):
        NoisedLM(Transformer(Shape(5, 4, width=8, layers=1, heads=2), seed=0), 2)
    with pytest.raises(UserError):
        NoisedLM(noised_lm().net, 11)
    with pytest.raises(UserError):
        noised_lm().denoised_log_probs([[0, 1, 2]], [1.5])
    with pytest.raises(UserError):
        noised_lm().denoised_log_probs([[0, 1, 2, 0]], [0.5])
    with pytest.raises(UserError):
        any_rate(words=3, block=4)(TRUTH.sample(2, 0), TorchRng(0))

"""A learning curve to the exact floor, and networks whose shape fits a truth."""

import matplotlib
import pytest
import torch
from tests.support.refusals import refused

from triptych.core.randomness import TorchRng
from triptych.models.language_models import CausalLM, MaskedLM
from triptych.models.transformer import Shape, Transformer
from triptych.structures.hidden_markov.hmm import HMM
from triptych.training.curve import Curve, learning_curve
from triptych.training.loop import fit
from triptych.training.objectives import next_token
from triptych.training.step import Recipe

TRUTH = HMM.random(3, 5, 8, seed=0)
SMALL = {"width": 16, "layers": 1}


def test_a_network_that_fits_a_truth():
    net = Transformer.for_(TRUTH, seed=0, **SMALL)
    assert (net.shape.vocab_size, net.shape.length, net.shape.causal) == (6, 9, True)
    lm = CausalLM(net)
    tokens = TRUTH.sample(2, 0)
    assert lm.next_token_log_probs(tokens).shape == (2, 5)  # what follows all eight
    same = Transformer(Shape(6, 9, **SMALL), seed=0)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), same.parameters(), strict=True))
    masked = Transformer.for_(TRUTH, seed=0, causal=False, **SMALL)
    assert (masked.shape.length, masked.shape.causal) == (8, False)
    hidden = torch.ones_like(tokens, dtype=torch.bool)
    assert MaskedLM(masked).masked_log_probs(tokens, hidden).shape == (2, 8, 5)


@pytest.mark.usefixtures("unchecked_shapes")
def test_what_does_not_fit_is_a_sentence():
    with refused("truth"):
        Transformer.for_(3, seed=0)
    with refused("vocab_size"):
        Transformer.for_(TRUTH, seed=0, vocab_size=3)
    with refused("widht"):
        Transformer.for_(TRUTH, seed=0, widht=3)
    for shape in (Shape(6, 7, **SMALL), Shape(5, 9, **SMALL)):  # too short; no id for the start
        lm = CausalLM(Transformer(shape, seed=0))
        with pytest.raises(ValueError, match="its Shape needs"):
            fit(lm, TRUTH.sample, next_token(TRUTH), Recipe(steps=1, batch=2), TorchRng(0))


@pytest.mark.parametrize("causal", [True, False])
def test_a_curve_falls_toward_the_floor(causal):
    net = Transformer.for_(TRUTH, seed=0, causal=causal, **SMALL)
    model = CausalLM(net) if causal else MaskedLM(net)
    recipe = Recipe(steps=40, batch=16, learning_rate=1e-2)
    curve = learning_curve(TRUTH, model, recipe=recipe, points=4, test_rows=40, rate=0.3)
    assert curve.steps == (0, 10, 20, 30, 40)
    assert curve.model is model
    assert curve.kl[0] > curve.kl[-1] > 0
    assert all(loss > curve.floor for loss in curve.loss)
    page = curve._repr_html_()
    assert page.count("<polyline") == 2
    assert "exact floor" in page


def test_the_floor_is_the_entropy_of_the_truth():
    """A fair coin: the floor is log 2, and no network is below it."""
    coins = HMM(*(torch.tensor(p).double() for p in ([1.0], [[1.0]], [[0.5, 0.5]])), length=4)
    curve = learning_curve(coins, steps=1, points=1, test_rows=5)
    assert curve.floor == pytest.approx(0.6931471805599453)
    assert isinstance(curve.model, CausalLM)


def test_worked_value():
    curve = Curve((0, 10), (1.5, 1.0), 0.9, None)
    assert curve.kl == (pytest.approx(0.6), pytest.approx(0.1))
    assert repr(curve) == "Curve(10 steps, loss 1.5 to 1, floor 0.9)"


def test_a_plot_by_matplotlib():
    matplotlib.use("Agg")
    from matplotlib import pyplot

    axes = Curve((0, 10), (1.5, 1.0), 0.9, None).plot()
    assert [line.get_label() for line in axes.lines] == ["network", "exact floor"]
    pyplot.close(axes.figure)


@pytest.mark.usefixtures("unchecked_shapes")
def test_mistakes_are_sentences():
    for parameter, given in {
        "model": {"model": 3}, "steps": {"steps": 0}, "points": {"points": 0}, "rate": {"rate": 1},
        "test_rows": {"test_rows": 0}, "seed": {"seed": -1},
    }.items():  # fmt: skip
        with refused(parameter):
            learning_curve(TRUTH, **given)
    with refused("truth"):
        learning_curve(3)
    with refused("axes"):
        Curve((0, 1), (1.0, 0.5), 0.4, None).plot(axes=3)

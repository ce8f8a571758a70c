"""The only training step, by hand: rates, L2, clipping, averages, losses that are no numbers."""

import pytest
import torch
from torch import nn

from triptych.training import step
from triptych.training.step import Descent, Recipe, descend


def parameter(*values):
    return nn.Parameter(torch.tensor(values, dtype=torch.float64))


def sgd(**more):
    return Recipe(**({"steps": 2, "optimiser": "sgd", "learning_rate": 0.1} | more))


def test_two_steps_by_hand():
    """d/dx x² = 2x: 1 → 0.8 → 0.64, with the losses 1 and 0.64."""
    x = parameter(1.0)
    descent = Descent(sgd(), [x])
    descend(descent, lambda step: x.square().sum())
    assert x.item() == pytest.approx(0.64)
    assert descent.losses == pytest.approx([1.0, 0.64])


def test_a_working_copy_takes_the_place_of_the_parameters():
    """The loss is that of a float32 copy; 1 → 0.8 → 0.64 in both, the average 1 → 0.9 → 0.77."""
    x, copy = parameter(1.0), nn.Parameter(torch.tensor([1.0], dtype=torch.float32))
    unused = parameter(5.0), nn.Parameter(torch.tensor([5.0], dtype=torch.float32))
    descent = Descent(sgd(ema=0.5), [x, unused[0]], working=[copy, unused[1]])
    descend(descent, lambda step: copy.square().sum())
    assert x.item() == pytest.approx(0.64, abs=1e-6)
    assert copy.item() == pytest.approx(0.64, abs=1e-6)
    assert (unused[0].item(), unused[1].item()) == (5.0, 5.0)
    descent.use_average()
    assert x.item() == pytest.approx(0.77, abs=1e-6)


def test_the_rate_is_that_of_the_step():
    """Warmup of 2 steps: rates ½ and 1; 1 → 1 - 0.05 · 2 = 0.9 → 0.9 - 0.1 · 1.8 = 0.72."""
    x = parameter(1.0)
    descend(Descent(sgd(warmup=2), [x]), lambda step: x.square().sum())
    assert x.item() == pytest.approx(0.72)


def test_l2_and_clipping():
    """The gradient of 0 + ½ x² at 3 is 3, and is cut to 1: 3 → 2.9."""
    x = parameter(3.0)
    Descent(sgd(l2=0.5, clip=1.0), [x]).step(0, 0.0 * x.sum())
    assert x.item() == pytest.approx(2.9)


def test_every_member_is_clipped_by_its_own_norm():
    """Members at 3 and 0.25 have the gradients 6 and 0.5; only the first is cut to 1."""
    x = parameter([3.0], [0.25])
    descent = Descent(sgd(clip=1.0), [x], members=2)
    descend(descent, lambda step: x.square().sum(1), last=1)
    assert x[:, 0].tolist() == pytest.approx([2.9, 0.2], abs=1e-6)
    assert descent.losses == [[9.0, 0.0625]]


def test_an_average_without_the_initial_weights_by_hand() -> None:
    """Weights 0.8 and 0.64 after two steps, ema ½: (¼ · 0.8 + ½ · 0.64) / ¾."""
    x = nn.Parameter(torch.tensor([1.0]))
    descent = Descent(sgd(ema=0.5), [x], unbiased=True)
    for number in range(2):
        descent.step(number, x.square().sum())
    assert x.item() == pytest.approx(0.64)
    with descent.averaged():
        assert x.item() == pytest.approx((0.25 * 0.8 + 0.5 * 0.64) / 0.75)
    assert x.item() == pytest.approx(0.64)


def test_the_average_stands_in_for_a_while():
    """1 → 0.8 with ema ½: the average is ½ · 1 + ½ · 0.8 = 0.9."""
    x = parameter(1.0)
    descent = Descent(sgd(ema=0.5), [x])
    descent.step(0, x.square().sum())
    with descent.averaged():
        assert x.item() == pytest.approx(0.9)
    assert x.item() == pytest.approx(0.8)
    descent.use_average()
    assert x.item() == pytest.approx(0.9)


def test_after_and_first():
    x, seen = parameter(1.0), []
    descend(Descent(sgd(steps=5), [x]), lambda step: x.sum(), first=3, after=seen.append)
    assert seen == [4, 5]


@pytest.mark.parametrize("members", [None, 2])
def test_a_loss_that_is_no_number_names_its_step(members):
    x = parameter([1.0], [1.0]) if members else parameter(1.0)
    descent = Descent(sgd(steps=60), [x], members=members)

    def loss_at(step):
        value = x.sum(1) if members else x.sum()
        return value * torch.nan if step == 7 else value

    with pytest.raises(FloatingPointError, match=r"is nan at step 7; lower the learning rate"):
        descend(descent, loss_at)


@pytest.mark.numerical
@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_small_networks_take_the_same_steps_together(optimiser, monkeypatch):
    """The short way through an optimiser gives the numbers of the plain one, bit for bit."""
    recipe = Recipe(steps=20, optimiser=optimiser, weight_decay=0.1, learning_rate=0.02, clip=1.0)

    def trained(small):
        monkeypatch.setattr(step, "_SMALL", small)
        generator = torch.Generator().manual_seed(0)
        weights = [nn.Parameter(torch.randn(5, 7, generator=generator)) for _ in range(4)]
        descent = Descent(recipe, weights)
        assert descent.optimiser.param_groups[0]["foreach"] == (small > 0)
        descend(descent, lambda n: sum((w - n).square().mean() * w.norm() for w in weights))
        return weights

    for together, one_by_one in zip(trained(1000), trained(0), strict=True):
        assert torch.equal(together, one_by_one)

"""Pruning a random transformer to a given one: subset sums, matrices, layers, networks."""

import itertools

import pytest
import torch

from triptych.core.validation import UserError
from triptych.theory.brackets import pruning


def drawing(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: 2 * torch.rand(*shape, generator=generator, dtype=torch.float64) - 1


def test_best_subset_by_hand():
    values = torch.tensor([1.0, 2.0, 4.0]).double()
    assert pruning.best_subset(values, 5.2).tolist() == [True, False, True]
    assert pruning.best_subset(values, -3.0).tolist() == [False, False, False]


@pytest.mark.parametrize("count", [1, 2, 7, 10])
def test_best_subset_by_brute_force(count):
    draw = drawing(count)
    for _ in range(5):
        values, target = draw(count), float(draw(1))
        chosen = pruning.best_subset(values, target)
        off = abs(float(values[chosen].sum()) - target)
        least = min(
            abs(sum(subset) - target)
            for size in range(count + 1)
            for subset in itertools.combinations(values.tolist(), size)
        )
        assert off == pytest.approx(least, abs=1e-12)


def test_more_values_come_nearer():
    draw = drawing(1)
    errors = []
    for count in (4, 8, 16, 30):
        off = [
            abs(float((v := draw(count))[pruning.best_subset(v, 0.5)].sum()) - 0.5)
            for _ in range(10)
        ]
        errors.append(max(off))
    assert errors[-1] < 1e-4 < errors[0]


@pytest.mark.parametrize("relu", [True, False])
def test_a_product_is_the_matrix_on_both_signs(relu):
    draw = drawing(2)
    left, right, target = draw(5, 120), draw(120, 4), draw(3, 2)
    new_left, new_right = pruning.pruned_product(left, right, target, relu=relu)
    x = torch.tensor([[1.0, -0.5], [-1.0, 2.0], [0.3, 0.4], [-1.0, -2.0]]).double()
    x = torch.nn.functional.pad(x, (0, 2), value=9.0)  # other inputs are not read
    hidden = x @ new_right.T
    said = (hidden.relu() if relu else hidden) @ new_left.T
    assert torch.allclose(said[:, :3], x[:, :2] @ target.T, atol=1e-3)
    assert (said[:, 3:] == 0).all()
    assert ((new_left == left) | (new_left == 0)).all()
    with pytest.raises(UserError, match="does not fit"):
        pruning.pruned_product(left[:, :3], right[:3], target, relu=relu)


def networks(seed=0, block=48, layers=1):
    draw = drawing(seed)
    target = pruning.random_target(2, 4, layers, draw)
    return target, pruning.random_large(target, block, draw), draw


def test_the_target_by_hand():
    """One position attends to itself, so that a layer is W_2 ReLU(W_1 (LN(W_V x) + x))."""
    target, _, draw = networks()
    (layer,) = target.layers
    for matrix in layer.matrices().values():
        assert float(torch.linalg.matrix_norm(matrix, 2)) == pytest.approx(1)
    x = draw(1, 1, 2)
    value = layer.value @ x[0, 0]
    value = value - value.mean()
    value = value / max(float(value.norm()), 0.5)
    wanted = layer.mlp[1] @ (layer.mlp[0] @ (value + x[0, 0])).relu()
    assert torch.allclose(target(x)[0, 0], wanted)


def test_a_pruned_transformer_computes_the_target(unchecked_shapes):
    target, large, draw = networks()
    pruned = pruning.pruned_transformer(large, target)
    assert pruning.is_pruning(pruned, large)
    x = draw(20, 5, 2)
    errors = pruning.relative_errors(pruned, target, x)
    assert float(errors.max()) < 1e-2
    found = pruning.worst_input(pruned, target, x[:4], steps=4)
    assert float(errors[:4].max()) <= found + 1e-12 < 0.1


def test_a_changed_weight_is_no_pruning():
    target, large, _ = networks(block=8)
    pruned = pruning.pruned_transformer(large, target)
    pruned.layers[0].mlp[0][0, 0] += 0.5
    assert not pruning.is_pruning(pruned, large)


def test_two_functions_share_a_matrix(unchecked_shapes):
    """Corollary 2.2.3, for a layer before the pair and one after it."""
    first, large, draw = networks(block=40)
    second = pruning.random_target(2, 4, 1, draw)
    x = draw(10, 4, 2)
    assert float(pruning.relative_errors(first, second, x).max()) > 0.1
    for layer in (0, 2):
        one, two = (
            pruning.pruned_transformer(large, target, identity_at=layer)
            for target in (first, second)
        )
        same = zip(
            one.layers[layer].matrices().values(),
            two.layers[layer].matrices().values(),
            strict=True,
        )
        assert all(torch.equal(a, b) for a, b in same)
        assert one.layers[layer].mlp[0].any()
        assert float(pruning.relative_errors(one, first, x).max()) < 0.05
        assert float(pruning.relative_errors(two, second, x).max()) < 0.05


def test_norm_by_hand():
    x = torch.tensor([[[3.0, 4.0], [1.0, 0.0]]]).double()
    assert pruning.norm_1_2(x).tolist() == [5.0]


def test_too_few_layers_are_refused():
    target, large, _ = networks(block=4)
    with pytest.raises(UserError, match="4 layers are needed"):
        pruning.pruned_transformer(
            pruning.PlainTransformer(large.layers[:3], large.constant), target
        )

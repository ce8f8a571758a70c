"""The layer of [li, (2.42)] and its layer norm (2.43)."""

import torch

from triptych.models.constructions.normalised import Layer, Mlp, layer_norm


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_layer_norm_by_hand():
    x = torch.tensor([[3.0, 0.0, 0.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    wanted = torch.tensor([[2.0, -1.0, -1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    assert torch.allclose(layer_norm(x) * 6**0.5, wanted)
    assert torch.allclose(layer_norm(x, 12.0) * 12, wanted)


def test_layer_norm_is_a_projection_to_the_sphere():
    """It does not see multiples of (1, …, 1) nor the length, as the proofs use."""
    x = random(5, 7)
    assert torch.allclose(layer_norm(x), layer_norm(3 * x + 2))
    assert torch.allclose(layer_norm(x).norm(dim=1), torch.ones(5).double())
    assert torch.allclose(layer_norm(layer_norm(x)), layer_norm(x))


def test_a_layer_against_loops_over_positions():
    """(2.42) written out for every position."""
    key, query, value = random(2, 4), random(2, 4, seed=1), random(4, 4, seed=2)
    mlp = Mlp((random(5, 4, seed=3), random(3, 5, seed=4)), (random(5, seed=5), random(3, seed=6)))
    layer, x = Layer(key, query, value, mlp, 0.7), random(1, 6, 4, seed=7)
    for n in range(6):
        weights = torch.stack([(key @ x[0, i]) @ (query @ x[0, n]) for i in range(n + 1)]).exp()
        weights = weights / weights.sum()
        output = sum(w * (value @ x[0, i]) for i, w in enumerate(weights))
        output = output - output.mean()
        read = output / max(float(output.norm()), 0.7) + x[0, n]
        wanted = mlp.weights[1] @ (mlp.weights[0] @ read + mlp.biases[0]).relu() + mlp.biases[1]
        assert torch.allclose(layer(x)[0, n], wanted)
        assert torch.allclose(layer(x, n)[0, 0], wanted)


def test_blocks_of_queries_change_nothing(monkeypatch):
    mlp = Mlp((random(3, 4, seed=3),), (random(3, seed=6),))
    layer = Layer(random(2, 4), random(2, 4, seed=1), random(4, 4, seed=2), mlp)
    x = random(2, 9, 4, seed=7)
    whole = layer(x)
    monkeypatch.setattr("triptych.models.constructions.normalised._BLOCK", 2 * 9 * 2)
    assert torch.allclose(layer(x), whole, atol=1e-14)


def test_the_lipschitz_bound_is_one():
    mlp = Mlp((random(5, 4), random(3, 5, seed=4)), (random(5, seed=5), random(3, seed=6)))
    x, y = random(200, 4, seed=8), random(200, 4, seed=9)
    slopes = (mlp(x) - mlp(y)).norm(dim=1) / (x - y).norm(dim=1)
    assert float(slopes.max()) <= mlp.lipschitz
    one = Mlp((torch.tensor([[2.0]]).double(),), (torch.zeros(1).double(),))
    assert one.lipschitz == 2.0

"""Muon against a singular value decomposition, by its laws, and through `fit`."""

from pathlib import Path

import pytest
import torch
from tests.support.refusals import refused
from torch import Tensor, nn

from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError
from triptych.models.language_models import CausalLM
from triptych.models.layers import Shape
from triptych.models.transformer import Transformer
from triptych.structures.hidden_markov.hmm import HMM
from triptych.training.ensembles import fit_ensemble
from triptych.training.loop import fit, gap_meter, hidden_matrices
from triptych.training.muon import CUBIC, LINEAR, MOMENTUM, QUINTIC, Muon, orthogonalised
from triptych.training.objectives import next_token
from triptych.training.step import Descent, Recipe, optimiser_for


def random_matrices(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_decomposition(matrix: Tensor, rounds: int) -> Tensor:
    """The polynomial on the singular values themselves."""
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    s = s / s.square().sum().sqrt()
    for _ in range(rounds):
        s = LINEAR * s + CUBIC * s**3 + QUINTIC * s**5
    return u @ torch.diag(s) @ v


def test_one_round_by_hand() -> None:
    found = orthogonalised(torch.tensor([[[3.0, 0.0], [0.0, 4.0]]], dtype=torch.float64), rounds=1)
    expected = torch.tensor([[1.19327, 0.0], [0.0, 0.97648]], dtype=torch.float64)
    torch.testing.assert_close(found[0], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [(3, 3), (3, 5), (5, 3)])
def test_it_is_the_polynomial_of_the_singular_values(shape: tuple[int, int]) -> None:
    matrices = random_matrices(4, *shape)
    for rounds in (0, 1, 5):
        found = orthogonalised(matrices, rounds=rounds)
        for one, matrix in zip(found, matrices, strict=True):
            torch.testing.assert_close(one, by_decomposition(matrix, rounds))


def test_singular_values_end_near_one() -> None:
    values = torch.linspace(0.01, 1, 400, dtype=torch.float64)
    for _ in range(5):
        values = LINEAR * values + CUBIC * values**3 + QUINTIC * values**5
    assert values.min() > 0.68
    assert values.max() < 1.14


def test_it_has_no_scale_and_turns_with_the_matrix() -> None:
    matrices = random_matrices(1, 4, 6)
    turn = torch.linalg.qr(random_matrices(4, 4, seed=1))[0]
    found = orthogonalised(matrices)
    torch.testing.assert_close(orthogonalised(1e-3 * matrices), found)
    torch.testing.assert_close(orthogonalised(turn @ matrices), turn @ found)
    torch.testing.assert_close(orthogonalised(matrices.mT), found.mT)


def test_two_steps_against_a_slow_version() -> None:
    """Matrices of two shapes, one of them tall: momentum, scale, rate and weight decay."""
    rate, decay = 0.1, 0.5
    starts = [random_matrices(3, 5), random_matrices(5, 3, seed=1), random_matrices(4, 4, seed=2)]
    parameters = [nn.Parameter(start.clone()) for start in starts]
    optimiser = Muon(parameters, rate, weight_decay=decay)
    slow, means = [s.clone() for s in starts], [torch.zeros_like(s) for s in starts]
    for step in range(2):
        for i, parameter in enumerate(parameters):
            gradient = random_matrices(*parameter.shape, seed=10 * step + i)
            parameter.grad = gradient
            means[i] = MOMENTUM * means[i] + (1 - MOMENTUM) * gradient
            ahead = (1 - MOMENTUM) * gradient + MOMENTUM * means[i]
            change = by_decomposition(ahead, 5) * max(gradient.shape) ** 0.5
            slow[i] = slow[i] * (1 - rate * decay) - rate * change
        optimiser.step()
    for found, expected in zip(parameters, slow, strict=True):
        torch.testing.assert_close(found.detach(), expected)


def test_a_step_has_entries_of_mean_square_about_one() -> None:
    """As AdamW has in its first step, so that one rate is good for both."""
    for shape in ((16, 64), (64, 16), (32, 32)):
        parameter = nn.Parameter(torch.zeros(shape, dtype=torch.float64))
        parameter.grad = 1e-4 * random_matrices(*shape)
        Muon([parameter], 1.0).step()
        assert 0.68**2 < parameter.detach().square().mean() < 1.14**2


def test_what_is_no_matrix_moves_by_adamw() -> None:
    torch_own, ours = (nn.Parameter(random_matrices(7)) for _ in range(2))
    matrix = nn.Parameter(random_matrices(3, 3))
    theirs = torch.optim.AdamW([torch_own], 0.01, weight_decay=0.3, betas=(0.8, 0.9))
    how = recipe(learning_rate=0.01, weight_decay=0.3, betas=(0.8, 0.9))
    muon = optimiser_for(how, [matrix, ours], matrices=[matrix])
    for step in range(3):
        ours.grad = torch_own.grad = random_matrices(7, seed=step)
        matrix.grad = random_matrices(3, 3, seed=step)
        theirs.step()
        muon.step()
    torch.testing.assert_close(ours, torch_own)


def test_a_parameter_without_a_gradient_stays() -> None:
    still, moved = (nn.Parameter(random_matrices(3, 3)) for _ in range(2))
    moved.grad = random_matrices(3, 3, seed=1)
    Muon([still, moved], 0.1).step()
    assert torch.equal(still.detach(), random_matrices(3, 3))
    assert not torch.equal(moved.detach(), random_matrices(3, 3))


# ------------------------------------------------------------------ in the training loop

LAW = HMM.random_permutation_mixture(4, 6, 8, seed=1)


def network(layers: int = 2) -> CausalLM:
    return CausalLM(Transformer(Shape(7, 8, width=16, layers=layers, heads=2), seed=3))


def recipe(**changes: object) -> Recipe:
    return Recipe(**({"steps": 30, "optimiser": "muon", "learning_rate": 4e-3} | changes))  # type: ignore[arg-type]


def test_hidden_matrices_are_those_of_the_layers() -> None:
    net = network().net
    names = {id(p): name for name, p in net.named_parameters()}
    found = [names[id(matrix)] for matrix in hidden_matrices(net)]
    assert len(found) == 2 * 6  # query, key, value, out, inner and outer of two layers
    assert all(name.startswith("blocks.") and name.endswith(".weight") for name in found)
    net.blocks[0].requires_grad_(False)
    assert len(hidden_matrices(net)) == 6


def test_all_rates_follow_the_schedule() -> None:
    net = network().net
    how = recipe(decay="linear")
    descent = Descent(how, list(net.parameters()), matrices=hidden_matrices(net))
    descent.set_rate(15)
    assert [group["lr"] for group in descent.optimiser.param_groups] == [2e-3, 2e-3]


def test_it_learns_faster_than_adamw() -> None:
    """On this law, after as many steps: the reason that it is here."""
    held = LAW.sample(256, TorchRng(5))
    kl = {}
    for name in ("adamw", "muon"):
        lm = network()
        meter = gap_meter(next_token(LAW), held)
        history = fit(
            lm, LAW.sample, next_token(), recipe(steps=60, optimiser=name), 0, meter=meter
        )
        kl[name] = history.gaps[-1][1].kl
    assert kl["muon"] < 0.8 * kl["adamw"]


def test_a_stopped_run_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    whole, parts = network(), network()
    how = recipe(weight_decay=0.1, ema=0.9)
    fit(whole, LAW.sample, next_token(), how, 0)
    for stop in (7, 19, None):
        fit(parts, LAW.sample, next_token(), how, 0, checkpoint=tmp_path, stop_after=stop)
    for one, other in zip(whole.net.parameters(), parts.net.parameters(), strict=True):
        assert torch.equal(one, other)


def test_what_has_no_matrices_is_refused() -> None:
    vector = nn.Parameter(torch.zeros(3))
    with refused("matrices"):
        Descent(recipe(), [vector])
    with refused("matrices"):
        Muon([vector], 0.1)
    with refused("net"):
        hidden_matrices(nn.Linear(2, 2))
    with pytest.raises(UserError, match="adamw, adam or sgd"):
        fit_ensemble([network()], LAW.sample, next_token(), recipe(), [0])  # type: ignore[arg-type]

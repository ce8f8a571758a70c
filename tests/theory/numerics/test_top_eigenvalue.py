"""The largest eigenvalue with a proof: known spectra, many copies, proofs not to be given."""

import numpy as np
import pytest
import torch

from triptych.theory.numerics import top_eigenvalue
from triptych.theory.numerics.top_eigenvalue import Unproven, largest_eigenvalue

pytestmark = pytest.mark.numerical

DRAW = np.random.default_rng(0)
SPECTRA = {
    "one": [2.0],
    "two alike": [1.0, 1.0],
    "zeros": [0.0] * 40,
    "a projection": [1.0] * 7 + [0.0] * 60,
    "free spins": [1.0] * 10 + [0.9] * 45 + [0.8] * 120 + [0.7] * 100,
    "uniform": DRAW.random(400),
    "crowded at the top": 1 - 10.0 ** -np.arange(0, 14, 0.1),
    "many nearly alike": np.r_[1 + 1e-9 * DRAW.random(30), 0.9 * DRAW.random(300)],
    "two close": np.r_[1 + 1e-12, 1.0, 0.9 * DRAW.random(300)],
    "negative": -1 - DRAW.random(100),
}


def rotated(values, seed=0):
    """A symmetric matrix of these eigenvalues, in random axes."""
    draw = np.random.default_rng(seed)
    axes = np.linalg.qr(draw.standard_normal((len(values),) * 2))[0]
    return torch.from_numpy((axes * np.asarray(values)) @ axes.T), torch.from_numpy(axes)


@pytest.mark.parametrize("values", SPECTRA.values(), ids=SPECTRA.keys())
def test_known_spectra(values):
    """Within the error that it gives itself, and rounding of 1e-12."""
    matrix, _ = rotated(values)
    allowed = 1e-9 * max(map(abs, values))
    top = largest_eigenvalue(lambda v: matrix @ v, len(matrix), lambda _: allowed)
    assert top.error <= allowed
    assert top.value - 1e-12 <= max(values) <= top.value + top.error + 1e-12
    quotient = top.vector @ matrix @ top.vector / (top.vector @ top.vector)
    assert float(quotient) == pytest.approx(top.value, abs=1e-12)


def test_worked_values():
    matrix = torch.diag(torch.tensor([3.0, 3.0, 2.0], dtype=torch.float64))
    axes = torch.eye(3, dtype=torch.float64)
    for known, wanted in ((0, 3.0), (1, 3.0), (2, 2.0)):
        found = largest_eigenvalue(lambda v: matrix @ v, 3, lambda _: 1e-9, without=axes[:, :known])
        assert found.value == pytest.approx(wanted, rel=1e-12)
    with pytest.raises(ValueError, match="without dimensions"):
        largest_eigenvalue(lambda v: matrix @ v, 3, lambda _: 1e-9, without=axes)


def test_without_what_is_known():
    matrix, axes = rotated([5.0, 4.0, 4.0, *np.linspace(0, 3, 50)])
    found = largest_eigenvalue(lambda v: matrix @ v, 53, lambda _: 1e-9, without=axes[:, [0, 1]])
    assert found.value == pytest.approx(4.0, rel=1e-12)


@pytest.mark.parametrize("steps", [3, 6, 12, 24])
@pytest.mark.parametrize("top", [1.0001, 1.01, 2.0])
def test_a_limit_is_never_below_an_eigenvalue(steps, top):
    """One eigenvalue beyond a crowd of 500: early the limit is loose, and never wrong."""
    matrix, _ = rotated(np.r_[np.linspace(0, 1, 500), top])
    for seed in range(5):
        search = top_eigenvalue._Search(
            lambda v: matrix @ v,
            torch.zeros(501, 0, dtype=torch.float64),
            steps,
            torch.Generator().manual_seed(seed),
        )
        for _ in range(steps):
            search.step()
        for c in range(top_eigenvalue._STARTS):
            assert search.limit(c, search.ritz(c)[0]) >= top * (1 - 1e-14)


def test_the_limit_knows_how_little_an_unlucky_start_sees():
    """A start with the component a along the top: the limit reaches it for the a it allows, and may
    miss it only for a start that is a thousand times unluckier."""
    matrix = torch.diag(torch.cat([torch.linspace(0, 1, 500), torch.tensor([1.5])]).double())
    search = top_eigenvalue._Search(
        lambda v: matrix @ v,
        torch.zeros(501, 0, dtype=torch.float64),
        8,
        torch.Generator().manual_seed(0),
    )
    component = np.exp(search.log_component)
    # a √(2m/π) = 10⁻⁶ for each of two starts: together 10⁻¹²
    assert component * np.sqrt(2 * 501 / np.pi) == pytest.approx(1e-6)
    start = search.bases[0, 0].clone()
    start[-1] = 0.0
    start = start / start.norm()
    start[-1] = component
    search.bases[:, 0] = start / start.norm()
    for _ in range(8):
        search.step()
    values = search.ritz(0)[0]
    assert values[-1] < 1.01  # Lanczos has not seen it
    assert search.limit(0, values) >= 1.5


def test_too_few_steps_are_a_sentence(monkeypatch):
    monkeypatch.setattr(top_eigenvalue, "_STEPS", 10)
    monkeypatch.setattr(top_eigenvalue, "_SEARCHES", 3)
    matrix, _ = rotated(np.linspace(0.99, 1, 400))
    with pytest.raises(Unproven, match="has not proven"):
        largest_eigenvalue(lambda v: matrix @ v, 400, lambda _: 1e-12)


def test_an_error_is_a_bound():
    """On random matrices in two blocks, against all eigenvalues."""
    for seed in range(20):
        draw = np.random.default_rng(seed)
        size, few = 12, 3
        matrix = draw.standard_normal((size, size))
        matrix = matrix + matrix.T + 8 * np.diag(np.arange(size) < few)
        images = torch.from_numpy(matrix[:, :few])
        found = torch.eye(size, dtype=torch.float64)[:, :few]
        known = top_eigenvalue._top(found, images)
        rest = np.linalg.eigvalsh(matrix[few:, few:])[-1]
        error = top_eigenvalue._error(known, float(rest))
        largest = np.linalg.eigvalsh(matrix)[-1]
        assert known.value - 1e-12 <= largest <= known.value + error + 1e-12

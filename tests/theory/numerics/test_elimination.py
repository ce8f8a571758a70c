"""Elimination without subtractions: chains in many digits, panels, and what floats do not hold."""

import math

import mpmath
import numpy as np
import pytest
import torch
from tests.support import many_digits

from triptych.theory.numerics import elimination
from triptych.theory.numerics.elimination import dense_constant, eliminated, lanczos_constant
from triptych.theory.numerics.top_eigenvalue import Unproven

pytestmark = pytest.mark.numerical


def chain(states, spread, seed):
    """Conductances e^(-spread · uniform) on a path and some more edges; lazy with ½."""
    draw = np.random.default_rng(seed)
    edges = np.triu(draw.random((states, states)) < 0.2, 1)
    edges[np.arange(states - 1), np.arange(1, states)] = True
    conductance = np.where(edges, np.exp(-spread * draw.random((states, states))), 0.0)
    return conductance + conductance.T


def grounded(conductance):
    weight = 2 * conductance.sum(1)
    p, moves = weight / weight.sum(), torch.from_numpy(conductance / weight[:, None])
    ground = int(p.argmax())
    rest = torch.tensor([x for x in range(len(p)) if x != ground])
    root = torch.from_numpy(p).sqrt()
    return eliminated(moves[rest][:, rest], moves[rest, ground], root[rest], float(root[ground]))


def exact(conductance, digits):
    with mpmath.workdps(digits):
        flow = mpmath.matrix(conductance.tolist())
        for x in range(len(conductance)):
            flow[x, x] = 2 * mpmath.fsum(flow[x, y] for y in range(len(conductance)))
        return 1 / many_digits.gap(flow, digits)


def test_worked_chain():
    """Two states that are left with q and r: 1 - λ = q + r."""
    q, r = 0.3, 1e-17
    p = r / (q + r)
    moves = torch.zeros(1, 1, dtype=torch.float64)
    away = torch.tensor([q], dtype=torch.float64)
    root = torch.tensor([math.sqrt(p)], dtype=torch.float64)
    found = eliminated(moves, away, root, math.sqrt(1 - p))
    assert found.scale == q
    assert found.leaving.tolist() == [1.0]
    for constant in (dense_constant, lanczos_constant):
        assert constant(found).value == pytest.approx(1 / (q + r), rel=1e-15)


@pytest.mark.parametrize("method", [dense_constant, lanczos_constant])
@pytest.mark.parametrize(("states", "spread"), [(2, 3), (5, 10), (12, 40), (18, 80), (24, 200)])
def test_against_many_digits(states, spread, method):
    """C up to 1e40. Relative to itself C changes as little as conductances do: 1e-12 is plenty."""
    for seed in range(2):
        conductance = chain(states, spread, seed)
        wanted = exact(conductance, 40 + spread)
        assert float(method(grounded(conductance)).value / wanted - 1) == pytest.approx(
            0, abs=1e-12
        )


@pytest.mark.parametrize("method", [dense_constant, lanczos_constant])
def test_panels_change_nothing(method, monkeypatch):
    conductance = chain(40, 60, 3)
    wanted = method(grounded(conductance)).value
    for panel, columns in ((1, 1), (7, 5), (13, 100)):
        monkeypatch.setattr(elimination, "_PANEL", panel)
        monkeypatch.setattr(elimination, "_COLUMNS", columns)
        assert method(grounded(conductance)).value == pytest.approx(wanted, rel=1e-13)


def test_green_function_is_the_inverse():
    """B against numpy's inverse, at ordinary conductances."""
    conductance = chain(30, 2, 4)
    weight = 2 * conductance.sum(1)
    ground = int(weight.argmax())
    rest = np.r_[:ground, ground + 1 : len(weight)]
    moves = conductance / weight[:, None] + 0.5 * np.eye(len(weight))
    inverse = np.linalg.inv(np.eye(len(rest)) - moves[np.ix_(rest, rest)])
    root = np.sqrt(weight[rest])
    wanted = root[:, None] * inverse / root
    found = grounded(conductance)
    one = torch.eye(len(rest), dtype=torch.float64)
    np.testing.assert_allclose(found.solve(one).numpy() / found.scale, wanted, rtol=1e-11)


@pytest.mark.parametrize("method", [dense_constant, lanczos_constant])
def test_the_slow_function_attains_the_constant(method):
    conductance = chain(30, 30, 5)
    weight = 2 * conductance.sum(1)
    p, ground = weight / weight.sum(), int(weight.argmax())
    found = grounded(conductance)
    top = method(found)
    rest, at_ground = found.slow_function(top.vector)
    scaled = np.insert(rest.numpy(), ground, at_ground)
    f = scaled / np.sqrt(p)
    assert p @ f == pytest.approx(0.0, abs=1e-12)
    assert p @ f**2 == pytest.approx(1.0)
    flow = conductance / weight.sum()
    local = 0.5 * (flow * (f[:, None] - f) ** 2).sum()
    assert 1 / local == pytest.approx(top.value, rel=1e-9)


def test_a_solver_that_misses_the_largest_is_caught(monkeypatch):
    """The second eigenvector instead of the first: the Cholesky factor does not exist."""
    found = grounded(chain(20, 5, 6))
    honest = torch.linalg.eigh

    def second(matrix):
        values, vectors = honest(matrix)
        return values[:-1], vectors[:, :-1]

    monkeypatch.setattr(torch.linalg, "eigh", second)
    with pytest.raises(Unproven, match="is larger than"):
        dense_constant(found)


def test_what_floats_do_not_hold_is_a_sentence():
    """Two pairs with an edge of conductance c between them: f = ±1 on the pairs has variance 1 and
    the Dirichlet form 4 c / 8, so C = 2 / c."""
    path = np.zeros((4, 4))
    path[[0, 1, 2, 3], [1, 0, 3, 2]] = 1.0
    path[1, 2] = path[2, 1] = 1e-289
    assert dense_constant(grounded(path)).value == pytest.approx(2e289, rel=1e-9)
    path[1, 2] = path[2, 1] = 1e-295
    with pytest.raises(Unproven, match="too small for floats"):
        grounded(path)

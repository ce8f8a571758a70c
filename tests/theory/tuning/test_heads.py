import math

import pytest
import torch

from triptych.core.table import all_sequences
from triptych.structures.hidden_markov.hmm import HMM
from triptych.theory.tuning import heads

pytestmark = pytest.mark.numerical


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def small():
    return HMM(f64([0.25, 0.75]), f64([[0.5, 0.5], [0.25, 0.75]]), f64([[1.0, 0.0], [0.5, 0.5]]), 1)


def test_worked_head():
    """P[H_1] = (0.3125, 0.6875), so D = (1.25, 0.91667); W⁺ = [[1, -1], [0, 2]]ᵀ-wise:
    W = [[1, ½], [0, ½]] has inverse [[1, -1], [0, 2]], and b = (μ / D) W⁻¹."""
    hmm = small()
    torch.testing.assert_close(heads.shift(hmm), f64([1.25, 0.6875 / 0.75]))
    torch.testing.assert_close(heads.left_inverse(hmm.emission.T), f64([[1.0, -1.0], [0.0, 2.0]]))
    wanted = f64([1 / 1.25, -1 / 1.25])  # μ = (1, 0): the first row of the inverse, over D
    torch.testing.assert_close(heads.witness(hmm, f64([1.0, 0.0])), wanted)


def test_worked_state_before():
    """P[H_0 = 0 | X_1 = 1] ∝ ¼ (½·0 + ½·½) = 1/16, and for state 1: ¾ (¼·0 + ¾·½) = 9/32."""
    got = heads.state_before(small(), torch.tensor([[1]]))
    torch.testing.assert_close(got[0], f64([2 / 11, 9 / 11]))


@pytest.mark.parametrize(("states", "vocab"), [(2, 2), (3, 5), (5, 5)])
def test_the_head_computes_every_task(states, vocab):
    hmm = HMM.random(states, vocab, 1, seed=states)
    assert heads.conditions(hmm).hold
    tokens = all_sequences(vocab, 3)
    posterior, features = heads.state_before(hmm, tokens), heads.masked_first(hmm, tokens)
    for k in range(states):
        task = torch.eye(states, dtype=torch.float64)[k] - 1 / states
        scale = 1 / (posterior @ heads.shift(hmm))
        torch.testing.assert_close(features @ heads.witness(hmm, task), scale * (posterior @ task))


def test_conditions_name_what_fails():
    wide = HMM.random(5, 3, 1, seed=0)
    failing = [c.name for c in heads.conditions(wide).conditions if not c.holds]
    assert failing == ["non-degeneracy (Assumption 3.1)"]
    periodic = HMM(f64([0.5, 0.5]), f64([[0.0, 1.0], [1.0, 0.0]]), torch.eye(2).double(), 1)
    failing = [c.name for c in heads.conditions(periodic).conditions if not c.holds]
    assert failing == ["ergodic chain (Assumption 3.2)"]
    assert "FAILS" in str(heads.conditions(periodic))


@pytest.mark.parametrize("seed", range(5))
def test_twins_defeat_every_head(seed):
    hmm, task = heads.twin_states(seed)
    conditions = heads.conditions(hmm).conditions
    assert not conditions[0].holds
    assert conditions[1].holds
    assert conditions[2].holds
    inputs = torch.tensor([[1], [2]])
    assert heads.in_support(hmm, inputs).all()
    features = heads.masked_first(hmm, inputs)
    torch.testing.assert_close(features[0], features[1])
    assert (heads.state_before(hmm, inputs) @ task).tolist() == pytest.approx([1.0, -1.0])
    assert not heads.linearly_separable(features, torch.tensor([True, False]), margin=1e-6)


def test_separability_by_hand():
    points = f64([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert heads.linearly_separable(points, torch.tensor([True, False, True]), margin=1e-3)
    line = f64([[1.0, 1.0], [2.0, 2.0]])  # the same direction with two labels
    assert not heads.linearly_separable(line, torch.tensor([True, False]), margin=1e-6)


def test_separability_at_a_known_margin():
    """Two directions at an angle φ with two labels: b = (0, 1) in ±1 has the margin sin(φ / 2)."""
    for angle in (1e-2, 1e-6):
        half = angle / 2
        points = f64([[math.cos(half), math.sin(half)], [math.cos(half), -math.sin(half)]])
        labels = torch.tensor([True, False])
        assert heads.linearly_separable(points, labels, margin=0.99 * math.sin(half))
        assert not heads.linearly_separable(points, labels, margin=1.01 * math.sin(half))


@pytest.mark.parametrize("labels", [[True, False, True], [True, False, False]])
def test_a_solver_that_answers_wrongly_is_caught(labels, monkeypatch):
    """A head and weights that prove nothing decide nothing."""
    points = f64([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    honest = heads.scipy.optimize.linprog

    def wrong(*given, **options):
        result = honest(*given, **options)
        result.x, result.ineqlin.marginals = -result.x, result.ineqlin.marginals[::-1] - 1.0
        return result

    monkeypatch.setattr(heads.scipy.optimize, "linprog", wrong)
    with pytest.raises(RuntimeError, match="was not decided for the margin 0.001"):
        heads.linearly_separable(points, torch.tensor(labels), margin=1e-3)

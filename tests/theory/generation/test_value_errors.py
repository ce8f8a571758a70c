"""Errors of values: by hand, against walks and laws of algorithms, and estimates against both."""

import itertools
import math

import numpy as np
import pytest
import torch

from triptych.core.divergences import total_variation
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.inference.guided import best_of_n, tokenwise
from triptych.structures.constraints import EvenParity, SomeZero
from triptych.structures.uniform import Uniform
from triptych.theory.generation import walks
from triptych.theory.generation.value_errors import (
    Drawn,
    _best_of,
    calibration,
    exact_calibration,
    tilted_distance_bound,
    tokenwise_distance_bound,
)
from triptych.verifiers.exact import ExactValue, Rule
from triptych.verifiers.noisy import AverageCase, Delayed, Flipped, WithinFactor

BITS = Table.of(Uniform(2, 2))


def ones(x):
    return all(x)


def test_worked_value():
    """Two fair bits, right is 11, V̂(1) = 1 and exact elsewhere."""
    said = {(0,): 0.0, (1,): 1.0, (1, 1): 1.0}
    found = exact_calibration(BITS, Rule(lambda x: said.get(tuple(x), 0.0)), Rule(ones), n=(1, 2))
    assert found.success.value == pytest.approx(1 / 4)
    first, last = found.levels
    assert [x.value for x in first[1:]] == pytest.approx([1 / 4, 2, 1 / 2])
    assert [x.value for x in last[1:]] == pytest.approx([0, 1, 1])
    assert found.leaf_mass.value == pytest.approx(1 / 6)
    assert found.factor.value == pytest.approx(2)
    assert found.tilted.value == pytest.approx(1)
    assert found.best_of_n[2].value == pytest.approx(1 - (3 / 4) ** 2)
    assert [x.value for x in found.screen[1:]] == pytest.approx([0, 0, 1])


def test_exact_values_are_calibrated():
    table, outcome = Table.random(2, 5, seed=3), SomeZero(5)
    found = exact_calibration(table, ExactValue(table, outcome), outcome)
    for level in found.levels:
        assert [x.value for x in level[1:]] == pytest.approx([0, 1, 1], abs=1e-12)
    assert found.factor.value == pytest.approx(1)
    assert found.leaf_mass.value == pytest.approx(1 / 10)
    for each in found.bins:
        if each.prefixes:
            assert each.said == pytest.approx(each.right.value)


NOISES = {
    "factor": lambda v: WithinFactor(v, 0.5, 1, extremes=True),
    "factor, leaves exact": lambda v: WithinFactor(v, 0.5, 1, length=4),
    "rare": lambda v: AverageCase(v, 0.2, 2, rare=0.3),
    "late": lambda v: Delayed(v, length=4),
}


@pytest.mark.parametrize("name", NOISES)
def test_against_walks_and_laws(name):
    """The share of VGB's steps at leaves and its law, from the walk; best of n, from its law."""
    table, outcome = Table.random(2, 4, seed=5), EvenParity(4)
    value = NOISES[name](ExactValue(table, outcome))
    found = exact_calibration(table, value, outcome)
    walk = walks.Walk.of(table, value)
    assert found.leaf_mass.value == pytest.approx(walks.leaf_mass(walk), rel=1e-9)
    tau = outcome.log_value(table.sequences).exp()
    law = walks.given_leaf(walk, walk.stationary)
    assert found.tilted.value == pytest.approx(float(law.log_probs.exp() @ tau), rel=1e-9)
    for n, right in found.best_of_n.items():
        law = best_of_n.law(table, value, n)
        assert right.value == pytest.approx(float(law.log_probs.exp() @ tau), rel=1e-9)
    if name == "factor":
        assert found.factor.value == pytest.approx(1.5)


def test_level_errors_prefix_by_prefix():
    """Sums over prefixes and completions, spelled out."""
    table, outcome = Table.random(2, 3, seed=7), SomeZero(3)
    value = WithinFactor(ExactValue(table, outcome), 1.0, 3)
    probs = table.as_dict()
    right = {x: float(outcome.log_value(torch.tensor([x])).exp()) for x in probs}
    z = sum(p * right[x] for x, p in probs.items())
    found = exact_calibration(table, value, outcome)
    for t, level in enumerate(found.levels, start=1):
        bias = forward = inverse = 0.0
        for prefix in itertools.product((0, 1), repeat=t):
            inside = [x for x in probs if x[:t] == prefix]
            mass = sum(probs[x] for x in inside)
            truth = sum(probs[x] * right[x] for x in inside) / mass
            said = float(value.log_value(torch.tensor([prefix])).exp())
            bias += mass * (said - truth)
            pi = mass * truth / z
            if pi:
                forward += pi * said / truth
                inverse += pi * truth / said
        assert [x.value for x in level[1:]] == pytest.approx([bias, forward, inverse])


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_bounds_on_distances(epsilon):
    """They hold for every noise, and the first is met by the noise of its worked value."""
    for seed in range(8):
        table, outcome = Table.random(2, 4, seed=seed), SomeZero(4)
        exact = ExactValue(table, outcome)
        value = WithinFactor(exact, epsilon, seed, extremes=True)
        target = table.tilt(outcome.log_value)
        law = walks.given_leaf(*(lambda w: (w, w.stationary))(walks.Walk.of(table, value)))
        assert total_variation(law.log_probs, target.log_probs) <= tilted_distance_bound(epsilon)
        inner = tokenwise.law(table, value, accept="value")
        assert total_variation(inner.log_probs, target.log_probs) <= tokenwise_distance_bound(
            4, epsilon
        )
    assert tilted_distance_bound(1.0) == pytest.approx(1 / 3)
    assert tokenwise_distance_bound(1, 1.0) == pytest.approx(3 / 5)
    mass = 1 / (2 + epsilon)
    p = np.array([mass, 1 - mass])
    q = p * np.array([1 + epsilon, 1 / (1 + epsilon)])
    assert 0.5 * np.abs(p - q / q.sum()).sum() == pytest.approx(tilted_distance_bound(epsilon))


def test_best_of_n_over_all_sets():
    rng = np.random.default_rng(0)
    leaf, right = rng.integers(0, 4, 9).astype(float), rng.integers(0, 2, 9).astype(float)
    assert _best_of(2, np.array([1.0, 2, 3]), np.array([0.0, 1, 0]), 0.9).value == pytest.approx(
        1 / 3
    )
    for n in (1, 2, 4, 9):
        wanted = []
        for several in itertools.combinations(range(9), n):
            best = [i for i in several if leaf[i] == max(leaf[list(several)])]
            wanted.append(np.mean(right[best]))
        assert _best_of(n, leaf, right, 0.9).value == pytest.approx(np.mean(wanted))


def drawn(table, value, outcome, texts, seed, rollouts=1):
    """Texts of a table with roll-outs at every depth, without any of our samplers."""
    rng = np.random.default_rng(seed)
    probs, length = table.log_probs.exp().numpy(), table.length
    rows = rng.choice(len(probs), texts, p=probs / probs.sum())
    tau = outcome.log_value(table.sequences).exp().numpy()
    values = np.stack(
        [value.log_value(table.sequences[:, :t]).exp().numpy()[rows] for t in range(1, length + 1)],
        axis=1,
    )
    again = np.empty((texts, length, rollouts))
    for t in range(1, length + 1):
        block = 2 ** (length - t)
        for i, row in enumerate(rows):
            first = row // block * block
            inside = probs[first : first + block]
            drawn_rows = rng.choice(block, rollouts, p=inside / inside.sum()) + first
            again[i, t - 1] = tau[drawn_rows]
    lengths = np.full(texts, length)
    return Drawn(values, lengths, tau[rows], tuple(range(1, length + 1)), again)


def pairs(found, exact):
    """Every estimate with the exact number that it is of."""
    yield found.success, exact.success
    yield found.leaf_mass, exact.leaf_mass
    yield found.tilted, exact.tilted
    for n, value in found.best_of_n.items():
        yield value, exact.best_of_n[n]
    for one, other in zip(found.levels, exact.levels, strict=True):
        yield from zip(one[1:], other[1:], strict=True)
    yield from zip(found.screen[1:], exact.screen[1:], strict=True)
    yield from ((a.right, b.right) for a, b in zip(found.bins, exact.bins, strict=True))


class FirstTwo:
    """Right: the first two tokens are not both 1; V* of one token is a law's."""

    def log_value(self, prefix):
        bad = (prefix[:, :2] == 1).all(-1) & torch.tensor(prefix.shape[1] > 1)
        return torch.zeros(len(prefix), dtype=torch.float64).masked_fill(bad, -math.inf)


def soft(table, outcome):
    """A value that is too sure, of the right support, between 0.02 and 0.98."""
    exact = ExactValue(table, outcome)

    class Soft:
        def log_value(self, prefix):
            return (0.02 + 0.96 * exact.log_value(prefix).exp().sqrt()).log()

    return Soft()


def test_many_texts_come_near_and_are_inside():
    table, outcome = Table.random(2, 4, seed=11), EvenParity(4)
    value = soft(table, outcome)
    exact = exact_calibration(table, value, outcome, n=(1, 2, 4))
    found = calibration(drawn(table, value, outcome, 3000, 0, 2), n=(1, 2, 4))
    for estimate, truth in pairs(found, exact):
        if math.isnan(truth.value):
            continue
        assert estimate.low <= truth.value <= estimate.high
        assert estimate.value == pytest.approx(truth.value, abs=0.1)
    assert 1 < found.factor.low <= exact.factor.value
    assert found.factor.high == math.inf


@pytest.mark.slow
def test_coverage_of_all_together():
    """Everything holds in at least 90 % of 200 runs, as said: 33 misses have P < 1e-3."""
    table, outcome = Table.random(2, 3, seed=2), EvenParity(3)
    value = soft(table, outcome)
    exact = exact_calibration(table, value, outcome, n=(1, 4))
    missed, each = 0, []
    for seed in range(200):
        found = calibration(drawn(table, value, outcome, 80, seed), n=(1, 4), confidence=0.9)
        inside = [
            estimate.low - 1e-12 <= truth.value <= estimate.high + 1e-12
            for estimate, truth in pairs(found, exact)
            if not math.isnan(truth.value)
        ]
        inside.append(found.factor.low <= exact.factor.value * (1 + 1e-9))
        missed += not all(inside)
        each.append(np.mean(inside))
    assert missed <= 33
    assert np.mean(each) > 0.99


def test_a_hard_verifier_that_refuses_good_prefixes():
    """Its inverse ratio is infinite, and samples say that it is large."""
    table, outcome = Table.random(2, 4, seed=1), FirstTwo()
    value = Flipped(outcome, 0.0, 0.4, seed=0, length=4)
    exact = exact_calibration(table, value, outcome)
    assert exact.factor.value == math.inf
    assert any(level.inverse.value == math.inf for level in exact.levels)
    found = calibration(drawn(table, value, outcome, 500, 0))
    assert max(level.inverse.low for level in found.levels) > 1.5
    assert found.factor.low == math.inf
    assert found.screen.right_refused.low > 0


def test_it_reads():
    table, outcome = Table.random(2, 4, seed=1), EvenParity(4)
    value = soft(table, outcome)
    for found in (
        exact_calibration(table, value, outcome),
        calibration(drawn(table, value, outcome, 60, 0)),
    ):
        said = found.sentences()
        assert len(said) >= 10
        assert all(s.endswith(".") for s in said)
        assert "<table" in found._repr_html_()
        assert "Calibration" in repr(found)


def test_bad_input_gets_a_sentence():
    table, outcome = Table.random(2, 2, seed=1), EvenParity(2)
    large = WithinFactor(outcome, 1.0, 0, extremes=True)
    with pytest.raises(UserError, match="is 0 on all"):
        exact_calibration(table, outcome, Rule(lambda x: False))
    with pytest.raises(UserError, match="says V = 2 of a prefix"):
        calibration(drawn(table, large, outcome, 30, 0))

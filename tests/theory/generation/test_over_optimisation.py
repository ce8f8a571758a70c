"""Exact laws under a wrong value: against the laws of the algorithms, and bounds that hold."""

import math

import pytest
import torch

from triptych.core.divergences import total_variation
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.inference.guided import particles
from triptych.structures.uniform import Uniform
from triptych.theory.generation.over_optimisation import (
    best_of_n_kl_bound,
    over_optimisation,
    resampled_law,
    tilted_kl_bound,
)
from triptych.verifiers.exact import Rule
from triptych.verifiers.noisy import WithinFactor

BIT = Table.of(Uniform(2, 1))


class Doubled:
    """V̂(0) = 1 and V̂(1) = 2."""

    def log_value(self, prefix):
        return math.log(2) * prefix[:, -1].double()


class Waves:
    """Values without structure, 0 on strings that begin with 11."""

    def log_value(self, prefix):
        place = torch.arange(1.0, prefix.shape[1] + 1, dtype=torch.float64)
        bad = (prefix[:, :2] == 1).all(-1) & torch.tensor(prefix.shape[1] > 1)
        return torch.sin((prefix + 1.0).double() @ place).masked_fill(bad, -torch.inf)


def test_worked_value():
    found = over_optimisation(
        BIT, Doubled(), Rule(lambda x: x == [0]), n=(1, 2, 1000), particles=(1, 2), steps=(1, 2)
    )
    assert found.model[1:] == pytest.approx((1.5, 0.5, 0.0))
    assert found.best_of_n[1].right == pytest.approx(1 / 4)
    assert found.best_of_n[1].said == pytest.approx(7 / 4)
    kl = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert found.best_of_n[1].kl == pytest.approx(kl)
    assert kl == pytest.approx(0.1308, abs=5e-5)
    assert found.best_of_n[2].right == pytest.approx(0, abs=1e-12)
    assert [p.right for p in found.particles] == pytest.approx([1 / 2, 5 / 12])
    assert found.tilted.right == pytest.approx(1 / 3)
    assert [p.right for p in found.vgb] == pytest.approx([1 / 3, 1 / 3])
    assert found.target.right == 1
    assert best_of_n_kl_bound(2) == pytest.approx(0.1931, abs=5e-5)
    assert tilted_kl_bound(BIT, Doubled()) == pytest.approx(0.2877, abs=5e-5)
    assert found.tilted.kl == pytest.approx(0.0566, abs=5e-5)
    assert "<table" in found._repr_html_()
    assert "OverOptimisation(" in repr(found)


@pytest.mark.parametrize(("vocab", "length", "n"), [(2, 2, 3), (2, 3, 1), (2, 3, 2), (3, 2, 2)])
def test_multisets_have_the_law_of_the_particles(vocab, length, n):
    table, value = Table.random(vocab, length, seed=4), Waves()
    wanted = particles.law(table, value, length, n, ess=1.0)
    total = sum(wanted.values())
    found = resampled_law(table, value, n).as_dict()
    for x, q in wanted.items():
        assert found[x] == pytest.approx(q / total, abs=1e-12)
    assert sum(found.values()) == pytest.approx(1)


def test_many_particles_come_near_the_limit():
    table, value = Table.random(2, 3, seed=4), Waves()
    target = table.tilt(value.log_value)
    far = [
        float(total_variation(resampled_law(table, value, n).log_probs, target.log_probs))
        for n in (1, 2, 4, 8, 12)
    ]
    assert far == sorted(far, reverse=True)
    assert far[-1] < 0.25 * far[0]


@pytest.mark.parametrize("seed", range(6))
def test_bounds_and_proxies(seed):
    """KL of the best of n is at most log n - (n-1)/n, ties or not, and its V̂ never falls."""
    table = Table.random(2, 5, seed=seed)
    coarse = Rule(lambda x: sum(x) % 3 / 3 + 0.1)
    fine = WithinFactor(coarse, 0.5, seed)
    for value in (coarse, fine):
        ns = (1, 2, 3, 7, 30, 500)
        found = over_optimisation(table, value, coarse, n=ns, steps=(5, 50, 2000))
        for point in found.best_of_n:
            assert point.kl <= best_of_n_kl_bound(point.n) + 1e-12
        said = [point.said for point in found.best_of_n]
        assert said == sorted(said)
        assert found.tilted.kl <= tilted_kl_bound(table, value)
        assert found.vgb[-1].right == pytest.approx(found.tilted.right, abs=1e-6)
    assert found.best_of_n[0].right == pytest.approx(found.model.right)


def test_without_error_nothing_is_lost():
    table, right = Table.random(2, 5, seed=1), Rule(lambda x: sum(x) % 3 / 3 + 0.1)
    found = over_optimisation(table, right, right, n=(1, 2, 4, 16, 256))
    values = [point.right for point in found.best_of_n]
    assert values == sorted(values)
    assert found.tilted == found.target


def test_bad_input_gets_a_sentence():
    table = Table.random(2, 5, seed=1)
    for given, sentence in [
        (lambda: resampled_law(table, Waves(), 9), "multisets; at most"),
        (lambda: resampled_law(table, Waves(), 0), "n is 0"),
        (lambda: resampled_law(BIT, Rule(lambda x: False), 2), "every particle dies"),
        (lambda: best_of_n_kl_bound(0), "n is 0"),
    ]:
        with pytest.raises(UserError, match=sentence):
            given()

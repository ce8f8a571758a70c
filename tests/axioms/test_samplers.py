"""Promises every inference algorithm keeps, checked by enumeration, not by sampling."""

import pytest
import torch

from triptych.core.axioms import check_sampler
from triptych.core.decoders import RecomputingDecoder
from triptych.core.enumeration import exact_law
from triptych.core.randomness import TorchRng
from triptych.core.table import Table
from triptych.inference.guided import rejection, tokenwise, vgb
from triptych.lab.axioms.discovery import package_examples
from triptych.structures.constraints import AllZeros, SomeZero
from triptych.structures.uniform import Uniform

EXAMPLES = package_examples("triptych.inference")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.label)
def test_keeps_its_promise(example, unchecked_shapes):
    for finding in check_sampler(example.value):
        assert finding.holds, str(finding)


def test_rejection_returns_accepted_strings():
    decoder = RecomputingDecoder(Uniform(2, 4), 5)
    result = rejection.sample(decoder, AllZeros(4), length=4, rng=TorchRng(0))
    assert result.tokens.tolist() == [[0, 0, 0, 0]] * 5
    assert result.complete.all()


@pytest.mark.parametrize(
    ("sample", "expected"), [(rejection.sample, 2**3 * 3), (tokenwise.sample, 2 * 3)]
)
def test_oracle_calls_of_proposition_3_1_1(sample, expected):
    """D 2^D calls for rejection and 2D for tokenwise rejection, D = 3.

    Calls are D times a geometric of mean 8, and a sum of 3 geometrics of mean 2; standard errors
    at 4000 rows are 3 √56 / √4000 = 0.36 and √6 / √4000 = 0.039. Six of them fail with 2e-9.
    """
    rows = 4000
    decoder = RecomputingDecoder(Uniform(2, 3), rows)
    result = sample(decoder, AllZeros(3), length=3, rng=TorchRng(0))
    calls = result.costs.generator_calls.double()
    error = {24: 3 * 56**0.5, 6: 6**0.5}[expected] / rows**0.5
    assert abs(calls.mean().item() - expected) < 6 * error
    assert torch.equal(result.costs.generated, result.costs.generator_calls)
    assert (result.costs.generated - result.costs.erased == 3).all()


@pytest.mark.parametrize("length", [2, 3, 4])
def test_the_law_of_tokenwise_rejection_by_two_routes(length, unchecked_shapes):
    """The closed form against the enumerated program; and Proposition 3.1.2's value."""
    base, constraint = Table.of(Uniform(2, length)), SomeZero(length)
    closed = tokenwise.law(base, constraint).as_dict()

    def program(rng):
        decoder = RecomputingDecoder(base, 1)
        return tokenwise.sample(decoder, constraint, length=length, rng=rng).completions()[0]

    found = exact_law(program, cutoff=1e-6)
    reach = 1e-9 + found.missing
    assert reach < 1e-4
    assert found.total_variation({x: p for x, p in closed.items() if p > 0}) <= reach
    assert closed[(1,) * (length - 1) + (0,)] == pytest.approx(2.0 ** -(length - 1))


def test_the_walk_reaches_the_target_on_leaves():
    """p V on the leaves, by the formula for the stationary law."""
    p, constraint = Table.random(2, 3, seed=3), SomeZero(3)
    weights = vgb.stationary_weights(p, constraint)
    leaves = {x: w for x, w in weights.items() if len(x) == 3}
    total = sum(leaves.values())
    target = p.tilt(constraint.log_value).as_dict()
    assert {x: w / total for x, w in leaves.items()} == pytest.approx(target)


def test_worked_step_of_the_walk():
    """Uniform bits, V = 1, at the root of a tree of height 1: stay ½, each child ¼; at a leaf:
    stay ½, back ½."""

    class Ones:
        def log_value(self, prefix):
            return torch.zeros(len(prefix), dtype=torch.float64)

    base = Uniform(2, 1)
    root = exact_law(lambda rng: vgb.walk_step((), base, Ones(), 1, rng))
    assert root.probs == pytest.approx({(): 0.5, (0,): 0.25, (1,): 0.25})
    leaf = exact_law(lambda rng: vgb.walk_step((1,), base, Ones(), 1, rng))
    assert leaf.probs == pytest.approx({(1,): 0.5, (): 0.5})

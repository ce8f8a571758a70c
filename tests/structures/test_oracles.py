"""The oracles of the query-complexity results: uniform strings, parity, knapsack, constraints."""

import itertools
import math

import numpy as np
import pytest
import torch
from tests.support.refusals import refused

from triptych.core.axioms import check_sampler
from triptych.core.enumeration import exact_law
from triptych.core.protocols import Value
from triptych.core.samplers import Chain, OneShot
from triptych.core.table import Table, all_sequences
from triptych.structures.constraints import (
    AllZeros,
    Constraint,
    EvenParity,
    Knapsack,
    SomeZero,
    restricted,
)
from triptych.structures.parity import HiddenParity
from triptych.structures.uniform import Uniform

pytestmark = pytest.mark.numerical


def test_worked_value_of_hidden_parity():
    """Secret 10: after 00 the last bit makes the sum odd, after the secret it makes it even."""
    oracle = HiddenParity(torch.tensor([1, 0]))
    last = oracle.next_token_log_probs(torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])).exp()
    assert last[:, 1].tolist() == [1.0, 0.0, 1.0, 1.0]
    assert oracle.log_prob(torch.tensor([[1, 0, 1]])).exp().item() == pytest.approx(1 / 4)
    assert Uniform(2, 3).log_prob(torch.tensor([[0, 1, 0]])).exp().item() == pytest.approx(1 / 8)


@pytest.mark.parametrize("length", [2, 4, 6])
def test_exactly_one_even_string_has_mass(length):
    for secret in itertools.product([0, 1], repeat=length - 1):
        support = Table.of(HiddenParity(torch.tensor(secret))).support
        even = support[support.sum(1) % 2 == 0]
        assert [tuple(x) for x in even.tolist()] == [(*secret, sum(secret) % 2)]
        assert len(support) == 2 ** (length - 1)


CONSTRAINTS = [
    (EvenParity(4), lambda x: sum(x) % 2 == 0),
    (AllZeros(4), lambda x: sum(x) == 0),
    (SomeZero(4), lambda x: 0 in x),
    (Knapsack((3, 5, 2, 3), 5), lambda x: 3 * x[0] + 5 * x[1] + 2 * x[2] + 3 * x[3] == 5),
    (Knapsack((3, 9, 6, 3), 5), lambda x: False),
    (Knapsack((0, 0, 1, 2), 0), lambda x: x[2] + 2 * x[3] == 0),
]


@pytest.mark.parametrize(
    ("constraint", "member"), CONSTRAINTS, ids=[str(c) for c, _ in CONSTRAINTS]
)
def test_the_process_verifier_is_perfect(constraint, member):
    """V(prefix) = 1 exactly if some completion is a member, by trying all of them."""
    assert isinstance(constraint, Value)
    assert isinstance(constraint, Constraint)
    members = [x for x in itertools.product([0, 1], repeat=4) if member(x)]
    for t in range(5):
        prefixes = all_sequences(2, t)
        wanted = [any(x[:t] == tuple(p) for x in members) for p in prefixes.tolist()]
        assert constraint.completable(prefixes).tolist() == wanted
        assert (constraint.log_value(prefixes) == 0).tolist() == wanted


def test_worked_value_of_the_knapsack():
    knapsack = Knapsack((3, 5, 2), 5)
    members = [
        x for x in itertools.product([0, 1], repeat=3) if knapsack.completable(torch.tensor([x]))
    ]
    assert members == [(0, 1, 0), (1, 0, 1)]


def test_weights_beyond_64_bits():
    """111 overflowed to a sum of 0: 2^63 - 1 + 2^63 - 1 + 2 = 2^64."""
    large = Knapsack((2**63 - 1, 2**63 - 1, 2), 0)
    members = [x for x in itertools.product([0, 1], repeat=3) if large.completable([x])]
    assert members == [(0, 0, 0)]
    larger = Knapsack((2**80, 3, 2**80, 2), 5)
    members = [x for x in itertools.product([0, 1], repeat=4) if larger.completable([x])]
    assert members == [(0, 1, 0, 1)]
    with refused("capacity"):
        Knapsack((1, 2), 2**63)


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("kind", [EvenParity, AllZeros, SomeZero])
def test_lengths_of_constraints(kind):
    assert kind(np.int64(3)) == kind(3)
    for bad in (math.nan, "a", 0, -1, 2.5, 2.0, None, True):
        with refused("length"):
            kind(bad)


def test_the_restricted_law():
    law = restricted(Uniform(2, 2), SomeZero(2)).as_dict()
    assert law == pytest.approx({(0, 0): 1 / 3, (0, 1): 1 / 3, (1, 0): 1 / 3, (1, 1): 0.0})
    with refused("log_evidence"):
        restricted(Uniform(2, 4), Knapsack((3, 9, 6, 3), 5))


def rejection(rng, length=3):
    tokens = Uniform(2, length).sample(1, rng)
    return tuple(tokens[0].tolist()) if SomeZero(length).completable(tokens) else None


def test_a_promise_that_is_kept_and_one_that_is_not():
    wanted = {x: p for x, p in restricted(Uniform(2, 3), SomeZero(3)).as_dict().items() if p > 0}
    assert all(f.holds for f in check_sampler(OneShot(rejection, wanted)))
    skewed = wanted | {(0, 0, 0): wanted[0, 0, 0] + 0.01, (0, 0, 1): wanted[0, 0, 1] - 0.01}
    assert not all(f.holds for f in check_sampler(OneShot(rejection, skewed)))


def test_tokenwise_rejection_is_not_the_restricted_law():
    """Proposition 3.1.2 by enumeration: 1…10 gets 2^-(D-1), every other string 2^-D."""
    length, base, constraint = 4, Uniform(2, 4), SomeZero(4)

    def tokenwise(rng):
        tokens = torch.zeros((1, 0), dtype=torch.long)
        while tokens.shape[1] < length:
            drawn = rng.categorical(base.next_token_log_probs(tokens))
            longer = torch.cat([tokens, drawn[:, None]], dim=1)
            if constraint.completable(longer):
                tokens = longer
        return tuple(tokens[0].tolist())

    law = exact_law(tokenwise, cutoff=1e-12)
    assert law.probs[1, 1, 1, 0] == pytest.approx(1 / 8, abs=1e-9)
    assert law.probs[0, 1, 1, 0] == pytest.approx(1 / 16, abs=1e-9)
    target = restricted(base, constraint).as_dict()
    assert law.total_variation(target) == pytest.approx(1 / 8 - 1 / 15, abs=1e-9)


def test_chains_are_checked_for_invariance_and_balance():
    table = Table.random(2, 2, seed=0)

    def redraw_first(x, rng):
        hidden = torch.tensor([[True, False]])
        log_probs = table.masked_log_probs(torch.tensor([x]), hidden)[:, 0]
        return (int(rng.categorical(log_probs)), x[1])

    good = Chain(redraw_first, table.as_dict(), reversible=True)
    assert [f.axiom for f in check_sampler(good)] == ["target is invariant", "detailed balance"]
    assert all(f.holds for f in check_sampler(good))
    rotate = Chain(lambda x, rng: (x[1], 1 - x[0]), dict.fromkeys(table.as_dict(), 0.25), True)
    held = {f.axiom: f.holds for f in check_sampler(rotate)}
    assert held == {"target is invariant": True, "detailed balance": False}
    wrong = Chain(redraw_first, dict.fromkeys(table.as_dict(), 0.25))
    assert not all(f.holds for f in check_sampler(wrong))


def test_a_thousand_hidden_bits():
    oracle = HiddenParity.random(1100, seed=0)
    tokens = torch.zeros((1, 1100), dtype=torch.long)
    probs = oracle.masked_log_probs(tokens, torch.ones_like(tokens).bool()).exp()
    torch.testing.assert_close(probs, torch.full_like(probs, 0.5))


def test_bad_input_is_explained():
    with refused("hidden"):
        HiddenParity(torch.tensor([0, 2]))
    with refused("weights"):
        Knapsack((1, -1), 2)
    with refused("prefix"):
        SomeZero(2).completable(torch.zeros((1, 3), dtype=torch.long))
    assert repr(HiddenParity(torch.tensor([1, 0]))) == "HiddenParity(secret 10, length 3)"

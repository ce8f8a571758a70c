"""Gaps down to 1e-20: two spins and pairs by hand, cliques in eighty digits, what is refused."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.structures.ising import Ising
from triptych.theory import block_dynamics as bd
from triptych.theory.block_dynamics import BlockDynamics


@pytest.mark.parametrize("coupling", [0.0, 0.5, 3.0, 10.36, 16.0])
@pytest.mark.parametrize("method", ["dense", "lanczos"])
def test_two_spins_by_hand(coupling, method):
    """C = 1 + e^(2J); at J = 10.36 the gap is 1e-9, and right to 12 digits."""
    dynamics = BlockDynamics(Table.of(Ising.chain(2, coupling)), MaskLaw.of_size(2, 1))
    found = bd.poincare_constant(dynamics, method=method)
    assert found == pytest.approx(1 + math.exp(2 * coupling), rel=1e-12)
    half = 0.5 * math.tanh(coupling)
    wanted = sorted([1.0, 0.5 + half, 0.5 - half, 0.0], reverse=True)
    np.testing.assert_allclose(bd.spectrum(dynamics).numpy(), wanted, atol=1e-12)


@pytest.mark.parametrize("method", ["dense", "lanczos"])
@pytest.mark.parametrize("strong", [10.0, 18.0])
def test_tiny_gaps_that_are_close_together(strong, method):
    """Two pairs and a free spin, singletons: a pair is touched with 2/5, so the slower one decides:
    C = 5/2 (1 + e^(2J)). At J = 18 both slow eigenvalues round to 1, and eigenvectors mix."""
    coupling = torch.zeros(5, 5, dtype=torch.float64)
    coupling[0, 1] = coupling[1, 0] = strong
    coupling[2, 3] = coupling[3, 2] = strong + 0.2
    ising = Ising(coupling, torch.zeros(5, dtype=torch.float64))
    masks = MaskLaw.of_size(5, 1)
    found = bd.poincare_constant(BlockDynamics(Table.of(ising), masks), method=method)
    assert found == pytest.approx(2.5 * (1 + math.exp(2 * strong + 0.4)), rel=1e-9)


@pytest.mark.parametrize("method", ["dense", "lanczos"])
def test_more_slow_functions_than_a_handful(method):
    """Four pairs: 15 products of their magnetisations are slow, and one pair is the slowest."""
    coupling = torch.zeros(8, 8, dtype=torch.float64)
    for i in range(4):
        coupling[2 * i, 2 * i + 1] = coupling[2 * i + 1, 2 * i] = 18.0 + 0.3 * i
    ising = Ising(coupling, torch.zeros(8, dtype=torch.float64))
    dynamics = BlockDynamics(Table.of(ising), MaskLaw.of_size(8, 1))
    found = bd.poincare_constant(dynamics, method=method)
    assert found == pytest.approx(4 * (1 + math.exp(2 * 18.9)), rel=1e-8)


@pytest.mark.parametrize("method", ["dense", "lanczos"])
@pytest.mark.parametrize("strong", [(8.0, 22.0), (14.0, 22.0), (7.0, 15.0, 22.0)])
def test_tiny_gaps_that_are_far_apart(strong, method):
    """The slowest pair has a gap of 1e-19, and eigenvectors mix it with gaps a thousandfold."""
    count = 2 * len(strong)
    coupling = torch.zeros(count, count, dtype=torch.float64)
    for i, value in enumerate(strong):
        coupling[2 * i, 2 * i + 1] = coupling[2 * i + 1, 2 * i] = value
    ising = Ising(coupling, torch.zeros(count, dtype=torch.float64))
    dynamics = BlockDynamics(Table.of(ising), MaskLaw.of_size(count, 1))
    found = bd.poincare_constant(dynamics, method=method)
    assert found == pytest.approx(count / 2 * (1 + math.exp(44.0)), rel=1e-9)


def clique_constant(spins, coupling, field):
    """C of singletons on a clique in 80 digits: the number of spins up is a birth-death chain.

    Its 1 - λ are the eigenvalues of a tridiagonal matrix; the second is found by bisection on the
    number of negative pivots.
    """
    with localcontext() as context:
        context.prec = 80
        pull, field, one = Decimal(str(coupling)), Decimal(str(field)), Decimal(1)

        def chance(towards):
            return one / (one + (-2 * towards).exp())

        sums = [2 * up - spins for up in range(spins + 1)]
        birth = [chance(pull * (s + 1) + field) * (spins - m) / spins for m, s in enumerate(sums)]
        death = [chance(-pull * (s - 1) - field) * m / spins for m, s in enumerate(sums)]
        diagonal = [b + d for b, d in zip(birth, death, strict=True)]
        squares = [birth[m] * death[m + 1] for m in range(spins)]

        def below(value):
            pivot, count = diagonal[0] - value, 0
            for m in range(spins + 1):
                count += pivot < 0
                if m < spins:
                    pivot = diagonal[m + 1] - value - squares[m] / pivot
            return count

        low, high = Decimal("1e-60"), one
        while high / low > one + Decimal("1e-14"):
            middle = (low * high).sqrt()
            low, high = (low, middle) if below(middle) > 1 else (middle, high)
        return float(one / low)


def test_the_clique_against_two_spins_by_hand():
    assert clique_constant(2, 1.5, 0.0) == pytest.approx(1 + math.exp(3.0), rel=1e-12)


@pytest.mark.parametrize("method", ["dense", "lanczos"])
@pytest.mark.parametrize("coupling", [0.3, 1.0, 2.0, 2.5, 2.65])
def test_huge_constants_against_eighty_digits(coupling, method):
    ising = Ising.clique_and_free(6, 6, coupling, 0.1)
    dynamics = BlockDynamics(Table.of(ising), MaskLaw.of_size(6, 1))
    wanted = clique_constant(6, coupling, 0.1)
    assert bd.poincare_constant(dynamics, method=method) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("method", ["dense", "lanczos"])
@pytest.mark.parametrize("coupling", [3.0, 4.0, 5.0, 40.0])
def test_a_gap_that_rounding_hides_is_a_sentence(coupling, method):
    ising = Ising.clique_and_free(6, 6, coupling, 0.1)
    dynamics = BlockDynamics(Table.of(ising), MaskLaw.of_size(6, 1))
    if coupling < 10:
        assert clique_constant(6, coupling, 0.1) > 1e20
    with pytest.raises(ValueError, match="the gap is below 1e-20"):
        bd.poincare_constant(dynamics, method=method)

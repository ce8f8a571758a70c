"""Gaps down to 1e-296 and laws that span more than floats: by hand, and in many digits."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from tests.support import many_digits

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.structures.ising import Ising
from triptych.theory.masking.blocks import dynamics as bd
from triptych.theory.masking.blocks import mixing as block_mixing
from triptych.theory.masking.blocks.dynamics import BlockDynamics
from triptych.theory.masking.tensorisation import both_sides, tensorisation
from triptych.theory.numerics import elimination
from triptych.theory.numerics.top_eigenvalue import Unproven

pytestmark = pytest.mark.numerical
each_method = pytest.mark.parametrize("method", ["dense", "lanczos"])


def pairs(*strong):
    """Independent pairs of spins with these couplings, redrawn one spin at a time."""
    count = 2 * len(strong)
    coupling = torch.zeros(count, count, dtype=torch.float64)
    for i, value in enumerate(strong):
        coupling[2 * i, 2 * i + 1] = coupling[2 * i + 1, 2 * i] = value
    ising = Ising(coupling, torch.zeros(count, dtype=torch.float64))
    return BlockDynamics(Table.of(ising), MaskLaw.of_size(count, 1))


def constant_of_pairs(*strong):
    """A pair is touched with probability 1 / their number, and the slowest one decides."""
    return len(strong) * (1 + math.exp(2 * max(strong)))


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


@each_method
def test_more_slow_functions_than_a_handful(method):
    """Four pairs: 15 products of their magnetisations are slow, and one pair is the slowest."""
    strong = [18.0 + 0.3 * i for i in range(4)]
    found = bd.poincare_constant(pairs(*strong), method=method)
    assert found == pytest.approx(constant_of_pairs(*strong), rel=1e-12)


@each_method
@pytest.mark.parametrize("strong", [(8.0, 22.0), (14.0, 22.0), (7.0, 15.0, 22.0)])
def test_tiny_gaps_that_are_far_apart(strong, method):
    """The slowest pair has a gap of 1e-19, and eigenvectors mix it with gaps a thousandfold."""
    found = bd.poincare_constant(pairs(*strong), method=method)
    assert found == pytest.approx(constant_of_pairs(*strong), rel=1e-12)


@each_method
@pytest.mark.parametrize(
    ("count", "base", "seed"),
    [
        (4, 18.0, 0),
        (4, 40.0, 1),
        (4, 100.0, 3),
        pytest.param(5, 17.0, 2, marks=pytest.mark.slow),
        pytest.param(5, 100.0, 3, marks=pytest.mark.slow),
    ],
)
def test_pairs_that_are_hardly_told_apart(count, base, seed, method):
    """Couplings drawn from a range of 1: all products of magnetisations are slow."""
    draw = np.random.default_rng(seed)
    strong = (base + draw.random(count)).tolist()
    dynamics = pairs(*strong)
    assert dynamics.wide == (base == 100.0)
    found = bd.poincare_constant(dynamics, method=method)
    assert found == pytest.approx(constant_of_pairs(*strong), rel=1e-12)


@pytest.mark.parametrize(
    ("strong", "limit"),
    [
        pytest.param((20.606, 19.757, 19.64, 20.472), 64, id="256 states"),
        pytest.param(
            (20.606, 19.757, 19.64, 19.664, 20.472, 19.648),
            1024,
            id="4096 states",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_default_beyond_a_matrix(strong, limit, monkeypatch):
    """All products of the magnetisations are slow: 15 functions, and 63."""
    monkeypatch.setattr(bd, "DENSE", limit)
    monkeypatch.setattr(elimination, "_COLUMNS", limit)
    dynamics = pairs(*strong)
    gap, f = bd.slowest(dynamics)
    assert 1 / gap == pytest.approx(constant_of_pairs(*strong), rel=1e-12)
    slow = dynamics.table.sequences[:, :2].sum(1).double() - 1  # the magnetisation of the first
    p = dynamics.stationary
    correlation = float((p * f) @ slow) / math.sqrt(float(p @ slow**2))
    assert abs(correlation) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(
    ("columns", "dense"), [(4, 128), pytest.param(6, 1024, marks=pytest.mark.slow)]
)
def test_lanczos_needs_no_matrix_where_the_gap_is_ordinary(columns, dense, monkeypatch):
    """The operator alone proves the gap of a grid of 2^8 states; the elimination agrees."""
    monkeypatch.setattr(bd, "DENSE", dense)
    model = Ising.grid(2, columns, 0.4, 0.05)
    dynamics = BlockDynamics(Table.of(model), MaskLaw.of_size(2 * columns, 1))
    by_matrix = bd._eliminated(dynamics, dense=False)[0]
    monkeypatch.setattr(bd, "_eliminated", None)
    assert bd.poincare_constant(dynamics) == pytest.approx(1 / by_matrix, rel=1e-8)


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


@each_method
@pytest.mark.parametrize("coupling", [3.0, 4.0, 5.0])
def test_gaps_that_rounding_hides(coupling, method):
    """C is 1e22 to 1e38: 1 - λ_2 is 0 in floats."""
    ising = Ising.clique_and_free(6, 6, coupling, 0.1)
    dynamics = BlockDynamics(Table.of(ising), MaskLaw.of_size(6, 1))
    wanted = clique_constant(6, coupling, 0.1)
    assert bd.poincare_constant(dynamics, method=method) == pytest.approx(wanted, rel=1e-12)


@each_method
def test_a_constant_that_no_float_holds_is_a_sentence(method):
    """The gaps of cliques grow by e^-18 a unit of coupling: 1e-296 at 38, and none at 40."""
    found = []
    for coupling in (37.0, 38.0):
        ising = Ising.clique_and_free(6, 6, coupling, 0.1)
        dynamics = BlockDynamics(Table.of(ising), MaskLaw.of_size(6, 1))
        found.append(bd.poincare_constant(dynamics, method=method))
    assert math.log(found[1] / found[0]) == pytest.approx(18.0, rel=1e-9)
    ising = Ising.clique_and_free(6, 6, 40.0, 0.1)
    dynamics = BlockDynamics(Table.of(ising), MaskLaw.of_size(6, 1))
    with pytest.raises(Unproven, match="floats"):
        bd.poincare_constant(dynamics, method=method)


def test_a_gap_that_lanczos_cannot_prove_is_a_sentence(monkeypatch):
    """More states than a matrix is held for."""
    monkeypatch.setattr(bd, "ELIMINATED", 32)
    with pytest.raises(Unproven, match="the gap is below 1e-05.*up to 32 states"):
        bd.poincare_constant(pairs(9.0, 9.0, 9.0), method="lanczos")
    with pytest.raises(Unproven, match="64 states, and method is 'dense'"):
        bd.poincare_constant(pairs(1.0, 1.0, 1.0), method="dense")
    with pytest.raises(Unproven, match="64 states, and its law spans more than floats do"):
        bd.poincare_constant(pairs(200.0, 200.0, 200.0), method="lanczos")
    found = bd.poincare_constant(pairs(1.0, 1.0, 1.0), method="lanczos")
    assert found == pytest.approx(constant_of_pairs(1.0, 1.0, 1.0), rel=1e-9)


# ------------------------------------------------------------------ laws wider than floats


def two_spins(coupling, field):
    return Table.of(Ising.chain(2, coupling, field=field))


def last_is_rare(tokens):
    """{1} is drawn with a probability of e^-30 unless x_0 = 1."""
    rare = torch.where(tokens[:, :1] == 1, 0.0, -30.0).double()
    return torch.cat([torch.zeros_like(rare), rare], 1)


ONES = MaskLaw.of_size(2, 1)
WIDE = {
    "pair, field": (two_spins(190.0, 185.0), ONES),
    "pair, strong field": (two_spins(1000.0, 995.0), ONES),
    "pair, against the field": (two_spins(900.0, 890.0), ONES),
    "free spin": (
        Table.of(
            Ising(
                torch.zeros(2, 2, dtype=torch.float64),
                torch.tensor([0.0, 365.0], dtype=torch.float64),
            )
        ),
        ONES,
    ),
    "chain": (Table.of(Ising.chain(3, 30.0, field=400.0)), MaskLaw.of_size(3, 1)),
    "clique, blocks of two": (
        Table.of(Ising.clique_and_free(4, 3, 120.0, 118.0)),
        MaskLaw.of_size(4, 2),
    ),
    "three letters": (
        Table(
            3,
            2,
            torch.tensor([0, -5, -800, -900, -7, -3, -1200, -850, -1900.0]).double().log_softmax(0),
        ),
        ONES,
    ),
    "a hole": (
        Table(2, 2, torch.tensor([0.0, -900.0, -torch.inf, -950.0]).double().log_softmax(0)),
        ONES,
    ),
    "looking": (two_spins(300.0, 296.0), MaskLaw.looking(2, [[0], [1]], last_is_rare)),
}
each_wide = pytest.mark.parametrize(("table", "masks"), WIDE.values(), ids=WIDE.keys())


@each_wide
@each_method
def test_wide_laws_against_many_digits(table, masks, method):
    """log p is up to 4000 and known to its last digit, 5e-13, which is what C is known to."""
    dynamics = BlockDynamics(table, masks)
    assert dynamics.wide
    wanted = float(many_digits.poincare(table, masks, 80))
    assert bd.poincare_constant(dynamics, method=method) == pytest.approx(wanted, rel=1e-11)


def test_wide_laws_by_hand():
    """A pair in a field: -- is left over +-, which has e^-10 of its weight, in one of two steps of
    two kinds: C is close to 2 (1 + e^10) / 2 = 22027.5 + .. ; and a spin that hardly moves adds
    nothing to a free one, C = 2."""
    assert bd.poincare_constant(BlockDynamics(*WIDE["free spin"])) == pytest.approx(2.0)
    found = bd.poincare_constant(BlockDynamics(*WIDE["pair, field"]))
    assert found == pytest.approx(2 * (1 + math.exp(10)), rel=1e-4)


@each_wide
def test_wide_laws_step_by_step(table, masks):
    """The matrix, the operator and the moved law are one chain, and keep the law's support."""
    dynamics = BlockDynamics(table, masks)
    on, matrix = dynamics.support, dynamics.transition()
    size = len(on)
    torch.testing.assert_close(matrix[on].sum(1), torch.ones(int(on.sum())).double())
    one = torch.eye(size, dtype=torch.float64)
    torch.testing.assert_close(dynamics.apply(one)[on], matrix[on], rtol=1e-11, atol=0)
    for x in torch.nonzero(on)[:, 0].tolist():
        torch.testing.assert_close(dynamics.moved(one[x]), matrix[x], rtol=1e-11, atol=0)
    flow = many_digits.block_flow(table, masks, 60)
    kept = torch.nonzero(on)[:, 0].tolist()
    for a, x in enumerate(kept):
        for b, y in enumerate(kept):
            if a != b:
                wanted = float(flow[a, b] / flow[a, a])
                assert float(matrix[x, y]) == pytest.approx(wanted, rel=1e-11)
    values = bd.spectrum(dynamics)
    assert float(values[0]) == 1.0
    wanted = 1 - float(1 / many_digits.poincare(table, masks))
    assert float(values[1]) == pytest.approx(wanted, abs=1e-12)  # log p is known to 5e-13


def test_mixing_of_a_wide_law():
    """Two spins, J = 190, field 187: all mass is at ++. A drawn spin whose neighbour is down turns
    up with q = 1 / (1 + e^6), one whose neighbour is up always does: the way from -- by hand."""
    dynamics = BlockDynamics(two_spins(190.0, 187.0), ONES)
    q = 1 / (1 + math.exp(6.0))
    both_down, one_down, steps = 1.0, 0.0, 0
    while both_down + one_down > 0.25:
        both_down, one_down = (
            both_down * (1 - q) + one_down * (1 - q) / 2,
            both_down * q + one_down * q / 2,
        )
        steps += 1
    start = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    assert block_mixing.mixing_time(dynamics) == steps
    assert block_mixing.mixing_time(dynamics, start=start) == steps
    # χ² from a point mass is 1/p - 1, here e^746
    assert block_mixing.chi_square_decay(dynamics, start, 0).tolist() == [math.inf]


def test_slow_mixing_keeps_its_digits():
    """Two spins, J = 12, from ++: λ = ½(1 ± tanh J) and TV = ½ λ^t + .., in closed form."""
    dynamics = BlockDynamics(two_spins(12.0, 0.0), ONES)
    gap = 1 / (1 + math.exp(24.0))
    wanted = math.log(2) / -math.log1p(-gap)
    # the fast part has died out, and p(+-) = e^-24 / 2 is part of the distance
    assert block_mixing.mixing_time(dynamics) == pytest.approx(wanted, rel=1e-9)


def test_entropies_of_a_wide_law():
    """A point mass at --: log 1/p, and what each block sees of it."""
    dynamics = BlockDynamics(*WIDE["pair, field"])
    point = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    whole, local = both_sides(dynamics, point)
    logs = dynamics.table.log_probs
    assert whole == pytest.approx(-float(logs[0]), rel=1e-12)
    given = float(logs[0] - torch.logaddexp(logs[0], logs[1]))
    assert local == pytest.approx(-given, rel=1e-9)
    found = tensorisation(dynamics, starts=0)
    assert found.poincare == pytest.approx(bd.poincare_constant(dynamics), rel=1e-12)
    assert found.upper == pytest.approx(-float(logs.min()) * found.poincare, rel=1e-9)
    assert (
        found.attained == pytest.approx(whole / local, rel=1e-6) or found.attained > whole / local
    )


def test_a_slow_function_that_no_float_holds_is_a_sentence():
    dynamics = BlockDynamics(*WIDE["pair, strong field"])
    with pytest.raises(Unproven, match="the gap is .*, but the slowest function"):
        bd.slowest(dynamics)
    gap, f = bd.slowest(BlockDynamics(*WIDE["pair, field"]))
    assert float(f.argmax()) == 0 or float(f.argmin()) == 0
    assert gap == pytest.approx(1 / 44054.93, rel=1e-6)

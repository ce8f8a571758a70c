"""The clique of coupled spins: lumped chains, hitting times and bounds against brute force."""

import math

import pytest
import torch
from scipy import stats

from triptych.core.enumeration import exact_transition_matrix
from triptych.core.mask_laws import MaskLaw
from triptych.core.randomness import TorchRng
from triptych.core.table import Table, all_sequences
from triptych.inference.chains import gibbs
from triptych.inference.chains.parallel import independent_step
from triptych.theory.masking import ferromagnet, parallel
from triptych.theory.masking.blocks.dynamics import BlockDynamics
from triptych.theory.masking.ferromagnet import Ferromagnet
from triptych.theory.numerics.hitting import Hitting, simulate

pytestmark = pytest.mark.numerical


def gibbs_matrix(table, k):
    return BlockDynamics(table, MaskLaw.of_size(table.length, k)).transition()


EQUAL = Ferromagnet.equal(5, 3, 0.6, 0.3, -0.2)
UNEQUAL = Ferromagnet(0.5, (0.4, -0.1, 0.2), (0.3, -0.6))


def lumped(matrix, model):
    """The law of the number of up spins in the clique, from each full state."""
    up = all_sequences(2, model.spins)[:, : model.clique].sum(-1)
    onto = torch.nn.functional.one_hot(up, model.clique + 1).double()
    return up, matrix @ onto


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


# ------------------------------------------------------------------ the model


def test_the_constants_of_the_assumption():
    model = Ferromagnet(3.0, (1.0, 0.0), (-0.5,))
    assert (model.spins, model.clique) == (3, 2)
    assert (model.margin, model.clique_sum, model.free_norm) == (1.5, 1.0, 0.5)
    assert model.violations == []
    ising = model.ising()
    assert ising.field.tolist() == [1.0, 0.0, -0.5]
    assert ising.coupling[0, 1] == 3.0
    assert ising.coupling[0, 2] == 0.0


def test_each_part_of_the_assumption_is_named():
    figure = Ferromagnet.equal(10, 4, 7.0, 5.0, 5.0)
    assert figure.violations == [
        "h_G = 20 is not above 30, the sum of the free |h|",
        "J = 7 is not above 50, the sum of all |h|",
    ]
    assert "h_G = -1" in Ferromagnet(9.0, (-0.5, -0.5)).violations[0]
    assert Ferromagnet.equal(10, 4, 51.0, 5.0, 5.0).violations == figure.violations[:1]


def test_the_margin_sets_the_coupling():
    model = Ferromagnet.with_margin(6, 4, margin=0.7, clique_field=-0.3, free_field=0.25)
    assert model.coupling == pytest.approx(0.7 + 1.2 + 0.5)
    assert model.margin == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Ferromagnet(1.0, (0.0,)), "clique is 1"),
        (lambda: Ferromagnet(math.nan, (0.0, 0.0)), "finite"),
        (lambda: Ferromagnet.equal(3, 4, 1.0, 0.0, 0.0), "2..3"),
        (lambda: ferromagnet.gibbs_chain(EQUAL, 6), "1..N"),
        (lambda: ferromagnet.gibbs_chain(Ferromagnet(1.0, (0.0,) * 10 + (1.0,)), 1), "limit is 10"),
        (lambda: ferromagnet.log_reaching(EQUAL, 2), "3..5 spins, not of 2"),
        (lambda: ferromagnet.stuck_steps(4, 1.0, 1.0), "between 0 and 1"),
    ],
)
def test_bad_input_is_answered_by_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


# ------------------------------------------------------------------ Proposition 4.3.3


@pytest.mark.parametrize(
    "model",
    [
        EQUAL,
        UNEQUAL,
        Ferromagnet(2.0, (0.5, -0.2, 0.1, 0.3), (0.1,)),
        Ferromagnet(0.1, (0.9, 0.4, -0.8)),  # no modes at all: the formula still is the minimum
    ],
)
def test_mode_ratios_by_going_through_all_states(model):
    states = all_sequences(2, model.spins)
    weight = model.ising().log_weight(states)
    up = states[:, : model.clique].sum(-1)
    large, small = up == model.clique, up == 0
    found = ferromagnet.mode_ratios(model)
    assert found.large_over_small == pytest.approx(float(weight[large].min() - weight[small].max()))
    rest = weight[~large & ~small]
    assert found.small_over_rest == pytest.approx(float(weight[small].min() - rest.max()))
    flipped = weight[large] - weight[small]  # the same free spins, in the same order
    assert flipped.tolist() == pytest.approx([found.flipped] * len(flipped))


def test_ordered_pairs_would_make_the_inequality_strict():
    """J_0 = 2 either way; each pair once is an equality, 4 = 4, and both orders give 10 > 4."""
    once, twice = Ferromagnet(3.0, (1.0, 0.0)), Ferromagnet(6.0, (1.0, 0.0))
    assert ferromagnet.mode_ratios(once).small_over_rest == 2 * once.margin == 4.0
    assert ferromagnet.mode_ratios(twice).small_over_rest == 10.0


def test_the_printed_strict_inequality_is_met_with_equality():
    """J = 3, fields (1, 0): log p(-,-) / p(+,-) = 2 - (-2) = 4 = 2 J_0; also with a free spin."""
    for free in ((), (0.5,)):
        model = Ferromagnet(3.0, (1.0, 0.0), free)
        assert model.violations == []
        assert ferromagnet.mode_ratios(model).small_over_rest == 2 * model.margin
    strict = Ferromagnet(3.0, (1.0, 0.25))
    assert ferromagnet.mode_ratios(strict).small_over_rest > 2 * strict.margin
    three = Ferromagnet(3.0, (1.0, 0.0, 0.0))
    assert ferromagnet.mode_ratios(three).small_over_rest > 2 * three.margin


# ------------------------------------------------------------------ the chains


@pytest.mark.parametrize("model", [EQUAL, Ferromagnet.equal(5, 5, -0.3, 0.2, 0.0)])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_the_count_is_a_chain_under_k_gibbs(model, k):
    """Every full state with n up spins moves to n' with the probability of the lumped chain."""
    up, rows = lumped(gibbs_matrix(Table.of(model.ising()), k), model)
    wanted = ferromagnet.gibbs_chain(model, k)
    assert torch.allclose(rows, wanted.log_matrix.exp()[up], atol=1e-13)
    assert wanted.up.tolist() == list(range(model.clique + 1))


def test_the_count_is_a_chain_under_independent_parallel():
    table = Table.of(EQUAL.ising())
    full = parallel.product_chain(parallel.independent_parallel_laws(table))
    up, rows = lumped(full, EQUAL)
    wanted = ferromagnet.parallel_chain(EQUAL).log_matrix.exp()
    assert torch.allclose(rows, wanted[up], atol=1e-13)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_with_unequal_fields_the_clique_is_a_chain(k):
    """The free spins, first forgotten, do not matter."""
    full = gibbs_matrix(Table.of(UNEQUAL.ising()), k)
    kept = full.reshape(8, 4, 8, 4).sum(-1)
    chain = ferromagnet.gibbs_chain(UNEQUAL, k)
    for free in range(4):
        assert torch.allclose(kept[:, free], chain.log_matrix.exp(), atol=1e-13)
    assert chain.up.tolist() == [0, 1, 1, 2, 1, 2, 2, 3]
    assert chain.large.tolist() == [False] * 7 + [True]
    assert chain.freed.tolist() == [False] + [True] * 7  # three spins: only all down is ≤ -2
    laws = parallel.independent_parallel_laws(Table.of(UNEQUAL.ising()))
    kept = parallel.product_chain(laws).reshape(8, 4, 8, 4).sum(-1)
    one = ferromagnet.parallel_chain(UNEQUAL).log_matrix.exp()
    assert torch.allclose(kept[:, 1], one, atol=1e-13)


@pytest.mark.parametrize("coupling", [5.0, 500.0])
def test_with_unequal_fields_rare_moves_keep_their_digits(coupling):
    """Two spins: a spin whose neighbour is down turns up with log σ(2(h - J)), here -998."""
    model = Ferromagnet(coupling, (1.0, 0.5))

    def turns(field):
        return -2 * (coupling - field) - math.log1p(math.exp(-2 * (coupling - field)))

    one = ferromagnet.gibbs_chain(model, 1)
    assert float(one.log_matrix[0, 2]) == pytest.approx(turns(1.0) - math.log(2), rel=1e-12)
    assert float(one.log_matrix[0, 1]) == pytest.approx(turns(0.5) - math.log(2), rel=1e-12)
    both = ferromagnet.parallel_chain(model)
    assert float(both.log_matrix[0, 3]) == pytest.approx(turns(1.0) + turns(0.5), rel=1e-12)
    # once a spin is up, the other one follows, or the first goes back, with ½ each up to e^-8
    mean = Hitting(one.log_matrix, one.large).log_mean()[0]
    left = one.log_matrix[0, 1:3].logsumexp(0)
    assert float(mean + left) == pytest.approx(math.log(2), abs=1e-2)


def test_the_steps_on_spins_have_these_laws(unchecked_shapes):
    """The samplers on the spins, enumerated choice by choice."""
    ising = Ferromagnet.equal(4, 3, 0.6, 0.3, -0.2).ising()
    states = [tuple(x) for x in all_sequences(2, 4).tolist()]

    masks = MaskLaw.of_size(ising.length, 2)

    def jointly(state, rng):
        return tuple(gibbs.step(ising, torch.tensor([state]), masks, rng)[0].tolist())

    def together(state, rng):
        return tuple(independent_step(ising, torch.tensor([state]), rng)[0].tolist())

    table = Table.of(ising)
    found = exact_transition_matrix(states, jointly)
    assert torch.allclose(found, gibbs_matrix(table, 2), atol=1e-12)
    wanted = parallel.product_chain(parallel.independent_parallel_laws(table))
    assert torch.allclose(exact_transition_matrix(states, together), wanted, atol=1e-12)


def test_worked_chains():
    """N = k = c = 2 draws from p; from R_-1 each spin rises on its own with sigmoid(-2J)."""
    model = Ferromagnet(0.8, (0.0, 0.0))
    large = math.exp(0.8) / (2 * math.exp(0.8) + 2 * math.exp(-0.8))
    assert ferromagnet.gibbs_chain(model, 2).log_matrix[0].exp().tolist() == pytest.approx(
        [large, 1 - 2 * large, large]
    )
    rise = sigmoid(-1.6)
    assert ferromagnet.parallel_chain(model).log_matrix[0].exp().tolist() == pytest.approx(
        [(1 - rise) ** 2, 2 * rise * (1 - rise), rise**2]
    )


def test_what_a_block_meets_is_hypergeometric():
    """Without coupling a redrawn spin is up with ½: mixtures of binomials, by scipy."""
    model = Ferromagnet.equal(9, 4, 0.0, 0.0, 1.0)
    found = ferromagnet.gibbs_chain(model, 3).log_matrix[0].exp()
    met = stats.hypergeom(9, 4, 3)
    for n in range(5):
        wanted = sum(met.pmf(m) * stats.binom(m, 0.5).pmf(n) for m in range(4))
        assert found[n].item() == pytest.approx(wanted, abs=1e-14)


def test_cliques_of_two_hundred_in_log_space():
    """One spin rises from R_-1 with log-odds 2 (h - 199 J): the log-probability has its digits."""
    model = Ferromagnet.with_margin(200, 200, margin=70.0, clique_field=0.02)
    odds = 2 * (0.02 - 199 * model.coupling)
    chain = ferromagnet.parallel_chain(model).log_matrix
    assert chain[0, 1].item() == pytest.approx(math.log(200) + odds, rel=1e-12)
    assert chain[0, 200].item() == pytest.approx(200 * odds, rel=1e-12)
    whole = ferromagnet.gibbs_chain(model, 200).log_matrix
    assert whole[0, 200].exp().item() == pytest.approx(1 / (1 + math.exp(-8.0)), rel=1e-10)
    assert torch.allclose(chain.logsumexp(-1), torch.zeros(201).double(), atol=1e-12)


# ------------------------------------------------------------------ simulation


def test_simulated_times_follow_the_law():
    """Counts and spins: P(T ≤ t) within 5 standard errors, which fails 6e-7 of the time each."""
    model = Ferromagnet.equal(6, 3, 0.9, 0.4, 0.2)
    chain = ferromagnet.gibbs_chain(model, 2)
    hitting = Hitting(chain.log_matrix, chain.large)
    runs = 20_000
    found = simulate(hitting, torch.zeros(runs, dtype=torch.long), 30, TorchRng(1))
    assert int(found.max()) <= 31
    ising, spins = model.ising(), torch.zeros(4000, 6, dtype=torch.long)
    done = torch.full((4000,), 31)
    rng = TorchRng(2)
    for step in range(1, 31):
        spins = gibbs.step(ising, spins, MaskLaw.of_size(ising.length, 2), rng)
        there = (spins[:, :3].sum(-1) == 3) & (done == 31)
        done[there] = step
    for steps in (2, 5, 30):
        p = hitting.within(steps)[0][0].exp().item()
        for times in (found, done):
            share = (times <= steps).double().mean().item()
            assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / len(times))


# ------------------------------------------------------------------ bounds


def test_the_bound_on_k_gibbs_by_hand():
    """J_0 = h_G = (log 2)/2, c = N = k = 2: 4 / (4 + 2 + 2) = ½, so T = ⌈log_½ 0.1⌉ = 4."""
    half = math.log(2) / 2
    model = Ferromagnet.with_margin(2, 2, margin=half, clique_field=half / 2)
    assert math.exp(ferromagnet.log_reaching(model, 2)) == pytest.approx(0.5)
    assert ferromagnet.reaching_steps(model, 2, 0.1) == 4
    # c = 3 of N = 5, k = 4: C(2,1)/C(5,4) = 2/5; (2^3 - 2) = 6, not 2c - 2 = 4
    three = Ferromagnet.with_margin(5, 3, margin=half, clique_field=half / 3)
    assert math.exp(ferromagnet.log_reaching(three, 4)) == pytest.approx(0.4 * 4 / (4 + 2 + 6))
    steps = math.ceil(math.log(0.05) / math.log(1 - 0.4 / 3))
    assert ferromagnet.reaching_steps(three, 4, 0.05) == steps


@pytest.mark.parametrize("k", [3, 4, 6])
def test_every_step_of_k_gibbs_reaches_as_often_as_the_proof_says(k):
    for margin in (0.01, 0.5, 2.0):
        for field in (0.001, 0.5):
            model = Ferromagnet.with_margin(
                6, 3, margin=margin, clique_field=field, free_field=field / 2
            )
            assert model.violations == []
            chain = ferromagnet.gibbs_chain(model, k)
            reached = Hitting(chain.log_matrix, chain.large).within(1)[0].min().item()
            assert reached >= ferromagnet.log_reaching(model, k)


def test_the_stuck_bound_by_hand():
    assert ferromagnet.stuck_radius(2, 0.0) == -1.0
    assert ferromagnet.stuck_exponent(8, 50.0) == pytest.approx(9 / 4)
    assert ferromagnet.stuck_steps(2, 0.0, 0.74) == 1
    assert ferromagnet.stuck_steps(2, 0.0, 0.73) == 0
    assert ferromagnet.stuck_steps(20, 50.0, 0.5) == math.floor(0.25 * math.exp(2 * 81 / 20))
    many = ferromagnet.stuck_steps(4000, 3.0, 0.5)  # e^1977, beyond floats
    assert math.log(many) == pytest.approx(
        ferromagnet.stuck_exponent(4000, 3.0) + math.log(0.25), rel=1e-12
    )


def test_blocks_that_hardly_ever_hold_the_clique():
    """600 of 3000 spins, k = 700: log(1 - c) is -1615 and T = -log δ / (1 - c), beyond floats; and
    20 of 60 spins, k = 20: c differs from 1 by 1e-16."""
    model = Ferromagnet.with_margin(3000, 600, margin=1.0, clique_field=0.01)
    steps = ferromagnet.reaching_steps(model, 700, 0.1)
    wanted = math.log(math.log(10)) - ferromagnet.log_reaching(model, 700)
    assert math.log(steps) == pytest.approx(wanted, rel=1e-12)
    small = Ferromagnet.with_margin(60, 20, margin=9.0, clique_field=0.5)
    chance = sigmoid(20.0) / math.comb(60, 20)  # 2^20 other states weigh e^-27 and less
    wanted = math.log(10) / chance
    assert ferromagnet.reaching_steps(small, 20, 0.1) == pytest.approx(wanted, rel=1e-2)


def test_the_printed_stuck_bound_is_false_at_two_spins():
    """J_0 = 0.001, fields (1e-6, 0), δ = 0.745: one step is promised to stay with 0.255, and stays
    with sigmoid(0.002) sigmoid(0.002002) = 0.25050."""
    model = Ferromagnet(0.001001, (1e-6, 0.0))
    assert model.violations == []
    assert model.margin == pytest.approx(0.001)
    assert ferromagnet.stuck_steps(2, model.margin, 0.745) == 1
    chain = ferromagnet.parallel_chain(model)
    stay = Hitting(chain.log_matrix, chain.freed).within(1)[1][0].exp().item()
    assert stay == pytest.approx(sigmoid(0.002) * sigmoid(0.002002), rel=1e-9)
    assert stay < 1 - 0.745
    low, high = ferromagnet.stuck_gap(model.margin)
    assert low <= 0.745 < high
    assert ferromagnet.stuck_gap(0.0) == pytest.approx((2 / math.e, 0.75))
    assert ferromagnet.stuck_gap(0.0071)[0] < ferromagnet.stuck_gap(0.0071)[1]
    assert ferromagnet.stuck_gap(0.0073)[0] > ferromagnet.stuck_gap(0.0073)[1]


@pytest.mark.parametrize("clique", [2, 3, 4, 5, 8, 12, 21])
def test_where_the_radius_is_positive_the_stuck_bound_holds(clique):
    """And where it is not, from three spins on, no step is promised."""
    for margin in (0.01, 0.1, 0.3, 0.8, 2.0):
        for delta in (0.1, 0.5, 0.9, 0.999):
            steps = ferromagnet.stuck_steps(clique, margin, delta)
            if ferromagnet.stuck_radius(clique, margin) <= 0:
                assert clique == 2 or steps == 0
                continue
            model = Ferromagnet.with_margin(clique, clique, margin=margin, clique_field=1e-9)
            chain = ferromagnet.parallel_chain(model)
            stay = Hitting(chain.log_matrix, chain.freed).within(steps)[1][~chain.freed].min()
            assert stay.exp().item() >= 1 - delta


# ------------------------------------------------------------------ the corollary


def test_the_assumptions_of_the_corollary_by_hand():
    assert ferromagnet.smallest_clique(0.5, 1) == 25  # 8 (1 + log 8) = 24.6
    assert ferromagnet.smallest_clique(0.1, 1000) == 93  # 8 (1 + log 40000) = 92.8
    assert ferromagnet.least_field(0.5) == pytest.approx(0.5 * math.log(14))
    assert ferromagnet.least_margin(25) == pytest.approx(12.5 * math.log(2))
    assert ferromagnet.smallest_block(100, 25, 0.5) == 100
    assert ferromagnet.smallest_block(1000, 25, 0.5) == 995  # 1000 - 500.5 / 88 = 994.3
    assert ferromagnet.smallest_block(10, 10, 0.5) == 10
    model = Ferromagnet.with_margin(25, 25, margin=9.0, clique_field=1.4 / 25)
    assert ferromagnet.interaction_violations(model, 0.5, 1) == []
    named = ferromagnet.interaction_violations(
        Ferromagnet.with_margin(24, 24, margin=8.0, clique_field=0.05), 0.5, 1
    )
    assert [text.split(" =")[0] for text in named] == ["|C|", "h_G", "J_0"]


@pytest.mark.parametrize(("delta", "steps"), [(0.5, 1), (0.9, 10)])
def test_the_corollary_exactly(delta, steps):
    clique = ferromagnet.smallest_clique(delta, steps)
    spins = 40 * clique
    field = ferromagnet.least_field(delta) / clique
    model = Ferromagnet.with_margin(
        spins, clique, margin=ferromagnet.least_margin(clique) + 1e-9, clique_field=field + 1e-9
    )
    assert model.violations == []
    assert ferromagnet.interaction_violations(model, delta, steps) == []
    k = ferromagnet.smallest_block(spins, clique, delta)
    assert k < spins
    found = ferromagnet.separation(model, k, steps)
    assert found.failure <= delta
    assert found.failure == pytest.approx(math.exp(found.gibbs) + math.exp(found.parallel))
    # k-Gibbs: the block must hold the clique (from a start with all but few spins down), and then
    # draw R_1, e^{2 h_G} times as likely as R_-1; other states do not count at this coupling.
    whole = math.comb(spins - clique, k - clique) / math.comb(spins, k)
    wanted = whole * sigmoid(2 * model.clique_sum)
    assert 1 - math.exp(found.gibbs) == pytest.approx(wanted, rel=1e-6)
    assert found.parallel < -1000


def test_the_separation_is_of_the_worst_start():
    """Five spins start with none or one up: the first is worse for k-Gibbs, the second for
    independent parallel, which is in R_1 within two steps by P[x, R_1] + Σ_y P[x, y] P[y, R_1]."""
    model = Ferromagnet.equal(6, 5, 0.4, 0.3, 0.1)
    one = ferromagnet.gibbs_chain(model, 5).log_matrix.exp()
    many = ferromagnet.parallel_chain(model).log_matrix.exp()
    arrive = many[:, 5] + many[:, :5] @ many[:5, 5]
    assert arrive[1] > arrive[0]
    found = ferromagnet.separation(model, 5, 2)
    assert math.exp(found.gibbs) == pytest.approx(1 - one[:2, 5].min().item())
    assert math.exp(found.parallel) == pytest.approx(arrive[:2].max().item())

"""Tensorisation of entropy and the finite-sample bound: by hand, by loops, by random laws."""

import itertools
import math

import mpmath
import numpy as np
import pytest
import torch

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.structures.ising import Ising
from triptych.structures.uniform import Uniform
from triptych.theory.masking import estimators
from triptych.theory.masking import finite_sample as fs
from triptych.theory.masking import tensorisation as tn
from triptych.theory.masking.blocks.dynamics import BlockDynamics, poincare_constant
from triptych.theory.masking.families import ExponentialFamily, IsingFamily

pytestmark = pytest.mark.numerical


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def ones(strength, length=2):
    blocks = [[i] for i in range(length)] + [[i, i + 1] for i in range(length - 1)]

    def log_weights(tokens):
        return strength * torch.stack([tokens[:, b].sum(1) for b in blocks], 1).double()

    return MaskLaw.looking(length, blocks, log_weights)


HOLES = Table(2, 2, vector(1 / 2, 1 / 3, 0, 1 / 6).log())
CASES = {
    "singletons": (Table.random(2, 3, seed=0), MaskLaw.of_size(3, 1)),
    "three letters": (Table.random(3, 2, seed=1), MaskLaw.independent(2, 0.4)),
    "holes": (HOLES, MaskLaw.of_size(2, 1)),
    "looking": (Table.random(2, 3, seed=2), ones(1.5, 3)),
    "looking, holes": (HOLES, ones(0.7)),
}
each_case = pytest.mark.parametrize(("table", "masks"), CASES.values(), ids=CASES.keys())


def random_laws(table, count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    on = table.log_probs > -torch.inf
    for _ in range(count):
        logits = 3 * torch.randn(len(on), generator=generator, dtype=torch.float64)
        yield torch.where(on, logits, -torch.inf).softmax(0)


def by_loops(table, masks, law):
    """Σ_x r(x) Σ_K p(K | x) Σ_{y: y_-K = x_-K} r(y | x_-K, K) log(r(y | ..) / q(y | ..))."""
    words, q, r = table.sequences.tolist(), table.log_probs.exp().tolist(), law.tolist()
    chance = masks.log_prob(table.sequences).exp().tolist()
    total = 0.0
    for (a, x), (m, block) in itertools.product(enumerate(words), enumerate(masks.blocks.tolist())):
        same = [
            b
            for b, y in enumerate(words)
            if all(h or i == j for h, i, j in zip(block, x, y, strict=True))
        ]
        u, w = ([law[b] * chance[b][m] for b in same] for law in (r, q))
        for top, bottom in zip(u, w, strict=True):
            if top > 0 and r[a] * chance[a][m] > 0:
                share = top / sum(u)
                total += r[a] * chance[a][m] * share * math.log(share / (bottom / sum(w)))
    return total


@each_case
def test_both_sides_are_the_definition(table, masks):
    dynamics, on = BlockDynamics(table, masks), table.log_probs > -torch.inf
    points = torch.eye(len(on), dtype=torch.float64)[on]
    near = dynamics.stationary * (1 + 0.01 * torch.sin(torch.arange(len(on)).double()))
    for law in [*random_laws(table, 4), points[0], near / near.sum()]:
        left, right = tn.both_sides(dynamics, law)
        here = law > 0
        wanted = float((law[here] * (law[here].log() - table.log_probs[here])).sum())
        assert left == pytest.approx(wanted, rel=1e-9)
        assert right == pytest.approx(by_loops(table, masks, law), rel=1e-9)


def test_worked_sides():
    two = BlockDynamics(Table.of(Uniform(2, 2)), MaskLaw.of_size(2, 1))
    found = tn.both_sides(two, vector(1, 0, 0, 0))
    assert found == pytest.approx((2 * math.log(2), math.log(2)))
    with pytest.raises(ValueError, match="mass where q has none"):
        tn.both_sides(BlockDynamics(HOLES, MaskLaw.of_size(2, 1)), vector(0.5, 0, 0.5, 0))
    assert tn.comparison(0.5) == 2.0
    assert tn.comparison(0.5 - 1e-6) == pytest.approx(2.0)
    assert tn.comparison(1 / 6) == pytest.approx(1.5 * math.log(5))
    with pytest.raises(ValueError, match="in \\(0, ½\\]"):
        tn.comparison(0.7)


@pytest.mark.parametrize("field", [0.0, 0.8])
def test_independent_positions_have_their_number(field):
    table = Table.of(Ising.chain(3, 0.0, field=field))
    found = tn.tensorisation(BlockDynamics(table, MaskLaw.of_size(3, 1)))
    assert found.attained == pytest.approx(3.0, rel=1e-6)
    assert found.lower == pytest.approx(3.0, rel=1e-6)
    assert found.poincare == pytest.approx(3.0)
    assert found.upper == pytest.approx(3 * tn.comparison(float(table.log_probs.exp().min())))
    whole = tn.tensorisation(BlockDynamics(table, MaskLaw.of_size(3, 3)))
    assert whole.lower == pytest.approx(1.0, rel=1e-9)


@each_case
def test_the_bracket_has_every_law_and_its_witness(table, masks):
    dynamics = BlockDynamics(table, masks)
    found = tn.tensorisation(dynamics)
    assert float(found.witness.sum()) == pytest.approx(1.0)
    left, right = tn.both_sides(dynamics, found.witness)
    assert left / right == pytest.approx(found.attained, rel=1e-6)
    assert found.poincare == pytest.approx(poincare_constant(dynamics))
    assert found.lower <= found.upper * (1 + 1e-12)
    smallest = float(dynamics.stationary[dynamics.stationary > 0].min())
    assert found.upper == pytest.approx(found.poincare * tn.comparison(smallest))
    on = torch.nonzero(dynamics.stationary > 0)[:, 0]
    points = torch.eye(len(dynamics.stationary), dtype=torch.float64)[on]
    for law in [*random_laws(table, 30), *points]:
        left, right = tn.both_sides(dynamics, law)
        assert left / right <= found.attained * (1 + 1e-6)


@each_case
def test_point_masses_are_lower_bounds(table, masks):
    """KL over the divergence within blocks, one point mass after the other."""
    dynamics = BlockDynamics(table, masks)
    on = table.log_probs > -torch.inf
    points = torch.eye(len(on), dtype=torch.float64)[on]
    sides = [tn.both_sides(dynamics, point) for point in points]
    found = tn.point_mass_ratios(dynamics)
    assert found.tolist() == pytest.approx([left / right for left, right in sides])
    fair = BlockDynamics(Table.of(Uniform(2, 2)), MaskLaw.of_size(2, 1))
    assert tn.point_mass_ratios(fair).tolist() == pytest.approx([2.0] * 4)


def test_the_search_beats_the_limit_of_small_tilts(unchecked_shapes):
    """A law on which C_AT is above C, so that a bound by C alone would be wrong."""
    dynamics = BlockDynamics(Table.of(Ising.random(3, scale=0.7, seed=0)), MaskLaw.of_size(3, 1))
    found = tn.tensorisation(dynamics)
    assert found.attained > 1.05 * found.poincare
    assert found.lower == found.attained


@pytest.mark.parametrize("seed", range(20))
def test_the_inequalities_of_the_upper_bound(seed):
    """Var(√g) ≤ Ent(g) and Ent(g) ≤ c Var(√g), with equality in the second on two points."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.rand(4, generator=generator, dtype=torch.float64)
    q = q / q.sum()
    g = 10 ** (3 * torch.randn(4, generator=generator, dtype=torch.float64))
    mean, root = q @ g, q @ g.sqrt()
    entropy, spread = q @ (g * (g / mean).log()), mean - root**2
    assert spread <= entropy * (1 + 1e-12)
    assert entropy <= tn.comparison(float(q.min())) * spread * (1 + 1e-12)


def test_the_comparison_is_sharp_on_two_points():
    q = vector(0.9, 0.1)
    best = max(
        float((q @ (g * (g / (q @ g)).log())) / (q @ g - (q @ g.sqrt()) ** 2))
        for g in (vector(1.0, t) for t in np.exp(np.linspace(0.01, 8, 2000)))
    )
    assert best == pytest.approx(tn.comparison(0.1), rel=1e-5)


def test_chains_that_fall_apart_have_no_constant():
    equal = Table(2, 2, vector(0.25, 0, 0, 0.75).log())
    dynamics = BlockDynamics(equal, MaskLaw.of_size(2, 1))
    found = tn.tensorisation(dynamics)
    assert found.lower == found.upper == math.inf
    left, right = tn.both_sides(dynamics, found.witness)
    assert left > 0.1
    assert right == pytest.approx(0.0, abs=1e-15)


# ------------------------------------------------------------------ decay


@each_case
def test_entropy_falls_by_what_blocks_see(table, masks):
    """D(rP || q) ≤ D(r || q) - (the divergence blocks see), so by 1 - 1/C_AT at least."""
    dynamics = BlockDynamics(table, masks)
    smallest = float(dynamics.stationary[dynamics.stationary > 0].min())
    upper = poincare_constant(dynamics) * tn.comparison(smallest)  # that of `tensorisation`
    for law in random_laws(table, 5, seed=3):
        left, right = tn.both_sides(dynamics, law)
        decay = tn.entropy_decay(dynamics, law, 2)
        assert decay[0] == pytest.approx(left)
        assert decay[1] <= left - right + 1e-12
        assert (decay[1:] <= (1 - 1 / upper) * decay[:-1] + 1e-12).all()


def test_worked_decay():
    two = BlockDynamics(Table.of(Uniform(2, 2)), MaskLaw.of_size(2, 1))
    # after a step ½, ¼, ¼, 0: ½ log 2, and 0 for the rest
    found = tn.entropy_decay(two, vector(1, 0, 0, 0), 1)
    assert found.tolist() == pytest.approx([2 * math.log(2), 0.5 * math.log(2)])
    one = BlockDynamics(Table.of(Uniform(2, 1)), MaskLaw.of_size(1, 1))
    found = tn.continuous_decay(one, vector(1, 0), vector(0.0, math.log(3)))
    wanted = 2 / 3 * math.log(4 / 3) + 1 / 3 * math.log(2 / 3)
    assert found.tolist() == pytest.approx([math.log(2), wanted])


def test_the_printed_rate_is_too_fast():
    """One bit with chance 1/100, redrawn whole: C_AT = 1. From ½, ½ the entropy is r - q mixed
    with e^-t, by hand; it is above e^-2t, which is printed, and below e^-t."""
    q, r = vector(0.99, 0.01), vector(0.5, 0.5)
    dynamics = BlockDynamics(Table(2, 1, q.log()), MaskLaw.of_size(1, 1))
    times = vector(0.1, 0.5, 1.0, 2.0)
    ratio = tn.continuous_decay(dynamics, r, times) / tn.both_sides(dynamics, r)[0]
    for time, found in zip(times.tolist(), ratio.tolist(), strict=True):
        law = q + math.exp(-time) * (r - q)
        wanted = float((law * (law / q).log()).sum() / (r * (r / q).log()).sum())
        assert found == pytest.approx(wanted)
        assert math.exp(-2 * time) < found < math.exp(-time)


# ------------------------------------------------------------------ the finite-sample bound

PAIR = IsingFamily(Ising.chain(2, 0.4, field=0.2))
TRIPLE = IsingFamily(Ising.chain(3, 0.4, field=0.2))
SPIN = IsingFamily(Ising.chain(1, 0.0, field=0.3))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_worked_margin():
    assert fs.support_margin(SPIN, MaskLaw.of_size(1, 1), 0.7) == pytest.approx(sigmoid(-1.4))
    # two spins: log-odds of a spin are at most 2 (R + R)
    assert fs.support_margin(PAIR, MaskLaw.of_size(2, 1), 0.5) == pytest.approx(sigmoid(-2.0))


@pytest.mark.parametrize("masks", [MaskLaw.of_size(2, 1), MaskLaw.of_size(2, 2), ones(1.5)])
def test_no_parameters_of_the_box_are_below_the_margin(masks):
    margin = fs.support_margin(PAIR, masks, 0.8)
    generator = torch.Generator().manual_seed(0)
    least = []
    for theta in 0.8 * (2 * torch.rand(400, 3, generator=generator, dtype=torch.float64) - 1):
        table = Table(2, 2, PAIR.table_log_probs(theta))
        joint = table.log_probs.exp()[:, None] * masks.log_prob(table.sequences).exp()
        for m, block in enumerate(masks.blocks):
            axes = [i for i in range(2) if block[i]]
            grid = joint[:, m].reshape(2, 2)
            least.append(float((grid / grid.sum(axes, keepdim=True)).min()))
    assert margin <= min(least) <= 2.5 * margin  # and some come near


def test_cells_are_small_enough():
    assert fs.covering_number(2, 1.0, 4.0) == 16.0
    assert fs.covering_number(3, 1.0, 0.5) == 48.0**3
    epsilon, radius, d = 0.5, 1.0, 3
    side = 2 * radius / round(fs.covering_number(d, radius, epsilon) ** (1 / d))
    generator = torch.Generator().manual_seed(1)
    masks = ones(1.5)
    for _ in range(50):
        corner = torch.rand(d, generator=generator, dtype=torch.float64) * (2 - side) - 1
        signs = torch.randint(0, 2, (d,), generator=generator).double()
        ends = [
            fs.block_log_conditionals(PAIR.table_log_probs(corner + side * s), masks, 2)
            for s in (signs, 1 - signs)
        ]
        assert float((ends[0] - ends[1]).abs().max()) <= epsilon / 2
    with pytest.raises(ValueError, match="positive"):
        fs.covering_number(1, 0.0, 1.0)


def test_samples_have_the_right_means_and_shares():
    masks = ones(1.0)
    sample = fs.draw_sample(PAIR.table, masks, 200_000, 10**9, seed=0)
    p = PAIR.table.log_probs.exp()
    assert float(sample.law.sum()) == pytest.approx(1.0)
    torch.testing.assert_close(sample.pairs.sum(0), sample.law)
    # five standard deviations of a share are at most 5 · ½ / √n
    assert (sample.law - p).abs().max() < 2.5 / math.sqrt(200_000)
    chances = masks.log_prob(PAIR.table.sequences).exp().T
    torch.testing.assert_close(sample.pairs, sample.law * chances, atol=1e-5, rtol=0)
    again = fs.draw_sample(PAIR.table, masks, 200_000, 10**9, seed=0)
    assert torch.equal(sample.pairs, again.pairs)
    few = fs.draw_sample(PAIR.table, masks, 7, 3, seed=1)
    torch.testing.assert_close((few.pairs * 21).round(), few.pairs * 21)
    with pytest.raises(ValueError, match="more than can be counted"):
        fs.draw_sample(PAIR.table, masks, 10**10, 10**10, seed=0)


@pytest.mark.parametrize("masks", [MaskLaw.of_size(2, 1), ones(1.0)])
def test_the_loss_of_the_proof_by_loops(masks):
    sample = fs.draw_sample(PAIR.table, masks, 30, 5, seed=2)
    weights, entropy = fs.divergence_weights(sample, PAIR.table, masks)
    theta = vector(0.3, -0.2, 0.5)
    found = float(fs.masked_loss(PAIR, masks, weights, theta)) - entropy
    words = PAIR.table.sequences.tolist()
    chance = masks.log_prob(PAIR.table.sequences).exp().tolist()
    model = PAIR.table_log_probs(theta).exp().tolist()
    wanted = 0.0
    for (a, x), (m, block) in itertools.product(enumerate(words), enumerate(masks.blocks.tolist())):
        same = [
            b
            for b, y in enumerate(words)
            if all(h or i == j for h, i, j in zip(block, x, y, strict=True))
        ]
        u = [float(sample.law[b]) * chance[b][m] for b in same]
        w = [model[b] * chance[b][m] for b in same]
        inside = sum(
            s / sum(u) * math.log((s / sum(u)) / (t / sum(w)))
            for s, t in zip(u, w, strict=True)
            if s > 0
        )
        wanted += float(sample.pairs[m, a]) * inside if sample.law[a] > 0 else 0.0
    assert found == pytest.approx(wanted)
    point = fs.MaskedSample(vector(1, 0, 0, 0), torch.zeros(2, 4).double())
    point.pairs[:, 0] = vector(0.25, 0.75)
    weights, entropy = fs.divergence_weights(point, PAIR.table, MaskLaw.of_size(2, 1))
    assert entropy == 0.0
    torch.testing.assert_close(weights, point.pairs)


def test_worked_fit():
    masks, weights = MaskLaw.of_size(1, 1), vector(0.25, 0.75)[None]
    assert fs.fit(SPIN, masks, weights, 2.0).item() == pytest.approx(0.5 * math.log(3), abs=1e-6)
    assert fs.fit(SPIN, masks, weights, 0.5).item() == pytest.approx(0.5)
    found = fs.masked_loss(SPIN, masks, weights, vector(0.0))
    assert float(found) == pytest.approx(math.log(2))


@pytest.mark.parametrize("masks", [MaskLaw.independent(3, 0.4), ones(1.5, 3)])
def test_no_direction_of_the_box_improves_a_fit(masks):
    """Against the loss by its definition; some samples have their minimum on the border."""
    for seed in range(3):
        sample = fs.draw_sample(TRIPLE.table, masks, 12, 4, seed=seed)
        theta = fs.fit(TRIPLE, masks, sample.pairs, 0.6)
        assert theta.abs().max() <= 0.6
        best = float(fs.masked_loss(TRIPLE, masks, sample.pairs, theta))
        generator = torch.Generator().manual_seed(seed)
        for step in torch.randn(40, 6, generator=generator, dtype=torch.float64):
            other = (theta + 0.05 * step).clamp(-0.6, 0.6)
            assert float(fs.masked_loss(TRIPLE, masks, sample.pairs, other)) >= best - 1e-9


def test_a_fit_with_all_the_data_finds_the_truth():
    masks = ones(1.5, 3)
    weights = (TRIPLE.table.log_probs + masks.log_prob(TRIPLE.table.sequences).T).exp()
    torch.testing.assert_close(fs.fit(TRIPLE, masks, weights, 1.0), TRIPLE.theta, atol=1e-4, rtol=0)


def test_the_hessian_is_a_mean_of_covariances():
    """Against finite differences of the loss, away from the truth."""
    masks, theta = ones(1.5, 3), vector(0.3, -0.4, 0.1, 0.9, -0.7, 0.2)
    weights = (TRIPLE.table.log_probs + masks.log_prob(TRIPLE.table.sequences).T).exp()
    found, h = estimators.hessian_at(TRIPLE, masks, weights[None], theta[None])[0], 1e-3
    step = h * torch.eye(6, dtype=torch.float64)

    def loss(value):
        return float(fs.masked_loss(TRIPLE, masks, weights, value))

    for i, j in itertools.product(range(6), repeat=2):
        a, b = step[i], step[j]
        wanted = loss(theta + a + b) - loss(theta + a - b) - loss(theta - a + b)
        wanted = (wanted + loss(theta - a - b)) / (4 * h * h)
        assert float(found[i, j]) == pytest.approx(wanted, abs=1e-5)
    fair = vector(0.5, 0.5)[None, None]
    one = estimators.hessian_at(SPIN, MaskLaw.of_size(1, 1), fair, vector(0.0)[None])
    assert one.item() == pytest.approx(1.0)


def test_worked_right_side():
    sizes = {"delta": 0.5, "length": 1, "vocab_size": 2, "n": 2, "m": 1.0}
    found = fs.right_side(constant=2.0, loss=1.0, margin=1.0, cover=1.0, epsilon=0.0, **sizes)
    assert found == pytest.approx(1 + math.sqrt(8 / 8))
    # B: √(2³ · 2 · 1 / (1 · ½)) = √32 and √(log 16 / 4); ln(1/β) = 1
    full = fs.right_side(
        constant=2.0, loss=1.0, margin=math.exp(-1), cover=1.0, epsilon=0.3, **sizes
    )
    inside = 1 + math.sqrt(32) + math.sqrt(math.log(16) / 4) + 0.3
    assert full == pytest.approx(math.sqrt(inside) + 1)
    sizes |= {"n": 200, "m": 100.0, "length": 2, "vocab_size": 3}
    more = fs.right_side(constant=1.0, loss=0.0, margin=0.5, cover=4.0, epsilon=0.0, **sizes)
    b = math.sqrt(64 * 9 * 4 / 50) + math.sqrt(math.log(64) / 400)
    assert more == pytest.approx(math.sqrt(0.5 * b * math.log(2)) + math.sqrt(729 / 800))
    with pytest.raises(ValueError, match="delta is 1"):
        fs.right_side(
            constant=2.0, loss=1.0, margin=1.0, cover=1.0, epsilon=0.0, **(sizes | {"delta": 1.0})
        )


@pytest.mark.parametrize("divergence", [False, True])
def test_fitted_says_how_far_it_is(divergence):
    masks = MaskLaw.of_size(2, 1)
    sample = fs.draw_sample(PAIR.table, masks, 10**6, 10**9, seed=0)
    found = fs.fitted(PAIR, masks, sample, 1.0, divergence=divergence)
    law = PAIR.table_log_probs(found.theta).exp()
    wanted = 0.5 * float((law - PAIR.table.log_probs.exp()).abs().sum())
    assert found.distance == pytest.approx(wanted)
    assert found.distance < 0.01
    learned = BlockDynamics(Table(2, 2, law.log()), masks)
    assert found.lower == pytest.approx(poincare_constant(learned))
    assert found.lower <= tn.tensorisation(learned).lower <= found.upper
    entropy = float(fs.masked_loss(PAIR, masks, sample.pairs, found.theta))
    assert entropy > 0.5
    assert found.loss == pytest.approx(0.0 if divergence else entropy, abs=1e-4)


def test_the_box_needs_features_between_minus_one_and_one():
    wide = ExponentialFamily(Table.of(Uniform(2, 1)), vector(0.0, 2.0)[:, None])
    with pytest.raises(ValueError, match="features in"):
        fs.support_margin(wide, MaskLaw.of_size(1, 1), 1.0)
    with pytest.raises(ValueError, match="radius is 0"):
        fs.support_margin(SPIN, MaskLaw.of_size(1, 1), 0.0)


def test_a_fit_where_floats_end():
    """Given x_0 = 1, which has e^-800, x_1 = 1 was seen three times of four: θ = log 3."""
    base = Table(2, 2, vector(0.0, 0.0, -800.0, -800.0).log_softmax(0))
    family = ExponentialFamily(base, vector(0.0, 1.0, 0.0, 1.0)[:, None])
    weights = torch.zeros(2, 4, dtype=torch.float64)
    weights[1] = vector(0.0, 0.0, 0.25, 0.75)
    theta = fs.fit(family, MaskLaw.of_size(2, 1), weights, 2.0)
    assert theta.item() == pytest.approx(math.log(3), abs=1e-6)


def test_a_fit_that_stops_too_early_is_a_sentence(monkeypatch):
    honest = fs.scipy.optimize.minimize

    def lazy(*given, **options):
        return honest(*given, **options | {"options": {"maxiter": 1}})

    monkeypatch.setattr(fs.scipy.optimize, "minimize", lazy)
    masks = MaskLaw.of_size(3, 1)
    sample = fs.draw_sample(TRIPLE.table, masks, 40, 3, 0)
    with pytest.raises(ValueError, match="may still fall by"):
        fs.fit(TRIPLE, masks, sample.pairs, 0.6)


@pytest.mark.parametrize(
    "log_smallest", [-1e-9 + math.log(0.5), -3.0, -30.0, -50.0, -700.0, -5000.0]
)
def test_the_comparison_from_a_logarithm(log_smallest):
    """log(1/q - 1) / (1 - 2q) in many digits."""
    with mpmath.workdps(40):
        q = mpmath.exp(mpmath.mpf(log_smallest))
        wanted = float((-mpmath.mpf(log_smallest) + mpmath.log1p(-q)) / (1 - 2 * q))
    assert tn.comparison_of_log(log_smallest) == pytest.approx(wanted, rel=1e-12)
    if log_smallest > -700:
        assert tn.comparison(math.exp(log_smallest)) == pytest.approx(wanted, rel=1e-7)

"""Fits by masked prediction: derivatives by autograd, minimisers by scipy, existence by search."""

import math
import time
from itertools import product

import pytest
import torch
from scipy.optimize import minimize
from tests.support.refusals import refused

from triptych.core.mask_laws import MaskLaw
from triptych.core.randomness import TorchRng
from triptych.core.table import Table
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.ising import Ising
from triptych.theory.masking import estimators
from triptych.theory.masking import information as masking
from triptych.theory.masking.families import ExponentialFamily, HMMFamily, IsingFamily, TableFamily

pytestmark = pytest.mark.numerical


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def close(found, wanted, **tolerance):
    torch.testing.assert_close(found, wanted, **tolerance)


def adaptive(length):
    blocks = [[i] for i in range(length)] + [[i, i + 1] for i in range(length - 1)]

    def log_weights(x):
        return torch.stack([0.7 * x[:, block].sum(-1).double() for block in blocks], 1)

    return MaskLaw.looking(length, blocks, log_weights)


def features(count, d, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, d, generator=generator, dtype=torch.float64)


HOLES = Table(3, 2, (vector(1, 2, 0, 3, 1, 1, 0, 2, 5) / 15).log())
FAMILIES = {
    "ising": IsingFamily(Ising.random(3, scale=0.7, seed=0)),
    "couplings": IsingFamily(Ising.random(3, scale=0.7, seed=1), fields=False),
    "holes": TableFamily(HOLES),
    "three tokens": ExponentialFamily(Table.random(3, 3, seed=0), features(27, 3, 0)),
}
LAWS = {
    "one": lambda n: MaskLaw.of_size(n, 1),
    "two": lambda n: MaskLaw.of_size(n, 2),
    "mixed": lambda n: MaskLaw.weighted(n, [[], [0], range(n), range(1, n)], [1.0, 1.0, 2.0, 3.0]),
    "looking": adaptive,
}
each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
each_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
SPIN = IsingFamily(Ising.chain(1, 0.0))
WHOLE = MaskLaw.of_size(1, 1)
FOUR = IsingFamily(Ising.clique_and_free(4, 4, 0.3, 0.0))


def data(family, masks, repeats, n, seed=0):
    """Counts of drawn sequences with a drawn block each."""
    rng = TorchRng(seed)
    tokens = family.table.sample(repeats * n, rng)
    drawn = masks.draw(tokens, rng).reshape(repeats, n, 1)
    tokens = tokens.reshape(repeats, n, -1)
    return estimators.pair_counts(tokens, masks, family.vocab_size, drawn)


def loss_by_definition(family, masks, counts, theta):
    """With the conditionals of theory.masking, which knows no contexts and no features."""
    seen = masking.block_log_conditionals(family.table_log_probs(theta), masks, family.vocab_size)
    return -(counts * torch.where(counts > 0, seen, 0.0)).sum() / counts.sum()


# ------------------------------------------------------------------ counting


def test_counts_by_hand():
    masks, tokens = MaskLaw.of_size(2, 1), torch.tensor([[[0, 1], [0, 1]]])
    drawn = torch.tensor([[[1], [1]]])
    close(estimators.pair_counts(tokens, masks, 2, drawn)[0, 1], vector(0, 2, 0, 0))
    close(estimators.pair_counts(tokens, masks, 2, drawn)[0, 0], vector(0, 0, 0, 0))
    close(estimators.pair_counts(tokens, masks, 2)[0], vector(0, 1, 0, 0).expand(2, 4))


def test_counts_are_a_tally():
    masks, rng = adaptive(3), TorchRng(0)
    tokens = Table.random(3, 3, seed=0).sample(60, rng).reshape(3, 20, 3)
    drawn = torch.stack([masks.draw(t, rng) for t in tokens.repeat_interleave(4, 0)]).reshape(
        3, 4, 20
    )
    drawn = drawn.transpose(1, 2)
    found = estimators.pair_counts(tokens, masks, 3, drawn)
    wanted = torch.zeros(3, len(masks.blocks), 27, dtype=torch.float64)
    for r, i, j in product(range(3), range(20), range(4)):
        a, b, c = tokens[r, i].tolist()
        wanted[r, drawn[r, i, j], 9 * a + 3 * b + c] += 1
    close(found, wanted)
    every = estimators.pair_counts(tokens, masks, 3)
    given = masks.log_prob(tokens[1]).exp()
    close(every[1].sum(1), given.sum(0))
    close(every.sum((1, 2)), vector(20, 20, 20))


# ------------------------------------------------------------------ derivatives


@each_family
@each_law
def test_derivatives_are_those_of_the_definition(family, law):
    masks = law(family.length)
    counts = data(family, masks, 2, 30)
    theta = family.theta + 0.3 * features(2, len(family.theta), 5)
    found = estimators.derivatives(family, masks, counts, theta)
    for r in range(2):

        def loss(value, r=r):
            return loss_by_definition(family, masks, counts[r], value)

        close(found.loss[r], loss(theta[r]))
        close(found.gradient[r], torch.func.grad(loss)(theta[r]), atol=1e-12, rtol=1e-9)
        hessian = torch.func.jacrev(torch.func.grad(loss))(theta[r])
        close(found.hessian[r], hessian, atol=1e-12, rtol=1e-9)


def test_derivatives_by_hand():
    found = estimators.derivatives(SPIN, WHOLE, vector(1, 3)[None, None], vector(0.0)[None])
    assert [float(part) for part in found] == pytest.approx([math.log(2), -0.5, 1.0])


@each_family
@each_law
def test_with_all_the_mass_the_truth_is_the_minimiser(family, law):
    masks = law(family.length)
    counts = (family.table.log_probs + masks.log_prob(family.table.sequences).T).exp()[None]
    found = estimators.derivatives(family, masks, counts, family.theta[None])
    close(found.gradient[0], torch.zeros_like(family.theta), atol=1e-13, rtol=0)
    close(found.hessian[0], masking.score_covariance(family, masks), atol=1e-12, rtol=1e-9)
    fitted = estimators.fit(family, masks, counts)
    close(fitted.theta[0], family.theta, atol=1e-6, rtol=0)


@each_family
@each_law
def test_the_loss_is_convex(family, law):
    """[li, Prop. 4.3.6], at θ far and near, on data that leave much unseen."""
    masks = law(family.length)
    counts = data(family, masks, 1, 8).expand(20, -1, -1)
    theta = features(20, len(family.theta), 9) * torch.logspace(-1, 1, 20)[:, None]
    hessians = estimators.hessian_at(family, masks, counts, theta)
    assert torch.linalg.eigvalsh(hessians).min() > -1e-12


def test_a_family_that_is_not_log_linear_need_not_be_convex():
    """So the convexity above is a property of these families, and could have failed."""
    family = HMMFamily(HMM.random(2, 2, 3, seed=0), 3)
    masks = MaskLaw.of_size(3, 1)
    hessian = masking.loss_hessian(family, masks, family.theta + features(5, 1, 3)[:, 0])
    assert torch.linalg.eigvalsh(hessian)[0] < -1e-4


# ------------------------------------------------------------------ fits


def test_fits_by_hand():
    found = estimators.fit(SPIN, WHOLE, vector(1, 3)[None, None])
    assert float(found.theta) == pytest.approx(0.5 * math.log(3))
    pair = IsingFamily(Ising.chain(2, 0.0))
    cells = vector(5, 2, 3, 7)
    found = estimators.fit(pair, MaskLaw.of_size(2, 2), cells[None, None]).theta[0]
    a, b, c, d = cells.log().tolist()
    wanted = vector(c + d - a - b, b + d - a - c, a + d - b - c) / 4
    close(found, wanted, atol=1e-8, rtol=0)


@each_law
def test_three_ways_to_one_minimiser(law):
    family = IsingFamily(Ising.random(3, scale=0.3, seed=0))
    masks = law(3)
    counts = data(family, masks, 3, 400)
    newton = estimators.fit(family, masks, counts)
    descent = estimators.fit(family, masks, counts, method="gradient", tolerance=1e-6)
    far = estimators.fit(family, masks, counts, start=torch.full_like(family.theta, 3.0))
    assert newton.exists.all()
    assert newton.converged.all()
    assert descent.converged.all()
    assert newton.gradient_norm.max() <= 1e-9
    assert newton.steps.max() < 10 < descent.steps.min()
    close(newton.theta, descent.theta, atol=3e-4, rtol=0)  # ‖∇L‖ / λ_min
    close(newton.theta, far.theta, atol=1e-6, rtol=0)
    for r in range(3):
        peer = minimize(
            lambda v, r=r: float(loss_by_definition(family, masks, counts[r], torch.from_numpy(v))),
            family.theta.numpy() * 0,
            method="BFGS",
            options={"gtol": 1e-7},
        )
        close(newton.theta[r], torch.from_numpy(peer.x), atol=1e-4, rtol=0)
        assert float(newton.loss[r]) <= peer.fun + 1e-12


def test_data_sets_do_not_touch_each_other():
    masks = MaskLaw.of_size(4, 2)
    counts = data(FOUR, masks, 5, 100)
    together = estimators.fit(FOUR, masks, counts)
    for r in range(5):
        alone = estimators.fit(FOUR, masks, counts[r : r + 1])
        close(alone.theta[0], together.theta[r], atol=1e-8, rtol=0)


def test_one_data_set_from_tokens():
    masks, rng = MaskLaw.of_size(4, 2), TorchRng(1)
    tokens = FOUR.table.sample(300, rng)
    drawn = masks.draw(tokens, rng)
    counts = estimators.pair_counts(tokens[None], masks, 2, drawn[None, :, None])
    wanted = estimators.fit(FOUR, masks, counts).theta
    close(estimators.fit_tokens(FOUR, masks, tokens, drawn).theta, wanted)
    close(estimators.fit_tokens(FOUR, masks, tokens, drawn[:, None]).theta, wanted)
    every = estimators.fit_tokens(FOUR, masks, tokens).theta
    assert (every - wanted).abs().max() > 1e-3


@pytest.mark.parametrize("spins", [3, 4, 5])
def test_all_masks_of_all_but_two_are_maximum_likelihood(spins):
    """Not only in the limit: E_θ[T | x_-K] is linear in T, so both gradients vanish together."""
    family = IsingFamily(Ising.random(spins, scale=0.4, seed=1))
    tokens = family.table.sample(4 * 300, TorchRng(3)).reshape(4, 300, spins)

    def fitted(k):
        masks = MaskLaw.of_size(spins, k)
        return estimators.fit(family, masks, estimators.pair_counts(tokens, masks, 2)).theta

    best = fitted(spins)
    for k in range(1, spins):
        same = bool((fitted(k) - best).abs().max() < 1e-6)
        assert same == (k >= spins - 2), k


def test_many_fits_take_seconds():
    """1000 data sets for each k: the bar is 10 s, on one thread."""
    counts = [data(FOUR, MaskLaw.of_size(4, k), 1000, 300) for k in (1, 2, 3, 4)]
    start = time.perf_counter()
    for k in (1, 2, 3, 4):
        found = estimators.fit(FOUR, MaskLaw.of_size(4, k), counts[k - 1])
        assert found.converged.all()
    assert time.perf_counter() - start < 10


def test_errors_are_as_large_as_predicted():
    """n ‖θ̂ - θ*‖² against tr Γ for one mask, three, and all: within 6 standard errors."""
    masks, n, repeats = MaskLaw.of_size(4, 1), 5000, 200
    rng = TorchRng(5)
    tokens = FOUR.table.sample(n * repeats, rng)
    for m in (1, 3, None):
        drawn = None if m is None else masks.draw(tokens.repeat(m, 1), rng).reshape(m, -1).T
        shape = (repeats, n, 0 if m is None else m)
        counts = estimators.pair_counts(
            tokens.reshape(repeats, n, 4), masks, 2, None if drawn is None else drawn.reshape(shape)
        )
        error = n * (estimators.fit(FOUR, masks, counts).theta - FOUR.theta).square().sum(1)
        wanted = masking.asymptotic_covariance(FOUR, masks, masks_per_sample=m).trace()
        reach = 6 * float(error.std()) / math.sqrt(repeats)
        assert abs(float(error.mean() - wanted)) < reach, m


# ------------------------------------------------------------------ where there is no estimate


def test_a_spin_that_never_flips_has_no_estimate():
    counts = vector(0, 4)[None, None]
    for method in ("newton", "gradient"):
        found = estimators.fit(SPIN, WHOLE, counts, method=method, tolerance=1e-4)
        assert not found.exists.any()
        assert found.theta.isnan().all()
        assert torch.isfinite(found.loss).all()
    assert not estimators.determined(SPIN, WHOLE, counts[0])
    assert estimators.determined(SPIN, WHOLE, vector(1, 3)[None])


def test_what_was_not_seen_holds_the_estimate_in_place():
    """T = 0, 1, 2 on three tokens: a mean of 1 is inside although only token 1 was seen."""
    flat = Table(3, 1, torch.full((3,), 1 / 3, dtype=torch.float64).log())
    family = ExponentialFamily(flat, vector(0, 1, 2)[:, None])
    seen = {(0, 4, 0): True, (1, 0, 1): True, (0, 0, 4): False, (4, 0, 0): False}
    for counts, wanted in seen.items():
        assert estimators.determined(family, WHOLE, vector(*counts)[None]) == wanted
        assert bool(estimators.fit(family, WHOLE, vector(*counts)[None, None]).exists) == wanted
    without = Table(3, 1, vector(0.5, 0.5, 0).log())  # a token that cannot occur holds nothing
    family = ExponentialFamily(without, vector(0, 1, 2)[:, None])
    assert not estimators.determined(family, WHOLE, vector(0, 4, 0)[None])


def test_a_parameter_that_no_block_saw_has_no_estimate():
    """Only {0} was hidden: nothing is known of h_1."""
    pair, masks = IsingFamily(Ising.chain(2, 0.0)), MaskLaw.of_size(2, 1)
    counts = torch.stack([vector(3, 2, 4, 1), vector(0, 0, 0, 0)])
    found = estimators.fit(pair, masks, counts[None])
    assert not found.exists.any()
    assert not estimators.determined(pair, masks, counts)


@pytest.mark.parametrize("k", [1, 2])
def test_existence_against_a_search_of_directions(k):
    """Every pattern of seen pairs of two spins; separating directions lie on a small grid."""
    pair, masks = IsingFamily(Ising.chain(2, 0.0)), MaskLaw.of_size(2, k)
    grid = torch.tensor(list(product((-2.0, -1.0, 0.0, 1.0, 2.0), repeat=3)), dtype=torch.float64)
    values = grid[grid.abs().sum(1) > 0] @ pair.features.T  # v·T(x)
    contexts = [[(0, 2), (1, 3)], [(0, 1), (2, 3)]] if k == 1 else [[(0, 1, 2, 3)]]
    patterns = list(product((0.0, 1.0), repeat=4 * len(masks.blocks)))[1:]
    counts = torch.tensor(patterns, dtype=torch.float64).reshape(-1, len(masks.blocks), 4)
    found = estimators.fit(pair, masks, counts)
    for r, pattern in enumerate(counts.tolist()):
        bad = torch.ones(len(values), dtype=torch.bool)
        for m, groups in enumerate(contexts):
            for group in groups:
                top = values[:, list(group)].max(1).values
                for x in group:
                    if pattern[m][x]:
                        bad &= values[:, x] >= top
        assert bool(found.exists[r]) == (not bool(bad.any())), pattern
        assert bool(found.theta[r].isfinite().all()) == bool(found.exists[r])


def test_bad_input_is_a_sentence(unchecked_shapes):
    masks, tokens = MaskLaw.of_size(4, 1), torch.zeros((1, 3, 4), dtype=torch.long)
    counts = estimators.pair_counts(tokens, masks, 2)
    with pytest.raises(ValueError, match="must have the same length"):
        estimators.fit(FAMILIES["ising"], MaskLaw.of_size(4, 4), torch.ones(1, 1, 8).double())
    with refused("counts"):
        estimators.fit(FOUR, MaskLaw.of_size(4, 2), counts)
    with pytest.raises(ValueError, match="without samples"):
        estimators.fit(FOUR, masks, counts * 0)
    with pytest.raises(ValueError, match="'newton' or 'gradient'"):
        estimators.fit(FOUR, masks, counts, method="adam")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"numbers of blocks, 0\.\.3"):
        estimators.pair_counts(tokens, masks, 2, torch.full((1, 3, 1), 4))

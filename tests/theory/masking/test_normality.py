"""The normal limit of masked estimates: against binomial laws, loops, drawn fits and scipy."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from tests.support.refusals import refused

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.structures.ising import Ising
from triptych.theory.masking import estimators, normality
from triptych.theory.masking import information as masking
from triptych.theory.masking.families import ExponentialFamily, IsingFamily, TableFamily


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def spin(up):
    """One spin, T = ±1, with P(up)."""
    return ExponentialFamily(Table(2, 1, vector(1 - up, up).log()), vector(-1.0, 1.0)[:, None])


def ones(strength, length):
    blocks = [[i] for i in range(length)]
    return MaskLaw.looking(length, blocks, lambda tokens: strength * tokens.double())


PAIR = IsingFamily(Ising.chain(2, 0.4, 0.1))
CHAIN = IsingFamily(Ising.chain(3, 0.5, 0.1))


# ------------------------------------------------------------------ one parameter


def test_one_parameter_of_two_spins_by_hand():
    alone = normality.along(PAIR, vector(0, 0, 1))
    assert alone.features[:, 0].tolist() == [1, -1, -1, 1]
    torch.testing.assert_close(alone.table.log_probs, PAIR.table.log_probs)
    with refused("direction"):
        normality.along(PAIR, vector(1, 0))


def test_moments_of_a_spin_by_hand():
    at = vector(0.0, 0.3, -1.0)
    mu, sigma, rho = normality.slope_moments(spin(0.5), MaskLaw.of_size(1, 1), at)
    torch.testing.assert_close(mu, -at.tanh())
    torch.testing.assert_close(sigma, torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(rho, torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize(
    "masks", [MaskLaw.of_size(3, 1), MaskLaw.independent(3, 0.4), ones(1.5, 3)]
)
def test_moments_by_loops(masks):
    """ψ_t from the definition, for every pair of a sequence and a block."""
    alone, t = normality.along(CHAIN, vector(0.3, 0, 0, 1, -0.5, 0)), 0.7
    words, truth = CHAIN.table.sequences.tolist(), CHAIN.table.log_probs.exp().tolist()
    chance = masks.log_prob(CHAIN.table.sequences).exp().tolist()
    feature = alone.features[:, 0].tolist()
    law = alone.table_log_probs(vector(t)).exp().tolist()
    weights, slopes = [], []
    for (a, x), (m, block) in itertools.product(enumerate(words), enumerate(masks.blocks.tolist())):
        same = [
            b
            for b, y in enumerate(words)
            if all(h or i == j for h, i, j in zip(block, x, y, strict=True))
        ]
        total = sum(law[b] * chance[b][m] for b in same)
        inside = sum(law[b] * chance[b][m] * feature[b] for b in same) / total
        weights.append(truth[a] * chance[a][m])
        slopes.append(feature[a] - inside)
    mean = sum(w * s for w, s in zip(weights, slopes, strict=True))
    second = sum(w * (s - mean) ** 2 for w, s in zip(weights, slopes, strict=True))
    third = sum(w * abs(s - mean) ** 3 for w, s in zip(weights, slopes, strict=True))
    mu, sigma, rho = normality.slope_moments(alone, masks, vector(t, 0.0))
    assert float(mu[0]) == pytest.approx(mean)
    assert float(sigma[0]) == pytest.approx(math.sqrt(second))
    assert float(rho[0]) == pytest.approx(third)
    assert float(mu[1]) == pytest.approx(0.0, abs=1e-14)  # flat at the truth


def exact_distance(success, n, theta, gamma):
    """Of an estimate that is atanh(2 c/n - 1), for c successes of n."""
    c = np.arange(n + 1)
    with np.errstate(divide="ignore"):
        z = math.sqrt(n) * (np.arctanh(2 * c / n - 1) - theta)
    limit = stats.norm.cdf(z / math.sqrt(gamma))
    after = stats.binom.cdf(c, n, success)
    before = np.concatenate([[0.0], after[:-1]])
    inside = (c > 0) & (c < n)  # at infinity the limit is 0 and 1, and only one side counts
    ends = max(after[0], 1 - after[-2])
    gaps = np.maximum(np.abs(after - limit), np.abs(before - limit))
    return max(float(gaps[inside].max(initial=0.0)), float(ends))


@pytest.mark.parametrize("n", [1, 5, 30, 400, 10_000])
@pytest.mark.parametrize("up", [0.5, 0.75, 0.95])
def test_bounds_hold_the_exact_distance_of_a_spin(n, up):
    found = normality.normal_distance(spin(up), MaskLaw.of_size(1, 1), n)
    gamma = 1 / (4 * up * (1 - up))  # 1 / Var T
    exact = exact_distance(up, n, math.atanh(2 * up - 1), gamma)
    assert 0 <= found.low <= exact <= found.high


def test_worked_bound():
    """A fair spin, 10⁴ sequences: P(mean = 0) / 2 = 0.00399 is inside, 0.4748 / 100 above."""
    found = normality.normal_distance(spin(0.5), MaskLaw.of_size(1, 1), 10_000)
    assert found.low <= stats.binom.pmf(5000, 10_000, 0.5) / 2 <= found.high
    assert found.high == pytest.approx(0.4748 / 100 + 1 / 2**14, rel=0.01)


@pytest.mark.parametrize("n", [10, 300])
def test_a_coupling_seen_one_spin_at_a_time_is_a_binomial(n):
    """Without fields p(x_i | x_j) depends on whether they agree, whichever is hidden."""
    free = IsingFamily(Ising.chain(2, 0.4, 0.0))
    alone = normality.along(free, vector(0, 0, 1))
    agree = 1 / (1 + math.exp(-0.8))
    gamma = 1 / (4 * agree * (1 - agree))
    found = normality.normal_distance(alone, MaskLaw.of_size(2, 1), n)
    assert found.low <= exact_distance(agree, n, 0.4, gamma) <= found.high


@pytest.mark.parametrize("masks", [MaskLaw.of_size(3, 1), MaskLaw.of_size(3, 2), ones(1.0, 3)])
def test_bounds_hold_what_fits_of_drawn_data_show(masks):
    """The law of 4000 fits is within 0.052 of the true one, but for a chance of 1e-9."""
    alone, n, repeats = normality.along(CHAIN, vector(0, 1, 0, 1, 0, 0)), 60, 4000
    counts = normality.draw_counts(alone.table, masks, n, repeats, seed=1)
    fit = estimators.fit(alone, masks, counts)
    gamma = float(masking.asymptotic_covariance(alone, masks))
    errors = math.sqrt(n) * fit.theta[fit.exists][:, 0].numpy() / math.sqrt(gamma)
    missing = 1 - len(errors) / repeats
    seen = stats.kstest(errors, "norm").statistic
    slack = math.sqrt(math.log(2 / 1e-9) / (2 * repeats)) + missing
    found = normality.normal_distance(alone, masks, n)
    assert found.low - slack <= seen <= found.high + slack


def test_the_bound_falls_with_the_root_of_n():
    alone = normality.along(CHAIN, vector(0, 0, 0, 1, 0, 0))
    far, near = (
        normality.normal_distance(alone, MaskLaw.of_size(3, 1), n).high - 2.0**-14
        for n in (10**4, 10**6)
    )
    assert far / near == pytest.approx(10, rel=0.05)
    assert normality.normal_distance(alone, MaskLaw.of_size(3, 1), 10**12).high < 1e-4


@pytest.mark.parametrize("factor", [0.5, 0.99, 1.01, 2.0])
def test_a_wrong_limit_is_seen(monkeypatch, factor):
    """A per cent of the variance is 0.0012 of the distance, and no n mends it."""
    right = masking.asymptotic_covariance
    monkeypatch.setattr(normality, "asymptotic_covariance", lambda *given: factor * right(*given))
    alone = normality.along(CHAIN, vector(0, 0, 0, 1, 0, 0))
    found = normality.normal_distance(alone, MaskLaw.of_size(3, 1), 10**12)
    assert found.low > 1e-3


def test_bad_input_is_a_sentence():
    masks = MaskLaw.of_size(2, 1)
    with pytest.raises(ValueError, match="one parameter is needed, given 3"):
        normality.normal_distance(PAIR, masks, 10)
    alone = normality.along(PAIR, vector(0, 0, 1))
    with refused("n"):
        normality.normal_distance(alone, masks, 0)
    with refused("repeats"):
        normality.draw_counts(PAIR.table, masks, 10, 0, seed=0)


# ------------------------------------------------------------------ many parameters


def test_drawn_counts_are_multinomial():
    masks, n, repeats = ones(1.5, 2), 1000, 500
    counts = normality.draw_counts(PAIR.table, masks, n, repeats, seed=0)
    assert counts.shape == (repeats, 2, 4)
    assert counts.sum((1, 2)).tolist() == [n] * repeats
    joint = (PAIR.table.log_probs + masks.log_prob(PAIR.table.sequences).T).exp()
    spread = (joint * (1 - joint) / (n * repeats)).sqrt()
    assert ((counts.mean(0) / n - joint).abs() < 6.5 * spread).all()  # 8 cells: 1e-9 each
    again = normality.draw_counts(PAIR.table, masks, n, repeats, seed=0)
    assert torch.equal(counts, again)


def test_pairs_that_cannot_occur_are_never_drawn():
    holes = TableFamily(Table(2, 2, vector(1 / 2, 1 / 3, 0, 1 / 6).log()))
    counts = normality.draw_counts(holes.table, MaskLaw.of_size(2, 1), 100, 50, seed=0)
    assert counts[:, :, 2].sum() == 0


def test_distances_by_hand():
    """One error of 0: Φ is ½ there and the law jumps from 0 to 1; χ² has 0 there."""
    one = torch.ones(1, 1, dtype=torch.float64)
    assert normality.sampled_distances(0 * one, one).tolist() == [0.5, 1.0]
    missing = torch.cat([0 * one, torch.nan * one])
    assert normality.sampled_distances(missing, one).tolist() == [0.75, 1.0]
    assert normality.sampled_distances(torch.nan * one, one).tolist() == [1.0, 1.0]


def test_distances_are_those_of_scipy():
    generator = torch.Generator().manual_seed(0)
    errors = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    errors[:, 2] += 0.3 * errors[:, 0]
    gamma = torch.diag(vector(1.0, 2.0, 3.0))
    found = normality.sampled_distances(errors, gamma)
    white = (errors / gamma.diagonal().sqrt()).numpy()
    # eigenvectors have signs of their own: a distance along one is the same, a sum may be another
    wanted = [stats.kstest(column, "norm").statistic for column in white.T]
    assert found[:3].tolist() == pytest.approx(wanted)
    for at, (i, j) in enumerate(itertools.combinations(range(3), 2)):
        sums = [(white[:, i] + sign * white[:, j]) / math.sqrt(2) for sign in (1, -1)]
        either = [stats.kstest(column, "norm").statistic for column in sums]
        assert min(abs(float(found[3 + at]) - value) for value in either) < 1e-12
    length = stats.kstest((white**2).sum(1), stats.chi2(3).cdf).statistic
    assert float(found[6]) == pytest.approx(length)
    assert len(found) == 7


def test_dependence_is_seen_where_every_coordinate_is_normal():
    generator = torch.Generator().manual_seed(1)
    first = torch.randn(5000, generator=generator, dtype=torch.float64)
    second = 0.9 * first + math.sqrt(0.19) * torch.randn(
        5000, generator=generator, dtype=torch.float64
    )
    found = normality.sampled_distances(torch.stack([first, second], 1), torch.eye(2).double())
    assert found[:2].max() < 0.047  # √(log(4e9) / 10000): fails once in 1e9
    assert found[2:].min() > 0.05

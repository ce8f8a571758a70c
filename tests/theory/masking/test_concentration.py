"""Chances of empirical quantities: by hand, against simulation and other ways to the same."""

import itertools
import math

import numpy as np
import pytest
import torch

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.theory.masking import concentration as c
from triptych.theory.masking.information import block_log_conditionals

pytestmark = pytest.mark.numerical


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def example():
    """The law and the masks of Lemma 4.3.1, with (1, 1) where the source prints (0, 0) twice."""
    table = Table(2, 2, f64([1 / 2, 1 / 3, 1 / 6, 0.0]).log())
    first = f64([1 / 2, 1 / 3, 1 / 4, 1 / 2])
    law = MaskLaw.looking(2, [[0], [1]], lambda x: _logs(first, x))
    return table, law


def _logs(first, x):
    chosen = first[x @ torch.tensor([2, 1])]
    return torch.stack([chosen, 1 - chosen], 1).log()


def test_the_mean_over_the_mask_by_hand():
    """(13/30)(9/13) + (17/30)(9/17) = 3/5 for K = {1} and x = (0, 0)."""
    table, law = example()
    mixed, plain = c.mixed_conditional(table, law), c.plain_conditional(table, law)
    given = block_log_conditionals(table.log_probs, law, 2).exp()
    assert float(mixed[1, 0]) == pytest.approx(3 / 5)
    assert float(plain[1, 0]) == pytest.approx(3 / 5)
    assert float(given[1, 0]) == pytest.approx(9 / 17)
    torch.testing.assert_close(mixed, plain)


def test_divergences_by_hand():
    """Of a point mass: -log p(x_K | x_-K, K). Of (½, ½) against (¾, ¼): ½ log(4/3)."""
    table, law = example()
    logs = block_log_conditionals(table.log_probs, law, 2)
    point = c.divergences(logs, f64([1.0, 0, 0, 0]), table, law)
    torch.testing.assert_close(point[:, 0], -logs[:, 0])
    assert (point[0, [1, 3]] == 0).all()  # x_1 = 1 is not in the sample
    bit = Table(2, 1, f64([0.75, 0.25]).log())
    whole = MaskLaw.of_size(1, 1)
    even = c.divergences(bit.log_probs[None], f64([0.5, 0.5]), bit, whole)
    assert float(even[0, 0]) == pytest.approx(0.5 * math.log(4 / 3))


def test_multisets_and_their_chances():
    assert c.multisets(2, 2).tolist() == [[2, 0], [1, 1], [0, 2]]
    assert c.chances_of(c.multisets(2, 2), np.array([0.5, 0.5])) == pytest.approx([0.25, 0.5, 0.25])
    ways, probs = c.multisets(3, 4), np.array([0.5, 0.3, 0.2])
    strings = np.array(list(itertools.product(range(3), repeat=4)))
    counted = {tuple(row): 0.0 for row in ways}
    for string in strings:
        counted[tuple(np.bincount(string, minlength=3))] += probs[string].prod()
    np.testing.assert_allclose(c.chances_of(ways, probs), list(counted.values()))
    with pytest.raises(ValueError, match="multisets, over 20000"):
        c.multisets(30, 10)


def test_the_empirical_law_by_hand():
    """Two fair outcomes, n = 2: the distance is ½ with chance ½. The bound is ½ at δ = 1, and more
    at a smaller δ. Against binomials at n = 40."""
    half = np.array([0.5, 0.5])
    assert c.missed_by_empirical_law(half, 2, np.array([1.0, 0.9])) == pytest.approx([0.5, 0.0])
    delta, n = 0.25, 40
    bound = math.sqrt(8 / (16 * delta * n))
    heads = np.arange(n + 1)
    chances = np.array([math.comb(n, k) for k in heads]) / 2**n
    wanted = chances[np.abs(heads / n - 0.5) >= bound].sum()
    found = c.missed_by_empirical_law(half, n, np.array([delta]))
    assert found[0] == pytest.approx(wanted)
    assert 0 < wanted < delta


def test_masks_by_hand():
    """One sequence and one mask: ±½ times the jump. Two masks: ±½ with ¼ each, or 0."""
    one, half = np.array([1]), np.array([0.5])
    for jump in (1.0, -2.0):
        thresholds = abs(jump) * np.array([0.49, 0.51])
        found = c.missed_by_masks(one, 1, half, np.array([jump]), thresholds)
        assert found.tolist() == [1.0, 0.0]
        twice = c.missed_by_masks(one, 2, half, np.array([jump]), thresholds)
        assert twice.tolist() == [0.5, 0.0]
    nothing = c.missed_by_masks(one, 5, half, np.array([0.0]), np.array([0.0, 0.1]))
    assert nothing.tolist() == [1.0, 0.0]


def test_terms_of_opposite_sign_by_hand():
    """(B - 0.1)/2 - (B' - 0.1)/2 with chances 0.1: ±½ with 0.09 each, or 0. All sizes added, with
    0.01 it is (0.9 + 0.9)/2, with 0.18 (0.9 + 0.1)/2, else 0.1."""
    counts, chances, jumps = np.array([1, 1]), np.array([0.1, 0.1]), np.array([1.0, -1.0])
    found = c.missed_by_masks(counts, 1, chances, jumps, np.array([0.05, 0.45, 0.55]))
    assert found == pytest.approx([0.18, 0.18, 0.0])
    sizes = np.array([0.09, 0.45, 0.85, 0.95])
    added = c.missed_by_masks(counts, 1, chances, jumps, sizes, absolute=True)
    assert added == pytest.approx([1.0, 0.19, 0.01, 0.0])


def test_masks_against_drawn_ones():
    """A bound of a chance is at least the share among 200,000 draws, less 5 deviations."""
    counts, m = np.array([2, 1, 0, 1]), 7
    chances, jumps = np.array([0.3, 0.8, 0.5, 0.1]), np.array([1.0, -0.4, 3.0, 0.7])
    draw = np.random.default_rng(0)
    masks = draw.binomial(counts * m, chances, size=(200_000, 4))
    terms = jumps * (masks - counts * m * chances) / (4 * m)
    thresholds = np.array([0.02, 0.05, 0.1, 0.15])
    for absolute, sums in ((False, np.abs(terms.sum(1))), (True, np.abs(terms).sum(1))):
        bound = c.missed_by_masks(counts, m, chances, jumps, thresholds, absolute=absolute)
        drawn = (sums[:, None] >= thresholds).mean(0)
        assert (bound >= drawn - 5 * np.sqrt(drawn / 200_000) - 1e-4).all()
        wide = (sums[:, None] >= thresholds - 0.02).mean(0)
        assert (bound <= wide + 5 * np.sqrt(wide / 200_000) + 1e-4).all()


def test_the_printed_bounds_by_hand():
    bound, allowed = c.lemma_bound(0.5, 1.0, log_margin=1.0, length=1, vocab_size=2, n=2, m=16)
    assert (bound, allowed) == (pytest.approx(1.5), pytest.approx(0.25 + 2 * math.exp(-1)))
    found = c.corollary_bound(0.5, log_margin=1.0, length=1, vocab_size=2, n=1, m=16)
    assert found == pytest.approx(1 + math.sqrt(math.log(8) / 2))
    for length, vocab, n, m, delta in ((1, 2, 1, 16, 0.5), (3, 2, 4, 999, 0.1)):
        sizes = {"log_margin": 0.7, "length": length, "vocab_size": vocab, "n": n, "m": m}
        epsilon = math.sqrt(2.0 ** (length - 1) * vocab**length / (m * delta))
        t = 0.7 * math.sqrt(n * math.log(4 / delta) / 2)
        bound, allowed = c.lemma_bound(epsilon, t, **sizes)
        assert allowed == pytest.approx(delta)  # the ε of the corollary, 2^N below the printed one
        assert bound == pytest.approx(c.corollary_bound(delta, **sizes))


def test_jumps_need_two_blocks():
    losses = f64([[1.0, 2.0], [4.0, torch.inf]])
    assert c.mask_jumps(losses).tolist() == [3.0, -2.0]
    with pytest.raises(ValueError, match="2 blocks, not 3"):
        c.mask_jumps(torch.zeros(3, 2, dtype=torch.float64))

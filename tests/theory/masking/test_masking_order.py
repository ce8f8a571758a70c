"""Does hiding more lose less? With one mask of each sequence always, with all masks not."""

import time
from itertools import pairwise

import pytest
import torch

from triptych.core.mask_laws import MaskLaw
from triptych.core.table import Table
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.ising import Ising
from triptych.theory.masking import information as masking
from triptych.theory.masking.blocks.dynamics import BlockDynamics
from triptych.theory.masking.families import ExponentialFamily, HMMFamily, IsingFamily, TableFamily

pytestmark = pytest.mark.numerical

MODELS = {
    "weak": IsingFamily(Ising.clique_and_free(4, 4, 0.05, 0.0)),
    "peaky": IsingFamily(Ising.clique_and_free(4, 4, 0.3, 0.0)),
    "frustrated": IsingFamily(Ising.random(4, scale=1.0, seed=0)),
    "couplings": IsingFamily(Ising.clique_and_free(3, 3, 1.0, 1.0), fields=False),
    "table": TableFamily(Table.random(2, 3, seed=1)),
    "hmm": HMMFamily(HMM.random(2, 2, 3, seed=3), 4, free="emission"),
}


@pytest.mark.parametrize("family", MODELS.values(), ids=MODELS.keys())
def test_with_one_mask_more_is_better(family):
    gammas = [
        masking.asymptotic_covariance(family, MaskLaw.of_size(family.length, k))
        for k in range(1, family.length + 1)
    ]
    for fewer, more in pairwise(gammas):
        assert masking.psd_margin(fewer, more) > -1e-12
        assert float(fewer.trace()) > float(more.trace()) * (1 + 1e-6)


def everything(family, k):
    masks = MaskLaw.of_size(family.length, k)
    return masking.asymptotic_covariance(family, masks, masks_per_sample=None)


@pytest.mark.parametrize(("spins", "efficient"), [(3, 1), (4, 2), (5, 3)])
def test_all_masks_of_all_but_two_lose_nothing(spins, efficient):
    """E[S | x_-K] is a function of N - k spins: for N - k ≤ 2 it lies in the span of S."""
    family = IsingFamily(Ising.random(spins, scale=0.8, seed=0))
    best = torch.linalg.inv(masking.fisher(family))
    for k in range(1, spins + 1):
        excess = float((everything(family, k).trace() - best.trace()) / best.trace())
        assert (abs(excess) < 1e-9) == (k >= efficient), (k, excess)


def test_a_free_table_loses_nothing_with_all_masks():
    family = TableFamily(Table.random(2, 3, seed=1))
    best = torch.linalg.inv(masking.fisher(family))
    for k in (1, 2):
        torch.testing.assert_close(everything(family, k), best, rtol=1e-8, atol=1e-8)


def test_with_all_masks_more_can_be_worse():
    """Couplings of three spins in a field: some contrast of them is better seen with k = 1."""
    family = MODELS["couplings"]
    one, two, three = (everything(family, k) for k in (1, 2, 3))
    assert masking.psd_margin(one, two) == pytest.approx(-0.0236, abs=1e-4)
    assert masking.psd_margin(one, three) > -1e-12  # maximum likelihood is best, of course
    contrast = torch.linalg.eigh(one - two)[1][:, 0]
    assert contrast @ two @ contrast > contrast @ one @ contrast


def test_with_all_masks_more_can_be_worse_for_one_parameter():
    """T an eigenfunction of 1-Gibbs: k = 1 loses nothing, k = 2 a tenth."""
    table = Table.random(2, 3, seed=39)
    root = table.log_probs.exp().sqrt()
    step = BlockDynamics(table, MaskLaw.of_size(3, 1)).transition()
    symmetric = root[:, None] * step / root
    slow = torch.linalg.eigh(0.5 * (symmetric + symmetric.T))[1][:, -2] / root
    family = ExponentialFamily(table, slow[:, None])
    best = 1 / float(masking.fisher(family))
    assert float(everything(family, 1)) == pytest.approx(best)
    assert float(everything(family, 2)) == pytest.approx(1.1029 * best, rel=1e-4)


def test_eight_spins_take_seconds():
    family = IsingFamily(Ising.random(8, scale=0.3, seed=0))
    start = time.perf_counter()
    gammas = [masking.asymptotic_covariance(family, MaskLaw.of_size(8, k)) for k in range(1, 9)]
    assert time.perf_counter() - start < 30
    assert all(masking.psd_margin(a, b) > -1e-12 for a, b in pairwise(gammas))

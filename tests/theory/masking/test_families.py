"""Families around a truth: worked values, and scores against finite differences."""

import math

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.table import Table
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.ising import Ising
from triptych.theory.masking.families import (
    ExponentialFamily,
    Family,
    HMMFamily,
    IsingFamily,
    LogLinear,
    Subfamily,
    TableFamily,
    identifiable,
)

pytestmark = pytest.mark.numerical


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def close(found, wanted, **tolerance):
    wanted = wanted if isinstance(wanted, torch.Tensor) else vector(*wanted)
    torch.testing.assert_close(found, wanted.double(), **tolerance)


def bit():
    return Table(2, 1, vector(0.25, 0.75).log())


def holes():
    """Three tokens, two positions, two sequences that never occur."""
    weights = vector(1, 2, 0, 3, 1, 1, 0, 2, 5)
    return Table(3, 2, (weights / weights.sum()).log())


def sparse_hmm():
    return HMM(
        vector(0.5, 0.5),
        vector(0.75, 0.25, 0.0, 1.0).reshape(2, 2),
        vector(0.5, 0.5, 0.0, 0.25, 0.25, 0.5).reshape(2, 3),
        length=3,
    )


def features(count, d, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, d, generator=generator, dtype=torch.float64)


FAMILIES = {
    "ising": IsingFamily(Ising.random(3, scale=0.7, seed=0)),
    "couplings": IsingFamily(Ising.random(3, scale=0.7, seed=1), fields=False),
    "exponential": ExponentialFamily(Table.random(3, 2, seed=0), features(9, 4, 0)),
    "elsewhere": ExponentialFamily(holes(), features(9, 2, 1), at=vector(0.3, -1.0)),
    "table": TableFamily(Table.random(2, 3, seed=3)),
    "table with holes": TableFamily(holes()),
    "hmm": HMMFamily(HMM.random(2, 3, 4, seed=0), 3),
    "emissions": HMMFamily(HMM.random(2, 3, 4, seed=1), 3, free="emission"),
    "sparse hmm": HMMFamily(sparse_hmm(), 3),
    "slice": Subfamily(IsingFamily(Ising.random(3, scale=0.5, seed=2)), features(6, 2, 3)),
}
each = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())


@each
def test_the_protocol_and_the_truth(family):
    assert isinstance(family, Family)
    assert family.table.vocab_size == family.vocab_size
    assert family.table.length == family.length
    assert len(family.names) == len(family.theta) == len(set(family.names))
    close(family.table_log_probs(family.theta), family.table.log_probs)
    close(family.table_log_probs(family.theta + 0.3).exp().sum(), torch.tensor(1.0))


@each
def test_scores_are_derivatives_and_have_mean_zero(family):
    probs, scores = family.table.log_probs.exp(), family.scores()
    seen, step = probs > 0, 1e-5
    for i in range(len(family.theta)):
        move = torch.zeros_like(family.theta)
        move[i] = step
        above = family.table_log_probs(family.theta + move)[seen]
        below = family.table_log_probs(family.theta - move)[seen]
        close(scores[seen, i], (above - below) / (2 * step), atol=1e-8, rtol=1e-6)
    assert torch.isfinite(scores).all()
    close(probs @ scores, torch.zeros(len(family.theta)), atol=1e-14, rtol=0)


@each
def test_gradients_flow_to_theta(family):
    theta = family.theta.clone().requires_grad_()
    seen = family.table.log_probs > -math.inf
    family.table_log_probs(theta)[seen].square().sum().backward()
    assert theta.grad is not None
    assert torch.isfinite(theta.grad).all()


def test_ising_by_hand():
    free = IsingFamily(Ising.clique_and_free(2, 2, 0.0, 0.0))
    close(free.scores()[1], (-1, 1, -1))
    assert free.names == ["h_0", "h_1", "J_0,1"]
    family = IsingFamily(Ising.random(4, scale=1.0, seed=5))
    assert family.names[4:] == ["J_0,1", "J_0,2", "J_0,3", "J_1,2", "J_1,3", "J_2,3"]


@pytest.mark.parametrize("fields", [True, False])
def test_ising_is_the_structure_at_every_theta(fields):
    """Against the structure rebuilt from the same numbers, in the stated order."""
    ising = Ising.random(4, scale=0.8, seed=7)
    family = IsingFamily(ising, fields=fields)
    close(family.table.log_probs, Table.of(ising).log_probs)
    theta = features(len(family.theta), 1, 11)[:, 0]
    field = theta[:4] if fields else ising.field
    upper = torch.zeros(4, 4, dtype=torch.float64)
    upper[torch.triu_indices(4, 4, 1).unbind()] = theta[4:] if fields else theta
    moved = Table.of(Ising(upper + upper.T, field))
    close(family.table_log_probs(theta), moved.log_probs)
    assert len(family.theta) == (10 if fields else 6)


def test_one_bit_by_hand():
    tilted = ExponentialFamily(bit(), vector(0, 1)[:, None])
    close(
        tilted.table_log_probs(vector(2.0))[1].exp(), 3 * vector(2.0).exp()[0] / (1 + 3 * math.e**2)
    )
    close(tilted.scores()[:, 0], (-0.75, 0.25))
    free = TableFamily(bit())
    close(free.theta, (-math.log(3),))
    close(free.scores()[:, 0], (0.75, -0.25))
    assert free.names == ["0"]
    plain = LogLinear(2, 1, vector(0, 0), vector(0, 1)[:, None], vector(math.log(3)), ["x"])
    close(plain.table.log_probs.exp(), (0.25, 0.75))
    one = HMMFamily(HMM(vector(1.0), vector(1.0)[:, None], vector(0.25, 0.75)[None], 1), 1)
    close(one.theta, (-math.log(3),))
    close(one.scores()[:, 0], (0.75, -0.25))


def test_a_free_table_keeps_its_support():
    family = TableFamily(holes())
    assert len(family.theta) == 6
    assert family.names == ["00", "01", "10", "11", "12", "21"]
    moved = family.table_log_probs(torch.zeros(6, dtype=torch.float64)).exp()
    close(moved[[0, 1, 2, 6, 8]], (1 / 7, 1 / 7, 0, 0, 1 / 7))


def test_hmm_is_the_structure_at_every_theta():
    hmm = HMM.random(2, 3, 4, seed=4)
    family = HMMFamily(hmm, 3)
    close(family.table.log_probs, Table.of(hmm.with_length(3)).log_probs)
    assert family.names == ["pi_0", "A_0,0", "A_1,0", "W_0,0", "W_0,1", "W_1,0", "W_1,1"]
    theta = vector(0.3, -0.2, 1.0, 0.5, -0.5, 0.1, 2.0)

    def rows(*logits):
        return vector(*logits, 0.0).softmax(0)

    moved = HMM(
        rows(0.3),
        torch.stack([rows(-0.2), rows(1.0)]),
        torch.stack([rows(0.5, -0.5), rows(0.1, 2.0)]),
        3,
    )
    close(family.table_log_probs(theta), Table.of(moved).log_probs)


def test_zeros_of_an_hmm_stay_zero():
    family = HMMFamily(sparse_hmm(), 3)
    assert family.names == ["pi_0", "A_0,0", "W_0,0", "W_1,0", "W_1,1"]
    close(family.table.log_probs, Table.of(sparse_hmm()).log_probs)
    close(family.theta, (0.0, math.log(3), 0.0, math.log(0.5), math.log(0.5)))


def test_what_an_hmm_does_not_show_is_cut():
    """One token: its law has two degrees of freedom, the model five parameters."""
    hmm = HMM.random(2, 3, 1, seed=0)
    short = HMMFamily(hmm, 1)
    cut = identifiable(short)
    assert len(short.theta) == 7
    assert len(cut.theta) == 2
    assert cut.names == ["direction_0", "direction_1"]
    close(cut.table.log_probs, short.table.log_probs)
    regular = HMMFamily(hmm, 3, free="emission")
    assert identifiable(regular) is regular


def test_a_slice_moves_along_its_directions():
    whole = IsingFamily(Ising.chain(2, 0.4, 0.1))
    both = Subfamily(whole, vector(1, 1, 0)[:, None])
    close(both.table_log_probs(vector(0.2)), IsingFamily(Ising.chain(2, 0.4, 0.3)).table.log_probs)


def test_bad_input_is_a_sentence(unchecked_shapes):
    with refused("features"):
        ExponentialFamily(bit(), features(3, 2, 0))
    with refused("theta"):
        ExponentialFamily(bit(), features(2, 2, 0), at=vector(1.0))
    with pytest.raises(ValueError, match=r"features\[0, 0\] is nan"):
        ExponentialFamily(bit(), torch.full((2, 1), torch.nan, dtype=torch.float64))
    with pytest.raises(ValueError, match="'all' or 'emission'"):
        HMMFamily(HMM.random(2, 2, 2, seed=0), 2, free="some")  # type: ignore[arg-type]

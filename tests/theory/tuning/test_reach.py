import math

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.table import Table, all_sequences
from triptych.structures.hidden_markov.hmm import HMM
from triptych.theory.tuning.reach import information_at_distances, reach

pytestmark = pytest.mark.numerical


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def two_states(stays):
    half = f64([0.5, 0.5])
    return HMM(half, f64([[stays, 1 - stays], [1 - stays, stays]]), torch.eye(2).double(), 4)


def test_worked_values():
    """h(¼) = 0.5623 nats; two steps stay with probability ¾² + ¼² = 5/8."""
    found = information_at_distances(two_states(0.75), 2).tolist()
    entropy = [-(p * math.log(p) + (1 - p) * math.log(1 - p)) for p in (0.25, 0.375)]
    assert found == pytest.approx([math.log(2) - h for h in entropy])
    assert found[0] == pytest.approx(0.1308, abs=1e-4)
    assert information_at_distances(two_states(0.0), 5).tolist() == pytest.approx([math.log(2)] * 5)
    assert reach(two_states(0.0), 5) == pytest.approx(5 * math.log(2))


def test_nothing_is_shared_by_independent_tokens():
    assert reach(two_states(0.5), 10) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_enumeration_gives_the_same(seed):
    """Entropies of the pairs (x_1, x_{1+d}) in a table of all sequences of four tokens."""
    hmm = HMM.random(3, 3, 4, seed=seed)
    chain = HMM(hmm.stationary(), hmm.transition, hmm.emission, 4)
    sequences, probs = all_sequences(3, 4), Table.of(chain).log_prob(all_sequences(3, 4)).exp()

    def entropy(*columns):
        names = sum(sequences[:, c] * 3**i for i, c in enumerate(columns))
        law = torch.zeros(3 ** len(columns)).double().index_add(0, names, probs)
        return float(-(law * law.log()).sum())

    found = information_at_distances(hmm, 3).tolist()
    wanted = [entropy(0) + entropy(d) - entropy(0, d) for d in (1, 2, 3)]
    assert found == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_tokens_share_no_more_than_their_states(seed):
    """Data processing; and the states of a chain share less the further apart they are."""
    hmm = HMM.random(4, 3, 4, seed=seed)
    states = HMM(hmm.initial, hmm.transition, torch.eye(4).double(), 4)
    tokens, hidden = (information_at_distances(one, 8) for one in (hmm, states))
    assert (tokens <= hidden + 1e-12).all()
    assert (hidden.diff() <= 1e-12).all()


def test_distances_are_counted_from_one():
    with refused("up_to"):
        information_at_distances(two_states(0.5), 0)

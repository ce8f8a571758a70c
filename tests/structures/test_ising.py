import math

import numpy as np
import pytest
import torch
from tests.support.refusals import refused

from triptych.core.randomness import TorchRng
from triptych.core.table import Table, all_sequences
from triptych.structures.ising import MAX_PULL, Ising

pytestmark = pytest.mark.numerical


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_worked_values():
    """Two coupled spins agree with probability sigmoid(2J); a spin in a field is up with
    sigmoid(2h)."""
    agree = Ising.chain(2, 0.7).log_prob(torch.tensor([[0, 0], [1, 1]])).exp().sum()
    assert agree.item() == pytest.approx(sigmoid(1.4))
    up = Ising.chain(1, 0.0, field=0.3).log_prob(torch.tensor([[1]])).exp()
    assert up.item() == pytest.approx(sigmoid(0.6))


def test_the_clique_counts_every_pair_once():
    """Flipping one spin of an aligned clique of 4 changes 3 pairs: it costs 2·3·J = 3 at J = ½,
    as the proof of Proposition 4.3.3 has it; counting pairs twice would cost 6."""
    ising = Ising.clique_and_free(5, 4, 0.5, 0.0)
    aligned, flipped = torch.tensor([[1, 1, 1, 1, 0]]), torch.tensor([[0, 1, 1, 1, 0]])
    assert (ising.log_weight(aligned) - ising.log_weight(flipped)).item() == pytest.approx(3.0)
    # The single-site odds of the proof of Proposition 4.1.5: 2 h_j + 2 J Σ x_i.
    assert ising.site_log_odds(aligned)[0].tolist() == pytest.approx([3.0] * 4 + [0.0])


def test_the_energy_by_the_definition():
    ising = Ising.random(4, scale=1.0, seed=1)
    for tokens in all_sequences(2, 4):
        spins = [2 * int(x) - 1 for x in tokens]
        energy = sum(float(ising.field[i]) * spins[i] for i in range(4))
        energy += sum(
            float(ising.coupling[i, j]) * spins[i] * spins[j] for i in range(4) for j in range(i)
        )
        assert ising.log_weight(tokens[None]).item() == pytest.approx(energy)


@pytest.mark.parametrize(("spins", "coupling"), [(2, 0.3), (9, 1.1), (20, 0.4)])
def test_the_partition_function_of_a_chain(spins, coupling):
    """Without a field, Z = 2 (2 cosh J)^(N-1): an independent formula, up to 20 spins."""
    ising = Ising.chain(spins, coupling)
    wanted = math.log(2) + (spins - 1) * math.log(2 * math.cosh(coupling))
    assert ising.log_partition == pytest.approx(wanted, rel=1e-12)


def test_twenty_spins_are_sampled_and_averaged():
    ising = Ising.random(20, scale=0.3, seed=0)
    tokens = ising.sample(4000, TorchRng(0))
    mean = (2 * tokens - 1).double().mean(0)
    assert (mean - ising.magnetisation()).abs().max() < 6 / math.sqrt(4000)
    assert torch.isfinite(ising.log_prob(tokens)).all()


@pytest.mark.parametrize("block", [[0], [2, 0], [1, 2, 3], [0, 1, 2, 3]])
def test_block_conditionals_against_the_table(block):
    ising = Ising.random(4, scale=1.0, seed=2)
    table = Table.of(ising)
    tokens = all_sequences(2, 4)
    got = ising.block_log_probs(tokens, block)
    states = all_sequences(2, len(block))
    for row, x in enumerate(tokens):
        filled = x.repeat(len(states), 1)
        filled[:, block] = states
        joint = table.log_prob(filled)
        torch.testing.assert_close(got[row], joint - joint.logsumexp(0))


def test_single_sites_at_any_size():
    """On an 8 x 8 grid a corner has 2 neighbours, an edge 3, an inner site 4."""
    ising = Ising.grid(8, 8, 0.5, field=0.1)
    assert (ising.coupling > 0).sum(1).reshape(8, 8)[[0, 0, 3], [0, 3, 3]].tolist() == [2, 3, 4]
    tokens = torch.ones((3, 64), dtype=torch.long)
    odds = ising.site_log_odds(tokens)
    assert odds[0, 0].item() == pytest.approx(2 * (0.1 + 2 * 0.5))
    hidden = torch.zeros_like(tokens, dtype=torch.bool)
    hidden[:, 9] = True
    log_probs = ising.masked_log_probs(tokens, hidden)[:, 9]
    torch.testing.assert_close(log_probs[:, 1] - log_probs[:, 0], odds[:, 9])
    assert ising.block_log_probs(tokens, [0, 1, 8, 9]).shape == (3, 16)


@pytest.mark.parametrize("coupling", [1e15, 1e18, 1e200, 1e308, -1e15])
def test_energies_that_floats_cannot_tell_apart_are_refused(coupling):
    """Probabilities summed to 0.974 at 1e15 and to 2 at 1e18, and were nan at 1e308."""
    with refused("coupling"):
        Ising.chain(3, coupling, field=0.1)


@pytest.mark.parametrize("coupling", [100.0, 3000.0, MAX_PULL / 2 - 1])
def test_large_energies_within_the_limit_keep_their_digits(coupling):
    """All spins up or all down: p(up) / p(down) = exp(2 · 3 · field), whatever the coupling is."""
    ising = Ising.chain(3, coupling, field=0.1)
    log_probs = ising.log_prob(all_sequences(2, 3))
    assert log_probs.logsumexp(0).abs().item() < 5e-9
    assert (log_probs[-1] - log_probs[0]).item() == pytest.approx(0.6, abs=5e-9)
    assert log_probs[-1].exp().item() == pytest.approx(sigmoid(0.6), abs=5e-9)


def test_the_limit_is_on_the_pull_at_one_spin():
    """A spin with many neighbours is pulled by all of them together."""
    assert Ising.clique_and_free(5, 5, MAX_PULL / 5, 0.0).length == 5
    with refused("coupling"):
        Ising.clique_and_free(5, 5, 0.4 * MAX_PULL, 0.0)


@pytest.mark.usefixtures("unchecked_shapes")
def test_numpy_numbers_and_lists():
    wanted = Ising.chain(3, 0.5, field=0.25)
    for number in (np.float32, np.float64, torch.tensor):
        given = Ising.chain(np.int64(3), number(0.5), number(0.25))
        assert torch.equal(given.coupling, wanted.coupling)
        assert torch.equal(given.field, wanted.field)
    lists = Ising([[0, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0]], [0.25, 0.25, 0.25])
    assert torch.equal(lists.coupling, wanted.coupling)
    tokens = [[0, 1, 1]]
    assert torch.equal(lists.log_prob(tokens), wanted.log_prob(torch.tensor(tokens)))
    free = Ising.clique_and_free(3, 2, 0.5, np.array([0.1, 0.2, 0.3]))
    assert free.field.tolist() == [0.1, 0.2, 0.3]
    for bad in ("a", None, math.nan, [0.5]):
        with refused("coupling"):
            Ising.chain(3, bad)
    for bad in (-1, 0, 2.5, 2.0):
        with refused("length"):
            Ising.chain(bad, 0.5)


def test_bad_input_is_explained():
    zeros = torch.zeros((2, 2), dtype=torch.float64)
    field = torch.zeros(2, dtype=torch.float64)
    upper = zeros.clone()
    upper[0, 1] = 1.0
    with refused("coupling"):
        Ising(upper, field)
    with refused("coupling"):
        Ising(torch.eye(2).double(), field)
    with pytest.raises(ValueError, match="is nan"):
        Ising(zeros, field * float("nan"))
    with pytest.raises(ValueError, match="a clique of 3 among 2 spins"):
        Ising.clique_and_free(2, 3, 1.0, 0.0)
    with refused("field"):
        Ising.clique_and_free(2, 2, 1.0, [1.0])
    large = Ising.chain(21, 0.1)
    with refused("spins"):
        large.log_prob(torch.zeros((1, 21), dtype=torch.long))
    with refused("block"):
        large.block_log_probs(torch.zeros((1, 21), dtype=torch.long), [0, 0])

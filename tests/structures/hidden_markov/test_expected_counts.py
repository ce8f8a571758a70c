"""Expected counts: torch and C against log-space, and all of them against every path of states."""

import itertools
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych.core import compiled
from triptych.structures.hidden_markov.expected_counts import chain_counts, log_counts
from triptych.structures.hidden_markov.hmm import HMM

needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
pytestmark = [pytest.mark.numerical, needs_compiler]
WAYS = ("log-space", "torch", "C")


@pytest.fixture(autouse=True)
def _turned_off_at_the_end():
    yield
    compiled.use_compiled(False)


def chain(initial, transition, emission, length):
    parts = (torch.tensor(p, dtype=torch.float64) for p in (initial, transition, emission))
    return HMM(*parts, length)


def counted(way, *given):
    compiled.use_compiled(way == "C")
    return (log_counts if way == "log-space" else chain_counts)(*given)


def enumerated(initial, transition, table, symbols, weights):
    """By the definition: every path of states of every row."""
    states = len(initial)
    evidence = torch.zeros(len(symbols), dtype=torch.float64)
    first, pairs = torch.zeros_like(initial), torch.zeros_like(transition)
    emitted = torch.zeros_like(table)
    for b, row in enumerate(symbols.tolist()):
        row = [x for x in row if x < len(table)]
        paths = {}
        for path in itertools.product(range(states), repeat=len(row)):
            mass = initial[path[0]] * table[row[0], path[0]]
            for before, after, x in zip(path, path[1:], row[1:], strict=False):
                mass = mass * transition[before, after] * table[x, after]
            paths[path] = float(mass)
        evidence[b] = sum(paths.values())
        if not evidence[b]:
            continue
        for path, mass in paths.items():
            share = weights[b] * mass / evidence[b]
            first[path[0]] += share
            for before, after in itertools.pairwise(path):
                pairs[before, after] += share
            for x, state in zip(row, path, strict=True):
                emitted[x, state] += share
    return evidence.log(), first, pairs, emitted


def data(hmm, rows, seed, hidden=0.3):
    """Symbols of samples, some hidden, rows of different length, with weights."""
    generator = torch.Generator().manual_seed(seed)
    tokens = hmm.sample(rows, seed)
    unseen = torch.rand(tokens.shape, generator=generator) < hidden
    lengths = torch.randint(1, hmm.length + 1, (rows,), generator=generator)
    symbols = tokens.masked_fill(unseen, hmm.vocab_size)
    symbols[torch.arange(hmm.length) >= lengths[:, None]] = hmm.vocab_size + 1
    weights = torch.rand(rows, generator=generator, dtype=torch.float64)
    return hmm.initial, hmm.transition, hmm._evidence_table(), symbols, weights


def close(found, wanted, atol=1e-12):
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=atol, rtol=1e-11)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("states", [1, 2, 3])
def test_every_path_of_states(way, states):
    given = data(HMM.random(states, 3, 5, seed=states), 7, seed=states)
    close(counted(way, *given), enumerated(*given))


@pytest.mark.parametrize("way", WAYS)
def test_zeros_and_rows_that_cannot_be(way):
    """An impossible row has log-probability -inf and is in no count."""
    hmm = chain(
        [1.0, 0.0, 0.0], [[0, 0.5, 0.5], [0, 0, 1], [1, 0, 0]], [[1, 0], [0, 1], [0.25, 0.75]], 5
    )
    symbols = torch.tensor([[0, 1, 0, 0, 2], [1, 1, 1, 1, 1], [2, 2, 2, 3, 3], [0, 0, 0, 0, 1]])
    weights = torch.tensor([1.0, 1.0, 0.5, 2.0], dtype=torch.float64)
    given = (hmm.initial, hmm.transition, hmm._evidence_table(), symbols, weights)
    wanted = enumerated(*given)
    assert torch.isneginf(wanted[0][1])
    close(counted(way, *given), wanted)


@pytest.mark.parametrize("way", WAYS)
def test_worked_value(way):
    one = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    table = torch.tensor([[1.0, 1 / 3]], dtype=torch.float64)
    found = counted(
        way, one[0], torch.eye(2).double(), table, torch.tensor([[0]]), torch.ones(1).double()
    )
    assert found.log_evidence.exp().item() == pytest.approx(0.5)
    assert found.first.tolist() == pytest.approx([0.5, 0.5])
    assert found.emitted.tolist() == [pytest.approx([0.5, 0.5])]
    assert not found.pairs.any()


@pytest.mark.parametrize("states", [4, 5, 8, 11, 13, 29, 64])
def test_torch_and_c_agree_with_log_space(states):
    """Every panel width, rows that fill a block and that do not, long rows that are rescaled."""
    for rows in (1, 5, 70):
        given = data(HMM.random(states, 3, 37, seed=states), rows, seed=rows)
        wanted = counted("log-space", *given)
        for way in ("torch", "C"):
            close(counted(way, *given), wanted, atol=1e-11)


@pytest.mark.parametrize("way", ["torch", "C"])
@pytest.mark.parametrize("tiny", [1e-30, 1e-120, 1e-200])
def test_rows_near_underflow_are_counted_in_log_space(way, tiny):
    chain = torch.tensor([[1 - tiny, tiny], [tiny, 1 - tiny]], dtype=torch.float64)
    table = torch.tensor([[1.0, tiny], [tiny, 1.0], [1.0, 1.0]], dtype=torch.float64)
    symbols = torch.tensor([[0, 1] * 20, [0] * 40, [1, 1, 2, 3] * 10]).clone()
    symbols[2, 3:] = 3
    initial = torch.tensor([1 - tiny, tiny], dtype=torch.float64)
    given = (initial, chain, table, symbols, torch.tensor([1.0, 2.0, 0.5]).double())
    close(counted(way, *given), counted("log-space", *given))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 10**6))
def test_counts_add_up(states, length, seed):
    """Σ first is the weight of all rows; Σ pairs and Σ emitted that of their positions."""
    initial, transition, table, symbols, weights = data(
        HMM.random(states, 3, length, seed=0), 9, seed
    )
    for way in WAYS:
        found = counted(way, initial, transition, table, symbols, weights)
        inside = (symbols < len(table)).sum(1).double()
        assert float(found.first.sum()) == pytest.approx(float(weights.sum()))
        assert float(found.pairs.sum()) == pytest.approx(float((weights * (inside - 1)).sum()))
        assert float(found.emitted.sum()) == pytest.approx(float((weights * inside).sum()))


def test_the_messages_of_posteriors_are_those_of_counts():
    """Σ_t of the posterior is the count of a state."""
    hmm = HMM.random(4, 3, 9, seed=0)
    tokens = hmm.sample(20, 0)
    ones = torch.ones(20, dtype=torch.float64)
    found = chain_counts(hmm.initial, hmm.transition, hmm._evidence_table(), tokens, ones)
    posterior = hmm.log_posterior(tokens).exp()
    torch.testing.assert_close(found.emitted.sum(0), posterior.sum((0, 1)))
    torch.testing.assert_close(found.log_evidence, hmm.log_prob(tokens))


def test_a_symbol_that_is_none_is_refused_in_c():
    hmm = HMM.random(2, 2, 3, seed=0)
    given = (hmm.initial, hmm.transition, hmm._evidence_table())
    compiled.use_compiled()
    for bad in (-1, 4):
        with pytest.raises(IndexError):
            chain_counts(*given, torch.full((1, 3), bad), torch.ones(1).double())

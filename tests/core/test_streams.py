"""Streams of choices that depend on a seed and a row alone."""

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.estimates import tv_tolerance
from triptych.core.protocols import Rng
from triptych.core.streams import RowStreams, hashed_uniform, mixed

LAW = torch.tensor([0.5, 0.0, 0.25, 0.25, 0.0], dtype=torch.float64)
FAILURE = 1e-9  # probability that a fixed seed fails a test below, were the numbers random


def laws(rows):
    return LAW.log().expand(rows, -1)


def frequencies(draws, outcomes):
    return torch.bincount(draws.reshape(-1), minlength=outcomes).double() / draws.numel()


def splitmix64(x):
    """The published algorithm, on Python's integers."""
    full = 2**64 - 1
    x = (x + 0x9E3779B97F4A7C15) & full
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & full
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & full
    return x ^ (x >> 31)


def test_mixing_is_splitmix64():
    """Its first outputs from seed 0 are published: e220a8397b1dcdaf, 6e789e6aa1b965f4."""
    assert splitmix64(0) == 0xE220A8397B1DCDAF
    assert splitmix64(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4
    given = [0, 1, -1, 2**63 - 1, -(2**63), 123456789, -987654321]
    got = [x % 2**64 for x in mixed(torch.tensor(given)).tolist()]
    assert got == [splitmix64(x % 2**64) for x in given]


@pytest.mark.parametrize("along", ["rows", "turns"])
def test_draws_follow_the_law_over_rows_and_over_turns(along):
    n = 20_000
    if along == "rows":
        drawn = RowStreams(0, torch.arange(n)).categorical(laws(n))
    else:
        rng = RowStreams(0, torch.tensor([5]))
        drawn = rng.of(torch.zeros(n, dtype=torch.long)).categorical(laws(n))
    found = frequencies(drawn, 5)
    assert (found[LAW == 0] == 0).all()
    assert 0.5 * (found - LAW).abs().sum() < tv_tolerance(n, 5, failure=FAILURE)


def test_neighbouring_rows_seeds_and_turns_are_independent():
    """Pairs of fair bits of neighbours are uniform on the four pairs."""
    n = 20_000
    fair = torch.full((n, 2), 0.5, dtype=torch.float64).log()
    rng = RowStreams(3, torch.arange(n))
    first, second = rng.categorical(fair), rng.categorical(fair)
    other = RowStreams(4, torch.arange(n)).categorical(fair)
    for a, b in ((first[:-1], first[1:]), (first, second), (first, other)):
        found = frequencies(2 * a + b, 4)
        assert 0.5 * (found - 0.25).abs().sum() < tv_tolerance(len(a), 4, failure=FAILURE)


def test_a_row_draws_the_same_in_any_batch():
    among = RowStreams(7, torch.arange(10))
    alone = RowStreams(7, torch.tensor([6]))
    few = RowStreams(7, torch.tensor([9, 6, 2]))
    for turn in range(20):
        # other rows draw more often, which must not matter
        if turn % 3 == 0:
            among.of(torch.tensor([0, 3])).categorical(laws(2))
        every = among.categorical(laws(10))
        some = few.categorical(laws(3))
        assert some.tolist() == every[[9, 6, 2]].tolist()
        assert alone.categorical(laws(1)).tolist() == [every[6].item()]


def test_a_row_named_twice_draws_twice():

    once = RowStreams(1, torch.arange(3))
    rows = torch.tensor([2, 0, 2, 2, 1])
    twice = RowStreams(1, torch.arange(3))
    for _ in range(20):
        got = once.of(rows).categorical(laws(5)).tolist()
        row2 = [int(twice.of(torch.tensor([2])).categorical(laws(1))) for _ in range(3)]
        row0 = int(twice.of(torch.tensor([0])).categorical(laws(1)))
        row1 = int(twice.of(torch.tensor([1])).categorical(laws(1)))
        assert got == [row2[0], row0, row2[1], row2[2], row1]


def test_tables_with_rows_and_no_rows_at_all():
    table = torch.eye(3, dtype=torch.float64).log()
    rng = RowStreams(0, torch.arange(4))
    assert isinstance(rng, Rng)
    assert rng.categorical(table, torch.tensor([2, 0, 1, 2])).tolist() == [2, 0, 1, 2]
    some = rng.of(torch.tensor([3, 1]))
    assert some.categorical(table, torch.tensor([1, 2])).tolist() == [1, 2]
    assert rng.of(torch.tensor([], dtype=torch.long)).categorical(laws(0)).tolist() == []


@pytest.mark.usefixtures("unchecked_shapes")
def test_bad_calls_are_sentences():
    rng = RowStreams(0, torch.arange(3))
    with refused("log_probs"):
        rng.categorical(laws(2))
    with refused("log_probs"):
        rng.of(torch.tensor([0])).categorical(laws(2))
    with refused("log_probs"):
        rng.categorical(laws(3) + 1)
    with refused("log_probs"):
        rng.categorical(laws(3) * torch.nan)


def test_hashed_noise_is_uniform_fixed_and_of_the_whole_prefix():
    n = 20_000
    prefix = torch.arange(n)[:, None] // torch.tensor([10_000, 1000, 100, 10, 1]) % 10
    noise = hashed_uniform(0, prefix)
    assert ((noise >= 0) & (noise < 1)).all()
    found = frequencies((noise * 16).long(), 16)
    assert 0.5 * (found - 1 / 16).abs().sum() < tv_tolerance(n, 16, failure=FAILURE)
    assert torch.equal(noise, hashed_uniform(0, prefix))
    assert torch.equal(noise[37:38], hashed_uniform(0, prefix[37:38]))
    assert len(noise.unique()) == n  # 2^-53 n² / 2 is 2e-8
    for other in (hashed_uniform(1, prefix), hashed_uniform(0, prefix.flip(1)[:, :4])):
        assert (other != noise).all()
    nothing = hashed_uniform(0, torch.zeros(2, 0, dtype=torch.long))
    assert nothing[0] == nothing[1]
    zeros = [hashed_uniform(0, torch.zeros(1, t, dtype=torch.long)).item() for t in range(6)]
    assert len(set(zeros)) == 6

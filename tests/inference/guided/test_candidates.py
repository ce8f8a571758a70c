"""What best of n chose among, and what the particles were: by hand, and against the result."""

import math

import pytest
import torch
from tests.support.toy_guided import FirstDraws, Noisy, standing_at

from triptych.core.decoders import RecomputingDecoder
from triptych.core.streams import RowStreams
from triptych.core.table import Table
from triptych.inference.guided import best_of_n, particles
from triptych.inference.guided.costs import Budget
from triptych.structures.uniform import Uniform

PROMPTS = [[], [0, 1], [2]]


class Ones:
    """V = 1 + the number of ones."""

    def log_value(self, prefix):
        return (1.0 + (prefix == 1).sum(-1)).double().log()


def rows_of(several, row):
    pairs = zip(several.tokens[row].tolist(), several.lengths[row].tolist(), strict=True)
    return [tuple(x[:t]) for x, t in pairs]


def test_candidates_by_hand():
    """Two fair bits, three candidates: the first tokens 0 1 1, then 1 1 0."""
    result = best_of_n.sample(
        RecomputingDecoder(Uniform(2, 2), 1),
        Ones(),
        length=2,
        n=3,
        rng=FirstDraws(0, 1, 1, 1, 1, 0),
    )
    assert rows_of(result.info.candidates, 0) == [(0, 1), (1, 1), (1, 0)]
    assert result.info.candidates.log_values.exp().tolist()[0] == pytest.approx([2, 3, 2])
    assert result.completions() == [(1, 1)]


def test_the_kept_one_is_the_first_of_largest_value():
    lm = Table.random(3, 5, seed=0)
    result = best_of_n.sample(
        standing_at(lm, *PROMPTS), Noisy(), length=5, n=6, end_token=2, rng=RowStreams(0, [0, 1, 2])
    )
    every = result.info.candidates
    for row in range(len(PROMPTS)):
        best = int(every.log_values[row].argmax())
        assert rows_of(every, row)[best] == tuple(
            result.tokens[row, : int(result.lengths[row])].tolist()
        )
        assert every.log_values[row, best] == result.info.log_value[row]
        for string in rows_of(every, row):
            assert list(string[: len(PROMPTS[row])]) == PROMPTS[row]


def test_a_row_that_stopped_has_no_values():
    lm = Table.random(3, 5, seed=0)
    result = best_of_n.sample(
        standing_at(lm, [], [0, 1, 0, 1]),
        Noisy(),
        length=5,
        n=2,
        budget=Budget(tokens=4),
        rng=0,
    )
    assert result.complete.tolist() == [False, True]
    assert result.info.candidates.log_values[0].tolist() == [-math.inf] * 2
    assert result.info.candidates.log_values[1].isfinite().all()


def test_particles_by_hand():
    """One fair bit, the particles 0 and 1 with V = 1 and 2: weights 1 and 2, evidence 3/2."""
    result = particles.sample(
        RecomputingDecoder(Uniform(2, 1), 1), Ones(), length=1, n=2, rng=FirstDraws(0, 1, 1)
    )
    every = result.info.particles
    assert rows_of(every, 0) == [(0,), (1,)]
    assert every.log_weights.exp().tolist()[0] == pytest.approx([1, 2])
    assert result.info.log_normaliser.exp().tolist() == pytest.approx([1.5])


@pytest.mark.parametrize("ess", [0.0, 0.5, 1.0])
def test_the_drawn_particle_is_one_of_them(ess):
    lm = Table.random(3, 5, seed=0)
    result = particles.sample(
        standing_at(lm, *PROMPTS), Noisy(), length=5, n=4, ess=ess, end_token=2, rng=1
    )
    every = result.info.particles
    mean = every.log_weights.logsumexp(-1) - math.log(4)
    torch.testing.assert_close(mean, result.info.log_normaliser)
    for row in range(len(PROMPTS)):
        drawn = tuple(result.tokens[row, : int(result.lengths[row])].tolist())
        weights = dict.fromkeys(rows_of(every, row), -math.inf)
        for string, weight in zip(
            rows_of(every, row), every.log_weights[row].tolist(), strict=True
        ):
            weights[string] = max(weights[string], weight)
        assert weights[drawn] > -math.inf

"""Schedules: worked values, sums, and what is no schedule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.core.validation import UserError
from triptych.diffusion.schedules import WORDS, counts, levels, rounds
from triptych.inference.chains.parallel import even_schedule


def test_worked_values():
    assert levels("linear", 4) == [0, 0.25, 0.5, 0.75, 1]
    assert counts("linear", 8, 3) == [2, 3, 3]
    assert counts("larger first", 8, 3) == [3, 3, 2]
    assert counts("cosine", 8, 3) == [1, 3, 4]
    assert counts("2+3+3", 8, 99) == [2, 3, 3]
    assert levels("2+2+4", 99) == [0, 0.25, 0.5, 1]
    assert counts("0.5,1", 5, 99) == [2, 3]
    assert rounds("0.5,1", 99) == 2


@given(st.sampled_from(WORDS), st.integers(0, 200), st.integers(1, 50))
def test_every_position_is_revealed_once(word, positions, steps):
    shares = counts(word, positions, steps)
    assert sum(shares) == positions
    assert min(shares) >= 0
    assert len(shares) == steps == rounds(word, steps)
    alphas = levels(word, steps)
    assert alphas[0] == 0
    assert alphas[-1] == 1
    assert alphas == sorted(alphas)


@given(st.integers(1, 100), st.integers(1, 20))
def test_linear_is_the_even_schedule(positions, steps):
    if steps <= positions:
        assert counts("linear", positions, steps) == even_schedule(positions, steps)


@pytest.mark.parametrize("text", ["", "often", "0.5", "0.5,0.4,1", "0.2,2", "1+x", "0+0", "-1+2"])
def test_what_is_no_schedule_is_refused(text):
    with pytest.raises(UserError, match="schedule"):
        levels(text, 3)


def test_counts_must_fit():
    with pytest.raises(UserError, match="reveals 5"):
        counts("2+3", 4, 2)

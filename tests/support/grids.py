"""Cases of which some are in `make test`; the others are slow."""

import pytest


def pairs(first, second):
    """Parameters (a, b) for all a of `first` and b of `second`; those off the diagonal are slow.

    The diagonal goes round the shorter list, so that it has every a and every b.
    """
    first, second = list(first), list(second)
    turn = min(len(first), len(second))
    return [
        pytest.param(a, b, marks=[] if i % turn == j % turn else [pytest.mark.slow])
        for i, a in enumerate(first)
        for j, b in enumerate(second)
    ]


def some(count, values):
    """Parameters of which the first `count` are quick; the others are slow."""
    return [
        pytest.param(value, marks=[] if i < count else [pytest.mark.slow])
        for i, value in enumerate(values)
    ]


def named_pairs(first, second):
    """The pairs of two dictionaries' values, with the names of both as their id."""
    return [
        pytest.param(first[a], second[b], marks=marks, id=f"{a}-{b}")
        for (a, b), marks, _ in pairs(first, second)
    ]

"""Pairs of cases: some of them in `make test`, with every case of both; the others are slow."""

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

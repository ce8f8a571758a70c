"""The pictures as data: what they show is so."""

import pytest

from triptych.lab.traps.pictures import different_patterns, forgetting, on_white, same_attention


def test_patterns_are_laws_on_the_past():
    for heatmap in different_patterns().panels:
        for number, row in enumerate(heatmap.values):
            assert sum(row) == pytest.approx(1.0, abs=0.001)
            assert max(row[number + 1 :], default=0.0) == 0.0
    stack, _, start, _ = different_patterns().panels
    assert stack.values[4][2] == pytest.approx(0.99, abs=0.02)  # "[[[]" is left at the second "["
    assert start.values[-1][0] > 0.9


def test_each_network_needs_its_own_head():
    first, second = same_attention().panels[-1].series
    assert first.y[0] == second.y[0] == 1.0
    assert first.y[2] == second.y[1] == 1.0
    assert max(first.y[1], second.y[2]) < 0.5


def test_only_the_balanced_network_remembers():
    directions, errors = forgetting().panels
    leaky, exact = (series.y for series in directions.series)
    assert leaky[-1] < 1e-3
    assert min(exact) > 0.5
    leaky, exact = (series.y for series in errors.series)
    assert leaky[-1] == pytest.approx(0.5**0.5 / 2)  # half of √2 (1 - q)
    assert max(exact) == 0.0


def test_a_white_ground_by_hand():
    svg = '<svg width="100%" viewBox="0 0 100.0 50.0"><title>t</title><g/></svg>'
    assert on_white(svg) == (
        '<svg width="116" viewBox="-8 -8 116.0 66.0"><title>t</title>'
        '<rect x="-8" y="-8" width="100%" height="100%" fill="#ffffff"/><g/></svg>'
    )

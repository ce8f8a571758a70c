"""The pictures as data: what they show is so."""

import pytest

from triptych.lab.traps.pictures import (
    different_patterns,
    forgetting,
    same_attention,
    write_pictures,
)


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


def test_pictures_are_written_on_white(tmp_path):
    files = write_pictures(tmp_path / "new")
    assert [file.name for file in files] == [
        "trap-different-patterns.svg",
        "trap-same-attention.svg",
        "trap-forgetting.svg",
    ]
    assert all("#ffffff" in file.read_text() for file in files)

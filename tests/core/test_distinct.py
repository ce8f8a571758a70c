"""Distinct rows, by hand and against numpy."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from triptych.core.distinct import distinct_rows

SRC = Path(__file__).parents[2] / "src" / "triptych"


def test_three_rows_by_hand():
    found = distinct_rows(torch.tensor([[3, 1], [0, 2], [3, 1]]))
    assert found.rows.tolist() == [[0, 2], [3, 1]]
    assert found.group.tolist() == [1, 0, 1]
    assert found.first.tolist() == [1, 0]


@pytest.mark.parametrize("dtype", [torch.long, torch.bool])
@pytest.mark.parametrize("shape", [(0, 2), (1, 1), (40, 3), (200, 5)])
def test_it_is_what_numpy_finds(shape: tuple[int, int], dtype: torch.dtype):
    rows = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    found = distinct_rows(rows)
    theirs, first, group = np.unique(rows.numpy(), axis=0, return_index=True, return_inverse=True)
    assert found.rows.dtype == dtype
    assert np.array_equal(found.rows.numpy(), theirs)
    assert np.array_equal(found.first.numpy(), first)
    assert np.array_equal(found.group.numpy(), group.reshape(-1))
    assert torch.equal(found.rows[found.group], rows)


def test_no_other_code_asks_a_gpu_for_distinct_rows():
    """Theory and studies of exact things stay on the CPU and may ask torch."""
    asks = re.compile(r"\.unique\(dim=")
    rooms = ("core", "structures", "models", "inference", "verifiers", "guidance", "training")
    found = {
        file.relative_to(SRC).as_posix()
        for room in rooms
        for file in (SRC / room).rglob("*.py")
        if asks.search(file.read_text("utf-8"))
    }
    assert found == {"core/distinct.py"}

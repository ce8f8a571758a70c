import pytest
import torch

pytest.importorskip("hmmlearn", reason="hmmlearn, the peer of this benchmark, is not installed")

from benchmarks import hmm, timing
from benchmarks.timing import Seconds, compare
from triptych.core import compiled
from triptych.core.scalars import UserError


def test_a_row_without_a_compiler_says_why(monkeypatch):
    def refused(wanted: bool) -> None:
        if wanted:
            raise UserError("no C compiler was found")

    monkeypatch.setattr(timing, "use_compiled", refused)
    row = timing.with_programs(True, lambda compiled: {"what": "measured"})
    assert row["not_run"] == "no C compiler was found"
    assert timing.with_programs(False, lambda compiled: {"compiled": compiled}) == {
        "compiled": False
    }


def test_a_row_without_dynamax_says_so(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "dynamax.hidden_markov_model", None)
    row = hmm.posteriors_dynamax(10, False)
    assert row["peer"] == "dynamax"
    assert row["not_run"].endswith("pip install dynamax")
    assert not compiled.is_used()


def test_their_time_is_scaled(monkeypatch):
    """Ours takes 2 s in every turn; theirs 3 s for a quarter of the work."""
    monkeypatch.setattr("benchmarks.timing.measured", lambda program: program() or SPENT.pop())
    spent = [Seconds(3.0, 4.0), *[Seconds(2.0, 2.0)] * 3] * 2
    SPENT[:] = spent[::-1]
    found = compare(lambda: None, lambda: None, turns=2, scale=4.0)
    assert (found.ours, found.theirs, found.ratio) == (2.0, 12.0, 6.0)
    assert (found.wall_theirs, found.wall_ratio) == (16.0, 8.0)
    assert torch.get_num_threads() == 1


SPENT: list[Seconds] = []

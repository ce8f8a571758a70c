"""The time left of a run, for programs that follow it."""

import json
import os
from contextlib import contextmanager

import pytest
from tests.support.command_line import OWN_STUDY

from triptych.lab.cli.options import EngineName, ScaleName
from triptych.lab.cli.running import RunOptions, _run_all
from triptych.lab.running.announced_time import EVERY_S, FILE, announced, announced_seconds
from triptych.lab.running.plan import Plan
from triptych.lab.running.selection import choose_studies
from triptych.lab.running.store import Store
from triptych.lab.running.time_left import Expected, TimeLeft
from triptych.lab.serving.live import Live
from triptych.studies.api.study import Scale


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_what_has_gone_by_is_taken_off(tmp_path):
    clock = Clock()
    with announced(tmp_path, clock) as announce:
        assert announced_seconds(tmp_path, clock) is None
        announce(90.0)
        clock.now += 30
        assert announced_seconds(tmp_path, clock) == 60
        clock.now += 100
        assert announced_seconds(tmp_path, clock) == 0, "late, never negative"
        announce(None)
        assert announced_seconds(tmp_path, clock) is None, "nobody knows"
    assert list(tmp_path.iterdir()) == []


def test_it_is_noted_once_a_second(tmp_path):
    clock = Clock()
    with announced(tmp_path, clock) as announce:
        announce(90.0)
        clock.now += EVERY_S / 2
        announce(5.0)
        assert json.loads((tmp_path / FILE).read_text())["seconds"] == 90
        clock.now += EVERY_S / 2
        announce(5.0)
        assert json.loads((tmp_path / FILE).read_text())["seconds"] == 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"pid": 1, "at": "a", "seconds": 3}',
        '{"pid": 2147483646, "at": 0, "seconds": 9}',
    ],
)
def test_a_broken_note_or_that_of_a_killed_run_is_not_believed(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    assert announced_seconds(tmp_path) is None


def test_another_run_and_a_full_disk(tmp_path):
    (tmp_path / FILE).write_text("of another run")
    with announced(tmp_path):
        pass
    assert (tmp_path / FILE).read_text() == "of another run"
    with announced(tmp_path / "missing") as announce:
        announce(1.0)  # cannot be written, and stops nothing


def test_the_estimate_of_the_progress_bar_is_announced():
    """Two workers, 4 units of 10 s: 20 s, then with one unit done 20 s less a bit."""
    said = []
    left = TimeLeft([Expected("a", 4, 40.0)], Clock(), said.append)
    left.begin("a", 4, 2)
    assert said == [pytest.approx(20.0)]
    left.started("unit 0")
    left.ended("unit 0", 10.0)
    assert said[-1] == left.seconds()
    assert len(said) == 3


def test_a_run_leaves_no_note_and_serve_says_the_time(tmp_path, monkeypatch):
    seen = []

    @contextmanager
    def spy(folder):
        with announced(folder) as announce:

            def noting(seconds):
                announce(seconds)
                seen.append(json.loads((folder / FILE).read_text())["pid"])

            yield noting

    monkeypatch.setattr("triptych.lab.running.announced_time.announced", spy)
    file, folder = tmp_path / "mine.py", tmp_path / "runs"
    file.write_text(OWN_STUDY)
    options = RunOptions(
        ScaleName.smoke, None, "cpu", EngineName.local, None, 0, None, fresh=False, keep=False
    )
    with Store.open(folder) as store:
        chosen = choose_studies([str(file)])
        plans = {each.study.name: Plan.of(each.study, Scale.SMOKE) for each in chosen}
        _run_all(chosen, plans, store, options, "ask")
        progress = store.progress()
    assert set(seen) == {os.getpid()}
    assert not (folder / FILE).exists()
    live = Live(folder)
    monkeypatch.setattr(live, "_verdicts", lambda study: [])
    assert live.state()["left"] is None, "no run is going on"
    monkeypatch.setattr("triptych.lab.serving.live.announced_seconds", lambda _: 200.0)
    monkeypatch.setattr("triptych.lab.serving.live._run_is_alive", lambda _: True)
    busy = [one._replace(running=["a"]) for one in progress]
    monkeypatch.setattr(live, "_progress", lambda: busy)
    assert live.state()["left"] == "3 min 20 s"

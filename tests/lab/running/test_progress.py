"""What a person sees while a study runs."""

import io
import re

from tests.support import toy_studies

from triptych.lab.running.progress import Bar, Lines, Quiet, duration, progress_on
from triptych.lab.running.runner import run_study
from triptych.studies.api.study import Scale, unit_text

SMOKE = Scale.SMOKE


def test_plain_lines_when_nobody_watches(store):
    stream = io.StringIO()
    show = progress_on(stream)
    assert isinstance(show, Lines)
    assert isinstance(progress_on(stream, quiet=True), Quiet)
    run_study(toy_studies.STUDY, SMOKE, store=store, workers=0, progress=show)
    first, *lines = stream.getvalue().splitlines()
    assert first == "toy/plain: 6 units to run"
    assert len(lines) == 6
    assert lines[0].startswith("toy/plain: [1/6] number 0, seed 0: ")
    assert lines[0].endswith(" s, done")
    stream.truncate(0)
    show.ended(unit_text({"x": 1}, 2), 3.0, "Traceback\nValueError: no")
    assert "x=1, seed=2: 3.0 s, FAILED: ValueError: no" in stream.getvalue()


def test_a_bar_on_a_terminal(store):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    show = progress_on(stream)
    assert isinstance(show, Bar)
    show.begin("toy/[plain]", 2, 1, 1)
    show.ended("unit", 1.0, None)
    show.ended("[unit]", 1.0, "ValueError: [no]")
    show.end()
    assert "toy/[plain]" in stream.getvalue()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert "3/3 (1 failed)" in plain
    assert "failed [unit]: ValueError: [no]" in plain
    run_study(toy_studies.STUDY, SMOKE, store=store, workers=0, progress=show)


def test_durations_for_people():
    assert [duration(s) for s in (0.0213, 1.25, 59.0, 200.0, 7500.0)] == [
        "0.021 s",
        "1.2 s",
        "59 s",
        "3 min 20 s",
        "2 h 5 min",
    ]

"""What a person sees while a study runs."""

import io
import re

from tests.support import toy_studies

from triptych.lab.running.plan import Plan
from triptych.lab.running.progress import Bar, Lines, Quiet, duration, last_line, progress_on
from triptych.lab.running.runner import run_study
from triptych.lab.running.time_left import Expected, TimeLeft
from triptych.studies.api.study import Scale, unit_text

SMOKE = Scale.SMOKE


def test_plain_lines_when_nobody_watches(store):
    stream = io.StringIO()
    show = progress_on(stream)
    assert isinstance(show, Lines)
    assert isinstance(progress_on(stream, quiet=True), Quiet)
    run_study(Plan.of(toy_studies.STUDY, SMOKE), store=store, workers=0, progress=show)
    first, *lines = stream.getvalue().splitlines()
    assert first == "toy/plain: 6 units to run"
    assert len(lines) == 6
    assert lines[0].startswith("toy/plain: [1/6] number 0, seed 0: ")
    assert lines[0].endswith(" s, done")
    stream.truncate(0)
    show.ended(unit_text({"x": 1}, 2), 3.0, "Traceback\nValueError: no")
    assert "x=1, seed=2: 3.0 s, FAILED: ValueError: no" in stream.getvalue()


def test_a_bar_on_a_terminal(store):
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
    run_study(Plan.of(toy_studies.STUDY, SMOKE), store=store, workers=0, progress=show)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def plain(stream):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())


def test_lines_say_how_long_the_whole_run_takes():
    stream = io.StringIO()
    with progress_on(
        stream, time_left=TimeLeft([Expected("a", 2, 20.0), Expected("b", 1, 40.0)])
    ) as show:
        show.begin("a", 2, 0, 1)
        for unit in ("x", "y"):
            show.started(unit)
            show.ended(unit, 10.0, None)
        show.end()
        show.say("HOLDS a.claim")
        show.begin("b", 1, 0, 1)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "a: 2 units to run; the whole run: about 1 min 0 s left"
    assert lines[3:] == ["HOLDS a.claim", "b: 1 unit to run; the whole run: about 40 s left"]


def test_one_bar_for_a_whole_run():
    stream = Terminal()
    with progress_on(
        stream, time_left=TimeLeft([Expected("a", 1, 10.0), Expected("b", 1, 30.0)])
    ) as show:
        show.begin("a", 1, 0, 1)
        bar = show._bar
        show.started("x")
        show.ended("x", 10.0, None)
        show.end()
        show.say("HOLDS [a].claim")
        show.begin("b", 1, 0, 1)
        assert show._bar is bar
        show.end()
    assert show._bar is None
    text = plain(stream)
    assert "HOLDS [a].claim" in text
    assert "about 40 s left" in text
    assert "b 0/1" in text


def test_durations_for_people():
    assert [duration(s) for s in (0.0213, 1.25, 59.0, 200.0, 7500.0)] == [
        "0.021 s",
        "1.2 s",
        "59 s",
        "3 min 20 s",
        "2 h 5 min",
    ]


def test_an_error_is_what_it_says_and_not_its_advice():
    way = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n    ~^^\n'
    assert last_line(f"{way}MemoryError: full\nBuy more.\n  It is cheap.") == "MemoryError: full"
    chained = f"{way}ValueError: a\n\nDuring handling of the above ...\n\n{way}KeyError: 'b'\n"
    assert last_line(chained) == "KeyError: 'b'"
    assert last_line("the worker was lost") == "the worker was lost"
    assert last_line(" \n") == "no message"

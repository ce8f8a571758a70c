"""What is new since the run before."""

import json

from triptych.lab.results.changes import FILE, Change, changes, compare, remember_verdicts
from triptych.lab.results.ledger import Entry
from triptych.lab.results.ranking import Judged


def judged(**status):
    return [
        Judged(Entry(name, "theorem", f"Title of {name}", ""), said, (), None)
        for name, said in status.items()
    ]


def test_two_runs_are_compared(tmp_path):
    first = judged(a="holds", b="not run yet", c="undecided")
    assert changes(tmp_path, first) is None
    remember_verdicts(tmp_path, first)
    assert changes(tmp_path, first) is None  # there was no run before this one
    second = judged(a="fails", b="holds", c="undecided", d="undecided")
    remember_verdicts(tmp_path, second)
    assert changes(tmp_path, second) == [
        Change("b", "Title of b", "not run yet", "holds"),
        Change("a", "Title of a", "holds", "fails"),
        Change("d", "Title of d", "not run yet", "undecided"),
    ]
    remember_verdicts(tmp_path, second)
    assert changes(tmp_path, second) == []


def test_what_is_not_ours_is_passed_over(tmp_path):
    for content in ("", "[1]", "{", json.dumps({"now": {}})):
        (tmp_path / FILE).write_text(content)
        assert changes(tmp_path, judged(a="holds")) is None
    assert changes(None, judged(a="holds")) is None
    assert compare({}, judged(a="not run yet")) == []

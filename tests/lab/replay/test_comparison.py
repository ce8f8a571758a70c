"""Two algorithms side by side: their costs, and a page that has both replays."""

import html
import re

from tests.support.command_line import run

from triptych.inference.guided.algorithm import algorithms
from triptych.lab.cli.replay import _shared_out
from triptych.lab.replay import demonstrations
from triptych.lab.replay.comparison import Side, cost_lines, write_comparison
from triptych.lab.replay.page import render_trace


def side(name):
    """Eight fair bits, of which only zeros are right."""
    demo = demonstrations.demonstration("zeros")
    record = algorithms()[name]
    verifier = demo.value if record.soft else demo.verifier
    result = demonstrations.generate(record(), demo, verifier)
    texts = [demo.text(result.tokens[0].tolist())]
    return Side(record.title, result, texts, demo.correct(result), render_trace(result))


def test_costs_by_hand():
    plain, guided = cost_lines([side("ancestral"), side("tokenwise")])
    assert plain[3:] == (8, 0, 8, 0)  # a question for each bit, and none to the verifier
    assert guided.text == "0" * 8
    assert guided.correct
    assert guided.written - guided.erased == 8
    assert guided.verifier == guided.written  # every token is asked about


def test_the_page_has_both_replays_and_escapes_them(tmp_path):
    sides = [side("ancestral"), side("tokenwise")]
    path = write_comparison(sides, tmp_path / "both.html", title="<b>one</b> & two")
    page = path.read_text()
    frames = [html.unescape(text) for text in re.findall(r'srcdoc="([^"]*)"', page)]
    assert frames == [one.page for one in sides]
    assert "<script" not in re.sub(r'srcdoc="[^"]*"', "", page)
    assert "<b>one</b>" not in page
    assert not re.search(r'(src|href)="(https?:)?//', page)


def test_an_option_goes_to_the_algorithms_that_have_it():
    known = algorithms()
    both = [known["backtracking"], known["rejection"]]
    assert _shared_out(["quota=4", "attempts=9"], both) == [["quota=4"], ["attempts=9"]]
    assert _shared_out(["speed=1"], both) == [["speed=1"], []]
    assert _shared_out(["quota=4"], both[:1] * 2) == [["quota=4"], ["quota=4"]]


def test_the_command_compares(tmp_path):
    out = tmp_path / "both.html"
    words = ["replay", "ancestral", "--against", "tokenwise", "--task", "zeros", "--out", str(out)]
    done = run(*words)
    assert done.exit_code == 0
    titles = [algorithms()[name].title for name in ("ancestral", "tokenwise")]
    assert all(f"{title}:\n" in done.stdout for title in titles)
    assert out.read_text().count("<iframe") == 2
    assert run(*words, "--set", "speed=1").exit_code == 2
    refused = run("replay", "refinement", "--against", "vgb")
    assert (refused.exit_code, "--against" in refused.stderr) == (2, True)

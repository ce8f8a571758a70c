"""Two algorithms side by side: their costs, and a page that has both replays."""

import json
import re

import pytest
from tests.support.browser import CHROMIUM, Browser, walk
from tests.support.command_line import run
from tests.support.refusals import refused

from triptych.inference.guided.algorithm import algorithms
from triptych.lab.cli.replay import _shared_out
from triptych.lab.replay import demonstrations
from triptych.lab.replay.comparison import Side, cost_lines, write_comparison
from triptych.lab.replay.page import trace_data


def side(name):
    """Eight fair bits, of which only zeros are right."""
    demo = demonstrations.demonstration("zeros")
    record = algorithms()[name]
    verifier = demo.value if record.soft else demo.verifier
    result = demonstrations.generate(record(), demo, verifier)
    texts = [demo.text(result.tokens[0].tolist())]
    return Side(record.title, result, texts, demo.correct(result))


def test_costs_by_hand():
    plain, guided = cost_lines([side("ancestral"), side("tokenwise")])
    assert plain[3:] == (8, 0, 8, 0)  # a question for each bit, and none to the verifier
    assert guided.text == "0" * 8
    assert guided.correct
    assert guided.written - guided.erased == 8
    assert guided.verifier == guided.written  # every token is asked about


def test_the_page_has_both_replays_and_escapes_them(tmp_path):
    sides = [side("ancestral"), side("tokenwise")._replace(settings="<b>few</b> & more")]
    path = write_comparison(sides, tmp_path / "both.html", title="<b>one</b> & two")
    page = path.read_text()
    data = json.loads(re.search(r'id="trace-data">(.*?)</script>', page, re.S)[1])
    assert [each["rows"] for each in data["sides"]] == [
        trace_data(one.result, correct=one.correct)["rows"] for one in sides
    ]
    assert page.count('id="play"') == 1  # one player for both
    assert page.count('id="tree') == page.count('id="tree-title') * 2 == 4
    assert "<b>" not in re.sub(r"<script.*?</script>|<b id=.*?</b>", "", page, flags=re.S)
    assert not re.search(r'(src|href)="(https?:)?//', page)
    more = demonstrations.demonstration("zeros")
    two_rows = demonstrations.generate("ancestral", more, more.verifier, rows=2)
    with refused("sides"):
        write_comparison([sides[0], sides[1]._replace(result=two_rows)], path, title="t")


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
    assert "<iframe" not in out.read_text()
    assert run(*words, "--set", "speed=1").exit_code == 2
    refused = run("replay", "refinement", "--against", "vgb")
    assert (refused.exit_code, "--against" in refused.stderr) == (2, True)


NUMBERS = """['generator-calls', 'verifier-calls', 'generator-calls-2', 'verifier-calls-2']
  .map(id => Number(document.getElementById(id).textContent))"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_one_player_moves_both_by_step_and_by_cost(tmp_path):
    """By cost each side has asked at most so much, and its next step would have asked more."""
    sides = [side("tokenwise"), side("vgb")]
    path = write_comparison(sides, tmp_path / "both.html", title="two")
    counts = []
    for one in sides:
        steps = [(0, 0)]
        for event in trace_data(one.result)["rows"][0]["events"]:
            steps.append((event[3], event[4]))
        counts.append(steps)
    with Browser(tmp_path / "profile") as page:
        page.open(path.as_uri() + "#step=5")
        assert page.value("location.hash") == "#step=5"
        assert page.value(NUMBERS) == [*counts[0][5], *_nth(page, 5)]
        page.press("ArrowRight")
        assert page.value("document.getElementById('step-number').textContent") == "6"
        assert page.value("document.getElementById('happened').textContent").startswith("Step 6")
        assert page.value("document.getElementById('happened-2').textContent").startswith("Step 6")
        page.value("document.querySelector('[name=by][value=cost]').click()")
        for budget in (0, 3, 9, 20):
            page.value(f"location.hash = '#cost={budget}'")
            page.wait(f"Number(document.getElementById('step-number').textContent) <= {budget}")
            numbers = page.value(NUMBERS)
            for (model, verifier), steps in zip((numbers[:2], numbers[2:]), counts, strict=True):
                best = max(sum(each) for each in steps if sum(each) <= budget)
                assert model + verifier == best
        page.press("End")
        assert page.value(NUMBERS) == [*counts[0][-1], *counts[1][-1]]
        stops = walk(page)
        assert [stop for stop in stops if not stop["name"]] == []
    for width in (390, 1280, 1920):
        with Browser(tmp_path / f"profile-{width}", width=width) as page:
            page.open(path.as_uri())
            assert page.value("document.documentElement.scrollWidth") <= width


def _nth(page, step):
    """What the second side's own script says after so many of its steps."""
    return page.value(
        f"(() => {{ const side = makeSide(JSON.parse(document.getElementById('trace-data')"
        f".textContent).sides[1], '-2', () => 0); side.open(0); side.goTo({step});"
        "return ['generator-calls-2', 'verifier-calls-2']"
        ".map(id => Number(document.getElementById(id).textContent)); })()"
    )

"""The pages in Chromium: their scripts ask the engine and show what it answers."""

import re
import subprocess
import threading

import pytest
from tests.support.browser import CHROMIUM, Browser, walk

from triptych.lab.serving.server import Server
from triptych.lab.serving.site import Site

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here"),
]


@pytest.fixture
def server(tmp_path):
    with Server(Site(tmp_path)) as opened:
        thread = threading.Thread(target=opened.serve_forever, args=(0.01,))
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


def loaded(server, path):
    """The page after its script has run."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--virtual-time-budget=8000", server.address + path]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.parametrize(
    ("path", "said", "parts"),
    [
        ("", "Nothing was run into this folder yet", r'<ul class="studies"'),
        ("hidden-tokens", "2 tokens are hidden", r'class="bars guess"'),
        ("blocks", "With single spins the gap is 0.0216", r"<polyline"),
        ("verifier-error", "The winner is VGB", r"<polyline"),
        ("replay", "Tokenwise rejection with backtracking", r"<iframe"),
    ],
)
def test_a_page_shows_what_the_engine_answers(server, path, said, parts):
    page = loaded(server, path)
    text = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert said in text
    assert re.search(parts, text)
    assert re.search(r'id="problem"[^>]* hidden', text)


@pytest.mark.parametrize("path", ["", "hidden-tokens", "blocks", "verifier-error"])
def test_the_keyboard_reaches_every_control(server, path, tmp_path):
    """The skip link, the pages, the theme and every control, each with a ring and a name."""
    with Browser(tmp_path / "profile") as page:
        page.open(server.address + path)
        controls = "main input, main select, main button"
        if path:
            page.wait(f"document.querySelectorAll('{controls}').length > 0")
        stops = walk(page)
        assert stops[0]["text"] == "Skip to the content"
        assert [stop for stop in stops if not stop["name"]] == []
        tags = [stop["tag"] for stop in stops]
        reached = sum(tags.count(tag) for tag in ("INPUT", "SELECT", "BUTTON")) - 1  # the theme
        assert reached == page.value(f"document.querySelectorAll('{controls}').length")
        page.value("document.activeElement.blur(), window.scrollTo(0, 0)")
        page.press("Tab")
        page.press("Enter")
        assert page.value("document.activeElement.id") == "content"


def test_a_slider_moves_with_the_arrows(server, tmp_path):
    with Browser(tmp_path / "profile") as page:
        page.open(server.address + "blocks")
        page.wait("document.querySelectorAll('polyline').length > 0")
        before = page.value("document.getElementById('coupling').value")
        page.value("document.getElementById('coupling').focus()")
        page.press("ArrowRight")
        assert page.value("document.getElementById('coupling').value") != before
        assert page.focused["ring"]


def test_replays_in_frames_let_the_focus_go(server, tmp_path):
    """Tab goes through both frames and comes out behind them."""
    with Browser(tmp_path / "profile") as page:
        page.open(server.address + "replay")
        page.wait("document.querySelectorAll('iframe').length === 2")
        for k in range(2):  # frames load when they come into sight
            page.value(f"document.querySelectorAll('iframe')[{k}].scrollIntoView()")
            page.wait(f"frames[{k}].document.getElementById('step-count')?.textContent > '0'")
        page.value("window.scrollTo(0, 0)")
        seen = []
        for _ in range(400):
            page.press("Tab")
            seen.append(page.value("document.activeElement.tagName"))
            if "IFRAME" in seen and seen[-1] != "IFRAME":
                break
        assert seen.count("IFRAME") > 10
        assert seen[-1] == "BODY"


def test_every_bar_has_its_number(server, tmp_path):
    """In per cent, of what its title says; one that is neither 0 nor 1 does not look like it."""
    with Browser(tmp_path / "profile") as page:
        page.open(server.address + "hidden-tokens")
        page.wait("document.querySelectorAll('.bars i').length > 0")
        bars = page.value(
            "[...document.querySelectorAll('.bars i')]"
            ".map(b => [b.title, b.firstChild.textContent])"
        )
        assert len(bars) > 20
        for title, shown in bars:
            share = 100 * float(title.split(": ")[1])
            assert abs(float(shown.strip("<>")) - share) <= (1 if shown[0] in "<>" else 0.51)
        assert (
            page.value("percent(0.001) + percent(0.999) + percent(1) + percent(0)") == "<1>991000"
        )
        tops = (
            "[...document.querySelectorAll('.bars i u')].map(u => u.getBoundingClientRect().height)"
        )
        assert min(page.value(tops)) >= 10


def test_the_controls_of_the_replay_stand_in_one_row(server, tmp_path):
    with Browser(tmp_path / "profile", width=1280) as page:
        page.open(server.address + "replay")
        bottoms = page.value(
            "[...document.querySelectorAll('.control')].map(c => c.getBoundingClientRect().bottom)"
        )
        assert len(bottoms) == 5
        assert max(bottoms) - min(bottoms) < 1

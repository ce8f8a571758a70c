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
        ("", "Nothing was run into this folder yet", r'<a href="verifier-error"'),
        ("run", "Nothing was run into this folder yet", r'<ul class="studies"'),
        ("hidden-tokens", "2 tokens are hidden", r'class="bars guess"'),
        ("blocks", "With single spins the gap is 0.0216", r"<polyline"),
        ("verifier-error", "The winner is VGB", r"<polyline"),
        ("replay", "Replay two algorithms", r'<iframe src="replay-page'),
    ],
)
def test_a_page_shows_what_the_engine_answers(server, path, said, parts):
    page = loaded(server, path)
    text = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert said in text
    assert re.search(parts, text)
    assert re.search(r'id="problem"[^>]* hidden', text)


@pytest.mark.parametrize("path", ["", "run", "hidden-tokens", "blocks", "verifier-error"])
def test_the_keyboard_reaches_every_control(server, path, tmp_path):
    """The skip link, the pages, the theme and every control, each with a ring and a name."""
    with Browser(tmp_path / "profile") as page:
        page.open(server.address + path)
        controls = "main input, main select, main button"
        if path not in ("", "run"):
            page.wait(f"document.querySelectorAll('{controls}').length > 0")
        stops = walk(page)
        assert stops[0]["text"] == "Skip to the content"
        assert [stop for stop in stops if not stop["name"]] == []
        tags = [stop["tag"] for stop in stops]
        reached = (
            sum(tags.count(tag) for tag in ("INPUT", "SELECT", "BUTTON")) - 2
        )  # the theme, full screen
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


def test_a_replay_in_its_frame_lets_the_focus_go(server, tmp_path):
    """Tab goes through the frame and comes out behind it; the name and the theme are there once."""
    with Browser(tmp_path / "profile") as page:
        page.open(server.address + "replay#task=zeros&second=vgb&cost=9")
        page.wait("frames.length === 1 && frames[0].document.readyState === 'complete'")
        page.wait("frames[0].document.getElementById('step-count')?.textContent > '0'")
        inside = "frames[0].document"
        assert page.value(f"{inside}.querySelectorAll('#play').length") == 1
        assert page.value(f"{inside}.querySelector('[name=by]:checked').value") == "cost"
        assert int(page.value(f"{inside}.getElementById('step-number').textContent")) <= 9
        assert page.value(f"{inside}.getElementById('tree-2') !== null")
        assert page.value(f"{inside}.querySelector('.bar').offsetHeight") == 0
        seen = []
        for _ in range(200):
            page.press("Tab")
            seen.append(page.value("document.activeElement.tagName"))
            if "IFRAME" in seen and seen[-1] != "IFRAME":
                break
        assert seen.count("IFRAME") > 10
        assert seen[-1] == "BODY"


LINKS = {
    "blocks#graph=all%20pairs&spins=4&coupling=0.5&block=2&seed=3": {
        "graph": "all pairs",
        "spins": "4",
        "coupling": "0.5",
        "block": "2",
    },
    "verifier-error#target=random&length=3&error=1.5&seed=2": {
        "target": "random",
        "length": "3",
        "error": "1.5",
    },
    "hidden-tokens#states=4&stay=0.9&clear=0.7&tokens=00123&hidden=01010": {
        "states": "4",
        "stay": "0.9",
        "clear": "0.7",
    },
}


@pytest.mark.parametrize("link", LINKS)
def test_a_link_opens_a_page_with_its_dials_set(server, tmp_path, link):
    """And the address follows the dials; a value that no dial has is passed over."""
    with Browser(tmp_path / "profile") as page:
        page.open(server.address + link)
        page.wait("document.getElementById('says').textContent !== ''")
        for name, value in LINKS[link].items():
            assert page.value(f"document.getElementById('{name}').value") == value
        slider = next(name for name in LINKS[link] if name not in ("graph", "target"))
        page.value(f"document.getElementById('{slider}').focus()")
        page.press("ArrowLeft")
        moved = page.value(f"document.getElementById('{slider}').value")
        assert moved != LINKS[link][slider]
        there = page.value("Object.fromEntries(new URLSearchParams(location.hash.slice(1)))")
        before = dict(part.split("=") for part in link.partition("#")[2].split("&"))
        assert there == before | {slider: moved, **_words(LINKS[link])}
        page.value("location.hash = '#states=99&graph=none&target=none&length=x'")
        page.wait(f"document.getElementById('{slider}').value !== ''")
        assert page.value("document.getElementById('problem').hidden")
        if "tokens" in before:
            assert page.value("document.querySelectorAll('.position').length") == 5
            hidden = "document.querySelectorAll('.position .covered').length"
            assert page.value(hidden) == 2


def _words(values):
    return {name: value for name, value in values.items() if name in ("graph", "target")}


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_pages_fit_and_their_letters_can_be_read(server, tmp_path, width):
    with Browser(tmp_path / "profile", width=width) as page:
        for path in ("", "run", "hidden-tokens", "blocks", "verifier-error", "replay"):
            page.open(server.address + path)
            if path not in ("", "run", "replay"):
                page.wait("document.getElementById('says').textContent !== ''")
            assert page.value("document.documentElement.scrollWidth") <= width
            assert min(page.value(LETTERS)) >= 11.5, path


LETTERS = """[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().width
    && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
  .map(e => parseFloat(getComputedStyle(e).fontSize)
    * (e.ownerSVGElement ? e.ownerSVGElement.getScreenCTM().a : 1))"""


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

"""Slides: what stands on them, that it fits, and that keys, fingers and paper turn them."""

import re
from dataclasses import replace

import pytest
from tests.support.browser import CHROMIUM, Browser, walk
from tests.support.refusals import refused

from triptych.core.estimates import Status
from triptych.core.validation import UserError
from triptych.lab.results import gathering
from triptych.lab.results.ledger import load_ledger
from triptych.lab.results.ranking import ClaimFinding, NotDrawn, StudyRun, judge_ledger
from triptych.lab.results.slides import SIZES, _fitting, _on_a_wall, claims_of, render_slides
from triptych.studies.api.figures import Figure, Heatmap, Panel, Series
from triptych.studies.api.verdicts import Check

in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
EVIL = "<script>alert('x')</script> & \"q\""
LINES = Panel(
    [Series("one", "ours", [1, 2, 3], [1, 2, 4]), Series("two", "control", [1, 2, 3], [4, 2, 1])],
    "x",
    "y",
    "a panel",
)
FIGURE = Figure("toy", f"What it shows {EVIL}", [LINES, LINES])


def check(sentence, outcome=Status.HOLDS, edge=""):
    return Check(sentence, 2.0, 1.0, 3.0, "> 0", outcome, "above", edge=edge)


def found(*checks, study="toy", status="holds", **more):
    finding = ClaimFinding(study, "laptop", False, status, checks=checks, **more)
    return StudyRun(
        study,
        "?",
        "laptop",
        {},
        [],
        [],
        figures=(FIGURE,),
        findings={"wei.fig-3-left": finding},
    )


def rendered(*runs, ids=("wei.fig-3-left",)):
    judged = judge_ledger(load_ledger(), runs)
    return render_slides(judged, runs, ids, generated="today")


def text_of(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_a_slide_has_the_claim_its_sentence_and_its_checks():
    page, count = rendered(found(check(f"gain {EVIL}"), check("second")))
    assert count == 2
    said = text_of(page)
    assert "how far a soft prompt helps" in said  # what it means, of chosen.toml
    assert "All 2 checks hold." in said
    assert "2 [1, 3] &gt; 0" in said
    assert "What it shows" in said  # in the notes
    assert EVIL not in page
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=[\"'](https?:)?//", page)


def test_what_fails_stands_first_and_is_never_in_the_notes_alone():
    checks = [check(f"fine {i}") for i in range(9)] + [check("this fails", Status.FAILS)]
    page, _ = rendered(found(*checks, status="fails"))
    slide, _, notes = page.partition('<aside class="notes" aria-label="Notes"><h2>Prompt')
    assert "this fails" in slide.partition('id="wei.fig-3-left"')[2]
    assert "1 of 10 checks fails." in text_of(notes)
    assert "fine 8" in notes
    assert "more in the notes" in slide


@pytest.mark.parametrize(("panels", "narrow"), [(1, 340), (2, 360), (3, 255), (4, 205)])
def test_panels_in_a_row_are_narrow_so_that_letters_are_large(panels, narrow):
    """A panel of n has 1/n of the slide: its letters are at least 2 % of the slide's height."""
    wall = _on_a_wall(Figure("f", "t", [LINES] * panels), "p")
    assert len(wall.panels) == panels
    assert SIZES[panels].panel == narrow
    width = wall.width if panels == 1 else 162 / panels - 4
    assert 11.5 / narrow * width >= 2.0
    assert sum("one" in text_of(svg) for svg in wall.panels) == 0
    assert all("one" in text_of(legend) for legend in wall.legends)


def test_more_panels_than_a_row_are_in_the_report():
    page, _ = rendered(replace(found(check("a")), figures=(replace(FIGURE, panels=[LINES] * 6),)))
    assert "The report has 2 more of its panels." in text_of(page)


def test_a_figure_that_cannot_be_drawn_leaves_the_rest():
    broken = Figure("f", "t", [Heatmap([[1.0], [1.0, 2.0]])])
    page, _ = rendered(replace(found(check("a")), figures=(broken,)))
    assert "The figure could not be drawn: ValueError" in text_of(page)
    none, _ = rendered(replace(found(check("a")), figures=(NotDrawn("f", "x"),)))
    assert "plain-page" in none


def test_how_many_checks_fit():
    """A long sentence takes more lines; under a row of panels two stand next to each other."""
    wall = _on_a_wall(Figure("f", "t", [LINES]), "p")
    short, long = [check("few words")] * 20, [check("a long sentence " * 12)] * 20
    assert _fitting("title", "means", wall, short) > _fitting("title", "means", wall, long) >= 1
    assert _fitting("t" * 200, "means", wall, short) < _fitting("title", "means", wall, short)
    row = _on_a_wall(Figure("f", "t", [LINES] * 3), "p")
    assert _fitting("title", "means", row, short) % 2 == 0


def test_claims_of_a_study_of_ones_own():
    own = replace(found(check("a")), own=True, file="/somewhere/my_study.py")
    assert claims_of("toy", [own]) == claims_of("my_study.py", [own]) == ["wei.fig-3-left"]
    with refused("study"):
        claims_of("other.py", [own])
    with refused("study"):
        claims_of("my_study.py", [replace(own, own=False)])


def test_an_unknown_claim_is_refused():
    with pytest.raises(UserError, match="did you mean"):
        rendered(found(check("a")), ids=["wei.fig"])


# ---------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def deck(tmp_path_factory):
    """The slides of the bundled evidence."""
    path = tmp_path_factory.mktemp("slides") / "slides.html"
    assert gathering.write_slides_of(gathering.gather(None), path) == 9
    return path


SHOWN = "[...document.querySelectorAll('.screen')].filter(s => !s.hidden).map(s => s.id).join()"
TOO_LARGE = """(() => {
  const screen = [...document.querySelectorAll('.screen')].find(s => !s.hidden);
  const over = [document.documentElement.scrollWidth - innerWidth];
  for (const one of screen.querySelectorAll('.page, .body'))
    over.push(one.scrollHeight - one.clientHeight, one.scrollWidth - one.clientWidth);
  return Math.max(...over);
})()"""


@in_a_browser
@pytest.mark.slow
def test_keys_and_fingers_turn_the_slides(deck, tmp_path):
    with Browser(tmp_path / "profile") as page:
        page.open(deck.as_uri())
        ids = page.value("[...document.querySelectorAll('.screen')].map(s => s.id)")
        assert page.value(SHOWN) == "start"
        for key, at in (("ArrowRight", 1), (" ", 2), ("ArrowLeft", 1), ("End", 8), ("Home", 0)):
            page.press(key)
            assert page.value(SHOWN) == ids[at]
        page.press("n")
        assert page.value("getComputedStyle(document.querySelector('.notes')).display") == "block"
        assert page.value(TOO_LARGE) <= 1
        page.press("n")
        assert page.value("getComputedStyle(document.querySelector('.notes')).display") == "none"
        page.value(SWIPE.replace("FROM", "600").replace("TO", "300"))
        assert page.value(SHOWN) == ids[1]
        page.value(SWIPE.replace("FROM", "300").replace("TO", "600"))
        assert page.value(SHOWN) == ids[0]
        page.open(deck.as_uri() + f"#{ids[4]}")
        assert page.value(SHOWN) == ids[4]
        page.value("location.hash = '#3'")
        page.wait(f"({SHOWN}) === '{ids[2]}'")
        assert page.value("document.getElementById('where').textContent") == "3 of 9"
        stops = walk(page)
        assert {stop["id"] for stop in stops} >= {"previous", "next", "notes", "full", "theme"}
        assert [stop for stop in stops if not stop["name"]] == []


SWIPE = """(() => {
  const touch = x => new Touch({identifier: 1, target: document.body, clientX: x, clientY: 300});
  const send = (name, x, on) => document.body.dispatchEvent(new TouchEvent(name,
    {touches: on ? [touch(x)] : [], changedTouches: [touch(x)], bubbles: true}));
  send('touchstart', FROM, true);
  send('touchend', TO, false);
})()"""


@in_a_browser
@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(1920, 1080), (1280, 720), (1280, 1024), (390, 800)])
def test_everything_fits_on_its_slide(deck, tmp_path, width, height):
    with Browser(tmp_path / "profile", width=width, height=height) as page:
        page.open(deck.as_uri())
        for _ in range(9):
            assert page.value(TOO_LARGE) <= 1, page.value(SHOWN)
            page.press("ArrowRight")
        letters = page.value(SMALLEST)
        assert min(letters) >= (0.018 * min(height, width * 9 / 16) if width > 700 else 10)


SMALLEST = """[...document.querySelectorAll('.screen')].flatMap(function (screen) {
  document.querySelectorAll('.screen').forEach(s => { s.hidden = s !== screen; });
  const texts = [...screen.querySelectorAll('.slide svg text')];
  return texts.filter(t => t.getBoundingClientRect().width)
    .map(t => parseFloat(getComputedStyle(t).fontSize) * t.ownerSVGElement.getScreenCTM().a);
})"""


@in_a_browser
@pytest.mark.slow
def test_the_browser_prints_a_slide_a_page(deck, tmp_path):
    with Browser(tmp_path / "profile") as page:
        page.open(deck.as_uri())
        assert pages_of(page) == [(960, 540)] * 9
        page.press("n")
        assert len(pages_of(page)) >= 18  # and the notes after each


def pages_of(page):
    import base64

    pdf = base64.b64decode(page.tell("Page.printToPDF", preferCSSPageSize=True)["data"])
    boxes = re.findall(rb"/MediaBox *\[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    return [(round(float(wide)), round(float(tall))) for wide, tall in boxes]

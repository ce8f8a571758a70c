"""The report in Chromium, on the bundled evidence: its size, its search, its printed pages."""

import re
import subprocess

import pytest
from tests.support.browser import CHROMIUM, Browser, walk

from triptych.lab.results import gathering

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here"),
]


def chromium(*arguments):
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    gathering.write_report_of(gathering.gather(None), path)
    return path


def test_it_is_under_3_mb(report):
    assert report.stat().st_size < 3e6


def test_it_prints_to_at_most_25_pages(report):
    pdf = report.with_suffix(".pdf")
    chromium(f"--print-to-pdf={pdf}", f"file://{report}")
    assert 2 <= len(re.findall(rb"/Type\s*/Page[^s]", pdf.read_bytes())) <= 25


def shown(page):
    """The claims that are not hidden."""
    return [
        re.search(r'id="([^"]*)"', tag)[1]
        for tag in re.findall(r'<details class="claim"[^>]*>', page)
        if not re.search(r" hidden(=|>| )", tag)
    ]


def test_the_search_finds_and_unfolds(report):
    everything = chromium("--dump-dom", f"file://{report}")
    assert len(shown(everything)) > 90
    assert '<details class="group" open' not in everything
    found = chromium("--dump-dom", f"file://{report}#search=information%20matrix")
    assert 1 <= len(shown(found)) <= 6
    assert "li.lem-4.1.1" in shown(found)
    assert re.search(r'<details class="group"[^>]*open', found)
    linked = chromium("--dump-dom", f"file://{report}#wei.fig-3-left")
    assert re.search(r'<details class="claim" id="wei.fig-3-left"[^>]*open', linked)


def test_the_keyboard_reaches_everything_and_is_never_held(report, tmp_path):
    """Tab stops: the skip link first, all with a ring and a name, and then the page is left."""
    with Browser(tmp_path) as page:
        page.open(report.as_uri())
        stops = walk(page, most=500)
        assert stops[0]["text"] == "Skip to the results"
        tags = [stop["tag"] for stop in stops]
        assert tags.count("SUMMARY") > 20  # groups, studies, tables of numbers
        assert "INPUT" in tags
        unnamed = [stop for stop in stops if not stop["name"]]
        assert unnamed == []
        page.press("Tab", shift=True)  # back into the page, from its end
        assert page.focused["tag"] != "BODY"


def test_the_skip_link_leads_past_the_header(report, tmp_path):
    with Browser(tmp_path) as page:
        page.open(report.as_uri())
        page.press("Tab")
        page.press("Enter")
        page.wait("location.hash === '#summary'")
        page.press("Tab")
        assert page.value("document.activeElement.closest('#summary') !== null")


def test_claims_are_searched_and_unfolded_by_keys_alone(report, tmp_path):
    opened = "document.activeElement.parentElement.open"
    with Browser(tmp_path) as page:
        page.open(report.as_uri())
        page.press("/")
        assert page.focused["tag"] == "INPUT"
        page.type("information matrix")
        page.wait("document.querySelectorAll('details.claim:not([hidden])').length <= 6")
        for _ in range(40):  # past the filters and the group, which the search has unfolded
            page.press("Tab")
            if page.value("document.activeElement.matches('details.claim > summary')"):
                break
        assert not page.value(opened)
        page.press("Enter")
        assert page.value(opened)
        page.press(" ")
        assert not page.value(opened)
        page.press("/")
        page.press("Escape")
        assert page.value("document.querySelectorAll('details.claim[hidden]').length") == 0


def test_a_verdict_is_chosen_with_the_space_bar(report, tmp_path):
    with Browser(tmp_path) as page:
        page.open(report.as_uri())
        page.value("document.querySelector('.chip[data-verdict=holds]').focus()")
        page.press(" ")
        verdicts = "[...document.querySelectorAll('details.claim:not([hidden])')]"
        assert page.value(f"{verdicts}.every(claim => claim.dataset.verdict === 'holds')")
        held = "document.querySelectorAll('details.claim[data-verdict=holds]').length"
        assert page.value(f"{verdicts}.length") == page.value(held) > 0

"""The report in Chromium, on the shipped evidence: its size, its search, its printed pages."""

import re
import shutil
import subprocess

import pytest

from triptych.lab.results import gathering

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
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
    found = chromium("--dump-dom", f"file://{report}#search=pseudolikelihood")
    assert 1 <= len(shown(found)) <= 6
    assert "li.lem-4.1.2" in shown(found)
    assert re.search(r'<details class="group"[^>]*open', found)
    linked = chromium("--dump-dom", f"file://{report}#wei.fig-3-left")
    assert re.search(r'<details class="claim" id="wei.fig-3-left"[^>]*open', linked)

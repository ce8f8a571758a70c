"""docs/samplers.md, the recorded rows, the pins and the drafts of issues say the same."""

import json
import re
from dataclasses import replace

import pytest

from samplers import page, quotes
from samplers.judging import ABSENT, BREAKS, Row
from samplers.page import ROOT
from samplers.record import all_samplers, installed_version
from triptych.lab.laws.released import RECORDED as RECORDED_ROWS

RECORDED = json.loads(RECORDED_ROWS.read_text())
ROWS = [Row.of(record) for record in RECORDED["rows"]]
ISSUES = ROOT / "docs" / "sampler-issues"


def test_every_sampler_has_a_recorded_row():
    wanted = [(s.package, s.name, s.promise, s.source, s.note, s.issue) for s in all_samplers()]
    assert [(r.package, r.name, r.promise, r.source, r.note, r.issue) for r in ROWS] == wanted
    assert len(set(wanted)) == len(wanted) >= 40


def test_the_page_shows_the_recorded_rows():
    text = page.PAGE.read_text()
    assert page.with_table(text, ROWS) == text


def test_no_row_was_made_without_its_package():
    assert all(row.verdict != ABSENT and row.version for row in ROWS)


def test_the_versions_are_the_pinned_ones():
    pins = dict(
        re.findall(r"^([\w-]+)==(.+)$", (ROOT / "samplers/requirements.txt").read_text(), re.M)
    )
    for row in ROWS:
        assert pins.get(row.package, row.version) == row.version
    named = {row.package for row in ROWS} - {"python", "numpy", "torch", "networkx"}
    assert named <= set(pins)


def test_every_promise_is_quoted_from_the_package_itself():
    assert [row.name for row in ROWS if not row.quoted] == []


@pytest.mark.parametrize("package", ["hmmlearn", "networkx", "python"])
def test_quotations_that_can_be_looked_up_here(package):
    if not installed_version(package):
        pytest.skip(f"{package} is not installed")
    known = [sampler for sampler in all_samplers() if sampler.package == package]
    assert known
    assert [quotes.missing(sampler) for sampler in known] == [[]] * len(known)
    assert quotes.missing(replace(known[0], promise="never said of a sampler")) != []


def test_every_law_is_quick():
    assert max(row.seconds for row in ROWS if row.how == "exact") < 2.0


def test_a_broken_promise_is_drawn_again_or_was_drawn():
    for row in ROWS:
        if row.verdict == BREAKS:
            assert row.draws is not None, row.name
            assert row.draws.agree == (row.draws.against == "law"), row.name


def test_every_broken_promise_has_a_draft_of_an_issue_and_no_other_has():
    named = {row.issue for row in ROWS if row.verdict == BREAKS}
    assert "" not in named
    assert named == {row.issue for row in ROWS if row.issue}
    assert named == {file.name for file in ISSUES.glob("*.md")}


@pytest.mark.parametrize("file", sorted(ISSUES.glob("*.md")), ids=lambda file: file.stem)
def test_a_draft_has_what_a_maintainer_needs(file):
    text = file.read_text()
    assert text.startswith("# ")
    for part in (
        "To: ",
        "Seen with ",
        "```python",
        "Expected",
        "Actual",
        "## Cause and possible fix",
    ):
        assert part in text, part
    assert "triptych" not in text.split("```python")[1].split("```")[0]
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        compile(block, file.name, "exec")

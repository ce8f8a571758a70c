"""Pages that are made from the package are up to date, and say what the verdicts say."""

import importlib.util
import re
from pathlib import Path

import pytest

from triptych.lab.results.ledger import load_ledger
from triptych.lab.results.ranking import ClaimFinding, Judged

ROOT = Path(__file__).parents[2]


def tool(name):
    place = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages():
    return tool("pages")


@pytest.fixture(scope="module")
def lines(pages):
    return pages.published()


def test_every_page_is_up_to_date(pages, unchecked_shapes):
    for path, text in pages.pages().items():
        assert path.read_text("utf-8") == text, f"{path.name}: run python tools/pages.py"


def test_the_table_counts_every_result_once(pages, lines):
    rows = [row.split("|")[2:-1] for row in pages.table(lines).splitlines()[2:]]
    numbers = [[int(re.match(r"\s*(\d+)", cell)[1]) for cell in row] for row in rows]
    *chapters, everything = numbers
    assert everything == [sum(column) for column in zip(*chapters, strict=True)]
    assert everything[0] == len(lines) == sum(everything[1:])


def test_the_table_by_hand(pages):
    """Two of one chapter: one fails as published, one holds with an exception elsewhere."""
    entry = next(e for e in load_ledger() if e.id == "wei.thm-3.3")

    def line(scope, status, exceptions=()):
        finding = ClaimFinding("s", "paper", True, status, exceptions=exceptions, scope=scope)
        return Judged(entry, status, (finding,), "s")

    found = [line("as published", "fails"), line("transferred", "holds", ("at 0",))]
    (row,) = [r for r in pages.table(found).splitlines() if r.startswith("| Head")]
    assert row.endswith("| 2 | 0 | 1 | 0 | 0 | 1 (1) | 0 | 0 |")


def test_each_result_that_did_not_reproduce_is_explained(pages, lines):
    page = pages.results_page(lines)
    failing = {line.id for line in lines if line.status == "fails"}
    assert set(re.findall(r"^### `([^`]+)`", page, re.M)) == failing
    for section in page.split("### `")[1:]:
        assert re.search(r"^\| .+ \| .+ \| .+ \| .*\|$", section, re.M), "a check with its number"


def test_every_command_is_on_its_page(pages):
    from triptych.lab.cli.app import app

    names = {c.name or c.callback.__name__.replace("_", "-") for c in app.registered_commands}
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    listed = set(re.findall(r"^## `triptych ([a-z-]+)`$", page, re.M))
    assert {name for name in names if name} - listed <= {"list-all", "export-units", "import-units"}

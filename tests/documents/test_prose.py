"""Plain English is kept: the check finds what it should, and finds nothing in the project."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_PLACE = importlib.util.spec_from_file_location("prose", ROOT / "tools" / "prose.py")
prose = importlib.util.module_from_spec(_PLACE)
_PLACE.loader.exec_module(prose)


def said(path, text):
    return [finding.what for finding in prose.findings_of(Path(path), text)]


def test_there_is_nothing_to_find():
    assert [str(finding) for finding in prose.findings(prose.files())] == []


def test_sentences_by_hand():
    """A worked value: lines and words, with a heading apart."""
    found = list(prose.sentences("One two. Three\nfour five!\n\n# Six\n"))
    assert found == [(1, ["One", "two."]), (1, ["Three", "four", "five!"]), (4, ["Six"])]


@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        ("It stands " + "beside it.", 1),  # in two parts, for this file is checked too
        ("It stands next to it.", 0),
        ("```\nin place" + " of\n```\n", 1),
        ("word " * 46 + ".", 1),
        ("word " * 44 + ".", 0),
        ("Short. " * 7 + "`code` " * 46 + ".", 1),
        (("word " * 26 + ".\n") * 8, 1),
        (("word " * 24 + ".\n") * 8, 0),
        ("| " + "word " * 60 + "|\n", 0),
        ("```\n" + "word " * 60 + "\n```\n", 0),
    ],
)
def test_pages(page, wanted):
    assert len(said("page.md", page)) == wanted


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ('def f():\n    """Of the network."""\n', 1),
        ('def f():\n    """Often asked."""\n', 0),
        ('x = dict(help="Of the draws.")\n', 1),
        ("# made " + "anew\n", 1),
        ("ane" + "w = 1\n", 0),
        ('x = f"{y} for ' + 'ever"\n', 1),
        ("# for " + "ever  prose: said\n", 0),
    ],
)
def test_code(source, wanted):
    assert len(said("code.py", source)) == wanted


def test_the_command_says_where(tmp_path, capsys):
    (tmp_path / "page.md").write_text("Fine.\n\nMade ane" + "w.\n")
    assert prose.main([str(tmp_path / "page.md")]) == 1
    assert "page.md:3: " in capsys.readouterr().out
    (tmp_path / "page.md").write_text("Fine.\n")
    assert prose.main([str(tmp_path / "page.md")]) == 0

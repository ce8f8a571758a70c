"""BibTeX of verdicts: entries that parse, and digests that the named command prints again."""

import hashlib
import re

import pytest
from tests.support.command_line import OWN_STUDY, run, run_own

from triptych.lab.results import evidence

FILE = "exact_heads.paper.json.xz"
FIELD = re.compile(r"^  (\w+) += \{(.*?)\},$", re.M | re.S)


def parsed(text):
    """Key -> fields of every entry; braces must match, as BibTeX demands."""
    entries = {}
    for entry in text.strip().split("\n\n"):
        key, rest = re.match(r"@misc\{([^,]+),\n(.*)\n\}$", entry, re.S).groups()
        plain = re.sub(r"\\[{}]", "", rest)
        assert plain.count("{") == plain.count("}")
        entries[key] = {name: " ".join(value.split()) for name, value in FIELD.findall(rest)}
    return entries


@pytest.fixture(autouse=True)
def one_file(monkeypatch, tmp_path_factory):
    """Of the bundled files one alone, so that no other has to be judged."""
    folder = tmp_path_factory.mktemp("evidence")
    (folder / FILE).symlink_to(evidence.folder() / FILE)
    monkeypatch.setattr(evidence, "folder", lambda: folder)


def test_bundled_verdicts(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    done = run("claims", "wei.thm-3.3", "wei.prop-3.4", "--bibtex")
    assert done.exit_code == 0, done.output
    entries = parsed(done.stdout)
    assert set(entries) == {"triptych:wei.prop-3.4", "triptych:wei.thm-3.3"}
    fields = entries["triptych:wei.thm-3.3"]
    assert set(fields) == {"title", "author", "year", "howpublished", "note"}
    assert r"exact\_heads" in fields["howpublished"]
    printed = run("evidence", "exact_heads.paper").stdout
    assert hashlib.sha256(printed.encode()).hexdigest() in fields["note"]
    assert ".." not in fields["note"]


def test_a_verdict_of_ones_own(tmp_path):
    """No author is made up, and the rows of the folder have the digest."""
    file = tmp_path / "mine.py"
    file.write_text(OWN_STUDY.replace("There is a gain", "A gain of 5 % & more: {x_1}"))
    run_own(file)
    out = ["--out", str(tmp_path / "runs")]
    done = run("claims", "mine.gain", "--bibtex", *out)
    assert done.exit_code == 0, done.output
    fields = parsed(done.stdout)["triptych:mine.gain"]
    assert "author" not in fields
    assert fields["title"] == r"{A gain of 5 \% \& more: \{x\_1\}}"
    assert "Verdict: fails" in fields["note"]
    printed = run("rows", "mine", "--scale", "laptop", *out).stdout
    assert hashlib.sha256(printed.encode()).hexdigest() in fields["note"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], "needs the ids"),
        (["wei.thm-3.3", "--json"], "prints no JSON"),
        (["mine.gain"], "nothing to cite"),
    ],
)
def test_what_cannot_be_cited(tmp_path, more, words):
    file = tmp_path / "mine.py"
    file.write_text(OWN_STUDY)
    run_own(file, scale="smoke")
    done = run("claims", *more, "--bibtex", "--out", str(tmp_path / "runs"))
    assert done.exit_code == 2
    assert words in done.stderr

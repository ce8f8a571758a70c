"""Titles of the ledger with formulas: they are whole, and they say what the plain titles say."""

import re

import pytest

from triptych.lab.results.ledger import load_ledger
from triptych.lab.results.typesetting import title_html, typeset, typeset_titles

PLAIN = {entry.id: entry.title for entry in load_ledger()}


def test_a_worked_formula():
    assert typeset("at $k$ & <b>") == (
        'at <math display="inline"><mrow><mi>k</mi></mrow></math> &amp; &lt;b&gt;'
    )
    assert "<msubsup><mi>W</mi><mi>E</mi>" in typeset(r"$W_E^\top$")
    with pytest.raises(ValueError, match="not closed"):
        typeset("at $k")


@pytest.mark.parametrize("name", typeset_titles())
def test_a_typeset_title_has_the_words_of_the_plain_one(name):
    words = re.findall(r"[\w'-]+", " ".join(typeset_titles()[name].split("$")[::2]))
    assert [word for word in words if word not in PLAIN[name]] == []
    page = title_html(name, PLAIN[name])
    assert "<math" in page
    assert "\\" not in page  # a command that the converter does not know
    assert "merror" not in page


def test_a_title_without_formulas_stands_as_it_is():
    assert title_html("mine.claim", "a < b, $5") == "a &lt; b, $5"

"""Titles of the ledger with formulas: they are whole, and they say what the plain titles say."""

import html
import re

import pytest

from triptych.lab.results.ledger import load_ledger
from triptych.lab.results.typesetting import title_html, typeset, typeset_plain, typeset_titles

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


FORMULAS = {
    "W^V": r"W^{V}",
    "x_-K": "x_{-K}",
    "C_AT": r"C_{\text{AT}}",
    "2^(3N-1)": "2^{3N-1}",
    "2^|C|": "2^{|C|}",
    "r_x W D v": "r_{x} W D v",
    "P[H0|x]": r"P[H_{0} \mid x]",
    "p_m": "p_{m}",
}


@pytest.mark.parametrize("plain", FORMULAS)
def test_formulas_of_plain_text(plain):
    drawn = typeset(f"${FORMULAS[plain]}$")
    assert drawn.startswith("<math")
    assert typeset_plain(f"says {plain}, <b> a word") == f"says {drawn}, &lt;b&gt; a word"


@pytest.mark.parametrize("text", ["top_p and wmt_14", "x_", "exact_heads", "A - B", "a 3^"])
def test_words_are_no_formulas(text):
    assert typeset_plain(text) == text


def test_every_remark_is_typeset_without_a_loss():
    """Letters and figures are the same, and 40 remarks or more have a formula."""
    remarks = [entry.remark for entry in load_ledger() if entry.remark]
    typeset_ones = [typeset_plain(remark) for remark in remarks]
    for remark, shown in zip(remarks, typeset_ones, strict=True):
        assert letters(re.sub("<[^>]+>", "", shown.replace("&#x0007C;", "|"))) == letters(remark)
    assert sum("<math" in shown for shown in typeset_ones) >= 20


def letters(text):
    return re.sub(r"[\W_]", "", html.unescape(text))

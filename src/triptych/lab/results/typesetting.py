"""Formulas as MathML, which browsers draw without a script or a font from elsewhere."""

import functools
import re
import tomllib
from importlib.resources import files

from latex2mathml.converter import convert
from markupsafe import Markup, escape


@functools.cache
def typeset_titles() -> dict[str, str]:
    """Titles of the published ledger by id, with formulas in LaTeX between dollar signs."""
    return tomllib.loads(files("triptych.lab.results").joinpath("titles.toml").read_text("utf-8"))


def title_html(id: str, title: str) -> Markup:
    """The title of a claim as HTML: typeset where the ledger has formulas, else as it stands."""
    return typeset(typeset_titles()[id]) if id in typeset_titles() else escape(title)


@functools.cache
def typeset(text: str) -> Markup:
    """Text with LaTeX between dollar signs, as HTML with MathML.

    Worked value: "at $k$" is at <math display="inline"><mrow><mi>k</mi></mrow></math>.
    """
    pieces = text.split("$")
    if len(pieces) % 2 == 0:
        raise ValueError(f"a formula is not closed: {text!r}")
    return Markup("").join(
        _formula(piece) if i % 2 else escape(piece) for i, piece in enumerate(pieces)
    )


@functools.cache
def typeset_plain(text: str) -> Markup:
    """Plain text as HTML, in which indices, powers and probabilities are formulas.

    Worked value: in "r_x W v and P[H0|x]" these are r_x W v and P[H_0 | x], each as MathML; `top_p`
    stays a word.
    """
    found, end = Markup(""), 0
    for symbol in _SYMBOL.finditer(text):
        found += escape(text[end : symbol.start()])
        found += _formula(_probability(symbol[0]) if symbol["law"] else _as_latex(symbol[0]))
        end = symbol.end()
    return found + escape(text[end:])


_SCRIPT = re.compile(r"([_^])(\([^()]*\)|\{[^{}]*\}|\|\w\||-?\w+)")
_SYMBOL = re.compile(
    r"(?P<law>\bP\[[^\[\]]+\])|(?<![\w\\.])(?:[^\W\d_]|\d+)(?:"
    + _SCRIPT.pattern
    + r")+(?: (?:[B-HJ-Z]|v)(?!\w))*"  # and the letters that follow: r_x W D v
)


def _probability(text: str) -> str:
    """P[H0|x] in LaTeX."""
    return re.sub(r"([A-Z])(\d+)", r"\1_{\2}", text).replace("|", r" \mid ")


def _as_latex(text: str) -> str:
    return _SCRIPT.sub(lambda found: _script((found[1], found[2])), text)


def _script(found: tuple[str, str]) -> str:
    """An index or a power in LaTeX; a word of several letters is upright."""
    sign, what = found
    inside = what[1:-1] if what[0] in "({" else what
    upright = re.fullmatch(r"[^\W\d_]{2,}", inside) and inside.isascii()
    return f"{sign}{{\\text{{{inside}}}}}" if upright else f"{sign}{{{inside}}}"


def _formula(latex: str) -> Markup:
    name_space = ' xmlns="http://www.w3.org/1998/Math/MathML"'  # HTML needs none
    return Markup(convert(latex).replace(name_space, ""))

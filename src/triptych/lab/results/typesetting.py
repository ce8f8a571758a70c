"""Formulas as MathML, which browsers draw without a script or a font from elsewhere."""

import functools
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


def _formula(latex: str) -> Markup:
    name_space = ' xmlns="http://www.w3.org/1998/Math/MathML"'  # HTML needs none
    return Markup(convert(latex).replace(name_space, ""))

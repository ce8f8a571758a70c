"""The pages of the site: one layout, and for each page its content and a small script."""

from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from triptych.lab.serving import block_gibbs, hidden_tokens, replays, verifier_error


class Page(NamedTuple):
    """The name of the template and script, and what the navigation says."""

    file: str
    title: str


PAGES = {
    "": Page("run", "Run"),
    "replay": Page("replay", "Replay"),
    "hidden-tokens": Page("hidden_tokens", "Hidden tokens"),
    "blocks": Page("blocks", "Blocks"),
    "verifier-error": Page("verifier_error", "Verifier's error"),
}


def render(path: str, folder: Path) -> str:
    """The page at a path."""
    page = PAGES[path]
    environment = Environment(
        loader=FunctionLoader(lambda name: _text("serving", "templates", name)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    look = _text("results", "report.css") + _text("serving", "templates", "layout.css")
    script = _text("serving", "templates", "layout.js") + _text(
        "serving", "templates", f"{page.file}.js"
    )
    return environment.get_template(f"{page.file}.html.jinja").render(
        here=path,
        title=page.title,
        pages=PAGES,
        folder=str(folder),
        style=Markup(look),
        dark=Markup(_text("results", "dark.css")),
        script=Markup(script),
        limits=_limits(),
    )


def _limits() -> dict[str, Any]:
    """What the controls of the pages offer, so that they ask for nothing that is refused."""
    return {
        "states": hidden_tokens.MAX_STATES,
        "graphs": block_gibbs.GRAPHS,
        "spins": block_gibbs.MAX_SPINS,
        "coupling": block_gibbs.MAX_COUPLING,
        "targets": verifier_error.TARGETS,
        "length": verifier_error.MAX_LENGTH,
        "error": verifier_error.MAX_ERROR,
    } | replays.choices()


def _text(*parts: str) -> str:
    return files("triptych.lab").joinpath(*parts).read_text(encoding="utf-8")

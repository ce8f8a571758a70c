"""The pages of the site: one layout, and for each page its content and a small script."""

from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from triptych.lab.serving import block_gibbs, hidden_tokens, replays, verifier_error


class Page(NamedTuple):
    """The name of the template and script, what the navigation says, and what is there.

    of_a_run
        It shows a run folder, so a demonstration does not have it.
    """

    file: str
    title: str
    about: str = ""
    of_a_run: bool = False


PAGES = {
    "": Page("start", "Start"),
    "run": Page(
        "run", "Run", "What the run has decided so far, and what it computes now.", of_a_run=True
    ),
    "report": Page(
        "",
        "Report",
        "Every result with its checks and figures, from the rows so far.",
        of_a_run=True,
    ),
    "replay": Page(
        "replay",
        "Replay",
        "Two algorithms write the same string with a verifier's help, under one player.",
    ),
    "hidden-tokens": Page(
        "hidden_tokens",
        "Hidden tokens",
        "Hide tokens of a hidden Markov model, and see the exact posteriors move.",
    ),
    "blocks": Page(
        "blocks",
        "Blocks",
        "Set coupling and block size of Gibbs sampling: the gap, the mixing time, one chain.",
    ),
    "verifier-error": Page(
        "verifier_error",
        "Verifier's error",
        "Make a verifier wrong by a known factor, and see whose law stays near the target.",
    ),
}


def offered(folder: Path | None) -> dict[str, Page]:
    """The pages of a site; those of a run only where there is a folder."""
    return {path: page for path, page in PAGES.items() if folder or not page.of_a_run}


def render(path: str, folder: Path | None) -> str:
    """The page at a path of a site, which has a run folder or none."""
    page = PAGES[path]
    environment = Environment(
        loader=FunctionLoader(lambda name: _text("serving", "templates", name)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    look = _text("results", "report.css") + _text("serving", "templates", "layout.css")
    script = _text("results", "theme.js") + "".join(
        _text("serving", "templates", f"{name}.js") for name in ("layout", page.file)
    )
    return environment.get_template(f"{page.file}.html.jinja").render(
        here=path,
        title=page.title,
        pages=offered(folder),
        folder=str(folder) if folder else "",
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

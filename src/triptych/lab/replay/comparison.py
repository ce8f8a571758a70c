"""Two algorithms on the same task, side by side: their costs in a table, their replays below.

The file opens from disk. Each replay is the page of `render_trace`, in a frame of its own.
"""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from triptych.inference.guided.generation import Result
from triptych.lab.replay.page import write_page


class Side(NamedTuple):
    """One algorithm: what it wrote, whether that is right, and the page of its replay."""

    title: str
    result: Result
    texts: Sequence[str]
    correct: Sequence[bool]
    page: str


class CostLine(NamedTuple):
    """What one string cost."""

    title: str
    text: str
    correct: bool
    model: int
    verifier: int
    written: int
    erased: int


def cost_lines(sides: Sequence[Side]) -> list[CostLine]:
    """A line for each string, in the order of the sides.

    Worked value: ancestral sampling of 8 bits asks the model 8 times and the verifier never.
    """
    return [
        CostLine(
            side.title,
            text,
            bool(right),
            int(side.result.costs.generator_calls[row]),
            int(side.result.costs.verifier_calls[row]),
            int(side.result.costs.generated[row]),
            int(side.result.costs.erased[row]),
        )
        for side in sides
        for row, (text, right) in enumerate(zip(side.texts, side.correct, strict=True))
    ]


def render_comparison(sides: Sequence[Side], *, title: str, about: str = "") -> str:
    """The page of several algorithms."""
    page = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return page.from_string(_text("replay", "comparison.html.jinja")).render(
        title=title,
        about=about,
        sides=sides,
        lines=cost_lines(sides),
        style=Markup(_text("results", "report.css")),
        dark=Markup(_text("results", "dark.css")),
    )


def write_comparison(
    sides: Sequence[Side], path: Path | str, *, title: str, about: str = ""
) -> Path:
    """Write the page of `render_comparison`, whole or not at all; returns where it is."""
    return write_page(render_comparison(sides, title=title, about=about), path)


def _text(folder: str, name: str) -> str:
    return files(f"triptych.lab.{folder}").joinpath(name).read_text("utf-8")

"""Two algorithms on one task, side by side: their costs in a table, and one player for both."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from triptych.inference.guided.generation import Result
from triptych.lab.replay.page import Replayed, render_replays, write_page


class Side(NamedTuple):
    """One algorithm: what it wrote, whether that is right, and its settings in a sentence."""

    title: str
    result: Result
    texts: Sequence[str]
    correct: Sequence[bool]
    names: Sequence[str] | None = None
    settings: str = ""


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
    """The page of two algorithms; the second is aligned with the first by steps or by questions."""
    replays = [
        Replayed(side.title, side.result, side.names, side.correct, side.settings) for side in sides
    ]
    return render_replays(replays, title=title, about=about, lines=cost_lines(sides))


def write_comparison(
    sides: Sequence[Side], path: Path | str, *, title: str, about: str = ""
) -> Path:
    """Write the page of `render_comparison`, whole or not at all; returns where it is."""
    return write_page(render_comparison(sides, title=title, about=about), path)

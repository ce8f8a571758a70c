"""A replay of a canvas: one HTML page with a line for every step of a diffusion sampler.

A line has a box for each position: a masked one is empty, one that was written in this step has a
frame, one that was taken back is struck through. The page needs no script.
"""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from triptych.core.display import counted
from triptych.core.validation import UserError, shown
from triptych.diffusion.denoising import Step
from triptych.diffusion.sampler import Denoised
from triptych.lab.replay.page import write_page
from triptych.lab.replay.refinement_page import table_page

_KEY = (
    "An empty box is masked, or not begun. A frame: written in this step. Struck through: taken "
    "back in this step. Pale: it has stood there for longer."
)

Names = Sequence[str] | Mapping[int, str]


def render_canvas(
    done: Denoised,
    *,
    names: Names | None = None,
    title: str = "Replay of a canvas",
    about: str = "",
    headings: Sequence[str] | None = None,
) -> str:
    """The page of a sampler's run that was recorded (`record=True`).

    names      how token i is written; its number by default
    headings   a line above each row
    """
    if not isinstance(done, Denoised):
        raise UserError(f"done is {shown(done)}; it must come from sample(...)", parameter="done")
    if not done.trace:
        raise UserError("this run has no trace to replay: call sample with record=True")
    if headings is not None and len(headings) != len(done.tokens):
        raise UserError(
            f"headings has {len(headings)} lines for {len(done.tokens)} rows", parameter="headings"
        )
    pieces = []
    for row in range(len(done.tokens)):
        if headings is not None:
            pieces.append(f"<h2>{html.escape(headings[row])}</h2>")
        pieces.append(_row(done, row, names))
    return table_page(pieces, title=title, about=about, key=_KEY)


def write_canvas(
    done: Denoised,
    path: Path | str,
    *,
    names: Names | None = None,
    title: str = "Replay of a canvas",
    about: str = "",
    headings: Sequence[str] | None = None,
) -> Path:
    """Write the page of `render_canvas`, whole or not at all; returns where it is."""
    page = render_canvas(done, names=names, title=title, about=about, headings=headings)
    return write_page(page, path)


def _row(done: Denoised, row: int, names: Names | None) -> str:
    """A table: a line for the start, for every step that changed the row, and for the result."""
    lines = []
    before: Step | None = None
    for step in done.trace:
        changed = bool(step.written[row].any()) or bool(step.erased[row].any())
        if before is None or changed or step.number < 0:
            label = "start" if step.number < 0 else f"step {step.number + 1}"
            if done.trace[-1].block:
                label = f"block {step.block + 1}, {label}"
            lines.append(f"<tr><th>{label}</th>{_cells(step, before, row, names)}</tr>")
        before = step
    final = "".join(
        _cell("" if masked else _named(token, names), [])
        for token, masked in zip(done.tokens[row].tolist(), done.hidden[row].tolist(), strict=True)
    )
    asked = counted(int(done.costs.generator_calls[row]), "question")
    lines.append(f"<tr><th>after {asked}</th>{final}</tr>")
    table = f'<table class="refined"><tbody>{"".join(lines)}</tbody></table>'
    return f'<div class="steps" tabindex="0" role="group" aria-label="Steps">{table}</div>'


def _cells(step: Step, before: Step | None, row: int, names: Names | None) -> str:
    cells = []
    for place in range(step.tokens.shape[1]):
        masked, written = bool(step.hidden[row, place]), bool(step.written[row, place])
        erased = bool(step.erased[row, place])
        if erased and before is not None and masked:
            text = _named(int(before.tokens[row, place]), names)
        else:
            text = "" if masked else _named(int(step.tokens[row, place]), names)
        marks = ["refined-new"] * written + ["refined-replaced"] * (erased and masked)
        cells.append(_cell(text, marks or ["refined-ended"]))
    return "".join(cells)


def _cell(text: str, marks: Sequence[str]) -> str:
    kind = f' class="{" ".join(marks)}"' if marks else ""
    return f"<td{kind}><b>{html.escape(text) or '&#9617;'}</b></td>"


def _named(token: int, names: Names | None) -> str:
    if names is None:
        return str(token)
    try:
        return names[token]
    except (IndexError, KeyError):
        raise UserError(
            f"names has no entry for token {token}, which occurs", parameter="names"
        ) from None

"""A replay of a refinement: one HTML page with a line for every step of each row.

A line has the tokens that the refiner wrote, one box each. The colour of a box is the probability
that the refiner gave to its token; a changed token has a frame, and a stutter that was replaced
before the next step is struck through, with what took its place beneath. The page needs no script.
"""

import html
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from triptych.core.display import counted
from triptych.core.validation import Numbers, UserError, as_integers
from triptych.inference.chains.refinement import Iteration, Refined, drop_stutter, stutters
from triptych.lab.replay.page import write_page

_STYLE = """
.refined { border-collapse: separate; border-spacing: 4px; margin: 0.6rem 0 1.6rem; }
.refined th { text-align: right; font-weight: 400; color: var(--muted); padding-right: 0.8rem;
  white-space: nowrap; }
.refined td { min-width: 2.6rem; padding: 0.3rem 0.5rem; text-align: center; border-radius: 4px;
  border: 2px solid transparent; vertical-align: top; font-family: ui-monospace, monospace; }
.refined td.refined-start { color: var(--muted); }
.refined td.refined-new { border-color: var(--ink); }
.refined td.refined-twice { color: var(--fails); }
.refined td.refined-replaced b { text-decoration: line-through; }
.refined td b { font-weight: 600; }
.refined td small { display: block; color: var(--muted); font-size: 0.72rem; }
.refined td.refined-ended { opacity: 0.45; }
.steps { overflow-x: auto; }
@media (max-width: 700px) {
  .refined th { white-space: normal; max-width: 5.4rem; font-size: 0.86rem; padding-right: 0.3rem; }
  .refined td { min-width: 2.2rem; padding: 0.3rem; }
}
"""


def render_refinement(
    refined: Refined,
    lengths: Numbers,
    *,
    names: Sequence[str] | None = None,
    title: str = "Replay of a refinement",
    about: str = "",
    headings: Sequence[str] | None = None,
) -> str:
    """The page of a refinement that was recorded (`record=True`).

    names      how token i is written; its number by default
    headings   a line above each row, such as its source sentence
    """
    if not isinstance(refined, Refined):
        raise UserError(
            f"refined is a {type(refined).__name__}; it must come from refine(...)",
            parameter="refined",
        )
    if not refined.trace:
        raise UserError("this refinement has no trace to replay: call refine with record=True")
    lengths = as_integers("lengths", lengths, dimensions=1)
    if len(lengths) != len(refined.tokens):
        raise UserError(
            f"lengths has {len(lengths)} numbers for {len(refined.tokens)} rows",
            parameter="lengths",
        )
    if headings is not None and len(headings) != len(lengths):
        raise UserError(
            f"headings has {len(headings)} lines for {len(lengths)} rows", parameter="headings"
        )
    written = _Names(names, refined)
    pieces = []
    for row in range(len(lengths)):
        if headings is not None:
            pieces.append(f"<h2>{html.escape(headings[row])}</h2>")
        pieces.append(_row(refined, row, int(lengths[row]), written))
    key = (
        "The stronger the colour of a box, the more probable its token; the number beneath is "
        "that probability in per cent. A frame: the token differs from the one that was read. Red: "
        "it equals its left neighbour. Struck through: it was replaced before the next step, by "
        "the token after the arrow. Pale: the row had stopped."
    )
    return table_page(pieces, title=title, about=about, key=key)


def table_page(pieces: Sequence[str], *, title: str, about: str, key: str) -> str:
    """A page of tables of steps; `pieces` are HTML, the others are text."""
    look = files("triptych.lab.results")
    light, dark = (look.joinpath(f"{name}.css").read_text("utf-8") for name in ("report", "dark"))
    style = (
        f"{light}@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}{_STYLE}"
    )
    told = f'<p class="lede">{html.escape(about)}</p>' if about else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{style}</style></head><body>"
        f'<header class="top"><h1>{html.escape(title)}</h1>{told}</header>'
        f'<main>{"".join(pieces)}<p class="fine">{key}</p></main></body></html>\n'
    )


def write_refinement(
    refined: Refined,
    path: Path | str,
    lengths: Numbers,
    *,
    names: Sequence[str] | None = None,
    title: str = "Replay of a refinement",
    about: str = "",
    headings: Sequence[str] | None = None,
) -> Path:
    """Write the page of `render_refinement`, whole or not at all; returns where it is."""
    page = render_refinement(
        refined, lengths, names=names, title=title, about=about, headings=headings
    )
    return write_page(page, path)


def lines_of(refined: Refined, lengths: Numbers, names: Sequence[str] | None = None) -> list[str]:
    """The same as text: for every row its start, each step, and what is left without stutter."""
    lengths = as_integers("lengths", lengths, dimensions=1)
    written = _Names(names, refined)
    dropped, kept = drop_stutter(refined.tokens, lengths)
    lines = []
    for row, length in enumerate(lengths.tolist()):
        if refined.trace:
            start = refined.trace[0].hypotheses[row, :length].tolist()
            lines.append("start   " + " ".join(map(written, start)))
        for number, step in enumerate(refined.trace, 1):
            if step.active[row]:
                tokens = step.tokens[row, :length].tolist()
                lines.append(f"step {number:<3}" + " ".join(map(written, tokens)))
        final = dropped[row, : int(kept[row])].tolist()
        lines.append("result  " + " ".join(map(written, final)))
    return lines


class _Names:
    """How a token is written."""

    def __init__(self, names: Sequence[str] | None, refined: Refined) -> None:
        largest = max(
            int(tokens.max())
            for tokens in (refined.tokens, *(step.hypotheses for step in refined.trace))
        )
        if names is not None and largest >= len(names):
            raise UserError(
                f"names has {len(names)} entries, and token {largest} occurs: it needs "
                f"{largest + 1}, one per token",
                parameter="names",
            )
        self.names = names

    def __call__(self, token: int) -> str:
        return str(token) if self.names is None else self.names[token]


def _row(refined: Refined, row: int, length: int, written: _Names) -> str:
    """A table with a line for the start, for every step, and for the result."""
    first = refined.trace[0].hypotheses[row, :length].tolist()
    cells = "".join(_cell(written(token), "refined-start") for token in first)
    lines = [f"<tr><th>start</th>{cells}</tr>"]
    following = [step.hypotheses for step in refined.trace[1:]]
    for number, step in enumerate(refined.trace, 1):
        after = following[number - 1] if number <= len(following) else step.tokens
        lines.append(
            f"<tr><th>step {number}</th>"
            + "".join(_step_cell(step, after, row, i, length, written) for i in range(length))
            + "</tr>"
        )
    tokens, kept = drop_stutter(refined.tokens[row : row + 1, :length], [length])
    final = "".join(_cell(written(token), "") for token in tokens[0, : int(kept[0])].tolist())
    steps = counted(int(refined.steps[row]), "step")
    lines.append(f"<tr><th>after {steps}, without stutter</th>{final}</tr>")
    table = f'<table class="refined"><tbody>{"".join(lines)}</tbody></table>'
    return f'<div class="steps" tabindex="0" role="group" aria-label="Steps">{table}</div>'


def _step_cell(
    step: Iteration,
    after: Int[Tensor, "batch length"],
    row: int,
    i: int,
    length: int,
    written: _Names,
) -> str:
    """One token of a step, with its probability and what became of it."""
    token = int(step.tokens[row, i])
    probability = float(step.log_probs[row, i].exp())
    repeated = stutters(step.tokens[row : row + 1, :length], torch.tensor([length]))[0, i]
    replaced = bool(step.replaced[row, i])
    marks = [
        name
        for name, holds in (
            ("refined-new", token != int(step.hypotheses[row, i])),
            ("refined-twice", bool(repeated)),
            ("refined-replaced", replaced),
            ("refined-ended", not bool(step.active[row])),
        )
        if holds
    ]
    note = f"{100 * probability:.0f}"
    if replaced:
        note += f" → {html.escape(written(int(after[row, i])))}"
    shade = f"color-mix(in srgb, var(--ours) {round(55 * probability)}%, transparent)"
    return _cell(written(token), " ".join(marks), note, shade)


def _cell(text: str, marks: str, note: str = "", shade: str = "") -> str:
    style = f' style="background: {shade}"' if shade else ""
    kind = f' class="{marks}"' if marks else ""
    beneath = f"<small>{note}</small>" if note else ""
    return f"<td{kind}{style}><b>{html.escape(text)}</b>{beneath}</td>"

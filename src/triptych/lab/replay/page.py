"""A replay of a guided generation: one HTML file that opens from disk.

`page.html.jinja` is the page, `page.js` draws the tree of visited prefixes, `player.js` plays,
`report.css` and `page.css` are its look; all of them end up inside the file, and so do the events:

    nodes    [parent, token] of every visited prefix in the order of the first visit; node 0 is the
             prompt, with parent -1. What a row erased of its prompt, the result does not keep:
             nodes with token -1 stand for it
    origin   the node of the whole prompt: 0, unless some of it was erased
    events   [action, node, log V, generator calls, verifier calls]; log V is null where the
             verifier was not asked, and "-inf" where it says 0
"""

import json
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jaxtyping import Bool
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from torch import Tensor

from triptych.core.files import write_text
from triptych.core.validation import UserError
from triptych.inference.guided.generation import Event, Result

GROWING = ("draw", "argmax", "down")
SHRINKING = ("backtrack", "restart", "up")

UNKNOWN = -1  # a token of the prompt that was erased

String = tuple[int, ...]
Judgements = Sequence[bool | None] | Bool[Tensor, " batch"]


class Replayed(NamedTuple):
    """One replay on a page: a result that was recorded (`record=True`) and what is said about it.

    names      how token i is written; its number by default
    correct    whether each row came out right, None where nobody knows
    settings   a sentence that is folded
    """

    title: str
    result: Result
    names: Sequence[str] | None = None
    correct: Judgements | None = None
    settings: str = ""

    def data(self) -> dict[str, Any]:
        """What the script reads."""
        names = self.names and list(self.names)
        return {"names": names} | trace_data(self.result, self.names, self.correct)


def render_replays(
    sides: Sequence[Replayed], *, title: str, about: str = "", lines: Sequence[Any] = ()
) -> str:
    """The page of one or two replays under one player; `lines` of costs stand above them."""
    rows = {len(side.result.lengths) for side in sides}
    if len(rows) != 1 or len(sides) > 2:
        raise UserError(
            f"sides has {len(sides)} replays with {sorted(rows)} rows; it needs one or two with "
            "the same number of rows",
            parameter="sides",
        )
    data = Markup(_embedded({"sides": [side.data() for side in sides]}))
    return rendered("page", title=title, about=about, sides=sides, lines=lines, data=data)


def render_trace(
    result: Result,
    *,
    names: Sequence[str] | None = None,
    title: str = "Replay of a generation",
    about: str = "",
    correct: Judgements | None = None,
    settings: str = "",
) -> str:
    """The page of one replay; see `Replayed` for the arguments."""
    side = Replayed(title, result, names, correct, settings)
    return render_replays([side], title=title, about=about)


def rendered(name: str, **values: Any) -> str:
    """The page of a template with the look, the theme and the script that belong to its name."""
    page = Environment(
        loader=FunctionLoader(lambda file: _text("replay", file)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return page.get_template(f"{name}.html.jinja").render(
        style=Markup(_text("results", "report.css") + _text("replay", f"{name}.css")),
        dark=Markup(_text("results", "dark.css")),
        script=Markup(
            _text("results", "theme.js")
            + _text("replay", "player.js")
            + _text("replay", f"{name}.js")
        ),
        **values,
    )


def write_trace(
    result: Result,
    path: Path | str,
    *,
    names: Sequence[str] | None = None,
    title: str = "Replay of a generation",
    about: str = "",
    correct: Judgements | None = None,
    settings: str = "",
) -> Path:
    """Write the page of `render_trace`, whole or not at all; returns where it is."""
    said = {"title": title, "about": about, "settings": settings}
    return write_page(render_trace(result, names=names, correct=correct, **said), path)


def write_page(page: str, path: Path | str) -> Path:
    """Write a page, whole or not at all; returns where it is."""
    write_text(path, page)
    return Path(path)


def trace_data(
    result: Result, names: Sequence[str] | None = None, correct: Judgements | None = None
) -> dict[str, Any]:
    """What the page shows, as JSON values.

    Worked value: a row that draws 1, is refused with V = 0, erases it and takes 0 visits the
    prefixes ε, 1, 0: nodes are [[-1, -1], [0, 1], [0, 0]], and its events are
    ["draw", 1, null, 1, 0], ["reject", 1, "-inf", 1, 1], ["backtrack", 0, null, 1, 1] and
    ["argmax", 2, null, 2, 1].
    """
    if not result.trace:
        raise UserError(
            "this result has no trace to replay: run the algorithm with record=True, on a prompt "
            "that is shorter than `length`",
            parameter="result",
        )
    batch = len(result.lengths)
    judged = [None] * batch if correct is None else [_judgement(answer) for answer in correct]
    if len(judged) != batch:
        raise UserError(
            f"correct has {len(judged)} entries, and the result has {batch} rows",
            parameter="correct",
        )
    if names is not None:
        largest = max(
            int(result.tokens.max()) if result.tokens.numel() else -1,
            max((token for event in result.trace for token in event.tokens), default=-1),
        )
        if largest >= len(names):
            raise UserError(
                f"names has {len(names)} entries, and token {largest} occurs: it needs "
                f"{largest + 1}, one per token",
                parameter="names",
            )
    by_row: list[list[Event]] = [[] for _ in range(batch)]
    for event in result.trace:
        by_row[event.row].append(event)
    return {"rows": [_row(result, row, by_row[row], judged[row]) for row in range(batch)]}


def _row(result: Result, row: int, events: Sequence[Event], correct: bool | None) -> dict[str, Any]:
    start, end = int(result.prompt_lengths[row]), int(result.lengths[row])
    tokens = result.tokens[row, :end].tolist()
    missing = max((event.prompt - start for event in events), default=0)
    strings = [(UNKNOWN,) * (event.prompt - start) + event.tokens for event in events]
    nodes, number = _tree([(UNKNOWN,) * missing, *strings])
    generated, erased = _so_far(events, strings, missing, end - start)
    costs = result.costs
    totals = {
        name: int(getattr(costs, name)[row])
        for name in ("generator_calls", "verifier_calls", "generated", "erased")
    }
    # Where a trace does not tell every token (a law looked at, a candidate dropped), its running
    # counts would be wrong: the page then has the totals alone.
    known = bool(events) and (generated[-1], erased[-1]) == (totals["generated"], totals["erased"])
    return {
        "prompt": tokens[:start],
        "final": tokens[start:],
        "complete": bool(result.complete[row]),
        "reason": result.reasons[row],
        "correct": correct,
        "totals": totals,
        "origin": missing,
        "nodes": nodes,
        "events": [
            [event.action, number[string], _json_value(event.log_value), *event[4:6]]
            for event, string in zip(events, strings, strict=True)
        ],
        "generated": generated if known else None,
        "erased": erased if known else None,
    }


def _tree(strings: Sequence[String]) -> tuple[list[list[int]], dict[String, int]]:
    """The prefixes of the strings as nodes, and the number of each."""
    nodes = [[-1, -1]]
    number: dict[String, int] = {(): 0}
    for string in strings:
        for end in range(1, len(string) + 1):
            prefix = string[:end]
            if prefix not in number:
                number[prefix] = len(nodes)
                nodes.append([number[prefix[:-1]], prefix[-1]])
    return nodes, number


def _so_far(
    events: Sequence[Event], strings: Sequence[String], before: int, final: int
) -> tuple[list[int], list[int]]:
    """How many tokens were generated and erased, after each event.

    A refused token that another takes the place of, or that the row ends without, is erased by its
    refusal.
    """
    generated, erased = [0], [0]
    for i, (event, string) in enumerate(zip(events, strings, strict=True)):
        lost = 0
        if event.action in SHRINKING:
            lost = max(before - len(string), 0)
        elif event.action == "reject" and i + 1 == len(events):
            lost = int(final < len(string))
        elif event.action == "reject":
            lost = int(events[i + 1].action in GROWING and strings[i + 1][:-1] == string[:-1])
        generated.append(generated[-1] + (event.action in GROWING))
        erased.append(erased[-1] + lost)
        before = len(string)
    return generated[1:], erased[1:]


def _json_value(log_value: float | None) -> float | str | None:
    return "-inf" if log_value == -math.inf else log_value


def _judgement(answer: Any) -> bool | None:
    return None if answer is None else bool(answer)


def _embedded(data: Any) -> str:
    """JSON that may stand inside a script element: no <, > or & is left in it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _text(folder: str, name: str) -> str:
    return files(f"triptych.lab.{folder}").joinpath(name).read_text("utf-8")

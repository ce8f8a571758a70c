"""A replay of a trace that was saved: of an answer of `triptych gateway`, or of its trace alone.

The tokens that occur get small numbers of their own, so that a page needs no whole vocabulary.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from triptych.apps.gateway.traces import FORMAT
from triptych.core.validation import UserError
from triptych.inference.guided.costs import Costs
from triptych.inference.guided.result import Event, Result

_MOST_BYTES = 1 << 28
_COSTS = ("generator_calls", "generated", "erased", "verifier_calls")


class Saved(NamedTuple):
    """A trace as it was read.

    names   how each token of the result is written
    about   the rule, the options and the promise, in sentences
    """

    result: Result[None]
    names: Sequence[str]
    title: str
    about: str

    def lines(self) -> list[str]:
        """What there is to say on a terminal."""
        totals, rows = self.result.costs.totals(), len(self.result.lengths)
        return [
            f"{self.title}: {rows} texts, {int(self.result.complete.sum())} complete",
            ", ".join(f"{name.replace('_', ' ')} {totals[name]}" for name in _COSTS),
        ]


def read_trace(path: Path) -> Saved:
    """The trace in a file; what is none is one sentence."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UserError(f"{path} has more than {_MOST_BYTES} bytes, the most that is read")
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} cannot be read as JSON: {error}", parameter="path") from None
    try:
        return _saved(_trace_in(found))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{path} is no trace of a generation: {type(error).__name__} {error}", parameter="path"
        ) from None


def _trace_in(found: Any) -> Mapping[str, Any]:
    inside = found.get("triptych", {}).get("trace", found)
    if not isinstance(inside, Mapping) or inside.get("format") != FORMAT:
        raise UserError(
            f"the file holds no trace: an answer of the gateway has one where the request says "
            f'"triptych": {{"trace": true}}, and it says {FORMAT!r}'
        )
    if not inside["rows"]:
        raise UserError("the trace has no rows: no text was written")
    return inside


def _saved(trace: Mapping[str, Any]) -> Saved:
    known = {int(token): place for place, token in enumerate(trace["names"])}
    rows, batch = trace["rows"], len(trace["rows"])
    whole = [[known[t] for t in (*row["prompt"], *row["tokens"])] for row in rows]
    table = torch.full((batch, max(map(len, whole))), -1)
    for place, row in enumerate(whole):
        table[place, : len(row)] = torch.tensor(row, dtype=torch.long)
    events = [
        Event(
            place,
            action,
            tuple(known[token] for token in tokens),
            -math.inf if value == "-inf" else None if value is None else float(value),
            int(generator_calls),
            int(verifier_calls),
            int(prompt),
        )
        for place, row in enumerate(rows)
        for action, tokens, value, generator_calls, verifier_calls, prompt in row["events"]
    ]
    costs = Costs.empty(batch, torch.device("cpu"))
    for name in _COSTS:
        setattr(costs, name, torch.tensor([int(row["costs"][name]) for row in rows]))
    complete = torch.tensor([bool(row["complete"]) for row in rows])
    nobody = torch.zeros(batch, dtype=torch.bool)
    result = Result(
        table,
        torch.tensor([len(row) for row in whole]),
        tuple(events),
        costs,
        torch.tensor([len(row["prompt"]) for row in rows]),
        complete,
        nobody,
        nobody,
        tuple(row["reason"] for row in rows),
        None,
    )
    options = ", ".join(f"{name} = {value}" for name, value in trace["options"].items())
    about = [f"Rule: {trace['rule']}.", f"Settings: {options}." if options else ""]
    about.append(f"Promise: {trace['promise']}.")
    names = [str(name) for name in trace["names"].values()]
    return Saved(result, names, str(trace["title"]), " ".join(filter(None, about)))

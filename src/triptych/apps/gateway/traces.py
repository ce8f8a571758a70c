"""All that happened to the texts of a request, as JSON that `triptych replay` opens.

    {"format": "triptych trace 1", "title": ..., "algorithm": ..., "options": ..., "promise": ...,
     "names": {"17": "ab"}, "rows": [{"prompt": [...], "tokens": [...], "events": [...]}]}

`names` has the text of each token that occurs. An event is [action, tokens, log V, generator
calls, verifier calls, tokens of the prompt]; log V is null where nobody asked, "-inf" where V is 0.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from triptych.inference.guided.algorithm import AnyAlgorithm
from triptych.inference.guided.result import Result

FORMAT = "triptych trace 1"


def trace_row(
    result: Result[Any], row: int, decode: Callable[[Sequence[int]], str]
) -> dict[str, Any]:
    """One row of a recorded result."""
    start, end = int(result.prompt_lengths[row]), int(result.lengths[row])
    tokens = result.tokens[row, :end].tolist()
    events = [event for event in result.trace if event.row == row]
    occurring = {*tokens, *(token for event in events for token in event.tokens)}
    return {
        "prompt": tokens[:start],
        "tokens": tokens[start:],
        "complete": bool(result.complete[row]),
        "reason": None if (reason := result.reasons[row]) is None else str(reason),
        "costs": {
            name: int(getattr(result.costs, name)[row])
            for name in ("generator_calls", "generated", "erased", "verifier_calls")
        },
        "events": [
            [
                event.action,
                list(event.tokens),
                _value(event.log_value),
                event.generator_calls,
                event.verifier_calls,
                event.prompt,
            ]
            for event in events
        ],
        "names": {str(token): decode([token]) for token in sorted(occurring)},
    }


def trace_document(
    rows: Sequence[dict[str, Any]], algorithm: AnyAlgorithm, rule: str
) -> dict[str, Any]:
    """A whole trace."""
    names: dict[str, str] = {}
    for row in rows:
        names |= row["names"]
    return {
        "format": FORMAT,
        "title": algorithm.title,
        "algorithm": algorithm.name,
        "options": algorithm.settings(),
        "promise": algorithm.promise,
        "rule": rule,
        "names": names,
        "rows": [{name: row[name] for name in row if name != "names"} for row in rows],
    }


def _value(log_value: float | None) -> float | str | None:
    return "-inf" if log_value == -math.inf else log_value

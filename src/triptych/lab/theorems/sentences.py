"""The answer of `triptych theorems` as lines of text: the verdict, then a block per theorem."""

import itertools
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

WIDTH = 80
_SHOWN = 12  # numbers of a vector; the rest is in the JSON
_GIVES = {
    "3.3": "a linear head",
    "3.6": "a prompt and a linear head",
    "4.3": "an attention head",
    "4.6": "a prompt and an attention head",
    "C.6": "a prompt and an attention head",
}
_PARAMETERS = {
    "query": "q",
    "key": "Θ_K",
    "position": "β",
    "value": "Θ_V",
    "mix": "bᵀ",
    "embedding": "e",
}


def sentences(answer: dict[str, Any]) -> list[str]:
    """The whole answer, in lines of at most `WIDTH` where a number allows it."""
    lines = [*_wrapped(_verdict(answer)), "", _sizes(answer["model"])]
    if answer["task"] is not None:
        lines += _task(answer["task"], answer["model"])
    for entry in answer["theorems"]:
        lines += ["", *_theorem(entry)]
    return lines


def _verdict(answer: dict[str, Any]) -> str:
    theorems = answer["theorems"]
    if answer["task"] is not None:
        return _verdict_on_task(theorems)
    if answer["model"]["kind"] == "memory HMM":
        cells = [entry["found"]["cell"] for entry in theorems if entry["applies"]]
        if not cells:
            prompted = "4.6" if answer["model"]["cells"] == 1 else "C.6"
            return f"Theorem 4.3 applies to no cell; Theorem {prompted} may, for a --task."
        which = _names("cell", "cells", cells)
        return f"Theorem 4.3 applies to {which}: every task on it has an attention head on R."
    without, prompted = theorems
    if without["applies"]:
        return "Theorem 3.3 applies: every task has a linear head."
    if prompted["applies"] is None:
        return "Theorem 3.3 does not apply; Theorem 3.6 was not decided."
    if prompted["applies"]:
        states = _names("state", "states", prompted["found"]["largest_essential"])
        return f"Theorem 3.3 does not apply; Theorem 3.6 covers every task on {states}."
    return "No theorem applies to this model."


def _verdict_on_task(theorems: Sequence[dict[str, Any]]) -> str:
    right = [f"Theorem {e['theorem']} ({_GIVES[e['theorem']]})" for e in theorems if e["works"]]
    if right:
        return f"This task is covered by {' and by '.join(right)}."
    for entry in theorems:
        if entry["works"] is False:
            theorem, check = f"Theorem {entry['theorem']}", entry["check"]
            if check["inputs"] == 0:
                return f"{theorem} applies, but says nothing: no input that was tried lies in R."
            if check["wrong_labels"] == 0 and check["compared"] == 0:
                return f"{theorem} applies, but every input that was tried is too close to call."
            return f"{theorem} applies, but its head is wrong in floating point: see below."
    if any(entry["applies"] is None for entry in theorems):
        return "No theorem is known to cover this task; one was not decided."
    return "No theorem covers this task."


def _sizes(model: dict[str, Any]) -> str:
    tokens = _count(model["vocab"], "token")
    if model["kind"] == "HMM":
        return f"HMM: {_count(model['states'], 'hidden state')}, {tokens}"
    cells, values = _count(model["cells"], "cell"), _count(model["values"], "value")
    return f"memory HMM: {cells} of {values}, {_count(model['syntax'], 'syntax state')}, {tokens}"


def _task(task: dict[str, Any], model: dict[str, Any]) -> Iterator[str]:
    about = "H_0" if model["kind"] == "HMM" else f"M_{task['cell']}"
    yield from _labelled("task μ = ", _vector(task["weights"]))
    if task["two_rows"]:
        yield "  row 1 minus row 0 of the file: the row with the larger score is the label"
    yield f"  x has label 1 when μ·P[{about} | x] ≥ 0"


def _theorem(entry: dict[str, Any]) -> Iterator[str]:
    verdict = {True: "applies", False: "DOES NOT APPLY", None: "is NOT DECIDED"}[entry["applies"]]
    name = f"Theorem {entry['theorem']}"
    if "cell" in entry["found"]:
        name += f" for cell {entry['found']['cell']}"
    yield f"{name} {verdict}"
    yield f"  {entry['statement']}"
    for place, condition in enumerate(entry["conditions"]):
        sign = "holds" if condition["holds"] else "FAILS"
        yield f"  {sign}  {_margin(condition):<9}  {condition['name']}"
        if place == 0 or not condition["holds"]:  # the first is what the theorem is about
            yield from _wrapped(condition["meaning"], " " * 20)
    if entry["undecided"]:
        yield from _wrapped(entry["undecided"], "  ")
    yield from _found(entry)
    if entry["witness"]:
        yield from _witness(entry["witness"], entry["found"])
    if entry["check"]:
        yield from _check(entry["check"])


def _margin(condition: dict[str, Any]) -> str:
    """The margin, where it is one: the chain is ergodic or not, and stationary up to an error."""
    if condition["name"].startswith("ergodic"):
        return ""
    return _number(condition["margin"])


def _found(entry: dict[str, Any]) -> Iterator[str]:
    found = entry["found"]
    if "recoverable" in found:
        yield from _labelled("  recoverable syntax states S* = ", _set(found["recoverable"]))
        if entry["applies"]:
            yield "  R: the inputs with a position where the other tokens leave only"
            yield f"     hidden states (cell {found['cell']}, S*) possible"
    stationarity = entry["conditions"][-1]
    if found.get("stationary_law") and not stationarity["holds"]:
        yield from _labelled("  it would hold for initial = ", _vector(found["stationary_law"]))
    if "largest_essential" in found and found["largest_essential"] is not None:
        would = not entry["applies"] and all(c["holds"] for c in entry["conditions"][1:])
        note = "; a task on it would be covered" if would and found["largest_essential"] else ""
        largest = _set(found["largest_essential"])
        yield from _labelled("  largest essential set H* = ", largest + note)
    if found.get("task_without_head"):
        yield from _task_without_head(found["task_without_head"])
    elif "task_without_head" in found and not entry["conditions"][0]["holds"]:
        yield "  no proof was found that some task has no linear head"


def _task_without_head(proof: dict[str, Any]) -> Iterator[str]:
    yield from _labelled("  no linear head computes the task ", _vector(proof["task"]))
    inputs = ["(" + ", ".join(map(str, x)) + ")" for x in proof["inputs"]]
    sides = [
        [x for x, weight in zip(inputs, proof["weights"], strict=True) if weight * sign > 0]
        for sign in (1, -1)
    ]
    if len(inputs) == 2:
        why = f"G_1 is equal on x = {sides[0][0]} and {sides[1][0]}, whose labels differ"
    else:
        one, zero = (", ".join(side[:3]) + (", …" if len(side) > 3 else "") for side in sides)
        why = f"G_1 of a mixture of {one} (label 1) is that of a mixture of {zero} (label 0)"
    yield from _wrapped(why, "    ")


def _witness(witness: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    if "chosen" in witness:
        reached = _set(witness["essential"])
        yield from _labelled("  B = ", f"{_set(witness['chosen'])} reaches H* = {reached}")
    if "prompt" in witness and "values" in found:
        kept = f"1 where M_{found['cell']} is in {_set(found['values'])}, else 0"
        yield from _labelled("  prompt u = ", kept)
        yield f"    [{len(witness['prompt'])}] entries (memory, cell, syntax)"
    elif "prompt" in witness:
        yield from _labelled("  prompt u = ", _vector(witness["prompt"]))
    if isinstance(witness["head"], list):
        yield from _labelled("  head b = ", _vector(witness["head"]))
        return
    yield "  attention head; --json has its arrays"
    for name, symbol in _PARAMETERS.items():
        yield f"    {name:<9} {symbol:<4}{_entries(witness['head'][name])}"


def _entries(values: list[Any]) -> str:
    """The shape of an array, and the entries that are not 0, if they are few."""
    shape: list[int] = []
    part: Any = values
    while isinstance(part, list):
        shape.append(len(part))
        part = part[0]
    flat: list[Any] = values
    for _ in shape[1:]:
        flat = list(itertools.chain.from_iterable(flat))
    top = max(abs(value) for value in flat)
    filled = [(i, value) for i, value in enumerate(flat) if abs(value) > 1e-12 * top]
    many = f"{shape}: {len(filled)} of {len(flat)} entries not 0, the largest {top:.4g}"
    if len(filled) > 4:
        return many
    last = shape[-1]
    where = [f"[{i}]" if len(shape) == 1 else f"[{i // last}, {i % last}]" for i, _ in filled]
    listed = ", ".join(f"{w} = {v:.4g}" for w, (_, v) in zip(where, filled, strict=True))
    told = f"{shape}: 0 but {listed}" if listed else f"{shape}: 0"
    return told if len(told) <= WIDTH - 18 else many


def _check(check: dict[str, Any]) -> Iterator[str]:
    inside, total = check["sampled"], check["sampled"] + check.get("outside_r_sampled", 0)
    none, close = check["impossible_with_prompt"], check["too_close"]
    inputs = f"{check['inputs'] - close} inputs" + (" of R" if "outside_r" in check else "")
    error = f", largest error {_number(check['largest_error'])}" if check["compared"] else ""
    yield f"  checked on {inputs}: {check['wrong_labels']} wrong labels{error}"
    every = f"every possible string up to length {check['every_length']}, "
    every = every if check["every_length"] else ""
    yield f"    {every}{total} sampled of length {check['sampled_length']}"
    if check.get("outside_r"):
        yield f"    {check['outside_r']} more lie outside R; in R are {inside} of {total} sampled"
    if none:
        yield f"    of them {none} are impossible with the prompt, where both sides must be 0"
    if close:
        yield f"    {close} more are too close to 0 to have a sign in floating point"


# ---------------------------------------------------------------------- pieces of lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _number(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.3g}"


def _vector(values: Sequence[float]) -> str:
    shown = ", ".join(f"{value:.6g}" for value in values[:_SHOWN])
    return shown if len(values) <= _SHOWN else f"{shown}, … ({len(values)} in all: --json)"


def _set(members: Sequence[int]) -> str:
    return "{" + ", ".join(map(str, members)) + "}" if members else "none"


def _names(one: str, several: str, members: Sequence[int]) -> str:
    if len(members) == 1:
        return f"{one} {members[0]}"
    return f"{several} {', '.join(map(str, members[:-1]))} and {members[-1]}"


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def _labelled(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=label,
        subsequent_indent=" " * (len(label) - len(label.lstrip()) + 4),
    )

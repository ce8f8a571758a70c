"""Crossed settings: every combination of the values that `--set FIELD=VALUE,VALUE` lists.

    samples=100,400  by  depth=2,3      four settings, the last field turning fastest

Each combination is a plan of its own. Units that two of them plan are run once.
"""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from triptych.core.errors import UserError
from triptych.lab.running.plan import Plan
from triptych.studies.api.study import AnyStudy, Scale

_OPENING, _CLOSING = "[{(", "]})"


class CrossedPlan(NamedTuple):
    """A combination: the values as they were written, in the order of the fields, and its plan."""

    values: tuple[str, ...]
    plan: Plan


class Crossing(NamedTuple):
    """A study at one scale, and its settings crossed."""

    study: AnyStudy
    scale: Scale
    fields: tuple[str, ...]
    points: tuple[CrossedPlan, ...]

    @classmethod
    def of(
        cls,
        study: AnyStudy,
        scale: Scale,
        assignments: Mapping[str, str],
        seeds: int | None = None,
    ) -> "Crossing":
        """All combinations of the values in `assignments`, FIELD -> "VALUE,VALUE"."""
        listed = {name: values_in(text, name) for name, text in assignments.items()}
        if not any(len(values) > 1 for values in listed.values()):
            given = ", ".join(f"{name}={text}" for name, text in assignments.items()) or "nothing"
            raise UserError(
                f"--cross needs several values of a field, as in --set depth=2,3 (given: {given})",
                parameter="cross",
            )
        points = []
        for values in itertools.product(*listed.values()):
            chosen = dict(zip(listed, values, strict=True))
            points.append(CrossedPlan(values, Plan.of(study, scale, chosen, seeds)))
        return cls(study, scale, tuple(listed), tuple(points))


def values_in(text: str, name: str = "the field") -> list[str]:
    """The values between commas; a comma in brackets or quotes is a part of a value.

    >>> values_in("100,400")
    ['100', '400']
    >>> values_in("[100, 400],[1600]")
    ['[100, 400]', '[1600]']
    """
    found, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        else:
            depth += (char in _OPENING) - (char in _CLOSING)
        if char == "," and not depth and not quote:
            found.append("")
        else:
            found[-1] += char
    values = [value.strip() for value in found]
    if "" in values or len(set(values)) < len(values) or depth or quote:
        what = (
            "an empty value"
            if "" in values
            else "a bracket or quote that does not end"
            if depth or quote
            else "a value twice"
        )
        raise UserError(f"--set {name}={text} has {what}", parameter="assign")
    return values

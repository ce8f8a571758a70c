"""What a study must show of its form: units that are planned once and again, rows with types.

No unit is run here. A study whose units depend on anything but its settings plans others in a
worker, and rows that are not the same after JSON are not the ones that a judge will read.
"""

import contextlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy
import torch

from triptych.core.display import cut
from triptych.lab.running.plan import Plan
from triptych.studies.api.records import from_json, to_json
from triptych.studies.api.refutation import Demand
from triptych.studies.api.study import AnyStudy, Claim, Rows


def form_of(study: AnyStudy) -> list[Demand]:
    """Every demand on the form of a study, met or not."""
    return [*_plans(study), *(_rows(study, claim) for claim in study.claims), *_judges(study)]


def _plans(study: AnyStudy) -> Iterator[Demand]:
    for scale in study.settings:
        where = f"the units at {scale.value} scale"
        try:
            with _other_generators(0):
                plan = Plan.of(study, scale)
            with _other_generators(1):
                again = Plan.of(study, scale)
        except Exception as error:  # a user's code may raise anything
            yield Demand("units can be planned", where, "a list of units", _raised(error))
            continue
        count = "" if plan.units else "none"
        yield Demand("there is something to run", where, "a unit at least", count)
        counts = Counter(unit.key for unit in plan.units)
        twice = [str(unit) for unit in plan.units if counts[unit.key] > 1]
        rule = "every unit is planned once"
        yield Demand(rule, where, "distinct units", f"({twice[0]}) twice" if twice else "")
        rule = "the same settings plan the same units"
        yield Demand(rule, where, "the same units, whatever was drawn before", _other(plan, again))
        yield Demand("a unit is data", where, "a unit that JSON gives back", _unlike(plan))


def _other(plan: Plan, again: Plan) -> str:
    keys = [unit.key for unit in plan.units]
    if keys == [unit.key for unit in again.units]:
        return ""
    if sorted(keys) == sorted(unit.key for unit in again.units):
        return "them in another order"
    new = next((unit for unit in again.units if unit.key not in plan.by_key), None)
    return f"({new}) in the second plan alone" if new else f"{len(again.units)} of {len(keys)}"


def _unlike(plan: Plan) -> str:
    """The first unit that is another one when it was written as JSON and read."""
    for unit in plan.by_key.values():
        try:
            if from_json(type(unit), json.loads(json.dumps(to_json(unit)))) != unit:
                return f"another one for {cut(repr(unit), 100)}"
        except Exception as error:
            return _raised(error)
    return ""


def _rows(study: AnyStudy, claim: Claim[Any]) -> Demand:
    """Whether the rows that a claim brings are such as `run` may yield."""
    asked, wanted = f"the rows of {claim.id}", "rows of the study, the same after JSON"
    rule = "rows have the study's types"
    for number, row in enumerate([*claim.held_by, *(r for s in claim.refuted_by for r in s)]):
        try:
            written = json.dumps(study.row_to_json(row, number))
            back = study.row_from_json(json.loads(written))
            if json.dumps(study.row_to_json(back, number)) != written:
                return Demand(rule, asked, wanted, f"another one for {cut(repr(row), 100)}")
        except Exception as error:
            return Demand(rule, asked, wanted, _raised(error))
    return Demand(rule, asked, wanted)


def _judges(study: AnyStudy) -> Iterator[Demand]:
    """Whether judges look at rows that the study has; a kind that it never has is a slip."""
    for claim in study.claims:
        rows = Rows(claim.held_by)
        try:
            claim.verdict(rows)
        except Exception:  # the claim's own rules say so
            continue
        strange = [  # it may ask for a class that several kinds of rows have in common
            kind.__name__
            for kind in rows.asked
            if not any(issubclass(known, kind) or issubclass(kind, known) for known in study.rows)
        ]
        yield Demand(
            "a judge asks for rows that the study has",
            f"the judge of {claim.id}",
            " or ".join(kind.__name__ for kind in study.rows),
            ", ".join(strange),
        )


@contextlib.contextmanager
def _other_generators(seed: int) -> Iterator[None]:
    """Global generators in a state of their own; the caller's are restored."""
    states = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        numpy.random.set_state(states[1])
        torch.set_rng_state(states[2])


def _raised(error: BaseException) -> str:
    return f"{type(error).__name__}: {cut(str(error), 200)}"

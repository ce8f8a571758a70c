"""What of the largest runs to make in this many minutes of one GPU: the most decisive units first.

Studies with results that have no verdict from the largest run come first, the cheapest verdict
first.
Whole studies are taken as long as they fit. The time that is left goes to a part of the next one,
seed by seed, because judges look at every setting. What is stored or bundled is not run again.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from triptych.core.validation import UserError
from triptych.lab.results import evidence
from triptych.lab.results.ranking import Judged
from triptych.lab.results.scales import decided_at
from triptych.lab.running.expected_costs import ExpectedCost, expected_costs
from triptych.lab.running.plan import Plan, PlannedUnit
from triptych.lab.running.store import Store
from triptych.studies.api.study import AnyStudy, Scale

PAPER = Scale.PAPER


class PlannedStudy(NamedTuple):
    """A part of a study's largest run that is to be made.

    open
        Its results without a verdict from the largest run.
    units
        Keys of the units to run, in this order.
    missing, total
        Units that were never run, and units of the whole study.
    seconds
        What the units to run take, one at a time on the GPU or one on each core.
    device
        "cuda", or "cpu" where a GPU does not help.
    """

    plan: Plan
    open: tuple[str, ...]
    units: tuple[str, ...]
    missing: int
    total: int
    seconds: float
    device: str

    @property
    def study(self) -> AnyStudy:
        return self.plan.study


def paper_plans(studies: Mapping[str, AnyStudy]) -> dict[str, Plan]:
    """The plans of the studies that have a largest run, by name."""
    return {
        name: Plan.of(study, PAPER) for name, study in studies.items() if PAPER in study.settings
    }


def paper_plan(
    minutes: float,
    judged: Iterable[Judged],
    plans: Mapping[str, Plan],
    done: Mapping[str, set[str]],
    cores: int | None = None,
) -> list[PlannedStudy]:
    """The units to run in this many minutes, in order.

    judged
        The published results as they stand, on stored and bundled rows.
    plans
        Of the largest runs of all studies; see `paper_plans`.
    done
        Keys of the units that have rows, by study; see `finished_units`.
    cores
        Processes for studies that run on the CPU; all of this machine by default.
    """
    if not 0 < minutes < math.inf:
        raise UserError(
            f"minutes = {minutes:g}: a plan needs a positive number of minutes", parameter="minutes"
        )
    left = 60 * minutes
    cores = cores or os.cpu_count() or 1
    wanted: dict[str, list[str]] = {}
    for line in judged:
        name = line.study or ""
        if name in plans:
            missing = [] if decided_at(line, PAPER) else [line.id]
            wanted[name] = wanted.get(name, []) + missing
    costs = expected_costs()
    whole = []
    for name, ids in wanted.items():
        plan = plans[name]
        todo = [unit for unit in plan.units if unit.key not in done.get(name, set())]
        if todo and name in costs:
            cost = costs[name]
            keys = tuple(unit.key for unit in _seed_by_seed(todo))
            seconds = _seconds(len(todo), cost, cores)
            device = cost.paper_device
            whole.append(
                PlannedStudy(plan, tuple(ids), keys, len(todo), len(plan.units), seconds, device)
            )
    whole.sort(key=_decisiveness)
    chosen = []
    for each in whole:
        if each.seconds <= left:
            chosen.append(each)
            left -= each.seconds
    for each in whole:
        if left > 0 and not any(each.study is other.study for other in chosen):
            part = _part(each, left, costs[each.study.name], cores)
            if part.units:
                chosen.append(part)
                left -= part.seconds
    place = {each.study.name: number for number, each in enumerate(whole)}
    return sorted(chosen, key=lambda each: place[each.study.name])


def finished_units(store: Store | None, studies: Iterable[str]) -> dict[str, set[str]]:
    """Keys of the units of the largest run that are stored or bundled, by study."""
    found = {
        name: {
            unit.key
            for unit in (store.units(name, PAPER) if store else [])
            if unit.status == "done"
        }
        for name in studies
    }
    for path in evidence.files(evidence.folder()):
        if evidence.called(path).endswith(f".{PAPER.value}.json"):
            bundled = evidence.load(path)
            if bundled.study in found:
                found[bundled.study] |= {unit.key for unit in bundled.units}
    return found


def _decisiveness(each: PlannedStudy) -> tuple[bool, float]:
    """Seconds for one more verdict; studies whose results have verdicts already come last."""
    return not each.open, each.seconds / max(len(each.open), 1)


def _seconds(units: int, cost: ExpectedCost, cores: int) -> float:
    at_once = cores if cost.paper_device == "cpu" else 1
    return math.ceil(units / at_once) * cost.paper


def _part(each: PlannedStudy, left: float, cost: ExpectedCost, cores: int) -> PlannedStudy:
    """As many of its units as fit."""
    at_once = cores if cost.paper_device == "cpu" else 1
    fits = int(left // cost.paper) * at_once
    units = each.units[:fits]
    return each._replace(units=units, seconds=_seconds(len(units), cost, cores))


def _seed_by_seed(units: Sequence[PlannedUnit]) -> list[PlannedUnit]:
    return sorted(units, key=lambda unit: unit.seed)

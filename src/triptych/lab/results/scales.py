"""What each result has in the largest run, and how much of the paper plan is done."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from triptych.lab.results.ranking import CODE_RUNS, STATUSES, ClaimFinding, Judged
from triptych.lab.running.expected_costs import expected_costs
from triptych.lab.running.plan import Plan
from triptych.studies.api.study import Scale


class AtScale(NamedTuple):
    """A result at one scale.

    status
        "holds", "fails", "undecided" or "not run yet".
    done, planned
        Units of its study's plan at that scale; those of changed settings are none of them.
    bundled
        The rows came with Triptych.
    """

    status: str
    done: int
    planned: int
    bundled: bool = False

    @property
    def decided(self) -> bool:
        return self.status in ("holds", "fails")


def at_scale(line: Judged, plan: Plan) -> AtScale:
    """A result at the scale of its study's plan."""
    scale = plan.scale.value
    findings = [f for f in line.findings if f.scale == scale and f.status != CODE_RUNS]
    as_planned = [f for f in findings if not f.changed][:1]
    done = as_planned[0].done if as_planned else 0
    units = as_planned[0].planned if as_planned else len(plan.units)
    if findings:
        best = findings[0]  # the strongest comes first
        return AtScale(best.status, done, units, best.bundled)
    return AtScale(STATUSES[3], done, units)


def decided_at(line: Judged, scale: Scale) -> bool:
    """Whether a run at this scale says that the result holds or fails."""

    def decides(finding: ClaimFinding) -> bool:
        return finding.scale == scale.value and finding.status in ("holds", "fails")

    return any(map(decides, line.findings))


class PaperProgress(NamedTuple):
    """How much of the paper plan is done, over all studies that decide a result.

    share
        Of the expected seconds of all units, from 0 to 1.
    decided, results
        Published results with a verdict from the largest run, and those whose study has that scale.
    """

    done: int
    units: int
    share: float
    decided: int
    results: int


def paper_progress(judged: Iterable[Judged], plans: Mapping[str, Plan]) -> PaperProgress:
    """How much of the plans of the largest runs is done, by these runs and the bundled ones."""
    done: dict[str, int] = {}
    units: dict[str, int] = {}
    decided = results = 0
    for line in judged:
        plan = plans.get(line.study or "")
        if plan is None:
            continue
        name, here = plan.study.name, at_scale(line, plan)
        if not line.entry.extension:
            results += 1
            decided += decided_at(line, Scale.PAPER)
        units[name] = max(here.planned, units.get(name, 0))
        done[name] = max(here.done, done.get(name, 0))
    costs = expected_costs()
    each = {name: costs[name].paper if name in costs else 1.0 for name in units}
    total = sum(units[name] * each[name] for name in units)
    share = sum(done[name] * each[name] for name in units) / total if total else 0.0
    return PaperProgress(sum(done.values()), sum(units.values()), share, decided, results)

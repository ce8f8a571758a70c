"""`triptych paper`: what fits into some minutes of one GPU, at the sources' own settings."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from triptych.lab.cli.errors import warn
from triptych.lab.cli.options import Device, Out, Workers
from triptych.lab.cli.stored import DEFAULT_FOLDER
from triptych.lab.plain_text import echo
from triptych.lab.running.interrupts import explain_stop

if TYPE_CHECKING:
    from triptych.lab.results.paper_plan import PlannedStudy
    from triptych.lab.running.store import Store

_BETWEEN_LOOKS_S = 60.0  # so long a part of a study runs before the clock is looked at again


def paper(
    minutes: Annotated[float, typer.Option(help="Minutes of one GPU to plan for.")],
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Print the plan and run nothing.")
    ] = False,
    device: Device = "cuda",
    workers: Workers = None,
    out: Out = DEFAULT_FOLDER,
) -> None:
    """Run what fits into the given minutes of one GPU.

    The most decisive come first: results that have no verdict from the largest run. Rows that are
    stored in the run folder or came with Triptych are not made again, so the same command goes on
    where the last one stopped. Studies that a GPU does not help run on the cores of this machine.

    Example: triptych paper --minutes 60 --plan
    """
    from triptych.core.validation import as_device
    from triptych.lab.results import gathering, terminal
    from triptych.lab.results.paper_plan import finished_units, paper_plan, paper_plans
    from triptych.lab.results.scales import paper_progress
    from triptych.lab.running.discovery import find_studies
    from triptych.lab.running.store import FILE, Store

    studies = find_studies()
    with Store.read(out) if (out / FILE).exists() else nullcontext() as store:
        results = gathering.gather(store)
        done = finished_units(store, studies)
        cores = None if workers is None else max(workers, 1)
        plans = paper_plans(studies)
        plan = paper_plan(minutes, results.published, plans, done, cores)
        for line in plan_lines(plan, minutes):
            typer.echo(line)
        at = paper_progress(results.published, plans)
        typer.echo(
            f"So far: {at.decided} of {at.results} published results have a verdict from the "
            f"largest run; {at.done} of {at.units} units, {at.share:.0%} of the computing."
        )
        if only_plan or not plan:
            raise typer.Exit(0)
    as_device(device, name="--device", here=any(each.device != "cpu" for each in plan))
    _bring_in(plan, out)
    with Store.open(out) as store:
        failed = _run_plan(plan, minutes, store, device, workers)
        results = gathering.gather(store)
    ids = {claim.id for each in plan for claim in each.study.claims}
    terminal.print_results(results, ids=ids, everything=True)
    gathering.write_report_of(results, out / gathering.REPORT)
    typer.echo(f"Open {out / gathering.REPORT}")
    if failed:
        warn(f"{failed} units failed; the report shows their errors")
    chosen = [line for line in results.judged if line.id in ids]
    raise typer.Exit(int(bool(failed) or terminal.failing(chosen)))


def plan_lines(plan: "Sequence[PlannedStudy]", minutes: float) -> list[str]:
    """The plan as a person reads it."""
    from triptych.lab.running.progress import duration

    if not plan:
        return [f"Nothing that is missing fits into {minutes:g} minutes."]
    lines = [f"The plan for {minutes:g} minutes, most decisive first:"]
    for each in plan:
        decides = ", ".join(each.open) or "nothing new: more seeds for verdicts that stand"
        lines.append(
            f"  {each.study.name}: {len(each.units)} of {each.missing} missing units, about "
            f"{duration(each.seconds)} on {each.device}; decides {decides}"
        )
    total = sum(each.seconds for each in plan)
    return [*lines, f"  in all about {duration(total)}"]


def _bring_in(plan: "Sequence[PlannedStudy]", out: Path) -> None:
    """Put bundled rows of these studies into the run folder."""
    from triptych.core.validation import UserError
    from triptych.lab.results import evidence
    from triptych.studies.api.study import Scale

    bundled = {evidence.called(path) for path in evidence.files(evidence.folder())}
    for each in plan:
        name = evidence.file_name(each.study.name, Scale.PAPER)
        if name in bundled:
            try:
                echo("\n".join(evidence.bring_in(out, [name])))
            except UserError as error:  # this folder has other rows of a unit, and keeps them
                warn(str(error))


def _run_plan(
    plan: "Sequence[PlannedStudy]", minutes: float, store: "Store", device: str, workers: int | None
) -> int:
    """Run the units until the minutes are over; how many failed."""
    from triptych.lab.running.announced_time import announced
    from triptych.lab.running.expected_costs import expected_seconds
    from triptych.lab.running.progress import progress_on
    from triptych.lab.running.runner import run_study
    from triptych.lab.running.time_left import Expected, TimeLeft

    end, failed = time.monotonic() + 60 * minutes, 0
    expected = []
    for each in plan:
        seconds = expected_seconds(each.plan, len(each.units))
        expected.append(Expected(each.study.name, len(each.units), seconds))
    with (
        explain_stop(),
        announced(store.folder) as announce,
        progress_on(sys.stderr, time_left=TimeLeft(expected, announce=announce)) as show,
    ):
        for each in plan:
            for keys in parts(each):
                if time.monotonic() + each.seconds / len(each.units) > end:
                    show.say("The minutes are over. The same command continues from here.")
                    return failed
                summary = run_study(
                    each.plan,
                    store=store,
                    workers=workers if each.device == "cpu" or device == "cpu" else None,
                    device="cpu" if each.device == "cpu" else device,
                    progress=show,
                    old_rows="keep",
                    only=keys,
                )
                failed += summary.failed
    return failed


def parts(each: "PlannedStudy") -> "Iterator[tuple[str, ...]]":
    """The units of a study in parts of about a minute, so that a run can stop in time."""
    size = max(1, round(_BETWEEN_LOOKS_S / (each.seconds / len(each.units))))
    for first in range(0, len(each.units), size):
        yield each.units[first : first + size]

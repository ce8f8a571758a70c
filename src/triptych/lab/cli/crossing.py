"""What `triptych run --cross` does: a study at every combination of settings, and a table."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from triptych.lab.cli.errors import warn
from triptych.lab.cli.running import (
    RunOptions,
    choose_old_rows,
    cost_lines,
    with_claims_to_judge,
)
from triptych.lab.plain_text import echo, escape, standard_output
from triptych.lab.running.interrupts import explain_stop

if TYPE_CHECKING:
    from triptych.lab.results.crossings import CrossedRun


def run_crossing(
    names: Sequence[str],
    options: RunOptions,
    out: Path,
    as_json: bool,
    assignments: Sequence[str],
    *,
    report: bool,
) -> None:
    """Run one study at every combination, print what its claims say there, write the report.

    The verdicts of the folder stay as they are: the plan that was there before is put back. Ends
    with `typer.Exit`, code 1 if a unit failed or gave nan.
    """
    from triptych.core.errors import UserError
    from triptych.core.files import refuse_if_locked
    from triptych.core.validation import as_device
    from triptych.lab.results import crossings, gathering
    from triptych.lab.running import selection
    from triptych.lab.running.crossing import Crossing
    from triptych.lab.running.progress import progress_on
    from triptych.lab.running.runner import RunSummary, run_study
    from triptych.lab.running.store import Store
    from triptych.studies.api.records import to_json
    from triptych.studies.api.study import Scale

    if len(names) != 1:
        raise UserError(
            f"--cross runs one study at many settings, and {len(names)} are named",
            parameter="cross",
        )
    refuse_if_locked(out)
    as_device(options.device, name="--device")
    scale = Scale(options.scale.value)
    (chosen,) = selection.choose_studies(names)
    if chosen.file:
        chosen = with_claims_to_judge(chosen, scale)
    study = chosen.study
    assigned = selection.parse_assignments(assignments)
    crossing = Crossing.of(study, scale, assigned, options.seeds)
    plans = [point.plan for point in crossing.points]
    summaries: dict[str, RunSummary] = {}
    with Store.open(out) as store, explain_stop():
        old_rows = choose_old_rows(plans, store, options)
        before = store.units(study.name, scale)
        try:
            with progress_on(sys.stderr) as show:
                for number, (values, plan) in enumerate(crossing.points, 1):
                    pairs = zip(crossing.fields, values, strict=True)
                    label = ", ".join(f"{name}={value}" for name, value in pairs)
                    show.say(f"[{number}/{len(plans)}] {label}")
                    summaries[label] = run_study(
                        plan,
                        store=store,
                        engine=options.engine.value,
                        workers=options.workers,
                        device=options.device,
                        limit_s=options.limit,
                        progress=show,
                        ray_address=options.ray_address,
                        old_rows=old_rows,
                        track=options.track,
                    )
        finally:
            store.put_back(study.name, scale, before)
        run = crossings.look(crossing, store)
        crossings.keep(run, out)
        own = [chosen] if chosen.file else []
        results = gathering.gather(store, own, shown=report)
        gathering.remember(store, results, own)
    if as_json:
        typer.echo(json.dumps(to_json(run), indent=2))
    else:
        _print(run)
        for line in cost_lines(summaries):
            echo(line)
    wrong = False
    for label, summary in summaries.items():
        wrong = wrong or bool(summary.failed or summary.nan)
        if summary.failed:
            warn(f"{label}: {summary.failed} units failed")
        for sentence in summary.nan:
            warn(f"{label}: {sentence}")
    if report:
        typer.echo("Writing the report ...", err=True)
        gathering.write_report_of(results, out / gathering.REPORT, folder=out)
        if not as_json:
            echo(f"\nReport: {out / gathering.REPORT}")
    raise typer.Exit(int(wrong))


def _print(run: "CrossedRun") -> None:
    """A table of verdicts for each claim, and one for each number."""
    from rich.table import Table

    from triptych.lab.results import crossings

    with standard_output() as console:
        units = sum(point.done for point in run.points)
        console.print(f"{run.study}, {run.scale} scale: {len(run.points)} settings, {units} units")
        for name in [*run.claims, *run.measures]:
            titles, rows = crossings.table(run, name)
            table = Table(box=None, pad_edge=False, header_style="bold")
            for title in titles:
                table.add_column(escape(title), overflow="fold")
            for row in rows:
                table.add_row(*map(escape, row))
            heading = name if isinstance(name, str) else name[1]
            console.print(f"\n[bold]{escape(heading)}[/bold]")
            console.print(table)
        console.print(
            "\nA crossing shows where a claim holds. It changes no verdict of the folder."
        )

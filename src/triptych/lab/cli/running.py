"""What `triptych run` and `triptych reproduce` share: run, judge, show, write the report."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from triptych.lab.cli.errors import warn
from triptych.lab.cli.options import EngineName, ScaleName
from triptych.lab.running.interrupts import explain_stop

if TYPE_CHECKING:
    from triptych.lab.results.gathering import Results
    from triptych.lab.running.runner import OldRows, RunSummary
    from triptych.lab.running.selection import Chosen
    from triptych.lab.running.store import Store
    from triptych.studies.api.study import Scale


class RunOptions(NamedTuple):
    """How studies are run, as given on the command line."""

    scale: ScaleName
    seeds: int | None
    device: str
    engine: EngineName
    ray_address: str | None
    workers: int | None
    limit: float | None
    fresh: bool
    keep: bool


def run_studies(
    names: Sequence[str],
    options: RunOptions,
    out: Path,
    as_json: bool,
    assignments: Sequence[str] = (),
) -> None:
    """Run the named studies, or all of ours; print the verdicts; then write the report.

    The report comes last, so that an error in it does not hide the verdicts. Ends with
    `typer.Exit`.
    """
    from triptych.lab.results import gathering, terminal
    from triptych.lab.results.changes import changes, remember_verdicts
    from triptych.lab.running import selection
    from triptych.lab.running.runner import planned
    from triptych.lab.running.store import Store
    from triptych.studies.api.study import Scale

    chosen = selection.choose_studies(names)
    overrides = selection.parse_assignments(assignments)
    scale = Scale(options.scale.value)
    for each in chosen:  # all mistakes are reported before the first unit runs
        planned(each.study, scale, overrides, options.seeds)
    own = [each for each in chosen if each.file]
    with Store.open(out) as store:
        old_rows = _choose_old_rows(chosen, scale, store, options)
        summaries = [_run(each, scale, overrides, store, options, old_rows) for each in chosen]
        results = gathering.gather(store, own)
        gathering.remember(store, results, own)
    remember_verdicts(out, results.judged)
    claims = {claim.id for each in chosen for claim in each.study.claims}
    judged = [line for line in results.judged if line.id in claims]
    if as_json:
        shown = judged if names else results.judged
        typer.echo(json.dumps(terminal.as_json(shown), indent=2))
    elif names:
        terminal.print_results(results, ids=claims, everything=False)
    else:
        terminal.print_summary(results)
    wrong = _report_problems(summaries, results, {each.study.name for each in chosen})
    gathering.write_report_of(results, out / gathering.REPORT, folder=out)
    if not as_json:
        page = out / gathering.REPORT
        for line in terminal.closing(changes(out, results.judged), page, judged):
            typer.echo(line)
    raise typer.Exit(int(wrong or terminal.failing(judged)))


def _run(
    chosen: "Chosen",
    scale: "Scale",
    overrides: Mapping[str, str],
    store: "Store",
    options: RunOptions,
    old_rows: "OldRows",
) -> "RunSummary":
    from triptych.lab.running.progress import progress_on
    from triptych.lab.running.runner import run_study

    with explain_stop():
        return run_study(
            chosen.study,
            scale,
            store=store,
            engine=options.engine.value,
            workers=options.workers,
            device=options.device,
            overrides=overrides,
            seeds=options.seeds,
            limit_s=options.limit,
            progress=progress_on(sys.stderr),
            ray_address=options.ray_address,
            old_rows=old_rows,
        )


def _choose_old_rows(
    chosen: "Sequence[Chosen]", scale: "Scale", store: "Store", options: RunOptions
) -> "OldRows":
    """What to do with rows that older code made, before any unit runs.

    The options decide. Without them a terminal is asked, and elsewhere the run is refused.
    """
    from triptych.core.validation import UserError
    from triptych.lab.running.fingerprint import code_of
    from triptych.lab.running.runner import EditedStudy, refuse_old_rows

    if options.fresh and options.keep:
        raise UserError("--fresh and --keep say opposite things: give one of them")
    if options.fresh or options.keep:
        return "fresh" if options.fresh else "keep"
    for each in chosen:
        try:
            units = store.units(each.study.name, scale)
            refuse_old_rows(each.study, units, code_of(each.study), store.folder)
        except EditedStudy as edited:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            warn(str(edited))
            anew = typer.confirm("Make these rows anew? (no keeps them)", default=True, err=True)
            return "fresh" if anew else "keep"
    return "ask"


def _report_problems(
    summaries: "Sequence[RunSummary]", results: "Results", studies: set[str]
) -> bool:
    """Print failed units, rows with a nan and figures that raise; whether there are any."""
    from triptych.lab.results.ranking import NotDrawn

    failed = sum(summary.failed for summary in summaries)
    if failed:
        warn(f"{failed} units failed; the report shows their errors")
    for summary in summaries:
        for sentence in summary.nan:
            warn(sentence)
    older = sum(summary.older for summary in summaries)
    if older:
        warn(f"{older} units were made by other code than today's; --fresh makes them anew")
    for problem in results.problems:
        warn(problem)
    undrawn = any(
        isinstance(figure, NotDrawn)
        for run in results.runs
        if run.study in studies and not run.shipped
        for figure in run.figures
    )
    return bool(failed or undrawn or any(summary.nan for summary in summaries))

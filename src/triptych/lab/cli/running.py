"""What `triptych run` and `triptych reproduce` share: run, judge, show, write the report."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from triptych.lab.cli.errors import warn
from triptych.lab.cli.options import EngineName, ScaleName
from triptych.lab.plain_text import echo
from triptych.lab.running.interrupts import explain_stop

if TYPE_CHECKING:
    from triptych.lab.results.gathering import Results
    from triptych.lab.running.plan import Plan
    from triptych.lab.running.runner import OldRows, RunSummary
    from triptych.lab.running.selection import ChosenStudy
    from triptych.lab.running.store import Store
    from triptych.lab.running.time_left import Expected
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
    beyond: bool = True,
    report: bool = True,
) -> None:
    """Run the named studies, or those of the ledger; print the verdicts; then write the report.

    Verdicts are also shown as they fall. The report comes last, so that an error in it does not
    hide them. Ends with `typer.Exit`.

    beyond
        Where none is named, run the studies that decide no published result too.
    report
        Write the report. Without it no figure is made either.
    """
    from triptych.core.files import refuse_if_locked
    from triptych.core.validation import as_device

    refuse_if_locked(out)
    as_device(options.device, name="--device", here=options.engine is not EngineName.ray)
    from triptych.lab.results import gathering, terminal
    from triptych.lab.results.changes import changes, remember_verdicts
    from triptych.lab.running import selection
    from triptych.lab.running.plan import Plan
    from triptych.lab.running.store import Store
    from triptych.studies.api.study import Scale

    scale, left_out = Scale(options.scale.value), list[str]()
    if names:
        chosen = selection.choose_studies(names)
    else:
        chosen, left_out = selection.published_studies(beyond=beyond)
    overrides = selection.parse_assignments(assignments)
    plans = {  # all mistakes are reported before the first unit runs
        each.study.name: Plan.of(each.study, scale, overrides, options.seeds) for each in chosen
    }
    if not names:
        chosen = selection.early_verdicts_first(chosen, plans)
    own = [_with_claims_to_judge(each, scale) for each in chosen if each.file]
    with Store.open(out) as store:
        old_rows = _choose_old_rows([plans[each.study.name] for each in chosen], store, options)
        summaries = _run_all(chosen, plans, store, options, old_rows)
        results = gathering.gather(store, own, shown=report)
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
    if not as_json:
        for line in cost_lines(summaries):
            echo(line)
    wrong = _report_problems(list(summaries.values()), results, set(summaries))
    if report:
        typer.echo("Writing the report ...", err=True)
        gathering.write_report_of(results, out / gathering.REPORT, folder=out)
    if not as_json:
        if left_out:
            typer.echo(
                f"{len(left_out)} studies go beyond the published results ({', '.join(left_out)}): "
                "`triptych reproduce --all` runs them too"
            )
        page = out / gathering.REPORT if report else None
        for line in terminal.closing(changes(out, results.judged), page, judged):
            echo(line)
    raise typer.Exit(int(wrong or terminal.failing(judged)))


def _with_claims_to_judge(chosen: "ChosenStudy", scale: "Scale") -> "ChosenStudy":
    """A user's own study with the claims that rows can refute.

    The others are refused. A smoke run decides nothing, so there they are left out with a warning.
    """
    from dataclasses import replace

    from triptych.core.validation import UserError
    from triptych.studies.api.refutation import unmet

    weak = {claim.id: found for claim in chosen.study.claims if (found := unmet(claim))}
    if not weak:
        return chosen
    name, found = next(iter(weak.items()))
    others = f" (and of {len(weak) - 1} more of its claims)" if len(weak) > 1 else ""
    sentence = (
        f"claim {name!r} of study {chosen.study.name} needs better rows to be judged by{others}. "
        f"{'; '.join(map(str, found))}. Every check must fail on rows of refuted_by, and all hold "
        "on held_by: a claim that nothing could refute says nothing"
    )
    if scale.value != "smoke":
        raise UserError(
            f"{sentence}. Mend these rows (`triptych axioms {chosen.file and chosen.file.name}` "
            "checks them), or take the claim out; `--scale smoke` runs the study without it",
            parameter="scale",
        )
    warn(f"{sentence}. It is not judged now, and refused at other scales")
    claims = [claim for claim in chosen.study.claims if claim.id not in weak]
    entries = tuple(entry for entry in chosen.entries if entry.id not in weak)
    return chosen._replace(study=replace(chosen.study, claims=claims), entries=entries)


def cost_lines(summaries: "Mapping[str, RunSummary]") -> list[str]:
    """The processor time of a run, study by study, and in all; and the sum that a report has."""
    ran = {name: summary for name, summary in summaries.items() if summary.done + summary.failed}
    if not ran:
        return []
    from triptych.lab.results.report_text import duration

    lines = ["", "core-seconds of this run"]
    lines += [f"{each.core_seconds:10.1f}  {name}" for name, each in ran.items()]
    total = sum(each.core_seconds for each in ran.values())
    waited = sum(each.seconds for each in ran.values())
    units = sum(each.unit_seconds for each in ran.values())
    return [
        *lines,
        f"{total:10.1f}  in all: {total / 60:.1f} core-minutes, {waited / 60:.1f} min",
        f"{'':10}  The seconds of its units add up to {duration(units)}.",
    ]


def _run_all(
    chosen: "Sequence[ChosenStudy]",
    plans: "Mapping[str, Plan]",
    store: "Store",
    options: RunOptions,
    old_rows: "OldRows",
) -> "dict[str, RunSummary]":
    """Run the studies one after the other; their summaries, by name."""
    from triptych.lab.results.gathering import judge_study
    from triptych.lab.results.ledger import load_ledger
    from triptych.lab.running.announced_time import announced
    from triptych.lab.running.discovery import source_of
    from triptych.lab.running.engines.local import preload
    from triptych.lab.running.progress import progress_on
    from triptych.lab.running.runner import run_study
    from triptych.lab.running.time_left import TimeLeft

    summaries = {}
    entries = [*load_ledger(), *(entry for each in chosen for entry in each.entries)]
    titles = {entry.id: entry.title for entry in entries}
    expected = [_expected(plans[each.study.name], store) for each in chosen]
    if len(chosen) > 1:
        # Every study gets new workers. Its optimiser would import torch._dynamo in each of them.
        modules = [source_of(each.study).partition(":")[0] for each in chosen if not each.file]
        preload([*modules, "torch._dynamo"])
    with (
        explain_stop(),
        announced(store.folder) as announce,
        progress_on(sys.stderr, time_left=TimeLeft(expected, announce=announce)) as show,
    ):
        for each in chosen:
            summaries[each.study.name] = run_study(
                plans[each.study.name],
                store=store,
                engine=options.engine.value,
                workers=options.workers,
                device=options.device,
                limit_s=options.limit,
                progress=show,
                ray_address=options.ray_address,
                old_rows=old_rows,
            )
            if options.scale is ScaleName.smoke:
                continue  # no finding: it shows that the code runs
            scale = plans[each.study.name].scale
            for name, finding in judge_study(store, each, scale).items():
                show.say(f"{finding.status.upper()} {name}: {titles.get(name, each.study.name)}")
    return summaries


def _expected(plan: "Plan", store: "Store") -> "Expected":
    """How many units of a plan are to be run here, and what they are expected to cost."""
    from triptych.lab.running.expected_costs import expected_seconds
    from triptych.lab.running.time_left import Expected

    name = plan.study.name
    done = {unit.key for unit in store.units(name, plan.scale) if unit.status == "done"}
    units = sum(unit.key not in done for unit in plan.units)
    return Expected(name, units, expected_seconds(plan, units))


def _choose_old_rows(plans: "Sequence[Plan]", store: "Store", options: RunOptions) -> "OldRows":
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
    for plan in plans:
        try:
            stored = store.units(plan.study.name, plan.scale, outdated=True)
            units = [unit for unit in stored if unit.key in plan.by_key]
            refuse_old_rows(plan.study, units, code_of(plan.study), store.folder)
        except EditedStudy as edited:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            warn(str(edited))
            anew = typer.confirm("Make these rows again? (no keeps them)", default=True, err=True)
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
        warn(f"{older} units were made by other code than today's; --fresh makes them again")
    for problem in results.problems:
        warn(problem)
    undrawn = any(
        isinstance(figure, NotDrawn)
        for run in results.runs
        if run.study in studies and not run.bundled
        for figure in run.figures
    )
    return bool(failed or undrawn or any(summary.nan for summary in summaries))

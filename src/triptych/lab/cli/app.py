"""The command line. Heavy imports happen inside the commands, so that --help is instant.

A user's mistake is a `UserError`: one sentence on standard error and exit code 2. Any other
exception is a defect and keeps its traceback. `--debug`, anywhere on the line, shows both.
"""

import json
import sys
import traceback
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from triptych.lab.cli.replay import ReplayCommand, replay, trace
from triptych.lab.running.interrupts import explain_stop

if TYPE_CHECKING:
    from triptych.lab.results.gathering import Results
    from triptych.lab.running.runner import OldRows, RunSummary
    from triptych.lab.running.selection import Chosen
    from triptych.lab.running.store import Store

DEBUG = "--debug"


class _Commands(TyperGroup):
    """Runs a command; a user's mistake becomes a sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.obj = DEBUG in args
        return super().parse_args(ctx, [arg for arg in args if arg != DEBUG])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ValueError as error:
            from triptych.core.validation import UserError

            if not isinstance(error, UserError):
                raise
            if ctx.obj:
                traceback.print_exc()
            _warn(str(error))
            raise typer.Exit(2) from error


app = typer.Typer(
    cls=_Commands,
    name="triptych",
    help="How structure in data meets training and inference in language models, exactly.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class ScaleName(StrEnum):
    smoke = "smoke"
    laptop = "laptop"
    paper = "paper"


class EngineName(StrEnum):
    local = "local"
    ray = "ray"


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda or cuda:1.")]
Out = Annotated[Path, typer.Option(help="Run folder: results, cache and report live there.")]
ScaleOption = Annotated[
    ScaleName,
    typer.Option(help="smoke: seconds; laptop: minutes on 2 cores; paper: the source's setting."),
]
Seeds = Annotated[int | None, typer.Option(help="Seeds per setting; the study's own by default.")]
EngineOption = Annotated[
    EngineName, typer.Option(help="local: processes on this machine; ray: a Ray cluster.")
]
Address = Annotated[str | None, typer.Option(help="Ray cluster to join; else one is started.")]
Workers = Annotated[int | None, typer.Option(help="Processes; by default one per core.")]
Limit = Annotated[float | None, typer.Option(help="Seconds that one unit may take.")]
Replace = Annotated[
    bool, typer.Option("--replace", help="Where a unit has other rows, take the new ones.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Make rows anew that other code made.")]
Keep = Annotated[
    bool, typer.Option("--keep", help="Use rows that were made before the study was edited.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Change a setting; may be repeated."),
]


def _version(wanted: bool) -> bool:
    if wanted:
        from triptych import __version__

        typer.echo(__version__)
        raise typer.Exit
    return wanted


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of every error.")] = False,
) -> None:
    """Set options that hold for every command."""


@app.command()
def reproduce(
    scale: ScaleOption = ScaleName.laptop,
    seeds: Seeds = None,
    device: Device = "cpu",
    engine: EngineOption = EngineName.local,
    ray_address: Address = None,
    workers: Workers = None,
    limit: Limit = None,
    fresh: Fresh = False,
    keep: Keep = False,
    out: Out = Path("runs"),
    as_json: Json = False,
) -> None:
    """Run every study, judge every published result, and write the report.

    What is done already is not run again. Exit code 1 means that a claim fails in your own run, a
    unit failed, rows have a nan or a figure could not be drawn. Shipped evidence never changes it.

    Example: triptych reproduce --scale smoke
    """
    asked = _Asked(scale, seeds, device, engine, ray_address, workers, limit, (), fresh, keep)
    _run_studies([], asked, out, as_json)


@app.command()
def run(
    studies: Annotated[
        list[str], typer.Argument(help="Names of studies, or Python files of your own.")
    ],
    scale: ScaleOption = ScaleName.laptop,
    seeds: Seeds = None,
    device: Device = "cpu",
    engine: EngineOption = EngineName.local,
    ray_address: Address = None,
    workers: Workers = None,
    limit: Limit = None,
    assign: Set = None,
    fresh: Fresh = False,
    keep: Keep = False,
    out: Out = Path("runs"),
    as_json: Json = False,
) -> None:
    """Run studies, judge their claims, and write the report.

    Exit code 1 means that a claim of theirs fails in your own run, a unit failed, rows have a nan
    or a figure could not be drawn. Shipped evidence never changes it.

    Example: triptych run query_complexity --scale smoke --set depths=[2,3]
    """
    given = tuple(assign or ())
    asked = _Asked(scale, seeds, device, engine, ray_address, workers, limit, given, fresh, keep)
    _run_studies(studies, asked, out, as_json)


@app.command()
def claims(
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of claims; all of them by default.")
    ] = None,
    out: Out = Path("runs"),
    as_json: Json = False,
) -> None:
    """Print the verdict of every claim with a line per check, from the rows stored so far.

    The strongest evidence comes first: paper scale before laptop scale. Exit code 1 means that a
    claim fails in your own run. Shipped evidence never changes it.

    Example: triptych claims li.tab-3.3 wei.fig-3-left
    """
    from triptych.lab.results import gathering as results
    from triptych.lab.results import terminal

    found = results.gather(_store_if_any(out))
    _refuse_unknown(ids or [], found)
    wanted = set(ids) if ids else None
    chosen = [line for line in found.judged if wanted is None or line.id in wanted]
    if as_json:
        typer.echo(json.dumps(terminal.as_json(chosen), indent=2))
    else:
        terminal.print_results(found, ids=wanted, everything=True)
    for problem in found.problems:
        _warn(problem)
    raise typer.Exit(int(terminal.failing(chosen)))


@app.command()
def rows(
    study: Annotated[str, typer.Argument(help="Name of a study.")],
    scale: Annotated[
        ScaleName | None, typer.Option(help="Of one scale; of all by default.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Rows of one kind, whose columns are then all filled.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, for a spreadsheet.")] = False,
    out: Out = Path("runs"),
) -> None:
    """Print the rows of a study, as JSON lines or as CSV.

    Example: triptych rows head_vs_prompt --csv > rows.csv
    """
    from triptych.lab.running.store import Store
    from triptych.studies.api.study import Scale

    with Store.read(out) as store:
        found = store.records(study, Scale(scale.value) if scale else None, kind)
    if csv:
        _print_csv(found)
    else:
        for row in found:
            typer.echo(json.dumps(row))


@app.command()
def report(
    out: Out = Path("runs"),
    to: Annotated[
        Path | None, typer.Option(help="HTML file; in the run folder by default.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for every figure as an SVG file, too.")
    ] = None,
) -> None:
    """Write the report again from stored rows: one HTML file that opens from disk.

    Example: triptych report --to report.html --figures figures
    """
    from triptych.lab.results import gathering as results

    path = to or out / results.REPORT
    found = results.gather(_store_if_any(out))
    results.write_report_of(found, path)
    for problem in found.problems:
        _warn(problem)
    if figures:
        typer.echo(f"{len(results.write_figures_of(found, figures))} figures in {figures}")
    typer.echo(f"Open {path}")


@app.command()
def export(
    studies: Annotated[
        list[str] | None,
        typer.Argument(help="Names of studies; by default all with finished units."),
    ] = None,
    scale: ScaleOption = ScaleName.paper,
    out: Out = Path("runs"),
    to: Annotated[Path, typer.Option(help="Folder of the files.")] = Path("evidence"),
    replace: Replace = False,
) -> None:
    """Keep finished units as readable files, STUDY.SCALE.json: to commit, or for another machine.

    A file that is there is added to. The same unit with other rows is refused without --replace.

    Example: triptych export exact_heads --scale paper --to evidence
    """
    from triptych.lab.results import evidence
    from triptych.studies.api.study import Scale

    told = evidence.export(out, studies or [], Scale(scale.value), to, replace=replace)
    typer.echo("\n".join(told))


@app.command("import")
def bring_in(
    files: Annotated[
        list[str],
        typer.Argument(help="Files that export wrote; or as exact_heads.paper, one of ours."),
    ],
    out: Out = Path("runs"),
    replace: Replace = False,
) -> None:
    """Put kept units into a run folder, so that a run there does only what is missing.

    They count as your own run then. The same unit with other rows is refused without --replace.

    Example: triptych import evidence/exact_heads.paper.json --out runs
    """
    from triptych.lab.results import evidence

    typer.echo("\n".join(evidence.bring_in(out, files, replace=replace)))


@app.command("list")
def list_all(as_json: Json = False) -> None:
    """List the studies and the structures.

    Example: triptych list
    """
    from triptych.lab.axioms.findings import describe_structures, print_table
    from triptych.lab.running.runner import find_studies

    studies = [
        {
            "study": study.name,
            "question": study.question,
            "claims": ", ".join(claim.id for claim in study.claims) or "none of the ledger",
        }
        for study in find_studies().values()
    ]
    structures = describe_structures()
    if as_json:
        typer.echo(json.dumps({"studies": studies, "structures": structures}, indent=2))
        return
    print_table(studies, {"study": "study", "question": "question", "claims": "claims"})
    typer.echo("")
    print_table(
        structures, {"structure": "structure", "about": "what it is", "examples": "examples"}
    )


@app.command()
def verify(
    file: Annotated[
        Path | None,
        typer.Argument(help="A Python file of your own with an examples() function."),
    ] = None,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Check the laws of every structure and sampler, or of those in FILE, by enumeration.

    Exit code 1 when a law fails.

    Example: triptych verify my_structure.py
    """
    from triptych.lab.axioms import findings

    found = findings.check_examples(file, device)
    if as_json:
        typer.echo(json.dumps(findings.as_json(found), indent=2))
    else:
        findings.print_findings(found)
    if not all(finding.holds for finding in found):
        raise typer.Exit(1)


@app.command()
def check(
    model: Annotated[Path, typer.Argument(help="JSON: {initial, transition, emission[, memory]}.")],
    task: Annotated[
        Path | None, typer.Option(help="JSON: a weight per hidden state or memory value.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say which theorems of Wei, Xie and Ma apply to your HMM, and print prompt and head.

    Exit code 1 when a task is given and no theorem covers it. The formats are in docs/check.md.

    Example: triptych check model.json --task task.json
    """
    from triptych.lab.theorems import checking
    from triptych.lab.theorems import sentences as check_text

    answer = checking.check_model(model, task)
    typer.echo(json.dumps(answer, indent=2) if as_json else "\n".join(check_text.sentences(answer)))
    raise typer.Exit(int(answer["covered"] is False))


app.command("replay", cls=ReplayCommand)(replay)
app.command("trace", cls=ReplayCommand, hidden=True)(trace)


@app.command()
def bench() -> None:
    """Measure speed against peers, in one run on this machine (needs the source repository).

    Example: triptych bench
    """
    import importlib.util
    import subprocess

    if importlib.util.find_spec("benchmarks") is None and not Path("benchmarks").is_dir():
        _warn(
            "the benchmarks are not part of the installed package; "
            "clone the repository and run `make bench`"
        )
        raise typer.Exit(2)
    raise typer.Exit(subprocess.run([sys.executable, "-m", "benchmarks"], check=False).returncode)


@app.command()
def env(as_json: Json = False) -> None:
    """Print versions, device and threads: what to put into a bug report.

    Example: triptych env --json
    """
    from triptych.lab.running.environment import environment

    facts = environment()
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        typer.echo(f"{name:<10} {value}")


# ---------------------------------------------------------------------- behind the commands


class _Asked(NamedTuple):
    """How studies are to be run."""

    scale: ScaleName
    seeds: int | None
    device: str
    engine: EngineName
    ray_address: str | None
    workers: int | None
    limit: float | None
    assignments: tuple[str, ...]
    fresh: bool
    keep: bool


def _run_studies(names: list[str], asked: _Asked, out: Path, as_json: bool) -> None:
    """Run, judge, tell, and write the report, in this order: verdicts never wait for a page."""
    from triptych.lab.results import gathering as results
    from triptych.lab.results import terminal
    from triptych.lab.running import selection
    from triptych.lab.running.runner import planned
    from triptych.lab.running.store import Store
    from triptych.studies.api.study import Scale

    chosen = selection.chosen(names)
    overrides = selection.assigned(asked.assignments)
    scale = Scale(asked.scale.value)
    for each in chosen:  # every mistake is told before the first unit runs
        planned(each.study, scale, overrides, asked.seeds)
    own = [each for each in chosen if each.file]
    with Store.open(out) as store:
        old = _what_to_do_with_old_rows(chosen, scale, store, asked)
        summaries = [_run(each, scale, overrides, store, asked, old) for each in chosen]
        found = results.gather(store, own)
        results.remember(store, found, own)
    claims = {claim.id for each in chosen for claim in each.study.claims}
    mine = [line for line in found.judged if line.id in claims]
    if as_json:
        told = mine if names else found.judged
        typer.echo(json.dumps(terminal.as_json(told), indent=2))
    else:
        terminal.print_results(found, ids=claims if names else None, everything=False)
    wrong = _tell_what_went_wrong(summaries, found, {each.study.name for each in chosen})
    results.write_report_of(found, out / results.REPORT)
    if not as_json:
        typer.echo(f"Open {out / results.REPORT}")
    raise typer.Exit(int(wrong or terminal.failing(mine)))


def _run(
    chosen: "Chosen", scale: Any, overrides: Any, store: "Store", asked: _Asked, old: "OldRows"
) -> "RunSummary":
    from triptych.lab.running.progress import progress_on
    from triptych.lab.running.runner import run_study

    with explain_stop():
        return run_study(
            chosen.study,
            scale,
            store=store,
            engine=asked.engine.value,
            workers=asked.workers,
            device=asked.device,
            overrides=overrides,
            seeds=asked.seeds,
            limit_s=asked.limit,
            progress=progress_on(sys.stderr),
            ray_address=asked.ray_address,
            old_rows=old,
        )


def _what_to_do_with_old_rows(
    chosen: "list[Chosen]", scale: Any, store: "Store", asked: _Asked
) -> "OldRows":
    """As the options say; else ask at a terminal and refuse elsewhere, before any unit runs."""
    from triptych.core.validation import UserError
    from triptych.lab.running.fingerprint import code_of
    from triptych.lab.running.runner import EditedStudy, refuse_old_rows

    if asked.fresh and asked.keep:
        raise UserError("--fresh and --keep say opposite things: give one of them")
    if asked.fresh or asked.keep:
        return "fresh" if asked.fresh else "keep"
    for each in chosen:
        try:
            units = store.units(each.study.name, scale)
            refuse_old_rows(each.study, units, code_of(each.study), store.folder)
        except EditedStudy as edited:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            _warn(str(edited))
            anew = typer.confirm("Make these rows anew? (no keeps them)", default=True, err=True)
            return "fresh" if anew else "keep"
    return "ask"


def _tell_what_went_wrong(
    summaries: "list[RunSummary]", found: "Results", studies: set[str]
) -> bool:
    """Failed units, rows of nan, figures that raise: said here, and in the exit code."""
    from triptych.lab.results.judgement import NotDrawn

    failed = sum(summary.failed for summary in summaries)
    if failed:
        _warn(f"{failed} units failed; the report shows their errors")
    for summary in summaries:
        for sentence in summary.nan:
            _warn(sentence)
    older = sum(summary.older for summary in summaries)
    if older:
        _warn(f"{older} units were made by other code than today's; --fresh makes them anew")
    for problem in found.problems:
        _warn(problem)
    undrawn = any(
        isinstance(figure, NotDrawn)
        for run in found.runs
        if run.study in studies and not run.shipped
        for figure in run.figures
    )
    return bool(failed or undrawn or any(summary.nan for summary in summaries))


def _store_if_any(out: Path) -> "Store | None":
    """The store of a run folder, or None if nothing was run yet in the default one."""
    from triptych.lab.running.store import FILE, Store

    if out == Path("runs") and not (out / FILE).exists():
        return None
    return Store.read(out)


def _refuse_unknown(ids: list[str], found: "Results") -> None:
    import difflib

    from triptych.core.validation import UserError

    known = [line.id for line in found.judged]
    for name in ids:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UserError(f"there is no claim {name!r}{hint} (`triptych claims` lists them)")


def _print_csv(rows: list[dict[str, Any]]) -> None:
    """A column per field; lists and dictionaries as JSON."""
    import csv

    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {k: json.dumps(v) if isinstance(v, list | dict) else v for k, v in row.items()}
        )


def _warn(sentence: str) -> None:
    typer.echo(f"triptych: {sentence}", err=True)


if __name__ == "__main__":
    app()

"""The command line. Heavy imports happen inside the commands, so that --help is instant."""

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from triptych.lab.trace_command import trace

app = typer.Typer(
    name="triptych",
    help="How structure in data meets training and inference in language models, exactly.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Answer = TypeVar("Answer")


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
    out: Out = Path("runs"),
    as_json: Json = False,
) -> None:
    """Run every study, judge every published result, and write the report.

    What is done already is not run again. Exit code 1 when a claim fails on your runs; a verdict of
    rows that came with Triptych is shown as kept and never sets it.

    Example: triptych reproduce --scale smoke
    """
    _run_studies([], scale, seeds, device, engine, ray_address, workers, limit, None, out, as_json)


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
    out: Out = Path("runs"),
    as_json: Json = False,
) -> None:
    """Run studies, judge their claims, and write the report.

    Exit code 1 when a claim of theirs fails on your runs; a verdict of rows that came with
    Triptych is shown as kept and never sets it.

    Example: triptych run query_complexity --scale smoke --set depths=[2,3]
    """
    _run_studies(
        studies, scale, seeds, device, engine, ray_address, workers, limit, assign, out, as_json
    )


@app.command()
def claims(out: Out = Path("runs"), as_json: Json = False) -> None:
    """Print the verdict of every published result, from the rows stored so far.

    Verdicts of rows that came with Triptych are shown as kept. Exit code 1 when a claim fails on
    your runs; kept rows never set it.

    Example: triptych claims --json
    """
    from triptych.lab import outcome

    judged = _or_explain(lambda: outcome.judged_in(_store_if_any(out), tell=_warn))
    if as_json:
        typer.echo(json.dumps(outcome.as_json(judged), indent=2))
    else:
        outcome.print_verdicts(judged, everything=True)
    _exit_if_failing(judged)


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
    from triptych.lab import outcome

    path = to or out / outcome.REPORT
    store = _or_explain(lambda: _store_if_any(out))
    _or_explain(lambda: outcome.write_report_of(store, path))
    for name in outcome.unknown_studies(store):
        _warn(f"study {name} came from a file: run it again to see it")
    if figures:
        written = _or_explain(lambda: outcome.write_figures_of(store, figures))
        typer.echo(f"{len(written)} figures in {figures}")
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
    from triptych.lab import evidence
    from triptych.studies.study import Scale

    wanted, at = studies or [], Scale(scale.value)
    told = _or_explain(lambda: evidence.export(out, wanted, at, to, replace=replace))
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
    from triptych.lab import evidence

    told = _or_explain(lambda: evidence.bring_in(out, files, replace=replace))
    typer.echo("\n".join(told))


@app.command("list")
def list_all(as_json: Json = False) -> None:
    """List the studies and the structures.

    Example: triptych list
    """
    from triptych.lab.runner import find_studies
    from triptych.lab.verification import describe_structures, print_table

    studies = [
        {
            "study": study.name,
            "about": study.about,
            "claims": ", ".join(claim.id for claim in study.claims) or "none of the ledger",
        }
        for study in find_studies().values()
    ]
    structures = describe_structures()
    if as_json:
        typer.echo(json.dumps({"studies": studies, "structures": structures}, indent=2))
        return
    print_table(studies, {"study": "study", "about": "question", "claims": "claims"})
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
    from triptych.lab import verification

    findings = _or_explain(lambda: verification.verify_examples(file, device))
    if as_json:
        typer.echo(json.dumps(verification.as_json(findings), indent=2))
    else:
        verification.print_findings(findings)
    if not all(finding.holds for finding in findings):
        raise typer.Exit(1)


@app.command()
def check(
    model: Annotated[Path, typer.Argument(help="JSON: {initial, transition, emission[, memory]}.")],
    task: Annotated[
        Path | None, typer.Option(help="JSON: a weight per hidden state or memory value.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say which theorems of Wei et al. apply to your HMM or memory HMM, and print prompt and head.

    Exit code 1 when a task is given and no theorem covers it. The formats are in docs/check.md.

    Example: triptych check model.json --task task.json
    """
    from triptych.lab import check_text, checking

    answer = _or_explain(lambda: checking.check_model(model, task))
    typer.echo(json.dumps(answer, indent=2) if as_json else "\n".join(check_text.sentences(answer)))
    raise typer.Exit(int(answer["covered"] is False))


app.command()(trace)


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
    from triptych.lab.environment import environment

    facts = environment()
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        typer.echo(f"{name:<10} {value}")


# ---------------------------------------------------------------------- behind the commands


def _run_studies(
    names: list[str],
    scale: ScaleName,
    seeds: int | None,
    device: str,
    engine: EngineName,
    ray_address: str | None,
    workers: int | None,
    limit: float | None,
    assignments: list[str] | None,
    out: Path,
    as_json: bool,
) -> None:
    from triptych.lab import outcome, selection
    from triptych.lab.progress import progress_on
    from triptych.lab.runner import planned, run_study
    from triptych.lab.store import Store
    from triptych.studies.study import Scale

    chosen = _or_explain(lambda: selection.chosen(names))
    overrides = _or_explain(lambda: selection.assigned(assignments or []))
    for study in chosen:  # every mistake is told before the first unit runs
        _or_explain(lambda study=study: planned(study, Scale(scale.value), overrides, seeds))
    store = _or_explain(lambda: Store.open(out))
    progress = progress_on(sys.stderr)
    failed = 0
    try:
        for study in chosen:
            summary = _or_explain(
                lambda study=study: run_study(
                    study,
                    Scale(scale.value),
                    store=store,
                    engine=engine.value,
                    workers=workers,
                    device=device,
                    overrides=overrides,
                    seeds=seeds,
                    limit_s=limit,
                    progress=progress,
                    ray_address=ray_address,
                )
            )
            failed += summary.failed
    except KeyboardInterrupt:
        typer.echo("\nStopped. What is done is stored; the same command goes on.", err=True)
        raise typer.Exit(130) from None
    judged = _or_explain(lambda: outcome.write_report_of(store, out / outcome.REPORT, chosen))
    mine = {claim.id for study in chosen for claim in study.claims}
    if as_json:
        told = [line for line in outcome.as_json(judged) if not names or line["id"] in mine]
        typer.echo(json.dumps(told, indent=2))
    else:
        outcome.print_verdicts(
            judged if not names else [line for line in judged if line.id in mine], everything=False
        )
        typer.echo(f"Open {out / outcome.REPORT}")
    if failed:
        _warn(f"{failed} units failed; the report shows their errors")
        raise typer.Exit(1)
    _exit_if_failing([line for line in judged if line.id in mine])


def _store_if_any(out: Path) -> Any:
    """The store of a run folder, or None if nothing was run yet in the default one."""
    from triptych.lab.store import FILE, Store

    if out == Path("runs") and not (out / FILE).exists():
        return None
    return Store.read(out)


def _exit_if_failing(judged: list[Any]) -> None:
    from triptych.lab.outcome import failing

    if failing(judged):
        raise typer.Exit(1)


def _warn(sentence: str) -> None:
    typer.echo(f"triptych: {sentence}", err=True)


def _or_explain(action: Callable[[], Answer]) -> Answer:
    """User mistakes are one sentence on standard error and exit code 2, not a traceback."""
    try:
        return action()
    except (OSError, ImportError, ValueError, TypeError, RuntimeError) as error:
        _warn(str(error))
        raise typer.Exit(2) from error


if __name__ == "__main__":
    app()

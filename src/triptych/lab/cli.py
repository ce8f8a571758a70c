"""The command line. Heavy imports happen inside the commands, so that --help is instant."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="triptych",
    help="How structure in data meets training and inference in language models, exactly.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda or cuda:1.")]


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
def verify(
    file: Annotated[
        Path | None,
        typer.Argument(help="A Python file of your own with an examples() function."),
    ] = None,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Check the laws of every structure, or of the structures in FILE, by enumeration.

    Exit code 1 when a law fails.

    Example: triptych verify my_structure.py
    """
    from triptych.lab.verification import verify_examples

    findings = _run(lambda: verify_examples(file, device))
    if as_json:
        typer.echo(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        from triptych.lab.verification import print_findings

        print_findings(findings)
    if not all(finding.holds for finding in findings):
        raise typer.Exit(1)


@app.command()
def reproduce(device: Device = "cpu", as_json: Json = False) -> None:
    """Run everything there is to reproduce, with progress, and say what holds.

    There are no studies yet: this checks the laws of every exact structure, which the studies
    stand on. Example: triptych reproduce
    """
    verify(None, device, as_json)


@app.command("list")
def list_structures(as_json: Json = False) -> None:
    """List the structures and their examples.

    Example: triptych list
    """
    from triptych.lab.verification import describe_structures

    rows = describe_structures()
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    _table(rows, {"structure": "structure", "about": "what it is", "examples": "examples"})


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


def _run(action: Any) -> Any:
    """User mistakes are one sentence on standard error and exit code 2, not a traceback."""
    try:
        return action()
    except (OSError, ImportError, ValueError, TypeError, RuntimeError) as error:
        typer.echo(f"triptych: {error}", err=True)
        raise typer.Exit(2) from error


def _table(rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in columns.values():
        table.add_column(title)
    for row in rows:
        table.add_row(*(escape(str(row[key])) for key in columns))
    width = None if sys.stdout.isatty() else 120
    Console(width=width).print(table)


if __name__ == "__main__":
    app()

"""`triptych report`: the report again, from stored rows."""

from pathlib import Path
from typing import Annotated

import typer

from triptych.lab.cli.errors import warn
from triptych.lab.cli.options import Out
from triptych.lab.cli.stored import DEFAULT_FOLDER, stored_results


def report(
    out: Out = DEFAULT_FOLDER,
    to: Annotated[
        Path | None, typer.Option(help="HTML file; in the run folder by default.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for every figure as an SVG file, too.")
    ] = None,
) -> None:
    """Write the report again, from stored rows.

    It is one HTML file that opens from disk.

    Example: triptych report --to report.html --figures figures
    """
    from triptych.lab.results import gathering

    path = to or out / gathering.REPORT
    results = stored_results(out)
    gathering.write_report_of(results, path)
    for problem in results.problems:
        warn(problem)
    if figures:
        typer.echo(f"{len(gathering.write_figures_of(results, figures))} figures in {figures}")
    typer.echo(f"Open {path}")

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
        Path | None,
        typer.Option(help="The HTML file to write. By default it is in the run folder."),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="A folder for every figure as a file, too; see `triptych figures`."),
    ] = None,
    lecture: Annotated[
        bool,
        typer.Option("--lecture", help="Write a short page of the claims that you name."),
    ] = False,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="The ids of the claims of a lecture."),
    ] = None,
) -> None:
    """Write the report again, from stored rows.

    It is one HTML file that opens from disk. It starts with a summary and some chosen claims;
    everything else is folded and can be searched. With --lecture it is a short page of the claims
    that you name, with their figures.

    Example: triptych report --lecture li.tab-3.3 wei.fig-3-left
    """
    from triptych.core.errors import UserError
    from triptych.lab.results import gathering
    from triptych.lab.results.figure_files import write_figures

    if lecture and not ids:
        raise UserError("--lecture needs the ids of claims; `triptych claims` lists them")
    if ids and not lecture:
        raise UserError(
            f"{ids[0]} is an id without --lecture: add it for a page of these claims",
            parameter="lecture",
        )
    path = to or out / (gathering.LECTURE if lecture else gathering.REPORT)
    results = stored_results(out)
    gathering.write_report_of(results, path, folder=out, lecture=ids or [])
    for problem in results.problems:
        warn(problem)
    if figures:
        typer.echo(f"{len(write_figures(results.runs, figures))} figures in {figures}")
    typer.echo(f"Open {path}")

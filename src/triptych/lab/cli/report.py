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
    slides: Annotated[
        bool, typer.Option("--slides", help="Write slides: chosen claims, one a screen.")
    ] = False,
    claim: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="A claim for the slides, in their order; may be repeated."),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(help="Slides of all claims of this study, or of your own, as my_study.py."),
    ] = None,
) -> None:
    """Write the report again, from stored rows.

    It is one HTML file that opens from disk. It starts with a summary and some chosen claims;
    everything else is folded and can be searched. With --slides it is a talk: a claim a screen,
    with its figure, its checks, what it means, and notes for the speaker. The arrow keys change
    the slide, n shows the notes, and the browser prints a slide a page.

    Example: triptych report --slides --claim li.tab-3.3 --claim wei.fig-3-left
    """
    from triptych.core.errors import UserError
    from triptych.lab.results import gathering
    from triptych.lab.results.figure_files import write_figures
    from triptych.lab.results.slides import claims_of

    if (claim or study) and not slides:
        name = "claim" if claim else "study"
        raise UserError(f"--{name} chooses slides: add --slides", parameter=name)
    path = to or out / (gathering.SLIDES if slides else gathering.REPORT)
    results = stored_results(out)
    if slides:
        ids = [*(claim or []), *(claims_of(study, results.runs) if study else [])]
        count = gathering.write_slides_of(results, path, ids)
        typer.echo(f"{count} slides")
    else:
        gathering.write_report_of(results, path, folder=out)
    for problem in results.problems:
        warn(problem)
    if figures:
        typer.echo(f"{len(write_figures(results.runs, figures))} figures in {figures}")
    typer.echo(f"Open {path}")

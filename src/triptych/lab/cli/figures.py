"""`triptych figures`: every figure as a file."""

from pathlib import Path
from typing import Annotated

import typer

from triptych.lab.cli.errors import warn
from triptych.lab.cli.options import Out
from triptych.lab.cli.stored import DEFAULT_FOLDER, stored_results


def figures(
    to: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder for the files.")],
    formats: Annotated[
        str, typer.Option("--format", help="Formats with commas between: png, pdf, svg.")
    ] = "svg",
    themes: Annotated[
        str, typer.Option("--theme", help="Themes with commas between: light, dark.")
    ] = "light",
    study: Annotated[
        list[str] | None,
        typer.Option(help="Write the figures of this study alone; may be repeated."),
    ] = None,
    out: Out = DEFAULT_FOLDER,
) -> None:
    """Write every figure as a file, from stored rows.

    A file is named STUDY-SCALE-FIGURE.png; figures of bundled rows have -bundled behind the scale,
    and the label of their file if it has one. Titles are drawn, fonts are inside, and an SVG looks
    the same in every program. Dark files have -dark in their name.

    Example: triptych figures figures --format png,pdf --theme light,dark
    """
    from triptych.core.display import counted
    from triptych.lab.results.figure_files import check_formats, write_figures

    kinds, looks = _parts(formats), _parts(themes)
    check_formats(kinds, looks)
    results = stored_results(out)
    written = write_figures(results.runs, to, formats=kinds, themes=looks, studies=study or ())
    for problem in results.problems:
        warn(problem)
    typer.echo(f"{counted(len(written), 'file')} in {to}")


def _parts(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))

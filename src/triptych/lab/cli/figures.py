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
    width: Annotated[
        str | None,
        typer.Option(
            help="The width of a figure, as 16cm or 6.3in; panels that would be too narrow stand "
            "beneath each other.  [default: 13.4 cm for each panel]"
        ),
    ] = None,
    font: Annotated[
        float, typer.Option(min=4, max=40, help="The size of the letters, in points.")
    ] = 11.5,
    out: Out = DEFAULT_FOLDER,
) -> None:
    """Write every figure as a file, from stored rows.

    A file is named STUDY-SCALE-FIGURE.png; figures of bundled rows have -bundled behind the scale,
    and the label of their file if it has one. Titles are drawn, fonts are inside, and an SVG looks
    the same in every program. Dark files have -dark in their name.

    Example: triptych figures figures --format png,pdf --theme light,dark
    Example: triptych figures figures --format pdf --width 16cm --font 12
    """
    from triptych.core.display import counted
    from triptych.lab.results.drawing import layout
    from triptych.lab.results.figure_files import check_formats, points_of, write_figures

    kinds, looks = _parts(formats), _parts(themes)
    check_formats(kinds, looks)
    points = None if width is None else points_of(width)
    layout(1, points, font)  # refuses what cannot be drawn, before anything is
    results = stored_results(out)
    written = write_figures(
        results.runs, to, formats=kinds, themes=looks, studies=study or (), width=points, font=font
    )
    for problem in results.problems:
        warn(problem)
    typer.echo(f"{counted(len(written), 'file')} in {to}")


def _parts(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))

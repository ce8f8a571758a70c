"""`triptych export` and `triptych import`: finished units as files, and back."""

from pathlib import Path
from typing import Annotated

import typer

from triptych.lab.cli.options import Out, Replace, ScaleName, ScaleOption
from triptych.lab.cli.stored import DEFAULT_FOLDER
from triptych.lab.plain_text import echo


def export_units(
    studies: Annotated[
        list[str] | None,
        typer.Argument(help="Names of studies; by default all with finished units."),
    ] = None,
    scale: ScaleOption = ScaleName.paper,
    out: Out = DEFAULT_FOLDER,
    to: Annotated[Path, typer.Option(help="Folder of the files.")] = Path("evidence"),
    replace: Replace = False,
) -> None:
    """Write finished units to files for other machines.

    The files are STUDY.SCALE.json.xz, compressed JSON, and can be committed. A file that exists is
    added to. The same unit with other rows is refused without --replace. `triptych evidence FILE`
    prints the JSON.

    Example: triptych export exact_heads --scale paper --to evidence
    """
    from triptych.lab.results import evidence
    from triptych.studies.api.study import Scale

    lines = evidence.export(out, studies or [], Scale(scale.value), to, replace=replace)
    echo("\n".join(lines))


def import_units(
    files: Annotated[
        list[str],
        typer.Argument(help="Files that export wrote; or as exact_heads.paper, one of ours."),
    ],
    out: Out = DEFAULT_FOLDER,
    replace: Replace = False,
) -> None:
    """Put exported units into a run folder.

    A run there does only what is missing. The units count as your own run then. The same unit
    with other rows is refused without --replace.

    Example: triptych import exact_heads.paper --out runs
    """
    from triptych.lab.results import evidence

    echo("\n".join(evidence.bring_in(out, files, replace=replace)))

"""`triptych evidence`: the bundled files, and one of them as JSON."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from triptych.lab.plain_text import echo


def evidence(
    name: Annotated[
        str | None,
        typer.Argument(help="A file to print, or as exact_heads.paper, one of ours."),
    ] = None,
    pack: Annotated[
        Path | None,
        typer.Option(help="Compress the plain files of a folder.", metavar="FOLDER"),
    ] = None,
) -> None:
    """List the bundled files of rows, or print one as JSON.

    A file holds the finished units of a study with their rows, settings, device, versions and code.
    It is compressed (xz).

    Example: triptych evidence exact_heads.paper > exact_heads.json
    """
    from triptych.core.validation import UserError
    from triptych.lab.results import evidence as files
    from triptych.lab.results.packed import called, read

    if pack is not None:
        if name is not None:
            raise UserError(f"give a name ({name}) or --pack {pack}, not both", parameter="pack")
        told = files.pack(pack)
        echo("\n".join(told or [f"{pack} has no plain file of evidence"]))
    elif name is not None:
        sys.stdout.write(read(files.named(name)))
    else:
        where = files.folder()
        for path in files.files(where):
            echo(f"{path.stat().st_size:>10,} bytes  {called(path).removesuffix('.json')}")
        if where is None:
            raise UserError("no rows came with Triptych")

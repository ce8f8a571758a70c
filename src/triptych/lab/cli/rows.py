"""`triptych rows`: the stored rows of a study, for other programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from triptych.lab.cli.options import Out, ScaleName
from triptych.lab.cli.stored import DEFAULT_FOLDER
from triptych.lab.plain_text import plain

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def rows(
    study: Annotated[str, typer.Argument(help="Name of a study.")],
    scale: Annotated[
        ScaleName | None, typer.Option(help="Of one scale; of all by default.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Rows of one kind, whose columns are then all filled.")
    ] = None,
    csv: Annotated[
        bool,
        typer.Option(
            "--csv",
            help="Print CSV, for a spreadsheet: a text that begins as a formula does gets an "
            "apostrophe, and control characters are written as \\x1b. JSON has them as they are.",
        ),
    ] = False,
    out: Out = DEFAULT_FOLDER,
) -> None:
    """Print the rows of a study, as JSON lines or as CSV.

    Example: triptych rows head_vs_prompt --csv > rows.csv
    """
    from triptych.lab.running.store import Store
    from triptych.studies.api.study import Scale

    with Store.read(out) as store:
        records = store.records(study, Scale(scale.value) if scale else None, kind)
    if csv:
        _print_csv(records)
    else:
        for record in records:
            typer.echo(json.dumps(record))


def _print_csv(records: Sequence[Mapping[str, Any]]) -> None:
    """A column per field; lists and dictionaries as JSON, and no text that a spreadsheet runs."""
    import csv

    columns = list(dict.fromkeys(name for record in records for name in record))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(map(_cell, columns))
    for record in records:
        writer.writerow([_cell(record.get(name)) for name in columns])


def _cell(value: Any) -> Any:
    """A value for a spreadsheet, which takes a text for a formula by its first character.

    Worked value: of the text "=1+1" it is "'=1+1", and of the number -1.5 it is the number.
    """
    if isinstance(value, list | dict):
        return json.dumps(value)
    if not isinstance(value, str):
        return value
    return ("'" if value.startswith(_FORMULA) else "") + plain(value)

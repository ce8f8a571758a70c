"""`triptych rows`: the stored rows of a study, for other programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from triptych.lab.cli.options import Out, ScaleName
from triptych.lab.cli.stored import DEFAULT_FOLDER


def rows(
    study: Annotated[str, typer.Argument(help="Name of a study.")],
    scale: Annotated[
        ScaleName | None, typer.Option(help="Of one scale; of all by default.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Rows of one kind, whose columns are then all filled.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, for a spreadsheet.")] = False,
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
    """A column per field; lists and dictionaries as JSON."""
    import csv

    columns = list(dict.fromkeys(name for record in records for name in record))
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow(
            {k: json.dumps(v) if isinstance(v, list | dict) else v for k, v in record.items()}
        )

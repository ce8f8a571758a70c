"""`triptych rows`: the stored rows of a study, for other programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from triptych.lab.cli.errors import warn
from triptych.lab.cli.options import Out, ScaleName
from triptych.lab.cli.stored import DEFAULT_FOLDER
from triptych.lab.plain_text import plain

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def rows(
    study: Annotated[str, typer.Argument(help="Name of a study.")],
    scale: Annotated[
        ScaleName | None, typer.Option(help="Rows of one scale (default: all).")
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
    parquet: Annotated[
        Path | None,
        typer.Option(
            help="Write a Parquet file instead, for pandas, polars or DuckDB (the extra tables).",
            show_default=False,
        ),
    ] = None,
    bundled: Annotated[
        bool,
        typer.Option("--bundled", help="Print the rows that came with Triptych, not your own."),
    ] = False,
    crossed: Annotated[
        bool,
        typer.Option("--crossed", help="Print the rows of `run --cross`, with their settings."),
    ] = False,
    out: Out = DEFAULT_FOLDER,
) -> None:
    """Print rows of a study, or write a Parquet file.

    Rows are JSON lines, or a CSV with `--csv`.

    Where the run folder has none of them, the rows that came with Triptych are printed. Then a line
    on standard error says so, and each row has the name of its file.

    Example: triptych rows head_vs_prompt --csv > rows.csv
    Example: triptych rows vgb_errors --bundled --parquet vgb_errors.parquet
    """
    from triptych import __version__
    from triptych.core.display import counted
    from triptych.core.errors import UserError
    from triptych.lab.results.stored_study import table_rows
    from triptych.lab.running.tables import write_parquet
    from triptych.studies.api.study import Scale

    if csv and parquet is not None:
        raise UserError(
            "--csv prints and --parquet writes a file: give one of them", parameter="csv"
        )
    if crossed and bundled:
        sentence = "--crossed has rows of your own run: leave --bundled out"
        raise UserError(sentence, parameter="crossed")
    found = table_rows(
        study,
        out,
        Scale(scale.value) if scale else None,
        kind,
        bundled=bundled,
        may_be_missing=out == DEFAULT_FOLDER,
        crossed=crossed,
    )
    records = found.records
    if found.bundled:
        files = ", ".join(f"{counted(n, 'row')} of {file}" for file, n in found.bundled.items())
        warn(f"these rows are bundled, not of your own run: {files}")
    if parquet is not None:
        about = {
            "study": study,
            "triptych": __version__,
            "rows of": ", ".join(found.bundled) or str(out),
        }
        write_parquet(records, parquet, about)
        typer.echo(f"{counted(len(records), 'row')} of {study} are in {parquet}", err=True)
    elif csv:
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

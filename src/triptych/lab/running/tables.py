"""Rows as a table for other programs: a pandas DataFrame, or a Parquet file.

Every record has the scale, the unit and its seed next to the fields of its row; rows of evidence
name their file too. A field that a row does not have is missing, and a nan stays a nan.
"""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from triptych.core.errors import UserError
from triptych.core.files import write_bytes

_EXTRA = 'pip install "triptych[tables]"'


def frame_of(records: Sequence[Mapping[str, Any]]) -> Any:
    """The records as a DataFrame, a column per field."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise UserError(
            f"a DataFrame needs pandas: {_EXTRA}, or use `triptych rows --csv`"
        ) from error
    return pandas.DataFrame([dict(record) for record in records])


def write_parquet(
    records: Sequence[Mapping[str, Any]], path: Path, about: Mapping[str, str]
) -> None:
    """Write the records as Parquet, a column per field; lists and dictionaries stay such.

    about
        What the file says of itself, in the metadata under "triptych".

    A column whose values have no type in common is refused. Rows of one kind have none.
    """
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        raise UserError(
            f"a Parquet file needs pyarrow: {_EXTRA}, or use `triptych rows --csv`",
            parameter="parquet",
        ) from error
    columns = {}
    for name in dict.fromkeys(name for record in records for name in record):
        values = [record.get(name) for record in records]
        try:
            columns[name] = pyarrow.array(values)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
            kinds = sorted({type(value).__name__ for value in values if value is not None})
            raise UserError(
                f"the column {name!r} has values of several types ({', '.join(kinds)}), and a "
                "Parquet file has one type for a column: --kind chooses rows of one kind",
                parameter="kind",
            ) from error
    table = pyarrow.table(columns)
    said = (table.schema.metadata or {}) | {b"triptych": json.dumps(dict(about)).encode()}
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table.replace_schema_metadata(said), buffer)
    write_bytes(path, buffer.getvalue())

"""Text files of sentences, one a line, compressed or not."""

import gzip
from pathlib import Path

from triptych.core.validation import UserError


def read_lines(folder: Path, name: str) -> list[str]:
    """The lines of a file, compressed or not."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            try:
                if path.suffix == ".gz":
                    with gzip.open(path, "rt", encoding="utf-8") as file:
                        return file.read().splitlines()
                return path.read_text("utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise UserError(f"{path} cannot be read as text in UTF-8: {error}") from error
    raise UserError(f"{folder} has no file {name} (or {name}.gz)")

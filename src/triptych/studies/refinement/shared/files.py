"""Text files of sentences, one a line, compressed or not."""

import gzip
import zlib
from pathlib import Path

from triptych.core.validation import UserError
from triptych.models.pretrained.catalogue import CATALOGUE
from triptych.models.pretrained.fetching import cache_folder


def find_folder(data: str | Path) -> Path:
    """A folder, or the folder of a corpus that `triptych fetch` has brought."""
    for folder in (Path(data), cache_folder() / data):
        if folder.is_dir():
            return folder
    if str(data) in CATALOGUE:
        raise UserError(f"{data} is not here; bring it with `triptych fetch {data}`")
    raise UserError(f"there is no folder {data}, here or in {cache_folder()}")


def read_lines(folder: Path, name: str) -> list[str]:
    """The lines of a file, compressed or not.

    A line ends at a newline and nowhere else: other signs that Unicode calls line ends stay in the
    text, so that aligned files stay aligned.
    """
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            try:
                content = path.read_bytes()
                content = gzip.decompress(content) if path.suffix == ".gz" else content
                text = content.decode("utf-8-sig")
            except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
                raise UserError(f"{path} cannot be read as text in UTF-8: {error}") from error
            lines = text.split("\n")
            if not lines[-1]:  # what stands after the last newline
                lines.pop()
            return [line.removesuffix("\r") for line in lines]
    raise UserError(f"{folder} has no file {name} (or {name}.gz)")

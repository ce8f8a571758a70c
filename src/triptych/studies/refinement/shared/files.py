"""Text files of sentences, one a line, compressed or not."""

import gzip
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

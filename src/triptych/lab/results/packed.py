"""Texts compressed as `NAME.json.xz`, and the same texts as plain files `NAME.json`.

Rows of studies are numbers in JSON, of which a seventh is left by xz. Both forms are read, and the
compressed one is written. The name without `.xz` is what both are called.
"""

import lzma
from pathlib import Path

from triptych.core.errors import UserError
from triptych.core.files import write_bytes

ENDING = ".xz"
_LEVEL = 6
_MOST_BYTES = (
    2**30
)  # of a text; a damaged or hostile file may unpack to more than there is room for


class NotUnpacked(UserError):
    """A file has no text; the sentence says why."""


def called(path: Path) -> str:
    """The name of a file without the ending of the compressed form: exact_heads.paper.json."""
    return path.name.removesuffix(ENDING)


def packed(text: str) -> bytes:
    """A text as xz, without a time or a name: the same text is the same bytes.

    Another version of liblzma may compress otherwise; then the text is still the same.
    """
    return lzma.compress(text.encode("utf-8"), lzma.FORMAT_XZ, lzma.CHECK_CRC64, preset=_LEVEL)


def read(path: Path) -> str:
    """The text of a file, compressed or plain."""
    try:
        data = path.read_bytes()
        return (_unpacked(data) if path.name.endswith(ENDING) else data).decode("utf-8")
    except (OSError, UnicodeDecodeError, lzma.LZMAError, EOFError) as error:
        raise NotUnpacked(f"{called(path)} cannot be read ({error})") from error


def beginning(path: Path, size: int) -> bytes:
    """The first bytes of a file's text; none where it has none."""
    try:
        with lzma.open(path) if path.name.endswith(ENDING) else path.open("rb") as file:
            return file.read(size)
    except (OSError, lzma.LZMAError, EOFError):
        return b""


def write(path: Path, text: str) -> None:
    """Write a text, compressed where the name says so; a file with this text stays as it is."""
    if path.is_file():
        try:
            if read(path) == text:
                return
        except NotUnpacked:  # a damaged file is written again
            pass
    write_bytes(path, packed(text) if path.name.endswith(ENDING) else text.encode("utf-8"))


def _unpacked(data: bytes) -> bytes:
    """One stream of xz, whole and with nothing behind it."""
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    found = stream.decompress(data, _MOST_BYTES)
    if not stream.eof:
        large = len(found) == _MOST_BYTES
        raise EOFError(f"it unpacks to more than {_MOST_BYTES} bytes" if large else "it is cut off")
    if stream.unused_data:
        raise EOFError("something stands behind its end")
    return found

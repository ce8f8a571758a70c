"""Lines of text files: they end at a newline, and what is no text is a sentence."""

import gzip
import zlib
from pathlib import Path

import pytest

from triptych.core.validation import UserError
from triptych.studies.refinement.shared.files import read_lines

ODD = "one\u2028a\nt\x85wo\x0b\x0c\x1c\r\n\nth\rree"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("last", ["", "\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_line_ends_at_a_newline_only(tmp_path: Path, packed: bool, last: str, mark: str) -> None:
    content = (mark + ODD + last).encode()
    name = "train.en.gz" if packed else "train.en"
    (tmp_path / name).write_bytes(gzip.compress(content) if packed else content)
    expected = ["one\u2028a", "t\x85wo\x0b\x0c\x1c", "", "th\rree"]
    assert read_lines(tmp_path, "train.en") == expected


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "train.en").write_bytes(b"")
    assert read_lines(tmp_path, "train.en") == []


def test_broken_files_are_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"ba de fi\n" * 100)
    changed = whole[:10] + b"\x07" + whole[11:]  # there is no block of type 3
    with pytest.raises(zlib.error):
        gzip.decompress(changed)
    for content in (whole[:20], whole[:5], changed, b"no gzip"):
        (tmp_path / "train.en.gz").write_bytes(content)
        with pytest.raises(UserError, match="cannot be read as text"):
            read_lines(tmp_path, "train.en")
    (tmp_path / "train.en").write_bytes(b"ba\xff\n")
    with pytest.raises(UserError, match="cannot be read as text"):
        read_lines(tmp_path, "train.en")

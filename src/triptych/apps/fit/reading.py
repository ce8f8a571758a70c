"""Rows of tokens from a CSV file: empty cells are hidden tokens, and rows differ in length.

Two forms. A wide table has a sequence per line and a token per cell; what is empty behind the last
token of a line is not part of it. A long table has a token per line, a column that names the
sequence, and a header: `--sequence patient --token state`. Its empty cells are all hidden.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from triptych.core.display import counted
from triptych.core.validation import UserError

MAX_CELLS = 50_000_000


class Table(NamedTuple):
    """rows        tokens as numbers, None where one is hidden
    vocabulary   the text of every token, in the order of their numbers
    notes        what looks odd about the file
    """

    rows: list[list[int | None]]
    vocabulary: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def hidden(self) -> int:
        return sum(cell is None for row in self.rows for cell in row)


def read_table(
    file: Path,
    *,
    header: bool = False,
    sequence: str | None = None,
    token: str | None = None,
    missing: Sequence[str] = (),
    vocabulary: Sequence[str] = (),
) -> Table:
    """The sequences of a file. With a vocabulary, other tokens are refused.

    Worked value: the lines "a,,b" and "b" are the rows 0, hidden, 1 and 1 of the vocabulary a, b.
    """
    lines = _lines(file)
    if (sequence is None) != (token is None):
        raise UserError(
            "a long table needs both: the column of the sequence and that of the token",
            parameter="token" if token is None else "sequence",
        )
    gone, notes = {"", *missing}, list[str]()
    if sequence is not None and token is not None:
        texts = _long(file, lines, sequence, token, gone)
    else:
        texts = [_without_end(line, gone) for line in lines[1 if header else 0 :]]
        empty = sum(not line for line in texts)
        texts = [line for line in texts if line]
        notes += [f"{counted(empty, 'empty line')} left out"] * bool(empty)
        notes += _like_a_header(texts) if not header else []
    if not texts or not any(text is not None for line in texts for text in line):
        raise UserError(f"{file} has no token", parameter="file")
    table = _numbered(file, texts, vocabulary)
    return table._replace(notes=(*notes, *_alike(table.vocabulary)))


def _lines(file: Path) -> list[list[str]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            sample = opened.read(10_000)
            opened.seek(0)
            mark = max(",;\t", key=sample.count)
            lines = [[cell.strip() for cell in line] for line in csv.reader(opened, delimiter=mark)]
    except FileNotFoundError as error:
        raise UserError(f"there is no file {file}", parameter="file") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{file} cannot be read as a table: {error}", parameter="file") from error
    if sum(map(len, lines)) > MAX_CELLS:
        raise UserError(f"{file} has more than {MAX_CELLS} cells", parameter="file")
    return lines


def _without_end(line: list[str], gone: set[str]) -> list[str | None]:
    """The cells up to the last token."""
    cells = [None if cell in gone else cell for cell in line]
    while cells and cells[-1] is None:
        cells.pop()
    return cells


def _long(
    file: Path, lines: list[list[str]], sequence: str, token: str, gone: set[str]
) -> list[list[str | None]]:
    """Tokens by sequence, both in the order of the file."""
    names = lines[0] if lines else []
    for name, column in (("sequence", sequence), ("token", token)):
        if column not in names:
            raise UserError(
                f"{file} has no column {column!r}; its columns are {', '.join(names)}",
                parameter=name,
            )
    at, of = names.index(token), names.index(sequence)
    found: dict[str, list[str | None]] = {}
    for number, line in enumerate(lines[1:], 2):
        if not any(line):
            continue
        if len(line) <= max(at, of):
            raise UserError(
                f"line {number} of {file} has {len(line)} cells, the header {len(names)}",
                parameter="file",
            )
        if not line[of]:
            raise UserError(
                f"line {number} of {file} names no {sequence}, so it belongs to no sequence",
                parameter="file",
            )
        found.setdefault(line[of], []).append(None if line[at] in gone else line[at])
    return list(found.values())


def _numbered(file: Path, texts: list[list[str | None]], vocabulary: Sequence[str]) -> Table:
    """Tokens as numbers, in the order of their texts; numbers among them in their own order."""
    seen = {text for line in texts for text in line if text is not None}
    if vocabulary:
        odd = sorted(seen - set(vocabulary))
        if odd:
            raise UserError(
                f"{file} has the token {odd[0]!r}, which the model does not know; it knows "
                f"{', '.join(vocabulary[:20])}",
                parameter="file",
            )
    words = tuple(vocabulary) or tuple(sorted(seen, key=_order))
    number = {word: i for i, word in enumerate(words)}
    rows = [[None if text is None else number[text] for text in line] for line in texts]
    return Table(rows, words)


def _like_a_header(texts: list[list[str | None]]) -> list[str]:
    """A sentence, if nothing of the first line occurs again."""
    first = {text for text in texts[0] if text is not None} if len(texts) > 2 else set()
    if not first or any(text in first for line in texts[1:] for text in line):
        return []
    return ["no token of line 1 occurs again: is it a header? --header leaves it out"]


def _alike(words: Sequence[str]) -> list[str]:
    """A sentence, if two tokens differ by small and capital letters alone."""
    by_small: dict[str, str] = {}
    for word in words:
        other = by_small.setdefault(word.casefold(), word)
        if other != word:
            return [f"{other!r} and {word!r} are two tokens"]
    return []


def _order(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text

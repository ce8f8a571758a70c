"""Text of others on a terminal: of rows, units, files and models.

Control characters can move the cursor, erase lines, change a window's title and hide text. They are
printed as `\\x1b`, and so are the signs that turn the direction of writing.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 120
"""Of what goes into a file or another program, where COLUMNS is not set."""

_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def plain(text: str, *, lines: bool = True) -> str:
    """The text, with what steers a terminal as an escape; without `lines` line ends too.

    Worked value: of the bell and the letter a it is `\\x07a`.
    """
    shown = _STEERING.sub(lambda found: ascii(found[0])[1:-1], text)
    return shown if lines else shown.replace("\n", "\\n").replace("\t", "\\t")


def escape(text: str, *, lines: bool = True) -> str:
    """The plain text for rich, which takes none of it for markup."""
    from rich.markup import escape as without_markup

    return without_markup(plain(text, lines=lines))


def echo(text: str) -> None:
    """Print a text on standard output, plain on a terminal."""
    import typer

    typer.echo(plain(text) if sys.stdout.isatty() else text)


@contextmanager
def standard_output(*, highlight: bool = False) -> "Iterator[Console]":
    """A console as wide as the terminal, or COLUMNS, or 120; a pipe gets no spaces at ends.

    What is printed on it is written when the block ends without an error.
    """
    from rich.console import Console

    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    console = Console(width=None if known else PIPED_WIDTH, highlight=highlight)
    with console.capture() as written:
        yield console
    text = written.get()
    sys.stdout.write(text if sys.stdout.isatty() else re.sub(r"(?m) +$", "", text))

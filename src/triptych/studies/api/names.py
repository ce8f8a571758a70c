"""Names of studies and figures, which become names of files."""

import re

from triptych.core.errors import UserError

_NAME = re.compile(r"\w[\w.-]*")
_LONGEST = 100


def check_name(what: str, name: str, *, folders: bool = False) -> None:
    """Letters, digits, `_`, `-` and `.`; with `folders` several such parts between slashes."""
    whole = isinstance(name, str) and len(name) <= _LONGEST
    parts = name.split("/") if whole and folders else [name]
    if not whole or not all(_NAME.fullmatch(part) for part in parts):
        from triptych.core.validation import as_text, shown  # imports torch: for the sentence alone

        as_text(what, name)
        raise UserError(
            f"{what} is {shown(name)}; it must have 1 to {_LONGEST} letters, digits, _, - and ."
            + (", in parts between slashes, each of which begins" if folders else ", and begin")
            + " with a letter, a digit or _"
        )

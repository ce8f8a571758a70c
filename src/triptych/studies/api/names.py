"""Names of studies and figures, which become names of files."""

import re

from triptych.core.validation import UserError, as_text, shown

_NAME = re.compile(r"\w[\w.-]*")
_LONGEST = 100


def check_name(what: str, name: str, *, folders: bool = False) -> None:
    """Letters, digits, `_`, `-` and `.`; with `folders` several such parts between slashes."""
    as_text(what, name)
    parts = name.split("/") if folders else [name]
    if len(name) > _LONGEST or not all(_NAME.fullmatch(part) for part in parts):
        raise UserError(
            f"{what} is {shown(name)}; it must have 1 to {_LONGEST} letters, digits, _, - and ."
            + (", in parts between slashes, each of which begins" if folders else ", and begin")
            + " with a letter, a digit or _"
        )

"""What does not work on Windows says so."""

from triptych.core.errors import UserError
from triptych.core.locks import WINDOWS


def refuse_on_windows(what: str, instead: str) -> None:
    """A `UserError` on Windows, and nothing elsewhere."""
    if WINDOWS:
        raise UserError(f"{what} cannot be used on Windows: {instead}", parameter="instead")

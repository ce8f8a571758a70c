"""Models of transformers: where they are, and that nothing of their own code runs unasked.

A model may name classes in Python files of its own (`auto_map` in its JSON files). Loading such a
model runs these files with all rights of the user. Left to itself, transformers asks about it on
standard input.
"""

from pathlib import Path

from triptych.core.errors import UserError
from triptych.core.scalars import shown


def as_place(name: str, where: str | Path, what: str) -> str:
    """A folder, a file or a name on the hub as transformers takes it; `what` says which of them."""
    if isinstance(where, str | Path) and str(where):
        return str(where)
    hint = ""
    if where is None:  # what `cached` says of a model that is not here
        hint = "; `triptych fetch NAME` brings a model here, and cached(NAME) is its path then"
    raise UserError(f"{name} is {shown(where)}; pass {what}{hint}")


def refuse_own_code(where: str, error: Exception) -> None:
    """Raise a sentence if `error` of transformers is that a model needs Python of its own."""
    if "trust_remote_code" in str(error):
        raise UserError(
            f"the model {where!r} needs its own Python files, and they were not run; if you trust "
            "them, pass trust_remote_code=True (--trust-remote-code): they run with all your rights"
        ) from error

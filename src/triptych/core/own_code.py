"""Models that bring Python files of their own: nothing of them runs unless the user says so.

A model of transformers may name classes in its own files (`auto_map` in its JSON files). Loading
such a model runs these files with all rights of the user. Left to itself, transformers asks about
it on standard input.
"""

from triptych.core.errors import UserError


def refuse_own_code(where: str, error: Exception) -> None:
    """Raise a sentence if `error` of transformers is that a model needs Python of its own."""
    if "trust_remote_code" in str(error):
        raise UserError(
            f"the model {where!r} needs its own Python files, and they were not run; if you trust "
            "them, pass trust_remote_code=True (--trust-remote-code): they run with all your rights"
        ) from error

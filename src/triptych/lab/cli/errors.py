"""How errors are shown: a user's mistake is one sentence on standard error and exit code 2.

Any other exception is a defect and keeps its traceback. `--debug`, anywhere on the line, shows the
traceback of both.
"""

import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from triptych.lab.plain_text import plain

DEBUG = "--debug"


class Commands(TyperGroup):
    """Runs a command. A `UserError` becomes a sentence and exit code 2."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.obj = DEBUG in args
        return super().parse_args(ctx, [arg for arg in args if arg != DEBUG])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ValueError as error:
            from triptych.core.errors import UserError

            if not isinstance(error, UserError):
                raise
            if ctx.obj:
                traceback.print_exc()
            warn(str(error))
            raise typer.Exit(2) from error


def warn(sentence: str) -> None:
    """Print a sentence on standard error."""
    typer.echo(f"triptych: {plain(sentence)}", err=True)

"""Old names of commands: they still work, are not listed in the help, and say the new name."""

import functools
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand

from triptych.lab.cli.errors import warn


def renamed(
    app: typer.Typer,
    old: str,
    new: str,
    function: Callable[..., None],
    cls: type[TyperCommand] | None = None,
) -> None:
    """Let `triptych OLD` run the function of `triptych NEW`, after one hint on standard error."""

    @functools.wraps(function)
    def with_hint(*args: Any, **options: Any) -> None:
        warn(f"`triptych {old}` is now `triptych {new}`")
        function(*args, **options)

    app.command(old, cls=cls, hidden=True)(with_hint)

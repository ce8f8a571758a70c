"""`triptych claims`: the verdicts, from stored rows."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from triptych.lab.cli.errors import warn
from triptych.lab.cli.options import Json, Out
from triptych.lab.cli.stored import DEFAULT_FOLDER, stored_results

if TYPE_CHECKING:
    from triptych.lab.results.gathering import Results


def claims(
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of claims; all of them by default.")
    ] = None,
    out: Out = DEFAULT_FOLDER,
    as_json: Json = False,
) -> None:
    """Print the verdict of every claim, with a line per check.

    Verdicts come from the rows stored so far. The strongest evidence comes first: paper
    scale before laptop scale. Exit code 1 means that a claim fails in your own run. Shipped
    evidence never changes it.

    Example: triptych claims li.tab-3.3 wei.fig-3-left
    """
    from triptych.lab.results import terminal

    results = stored_results(out)
    _refuse_unknown(ids or [], results)
    wanted = set(ids) if ids else None
    chosen = [line for line in results.judged if wanted is None or line.id in wanted]
    if as_json:
        typer.echo(json.dumps(terminal.as_json(chosen), indent=2))
    else:
        terminal.print_results(results, ids=wanted, everything=True)
    for problem in results.problems:
        warn(problem)
    raise typer.Exit(int(terminal.failing(chosen)))


def _refuse_unknown(ids: Sequence[str], results: "Results") -> None:
    import difflib

    from triptych.core.validation import UserError

    known = [line.id for line in results.judged]
    for name in ids:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UserError(f"there is no claim {name!r}{hint} (`triptych claims` lists them)")

"""`triptych claims`: the verdicts, from stored rows."""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from triptych.lab.cli.errors import warn
from triptych.lab.cli.options import Json, Out
from triptych.lab.cli.stored import DEFAULT_FOLDER, stored_results

if TYPE_CHECKING:
    from pathlib import Path

    from triptych.lab.results.gathering import Results


class StatusName(StrEnum):
    holds = "holds"
    fails = "fails"
    undecided = "undecided"
    not_run_yet = "not run yet"


class ChapterName(StrEnum):
    tuning = "tuning"
    topics = "topics"
    brackets = "brackets"
    generation = "generation"
    masking = "masking"
    refinement = "refinement"


def claims(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Claims to print with all their checks."),
    ] = None,
    status: Annotated[
        StatusName | None, typer.Option(help="List the claims with this verdict.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="List the claims of a source, such as wei, li, li:3 or own."),
    ] = None,
    chapter: Annotated[
        ChapterName | None, typer.Option(help="List the claims of a chapter.")
    ] = None,
    checks: Annotated[
        bool, typer.Option("--checks", help="Print every check of every listed claim.")
    ] = False,
    bibtex: Annotated[
        bool,
        typer.Option(
            "--bibtex",
            help="Print a citation of each named claim, with the SHA-256 of the rows it rests on.",
        ),
    ] = False,
    out: Out = DEFAULT_FOLDER,
    as_json: Json = False,
) -> None:
    """Print what holds, what fails and what is undecided.

    Verdicts come from the rows stored so far. Give ids to see every check of these claims. The
    strongest evidence comes first: the largest run, then laptop scale. A verdict of a smaller
    setting or another model than the source's says so. Exit code 1 means that a claim fails in your
    own run. Bundled rows never change it.

    Example: triptych claims li.tab-3.3 wei.fig-3-left
    Example: triptych claims --chapter masking --status undecided
    Example: triptych claims wei.thm-3.3 --bibtex
    """
    from triptych.core.errors import UserError
    from triptych.lab.results import ledger, terminal

    results = stored_results(out, shown=False)
    _refuse_unknown(ids or [], results, out)
    own = {line.id for lines in results.own.values() for line in lines}
    chosen = [
        line
        for line in results.judged
        if (not ids or line.id in ids)
        and (status is None or line.status == status.value)
        and (source is None or _is_of(line.entry.source, source, line.id in own))
        and (chapter is None or ledger.chapter(line.entry.source) == chapter.value)
    ]
    if bibtex:
        from triptych.lab.results import citation

        if not ids or as_json:
            what = "prints no JSON" if as_json else "needs the ids of the claims to cite"
            raise UserError(f"--bibtex {what}", parameter="bibtex")
        typer.echo("\n\n".join(citation.bibtex(line, out) for line in chosen))
        raise typer.Exit
    if not chosen and not as_json:
        typer.echo("No claim fits.")
    elif as_json:
        typer.echo(json.dumps(terminal.as_json(chosen), indent=2))
    elif ids or checks:
        named = {line.id for line in chosen}
        terminal.print_results(results, ids=named, everything=True, total=not ids)
    else:
        filtered = bool(status or source or chapter)
        terminal.print_summary(results, chosen if filtered else None)
    for problem in results.problems:
        warn(problem)
    raise typer.Exit(int(terminal.failing(chosen)))


def _is_of(source: str, wanted: str, own: bool) -> bool:
    """Whether `li:3.2.1` is of `li`, `li:3` or `li:3.2`; a user's own claims are of `own`."""
    if own or wanted == "own":
        return own and wanted == "own"
    return source == wanted or (source + ":").startswith((wanted + ":", wanted + "."))


def _refuse_unknown(ids: Sequence[str], results: "Results", folder: "Path") -> None:
    import difflib

    from triptych.core.errors import UserError

    known = [line.id for line in results.judged]
    for name in ids:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UserError(
                f"there is no claim {name!r} in the ledger or in {folder}{hint} (`triptych claims` "
                "lists them; `--out` names another run folder)",
                parameter="folder",
            )

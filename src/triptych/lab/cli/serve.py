"""`triptych serve`: the report, replays and hands-on pages, as a local site."""

from typing import Annotated

import typer

from triptych.lab.cli.errors import warn
from triptych.lab.cli.options import Out
from triptych.lab.cli.stored import DEFAULT_FOLDER

DEFAULT_PORT = 8421


def serve(
    out: Out = DEFAULT_FOLDER,
    demo: Annotated[
        bool, typer.Option("--demo", help="Show the hands-on pages alone, without a run folder.")
    ] = False,
    page: Annotated[
        str,
        typer.Option(
            metavar="PAGE",
            help="The page to open, with its dials, as 'blocks#coupling=1.2&block=2'.",
        ),
    ] = "",
    port: Annotated[
        int, typer.Option(help="The port to listen on; 0 takes a free one.")
    ] = DEFAULT_PORT,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Show a run live, with hands-on pages.

    The pages follow a run while it goes on, and have the report, replays and three experiments
    that the exact engine answers. With --demo there are replays and experiments alone. Only this
    machine can reach them, with the address that is printed. Ctrl-C stops it.

    Example: triptych serve --out runs --open
    Example: triptych serve --demo --page 'hidden-tokens#states=3&stay=0.9' --open
    """
    from triptych.core.errors import UserError
    from triptych.lab.running.store import FILE, Store
    from triptych.lab.serving.pages import offered
    from triptych.lab.serving.server import Server
    from triptych.lab.serving.site import Site

    if demo and out != DEFAULT_FOLDER:
        raise UserError(f"--demo shows no run, and --out {out} names one: give one of them")
    folder = None if demo else out
    if (path := page.partition("#")[0]) not in (known := offered(folder)):
        raise UserError(
            f"there is no page {path!r}; the pages are {', '.join(filter(None, known))}",
            parameter="page",
        )
    if demo:
        pass
    elif out == DEFAULT_FOLDER and not (out / FILE).exists():
        warn(f"there are no results in {out} yet; the page follows a run as soon as it starts")
    else:
        Store.read(out).close()  # says what is wrong with another folder
    with Server(Site(folder), port) as server:
        typer.echo(f"Open {server.address}{page}")
        typer.echo("Ctrl-C stops it.")
        if show:
            typer.launch(server.address + page)
        server.serve_forever()  # Ctrl-C ends the program at once: there is nothing to put in order

"""The command line: the program's own options, and one file per command.

Heavy imports happen inside the commands, so that --help is instant.
"""

from typing import Annotated

import typer

from triptych.lab.cli.audit_grammar import audit_grammar
from triptych.lab.cli.axioms import axioms
from triptych.lab.cli.bench import bench
from triptych.lab.cli.claims import claims
from triptych.lab.cli.denoise import denoise
from triptych.lab.cli.env import env
from triptych.lab.cli.errors import DEBUG, Commands
from triptych.lab.cli.evidence import evidence
from triptych.lab.cli.export_import import export_units, import_units
from triptych.lab.cli.fetch import fetch
from triptych.lab.cli.figures import figures
from triptych.lab.cli.generate import generate
from triptych.lab.cli.law import law
from triptych.lab.cli.list import list_all
from triptych.lab.cli.new import new
from triptych.lab.cli.paper import paper
from triptych.lab.cli.replay import ReplayCommand, replay
from triptych.lab.cli.report import report
from triptych.lab.cli.reproduce import reproduce
from triptych.lab.cli.rows import rows
from triptych.lab.cli.run import run
from triptych.lab.cli.seal import seal, verify_rows
from triptych.lab.cli.serve import serve
from triptych.lab.cli.theorems import theorems
from triptych.lab.cli.topics import topics
from triptych.lab.cli.translate import teach, translate
from triptych.lab.cli.trap import trap

app = typer.Typer(
    cls=Commands,
    name="triptych",
    help="How structure in data meets training and inference in language models, exactly.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> bool:
    if wanted:
        from triptych import __version__

        typer.echo(__version__)
        raise typer.Exit
    return wanted


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of every error.")] = False,
) -> None:
    """Set options that hold for every command."""


app.command()(reproduce)
app.command()(run)
app.command()(paper)
app.command()(claims)
app.command()(rows)
app.command()(report)
app.command()(serve)
app.command()(figures)
app.command("export")(export_units)
app.command("import")(import_units)
app.command()(evidence)
app.command()(seal)
app.command("verify-rows")(verify_rows)
app.command("list")(list_all)
app.command()(new)
app.command()(axioms)
app.command()(theorems)
app.command()(law)
app.command(cls=ReplayCommand)(replay)
app.command()(generate)
app.command()(denoise)
app.command("audit-grammar")(audit_grammar)
app.command()(topics)
app.add_typer(trap, name="trap")
app.command()(translate)
app.command()(teach)
app.command()(fetch)
app.command()(bench)
app.command()(env)


if __name__ == "__main__":
    app()

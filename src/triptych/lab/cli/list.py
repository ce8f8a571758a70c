"""`triptych list`: the studies and structures, and what other installed packages offer."""

import json

import typer

from triptych.lab.cli.options import Json


def list_all(as_json: Json = False) -> None:
    """List the studies and the structures.

    What other installed packages offer by entry points stands at the end, with their names.

    Example: triptych list
    """
    from triptych.core.plugins import GROUPS, plugins
    from triptych.lab.axioms.findings import describe_structures, print_table
    from triptych.lab.running.discovery import find_studies

    studies = [
        {
            "study": study.name,
            "question": study.question,
            "claims": ", ".join(claim.id for claim in study.claims) or "none of the ledger",
        }
        for study in find_studies().values()
    ]
    structures = describe_structures()
    offered = [
        {"group": group, "name": each.name, "package": each.package, "place": each.place}
        for group in GROUPS
        for each in plugins(group).values()
    ]
    if as_json:
        found = {"studies": studies, "structures": structures, "offered": offered}
        typer.echo(json.dumps(found, indent=2))
        return
    print_table(studies, {"study": "study", "question": "question", "claims": "claims"})
    typer.echo("")
    print_table(
        structures, {"structure": "structure", "about": "what it is", "examples": "examples"}
    )
    if offered:
        typer.echo("")
        print_table(
            offered,
            {"group": "offered among", "name": "name", "package": "by", "place": "which is"},
        )

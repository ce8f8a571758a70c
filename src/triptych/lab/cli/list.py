"""`triptych list`: the studies and the structures there are."""

import json

import typer

from triptych.lab.cli.options import Json


def list_all(as_json: Json = False) -> None:
    """List the studies and the structures.

    Example: triptych list
    """
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
    if as_json:
        typer.echo(json.dumps({"studies": studies, "structures": structures}, indent=2))
        return
    print_table(studies, {"study": "study", "question": "question", "claims": "claims"})
    typer.echo("")
    print_table(
        structures, {"structure": "structure", "about": "what it is", "examples": "examples"}
    )

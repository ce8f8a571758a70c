"""`triptych axioms`: what every structure and sampler must satisfy, checked by enumeration."""

import json
from pathlib import Path
from typing import Annotated

import typer

from triptych.lab.cli.options import Device, Json


def axioms(
    file: Annotated[
        Path | None,
        typer.Argument(help="A Python file of your own with an examples() function or a study."),
    ] = None,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Check the axioms of all structures and samplers, or of FILE.

    Every probability is compared with its enumeration. Of a study it checks that every check of
    a claim can fail, that rows have types, and that units are planned once. No unit is run. Exit
    code 1 means that an axiom fails.

    Example: triptych axioms my_structure.py
    Example: triptych axioms my_study.py
    """
    from triptych.lab.axioms import findings

    checked = findings.check_examples(file, device)
    if as_json:
        typer.echo(json.dumps(findings.as_json(checked), indent=2))
    else:
        findings.print_findings(checked)
    if not all(finding.holds for finding in checked):
        raise typer.Exit(1)

"""`triptych env`: what this machine and this installation are."""

import json

import typer

from triptych.lab.cli.options import Json


def env(as_json: Json = False) -> None:
    """Print versions, device and threads, for a bug report.

    Example: triptych env --json
    """
    from triptych.lab.running.environment import environment

    facts = environment()
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        typer.echo(f"{name:<10} {value}")

"""`triptych theorems`: which theorems apply to a user's own model."""

import json
from pathlib import Path
from typing import Annotated

import typer

from triptych.lab.cli.options import Json
from triptych.lab.plain_text import echo


def theorems(
    model: Annotated[Path, typer.Argument(help="JSON: {initial, transition, emission[, memory]}.")],
    task: Annotated[
        Path | None, typer.Option(help="JSON: a weight per hidden state or memory value.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say which theorems of Wei, Xie and Ma apply to your HMM.

    Prints the prompt and the head of the proof. Exit code 1 means that a task is given and no
    theorem covers it. docs/theorems.md has the formats.

    Example: triptych theorems model.json --task task.json
    """
    from triptych.lab.theorems import checking
    from triptych.lab.theorems.sentences import sentences

    answer = checking.check_model(model, task)
    echo(json.dumps(answer, indent=2) if as_json else "\n".join(sentences(answer)))
    raise typer.Exit(int(answer["covered"] is False))

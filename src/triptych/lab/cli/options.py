"""Options that several commands share, with their help."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class ScaleName(StrEnum):
    smoke = "smoke"
    laptop = "laptop"
    paper = "paper"


class EngineName(StrEnum):
    local = "local"
    ray = "ray"


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Device = Annotated[str, typer.Option(help="Compute on this device: cpu, cuda or cuda:1.")]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run the model's own Python files if it needs them: they run with all your rights.",
    ),
]
Out = Annotated[Path, typer.Option(help="The run folder has results, cache and report.")]
ScaleOption = Annotated[
    ScaleName,
    typer.Option(
        help="How large the run is: smoke takes seconds, laptop minutes on 2 cores, and paper is "
        "the largest run, as near to the source as we came."
    ),
]
Seeds = Annotated[int | None, typer.Option(help="Seeds per setting (default: the study's).")]
EngineOption = Annotated[
    EngineName,
    typer.Option(help="Run in local processes, or on a Ray cluster."),
]
Address = Annotated[str | None, typer.Option(help="Join this Ray cluster; else one is started.")]
Workers = Annotated[int | None, typer.Option(help="Number of processes (default: one per core).")]
Limit = Annotated[float | None, typer.Option(help="Time limit per unit, in seconds.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Recompute rows made by other code.")]
Keep = Annotated[
    bool, typer.Option("--keep", help="Use rows that were made before the study was edited.")
]
NoReport = Annotated[
    bool,
    typer.Option(
        "--no-report", help="Print the verdicts alone; `triptych report` writes a report."
    ),
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Where a unit has other rows, take the new ones.")
]

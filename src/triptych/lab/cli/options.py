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
Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda or cuda:1.")]
Out = Annotated[Path, typer.Option(help="Run folder: results, cache and report live there.")]
ScaleOption = Annotated[
    ScaleName,
    typer.Option(help="smoke: seconds; laptop: minutes on 2 cores; paper: the source's setting."),
]
Seeds = Annotated[int | None, typer.Option(help="Seeds per setting; the study's own by default.")]
EngineOption = Annotated[
    EngineName, typer.Option(help="local: processes on this machine; ray: a Ray cluster.")
]
Address = Annotated[str | None, typer.Option(help="Ray cluster to join; else one is started.")]
Workers = Annotated[int | None, typer.Option(help="Processes; by default one per core.")]
Limit = Annotated[float | None, typer.Option(help="Seconds that one unit may take.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Make rows anew that other code made.")]
Keep = Annotated[
    bool, typer.Option("--keep", help="Use rows that were made before the study was edited.")
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Where a unit has other rows, take the new ones.")
]

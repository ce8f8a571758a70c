"""`triptych run`: run some studies, or a study of one's own."""

from enum import StrEnum
from typing import Annotated

import typer

from triptych.lab.cli.options import (
    Address,
    Device,
    EngineName,
    EngineOption,
    Fresh,
    Json,
    Keep,
    Limit,
    NoReport,
    Out,
    ScaleName,
    ScaleOption,
    Seeds,
    Workers,
)
from triptych.lab.cli.running import RunOptions, run_studies
from triptych.lab.cli.stored import DEFAULT_FOLDER


class TrackerName(StrEnum):
    csv = "csv"
    tensorboard = "tensorboard"


def run(
    studies: Annotated[
        list[str], typer.Argument(help="Names of studies, or Python files of your own.")
    ],
    scale: ScaleOption = ScaleName.laptop,
    seeds: Seeds = None,
    device: Device = "cpu",
    engine: EngineOption = EngineName.local,
    ray_address: Address = None,
    workers: Workers = None,
    limit: Limit = None,
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Change a setting; may be repeated."),
    ] = None,
    cross: Annotated[
        bool,
        typer.Option(
            "--cross",
            help="Run every combination of the values that --set lists, as --set depth=2,3, and "
            "print each claim and number at each.",
        ),
    ] = False,
    track: Annotated[
        TrackerName | None,
        typer.Option(
            help="Write what units track, as losses by step, into the run folder: as CSV, or for "
            "TensorBoard (the extra trackers).",
            show_default=False,
        ),
    ] = None,
    fresh: Fresh = False,
    keep: Keep = False,
    no_report: NoReport = False,
    out: Out = DEFAULT_FOLDER,
    as_json: Json = False,
) -> None:
    """Run studies, judge their claims, and write the report.

    Exit code 1 means that a claim of theirs fails in your own run, a unit failed, rows have a nan
    or a figure could not be drawn. Bundled evidence never changes it.

    Example: triptych run query_complexity --scale smoke --set depths=[2,3]
    Example: triptych run my_study.py --set samples=100,400 --set spins=4,6 --cross
    """
    options = RunOptions(scale, seeds, device, engine, ray_address, workers, limit, fresh, keep)
    options = options._replace(track=track.value if track else "")
    if cross:
        from triptych.lab.cli.crossing import run_crossing

        run_crossing(studies, options, out, as_json, assign or [], report=not no_report)
    run_studies(studies, options, out, as_json, assign or [], report=not no_report)

"""`triptych reproduce`: run every study that decides a published result."""

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


def reproduce(
    scale: ScaleOption = ScaleName.laptop,
    everything: Annotated[
        bool, typer.Option("--all", help="Studies beyond the published results too, at the end.")
    ] = False,
    seeds: Seeds = None,
    device: Device = "cpu",
    engine: EngineOption = EngineName.local,
    ray_address: Address = None,
    workers: Workers = None,
    limit: Limit = None,
    fresh: Fresh = False,
    keep: Keep = False,
    no_report: NoReport = False,
    out: Out = DEFAULT_FOLDER,
    as_json: Json = False,
) -> None:
    """Run every study of a published result, and write the report.

    The cheapest studies come first, and a verdict is shown as soon as its study is done. What is
    done already is not run again. Exit code 1 means that a claim fails in your own run, a unit
    failed, rows have a nan or a figure could not be drawn. Bundled evidence never changes it.

    Example: triptych reproduce --scale smoke
    """
    options = RunOptions(scale, seeds, device, engine, ray_address, workers, limit, fresh, keep)
    run_studies([], options, out, as_json, beyond=everything, report=not no_report)

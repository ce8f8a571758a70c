"""`triptych denoise`: the samplers of diffusion language models, and texts filled by one."""

import json
from pathlib import Path
from typing import Annotated

import typer

from triptych.lab.cli.options import Device, Json
from triptych.lab.plain_text import echo


def denoise(
    text: Annotated[
        str | None,
        typer.Argument(
            help="A text with masks, as 'a [MASK] b'. Without it the table of samplers is printed.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A masked LM: a folder, or a name on the Hugging Face hub.", show_default=False
        ),
    ] = None,
    sampler: Annotated[
        str, typer.Option(help="A name of the table.", show_default=True)
    ] = "confident_position",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="OPTION=VALUE", help="Set an option of the sampler."),
    ] = None,
    n: Annotated[int, typer.Option("-n", help="Texts to write.")] = 1,
    block_length: Annotated[
        int | None, typer.Option(help="Masks of a block; blocks are written from left to right.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    replay: Annotated[
        Path | None, typer.Option(help="Write a page with the canvas after every step.")
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the Python files of the model itself.")
    ] = False,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Fill masks of a text by a sampler of diffusion.

    Without a text it compares the samplers of diffusion language models.

    A masked LM of transformers writes words alone, no special tokens such as padding.
    Without TEXT: every sampler with its promise, and its exact distance to a small truth.
    docs/diffusion.md explains them.

    Example: triptych denoise
    Example: triptych denoise "the [MASK] near the [MASK]" --model my-bert --sampler margin -n 3
    """
    if text is None:
        from triptych.diffusion import table

        found = table.lines()
        if as_json:
            echo(json.dumps([line._asdict() for line in found], indent=2))
            return
        echo("\n".join(table.plain(found)))
        return
    from triptych.core.validation import UserError
    from triptych.lab.denoising import filled

    if model is None:
        raise UserError(
            "a text needs a model that fills it: --model, a folder or a name on the hub",
            parameter="model",
        )
    made = filled(
        text,
        model,
        sampler,
        changes or [],
        n=n,
        block_length=block_length,
        seed=seed,
        device=device,
        record=replay is not None,
        trust_remote_code=trust_remote_code,
    )
    if as_json:
        echo(json.dumps({"texts": made.texts, "costs": made.done.costs.totals()}, indent=2))
    else:
        echo("\n".join(made.texts))
    if replay is not None:
        from triptych.lab.replay.canvas_page import write_canvas

        write_canvas(made.done, replay, names=made.names, title=made.title, about=made.about)
        typer.echo(f"Open {replay}", err=as_json)

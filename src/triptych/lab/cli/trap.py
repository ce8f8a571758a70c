"""`triptych trap`: networks whose attention misleads, and a score for methods that read it."""

import json
from pathlib import Path
from typing import Annotated

import typer

from triptych.lab.cli.options import Json
from triptych.lab.plain_text import echo

trap = typer.Typer(
    help="Score an attention-based explanation on known networks.\n\n"
    "The networks come in pairs: same function with different attention, or same attention with "
    "different functions. What is true of them is known. docs/attention-is-not-explanation.md "
    "explains it.\n\n"
    "Example: triptych trap score my_method.py",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

DEFAULT = Path("trap")


@trap.command()
def make(
    out: Annotated[Path, typer.Argument(help="Folder of the networks.")] = DEFAULT,
    pairs: Annotated[int, typer.Option(help="Pairs of each kind with explicit weights.")] = 20,
    trained: Annotated[int, typer.Option(help="Trained pairs of each kind, at most.")] = 12,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Make the networks: about 250 of them, in two minutes.

    OUT has networks.safetensors with all weights, and trap.json with what is true of each network.

    Example: triptych trap make trap
    """
    from triptych.lab.traps.making import make_trap, summary
    from triptych.lab.traps.pairs import write_trap

    made = make_trap(
        pairs=pairs,
        trained=trained,
        seed=seed,
        tell=lambda told: typer.echo(f"{told} ...", err=True),
    )
    write_trap(made, out)
    echo("\n".join(summary(made)))
    typer.echo(f"Wrote {len(made.members)} networks to {out}.")
    typer.echo(f"Score a method:  triptych trap score my_method.py --trap {out}")


@trap.command()
def score(
    method: Annotated[Path, typer.Argument(help="A Python file with your functions.")],
    folder: Annotated[Path, typer.Option("--trap", help="Folder of the networks.")] = DEFAULT,
    as_json: Json = False,
) -> None:
    """Score your method next to a coin, two usual methods and ablation.

    The file has one or more of needs_pattern(network), important_head(network) and
    is_balanced(network). docs/attention-is-not-explanation.md says what they get and return.

    Example: triptych trap score my_method.py --trap trap
    """
    from triptych.lab.traps.methods import load_method
    from triptych.lab.traps.pairs import read_trap
    from triptych.lab.traps.scoring import lines, score_method

    loaded = load_method(method)
    networks = read_trap(folder)
    scores = score_method(networks, loaded)
    if as_json:
        typer.echo(json.dumps(scores.to_json(), indent=2))
        return
    echo("\n".join(lines(networks, scores)))


@trap.command()
def pictures(
    out: Annotated[Path, typer.Argument(help="Folder of the SVG files.")] = Path("pictures"),
) -> None:
    """Draw the pictures of docs/attention-is-not-explanation.md.

    Example: triptych trap pictures docs/pictures
    """
    from triptych.lab.traps.pictures import write_pictures

    for place in write_pictures(out):
        typer.echo(f"Wrote {place}")

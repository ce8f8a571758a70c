"""`triptych trace`: a small exact generation, replayed in a page."""

from pathlib import Path
from typing import Annotated

import typer


def trace(
    algorithm: Annotated[
        str,
        typer.Argument(
            help="ancestral, backtracking, best_of_n, blocks, particles, rejection, tokenwise "
            "or vgb."
        ),
    ] = "backtracking",
    task: Annotated[str, typer.Option(help="dyck, zeros, parity or some-zero.")] = "dyck",
    seed: Annotated[int, typer.Option(help="Of the draws; and of the verifier's noise.")] = 0,
    length: Annotated[
        int | None, typer.Option(help="Tokens of a string, prompt included; the task's own.")
    ] = None,
    prompt: Annotated[str, typer.Option(help="What every row begins with, as '[(' or 01.")] = "",
    rows: Annotated[int, typer.Option(help="Strings to generate; the page has one at a time.")] = 1,
    noise: Annotated[
        float,
        typer.Option(
            help="How often the verifier is wrong before the end; for vgb and particles, its value "
            "is off by a factor of up to 1 + NOISE."
        ),
    ] = 0.0,
    quota: Annotated[
        int | None, typer.Option(help="backtracking: how often a row may erase.")
    ] = None,
    stride: Annotated[
        int | None, typer.Option(help="backtracking: how many tokens it erases.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="vgb: the longest walk.")] = None,
    attempts: Annotated[int | None, typer.Option(help="rejection: strings drawn at most.")] = None,
    tries: Annotated[
        int | None, typer.Option(help="tokenwise: draws of one token at most.")
    ] = None,
    n: Annotated[int | None, typer.Option(help="best_of_n, blocks, particles: candidates.")] = None,
    block: Annotated[int | None, typer.Option(help="blocks: tokens of a block.")] = None,
    out: Annotated[Path, typer.Option(help="HTML file.")] = Path("trace.html"),
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Replay a generation guided by a verifier, step by step: one HTML file that opens from disk.

    The page has the tree of visited prefixes, what the verifier said, and what was asked so far.
    docs/trace.md shows how to replay runs of your own.

    Example: triptych trace backtracking --task dyck --quota 4 --stride 4
    """
    from triptych.lab.replay import demonstrations
    from triptych.lab.replay.page import write_trace

    named = {"quota": quota, "stride": stride, "steps": steps, "attempts": attempts}
    named |= {"tries": tries, "n": n, "block": block}
    given = {name: value for name, value in named.items() if value is not None}

    name = demonstrations.named("algorithm", algorithm, demonstrations.ALGORITHMS)
    chosen = demonstrations.ALGORITHMS[name]
    demo = demonstrations.demonstration(task, length=length, seed=seed)
    verifier, told = demonstrations.noisy(demo, soft=chosen.soft, noise=noise, seed=seed)
    result = demonstrations.generate(
        name, demo, verifier, prompt=prompt, rows=rows, seed=seed, options=given
    )
    correct = demo.correct(result)
    settings = ", ".join(
        f"{key}\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{value}"
        for key, value in {**chosen.options, **given}.items()
    )
    about = [demo.about, told, f"Settings: {settings}." if settings else ""]
    write_trace(
        result,
        out,
        names=demo.names,
        title=f"{chosen.title}: {demo.title}",
        about=" ".join(filter(None, about)),
        correct=correct,
    )
    typer.echo("\n".join(demonstrations.summary(demo, result, correct)))
    typer.echo(f"Open {out}")
    if show:
        typer.launch(str(out))

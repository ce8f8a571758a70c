"""`triptych law`: whether a sampler keeps its promise, by its exact law."""

import json
from typing import Annotated

import typer

from triptych.lab.cli.options import Json
from triptych.lab.plain_text import echo


def law(
    sampler: Annotated[
        str | None,
        typer.Argument(
            help="package.module:function, a file my_sampler.py with `sampler` and `target`, or "
            "my_sampler.py:function. With --released, words of a library or sampler.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="A ready contract, or module:NAME of a law.", show_default=False),
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the ready contracts.")] = False,
    released: Annotated[
        bool,
        typer.Option(
            "--released",
            help="Print the recorded verdicts on samplers of released libraries. SAMPLER chooses.",
        ),
    ] = False,
    tolerance: Annotated[
        float, typer.Option(help="A distance that counts as none: rounding of float32.")
    ] = 1e-6,
    budget: Annotated[int, typer.Option(help="At most this many runs of the program.")] = 20_000,
    as_json: Json = False,
) -> None:
    """Hold a sampler to its promise, by its exact law.

    Every choice that the sampler can make is enumerated, so nothing is left to chance. It may draw
    with torch, numpy or Python's random. It is run here: name code that you trust.
    docs/laws.md explains the verdicts.

    Exit codes: 0 keeps its promise, 1 breaks it, 2 cannot be run, 3 not entered.

    Example: triptych law my_package.sampling:top_p_sample --target top_p
    Example: triptych law --released transformers
    """
    from triptych.lab.laws import judging
    from triptych.lab.laws import released as recorded

    if released:
        found = recorded.rows(sampler)
        echo(json.dumps(found, indent=2) if as_json else recorded.listed(found))
        return

    if list_them:
        echo(judging.listed(as_json=as_json))
        return
    answer = judging.answer(sampler, target, tolerance, budget)
    echo(json.dumps(answer, indent=2) if as_json else judging.sentences(answer))
    raise typer.Exit(judging.EXIT_CODES[answer["verdict"]])

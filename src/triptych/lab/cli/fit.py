"""`triptych fit`: fit an exact structure to a CSV file of tokens, with gaps."""

import json
from pathlib import Path
from typing import Annotated

import typer

from triptych.lab.cli.errors import warn
from triptych.lab.cli.options import Json
from triptych.lab.plain_text import echo


def fit(
    data: Annotated[Path, typer.Argument(help="CSV: a sequence per line; empty cells are hidden.")],
    structure: Annotated[
        str, typer.Option(help="What to fit: hmm, markov, memory-hmm, cfg or ising.")
    ] = "hmm",
    states: Annotated[int | None, typer.Option(help="Hidden states of an hmm.")] = None,
    values: Annotated[int | None, typer.Option(help="Values of a cell of a memory-hmm.")] = None,
    cells: Annotated[int | None, typer.Option(help="Memory cells of a memory-hmm.")] = None,
    syntax: Annotated[int | None, typer.Option(help="Syntax states of a memory-hmm.")] = None,
    symbols: Annotated[int | None, typer.Option(help="Symbols of a cfg.")] = None,
    header: Annotated[bool, typer.Option("--header", help="Skip the first line.")] = False,
    sequence: Annotated[
        str | None, typer.Option(help="For a token per line: the column of the sequence.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="For a token per line: the column of the token.")
    ] = None,
    missing: Annotated[
        list[str] | None, typer.Option(help="A cell that also means a hidden token, as NA.")
    ] = None,
    restarts: Annotated[int, typer.Option(help="Random starts; the best end is kept.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the starts and of the rows held out.")] = 0,
    held_out: Annotated[float, typer.Option(help="Share of the sequences to hold out.")] = 0.0,
    prior: Annotated[
        float | None, typer.Option(help="Dirichlet concentration, 1 or more; precision for ising.")
    ] = None,
    method: Annotated[str, typer.Option(help="Climb by both, em or gradient.")] = "both",
    max_steps: Annotated[int, typer.Option(help="Steps of each start, at most.")] = 1000,
    batch: Annotated[
        int | None, typer.Option(help="Begin with stepwise EM on batches of this many sequences.")
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Use the C programs; needs a C compiler.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The file that keeps the fitted structure.")] = Path(
        "fitted.json"
    ),
    score: Annotated[
        Path | None, typer.Option(help="Fit nothing: score the data with this fitted file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit an exact model to your own sequences.

    Sequences may differ in length, and empty cells are tokens that nobody saw. The file that is
    written has the structure and the vocabulary; `--score` and `triptych theorems` read it again.
    Exit code 1 means that the search did not converge. docs/fit.md is a tutorial.

    Example: triptych fit visits.csv --structure hmm --states 3 --held-out 0.2
    """
    import warnings

    from triptych.apps.fit import fitting
    from triptych.apps.fit.reading import read_table
    from triptych.core.compiled import use_compiled
    from triptych.fitting.result import NotConverged
    from triptych.fitting.search import Search
    from triptych.structures import saved

    if compiled:
        use_compiled()
    model = None if score is None else saved.load(score)
    table = read_table(
        data,
        header=header,
        sequence=sequence,
        token=token,
        missing=missing or (),
        vocabulary=() if model is None else model.vocabulary,
    )
    for note in table.notes:
        warn(f"{data}: {note}")
    if model is not None:
        found = fitting.score(model, table)
        record = vars(found) | {"per_token": found.per_token}
        said = (
            f"{found.per_token:.4f} nats a token: {found.tokens} tokens shown in {found.rows} "
            f"sequences, log-likelihood {found.log_likelihood:.6g}"
        )
        echo(json.dumps(record, indent=2) if as_json else said)
        return
    sizes = {"states": states, "values": values, "cells": cells, "syntax": syntax}
    search = Search(
        method=method,  # pyright: ignore[reportArgumentType]
        restarts=restarts,
        seed=seed,
        max_steps=max_steps,
        batch=batch,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConverged)  # the table says it, and the exit code
        result = fitting.fit_table(
            table, structure, sizes | {"symbols": symbols}, search=search, held_out=held_out,
            prior=prior,
        )  # fmt: skip
    fitting.save(result, table, out)
    if as_json:
        echo(json.dumps(result.to_json() | {"vocabulary": list(table.vocabulary)}, indent=2))
    else:
        echo(str(result))
        typer.echo(f"Wrote {out}")
    if not result.converged:
        warn("the search did not converge; --max-steps or --restarts gives it more")
    raise typer.Exit(int(not result.converged))

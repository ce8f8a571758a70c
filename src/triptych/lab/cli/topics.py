"""`triptych topics`: topics of a user's own text in a user's own model."""

import json
from pathlib import Path
from typing import Annotated

import typer

from triptych.lab.cli.options import Json, TrustCode
from triptych.lab.plain_text import echo


def topics(
    model: Annotated[
        str, typer.Option(help="A folder, a .gguf file, a fetched name or a name on the hub.")
    ],
    corpus: Annotated[
        str,
        typer.Option(help="A folder of .txt files, one text file, a fetched name, or docstrings."),
    ],
    number: Annotated[int, typer.Option("--topics", help="Topics that LDA looks for.")] = 100,
    threshold: Annotated[
        list[float] | None,
        typer.Option(help="Share of the vocabulary that a topic keeps; 0.0005, 0.001, 0.002."),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(help="Words for the map, as frog,toad,lizard; two groups or more."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Fits of LDA.")] = 1,
    passes: Annotated[int, typer.Option(help="Passes of LDA over the documents.")] = 30,
    fewest: Annotated[int, typer.Option(help="Documents that a word stands in, at least.")] = 10,
    most: Annotated[
        float, typer.Option(help="Share of the documents that a word stands in, at most.")
    ] = 0.1,
    paragraphs: Annotated[
        bool, typer.Option("--paragraphs", help="Count every paragraph as a document.")
    ] = False,
    passages: Annotated[int, typer.Option(help="Passages to measure attention on.")] = 150,
    random_copy: Annotated[
        bool, typer.Option(help="Measure a copy with random weights next to the model.")
    ] = True,
    out: Annotated[Path, typer.Option(help="Folder of the page, JSON and figures.")] = Path(
        "topics"
    ),
    trust_remote_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """See whether a model keeps words of one topic together.

    LDA is fitted to your text in the model's own tokens. Pairs of words of the same topic are
    compared with pairs of different topics, with intervals and controls. docs/real-topics.md
    explains every column.

    Example: triptych topics --model minilm --corpus wikitext2
    """
    from triptych.lab.topics.page import write_page
    from triptych.lab.topics.reading import parse_groups, read_topics
    from triptych.lab.topics.table import lines
    from triptych.theory.topics.fitted_topics import THRESHOLDS
    from triptych.theory.topics.read_text import Sizes

    sizes = Sizes(
        topics=number,
        thresholds=tuple(threshold or THRESHOLDS),
        passes=passes,
        fewest=fewest,
        most=most,
        passages=passages,
    )
    reading = read_topics(
        model,
        corpus,
        sizes,
        seeds=seeds,
        groups=parse_groups(group or []),
        paragraphs=paragraphs,
        random_copy=random_copy,
        trust_remote_code=trust_remote_code,
        tell=lambda what: typer.echo(f"{what} ...", err=True),
    )
    page = write_page(reading, out)
    if as_json:
        typer.echo(json.dumps(reading.to_json(), indent=2))
        return
    echo("\n".join(lines(reading)))
    typer.echo(f"Open {page}")

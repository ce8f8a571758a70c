"""`triptych audit-grammar`: what a grammar engine makes of a schema."""

import json
from pathlib import Path
from typing import Annotated

import typer

from triptych.lab.cli.options import Json
from triptych.lab.plain_text import echo


def audit_grammar(
    schema: Annotated[Path, typer.Argument(help="A JSON schema in a file.")],
    engine: Annotated[str, typer.Option(help="llguidance, xgrammar or triptych.")] = "llguidance",
    model: Annotated[
        str | None,
        typer.Option(
            help="Whose law the mask bends: markov, a random chain on characters, or a folder, a "
            ".gguf file, a fetched name or a name on the hub."
        ),
    ] = None,
    prompt: Annotated[str, typer.Option(help="What the texts of the model continue.")] = "JSON: ",
    max_new_tokens: Annotated[int, typer.Option(help="Tokens of a text at most.")] = 8,
    texts: Annotated[int, typer.Option(help="Texts that are drawn.")] = 200,
    tries: Annotated[int, typer.Option(help="Documents that are built from the schema.")] = 2000,
    seed: Annotated[int, typer.Option(help="The seed of mutated documents and of draws.")] = 0,
    as_json: Json = False,
) -> None:
    """Compare a grammar engine with JSON Schema and with a model.

    Prints the shortest document that the engine accepts and should not, that it refuses and should
    not, and that it takes in one form alone. With --model: how many nats masked decoding bends the
    model's law of right texts, and what adaptive particles and VGB cost, which mend it. Exit code 0
    says that the two agree on every document that was tried, 1 that they disagree on one, 2 that
    the schema cannot be read, by the engine or at all.

    Example: triptych audit-grammar schema.json --engine xgrammar --model markov
    """
    from triptych.lab.auditing.grammars import audited, bent, read_schema, sentences
    from triptych.verifiers.grammars.engines import as_engine

    read, chosen = read_schema(schema), as_engine(engine)
    found = audited(read, chosen, tries=tries, seed=seed)
    if model is not None and found["refused"] is None:
        found |= bent(
            read,
            chosen,
            model=model,
            prompt=prompt,
            tokens=max_new_tokens,
            texts=texts,
            seed=seed,
        )
    echo(
        json.dumps(found, indent=2, ensure_ascii=False) if as_json else "\n".join(sentences(found))
    )
    if found["refused"] is not None:
        raise typer.Exit(2)
    raise typer.Exit(int(not found["agrees"]))

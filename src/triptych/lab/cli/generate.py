"""`triptych generate`: guide a language model over a file of prompts."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from triptych.lab.cli.options import Address, Device, TrustCode
from triptych.lab.plain_text import echo, plain
from triptych.lab.running.interrupts import explain_stop

if TYPE_CHECKING:
    from triptych.lab.generating.servers import Served, Server


def generate(
    model: Annotated[
        str, typer.Option(help="A folder, a .gguf file, a fetched name or a name on the hub.")
    ],
    prompts: Annotated[
        str, typer.Option(help="A .jsonl file, a .txt file with a prompt a line, or - (stdin).")
    ],
    out: Annotated[Path, typer.Option(help="The file of the rows, JSON lines.")],
    max_new_tokens: Annotated[int, typer.Option(help="Tokens of a text at most.")],
    verifier: Annotated[
        str | None,
        typer.Option(
            help="json, json:schema.json, regex:PATTERN, lark:FILE, python, brackets, or "
            "rule.py:function, which answers True, False or a probability to the text so far."
        ),
    ] = None,
    grammar_engine: Annotated[
        str | None,
        typer.Option(
            help="llguidance, xgrammar or triptych (our rules on text), for json:schema.json, "
            "regex: and lark:. Default: the first that is installed and reads the grammar.",
            show_default=False,
        ),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            help="As `triptych replay --help` lists them, or a Python file. Default: adaptive, "
            "which keeps to strict rules; ancestral without a verifier.",
            show_default=False,
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="OPTION=VALUE", help="An option of the algorithm, as quota=4."
        ),
    ] = None,
    temperature: Annotated[
        float, typer.Option(help="The model's laws to the power 1/T; 0: argmax.")
    ] = 1.0,
    top_p: Annotated[float, typer.Option(help="Draw from the nucleus of this mass.")] = 1.0,
    top_k: Annotated[
        int, typer.Option(help="Draw from this many of the likeliest tokens; 0 is all.")
    ] = 0,
    min_p: Annotated[
        float, typer.Option(help="Draw from tokens with this share of the likeliest one's chance.")
    ] = 0.0,
    stop: Annotated[
        list[str] | None, typer.Option(help="A string that ends a text; may be given again.")
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Prompts are what a user says, in the chat template.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Random seed of the draws.")] = 0,
    batch: Annotated[int, typer.Option(help="Prompts that are completed together.")] = 16,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")] = "float32",
    device: Device = "cpu",
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A server of vLLM, llama.cpp or SGLang that holds the model; --model then says "
            "where its tokenizer is.",
            show_default=False,
        ),
    ] = None,
    server_model: Annotated[
        str | None,
        typer.Option(help="The model's name there, where it has several.", show_default=False),
    ] = None,
    dialect: Annotated[
        str | None,
        typer.Option(
            help="vllm, llama.cpp or sglang. Default: the server is asked.", show_default=False
        ),
    ] = None,
    key_variable: Annotated[
        str, typer.Option(help="The environment variable with the key of the server.")
    ] = "TRIPTYCH_API_KEY",
    budget_tokens: Annotated[
        int | None, typer.Option(help="Tokens that may be drawn for a prompt.")
    ] = None,
    budget_seconds: Annotated[
        float | None, typer.Option(help="Seconds that a batch may take.")
    ] = None,
    budget_questions: Annotated[
        int | None, typer.Option(help="Questions to the verifier for a prompt.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds of one question to rule.py; inf is no limit.")
    ] = 30.0,
    engine: Annotated[
        str, typer.Option(help="inline: this process; local: processes here; ray: a Ray cluster.")
    ] = "inline",
    workers: Annotated[
        int | None, typer.Option(help="Processes or actors; each loads the model.")
    ] = None,
    ray_address: Address = None,
    limit: Annotated[
        int | None, typer.Option(help="Number of prompts, from the first (default: all).")
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Write all that happened to OUT.trace.jsonl.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Remove the rows that are there and start again.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Make the rows again that failed.")
    ] = False,
    require_accepted: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Exit code 1 if a smaller share is accepted, as 0.95."),
    ] = None,
    trust_remote_code: TrustCode = False,
) -> None:
    """Guide a model over a file of prompts, with a verifier.

    The same command goes on where an earlier one was stopped; a finished prompt is never done
    twice. Exit code 0: every prompt has its row, and the last lines say how many failed. 1: no text
    could be made for any prompt, or fewer are accepted than --require-accepted says. 2: something
    given is wrong. 130: Ctrl-C.

    Example: triptych generate --model smollm2-135m --prompts prompts.jsonl --verifier json
    --max-new-tokens 100 --out texts.jsonl
    """
    from triptych.core.validation import as_probability
    from triptych.inference.guided.costs import Budget
    from triptych.inference.guided.transforms import Sampling
    from triptych.lab.generating.places import Places, refuse_same_files
    from triptych.lab.generating.progress import PromptProgress
    from triptych.lab.generating.prompts import read_prompts
    from triptych.lab.generating.rules import grammar_warnings
    from triptych.lab.generating.run import Spread
    from triptych.lab.generating.run import generate as complete_all
    from triptych.lab.generating.settings import make_settings

    if require_accepted is not None:
        as_probability("--require-accepted", require_accepted)
    places, read = Places.of(out, trace), {} if prompts == "-" else {"--prompts": prompts}
    refuse_same_files(places, read)
    asked = read_prompts(prompts)
    place = _server(server, server_model, dialect, key_variable)
    settings = make_settings(
        model=model,
        verifier=verifier,
        algorithm=algorithm,
        changes=changes or [],
        max_new_tokens=max_new_tokens,
        sampling=Sampling(temperature, top_p, top_k, min_p),
        chat=chat,
        seed=seed,
        dtype=dtype,
        budget=Budget(budget_tokens, budget_questions, budget_seconds),
        timeout=timeout,
        trust_remote_code=trust_remote_code,
        stop=stop or [],
        grammar_engine=grammar_engine,
        served=None if place is None else _which(place, model),
    )
    refuse_same_files(places, settings.read_files())
    for warning in grammar_warnings(settings.verifier):
        typer.echo(plain(f"Warning of {verifier}: {warning}"), err=True)
    with explain_stop():
        summary = complete_all(
            asked,
            settings,
            out,
            Spread(engine, workers, batch, device, ray_address, trace, place),
            fresh=fresh,
            retry_failed=retry_failed,
            limit=limit,
            progress=PromptProgress(sys.stderr),
        )
    for line in summary.lines():
        echo(line)
    typer.echo(f"Open {out}")
    enough = require_accepted is None or summary.accepted >= require_accepted
    if not enough:
        typer.echo(f"Fewer than {require_accepted:.1%} are accepted.", err=True)
    raise typer.Exit(summary.exit_code if enough else 1)


def _server(
    url: str | None, model: str | None, dialect: str | None, key_variable: str
) -> "Server | None":
    """Where the model is served, if it is."""
    from triptych.core.validation import UserError
    from triptych.lab.generating.servers import Server

    if url is not None:
        return Server(url, model or "", dialect or "", key_variable)
    if model is not None or dialect is not None:
        raise UserError("--server-model and --dialect need --server, the URL of the server")
    return None


def _which(place: "Server", model: str) -> "Served":
    """Which model the server holds; it is asked once before the prompts."""
    from triptych.lab.generating.servers import connect, which
    from triptych.lab.generating.settings import find_model

    lm = connect(place, find_model(model))
    try:
        return which(lm)
    finally:
        lm.close()

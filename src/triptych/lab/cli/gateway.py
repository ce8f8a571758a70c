"""`triptych gateway`: guided algorithms behind an OpenAI endpoint."""

import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from triptych.lab.cli.options import Device, TrustCode
from triptych.lab.plain_text import echo, plain

if TYPE_CHECKING:
    from triptych.apps.gateway.rules import Rule, Rules
    from triptych.apps.gateway.server import GatewayServer
    from triptych.lab.generating.servers import Server

DEFAULT_PORT = 8422
TOKEN = "TRIPTYCH_GATEWAY_TOKEN"
_NAMED = re.compile(r"([A-Za-z][\w.-]*)=(.+)", re.DOTALL)


def gateway(
    model: Annotated[
        str, typer.Option(help="A folder, a .gguf file, a fetched name or a name on the hub.")
    ],
    upstream: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A server of vLLM, llama.cpp or SGLang that holds the model; --model then says "
            "where its tokenizer is.",
        ),
    ] = None,
    upstream_model: Annotated[
        str | None, typer.Option(help="The model's name there, where it has several.")
    ] = None,
    dialect: Annotated[
        str | None, typer.Option(help="vllm, llama.cpp or sglang. Default: the server is asked.")
    ] = None,
    key_variable: Annotated[
        str, typer.Option(help="The environment variable with the key of the server.")
    ] = "TRIPTYCH_API_KEY",
    threads: Annotated[int, typer.Option(help="Batches that run at once on a model upstream.")] = 8,
    verifier: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]RULE",
            help="json, json:schema.json, regex:PATTERN, lark:FILE, python, brackets, "
            "rule.py:function, or none. Given again: another model NAME of this gateway.",
        ),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="A JSON schema: short for --verifier json:FILE.")
    ] = None,
    grammar: Annotated[
        Path | None, typer.Option(help="A Lark grammar: short for --verifier lark:FILE.")
    ] = None,
    grammar_engine: Annotated[
        str | None,
        typer.Option(
            help="llguidance, xgrammar or triptych, for schemas, patterns and Lark. Default: the "
            "first that is installed and reads the grammar.",
            show_default=False,
        ),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            help="As `triptych replay --help` lists them, or a Python file. Default: adaptive with "
            "a rule (greedy at temperature 0), ancestral without one.",
            show_default=False,
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="OPTION=VALUE", help="An option of the algorithm, as quota=4."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What clients call the model.  [default: its own name]")
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; another than 127.0.0.1 needs a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port to listen on; 0 takes a free one.")
    ] = DEFAULT_PORT,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help=f"A file with the token that clients must bring; {TOKEN} may hold it too."
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="New tokens of a text at most.")] = 1024,
    rows: Annotated[int, typer.Option(help="Texts of a request at most: prompts times n.")] = 64,
    together: Annotated[int, typer.Option(help="Rows of one batch at most.")] = 64,
    requests: Annotated[
        int, typer.Option(help="Requests that wait or run; one more gets 429.")
    ] = 64,
    seconds: Annotated[float, typer.Option(help="Seconds that a batch may run.")] = 300.0,
    body_bytes: Annotated[int, typer.Option(help="Bytes of a request at most.")] = 1 << 20,
    timeout: Annotated[float, typer.Option(help="Seconds of one question to rule.py.")] = 30.0,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")] = "float32",
    device: Device = "cpu",
    quiet: Annotated[bool, typer.Option("--quiet", help="No line for each request.")] = False,
    trust_remote_code: TrustCode = False,
) -> None:
    """Serve guided texts to OpenAI clients.

    Paths: /v1/completions, /v1/chat/completions, /v1/models, /health and /metrics. Answers have the
    promise of the algorithm and the true costs under the key `triptych`. Only this machine can ask,
    unless there is a token. SIGTERM and Ctrl-C finish what runs. docs/gateway.md has every field.

    Example: triptych gateway --model smollm2-135m --verifier json
    Example: triptych gateway --model smollm2-135m --schema person.json --algorithm tokenwise
    Example: triptych gateway --upstream http://127.0.0.1:8000 --model NAME --verifier json
    """
    from triptych.core.validation import UserError
    from triptych.lab.generating.servers import Server

    if upstream is not None:
        lm, called = _served(
            model, Server(upstream, upstream_model or "", dialect or "", key_variable)
        )
    elif upstream_model is not None or dialect is not None:
        raise UserError("--upstream-model and --dialect need --upstream, the URL of a server")
    else:
        lm, called = _loaded(model, dtype, device, trust_remote_code)
    server = _server(
        lm,
        name or called,
        given=[
            *(verifier or []),
            *([] if schema is None else [f"json:{schema}"]),
            *([] if grammar is None else [f"lark:{grammar}"]),
        ],
        grammar_engine=grammar_engine,
        algorithm=algorithm,
        changes=changes or [],
        host=host,
        port=port,
        token=_token(token_file),
        limits={
            "max_tokens": max_tokens,
            "rows": rows,
            "together": together,
            "requests": requests,
            "seconds": seconds,
            "body_bytes": body_bytes,
        },
        timeout=timeout,
        threads=1 if upstream is None else threads,
        quiet=quiet,
    )
    for line in _how_to_ask(server):
        echo(line)
    sys.stdout.flush()
    server.serve_until_stopped()
    typer.echo("Stopped: every request that was taken has its answer.")


def _loaded(model: str, dtype: str, device: str, trust_remote_code: bool) -> tuple[Any, str]:
    """A model in this process, and what it is called."""
    from triptych.core.validation import UserError
    from triptych.lab.generating.completing import fitting_threads
    from triptych.lab.generating.progress import hide_bars
    from triptych.lab.generating.settings import find_model
    from triptych.models.pretrained.causal import PretrainedCausalLM

    where = find_model(model)
    hide_bars()
    try:
        lm = PretrainedCausalLM.from_pretrained(
            where, dtype=dtype, device=device, trust_remote_code=trust_remote_code
        )
    except (OSError, ModuleNotFoundError) as error:
        raise UserError(str(error)) from error
    import torch

    torch.set_num_threads(fitting_threads(lm))
    path = Path(where)
    return lm, path.stem if path.is_file() else path.name if path.is_dir() else where


def _served(tokenizer: str, server: "Server") -> tuple[Any, str]:
    """A model behind a URL, and what its server calls it."""
    from triptych.lab.generating.servers import connect
    from triptych.lab.generating.settings import find_model

    lm = connect(server, find_model(tokenizer))
    name = Path(lm.facts.model)
    return lm, name.stem if name.suffix == ".gguf" else name.name


def _server(
    lm: Any,
    model: str,
    *,
    given: list[str],
    grammar_engine: str | None,
    algorithm: str | None,
    changes: list[str],
    host: str,
    port: int,
    token: str | None,
    limits: dict[str, Any],
    timeout: float,
    threads: int,
    quiet: bool,
) -> "GatewayServer":
    """A gateway that listens, with everything checked that a user gave."""
    from triptych.core.validation import UserError, as_number

    try:
        from triptych.apps.gateway.server import GatewayServer
    except ModuleNotFoundError as error:
        raise UserError(
            f"the gateway needs {error.name}, which is not installed: pip install "
            "'triptych[gateway]'"
        ) from error
    from triptych.apps.gateway.limits import Limits
    from triptych.apps.gateway.rules import Rules
    from triptych.apps.gateway.site import Gateway
    from triptych.lab.replay.demonstrations import find_algorithm

    kept = Limits(**limits)
    timeout = as_number("--timeout", timeout, above=0, finite=False)
    if algorithm is None and changes:
        raise UserError("--set changes an option of --algorithm, and none is named")
    own = None if algorithm is None else find_algorithm(algorithm).parse(changes)
    rules = Rules(model, [_rule(each, lm, grammar_engine, timeout) for each in given], own)
    _check_algorithms(lm, rules)
    log = None if quiet else lambda line: print(f"{_clock()} {line}", file=sys.stderr, flush=True)
    made = Gateway(lm, rules, limits=kept, token=token, threads=threads, log=log)
    return GatewayServer(made, host, port)


def _check_algorithms(lm: Any, rules: "Rules") -> None:
    """Refuse an algorithm that asks for more than a model upstream gives."""
    from triptych.models.served.served_lm import ServedLM

    if not isinstance(lm, ServedLM):
        return
    draws = lm.decoder([lm.encode(["a"])[0] or [1]])
    for rule in rules.by_name.values():
        rules.algorithm_of(rule.kind, greedy=False).check_gives(draws)


def _rule(given: str, lm: Any, engine: str | None, timeout: float) -> "Rule":
    """A verifier as `triptych generate` names it, with a name of its own before an equals sign."""
    from triptych.apps.gateway.rules import NO_RULE, Rule
    from triptych.lab.generating.rules import AskedRule, find_rule, grammar_warnings, on_tokens

    named = _NAMED.fullmatch(given)
    name, text = (named[1], named[2]) if named else (None, given)
    if text == "none":
        return Rule(name or NO_RULE.name, NO_RULE.words, NO_RULE.kind, NO_RULE.make)
    kind = text.partition(":")[0]
    grammar = kind in ("regex", "lark") or text.startswith("json:")
    source = find_rule(text, engine if grammar else None)
    for warning in grammar_warnings(source):
        typer.echo(plain(f"Warning of {text}: {warning}"), err=True)
    file = source.detail if source.kind == "own" else Path(source.file).stem if source.file else ""
    name = name or re.sub(r"[^\w.-]", "-", file or kind)
    words = f"{text} by {source.engine}" if source.engine else text
    if source.has_masks:
        on_tokens(source, lm)  # refuses here what cannot be read on these tokens
        return Rule(name, words, "grammar", lambda: on_tokens(source, lm))
    asked = AskedRule(source, timeout)
    try:
        asked.check()  # refuses a rule that cannot be started
    finally:
        asked.close()
    return Rule(name, words, "text", lambda: AskedRule(source, timeout))


def _token(file: Path | None) -> str | None:
    """The token that clients must bring."""
    from triptych.core.validation import UserError

    if file is None:
        return os.environ.get(TOKEN) or None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"the token file {str(file)!r} cannot be read: {error}", parameter="token_file"
        ) from None
    if not token or not token.isascii() or any(letter.isspace() for letter in token):
        raise UserError(
            f"the token file {str(file)!r} must hold one word of ASCII", parameter="token_file"
        )
    return token


def _how_to_ask(server: "GatewayServer") -> list[str]:
    """What a user copies."""
    rules, address = server.gateway.rules, server.address
    protected = server.gateway.token is not None
    key = f'os.environ["{TOKEN}"]' if protected else '"none"'
    bearer = f' -H "Authorization: Bearer ${TOKEN}"' if protected else ""
    lines = []
    for name in rules.models:
        chosen = rules.choose(name, None, None, greedy=False)
        lines.append(f"{name}: {chosen.words}; {chosen.algorithm.name}")
    body = f'{{"model": "{rules.model}", "prompt": "Hello", "max_tokens": 32}}'
    return [
        *lines,
        f"Listening on {address} (Ctrl-C stops it)",
        "",
        f"curl {address}/completions{bearer} -H 'Content-Type: application/json' -d '{body}'",
        "",
        *(["import os"] if protected else []),
        "from openai import OpenAI",
        f'client = OpenAI(base_url="{address}", api_key={key})',
        f'print(client.completions.create(model="{rules.model}", prompt="Hello", max_tokens=32))',
    ]


def _clock() -> str:
    return time.strftime("%H:%M:%S")

"""The endpoint: what is at each path, who may ask, and how an answer travels."""

import asyncio
import hashlib
import hmac
import ipaddress
import json
import secrets
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from triptych.apps.gateway.answers import Answer, now
from triptych.apps.gateway.fields import Asked, Prompt, read_json, read_request
from triptych.apps.gateway.limits import Limits
from triptych.apps.gateway.metrics import Metrics
from triptych.apps.gateway.refusals import Refused, wrong
from triptych.apps.gateway.release import Release
from triptych.apps.gateway.rules import Chosen, Rules
from triptych.apps.gateway.work import Made, Scores, Task, Ticket, Workers
from triptych.core.validation import UserError
from triptych.guidance.guide import Encoded, TextModel
from triptych.inference.guided.result import Event
from triptych.verifiers.grammars.grammar import Grammar

_PING_SECONDS = 10.0  # between two signs of life of a stream that has nothing to tell
_LOOK_SECONDS = 0.25  # between two looks at whether the client is there
_DRAWN_BITS = 52  # of a seed that the request does not give: a number that JavaScript reads too
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DISCONNECTED = 499  # what logs call a client that went away

Endpoint = Callable[[Request], Awaitable[Response]]


class Prepared(NamedTuple):
    """A request that can be put into the queue."""

    answer: Answer
    ticket: Ticket


class Gateway:
    """The endpoint of a language model with some rules.

    token   that every request must bring; None: only this machine may ask
    log     is told a line for each request, without anything that a client wrote
    """

    def __init__(
        self,
        lm: TextModel,
        rules: Rules,
        *,
        limits: Limits | None = None,
        token: str | None = None,
        threads: int = 1,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.lm, self.rules, self.token = lm, rules, token
        self.limits = Limits() if limits is None else limits
        self.metrics = Metrics()
        self.workers = Workers(lm, rules, self.limits, self.metrics, threads)
        self.stopping = False
        self._log = log
        self._reads = threading.Lock()  # a tokenizer is asked by one thread at a time
        self._began = now()

    def app(self) -> Starlette:
        """The application that a server runs."""
        paths: dict[str, tuple[str, Endpoint]] = {
            "/v1/completions": ("POST", self._completions),
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/models": ("GET", self._models),
            "/v1/models/{name:path}": ("GET", self._model),
            "/health": ("GET", self._health),
            "/metrics": ("GET", self._metrics),
        }
        routes = [
            Route(path, self._guarded(path, endpoint), methods=[method])
            for path, (method, endpoint) in paths.items()
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: self._no_such_path})

    # ------------------------------------------------------------------ every request

    def _guarded(self, path: str, endpoint: Endpoint) -> Endpoint:
        """The endpoint behind the checks that all have; whatever happens is an answer."""

        async def answer(request: Request) -> Response:
            began = time.monotonic()
            try:
                self._let_in(request, path)
                response = await endpoint(request)
            except Refused as refused:
                response = refused.response()
            except ClientDisconnect:
                response = Response(status_code=_DISCONNECTED)
            except Exception as error:  # a defect of ours
                response = _defect(error).response()
            self._tell(path, request.method, response.status_code, time.monotonic() - began)
            return response

        return answer

    async def _no_such_path(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        self._tell("other", "", status, 0.0)
        said = (
            "there is nothing at this path" if status == 404 else "this path takes no such method"
        )
        return Refused(status, said, code="not_found" if status == 404 else "no_method").response()

    def _let_in(self, request: Request, path: str) -> None:
        """Refuse who may not ask.

        Without a token only programs of this machine may: a web page elsewhere could reach it by a
        name of its own, or send what needs no permission of the browser.
        """
        if path == "/health":
            return
        if self.stopping:
            raise Refused(503, "the gateway is stopping", code="stopping", retry_after=5)
        if self.token is None:
            host = _host_of(request.headers.get("host", ""))
            if not is_loopback(host):
                raise Refused(421, "this gateway answers for this machine alone", code="wrong_host")
            if "origin" in request.headers and not is_loopback(
                _host_of(request.headers["origin"].partition("://")[2])
            ):
                raise Refused(403, "web pages may not ask this gateway", code="wrong_origin")
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            given.strip().encode(), self.token.encode()
        ):
            raise Refused(
                401, "this gateway needs its token: Authorization: Bearer ...", code="wrong_token"
            )

    def _tell(self, path: str, method: str, status: int, seconds: float) -> None:
        self.metrics.add("requests_total", path=path, status=str(status))
        if self._log is not None:
            self._log(f"{method} {path} {status} {seconds:.3f} s")

    # ------------------------------------------------------------------ what there is

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [*map(self._told_model, self.rules.models)]})

    async def _model(self, request: Request) -> Response:
        self.rules.choose(name := request.path_params["name"], None, None, greedy=False)
        return JSONResponse(self._told_model(name))

    def _told_model(self, name: str) -> dict[str, Any]:
        chosen = self.rules.choose(name, None, None, greedy=False)
        return {
            "id": name,
            "object": "model",
            "created": self._began,
            "owned_by": "triptych",
            "max_model_len": self.lm.length,
            "triptych": {
                "rule": chosen.rule,
                "verifier": chosen.words,
                "algorithm": chosen.algorithm.name,
                "options": chosen.algorithm.settings(),
                "promise": chosen.algorithm.promise,
                "held_back": chosen.algorithm.held_back,
            },
        }

    async def _health(self, request: Request) -> Response:
        well = self.workers.alive and not self.stopping
        said = "ok" if well else "stopping" if self.stopping else "a worker has ended"
        return JSONResponse({"status": said}, 200 if well else 503)

    async def _metrics(self, request: Request) -> Response:
        return PlainTextResponse(
            self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    # ------------------------------------------------------------------ texts

    async def _completions(self, request: Request) -> Response:
        return await self._texts(request, chat=False)

    async def _chat(self, request: Request) -> Response:
        return await self._texts(request, chat=True)

    async def _texts(self, request: Request, *, chat: bool) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refused(415, "the content type must be application/json", code="wrong_type")
        body = await self._body(request)
        prepared = await run_in_threadpool(self._prepared, body, chat)
        if prepared.answer.asked.stream:
            return self._stream(request, prepared)
        made = await self._made(request, prepared.ticket)
        self._count_tokens(prepared.answer, made)
        return JSONResponse(prepared.answer.whole(made))

    async def _body(self, request: Request) -> bytes:
        """The body, if it is small enough and comes in time."""
        most = self.limits.body_bytes
        large = Refused(
            413, f"the body has more than {most} bytes, the most that is read", code="too_large"
        )
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > most:
            raise large
        read = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in request.stream():
                    read += part
                    if len(read) > most:
                        raise large
        except TimeoutError:
            raise Refused(408, "the body did not come in time", code="too_slow") from None
        return bytes(read)

    def _prepared(self, body: bytes, chat: bool) -> Prepared:
        """The request as rows of tokens; what is wrong with it is said here."""
        asked = read_request(read_json(body), self.limits, chat=chat)
        greedy = asked.sampling.temperature == 0
        chosen = self.rules.choose(asked.model, asked.rule, asked.schema, greedy=greedy)
        if chosen.schema is not None:
            self._check_schema(chosen)
        if asked.logprobs is not None and not isinstance(self.lm, Scores):
            raise wrong("logprobs", "this model tells no log-probabilities", "not_supported")
        texts = [self._encoded(i, prompt) for i, prompt in enumerate(asked.prompts)]
        limit = self._limit(asked, texts)
        rows = [text for text in texts for _ in range(asked.n)]
        seed = secrets.randbits(_DRAWN_BITS) if asked.seed is None else asked.seed
        task = Task(chosen, asked.sampling, asked.stop, limit, asked.trace)
        ticket = Ticket(task, rows, stream_numbers(seed, len(texts), asked.n), top=asked.logprobs)
        shown = [self._shown(text) if asked.echo else "" for text in rows]
        name = f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}"
        begun = [self._begun_with(prompt) for prompt in asked.prompts for _ in range(asked.n)]
        answer = Answer(name, now(), asked, chosen, rows, shown, begun, seed, self._written)
        return Prepared(answer, ticket)

    def _encoded(self, place: int, prompt: Prompt) -> Encoded:
        """A prompt as tokens, without BOS."""
        lm, size = self.lm, self.lm.vocab_size
        try:
            with self._reads:
                if isinstance(prompt, str):
                    row: list[int] = lm.encode([prompt])[0]
                elif not all(isinstance(part, int) for part in prompt):
                    conversation: Any = prompt
                    row = lm.chat([*conversation])
                else:
                    given: Any = prompt
                    if any(not 0 <= token < size for token in given):
                        raise wrong("prompt", f"the tokens of this model are 0..{size - 1}")
                    row = [*given] if self._begun_with(prompt) is None else [*given[1:]]
                    prompt = lm.text_of(row)
        except Refused:
            raise
        except UserError as error:
            raise wrong("prompt", str(error)) from None
        except Exception as error:  # templates raise errors of their own, as on roles they refuse
            said = " ".join(str(error).split())[:200]
            raise wrong("messages", f"the chat template refuses it: {said}") from None
        if not row and lm.bos_token is None:
            raise wrong("prompt", "a prompt is empty, and this model has no token to begin with")
        return Encoded(row, [*prompt] if isinstance(prompt, tuple) else prompt)

    def _begun_with(self, prompt: Prompt) -> int | None:
        """BOS, if these token ids begin with it."""
        bos = self.lm.bos_token
        return (
            bos if bos is not None and isinstance(prompt, tuple) and prompt[:1] == (bos,) else None
        )

    def _limit(self, asked: Asked, rows: list[Encoded]) -> int:
        """New tokens of a text at most."""
        room = self.lm.length - max(len(row.tokens) for row in rows)
        if asked.max_tokens is None and room > 0:
            return min(room, self.limits.max_tokens)
        wanted = 1 if asked.max_tokens is None else asked.max_tokens
        if wanted > room:
            raise wrong(
                "max_tokens",
                f"a prompt has {self.lm.length - room} tokens and may get {wanted} more; this "
                f"model reads at most {self.lm.length}",
                "context_length_exceeded",
            )
        return wanted

    def _check_schema(self, chosen: Chosen) -> None:
        """Refuse a schema that no engine reads."""
        assert chosen.schema is not None
        try:
            Grammar.from_json_schema(chosen.schema).on(self.workers.vocabulary())
        except UserError as error:
            raise wrong("response_format", str(error)[:2000], "schema_not_read") from None

    def _shown(self, prompt: Encoded) -> str:
        """A prompt as text, for `echo`."""
        return prompt.prompt if isinstance(prompt.prompt, str) else self.lm.text_of(prompt.tokens)

    def _written(self, token: int) -> str:
        return self.lm.text_of([token], special=True)

    async def _made(self, request: Request, ticket: Ticket) -> list[Made]:
        """What comes out; the work stops when the client goes away."""
        future = asyncio.wrap_future(self.workers.submit(ticket))
        try:
            while not (await asyncio.wait([future], timeout=_LOOK_SECONDS))[0]:
                if await request.is_disconnected():
                    raise ClientDisconnect
                if not self.workers.alive:
                    raise RuntimeError("a thread that writes texts has ended")
            return future.result()
        finally:
            if not future.done():
                ticket.leave()
                future.cancel()

    def _count_tokens(self, answer: Answer, made: list[Made]) -> None:
        usage = answer.usage(made)
        self.metrics.add("prompt_tokens_total", usage["prompt_tokens"])
        self.metrics.add("completion_tokens_total", usage["completion_tokens"])

    # ------------------------------------------------------------------ streams

    def _stream(self, request: Request, prepared: Prepared) -> Response:
        """A response of server-sent events."""
        ticket, loop = prepared.ticket, asyncio.get_running_loop()
        told: asyncio.Queue[tuple[int, str] | None] = asyncio.Queue()
        algorithm = ticket.task.chosen.algorithm
        read = _reader(self.lm, ticket.task.stop)
        releases = [Release(algorithm, read, ticket.task.stop) for _ in ticket.prompts]

        def tell(news: tuple[int, str] | None) -> None:
            loop.call_soon_threadsafe(told.put_nowait, news)

        def heard(row: int, event: Event) -> None:
            if text := releases[row].after(event):
                tell((row, text))

        ticket.heard = heard
        self.workers.submit(ticket).add_done_callback(lambda _: tell(None))
        pieces = self._pieces(request, prepared, told, releases)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(pieces, headers=headers, media_type="text/event-stream")

    async def _pieces(
        self,
        request: Request,
        prepared: Prepared,
        told: "asyncio.Queue[tuple[int, str] | None]",
        releases: list[Release],
    ) -> AsyncIterator[str]:
        answer, ticket = prepared
        try:
            for index in range(len(ticket.prompts)):
                begun = answer.first(index)
                yield _sent(begun if index else begun | {"triptych": answer.promise()})
            quiet = 0.0
            while True:
                try:
                    news = await asyncio.wait_for(told.get(), _LOOK_SECONDS)
                except TimeoutError:
                    if await request.is_disconnected():
                        return
                    quiet += _LOOK_SECONDS
                    if quiet >= _PING_SECONDS:
                        quiet = 0.0
                        yield ": still at work\n\n"
                    continue
                if news is None:
                    break
                yield _sent(answer.piece(*news))
            try:
                made = ticket.future.result()
                for index, row in enumerate(made):
                    if rest := releases[index].rest(row.completion.text):
                        yield _sent(answer.piece(index, rest))
                    end = answer.last(index, row)
                    last = index + 1 == len(made)
                    yield _sent(end | {"triptych": answer.about(made)} if last else end)
            except Refused as refused:
                yield _sent(refused.as_json())
            except Exception as error:
                yield _sent(_defect(error).as_json())
            else:
                self._count_tokens(answer, made)
                if answer.asked.include_usage:
                    yield _sent(answer.costs(made))
            yield "data: [DONE]\n\n"
        finally:
            ticket.leave()


def stream_numbers(seed: int, prompts: int, n: int) -> list[int]:
    """The number of the stream of each text of a request: the same for the same seed and place.

    Text c of prompt p has the first 63 bits of SHA-256 of "seed p c".
    """
    return [
        int.from_bytes(hashlib.sha256(f"{seed} {p} {c}".encode()).digest()[:8]) >> 1
        for p in range(prompts)
        for c in range(n)
    ]


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    if host in _LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_of(header: str) -> str:
    """The host without its port. Worked value: of "[::1]:80" it is "::1"."""
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _reader(lm: TextModel, stop: tuple[str, ...]) -> Callable[..., str]:
    """The text of some tokens, without the token that ends it, up to a stop string."""
    from triptych.guidance.stops import Stops

    stops = Stops(stop, lm.text_of)

    def read(tokens: Any) -> str:
        end = len(tokens)
        while end and tokens[end - 1] in lm.end_tokens:
            end -= 1
        return stops.cut(tokens[:end])

    return read


def _sent(news: dict[str, Any]) -> str:
    return f"data: {json.dumps(news, ensure_ascii=False)}\n\n"


def _defect(error: Exception) -> Refused:
    """A mistake of ours: where it is goes to standard error, without what a client wrote."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    print(f"triptych gateway: a defect: {type(error).__name__} at {places}", file=sys.stderr)
    return Refused(500, "this is a defect of the gateway; its log says where", code="defect")

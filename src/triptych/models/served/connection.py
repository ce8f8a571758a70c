"""Questions to one server over HTTP: several in flight, faults waited out, no key ever shown.

A question is a path and a JSON body. Python's own http.client asks it: the whole of the need is one
POST to one host over connections that stay open. It follows no redirect, so a key goes to no other
host, and it costs a fifth of a millisecond a question, which counts where 64 rows ask for a few
tokens each.

What may pass is asked again: a connection that breaks, a time-out, an answer that is cut, status
408, 425, 429 and 5xx. The wait begins at a tenth of a second and doubles, or is what the server
says in Retry-After. A question is the same each time, with the same seed, so an answer that was
lost and is drawn again is the same draw, and nothing is chosen among answers.
"""

import http.client
import json
import ssl
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from triptych.core.validation import (
    Count,
    Number,
    UserError,
    as_count,
    as_number,
    as_text,
    shown,
)

Json = Mapping[str, Any]
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which a question is asked again."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 10.0
_NO_KEY = (401, 403)
_SHOWN = 300  # characters of a server's message
# what http.client raises for a connection that is closed, refused, cut or silent
_BROKEN = (OSError, http.client.HTTPException, ValueError)


class NoServer(UserError):
    """The server does not answer, or refuses to."""


class Connection:
    """One server, by its URL.

    timeout     seconds that one answer may take
    patience    seconds of faults after which it is given up; 0 asks once
    in_flight   questions at a time, at most
    outages     how often a connection broke so far: it may be another server since

    Worked value: with a patience of 1 s the waits are 0.1, 0.2, 0.4 and 0.3 s, and then it is given
    up.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: Number = 120.0,
        patience: Number = 60.0,
        in_flight: Count = 64,
    ) -> None:
        parts = _split(url)
        self._https, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._folder = parts.path.rstrip("/").removesuffix("/v1")
        self._key = None if api_key is None else _as_key(api_key)
        self.timeout = as_number("timeout", timeout, above=0)
        self.patience = as_number("patience", patience, at_least=0)
        self.in_flight = as_count("in_flight", in_flight, at_least=1)
        self.outages = 0
        self._own = threading.local()  # a connection for each thread
        self._made: list[http.client.HTTPConnection] = []
        self._threads: ThreadPoolExecutor | None = None
        self._closed = threading.Event()
        self._end = weakref.finalize(self, _close_all, self._made)

    def __repr__(self) -> str:
        return f"Connection({self.url})"

    @property
    def url(self) -> str:
        """Where the server is, without a key."""
        port = "" if self._port is None else f":{self._port}"
        host = f"[{self._host}]" if ":" in str(self._host) else self._host
        return f"{'https' if self._https else 'http'}://{host}{port}{self._folder}"

    def get(self, path: str) -> Any:
        """The JSON at a path; None where the server has nothing there."""
        return self._patiently("GET", path, None, missing=True)

    def post(self, path: str, body: Json) -> Any:
        """The answer to one question."""
        return self._patiently("POST", path, body)

    def ask(self, path: str, body: Json) -> Any:
        """The answer to one question; None where the server has nothing at this path."""
        return self._patiently("POST", path, body, missing=True)

    def post_all(self, path: str, bodies: Sequence[Json]) -> list[Any]:
        """The answers to several questions, `in_flight` of them at a time, in order."""
        if len(bodies) == 1:
            return [self.post(path, bodies[0])]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.in_flight, thread_name_prefix="served")
        waiting = [self._threads.submit(self.post, path, body) for body in bodies]
        try:
            return [each.result() for each in waiting]
        except BaseException:
            for each in waiting:
                each.cancel()
            raise

    def close(self) -> None:
        """Let go of the threads; a question that waits to be asked again is given up."""
        self._closed.set()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._end()

    def scrubbed(self, text: str) -> str:
        """A text without the key."""
        return text if self._key is None else text.replace(self._key, "[key]")

    # ------------------------------------------------------------------ inside

    def _patiently(
        self, method: str, path: str, body: Json | None, *, missing: bool = False
    ) -> Any:
        wait, began = FIRST_WAIT_S, time.monotonic()
        while True:
            after: float | None = None
            try:
                status, told, data = self._once(method, path, body)
                if status < 300:
                    return json.loads(data)
                if missing and status in (404, 405, 501):
                    return None
                if status not in AGAIN:
                    raise self._refusal(status, data)
                why, after = f"status {status}: {self._message(data)}", told
            except UserError:
                raise
            except _BROKEN as error:
                self._drop()
                self.outages += 1
                why = self.scrubbed(f"{type(error).__name__}: {error}".rstrip(": "))
            left = self.patience - (time.monotonic() - began)
            if left <= 0:
                raise NoServer(
                    f"the server {self.url} gave no answer to {path} in "
                    f"{self.patience:g} seconds of asking again ({why[:_SHOWN]}); start it, or "
                    "wait for it, and give the same command again",
                    parameter="url",
                )
            if self._closed.wait(min(left, wait if after is None else after)):
                raise NoServer(f"the connection to {self.url} was closed", parameter="url")
            wait = min(2 * wait, LONGEST_WAIT_S)

    def _once(self, method: str, path: str, body: Json | None) -> tuple[int, float | None, bytes]:
        """The status of one question, how long to wait where it says so, and the answer."""
        payload = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json"}
        if payload is not None:
            headers["Content-Type"] = "application/json"
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        used = getattr(self._own, "connection", None)
        try:
            return self._through(used or self._connect(), method, path, payload, headers)
        except _BROKEN:
            self._drop()
            if used is None:
                raise
            self.outages += 1
        # the server may have closed a connection that was idle: no fault, but it may be another one
        return self._through(self._connect(), method, path, payload, headers)

    def _through(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        payload: bytes | None,
        headers: dict[str, str],
    ) -> tuple[int, float | None, bytes]:
        connection.request(method, self._folder + path, payload, headers)
        answer = connection.getresponse()
        data = answer.read()
        length = answer.getheader("Content-Length")
        if length is not None and len(data) < int(length):
            raise http.client.IncompleteRead(data, int(length) - len(data))
        return answer.status, _seconds(answer.getheader("Retry-After")), data

    def _connect(self) -> http.client.HTTPConnection:
        assert self._host is not None
        made: http.client.HTTPConnection
        if self._https:
            context = ssl.create_default_context()
            made = http.client.HTTPSConnection(
                self._host, self._port, timeout=self.timeout, context=context
            )
        else:
            made = http.client.HTTPConnection(self._host, self._port, timeout=self.timeout)
        self._own.connection = made
        self._made.append(made)
        return made

    def _drop(self) -> None:
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            connection.close()
            self._made.remove(connection)
            self._own.connection = None

    def _refusal(self, status: int, data: bytes) -> UserError:
        if status in _NO_KEY:
            given = "none was given" if self._key is None else "the one that was given is refused"
            return NoServer(
                f"the server {self.url} wants a key (status {status}), and {given}; pass api_key",
                parameter="api_key",
            )
        if 300 <= status < 400:
            return NoServer(
                f"the server {self.url} sends elsewhere (status {status}), where no key is sent; "
                "give the URL that it names",
                parameter="url",
            )
        return UserError(
            f"the server {self.url} refuses the question (status {status}): {self._message(data)}",
            parameter="url",
        )

    def _message(self, data: bytes) -> str:
        """What a server says is wrong, in its own words, without the key."""
        text = data.decode("utf-8", "replace")
        try:
            told = json.loads(text)
        except ValueError:
            told = text
        for name in ("error", "message", "detail"):
            if isinstance(told, dict) and name in told:
                told = told[name]
        return self.scrubbed(" ".join(str(told).split()))[:_SHOWN]


def _close_all(made: list[http.client.HTTPConnection]) -> None:
    for connection in made:
        connection.close()


def _split(url: str) -> Any:
    given = as_text("url", url)
    try:
        parts = urlsplit(given)
        port = parts.port
    except ValueError:
        parts, port = None, None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(
            f"url is {shown(given)}; it must be as http://127.0.0.1:8000", parameter="url"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError(
            "url holds a name, a key or a question; give the address alone, as "
            f"{parts.scheme}://{parts.hostname}{'' if port is None else f':{port}'}, and the key "
            "as api_key",
            parameter="url",
        )
    return parts


def _as_key(key: str) -> str:
    """A key that fits into a header; an error does not show it."""
    if not isinstance(key, str) or not key or not key.isascii() or not key.isprintable():
        raise UserError(
            "api_key must be a text of printable ASCII characters, and not empty; it is not shown "
            "here",
            parameter="api_key",
        )
    return key


def _seconds(told: str | None) -> float | None:
    """How long to wait, where a server says it in seconds."""
    if told is None or not told.strip().isdigit():
        return None
    return min(float(told), LONGEST_WAIT_S)

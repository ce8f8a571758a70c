"""The server of `triptych serve`: this machine alone, and only who knows the token.

It listens on 127.0.0.1. The first part of every path is a random token. A request for another host
is refused, so that a web page elsewhere cannot reach it by a name of its own. All requests only
read.
"""

import errno
import hmac
import json
import secrets
import sys
import traceback
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from triptych.core.validation import UserError, as_count
from triptych.lab.serving.site import Answer, NotFound, Site

HOST = "127.0.0.1"
TOKEN_BYTES = 24
_READ_SECONDS = 10.0  # that a browser may take to send its request
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; frame-src 'self'; frame-ancestors 'self'; base-uri 'none'; "
    "form-action 'none'"
)
_ALONE = "; sandbox allow-scripts"  # a page that may run, but not read the other pages


class Server(ThreadingHTTPServer):
    """A site on a port of this machine; port 0 takes a free one."""

    daemon_threads = True  # Ctrl-C does not wait for answers
    block_on_close = False

    def __init__(self, site: Site, port: int = 0) -> None:
        port = as_count("port", port, at_least=0, at_most=65535)
        self.site = site
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        try:
            super().__init__((HOST, port), _Request)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UserError(
                    f"port {port} is in use: stop what uses it, or choose another with --port",
                    parameter="port",
                ) from error
            raise UserError(
                f"port {port} cannot be opened ({error.strerror}): choose another with --port",
                parameter="port",
            ) from error

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """Where the first page is; it has the token."""
        return f"http://{HOST}:{self.port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no error; anything else is shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Request(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version = "triptych"
    sys_version = ""
    timeout = _READ_SECONDS

    def do_GET(self) -> None:
        self._send(self._answer())

    def _answer(self) -> Answer:
        hosts = {f"{name}:{self.server.port}" for name in (HOST, "localhost")}
        if self.headers.get("Host") not in hosts:
            return _refused(HTTPStatus.MISDIRECTED_REQUEST, "This server answers for 127.0.0.1.")
        try:
            address = urlsplit(self.path)
        except ValueError:
            return _refused(HTTPStatus.BAD_REQUEST, "This is no address.")
        token, slash, path = address.path.lstrip("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return _refused(
                HTTPStatus.FORBIDDEN, "Use the whole address that `triptych serve` has printed."
            )
        if not slash:
            return Answer("", status=HTTPStatus.FOUND, location=f"/{token}/")
        try:
            return self.server.site.answer(path, address.query)
        except NotFound as error:
            return _refused(HTTPStatus.NOT_FOUND, str(error))
        except UserError as error:
            text = json.dumps({"error": str(error)})
            return Answer(text, "application/json", HTTPStatus.BAD_REQUEST)
        except Exception:
            traceback.print_exc()  # a defect; the page says where to look
            text = json.dumps({"error": "This is a defect; the terminal shows where it is."})
            return Answer(text, "application/json", HTTPStatus.INTERNAL_SERVER_ERROR)

    def _send(self, answer: Answer) -> None:
        body = answer.text.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", f"{answer.type}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", _POLICY + (_ALONE if answer.alone else ""))
        self.send_header("Referrer-Policy", "no-referrer")  # the address has the token
        self.send_header("X-Content-Type-Options", "nosniff")
        if answer.location:
            self.send_header("Location", answer.location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a line per request would hide the address."""


def _refused(status: HTTPStatus, sentence: str) -> Answer:
    return Answer(sentence + "\n", "text/plain", status)

"""A gateway on a port: started, and stopped so that what runs is finished."""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from triptych.apps.gateway.site import Gateway, is_loopback
from triptych.core.validation import UserError, as_count

_CONNECTIONS = 512  # at once; what is more gets 503
_KEEP_ALIVE_SECONDS = 30


class GatewayServer(uvicorn.Server):
    """A server that takes no new request after SIGTERM or Ctrl-C, finishes what it has, and ends.

    A second Ctrl-C ends it at once.
    """

    def __init__(self, gateway: Gateway, host: str, port: int) -> None:
        if not is_loopback(host) and gateway.token is None:
            raise UserError(
                f"--host {host} lets other machines ask, so the gateway needs a token: write one "
                "into a file and pass --token-file FILE",
                parameter="host",
            )
        self.gateway, self.host = gateway, host
        self._socket = _bound(host, as_count("port", port, at_least=0, at_most=65535))
        super().__init__(
            uvicorn.Config(
                gateway.app(),
                log_config=None,  # a line of it would hold what a client wrote
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                proxy_headers=False,
                limit_concurrency=_CONNECTIONS,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=int(2 * gateway.limits.seconds) + 10,
            )
        )

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def address(self) -> str:
        """Where clients find it: the `base_url` of an OpenAI client."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/v1"

    def serve_until_stopped(self) -> None:
        """Answer until a signal comes, then finish what runs."""
        try:
            self.run(sockets=[self._socket])
        finally:
            self.gateway.workers.close(seconds=1.0)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """A signal came."""
        self.gateway.stopping = True
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but a signal that was heard is not raised again: to stop is no error."""
        heard = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.signal(each, self.handle_exit) for each in heard}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _bound(host: str, port: int) -> socket.socket:
    """A socket on the port; 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise UserError(
            f"the gateway cannot listen on {host}:{port} ({error.strerror or error}): choose "
            "another with --port, or 0 for a free one",
            parameter="port",
        ) from error
    made.set_inheritable(True)
    return made

"""Runs the application with uvicorn on a listening socket, and adds protection against clients that are slow on
purpose."""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from weft.errors import BadInput, Busy
from weft.jobs.api.streams import TRANSPORT

FIRST_REQUEST_S = 20.0  # The time limit for the headers of a connection's first request.
GRACE_S = 3  # The time that requests in progress get when the worker ends.
BACKLOG = 4096
SOCKET_MESSAGE_BYTES = 64 * 1024  # The largest message from a WebSocket's client; messages are discarded.


class Protocol(HttpToolsProtocol):
    """An HTTP connection. Makes its transport available to requests; closed if the first request does not arrive in
    time."""

    _first: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Starts the timeout for the first request."""
        super().connection_made(transport)
        self._first = self.loop.call_later(FIRST_REQUEST_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the timeout: the connection was closed."""
        if self._first is not None:
            self._first.cancel()
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        """Cancels the timeout: the headers of a request are complete."""
        if self._first is not None:
            self._first.cancel()
            self._first = None
        self.scope[TRANSPORT] = self.transport  # type: ignore[literal-required]
        super().on_headers_complete()


class SocketProtocol(WSProtocol):
    """A WebSocket connection that makes its transport available to its handler."""

    def handle_connect(self, event: Any) -> None:
        """Puts the transport into the scope of the handshake."""
        super().handle_connect(event)
        self.scope[TRANSPORT] = self.transport  # type: ignore[literal-required]


class HttpServer(uvicorn.Server):
    """A uvicorn server that ends event streams before it waits for open requests: they last as long as their tasks."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends event streams, then shuts the worker down."""
        end_streams = getattr(self.config.app, "end_streams", None)
        if end_streams is not None:
            end_streams()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Opens the socket on which all workers accept connections."""
    bare = host.strip("[]")
    try:
        family, kind, number, _, address = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise BadInput(f"host: {host!r} is not an address of this machine: {error.strerror}") from None
    listening = socket.socket(family, kind, number)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if isinstance(error, PermissionError) or "assign" in str(error):
            raise BadInput(f"cannot listen at {host}:{port}: {error.strerror}") from None
        raise Busy(f"port {port}: {error.strerror}; choose another `port`, or 0 for one that is free") from None
    listening.setblocking(False)
    listening.set_inheritable(True)
    return listening


def server_of(app: ASGIApp) -> uvicorn.Server:
    """The server of one worker: `await server.serve(sockets=[...])` runs it; `server.should_exit = True` ends it."""
    _allow_connections()
    return HttpServer(
        uvicorn.Config(
            app, http=Protocol, ws=SocketProtocol, ws_max_size=SOCKET_MESSAGE_BYTES, ws_per_message_deflate=False,
            loop="uvloop", lifespan="on", access_log=False, log_config=None,
            server_header=False, date_header=True, timeout_graceful_shutdown=GRACE_S, timeout_keep_alive=30,
            proxy_headers=False, backlog=BACKLOG,
        )
    )  # fmt: skip


def _allow_connections() -> None:
    """Raises the limit of open files as far as the system allows: thousands of streams need thousands of
    descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

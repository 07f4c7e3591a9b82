"""A server on loopback that does exactly what a test tells it to, byte by byte, and writes down what reached it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

from pace import patience

CERTS = Path(__file__).parents[1] / "unit" / "fetch" / "certs"
AUTHORITY = str(CERTS / "authority.pem")


class Visit:
    """One request: what was asked, and the means to answer."""

    def __init__(
        self, head: bytes, connection: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.head = head
        self.reader = reader
        self.connection = connection
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def wait_for_the_end(self) -> None:
        """Says nothing more until the client closes."""
        while await self.reader.read(65536):
            pass

    def reset(self) -> None:
        """Ends the connection with RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Reply = bytes | Callable[[Visit], Awaitable[None]]


class Server:
    """Answers by path. Bytes are sent as they are, and the connection is kept unless `close`."""

    def __init__(self, certificate: str | None = None, host: str = "127.0.0.1") -> None:
        self.host = host
        self.visits: list[tuple[int, bytes]] = []  # connection and head, in order of arrival
        self.connections = 0
        self.resumed: list[bool] = []  # TLS: whether each connection took up an old session
        self.broken_off = 0  # answers that the client ended
        self.closed = 0  # connections that are over
        self._replies: dict[str, tuple[Reply, bool]] = {}
        self._tls = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(CERTS / certificate)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(patience(5))
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(patience(5))

    def on(self, path: str, reply: Reply, *, close: bool = False, host: str | None = None) -> str:
        """Sets the reply of a path; its URL."""
        self._replies[path] = (reply, close)
        return self.url(path, host)

    def url(self, path: str, host: str | None = None) -> str:
        return f"{'https' if self._tls else 'http'}://{host or self.host}:{self.port}{path}"

    @property
    def heads(self) -> list[bytes]:
        return [head for _, head in self.visits]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        starting = asyncio.start_server(self._serve, self.host, 0, ssl=self._tls, backlog=4096, limit=1 << 20)
        server = self._loop.run_until_complete(starting)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        if self._tls:
            self.resumed.append(writer.get_extra_info("ssl_object").session_reused)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.visits.append((number, head))
                path = head.split(b" ", 2)[1].partition(b"?")[0].decode("latin-1")
                reply, close = self._replies.get(path, (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", False))
                if isinstance(reply, bytes):
                    writer.write(reply)
                    await writer.drain()
                else:
                    await reply(Visit(head, number, reader, writer))
                if close:
                    break
        except (asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        except (ConnectionError, ssl.SSLError):
            self.broken_off += 1
        finally:
            writer.close()
            self._loop.call_soon(self._count_closed)  # asyncio closes the socket in its next round

    def _count_closed(self) -> None:
        self.closed += 1


def until(happened: Callable[[], bool]) -> None:
    """Waits for what another thread is about to do."""
    limit = time.monotonic() + patience(5)
    while time.monotonic() < limit:
        if happened():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def page(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """A well-formed answer."""
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers, b"", b""]
    return b"\r\n".join(lines) + body

"""One client connection of the synthetic web: parses requests, answers them one after another, logs each.

A page without flaws is answered inside `data_received`; whatever takes time runs as a task and holds the connection.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import TYPE_CHECKING

from weft.testing.arrivals import Arrival
from weft.testing.content import hostile, pages
from weft.testing.content.resources import Resource
from weft.testing.content.sites import SyntheticSite

if TYPE_CHECKING:
    from weft.testing.server import SyntheticServer

MAX_HEAD_BYTES = 65_536
CHUNK_BYTES = 262_144


@dataclass(slots=True)
class WebReply:
    """A rendered answer: `data` is head and body, the body begins at `body_at`."""

    data: bytes
    body_at: int
    status: int
    note: str
    etag: str = ""
    modified: int = 0


@dataclass(slots=True)
class WebRequest:
    """One parsed request. `t`: when its first byte was read. `overlaps`: another request to its host was still open."""

    t: float
    method: str
    path: str
    headers: list[tuple[str, str]]
    close: bool
    site: SyntheticSite | None = None
    host: str = ""
    abandoned: bool = False
    overlaps: bool = False

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")


class ClientDisconnected(Exception):
    """The client has closed the connection."""


class WebConnection(asyncio.Protocol):
    """One client connection: parses requests, answers them one after another, logs each."""

    transport: asyncio.Transport

    def __init__(self, server: SyntheticServer) -> None:
        self.server = server
        self._buffer = b""
        self._first = self._latest = self._stamp = 0.0
        self._busy = False
        self._current: WebRequest | None = None
        self._drained: asyncio.Future[None] | None = None
        self._sent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._note = ""
        self._ending = False
        self._is_unread = False  # an answer was sent to a client that was gone
        self.status = 0
        self.lost = False

    # -- asyncio.Protocol --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=0)
        self.address: str = transport.get_extra_info("sockname")[0]
        self.server.connections += 1
        self.number = self.server.connections

    def data_received(self, data: bytes) -> None:
        self._latest = monotonic()
        if self._buffer:
            self._buffer += data
        else:
            self._buffer = data
            self._first = self._latest
        if not self._busy:
            self._serve()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.lost = True
        if self._timer:
            self._timer.cancel()
        if self._drained and not self._drained.done():
            self._drained.set_exception(ClientDisconnected())
        if self._current is not None:
            self.finish(self.status, self._note, aborted=True)

    def pause_writing(self) -> None:
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._drained and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    # -- requests ---------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Answers the requests that are complete in the buffer."""
        while not self._busy and not self.lost:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > MAX_HEAD_BYTES:
                    self._refuse(431)
                return
            request = parse(self._buffer[:end], self._first)
            if request is None:
                self._refuse(400)
                return
            length = request.header("content-length")
            after = end + 4 + (int(length) if length.isdigit() else 0)
            if len(self._buffer) < after:
                return
            self._buffer = self._buffer[after:]
            self._first = self._latest
            self._start(request)

    def _refuse(self, status: int) -> None:
        self._buffer = b""
        self.transport.write(pages.head(status, 0, [("Connection", "close")]))
        self.transport.close()

    def _start(self, request: WebRequest) -> None:
        server = self.server
        self._current = request
        self._sent = 0
        self._stamp = request.t
        self.status = 0
        self._ending = self._is_unread = False
        self._note = "unanswered"
        host = request.header("host").rpartition("@")[2].partition(":")[0].lower()
        request.host = host if server.world.spec.names else self.address
        request.site = server.world.by_host.get(request.host)
        request.abandoned = not self._client_is_there()
        others = server.open.get(request.host)
        if others:
            request.overlaps = any(other.is_open() for other in others)
        if server.options.latency_s:
            self._later(server.options.latency_s, self._answer)
        else:
            self._answer()

    def _answer(self) -> None:
        request = self._current
        assert request is not None
        packed = self.server.options.gzip and "gzip" in request.header("accept-encoding")
        answer = self.server.cached(request.host, request.path, packed)
        if answer is None:
            if request.site is None:
                self._send(WebReply(pages.head(404, 0, []), 0, 404, "unknown-host"))
                return
            resource = self.server.world.find(request.site, request.path)
            if resource.behaviour:
                self._note = resource.kind
                self._run(hostile.act(self, resource))
                return
            if resource.flaw or resource.kind == "cookie-wall":
                self._misbehave(request, resource, packed)
                return
            answer = self.server.answer(resource, packed)
            self.server.remember(request.host, request.path, packed, answer)
        self._send(answer)

    def _misbehave(self, request: WebRequest, resource: Resource, packed: bool) -> None:
        """Answers a URL that has a flaw, or wants its cookie."""
        flaw = resource.flaw
        if flaw is None:
            if "wall=passed" in request.header("cookie"):
                self._send(self.server.answer(resource, packed))
            else:
                fields = [("Location", resource.path), ("Set-Cookie", "wall=passed; Path=/")]
                head = pages.head(302, 0, fields)
                self._send(WebReply(head, len(head), 302, "cookie-wall"))
            return
        before = self.server.count_attempt(request.host, request.path)
        if before >= flaw.failures:
            answer = self.server.answer(resource, packed)
            if flaw.wait_s:
                answer.note = flaw.name
                self._later(flaw.wait_s, lambda: self._send(answer))
            else:
                self._send(answer)
        elif flaw.name == "reset":
            self.reset("reset")
        else:
            body = b'<html><body>Try later. <a href="/never/from-error">status</a></body></html>'
            fields = [("Content-Type", "text/html")]
            if flaw.retry_after_s is not None:
                fields.append(("Retry-After", str(flaw.retry_after_s)))
            head = pages.head(flaw.status, len(body), fields)
            self._send(WebReply(head + body, len(head), flaw.status, flaw.name), flaw.retry_after_s)

    def _send(self, answer: WebReply, retry_after_s: float | None = None) -> None:
        """Passes an answer to the kernel, and logs it once the kernel has its last byte."""
        request = self._current
        assert request is not None
        data, status = answer.data, answer.status
        if answer.etag and _is_unchanged(request, answer):
            data, status = pages.head(304, None, [("ETag", answer.etag)]), 304
        elif request.method == "HEAD":
            data = data[: answer.body_at]
        if len(data) > CHUNK_BYTES:
            self._run(self._send_slowly(data, status, answer.note))
            return
        if not self._claim_moment():
            return
        self._sent = len(data)
        self.status, self._note, self._ending = status, answer.note, True
        self.transport.write(data)
        if self._drained is None:
            self.finish(status, answer.note, retry_after_s=retry_after_s)
        else:
            self._run(self._wait_drained(status, answer.note, retry_after_s))

    async def _wait_drained(self, status: int, note: str, retry_after_s: float | None) -> None:
        await self.drain()
        self.finish(status, note, retry_after_s=retry_after_s)

    async def _send_slowly(self, data: bytes, status: int, note: str) -> None:
        self.status, self._note = status, note
        for start in range(0, len(data), CHUNK_BYTES):
            await self.send(data[start : start + CHUNK_BYTES], last=start + CHUNK_BYTES >= len(data))
        self.finish(status, note)

    def finish(self, status: int, note: str, *, aborted: bool = False, retry_after_s: float | None = None) -> None:
        """Logs the current request, and continues with the next one."""
        request, self._current = self._current, None
        if request is None:
            return
        if self._busy:
            self._busy = False
            self.server.open[request.host].discard(self)
        self.server.log.add(
            Arrival(
                t=request.t,
                end=self._stamp,
                host=request.host,
                port=self.server.port,
                method=request.method,
                path=request.path,
                status=status,
                bytes=self._sent,
                note=note,
                headers=request.headers,
                connection=self.number,
                address=self.address if self.server.world.spec.names else "",
                scheme=self.server.scheme,
                retry_after_s=retry_after_s,
                aborted=aborted or self._is_unread,
                abandoned=request.abandoned,
                overlaps=request.overlaps,
            )
        )
        if aborted or self.lost:
            return
        if request.close:
            self.transport.close()
        elif self._buffer:
            asyncio.get_running_loop().call_soon(self._serve)

    # -- for answers that take time ---------------------------------------------------------------------------------

    def is_open(self) -> bool:
        """Whether the client is still connected, according to the kernel."""
        if self._current is None or (self._ending and not self.transport.get_write_buffer_size()):
            return False
        return self._client_is_there()

    def _client_is_there(self) -> bool:
        if self.lost:
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        return not poll.poll(0)

    def _claim_moment(self) -> bool:
        """Reads the clock before bytes are sent; returns whether the client is still connected.

        The kernel is asked after the clock: a client that is connected now was connected at that time. Without this,
        bytes sent to a client that has just disconnected would make its request seem longer than it was.
        """
        moment = monotonic()
        if self.lost or not self._client_is_there():
            self._is_unread = True
            return not (self.lost or self._busy)  # a ready answer is sent in any case
        self._stamp = moment
        return True

    async def send(self, data: bytes, *, last: bool = False) -> None:
        """Sends bytes and waits until the kernel has them; raises ClientDisconnected if the client has disconnected."""
        if not self._claim_moment():
            raise ClientDisconnected
        self._ending = last
        self._sent += len(data)
        self.transport.write(data)
        await self.drain()

    async def drain(self) -> None:
        if self._drained:
            await self._drained
        if self.lost:
            raise ClientDisconnected

    def reset(self, note: str, status: int = 0) -> None:
        """Closes with a RST instead of a FIN; if the client has disconnected before, that is logged already."""
        if self.lost:
            return
        linger = struct.pack("ii", 1, 0)
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._claim_moment()
        self.lost = True
        self.finish(status, note)
        self.transport.abort()

    def close(self, status: int, note: str) -> None:
        """Ends the current request by closing the connection, even before the announced length."""
        if self._current and self._claim_moment():
            self._current.close = True
            self.finish(status, note)

    def _hold(self) -> None:
        request = self._current
        assert request is not None
        if not self._busy:
            self._busy = True
            self.server.open.setdefault(request.host, set()).add(self)

    def _later(self, wait_s: float, call: Callable[[], None]) -> None:
        self._hold()
        self._timer = asyncio.get_running_loop().call_later(wait_s, call)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        self._hold()
        task = asyncio.get_running_loop().create_task(self._quietly(work))
        self.server.tasks.add(task)
        task.add_done_callback(self.server.tasks.discard)

    async def _quietly(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except ClientDisconnected:
            pass  # connection_lost has logged it
        except TimeoutError:
            self.transport.abort()

    def give_up(self) -> None:
        """Logs a request that is still open when the server ends."""
        if self._current is not None:
            self.finish(self.status, self._note, aborted=True)


def parse(head: bytes, t: float) -> WebRequest | None:
    """Parses a request head; None if it is invalid."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return None
    method, path, version = words
    if not path.startswith("/"):
        rest = path.partition("://")[2]
        path = "/" + rest.partition("/")[2]
    headers = []
    close = version == "HTTP/1.0"
    for line in lines[1:]:
        name, _, value = line.partition(":")
        value = value.strip()
        headers.append((name, value))
        if name.lower() == "connection":
            close = value.lower() == "close"
    return WebRequest(t, method, path, headers, close)


def _is_unchanged(request: WebRequest, answer: WebReply) -> bool:
    """Whether a conditional request names the current version of the page."""
    tags = request.header("if-none-match")
    if tags:
        return answer.etag in tags or tags == "*"
    since = request.header("if-modified-since")
    if not since:
        return False
    try:
        return parsedate_to_datetime(since).timestamp() >= answer.modified
    except ValueError:
        return False

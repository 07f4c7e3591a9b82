"""Event streams over HTTP: limits their number, and closes those whose reader does not read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from time import monotonic
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from weft.jobs.api.problems import Refusal
from weft.jobs.api.settings import ApiSettings
from weft.jobs.reading.hub import Write
from weft.telemetry import Log

BUFFER_BYTES = 8 * 1024  # The buffer of each reader in this process; the kernel buffers a few times as much.
SOCKET_BYTES = 32 * 1024
# key in a request's scope under which the server (server.py) puts the connection's transport
TRANSPORT = "weft.transport"
# A comment without an empty line after it: after `retry` alone an empty line would end an event without data, which
# some clients pass on.
_HEARTBEAT = b": \n"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
log = Log("weft.jobs.api")


class StreamSlots:
    """Counts open streams, in all and for each key."""

    def __init__(self, settings: ApiSettings) -> None:
        self._most = settings.share(settings.max_streams)
        self._most_of_one = settings.share(settings.max_streams_per_key)
        self._by_owner: dict[str, int] = {}
        self.taken = 0

    def reserve(self, owner: str) -> None:
        """Reserves a stream for an owner; raises Refusal (429) at the limit."""
        if self.taken >= self._most or self._by_owner.get(owner, 0) >= self._most_of_one:
            raise Refusal(429, "there are too many event streams: close some, or ask for the status", retry_after_s=5)
        self._by_owner[owner] = self._by_owner.get(owner, 0) + 1
        self.taken += 1

    def release(self, owner: str) -> None:
        """Releases a stream."""
        self.taken -= 1
        self._by_owner[owner] -= 1
        if not self._by_owner[owner]:
            del self._by_owner[owner]


class EventStream(Response):
    """Sends what a generator yields until it ends, the reader disconnects, or the reader stops reading.

    The generator is passed a function that writes directly to the transport, without waiting and without the server's
    `send`.
    """

    media_type = "text/event-stream"

    def __init__(
        self, pieces: Callable[[Write], AsyncGenerator[bytes, None]], stream_slots: StreamSlots, owner: str,
        settings: ApiSettings, headers: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(headers={**_HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._pieces = pieces(self._write)
        self._transport: Any = None
        self._sent_at = 0.0
        self._stream_slots = stream_slots
        self._owner = owner
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Streams until the generator ends or the reader is gone."""
        self._stream_slots.reserve(self._owner)
        gone = asyncio.ensure_future(_wait_for_disconnect(receive))
        mine = asyncio.current_task()
        assert mine is not None
        gone.add_done_callback(lambda ended: None if ended.cancelled() else mine.cancel())
        try:
            self._transport = scope.get(TRANSPORT)
            await self._send_all(send)
        except asyncio.CancelledError:
            if not gone.done():
                raise
            mine.uncancel()  # the reader has disconnected: not an error
        finally:
            gone.cancel()
            self._stream_slots.release(self._owner)
            await self._pieces.aclose()

    async def _send_all(self, send: Send) -> None:
        _bound_buffer(self._transport)
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await self._send(send, b"retry: 1000\n")  # a part of the first event
            async for piece in self._pieces:
                if piece or self._is_silent():
                    await self._send(send, piece or _HEARTBEAT)
            await self._send(send, b"", more=False)
        except TimeoutError:
            log.info("event stream cut off", owner=self._owner, stalled_s=self._settings.stall_s)
            if self._transport is not None:
                self._transport.abort()  # close() would wait for the reader to read the buffered bytes

    async def _send(self, send: Send, piece: bytes, *, more: bool = True) -> None:
        self._sent_at = monotonic()
        async with asyncio.timeout(self._settings.stall_s):
            await send({"type": "http.response.body", "body": piece, "more_body": more})

    def _write(self, piece: bytes) -> bool:
        """Writes directly to the transport if the reader has read everything so far. The server's `send` would double
        the cost for each of thousands of readers."""
        transport = self._transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return False
        if piece or self._is_silent():
            transport.write(_encode_chunk(piece or _HEARTBEAT))
            self._sent_at = monotonic()
        return True

    def _is_silent(self) -> bool:
        return monotonic() - self._sent_at >= self._settings.heartbeat_s / 2


@lru_cache(8)
def _encode_chunk(piece: bytes) -> bytes:
    """Encodes a piece as a chunk of HTTP chunked transfer coding: the same bytes for all readers."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def _bound_buffer(transport: Any) -> None:
    """Keeps the transport's buffer small: a slow reader gets the rest from the disk when it reads on."""
    if transport is not None:
        transport.set_write_buffer_limits(high=BUFFER_BYTES)
        with suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

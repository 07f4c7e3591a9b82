"""A minimal HTTP/1.1 client on asyncio for one request, with the features that the service uses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable
from typing import TypeVar

from weft.client.calls import CallRequest, ReplyHead, ServiceAddress
from weft.client.errors import NoAnswer

T = TypeVar("T")
LIMIT = 256 * 1024  # bytes of a line


class HttpExchange:
    """One request and its answer: `begin` sends the request and returns the head of the answer; `read` returns its body
    in pieces."""

    def __init__(self, service: ServiceAddress, timeout_s: float) -> None:
        self._service = service
        self._timeout_s = timeout_s
        self._writer: asyncio.StreamWriter | None = None
        self._bytes_left: int | None = None  # remaining bytes of the body; None: it ends with the connection
        self._is_chunked = False

    async def begin(self, ask: CallRequest) -> ReplyHead:
        """Sends the request, and reads the head of its answer."""
        return await self._run_guarded(self._send_request(ask))

    async def read(self) -> bytes:
        """The next piece of the body; empty at the end."""
        if self._bytes_left == 0:
            return b""
        size = min(self._bytes_left or 65536, 65536)
        piece = await self._run_guarded(self._read_chunk() if self._is_chunked else self._reader.read(size))
        if self._bytes_left is not None:
            if not piece:
                raise NoAnswer(self._service.url, "the connection broke")
            self._bytes_left -= len(piece)
        return piece

    def close(self) -> None:
        """Closes the connection."""
        if self._writer is not None:
            self._writer.close()

    async def _send_request(self, ask: CallRequest) -> ReplyHead:
        tls = ssl.create_default_context() if self._service.is_tls else None
        self._reader, self._writer = await asyncio.open_connection(
            self._service.host, self._service.port, ssl=tls, limit=LIMIT
        )
        lines = [f"{ask.method} {ask.target} HTTP/1.1", *(f"{name}: {value}" for name, value in ask.headers.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + ask.body)
        await self._writer.drain()
        status, headers = int((await self._line()).split(" ", 2)[1]), dict[str, str]()
        while line := await self._line():
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        length = headers.get("content-length", "")
        self._is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        if status in (204, 304):
            self._bytes_left = 0
        elif length.isdigit() and not self._is_chunked:
            self._bytes_left = int(length)
        return ReplyHead(status, headers)

    async def _line(self) -> str:
        line = await self._reader.readuntil(b"\r\n")
        return line[:-2].decode("latin-1")

    async def _read_chunk(self) -> bytes:
        size = int((await self._line()).partition(";")[0], 16)
        piece = await self._reader.readexactly(size)
        await self._line()
        return piece

    async def _run_guarded(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except TimeoutError:
            raise NoAnswer(self._service.url, "it took too long") from None
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError, IndexError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NoAnswer(self._service.url, reason) from error

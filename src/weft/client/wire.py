"""One HTTP/1.1 request and its answer on asyncio: what the service speaks, and no more."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable
from types import TracebackType
from typing import Any, Self, TypeVar

from weft.client.calls import Answer, Call, Service
from weft.client.errors import NoAnswer

T = TypeVar("T")
LIMIT = 256 * 1024  # bytes of one line


class Exchange:
    """`async with Exchange(service, call, timeout_s) as exchange:` its status and headers are there, then its body."""

    def __init__(self, service: Service, call: Call[Any], timeout_s: float) -> None:
        self._service = service
        self._call = call
        self._timeout_s = timeout_s
        self._writer: asyncio.StreamWriter | None = None
        self.status = 0
        self.headers: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        try:
            await self._guarded(self._begin())
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    async def whole(self) -> Answer:
        """The answer with its body."""
        return Answer(self.status, self.headers, b"".join([piece async for piece in self.pieces()]))

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes in."""
        if self.status in (204, 304):
            return
        length = self.headers.get("content-length", "")
        left = int(length) if length.isdigit() else None
        is_chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        while left != 0 or is_chunked:
            piece = await self._guarded(self._chunk() if is_chunked else self._reader.read(min(left or 65536, 65536)))
            if not piece:
                if left and not is_chunked:
                    raise NoAnswer(self._service.url, "it broke off")
                return
            left = left if left is None else left - len(piece)
            yield piece

    async def _begin(self) -> None:
        tls = ssl.create_default_context() if self._service.is_tls else None
        self._reader, self._writer = await asyncio.open_connection(
            self._service.host, self._service.port, ssl=tls, limit=LIMIT
        )
        head = [f"{self._call.method} {self._service.target(self._call)} HTTP/1.1"]
        head += [f"{name}: {value}" for name, value in self._service.headers(self._call).items()]
        self._writer.write("\r\n".join([*head, "", ""]).encode("latin-1") + (self._call.body or b""))
        await self._writer.drain()
        first = (await self._line()).split(" ", 2)
        self.status = int(first[1])
        while line := await self._line():
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()

    async def _line(self) -> str:
        found = await self._reader.readuntil(b"\r\n")
        return found[:-2].decode("latin-1")

    async def _chunk(self) -> bytes:
        size = int((await self._line()).partition(";")[0], 16)
        piece = await self._reader.readexactly(size)
        await self._line()
        return piece

    async def _guarded(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except TimeoutError:
            raise NoAnswer(self._service.url, "it took too long") from None
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError, IndexError) as error:
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NoAnswer(self._service.url, said) from error

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()

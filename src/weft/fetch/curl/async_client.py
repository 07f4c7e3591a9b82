"""The client for asyncio: `async with AsyncClient(section, refusal=...) as client: await client.get(url)`.

The same `Client`, woken by the event loop through its epoll and one timer. What must stay true: every `get` ends, with
a result, by its cancellation (which ends the transfer too), or with the client, and at most `handles` are in flight;
the others wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from weft.config import FetchSection
from weft.fetch.curl.client import Client, Refusal
from weft.fetch.dns.resolver import Resolver
from weft.records import FetchResult


class AsyncClient:
    """Requests URLs from coroutines."""

    def __init__(
        self,
        section: FetchSection,
        *,
        refusal: Refusal,
        handles: int = 100,
        resolver: Resolver | None = None,
        ca_file: str | None = None,
    ) -> None:
        self._client = Client(section, refusal=refusal, handles=handles, resolver=resolver, ca_file=ca_file)
        self._places = asyncio.Semaphore(handles)
        self._pending: set[asyncio.Future[FetchResult]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._client.fileno(), self._step)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def get(self, url: str, headers: Sequence[tuple[str, str]] = ()) -> FetchResult:
        """Fetches one URL; errors of the transfer are in the result."""
        return await self._ask(url, headers, {})

    async def post(
        self, url: str, body: bytes, headers: Sequence[tuple[str, str]] = (), *, keep_bytes: int = 0
    ) -> FetchResult:
        """Sends a body; reads at most `keep_bytes` of the answer's. Follows no redirect."""
        return await self._ask(url, headers, {"body": body, "keep_bytes": keep_bytes})

    async def _ask(self, url: str, headers: Sequence[tuple[str, str]], more: dict[str, Any]) -> FetchResult:
        async with self._places:
            if self._closed:
                raise RuntimeError("the client is closed")
            ended: asyncio.Future[FetchResult] = self._loop.create_future()
            self._pending.add(ended)
            self._client.submit(url, headers, ended, **more)
            self._set_timer()
            try:
                return await ended
            finally:
                self._pending.discard(ended)
                if ended.cancelled() and not self._closed:
                    self._client.abort(ended)
                    self._step()

    def close(self) -> None:
        """Cancels what is in flight and closes the client."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._client.fileno())
        if self._timer is not None:
            self._timer.cancel()
        for ended in self._pending:
            ended.cancel()
        self._client.close()

    def _step(self) -> None:
        """Runs the client without waiting, and completes the futures of ended transfers."""
        if self._closed:
            return
        for tag, result in self._client.poll(0):
            if isinstance(tag, asyncio.Future) and not tag.done():
                tag.set_result(result)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        timeout_s = self._client.timeout_s()
        self._timer = None if timeout_s is None else self._loop.call_later(timeout_s, self._step)

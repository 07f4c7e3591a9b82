"""The client for asyncio: the same calls with `await`, and `async for` where there are many."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Self, TypeVar, Unpack

from weft.client import calls
from weft.client.calls import LOOK_EVERY_S, SILENT_S, Call
from weft.client.errors import ClientError
from weft.client.model import (
    Changed,
    Delivery,
    Event,
    Page,
    PageError,
    Results,
    Scrape,
    ScrapeOptions,
    State,
    Status,
    Submitted,
    Summary,
    Webhook,
)  # fmt: skip
from weft.client.sse import EventParser
from weft.client.telling import Progress, shower
from weft.client.wire import Exchange

T = TypeVar("T")


class AsyncWeft:
    """See `Weft`: the same calls, with the same arguments."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        key: str | None = None,
        timeout: float = 30.0,
        patience: float = 30.0,
    ) -> None:
        self._service = calls.service_at(url, key)
        self._timeout_s = timeout
        self._patience_s = patience

    async def __aenter__(self) -> Self:
        """For `async with`: there is nothing to close, each call has a connection of its own."""
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def scrape(
        self, url: str, *, progress: Progress | bool | None = None, **options: Unpack[ScrapeOptions]
    ) -> Scrape:
        """Scrapes, waits for the end, and returns the pages."""
        task_id = (await self.submit(url, **options)).task_id
        status = await self.wait(task_id, progress=progress)
        pages, errors = list[Page](), list[PageError]()
        async for stretch in self._stretches(task_id, include_errors=True):
            pages += stretch.pages
            errors += stretch.errors
        return Scrape(pages, status, errors)

    async def submit(
        self, url: str, *, idempotency_key: str | None = None, **options: Unpack[ScrapeOptions]
    ) -> Submitted:
        """Starts a task."""
        return await self._call(calls.submit(url, options, idempotency_key))

    async def status(self, task_id: str) -> Status:
        """How a task stands."""
        return await self._call(calls.status(task_id))

    async def results(
        self, task_id: str, *, include_errors: bool = False, limit: int = 100, cursor: str | None = None
    ) -> Results:
        """A stretch of what there is now."""
        return await self._call(calls.results(task_id, include_errors, limit, cursor))

    async def pages(self, task_id: str) -> AsyncIterator[Page]:
        """Every page that there is now."""
        async for stretch in self._stretches(task_id, include_errors=False):
            for page in stretch.pages:
                yield page

    async def errors(self, task_id: str) -> AsyncIterator[PageError]:
        """Every URL that has given no page so far."""
        async for stretch in self._stretches(task_id, include_errors=True):
            for error in stretch.errors:
                yield error

    async def export(
        self, task_id: str, kind: str, *, include_errors: bool = False, cursor: str | None = None, limit: int = 100
    ) -> tuple[bytes, str | None]:
        """A stretch of what there is now as jsonl, csv, ...; and the cursor of the next."""
        return await self._call(calls.export(task_id, kind, limit, include_errors, cursor))

    async def events(self, task_id: str, *, after: int = 0) -> AsyncIterator[Event]:
        """What happens to a task, until it ends: each numbered event once and in order."""
        tries = calls.waits(self._patience_s)
        while True:
            try:
                async with aclosing(self._stream(task_id, after)) as stream:
                    async for event in stream:
                        after = event.number or after
                        tries = calls.waits(self._patience_s)
                        yield event
                status = await self.status(task_id)
                if status.has_ended and status.last_event <= after:
                    return
            except ClientError as error:
                await self._pause(error, tries)

    async def wait(
        self, task_id: str, *, progress: Progress | bool | None = None, timeout: float | None = None
    ) -> Status:
        """Returns when a task has ended; TimeoutError where it has not in so many seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        with shower(progress) as show:
            while True:
                status = await self.status(task_id)
                show(status)
                if status.has_ended:
                    return status
                if until is not None and time.monotonic() >= until:
                    raise TimeoutError(f"the task {task_id} has not ended in {timeout:g} s")
                left = LOOK_EVERY_S if until is None else max(0.0, min(LOOK_EVERY_S, until - time.monotonic()))
                await asyncio.sleep(left)

    async def cancel(self, task_id: str) -> Changed:
        """Ends a task; what was scraped is kept."""
        return await self._call(calls.cancel(task_id))

    async def pause(self, task_id: str) -> Changed:
        """Nothing more is asked for until `resume`."""
        return await self._call(calls.pause(task_id))

    async def resume(self, task_id: str) -> Changed:
        """Goes on with a task that is paused."""
        return await self._call(calls.resume(task_id))

    async def tasks(self, status: State | None = None) -> AsyncIterator[Summary]:
        """Every task, newest first."""
        cursor: str | None = None
        while True:
            found = await self._call(calls.tasks(status, 100, cursor))
            for task in found.tasks:
                yield task
            cursor = found.next_cursor
            if cursor is None:
                return

    async def health(self) -> dict[str, Any]:
        """How the service as a whole is."""
        return await self._call(calls.health())

    async def webhook(self, task_id: str) -> Webhook:
        """How far a task's webhook is."""
        return await self._call(calls.webhook(task_id))

    async def deliveries(self, task_id: str) -> AsyncIterator[Delivery]:
        """What became of each event of a task's webhook, in the order of the events."""
        cursor: str | None = None
        while True:
            found = await self._call(calls.deliveries(task_id, 1000, cursor))
            for delivery in found.deliveries:
                yield delivery
            cursor = found.next_cursor
            if cursor is None:
                return

    async def replay(self, task_id: str, *, after: int | None = None, numbers: Sequence[int] = ()) -> Webhook:
        """Has a webhook's events sent again: everything behind a number (-1: all), or some; else it goes on where it
        has stopped."""
        return await self._call(calls.replay(task_id, after, numbers))

    async def webhook_secret(self) -> str:
        """What this key's deliveries are signed with."""
        return (await self._call(calls.webhook_secret()))["secret"]

    async def _stretches(self, task_id: str, include_errors: bool) -> AsyncIterator[Results]:
        cursor: str | None = None
        while True:
            found = await self.results(task_id, include_errors=include_errors, cursor=cursor)
            yield found
            cursor = found.next_cursor
            if cursor is None:
                return

    async def _call(self, call: Call[T]) -> T:
        tries = calls.waits(self._patience_s)
        while True:
            try:
                async with Exchange(self._service, call, self._timeout_s) as exchange:
                    return calls.read_answer(self._service, call, await exchange.whole())
            except ClientError as error:
                await self._pause(error, tries)

    async def _pause(self, error: ClientError, tries: Iterator[float]) -> None:
        wait = next(tries, None)
        if wait is None:
            raise error
        await asyncio.sleep(calls.wait_after(error, wait))

    async def _stream(self, task_id: str, after: int) -> Any:
        call, parser = calls.events(task_id, after), EventParser()
        async with Exchange(self._service, call, SILENT_S) as exchange:
            if exchange.status != 200:
                calls.checked(self._service, await exchange.whole())
                return
            async for piece in exchange.pieces():
                for event in parser.feed(piece):
                    yield event

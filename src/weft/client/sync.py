"""The client for plain code: each call blocks until it has its answer."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, Self, TypeVar, Unpack

from weft.client import calls
from weft.client.calls import LOOK_EVERY_S, SILENT_S, Answer, Call
from weft.client.errors import ClientError, NoAnswer
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

T = TypeVar("T")


class Weft:
    """A scrape service. Where it is away for a while, calls wait for it: `patience` seconds at most."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        key: str | None = None,
        timeout: float = 30.0,
        patience: float = 30.0,
    ) -> None:
        """`key`: an API key, where the service needs one. `timeout`: seconds for one answer."""
        self._service = calls.service_at(url, key)
        self._timeout_s = timeout
        self._patience_s = patience

    def __enter__(self) -> Self:
        """For `with`: there is nothing to close, each call has a connection of its own."""
        return self

    def __exit__(self, *_: object) -> None:
        return

    def scrape(self, url: str, *, progress: Progress | bool | None = None, **options: Unpack[ScrapeOptions]) -> Scrape:
        """Scrapes, waits for the end, and returns the pages; `.status` and `.errors` tell the rest.

        `progress`: called with a `Status` now and then; left out, a line is shown where stderr is a terminal. What is
        interrupted goes on in the service: `submit` and the other calls have an id to come back with.
        """
        task_id = self.submit(url, **options).task_id
        status = self.wait(task_id, progress=progress)
        pages, errors = list[Page](), list[PageError]()
        for stretch in self._stretches(task_id, include_errors=True):
            pages += stretch.pages
            errors += stretch.errors
        return Scrape(pages, status, errors)

    def submit(self, url: str, *, idempotency_key: str | None = None, **options: Unpack[ScrapeOptions]) -> Submitted:
        """Starts a task; it is on the service's disk when this returns, and one task however often it was sent."""
        return self._call(calls.submit(url, options, idempotency_key))

    def status(self, task_id: str) -> Status:
        """How a task stands."""
        return self._call(calls.status(task_id))

    def results(
        self, task_id: str, *, include_errors: bool = False, limit: int = 100, cursor: str | None = None
    ) -> Results:
        """A stretch of what there is now; go on with its `next_cursor`, or later with its `cursor`."""
        return self._call(calls.results(task_id, include_errors, limit, cursor))

    def pages(self, task_id: str) -> Iterator[Page]:
        """Every page that there is now, in the order in which they were stored."""
        for stretch in self._stretches(task_id, include_errors=False):
            yield from stretch.pages

    def errors(self, task_id: str) -> Iterator[PageError]:
        """Every URL that has given no page so far."""
        for stretch in self._stretches(task_id, include_errors=True):
            yield from stretch.errors

    def export(
        self, task_id: str, kind: str, *, include_errors: bool = False, cursor: str | None = None, limit: int = 100
    ) -> tuple[bytes, str | None]:
        """A stretch of what there is now as jsonl, csv, ...; and the cursor of the next, None where there is none."""
        return self._call(calls.export(task_id, kind, limit, include_errors, cursor))

    def events(self, task_id: str, *, after: int = 0) -> Iterator[Event]:
        """What happens to a task, until it ends: each numbered event once and in order, whatever breaks in between."""
        tries = calls.waits(self._patience_s)
        while True:
            try:
                for event in self._stream(task_id, after):
                    after = event.number or after
                    tries = calls.waits(self._patience_s)
                    yield event
                status = self.status(task_id)
                if status.has_ended and status.last_event <= after:
                    return
            except ClientError as error:
                self._pause(error, tries)

    def wait(self, task_id: str, *, progress: Progress | bool | None = None, timeout: float | None = None) -> Status:
        """Returns when a task has ended; TimeoutError where it has not in so many seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        with shower(progress) as show:
            while True:
                status = self.status(task_id)
                show(status)
                if status.has_ended:
                    return status
                if until is not None and time.monotonic() >= until:
                    raise TimeoutError(f"the task {task_id} has not ended in {timeout:g} s")
                left = LOOK_EVERY_S if until is None else max(0.0, min(LOOK_EVERY_S, until - time.monotonic()))
                time.sleep(left)

    def cancel(self, task_id: str) -> Changed:
        """Ends a task; what was scraped is kept."""
        return self._call(calls.cancel(task_id))

    def pause(self, task_id: str) -> Changed:
        """Nothing more is asked for until `resume`; the deadline runs on."""
        return self._call(calls.pause(task_id))

    def resume(self, task_id: str) -> Changed:
        """Goes on with a task that is paused."""
        return self._call(calls.resume(task_id))

    def tasks(self, status: State | None = None) -> Iterator[Summary]:
        """Every task, newest first."""
        cursor: str | None = None
        while True:
            found = self._call(calls.tasks(status, 100, cursor))
            yield from found.tasks
            cursor = found.next_cursor
            if cursor is None:
                return

    def health(self) -> dict[str, Any]:
        """How the service as a whole is."""
        return self._call(calls.health())

    def webhook(self, task_id: str) -> Webhook:
        """How far a task's webhook is."""
        return self._call(calls.webhook(task_id))

    def deliveries(self, task_id: str) -> Iterator[Delivery]:
        """What became of each event of a task's webhook, in the order of the events."""
        cursor: str | None = None
        while True:
            found = self._call(calls.deliveries(task_id, 1000, cursor))
            yield from found.deliveries
            cursor = found.next_cursor
            if cursor is None:
                return

    def replay(self, task_id: str, *, after: int | None = None, numbers: Sequence[int] = ()) -> Webhook:
        """Has a webhook's events sent again: everything behind a number (-1: all), or some; else it goes on where it
        has stopped."""
        return self._call(calls.replay(task_id, after, numbers))

    def webhook_secret(self) -> str:
        """What this key's deliveries are signed with."""
        return (self._call(calls.webhook_secret()))["secret"]

    def _stretches(self, task_id: str, include_errors: bool) -> Iterator[Results]:
        cursor: str | None = None
        while True:
            found = self.results(task_id, include_errors=include_errors, cursor=cursor)
            yield found
            cursor = found.next_cursor
            if cursor is None:
                return

    def _call(self, call: Call[T]) -> T:
        """Sends a request again while the service is away: all of them can be repeated."""
        tries = calls.waits(self._patience_s)
        while True:
            try:
                with closing(self._connect(self._timeout_s)) as connection:
                    answer = self._ask(connection, call, lambda found: found.read())
                return calls.read_answer(self._service, call, answer)
            except ClientError as error:
                self._pause(error, tries)

    def _pause(self, error: ClientError, tries: Iterator[float]) -> None:
        wait = next(tries, None)
        if wait is None:
            raise error
        time.sleep(calls.wait_after(error, wait))

    def _stream(self, task_id: str, after: int) -> Iterator[Event]:
        call, parser = calls.events(task_id, after), EventParser()
        with closing(self._connect(SILENT_S)) as connection:
            body: list[http.client.HTTPResponse] = []

            def take(found: http.client.HTTPResponse) -> bytes:
                body.append(found)
                return b"" if found.status == 200 else found.read()

            calls.checked(self._service, self._ask(connection, call, take))
            while piece := self._guarded(lambda: body[0].read1(65536)):
                yield from parser.feed(piece)

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._service.is_tls else http.client.HTTPConnection
        return kind(self._service.host, self._service.port, timeout=timeout_s)

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        call: Call[Any],
        read: Callable[[http.client.HTTPResponse], bytes],
    ) -> Answer:
        def ask() -> Answer:
            connection.putrequest(call.method, self._service.target(call), skip_host=True, skip_accept_encoding=True)
            for name, value in self._service.headers(call).items():
                connection.putheader(name, value)
            connection.endheaders(call.body)
            found = connection.getresponse()
            headers = {name.lower(): value for name, value in found.getheaders()}
            return Answer(found.status, headers, read(found))

        return self._guarded(ask)

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (OSError, http.client.HTTPException) as error:
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NoAnswer(self._service.url, said) from error

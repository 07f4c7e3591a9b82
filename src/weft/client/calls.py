"""What both clients do, written once and without any I/O.

Each operation is a generator of steps: a request to send (`CallRequest`), the next bytes of its answer (`ReadPiece`), a
time to wait (a float), or a result (`OperationResult`). A client carries them out, blocking or with `await`, and sends
back what came of them. `Operations` declares the operations for both; `Weft` and `AsyncWeft` are that, with a
transport.
"""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import aclosing, closing
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, overload
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Struct

from weft import __version__, scraping
from weft.client.errors import ClientError, NotWeft, Refused
from weft.client.model import Results, Scrape, ScrapedPage, TaskEvent
from weft.client.progress_display import Progress, progress_display
from weft.client.sse import EventParser
from weft.errors import BadInput
from weft.scraping import (
    ApiCall,
    PageError,
    Problem,
    ScrapeOptions,
    TaskChanged,
    TaskState,
    TaskStatus,
    TaskSubmitted,
    TaskSummary,
    Webhook,
    WebhookDelivery,
)

SILENT_S = 60.0  # a stream that says nothing for that long is dead: the service speaks every 15 s
POLL_EVERY_S = 1.0  # while there is no stream
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 5.0
T = TypeVar("T")
P = ParamSpec("P")


class ServiceAddress(Struct, frozen=True):
    """Where the service is, with which key, and how patient its callers are."""

    url: str
    key: str | None
    timeout_s: float
    patience_s: float

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.url.startswith("https:")

    @property
    def host(self) -> str:
        """To connect to."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """To connect to."""
        return urlsplit(self.url).port or (443 if self.is_tls else 80)


class CallRequest(Struct, frozen=True):
    """A request to send; the reply is the `ReplyHead` of its answer."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    timeout_s: float  # for its answer, and between two pieces of it


class ReadPiece:
    """The next piece of the answer; the reply is bytes, empty at its end."""


class ReplyHead(Struct, frozen=True):
    """What an answer begins with; names of headers are in lower case."""

    status: int
    headers: dict[str, str]


class OperationResult(Struct, Generic[T], frozen=True):
    """A result of an operation."""

    value: T


Steps = Generator[CallRequest | ReadPiece | float, Any, T]  # of an operation that returns its result
Many = Generator[CallRequest | ReadPiece | float | OperationResult[T], Any, None]


def service_at(url: str, key: str | None, timeout_s: float, patience_s: float) -> ServiceAddress:
    """The service at a URL; BadInput where that is none."""
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        fits = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        fits = False
    if (
        not fits
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
        or not url.isascii()
        or any(map(str.isspace, url))
    ):
        raise BadInput(f"{url!r} is no address of a service: write it like http://localhost:8000")
    if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key and key):
        raise BadInput("the API key has characters that none has: copy it whole, and nothing else")
    return ServiceAddress(parts.geturl(), key, timeout_s, patience_s)


# ── one request ────────────────────────────────────────────────────────────────────────────────────────────────────


def _ask(
    service: ServiceAddress, call: ApiCall[Any], task_id: str, query: dict[str, Any], body: Any,
    headers: dict[str, str], timeout_s: float,
) -> CallRequest:  # fmt: skip
    sent = b"" if body is None else msgspec.json.encode(body)
    own = {
        "Host": urlsplit(service.url).netloc, "User-Agent": f"weft-client/{__version__}", "Connection": "close",
        **({"Authorization": f"Bearer {service.key}"} if service.key is not None else {}),
        **({"Content-Type": "application/json"} if sent else {}),
        **({"Content-Length": str(len(sent))} if call.method != "GET" else {}),
    }  # fmt: skip
    values = {name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in
              query.items() if value is not None}  # fmt: skip
    path = call.path.replace("{task_id}", quote(task_id, safe="") or "-")
    target = urlsplit(service.url).path.rstrip("/") + path + (f"?{urlencode(values)}" if values else "")
    return CallRequest(call.method, target, own | headers, sent, timeout_s)


def _checked(service: ServiceAddress, head: ReplyHead, body: bytes) -> None:
    """Refused for an answer that is an error; NotWeft where it is none of the service's."""
    if 200 <= head.status < 300:
        return
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, ValueError):
        raise NotWeft(service.url, f"it answered {head.status}") from None
    wait = head.headers.get("retry-after", "")
    fields = {one.field: one.detail for one in problem.errors or ()}
    raise Refused(head.status, problem.detail, fields, float(wait) if wait.isdigit() else None)


def _pauses(service: ServiceAddress) -> Callable[[ClientError], float]:
    """How long to wait after each error, while there is patience; raises one that time does not cure."""

    def waits() -> Iterator[float]:
        wait, waited = FIRST_WAIT_S, 0.0
        while waited < service.patience_s:
            yield wait
            waited += wait
            wait = min(LONGEST_WAIT_S, wait * 2)

    tries = waits()

    def pause(error: ClientError) -> float:
        wait = next(tries, None)
        if wait is None or (isinstance(error, Refused) and not error.may_pass):
            raise error
        asked_for = error.retry_after_s if isinstance(error, Refused) else None
        return max(wait, asked_for or 0.0)

    return pause


def _answer(
    service: ServiceAddress, call: ApiCall[T], task_id: str = "", *, query: dict[str, Any] | None = None,
    body: Any = None, headers: dict[str, str] | None = None,
) -> Steps[tuple[ReplyHead, bytes]]:  # fmt: skip
    """The answer to a request, which is sent again while the service is away: all of them can be repeated."""
    ask = _ask(service, call, task_id, query or {}, body, headers or {}, service.timeout_s)
    pause = _pauses(service)
    while True:
        try:
            head, pieces = (yield ask), list[bytes]()
            while piece := (yield ReadPiece()):
                pieces.append(piece)
            _checked(service, head, b"".join(pieces))
            return head, b"".join(pieces)
        except ClientError as error:
            yield pause(error)


def _call(service: ServiceAddress, call: ApiCall[T], task_id: str = "", **more: Any) -> Steps[T]:
    """The same, decoded as the call's answer."""
    _, body = yield from _answer(service, call, task_id, **more)
    return _decoded(service, body, call.answer)


def _decoded(service: ServiceAddress, body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, ValueError) as error:
        raise NotWeft(service.url, f"its answer cannot be read: {error}") from None


# ── operations ─────────────────────────────────────────────────────────────────────────────────────────────────────


def submit(
    service: ServiceAddress, url: str, *, idempotency_key: str | None = None, **options: Unpack[ScrapeOptions]
) -> Steps[TaskSubmitted]:
    """Starts a task; it is on the service's disk when this returns, and one task however often it was sent."""
    headers = {"Idempotency-Key": idempotency_key or secrets.token_hex(16)}
    return (yield from _call(service, scraping.SUBMIT, body={"url": url, **options}, headers=headers))


def status(service: ServiceAddress, task_id: str) -> Steps[TaskStatus]:
    """How a task is."""
    return (yield from _call(service, scraping.STATUS, task_id))


def results(
    service: ServiceAddress, task_id: str, *, include_errors: bool = False, limit: int = 100, cursor: str | None = None
) -> Steps[Results]:
    """A stretch of what there is now; continue with its `next_cursor`, or later with its `cursor`."""
    query = {"format": "json", "include_errors": include_errors, "limit": limit, "cursor": cursor}
    page = yield from _call(service, scraping.RESULTS, task_id, query=query)
    pages = tuple(ScrapedPage(document) for document in page.results)
    return Results(page.status, pages, tuple(page.errors or ()), page.next_cursor, page.cursor)


def export(
    service: ServiceAddress, task_id: str, kind: str, *, include_errors: bool = False, cursor: str | None = None,
    limit: int = 100,
) -> Steps[tuple[bytes, str | None]]:  # fmt: skip
    """A stretch of what there is now as jsonl, csv, ...; and the cursor of the next, None where there is none."""
    query = {"format": kind, "include_errors": include_errors, "limit": limit, "cursor": cursor}
    head, body = yield from _answer(service, scraping.RESULTS, task_id, query=query)
    return body, head.headers.get("next-cursor")


def cancel(service: ServiceAddress, task_id: str) -> Steps[TaskChanged]:
    """Ends a task; what was scraped is kept."""
    return (yield from _call(service, scraping.CANCEL, task_id))


def pause(service: ServiceAddress, task_id: str) -> Steps[TaskChanged]:
    """Nothing more is asked for until `resume`; the deadline runs on."""
    return (yield from _call(service, scraping.PAUSE, task_id))


def resume(service: ServiceAddress, task_id: str) -> Steps[TaskChanged]:
    """Continues with a task that is paused."""
    return (yield from _call(service, scraping.RESUME, task_id))


def health(service: ServiceAddress) -> Steps[dict[str, Any]]:
    """How the service as a whole is."""
    _, body = yield from _answer(service, scraping.SERVICE_STATUS)
    return _decoded(service, body, dict[str, Any])


def webhook(service: ServiceAddress, task_id: str) -> Steps[Webhook]:
    """How far a task's webhook is."""
    return (yield from _call(service, scraping.WEBHOOK, task_id))


def replay(
    service: ServiceAddress, task_id: str, *, after: int | None = None, numbers: Sequence[int] = ()
) -> Steps[Webhook]:
    """Has a webhook's events sent again: everything behind a number (-1: all), or some; else it continues where it has
    stopped."""
    return (yield from _call(service, scraping.REPLAY, task_id, body={"after": after, "numbers": list(numbers)}))


def webhook_secret(service: ServiceAddress) -> Steps[str]:
    """What this key's deliveries are signed with."""
    return (yield from _call(service, scraping.WEBHOOK_SECRET)).secret


def wait(
    service: ServiceAddress, task_id: str, *, progress: Progress | bool | None = None, timeout: float | None = None
) -> Steps[TaskStatus]:
    """Returns when a task has ended; TimeoutError where it has not within the given time."""
    until = None if timeout is None else time.monotonic() + timeout
    with progress_display(progress) as show:
        while True:
            current = yield from status(service, task_id)
            show(current)
            if current.has_ended:
                return current
            left = POLL_EVERY_S if until is None else until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the task {task_id} has not ended in {timeout:g} s")
            yield min(POLL_EVERY_S, left)


def scrape(
    service: ServiceAddress, url: str, *, progress: Progress | bool | None = None, **options: Unpack[ScrapeOptions]
) -> Steps[Scrape]:
    """Scrapes, waits for the end, and returns the pages; `.status` and `.errors` say the rest.

    `progress`: called with a `TaskStatus` now and then; left out, a line is displayed where stderr is a terminal. What
    is interrupted continues in the service: `submit` and the other calls have an id to come back with.
    """
    task_id = (yield from submit(service, url, **options)).task_id
    ended = yield from wait(service, task_id, progress=progress)
    scraped, cursor = Scrape([], ended, []), None
    while True:
        some = yield from results(service, task_id, include_errors=True, cursor=cursor)
        scraped += some.pages
        scraped.errors += some.errors
        if (cursor := some.next_cursor) is None:
            return scraped


# ── operations with many results ───────────────────────────────────────────────────────────────────────────────────


def _paged(ask: Callable[[str | None], Steps[Any]], some: Callable[[Any], Iterable[T]]) -> Many[T]:
    cursor: str | None = None
    while True:
        page = yield from ask(cursor)
        yield from map(OperationResult, some(page))
        if (cursor := page.next_cursor) is None:
            return


def pages(service: ServiceAddress, task_id: str) -> Many[ScrapedPage]:
    """Every page that there is now, in the order in which they were stored."""
    return _paged(lambda cursor: results(service, task_id, cursor=cursor), lambda found: found.pages)


def errors(service: ServiceAddress, task_id: str) -> Many[PageError]:
    """Every URL that has given no page so far."""
    return _paged(
        lambda cursor: results(service, task_id, include_errors=True, cursor=cursor), lambda found: found.errors
    )


def tasks(service: ServiceAddress, status: TaskState | str | None = None) -> Many[TaskSummary]:
    """Every task, newest first."""

    def ask(cursor: str | None) -> Steps[scraping.TaskList]:
        return _call(service, scraping.LIST, query={"status": status, "limit": 100, "cursor": cursor})

    return _paged(ask, lambda found: found.tasks)


def deliveries(service: ServiceAddress, task_id: str) -> Many[WebhookDelivery]:
    """What became of each event of a task's webhook, in the order of the events."""

    def ask(cursor: str | None) -> Steps[scraping.WebhookDeliveries]:
        return _call(service, scraping.DELIVERIES, task_id, query={"limit": 1000, "cursor": cursor})

    return _paged(ask, lambda found: found.deliveries)


def events(service: ServiceAddress, task_id: str, *, after: int = 0) -> Many[TaskEvent]:
    """What happens to a task, until it ends: each numbered event once and in order, whatever breaks in between."""
    pause = _pauses(service)
    while True:
        try:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
            head = yield _ask(service, scraping.EVENTS, task_id, {}, None, headers, SILENT_S)
            parser, refused = EventParser(), b""
            while piece := (yield ReadPiece()):
                if head.status != 200:
                    refused += piece
                    continue
                for event in parser.feed(piece):
                    after = event.number or after
                    pause = _pauses(service)
                    yield OperationResult(event)
            _checked(service, head, refused)
            current = yield from status(service, task_id)
            if current.has_ended and current.last_event <= after:
                return
        except ClientError as error:
            yield pause(error)


# ── for both clients ───────────────────────────────────────────────────────────────────────────────────────────────


class ServiceClient:
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
        self.service = service_at(url, key, timeout, patience)


class Blocking(ServiceClient, ABC):
    """A client that returns results."""

    @abstractmethod
    def run(self, steps: Many[T]) -> Iterator[T]:
        """Carries the steps of an operation out, and gives its results."""

    def first(self, steps: Steps[T]) -> T:
        """The result of an operation that has one."""
        with closing(self.run(_single(steps))) as results:  # type: ignore[type-var]
            return next(results)


class Awaiting(ServiceClient, ABC):
    """A client that returns awaitables of results."""

    @abstractmethod
    def run(self, steps: Many[T]) -> AsyncIterator[T]:
        """Carries the steps of an operation out, and gives its results."""

    async def first(self, steps: Steps[T]) -> T:
        """The result of an operation that has one."""
        async with aclosing(self.run(_single(steps))) as results:  # type: ignore[type-var]
            return await anext(results)


def _single(steps: Steps[T]) -> Many[T]:
    yield OperationResult((yield from steps))


class One(Generic[P, T]):
    """An operation with one result, as a method of both clients."""

    def __init__(self, operation: Callable[Concatenate[ServiceAddress, P], Steps[T]]) -> None:
        self._operation: Callable[..., Any] = operation
        self.__doc__ = operation.__doc__

    @overload
    def __get__(self, client: Blocking, owner: object = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Awaiting, owner: object = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: object = None) -> One[P, T]: ...

    def __get__(self, client: Any, owner: object = None) -> Any:
        """The operation on this client's service."""
        return self if client is None else _method(self._operation, client.service, client.first)


class Each(Generic[P, T]):
    """An operation with many results, as a method of both clients."""

    def __init__(self, operation: Callable[Concatenate[ServiceAddress, P], Many[T]]) -> None:
        self._operation: Callable[..., Any] = operation
        self.__doc__ = operation.__doc__

    @overload
    def __get__(self, client: Blocking, owner: object = None) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: Awaiting, owner: object = None) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, owner: object = None) -> Each[P, T]: ...

    def __get__(self, client: Any, owner: object = None) -> Any:
        """The operation on this client's service."""
        return self if client is None else _method(self._operation, client.service, client.run)


def _method(
    operation: Callable[..., Any], service: ServiceAddress, carry_out: Callable[[Any], Any]
) -> Callable[..., Any]:
    @wraps(operation)
    def call(*given: Any, **named: Any) -> Any:
        return carry_out(operation(service, *given, **named))

    return call


class Operations:
    """What a client can do: the same calls, with the same arguments, on both."""

    scrape = One(scrape)
    submit = One(submit)
    status = One(status)
    results = One(results)
    pages = Each(pages)
    errors = Each(errors)
    export = One(export)
    events = Each(events)
    wait = One(wait)
    cancel = One(cancel)
    pause = One(pause)
    resume = One(resume)
    tasks = Each(tasks)
    health = One(health)
    webhook = One(webhook)
    deliveries = Each(deliveries)
    replay = One(replay)
    webhook_secret = One(webhook_secret)

"""The operations of both clients, written once and without I/O.

Each operation is a generator of steps: a request to send (`CallRequest`), the next bytes of its answer (`ReadPiece`), a
time to wait (a float), or a result (`OperationResult`). A client runs the steps, blocking or with `await`, and sends
the outcome of each back into the generator. `Operations` declares the operations; `Weft` and `AsyncWeft` add a
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

SILENT_S = 60.0  # a stream without data for this long is dead: the service sends heartbeats every 15 s
POLL_EVERY_S = 1.0  # interval of status requests while there is no stream
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 5.0
T = TypeVar("T")
P = ParamSpec("P")


class ServiceAddress(Struct, frozen=True):
    """The address of the service, the API key, and the timeouts of the caller."""

    url: str
    key: str | None
    timeout_s: float
    patience_s: float

    @property
    def is_tls(self) -> bool:
        """Whether the connection uses TLS."""
        return self.url.startswith("https:")

    @property
    def host(self) -> str:
        """The host to connect to."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The port to connect to."""
        return urlsplit(self.url).port or (443 if self.is_tls else 80)


class CallRequest(Struct, frozen=True):
    """A step: send this request. Its outcome is the `ReplyHead` of the answer."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    timeout_s: float  # for the answer, and between two pieces of it


class ReadPiece:
    """A step: read the next piece of the answer. Its outcome is bytes, empty at the end."""


class ReplyHead(Struct, frozen=True):
    """Status and headers of an answer; header names are in lower case."""

    status: int
    headers: dict[str, str]


class OperationResult(Struct, Generic[T], frozen=True):
    """A step that yields a result of the operation to the caller."""

    value: T


Steps = Generator[CallRequest | ReadPiece | float, Any, T]  # the steps of an operation that returns its result
Many = Generator[CallRequest | ReadPiece | float | OperationResult[T], Any, None]


def service_at(url: str, key: str | None, timeout_s: float, patience_s: float) -> ServiceAddress:
    """Parses the URL and the key of a service; raises BadInput if one is invalid."""
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
        raise BadInput(f"{url!r} is not the URL of a service: write it like http://localhost:8000")
    if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key and key):
        raise BadInput("the API key has invalid characters: copy the whole key and nothing else")
    return ServiceAddress(parts.geturl(), key, timeout_s, patience_s)


# ── one request ────────────────────────────────────────────────────────────────────────────────────────────────────


def _make_request(
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
    """Raises Refused if an answer is an error, NotWeft if it does not come from a scrape service."""
    if 200 <= head.status < 300:
        return
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, ValueError):
        raise NotWeft(service.url, f"it answered {head.status}") from None
    wait = head.headers.get("retry-after", "")
    fields = {one.field: one.detail for one in problem.errors or ()}
    raise Refused(head.status, problem.detail, fields, float(wait) if wait.isdigit() else None)


def _retry_waits(service: ServiceAddress) -> Callable[[ClientError], float]:
    """Returns a function that gives the wait after each error until `patience_s` is used up; it raises errors that a
    retry cannot solve."""

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


def _request_answer(
    service: ServiceAddress, call: ApiCall[T], task_id: str = "", *, query: dict[str, Any] | None = None,
    body: Any = None, headers: dict[str, str] | None = None,
) -> Steps[tuple[ReplyHead, bytes]]:  # fmt: skip
    """The answer to a request; the request is repeated while the service is unavailable, which is safe for every
    call."""
    ask = _make_request(service, call, task_id, query or {}, body, headers or {}, service.timeout_s)
    pause = _retry_waits(service)
    while True:
        try:
            head, pieces = (yield ask), list[bytes]()
            while piece := (yield ReadPiece()):
                pieces.append(piece)
            _checked(service, head, b"".join(pieces))
            return head, b"".join(pieces)
        except ClientError as error:
            yield pause(error)


def _request_value(service: ServiceAddress, call: ApiCall[T], task_id: str = "", **more: Any) -> Steps[T]:
    """The answer to a request, decoded as the call's type."""
    _, body = yield from _request_answer(service, call, task_id, **more)
    return _decode_value(service, body, call.answer)


def _decode_value(service: ServiceAddress, body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, ValueError) as error:
        raise NotWeft(service.url, f"its answer cannot be read: {error}") from None


# ── operations ─────────────────────────────────────────────────────────────────────────────────────────────────────


def submit(
    service: ServiceAddress, url: str, *, idempotency_key: str | None = None, **options: Unpack[ScrapeOptions]
) -> Steps[TaskSubmitted]:
    """Submits a task. It is durable when this returns, and submitted only once however often the request was
    repeated."""
    headers = {"Idempotency-Key": idempotency_key or secrets.token_hex(16)}
    return (yield from _request_value(service, scraping.SUBMIT, body={"url": url, **options}, headers=headers))


def status(service: ServiceAddress, task_id: str) -> Steps[TaskStatus]:
    """The status of a task."""
    return (yield from _request_value(service, scraping.STATUS, task_id))


def results(
    service: ServiceAddress, task_id: str, *, include_errors: bool = False, limit: int = 100, cursor: str | None = None
) -> Steps[Results]:
    """A part of the results so far; continue with its `next_cursor`, or later with its `cursor`."""
    query = {"format": "json", "include_errors": include_errors, "limit": limit, "cursor": cursor}
    page = yield from _request_value(service, scraping.RESULTS, task_id, query=query)
    pages = tuple(ScrapedPage(document) for document in page.results)
    return Results(page.status, pages, tuple(page.errors or ()), page.next_cursor, page.cursor)


def export(
    service: ServiceAddress, task_id: str, kind: str, *, include_errors: bool = False, cursor: str | None = None,
    limit: int = 100,
) -> Steps[tuple[bytes, str | None]]:  # fmt: skip
    """A part of the results so far as jsonl, csv, ...; and the cursor of the next part, None if there is none."""
    query = {"format": kind, "include_errors": include_errors, "limit": limit, "cursor": cursor}
    head, body = yield from _request_answer(service, scraping.RESULTS, task_id, query=query)
    return body, head.headers.get("next-cursor")


def cancel(service: ServiceAddress, task_id: str) -> Steps[TaskChanged]:
    """Cancels a task; what was scraped is kept."""
    return (yield from _request_value(service, scraping.CANCEL, task_id))


def pause(service: ServiceAddress, task_id: str) -> Steps[TaskChanged]:
    """Pauses a task: no requests are sent until `resume`; the deadline is not extended."""
    return (yield from _request_value(service, scraping.PAUSE, task_id))


def resume(service: ServiceAddress, task_id: str) -> Steps[TaskChanged]:
    """Resumes a paused task."""
    return (yield from _request_value(service, scraping.RESUME, task_id))


def health(service: ServiceAddress) -> Steps[dict[str, Any]]:
    """The health of the service."""
    _, body = yield from _request_answer(service, scraping.SERVICE_STATUS)
    return _decode_value(service, body, dict[str, Any])


def webhook(service: ServiceAddress, task_id: str) -> Steps[Webhook]:
    """The status of a task's webhook."""
    return (yield from _request_value(service, scraping.WEBHOOK, task_id))


def replay(
    service: ServiceAddress, task_id: str, *, after: int | None = None, numbers: Sequence[int] = ()
) -> Steps[Webhook]:
    """Sends a webhook's events again: all after a number (-1: all), or those with some numbers; without arguments it
    continues where it stopped."""
    return (
        yield from _request_value(service, scraping.REPLAY, task_id, body={"after": after, "numbers": list(numbers)})
    )


def webhook_secret(service: ServiceAddress) -> Steps[str]:
    """The secret that signs the webhook deliveries of this API key."""
    return (yield from _request_value(service, scraping.WEBHOOK_SECRET)).secret


def wait(
    service: ServiceAddress, task_id: str, *, progress: Progress | bool | None = None, timeout: float | None = None
) -> Steps[TaskStatus]:
    """Returns when a task has ended; raises TimeoutError if it has not ended in `timeout` seconds."""
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
    """Submits a task, waits for its end, and returns the pages, with `.status` and `.errors`.

    `progress`: called with a `TaskStatus` regularly; by default a line is displayed if stderr is a terminal. An
    interrupted call leaves the task running in the service: to get its id first, use `submit` and the other calls.
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


def _pages_of_list(ask: Callable[[str | None], Steps[Any]], some: Callable[[Any], Iterable[T]]) -> Many[T]:
    cursor: str | None = None
    while True:
        page = yield from ask(cursor)
        yield from map(OperationResult, some(page))
        if (cursor := page.next_cursor) is None:
            return


def pages(service: ServiceAddress, task_id: str) -> Many[ScrapedPage]:
    """Every page so far, in the order in which they were stored."""
    return _pages_of_list(lambda cursor: results(service, task_id, cursor=cursor), lambda answer: answer.pages)


def errors(service: ServiceAddress, task_id: str) -> Many[PageError]:
    """Every URL that has failed so far."""
    return _pages_of_list(
        lambda cursor: results(service, task_id, include_errors=True, cursor=cursor), lambda answer: answer.errors
    )


def tasks(service: ServiceAddress, status: TaskState | str | None = None) -> Many[TaskSummary]:
    """Every task, newest first."""

    def ask(cursor: str | None) -> Steps[scraping.TaskList]:
        return _request_value(service, scraping.LIST, query={"status": status, "limit": 100, "cursor": cursor})

    return _pages_of_list(ask, lambda answer: answer.tasks)


def deliveries(service: ServiceAddress, task_id: str) -> Many[WebhookDelivery]:
    """The result of each webhook event of a task, in the order of the events."""

    def ask(cursor: str | None) -> Steps[scraping.WebhookDeliveries]:
        return _request_value(service, scraping.DELIVERIES, task_id, query={"limit": 1000, "cursor": cursor})

    return _pages_of_list(ask, lambda answer: answer.deliveries)


def events(service: ServiceAddress, task_id: str, *, after: int = 0) -> Many[TaskEvent]:
    """The events of a task until it ends: each numbered event once and in order, also across lost connections."""
    pause = _retry_waits(service)
    while True:
        try:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
            head = yield _make_request(service, scraping.EVENTS, task_id, {}, None, headers, SILENT_S)
            parser, refused = EventParser(), b""
            while piece := (yield ReadPiece()):
                if head.status != 200:
                    refused += piece
                    continue
                for event in parser.feed(piece):
                    after = event.number or after
                    pause = _retry_waits(service)
                    yield OperationResult(event)
            _checked(service, head, refused)
            current = yield from status(service, task_id)
            if current.has_ended and current.last_event <= after:
                return
        except ClientError as error:
            yield pause(error)


# ── for both clients ───────────────────────────────────────────────────────────────────────────────────────────────


class ServiceClient:
    """A scrape service. While it is unavailable, calls retry for at most `patience` seconds."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        key: str | None = None,
        timeout: float = 30.0,
        patience: float = 30.0,
    ) -> None:
        """`key`: an API key, if the service requires one. `timeout`: seconds to wait for one answer."""
        self.service = service_at(url, key, timeout, patience)


class Blocking(ServiceClient, ABC):
    """Base of clients whose calls return results."""

    @abstractmethod
    def run(self, steps: Many[T]) -> Iterator[T]:
        """Runs the steps of an operation, and yields its results."""

    def first(self, steps: Steps[T]) -> T:
        """The result of an operation with a single one."""
        with closing(self.run(_yield_one(steps))) as results:  # type: ignore[type-var]
            return next(results)


class Awaiting(ServiceClient, ABC):
    """Base of clients whose calls return awaitables."""

    @abstractmethod
    def run(self, steps: Many[T]) -> AsyncIterator[T]:
        """Runs the steps of an operation, and yields its results."""

    async def first(self, steps: Steps[T]) -> T:
        """The result of an operation with a single one."""
        async with aclosing(self.run(_yield_one(steps))) as results:  # type: ignore[type-var]
            return await anext(results)


def _yield_one(steps: Steps[T]) -> Many[T]:
    yield OperationResult((yield from steps))


class SingleResult(Generic[P, T]):
    """Descriptor: an operation with one result, as a method of both clients."""

    def __init__(self, operation: Callable[Concatenate[ServiceAddress, P], Steps[T]]) -> None:
        self._operation: Callable[..., Any] = operation
        self.__doc__ = operation.__doc__

    @overload
    def __get__(self, client: Blocking, owner: object = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Awaiting, owner: object = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: object = None) -> SingleResult[P, T]: ...

    def __get__(self, client: Any, owner: object = None) -> Any:
        """The operation, bound to the client's service."""
        return self if client is None else _make_method(self._operation, client.service, client.first)


class ManyResults(Generic[P, T]):
    """Descriptor: an operation with many results, as a method of both clients."""

    def __init__(self, operation: Callable[Concatenate[ServiceAddress, P], Many[T]]) -> None:
        self._operation: Callable[..., Any] = operation
        self.__doc__ = operation.__doc__

    @overload
    def __get__(self, client: Blocking, owner: object = None) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: Awaiting, owner: object = None) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, owner: object = None) -> ManyResults[P, T]: ...

    def __get__(self, client: Any, owner: object = None) -> Any:
        """The operation, bound to the client's service."""
        return self if client is None else _make_method(self._operation, client.service, client.run)


def _make_method(
    operation: Callable[..., Any], service: ServiceAddress, carry_out: Callable[[Any], Any]
) -> Callable[..., Any]:
    @wraps(operation)
    def call(*given: Any, **named: Any) -> Any:
        return carry_out(operation(service, *given, **named))

    return call


class Operations:
    """The operations of a client: the same calls, with the same arguments, in both."""

    scrape = SingleResult(scrape)
    submit = SingleResult(submit)
    status = SingleResult(status)
    results = SingleResult(results)
    pages = ManyResults(pages)
    errors = ManyResults(errors)
    export = SingleResult(export)
    events = ManyResults(events)
    wait = SingleResult(wait)
    cancel = SingleResult(cancel)
    pause = SingleResult(pause)
    resume = SingleResult(resume)
    tasks = ManyResults(tasks)
    health = SingleResult(health)
    webhook = SingleResult(webhook)
    deliveries = ManyResults(deliveries)
    replay = SingleResult(replay)
    webhook_secret = SingleResult(webhook_secret)

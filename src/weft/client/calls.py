"""The requests of the service's routes and what their answers mean, without any I/O: both clients share them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Struct

from weft import __version__
from weft.client.errors import ClientError, NotWeft, Refused
from weft.client.model import (
    Changed,
    Deliveries,
    Event,
    Listing,
    Page,
    PageError,
    Results,
    Status,
    Submitted,
    Webhook,
)
from weft.errors import BadInput

T = TypeVar("T")
SILENT_S = 60.0  # a stream that says nothing for so long is dead: the service speaks every 15 s
LOOK_EVERY_S = 1.0  # while there is no stream
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 5.0


class Answer(Struct, frozen=True):
    """An HTTP answer; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Call(Struct, Generic[T], frozen=True):
    """One request, and how its answer is read."""

    method: str
    path: str
    read: Callable[[Answer], T]
    body: bytes | None = None
    headers: dict[str, str] = {}


class Service(Struct, frozen=True):
    """Where the service is, and with which key."""

    url: str
    key: str | None = None

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

    def headers(self, call: Call[Any]) -> dict[str, str]:
        """All that are sent, but for the length."""
        own = {"Host": urlsplit(self.url).netloc, "User-Agent": f"weft-client/{__version__}", "Connection": "close"}
        if self.key is not None:
            own["Authorization"] = f"Bearer {self.key}"
        if call.body is not None:
            own |= {"Content-Type": "application/json", "Content-Length": str(len(call.body))}
        elif call.method != "GET":
            own["Content-Length"] = "0"
        return own | call.headers

    def target(self, call: Call[Any]) -> str:
        """The path that is asked for."""
        return urlsplit(self.url).path.rstrip("/") + call.path


def service_at(url: str, key: str | None) -> Service:
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
    return Service(parts.geturl(), key)


def submit(url: str, options: Mapping[str, Any], idempotency_key: str | None) -> Call[Submitted]:
    """Starts a task; the key makes it safe to send again."""
    key = idempotency_key or secrets.token_hex(16)
    body = msgspec.json.encode({"url": url, **options})
    return Call("POST", "/scraping/async-scrape", typed(Submitted), body, {"Idempotency-Key": key})


def status(task_id: str) -> Call[Status]:
    """How a task stands."""
    return Call("GET", f"{_task(task_id)}/status", typed(Status))


def results(task_id: str, include_errors: bool, limit: int, cursor: str | None) -> Call[Results]:
    """A stretch of results."""
    query: dict[str, Any] = {"format": "json", "limit": limit, "include_errors": str(include_errors).lower()}
    if cursor is not None:
        query["cursor"] = cursor
    return Call("GET", f"{_task(task_id)}/results?{urlencode(query)}", _results)


def export(
    task_id: str, kind: str, limit: int, include_errors: bool, cursor: str | None
) -> Call[tuple[bytes, str | None]]:
    """A stretch of results in a format, and the cursor of the next."""
    query = {"format": kind, "limit": limit, "include_errors": str(include_errors).lower()}
    if cursor is not None:
        query["cursor"] = cursor

    def read(answer: Answer) -> tuple[bytes, str | None]:
        return answer.body, answer.headers.get("next-cursor")

    return Call("GET", f"{_task(task_id)}/results?{urlencode(query)}", read)


def cancel(task_id: str) -> Call[Changed]:
    """Ends a task."""
    return Call("DELETE", _task(task_id), typed(Changed))


def pause(task_id: str) -> Call[Changed]:
    """Halts a task."""
    return Call("POST", f"{_task(task_id)}/pause", typed(Changed))


def resume(task_id: str) -> Call[Changed]:
    """Goes on with a task."""
    return Call("POST", f"{_task(task_id)}/resume", typed(Changed))


def tasks(state: str | None, limit: int, cursor: str | None) -> Call[Listing]:
    """A list of tasks."""
    query = {name: value for name, value in (("status", state), ("limit", limit), ("cursor", cursor)) if value}
    return Call("GET", f"/scraping/tasks?{urlencode(query)}", typed(Listing))


def health() -> Call[dict[str, Any]]:
    """How the service is."""
    return Call("GET", "/scraping/status", typed(dict[str, Any]))


def webhook(task_id: str) -> Call[Webhook]:
    """How far a task's webhook is."""
    return Call("GET", f"{_task(task_id)}/webhook", typed(Webhook))


def deliveries(task_id: str, limit: int, cursor: str | None) -> Call[Deliveries]:
    """A stretch of a webhook's delivery log."""
    query = {"limit": limit} | ({"cursor": cursor} if cursor is not None else {})
    return Call("GET", f"{_task(task_id)}/webhook/deliveries?{urlencode(query)}", typed(Deliveries))


def replay(task_id: str, after: int | None, numbers: Sequence[int]) -> Call[Webhook]:
    """Sends a webhook's events again."""
    body = msgspec.json.encode({"after": after, "numbers": list(numbers)})
    return Call("POST", f"{_task(task_id)}/webhook/replay", typed(Webhook), body)


def webhook_secret() -> Call[dict[str, str]]:
    """What the caller's deliveries are signed with."""
    return Call("GET", "/scraping/webhook-secret", typed(dict[str, str]))


def events(task_id: str, after: int) -> Call[None]:
    """A stream of events; its body is read piece by piece."""
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
    return Call("GET", f"{_task(task_id)}/events", lambda _: None, headers=headers)


def checked(service: Service, answer: Answer) -> Answer:
    """The answer, if it is a good one; else Refused, or NotWeft where it is none of the service's."""
    if 200 <= answer.status < 300:
        return answer
    try:
        problem = msgspec.json.decode(answer.body, type=_Problem)
    except (msgspec.DecodeError, ValueError):
        raise NotWeft(service.url, f"it answered {answer.status}") from None
    wait = answer.headers.get("retry-after", "")
    fields = {one.field: one.detail for one in problem.errors or ()}
    raise Refused(answer.status, problem.detail, fields, float(wait) if wait.isdigit() else None)


def typed(kind: Any) -> Callable[[Answer], Any]:
    """Reads a JSON body."""

    def read(answer: Answer) -> Any:
        return msgspec.json.decode(answer.body, type=kind)

    return read


def read_answer(service: Service, call: Call[T], answer: Answer) -> T:
    """What an answer says."""
    good = checked(service, answer)
    try:
        return call.read(good)
    except (msgspec.DecodeError, ValueError) as error:
        raise NotWeft(service.url, f"its answer cannot be read: {error}") from None


def waits(patience_s: float) -> Iterator[float]:
    """How long to wait before each further try, as long as there is patience."""
    wait, waited = FIRST_WAIT_S, 0.0
    while waited < patience_s:
        yield wait
        waited += wait
        wait = min(LONGEST_WAIT_S, wait * 2)


def wait_after(error: ClientError, wait: float) -> float:
    """The seconds that the service asks for, or else our own; raises an error that time does not cure."""
    if not isinstance(error, Refused):
        return wait
    if not error.may_pass:
        raise error
    return max(wait, error.retry_after_s or 0.0)


def event_of(kind: str, number: str, data: str) -> Event:
    """An event as it was read from a stream."""
    found = msgspec.json.decode(data, type=dict[str, Any])
    return Event(kind, int(number) if number else None, found)


class _FieldProblem(Struct):
    field: str
    detail: str


class _Problem(Struct):
    title: str
    detail: str = ""
    errors: list[_FieldProblem] | None = None


class _RawResults(Struct):
    status: str
    results: list[dict[str, Any]]
    next_cursor: str | None
    cursor: str
    errors: list[PageError] | None = None


def _results(answer: Answer) -> Results:
    found = msgspec.json.decode(answer.body, type=_RawResults)
    pages = tuple(Page(document) for document in found.results)
    return Results(found.status, pages, tuple(found.errors or ()), found.next_cursor, found.cursor)  # type: ignore[arg-type]


def _task(task_id: str) -> str:
    return f"/scraping/tasks/{quote(task_id, safe='') or '-'}"

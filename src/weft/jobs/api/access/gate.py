"""Checks that every request passes before a route sees it: origin, API key, size of the body.

Without API keys the service trusts every local caller, so it must make sure that no web page reaches it through the
browser of a local user: the Host must be a loopback name (otherwise a name that an attacker resolves to 127.0.0.1 would
reach it), an Origin must be the service's own, and Sec-Fetch-Site must not say cross-site. There are no CORS headers,
and bodies must be JSON, which an HTML form cannot send.

With API keys every request needs one, and nothing that a browser adds by itself is trusted; paths in OPEN need none.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.errors import WeftError
from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.keys import Keyring
from weft.jobs.api.problems import Refusal, problem_of
from weft.jobs.api.settings import ApiSettings, is_loopback
from weft.jobs.api.worker_metrics import WorkerMetrics
from weft.jobs.compat.envelope import enveloped, is_firecrawls
from weft.telemetry import Log

UNAUTHORIZED = 3000
KEYS_AGAIN_S = 30.0  # Retry-After while the key file cannot be read: an operator must repair it
OPEN = frozenset({"/healthz", "/readyz", "/openapi.json", "/docs"})
_METHODS_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
_PORT_SUFFIX = re.compile(r":[0-9]{1,5}\Z")
SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)
_NO_REFERRER = (b"referrer-policy", b"no-referrer")
_HEADERS_SENT_ONCE = frozenset({"host", "origin", "authorization", "x-api-key", "content-type", "idempotency-key"})
log = Log("weft.jobs.api")


class Caller(Struct, frozen=True):
    """Who sent a request: the id of the API key, or empty where no keys are used."""

    owner: str = ""
    scopes: frozenset[KeyScope] = frozenset(KeyScope)


class Gate:
    """ASGI middleware: checks access, then calls the application."""

    def __init__(self, app: ASGIApp, settings: ApiSettings, keyring: Keyring, watcher: WorkerMetrics) -> None:
        self._app = app
        self._settings = settings
        self._keyring = keyring
        self._watcher = watcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one HTTP request or WebSocket; lifespan messages go to the application unchecked."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self._accept_socket(scope, receive, send)
            return
        answer = GatedResponse(send, (*SAFE_HEADERS, _NO_REFERRER))
        await guarded(
            self._check_and_call(scope, receive, answer), scope, answer, self._watcher,
            lambda refusal: _error_response(refusal, scope)(scope, receive, answer), "route",
        )  # fmt: skip

    async def _accept_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Accepts a WebSocket. Its key may come as a sub-protocol: a browser can send no other header of its own
        choice."""
        try:
            headers = headers_of(scope)
            offered = scope.get("subprotocols") or []
            if offered and "authorization" not in headers:
                headers.setdefault("x-api-key", offered[0])
            scope["caller"] = self._find_caller({**scope, "method": "GET"}, headers)
        except Refusal as refusal:
            await receive()
            if refusal.status == 401:  # as a close code, which a client can read
                await send({"type": "websocket.accept", "subprotocol": offered[0] if offered else None})
            await send({"type": "websocket.close", "code": UNAUTHORIZED, "reason": refusal.detail[:120]})
            return
        try:
            await self._app(scope, receive, send)
        except Exception:
            log.error("a WebSocket failed", exc_info=True, path=scope["path"])
            raise

    async def _check_and_call(self, scope: Scope, receive: Receive, answer: GatedResponse) -> None:
        headers = headers_of(scope)
        scope["caller"] = self._find_caller(scope, headers)
        if scope["method"] not in _METHODS_WITHOUT_BODY:
            receive = replay(await body_of(headers, receive, self._settings))
        await self._app(scope, receive, answer)

    def _find_caller(self, scope: Scope, headers: dict[str, str]) -> Caller:
        if self._keyring.is_empty:
            check_origin(scope["method"], headers)
            return Caller()
        if scope["path"] in OPEN:
            return Caller(scopes=frozenset())
        if self._keyring.problem is not None:  # the log has the cause
            raise Refusal(503, "API keys cannot be checked now: try again later", retry_after_s=KEYS_AGAIN_S)
        kind, _, word = headers.get("authorization", "").partition(" ")
        given = word.strip() if kind.lower() == "bearer" else headers.get("x-api-key", "")
        key = self._keyring.check(given) if given else None
        if key is None:
            message = "this API key is not valid" if given else "an API key is needed: send `Authorization: Bearer KEY`"
            raise Refusal(401, message, headers={"WWW-Authenticate": 'Bearer realm="weft"'})
        return Caller(key.id, frozenset(key.scopes))


class GatedResponse:
    """Sends an answer with the headers that all answers have, and records its status."""

    def __init__(self, send: Send, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._headers = headers
        self.status = 0
        self.is_whole = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._headers]
        elif not message.get("more_body", False):
            self.is_whole = True
        await self._send(message)


async def guarded(
    work: Awaitable[None], scope: Scope, answer: GatedResponse, metrics: WorkerMetrics,
    refuse: Callable[[Refusal], Awaitable[None]], what: str,
) -> None:  # fmt: skip
    """Runs a handler, turns whatever it raises into an error answer with `refuse`, and counts the request.

    This is the edge of the process: nothing may pass it unhandled. `what`: the noun for messages ("route", "page").
    """
    began = perf_counter()
    scope["app"] = guarded  # makes the router raise HTTPException instead of answering with plain text
    try:
        await work
    except Exception as error:
        refusal = _refusal_of(error, scope, what)
        if answer.is_whole:
            return
        if answer.status:
            raise
        await refuse(refusal)
    finally:
        route = getattr(scope.get("route"), "path", "none")
        metrics.answered(route, scope["method"], answer.status, perf_counter() - began)


def _refusal_of(error: Exception, scope: Scope, what: str) -> Refusal:
    """The error answer for an exception. Details of unexpected exceptions are only logged."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, HTTPException):
        messages = {404: f"there is no such {what}", 405: f"this {what} does not have that method"}
        return Refusal(error.status_code, messages.get(error.status_code, error.detail), headers=error.headers)
    if isinstance(error, WeftError):
        refusal = problem_of(error)
        if refusal.status >= 500:
            log.warning("request refused", path=scope["path"], status=refusal.status, error=str(error))
        return refusal
    log.error("request failed", exc_info=True, method=scope["method"], path=scope["path"])
    return Refusal(500, "internal error: see the service's log")


def _error_response(refusal: Refusal, scope: Scope) -> Response:
    return enveloped(refusal) if is_firecrawls(scope["path"]) else refusal.response()


def headers_of(scope: Scope) -> dict[str, str]:
    """The request's headers by name; raises Refusal (400) if one that affects access or framing was sent twice."""
    headers: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1")
        if name in headers and name in _HEADERS_SENT_ONCE:
            raise Refusal.of_field(name, "was sent twice", 400)
        headers[name] = value.decode("latin-1")
    return headers


def check_origin(method: str, headers: Mapping[str, str]) -> None:
    """Refuses requests that a page of another site could have sent; used where no API key identifies the caller."""
    host = headers.get("host", "")
    if not is_loopback(_PORT_SUFFIX.sub("", host)):
        raise Refusal.of_field(
            "Host", "is not a name of this machine: without API keys only loopback names are accepted", 403
        )
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"http://{host}".lower():
        raise Refusal.of_field("Origin", "is another site's: its pages may not use this service", 403)
    crosses = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    if crosses and not (method == "GET" and _is_visit(headers)):
        raise Refusal.of_field("Sec-Fetch-Site", "another site's page made this request: it is refused", 403)


def _is_visit(headers: Mapping[str, str]) -> bool:
    """Whether a user follows a link to the service: a top-level navigation, whose answer another page cannot read."""
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


async def body_of(
    headers: Mapping[str, str], receive: Receive, settings: ApiSettings, accepted: str = "application/json"
) -> bytes:
    """Reads a request's body within the limits; raises Refusal if it is too large, too slow or of another type."""
    most = settings.max_body_bytes
    length = headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise _too_large_refusal(most)
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            body = await _read_body(receive, most)
    except TimeoutError:
        raise Refusal(408, "the body did not arrive in time", headers={"Connection": "close"}) from None
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if (body or kind) and kind != accepted:
        raise Refusal.of_field("Content-Type", f"{kind[:100]!r} is not accepted; send {accepted}", 415)
    return body


def _too_large_refusal(most: int) -> Refusal:
    # The rest of the body will not be read, so the connection cannot be reused.
    return Refusal(413, f"the body is too large: at most {most:,} bytes", headers={"Connection": "close"})


async def _read_body(receive: Receive, most: int) -> bytes:
    pieces, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "the connection ended before the body did")
        piece: bytes = message.get("body", b"")
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise _too_large_refusal(most)
        if not message.get("more_body", False):
            return b"".join(pieces)


def replay(body: bytes) -> Receive:
    """A `receive` function that returns a body which was read already."""
    message: dict[str, Any] | None = {"type": "http.request", "body": body, "more_body": False}

    async def receive() -> Message:
        nonlocal message
        given, message = message, None
        if given is None:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]
        return given

    return receive

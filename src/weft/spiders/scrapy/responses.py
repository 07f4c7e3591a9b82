"""What came of a request, as Scrapy's callbacks and errbacks are given it: a response, or a failure."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import scrapy.exceptions
from scrapy import Spider
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Headers, Request, Response
from scrapy.responsetypes import responsetypes
from scrapy.settings import BaseSettings
from scrapy.spidermiddlewares.httperror import HttpError
from twisted.internet import error as twisted_error
from twisted.python.failure import Failure

from weft.engine.user_code.calls import Call
from weft.fetch.headers import Head
from weft.records import Reason

_REFUSED = frozenset(Reason)


def _also(own: type[Exception], name: str) -> type[Exception]:
    """Twisted's error, which is Scrapy's of that name as well: newer versions of Scrapy have their own."""
    other = getattr(scrapy.exceptions, name, None)
    return own if other is None else type(own.__name__, (own, other), {"__doc__": own.__doc__})


_ERRORS: dict[str, type[Exception]] = {
    "timeout": _also(twisted_error.TimeoutError, "DownloadTimeoutError"),
    "dns": _also(twisted_error.DNSLookupError, "CannotResolveHostError"),
    "connect": _also(twisted_error.ConnectionRefusedError, "DownloadConnectionRefusedError"),
    "reset": _also(twisted_error.ConnectionLost, "DownloadFailedError"),
    "too_large": _also(twisted_error.ConnectionAborted, "DownloadCancelledError"),
}
_OTHER = _also(twisted_error.ConnectionLost, "DownloadFailedError")


def response_of(call: Call, request: Request, body: bytes) -> Response:
    """The response, of the class that its headers and its body mean."""
    head = Head(call.head)
    headers = Headers()
    for name, value in head.items():
        if name.lower() != "content-encoding":  # the body has none any more
            headers.appendlist(name, value)
    if call.is_rendered:
        headers["Content-Type"] = "text/html; charset=utf-8"
    kind: Any = responsetypes.from_args(headers=headers, url=call.url, body=body)
    return kind(  # type: ignore[no-any-return]
        url=call.url, status=call.status, headers=headers, body=body, request=request,
        ip_address=ip_address(call.address) if call.address else None, protocol="HTTP/1.1",
    )  # fmt: skip


def failure_of(call: Call, request: Request) -> Failure:
    """The failure that Scrapy would pass to the errback of a request without a response."""
    kind, _, more = call.error.partition(":")
    detail = call.detail or more.strip() or call.error
    if kind == Reason.ROBOTS_UNREACHABLE:  # Scrapy would have asked for the page all the same
        kind = detail.partition(":")[0]
    if kind in _REFUSED or not call.error:
        message = f"Forbidden by robots.txt: {detail}" if kind == Reason.ROBOTS else f"{kind}: {detail}"
        return with_request(IgnoreRequest(message), request)
    return with_request(_ERRORS.get(kind, _OTHER)(detail), request)


def with_request(error: Exception, request: Request) -> Failure:
    """An error as a `Failure` with its request, as errbacks expect it."""
    failure: Failure = Failure(error)  # type: ignore[no-untyped-call]
    failure.request = request  # type: ignore[attr-defined]
    return failure


class StatusRule:
    """Which responses go to the callback: as Scrapy's HttpErrorMiddleware decides it."""

    def __init__(self, spider: Spider, settings: BaseSettings) -> None:
        self._spider = spider
        self._allows_all = settings.getbool("HTTPERROR_ALLOW_ALL")
        self._allowed = [int(code) for code in settings.getlist("HTTPERROR_ALLOWED_CODES")]

    def error_of(self, response: Response) -> HttpError | None:
        """The error of a response for the errback; None if the response goes to the callback."""
        meta = response.meta
        if 200 <= response.status < 300 or meta.get("handle_httpstatus_all"):
            return None
        if "handle_httpstatus_list" in meta:
            allowed = meta["handle_httpstatus_list"]
        elif self._allows_all:
            return None
        else:
            allowed = getattr(self._spider, "handle_httpstatus_list", self._allowed)
        return None if response.status in allowed else HttpError(response, "Ignoring non-200 response")

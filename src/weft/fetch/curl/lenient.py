"""Reads responses that libcurl refuses: those with an invalid header line.

libcurl ends the transfer at a header line without a colon and drops what it has read. Repeating the request at once
would break the site's delay, so the client remembers the origin, and its next request there goes over a connection that
libcurl only opens; the response, up to the server's close, is read here. Such lines stay in the head, where `Head`
ignores them.
"""

from __future__ import annotations

import re
import select
from typing import NamedTuple

import pycurl

from weft.fetch.curl.handles import Transfer, kind
from weft.fetch.headers import Head

ORIGINS = 1000
READS = 16  # per event, so that no answer holds up the others
RECEIVE_BYTES = 128 * 1024
MOST_BYTES = 16 * 1024 * 1024  # of a body: it is read from memory, whatever `max_body_bytes` says
MAX_HEAD_BYTES = 300 * 1024  # libcurl's limit

_STATUS = re.compile(rb"HTTP/1\.[01] +([0-9]{3})")
_BLANK = re.compile(rb"\n\r?\n")
_CHUNK = re.compile(rb"[ \t]*([0-9a-fA-F]{1,15})[^\n]*\n")


class Read(NamedTuple):
    """A response, or the part of it that arrived."""

    status: int
    head: bytes
    body: bytes
    error: str | None = None
    detail: str = ""
    surplus: bool = False  # more arrived than its Content-Length says


class RawReads:
    """The origins whose responses are read here, and the current transfers by socket."""

    def __init__(self, epoll: select.epoll, max_body_bytes: int) -> None:
        self._epoll = epoll
        self._max_body_bytes = min(max_body_bytes, MOST_BYTES)
        self.origins: dict[str, None] = {}
        self.reading: dict[int, Transfer] = {}

    def remember(self, origin: str) -> None:
        """Responses of this origin are read here from now on."""
        self.origins[origin] = None
        if len(self.origins) > ORIGINS:
            del self.origins[next(iter(self.origins))]

    def ask(self, transfer: Transfer) -> bool:
        """Sends the request over the opened connection and watches it; False if it cannot be sent."""
        try:
            sent = transfer.curl.send(transfer.request_head)
        except (OSError, pycurl.error):
            return False
        fd = transfer.curl.getinfo(pycurl.ACTIVESOCKET)
        self._epoll.register(fd, select.EPOLLIN)
        self.reading[fd] = transfer
        return bool(sent == len(transfer.request_head))

    def receive(self, transfer: Transfer) -> tuple[str | None, str] | None:
        """Reads what has arrived; returns the error and its detail at the end of the response, else None."""
        try:
            for _ in range(READS):
                data = transfer.curl.recv(RECEIVE_BYTES)
                if not data:
                    return None, ""
                transfer.body.add(data, may_spool=False)
        except BlockingIOError:
            pass
        except pycurl.error as error:
            return kind(*error.args), str(error.args[1])
        room = (transfer.keep_bytes or self._max_body_bytes) + MAX_HEAD_BYTES
        return ("too_large", f"more than {room} bytes") if transfer.body.size > room else None

    def forget(self, transfer: Transfer) -> None:
        """Stops watching the socket of a transfer that has ended."""
        for fd in [fd for fd, other in self.reading.items() if other is transfer]:
            del self.reading[fd]
            self._epoll.unregister(fd)

    def read(self, raw: bytes, error: str | None, detail: str) -> Read:
        """The response in the received bytes; if it is incomplete, with the transfer's error as the cause."""
        found = read(raw, self._max_body_bytes)
        return found if error is None or found.error is None else found._replace(error=error, detail=detail)


def read(raw: bytes, max_body_bytes: int) -> Read:
    """The final response in the bytes that a connection delivered until it was closed."""
    while True:
        status = _STATUS.match(raw)
        blank = _BLANK.search(raw, 0, MAX_HEAD_BYTES)
        if status is None or blank is None:
            return _headless(raw, status is not None)
        code, head, raw = int(status[1]), raw[: blank.end()], raw[blank.end() :]
        if code >= 200:
            break
    if code in (204, 304):
        return Read(code, head, b"")
    answer = Head(head)
    body, error, detail = _body(answer, raw)
    if len(body) > max_body_bytes:
        return Read(code, head, body, "too_large", f"more than {max_body_bytes} bytes")
    surplus = error is None and len(body) < len(raw) and answer.get("transfer-encoding") is None
    return Read(code, head, body, error, detail, surplus)


def _headless(raw: bytes, is_http: bool) -> Read:
    if not raw:
        return Read(0, b"", b"", "reset", "the connection was closed without an answer")
    if not is_http:
        return Read(0, b"", b"", "protocol", "no HTTP/1 status line")
    if len(raw) >= MAX_HEAD_BYTES:
        return Read(0, b"", b"", "headers_too_large", f"more than {MAX_HEAD_BYTES} bytes of head")
    return Read(0, raw, b"", "protocol", "the connection was closed inside the head")


def _body(head: Head, rest: bytes) -> tuple[bytes, str | None, str]:
    if "chunked" in (head.get("transfer-encoding") or "").lower():
        return dechunked(rest)
    lengths = set(head.get_all("content-length"))
    if not lengths:
        return rest, None, ""
    length = lengths.pop()
    if lengths or not length.isdecimal() or len(length) > 15:
        return b"", "protocol", "an invalid Content-Length"
    missing = int(length) - len(rest)
    if missing > 0:
        return rest, "truncated", f"end of response with {missing} bytes missing"
    return rest[: int(length)], None, ""


def dechunked(rest: bytes) -> tuple[bytes, str | None, str]:
    """A body without its chunked coding, as far as it goes; what is wrong with it, and a word about it."""
    parts, at = list[bytes](), 0
    while (size := _CHUNK.match(rest, at)) is not None:
        length = int(size[1], 16)
        if length == 0:
            return b"".join(parts), None, ""
        parts.append(rest[size.end() : size.end() + length])
        at = size.end() + length
        if rest[at : at + 2] == b"\r\n":
            at += 2
        elif rest[at : at + 1] == b"\n":
            at += 1
        else:
            break
    return b"".join(parts), "protocol", "a broken or missing chunk"

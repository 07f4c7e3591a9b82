"""Fetches URLs over HTTP/1.1: libcurl's multi interface, driven by an epoll of our own on the caller's thread.

The engine submits and polls; every submit ends in exactly one `FetchResult`, whatever the server does. A fixed pool of
libcurl handles is set up once; per transfer only the URL, the headers and the address are set, all three always, so
that nothing of one host can reach another.

What must stay true:
- No packet leaves for an address that `refusal` objects to. Names are resolved here, each address is judged, the
  transfer is pinned to the judged one, and the judgement is repeated when libcurl opens the socket.
- Nothing is taken from the environment: no proxy, no netrc, no cookies of libcurl's, no redirects, no decoding.
- Memory per transfer is bounded: the body by `max_body_bytes` while it arrives, the head by libcurl (300 KB, 5,000
  lines). What was too large is dropped.
- Time limits are ours, by one sweep over the transfers in flight, because libcurl's low-speed limit counts an average
  over seconds, and two timers less per transfer are cheaper.
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import pycurl

from weft.config import FetchSection
from weft.fetch.dns import Answer, Resolver
from weft.records import FetchResult

Refusal = Callable[[str], str | None]
Done = list[tuple[object, FetchResult]]

KEPT_CONNECTIONS = 500
ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
ACCEPT_ENCODING = "gzip, deflate, br, zstd"
RECEIVE_BYTES = 128 * 1024
EVENTS = 512
SWEEPS = 10  # a time limit is kept to a tenth of the shortest one

# Scheme, authority, host, port and target; nothing that could break out of the request line.
_URL = re.compile(
    r"(https?)://((\[[0-9a-fA-F:.]+\]|[^\x00-\x20\x7f-\U0010ffff/?#:@\[\]\\]+)(?::([0-9]{1,5}))?)"
    r"([/?][^\x00-\x20\x7f-\U0010ffff#]*)?(?:#.*)?"
)
_UNSENDABLE = re.compile(r"[\r\n\0]")
_DEFAULT_PORT = {"http": "80", "https": "443"}
_POLL_BITS = {
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}
_TLS_ERRORS = frozenset({35, 53, 54, 58, 59, 60, 64, 66, 77, 80, 82, 83, 90, 91, 98})


class _Transfer:
    """A reusable handle and what belongs to the transfer it carries."""

    __slots__ = (
        "addresses", "chunks", "curl", "extra", "host", "lines", "mark", "moved", "pinned",
        "refused", "request_head", "running", "started", "tag", "url",
    )  # fmt: skip

    def __init__(self, curl: Any) -> None:
        self.curl = curl
        self.lines: list[bytes] = []
        self.chunks: list[bytes] = []
        self.pinned = ""  # the address the handle is set to
        self.extra: Sequence[tuple[str, str]] = ()  # the headers the handle is set to, beyond the usual ones
        self.clear()

    def clear(self) -> None:
        self.url = self.host = self.refused = ""
        self.tag: object = None
        self.request_head = b""
        self.addresses: tuple[str, ...] = ()  # those still to try
        self.started = self.moved = 0.0
        self.mark = 0
        self.running = False  # libcurl has it
        self.lines.clear()
        self.chunks.clear()


class Client:
    """GETs many URLs at once, on the caller's thread."""

    def __init__(
        self,
        section: FetchSection,
        *,
        refusal: Refusal,
        handles: int,
        clock: Callable[[], float] = time.monotonic,
        resolver: Resolver | None = None,
        ca_file: str | None = None,
    ) -> None:
        self._section = section
        self._refusal = lru_cache(4096)(refusal)
        self._clock = clock
        self._resolver = resolver or Resolver(section.resolve, clock=clock)
        self._epoll = select.epoll()
        self._epoll.register(self._resolver.fileno(), select.EPOLLIN)
        self._registered: dict[int, int] = {}
        self._due: float | None = None  # when libcurl wants to be called
        limits = (section.connect_timeout_s, section.read_timeout_s, section.total_timeout_s)
        self._sweep_every_s = min(0.5, min(limits) / SWEEPS)
        self._next_sweep = 0.0
        self._done: Done = []
        self._waiting: dict[str, list[_Transfer]] = {}
        self._active: dict[Any, _Transfer] = {}
        self._multi = self._make_multi(handles)
        self._usual = self._usual_headers()
        self._usual_lines, self._usual_tail = _wire(self._usual)
        self._free = [self._make_transfer(ca_file) for _ in range(handles)]

    @property
    def in_flight(self) -> int:
        """Transfers begun and not ended."""
        return len(self._active)

    @property
    def free(self) -> int:
        """Transfers that may be submitted now."""
        return len(self._free)

    def fileno(self) -> int:
        """Readable when `poll` has something to do; time limits do not show here, see `timeout_s`."""
        return self._epoll.fileno()

    def timeout_s(self) -> float | None:
        """In how many seconds `poll` must be called even if nothing arrives; None: not before it does."""
        if self._done:
            return 0.0
        if not self._active:
            return None
        due = self._next_sweep if self._due is None else min(self._due, self._next_sweep)
        return max(0.0, due - self._clock())

    def submit(self, url: str, headers: Sequence[tuple[str, str]], tag: object) -> None:
        """Begins one GET; `headers` join the usual ones, and take their place where the name is the same."""
        transfer = self._free.pop()
        transfer.url, transfer.tag = url, tag
        transfer.started = transfer.moved = now = self._clock()
        if not self._active:
            self._next_sweep = now + self._sweep_every_s
        self._active[transfer.curl] = transfer
        found = _URL.fullmatch(url)
        if found is None or any(_UNSENDABLE.search(name + value) for name, value in headers):
            self._end(transfer, "other", "not a URL and headers that can be sent")
            return
        self._prepare(transfer, found, headers)
        answer = self._resolver.find(transfer.host)
        if answer is not None:
            self._route(transfer, answer)
        else:
            self._waiting.setdefault(transfer.host, []).append(transfer)
            self._resolver.ask(transfer.host)

    def poll(self, timeout_s: float) -> Done:
        """Works until a transfer has ended or the time is over; the transfers that ended."""
        until = self._clock() + timeout_s
        while True:
            self._work(until)
            if self._done or self._clock() >= until:
                break
        done, self._done = self._done, []
        return done

    def abort(self, tag: object) -> None:
        """Ends the transfers with this tag at once; they come out of `poll` as aborted."""
        for transfer in [t for t in self._active.values() if t.tag is tag or t.tag == tag]:
            self._end(transfer, "aborted", "by the caller")

    def close(self) -> None:
        """Drops what is in flight and gives everything back to the system."""
        for transfer in list(self._active.values()):
            self._end(transfer, "aborted", "the client was closed")
        self._multi.close()
        for transfer in self._free:
            transfer.curl.close()
        self._free.clear()
        self._epoll.close()
        self._resolver.close()

    # -- setting up

    def _make_multi(self, handles: int) -> Any:
        multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_MAXCONNECTS, max(KEPT_CONNECTIONS, handles))
        multi.setopt(pycurl.M_PIPELINING, 0)
        multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        return multi

    def _make_transfer(self, ca_file: str | None) -> _Transfer:
        curl = pycurl.Curl()
        transfer = _Transfer(curl)
        for option, value in (
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
            (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
            (pycurl.FOLLOWLOCATION, 0),
            (pycurl.PATH_AS_IS, 1),
            (pycurl.PROXY, ""),
            (pycurl.NOPROXY, "*"),
            (pycurl.NETRC, pycurl.NETRC_IGNORED),
            (pycurl.HTTP09_ALLOWED, 0),
            (pycurl.NOSIGNAL, 1),
            (pycurl.TCP_NODELAY, 1),
            (pycurl.TCP_KEEPALIVE, 1),
            (pycurl.BUFFERSIZE, RECEIVE_BYTES),
            (pycurl.MAXFILESIZE_LARGE, self._section.max_body_bytes),
            (pycurl.HTTPHEADER, self._usual_lines),
            (pycurl.HEADERFUNCTION, transfer.lines.append),
            (pycurl.WRITEFUNCTION, transfer.chunks.append),
            (pycurl.OPENSOCKETFUNCTION, partial(self._open_socket, transfer)),
            (pycurl.SSL_VERIFYPEER, int(self._section.tls_verify)),
            (pycurl.SSL_VERIFYHOST, 2 if self._section.tls_verify else 0),
        ):
            curl.setopt(option, value)
        if ca_file is not None:
            curl.setopt(pycurl.CAINFO, ca_file)
        return transfer

    def _usual_headers(self) -> list[tuple[str, str]]:
        usual = [
            ("User-Agent", self._section.user_agent()),
            ("Accept", ACCEPT),
            ("Accept-Encoding", ACCEPT_ENCODING),
        ]
        return _merged(usual, tuple(self._section.headers.items()))

    # -- one transfer

    def _prepare(self, transfer: _Transfer, found: re.Match[str], headers: Sequence[tuple[str, str]]) -> None:
        """Sets URL and headers, and writes down the request as libcurl will send it."""
        scheme, authority, host, port, target = found.groups()
        if port is not None and port == _DEFAULT_PORT[scheme]:
            authority = host
        transfer.host = host
        transfer.curl.setopt(pycurl.URL, transfer.url)
        tail = self._usual_tail
        if headers:
            lines, tail = _wire(_merged(self._usual, headers))
            transfer.curl.setopt(pycurl.HTTPHEADER, lines)
        elif transfer.extra:
            transfer.curl.setopt(pycurl.HTTPHEADER, self._usual_lines)
        transfer.extra = headers
        target = target or "/"
        if target[0] == "?":
            target = "/" + target
        transfer.request_head = f"GET {target} HTTP/1.1\r\nHost: {authority}\r\n".encode() + tail

    def _route(self, transfer: _Transfer, answer: Answer) -> None:
        """Chooses the addresses that may be tried, and begins with the first."""
        if not answer.addresses:
            self._end(transfer, "dns", answer.error)
            return
        allowed = tuple(a for a in answer.addresses if self._refusal(a) is None)
        if not allowed:
            first = answer.addresses[0]
            self._end(transfer, "address", f"{first}: {self._refusal(first)}")
            return
        transfer.addresses = allowed
        self._start(transfer)

    def _start(self, transfer: _Transfer) -> None:
        address, transfer.addresses = transfer.addresses[0], transfer.addresses[1:]
        if address != transfer.pinned:
            shown = f"[{address}]" if ":" in address else address
            transfer.curl.setopt(pycurl.CONNECT_TO, [f"::{shown}:"])
            transfer.pinned = address
        transfer.running = True
        self._multi.add_handle(transfer.curl)

    def _open_socket(self, transfer: _Transfer, _purpose: int, target: Any) -> Any:
        """Called by libcurl for every new connection: the last look at where it leads."""
        address = str(target.addr[0])
        reason = self._refusal(address)
        if reason is not None:
            transfer.refused = f"{address}: {reason}"
            return pycurl.SOCKET_BAD
        try:
            return socket.socket(target.family, target.socktype, target.protocol)
        except OSError:
            return pycurl.SOCKET_BAD

    def _end(self, transfer: _Transfer, error: str | None, detail: str) -> None:
        """Takes the transfer out, makes its result, and frees the handle."""
        curl = transfer.curl
        status, ip = 0, ""
        if transfer.running:
            self._multi.remove_handle(curl)
            status, ip = curl.getinfo(pycurl.RESPONSE_CODE), curl.getinfo(pycurl.PRIMARY_IP)
        elif transfer.host in self._waiting:
            self._stop_waiting(transfer)
        head = b"".join(transfer.lines)
        if transfer.lines and head.find(b"\r\n\r\n") != len(head) - 4:
            head, whole = _final_head(transfer.lines)
            if not whole and error is None:
                error, detail = "protocol", "the connection was closed inside the head"
        body = b"" if error == "too_large" else b"".join(transfer.chunks)
        self._done.append((
            transfer.tag,
            FetchResult(
                transfer.url, status if head else 0, head, body, error, detail,
                transfer.started, self._clock(), ip, transfer.request_head,
            ),
        ))  # fmt: skip
        del self._active[curl]
        transfer.clear()
        self._free.append(transfer)

    def _stop_waiting(self, transfer: _Transfer) -> None:
        waiting = self._waiting[transfer.host]
        if transfer in waiting:
            waiting.remove(transfer)
        if not waiting:
            del self._waiting[transfer.host]

    # -- the loop

    def _work(self, until: float) -> None:
        """One round: wait for events, hand them to libcurl, take what has ended, sweep."""
        now = self._clock()
        wake = until if self._due is None else min(until, self._due)
        if self._active:
            wake = min(wake, self._next_sweep)
        wait_s = 0.0 if self._done else max(0.0, wake - now)
        act, names = self._multi.socket_action, self._resolver.fileno()
        for fd, events in self._epoll.poll(wait_s, EVENTS):
            if fd == names:
                self._names_came()
            else:
                act(fd, _csel(events))
        now = self._clock()
        if self._due is not None and self._due <= now:
            self._due = None
            act(pycurl.SOCKET_TIMEOUT, 0)
        self._reap()
        if now >= self._next_sweep and self._active:
            self._sweep(now)

    def _on_socket(self, what: int, fd: int, _multi: Any, _data: Any) -> None:
        """libcurl says which sockets to watch, and for what."""
        if what == pycurl.POLL_REMOVE:
            if self._registered.pop(fd, None) is not None:
                self._epoll.unregister(fd)
            return
        bits = _POLL_BITS[what]
        before = self._registered.get(fd)
        if before is None:
            self._epoll.register(fd, bits)
        elif before != bits:
            self._epoll.modify(fd, bits)
        self._registered[fd] = bits

    def _on_timer(self, timeout_ms: int) -> None:
        self._due = None if timeout_ms < 0 else self._clock() + timeout_ms / 1000

    def _names_came(self) -> None:
        for host, answer in self._resolver.take():
            for transfer in self._waiting.pop(host, ()):
                self._route(transfer, answer)

    def _reap(self) -> None:
        """Takes the transfers that libcurl has ended."""
        queued = 1
        while queued:
            queued, good, bad = self._multi.info_read()
            for curl in good:
                self._end(self._active[curl], None, "")
            for curl, code, message in bad:
                self._fail(self._active[curl], code, message)

    def _fail(self, transfer: _Transfer, code: int, message: str) -> None:
        if transfer.refused:
            self._end(transfer, "address", transfer.refused)
        elif code == pycurl.E_COULDNT_CONNECT and transfer.addresses:
            self._multi.remove_handle(transfer.curl)
            self._start(transfer)
        else:
            self._end(transfer, _kind(code, message), message)

    # -- time limits

    def _sweep(self, now: float) -> None:
        """Ends the transfers that have run out of time."""
        self._next_sweep = now + self._sweep_every_s
        for transfer in list(self._active.values()):
            mark = len(transfer.lines) + len(transfer.chunks)
            if mark != transfer.mark:
                transfer.mark, transfer.moved = mark, now
            over = self._out_of_time(transfer, now)
            if over:
                self._end(transfer, "timeout", over)

    def _out_of_time(self, transfer: _Transfer, now: float) -> str:
        section = self._section
        if now - transfer.started >= section.total_timeout_s:
            return f"total: not done after {section.total_timeout_s:g} s"
        quiet = now - transfer.moved
        if quiet < section.connect_timeout_s and quiet < section.read_timeout_s:
            return ""
        if not transfer.running:
            return f"connect: no name lookup in {quiet:.3g} s" if quiet >= section.connect_timeout_s else ""
        connected_s = transfer.curl.getinfo(pycurl.PRETRANSFER_TIME)
        if not transfer.lines and not connected_s:
            return f"connect: no connection in {quiet:.3g} s" if quiet >= section.connect_timeout_s else ""
        if not transfer.lines:
            quiet -= connected_s
        return f"read: no byte in {quiet:.3g} s" if quiet >= section.read_timeout_s else ""


def _csel(events: int) -> int:
    bits = 0
    if events & select.EPOLLIN:
        bits |= pycurl.CSELECT_IN
    if events & select.EPOLLOUT:
        bits |= pycurl.CSELECT_OUT
    if events & (select.EPOLLERR | select.EPOLLHUP):
        bits |= pycurl.CSELECT_ERR
    return bits


def _merged(usual: Sequence[tuple[str, str]], extra: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The usual headers, with those replaced that are given anew, then the others that are given."""
    named = {name.lower() for name, _ in extra}
    return [pair for pair in usual if pair[0].lower() not in named] + list(extra)


def _wire(headers: Sequence[tuple[str, str]]) -> tuple[list[bytes], bytes]:
    """Headers as libcurl takes them (an empty value is written `name;`), and as it sends them."""
    pairs = [(name.encode(), value.strip().encode()) for name, value in headers]
    lines = [name + b": " + value if value else name + b";" for name, value in pairs]
    sent = b"".join(name + b": " + value + b"\r\n" if value else name + b":\r\n" for name, value in pairs)
    return lines, sent + b"\r\n"


def _final_head(lines: list[bytes]) -> tuple[bytes, bool]:
    """The last response's head among interim ones and trailers, and whether its blank line came."""
    start, whole = 0, False
    for number, line in enumerate(lines):
        if line in (b"\r\n", b"\n"):
            whole = True
            end = number + 1
        elif whole and line.startswith(b"HTTP/") and b":" not in line.split(b" ", 1)[0]:
            start, whole = number, False
    return b"".join(lines[start : end if whole else None]), whole


def _kind(code: int, message: str) -> str:
    """The word to count an error of libcurl by."""
    if "reset by peer" in message:
        return "reset"
    if code == pycurl.E_PARTIAL_FILE:
        return "truncated" if "missing" in message or "bytes remaining" in message else "protocol"
    if "Too large response headers" in message:
        return "headers_too_large"
    if code == pycurl.E_RECV_ERROR and "chunk" in message.lower():
        return "protocol"
    return "tls" if code in _TLS_ERRORS else _KINDS.get(code, "other")


_KINDS = {
    pycurl.E_UNSUPPORTED_PROTOCOL: "protocol",
    pycurl.E_COULDNT_RESOLVE_HOST: "dns",
    pycurl.E_COULDNT_CONNECT: "connect",
    8: "protocol",  # CURLE_WEIRD_SERVER_REPLY
    pycurl.E_OPERATION_TIMEDOUT: "timeout",
    pycurl.E_GOT_NOTHING: "reset",
    pycurl.E_SEND_ERROR: "reset",
    pycurl.E_RECV_ERROR: "reset",
    pycurl.E_BAD_CONTENT_ENCODING: "protocol",
    pycurl.E_FILESIZE_EXCEEDED: "too_large",
    100: "headers_too_large",  # CURLE_TOO_LARGE
}

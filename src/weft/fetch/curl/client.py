"""Fetches URLs over HTTP/1.1: libcurl's multi interface, driven by an epoll of our own on the caller's thread.

The engine submits and polls; every submit ends in exactly one `FetchResult`, whatever the server does. The handles are
a fixed pool, and the callbacks while a page arrives do next to nothing: they append a header line, or take a chunk.

What must stay true:
- No packet leaves for an address that `refusal` objects to. Names are resolved here, each address is checked, the
  transfer is pinned to the checked one, and the check is repeated when libcurl opens the socket.
- Nothing comes from the environment: no proxy, no netrc. libcurl handles no cookies, redirects or content codings.
- Memory is bounded: that of all bodies that arrive by the spool, which takes what is large, or too much, to files
  (`bodies`); a body by `max_body_bytes`, a head by libcurl (300 KB, 5,000 lines). What was too large is dropped; a body
  that was cut short is kept, with an error that says so.
- No request leaves after its deadline (`until`): the clock is read when libcurl is about to send it, because a process
  that was stopped (SIGSTOP, suspend) resumes where it was.
- Time limits are enforced here, by a sweep over the transfers in flight: libcurl's low-speed limit is an average over
  seconds, and its timers cost more per transfer.
"""

from __future__ import annotations

import math
import re
import select
import socket
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import pycurl

from weft.bodies import Body, Spool, first_of
from weft.config import FetchSection
from weft.credentials import harmless
from weft.fetch.content_types import accepting
from weft.fetch.contract import Done
from weft.fetch.curl.handles import (
    LEFT_OUT,
    OVERDUE,
    STALE,
    Transfer,
    ca_bundle,
    detail_of,
    is_sloppy,
    kind,
    session_caches,
    set_up,
)
from weft.fetch.curl.lenient import RawReads
from weft.fetch.curl.pools import Pools
from weft.fetch.curl.surplus import has_surplus
from weft.fetch.dns.resolver import NameCounts, ResolvedName, Resolver
from weft.fetch.headers import final_head, merged, wire
from weft.records import FetchResult

Refusal = Callable[[str], str | None]

EVENTS = 128  # handled at a time: few, so that ended transfers are reported soon and delays do not grow
SWEEPS = 10  # time limits are accurate to a tenth of the shortest one
ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
ACCEPT_ENCODING = "gzip, deflate, br, zstd"

# Scheme, authority, host, port and target; nothing that could break out of the request line. What may be sent is
# listed: a set of all that may not be takes 5 ms to compile, in every process.
_URL = re.compile(
    r"(https?)://((\[[0-9a-fA-F:.]+\]|[!\"$-.0-9;->A-Z^-~]+)(?::([0-9]{1,5}))?)"
    r"([/?][!\"$-~]*)?(?:#.*)?"
)
_UNSENDABLE = re.compile(r"[\r\n\0]")
_DEFAULT_PORT = {"http": "80", "https": "443"}


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
        spool: Spool | None = None,
    ) -> None:
        """`spool`: shared by all clients of a process; it bounds the memory that bodies take while they arrive."""
        self._section = section
        self._spool = spool or Spool(section.body_memory_bytes)
        self._refusal = lru_cache(4096)(refusal)
        self._clock = clock
        self._resolver = resolver or Resolver(
            section.resolve, servers=section.dns_servers, timeout_s=section.dns_timeout_s, clock=clock
        )
        self._epoll = select.epoll()
        self._epoll.register(self._resolver.fileno(), select.EPOLLIN)
        self._raw = RawReads(self._epoll, section.max_body_bytes)
        self._connect_s = (section.connect_timeout_s, min(section.first_connect_s, section.connect_timeout_s))
        limits = (self._connect_s[True], section.read_timeout_s, section.total_timeout_s)
        self._sweep_every_s = min(0.5, min(limits) / SWEEPS)
        self._next_sweep = 0.0
        self._done: Done = []
        self._waiting: dict[str, list[Transfer]] = {}  # transfers by the host name that is being resolved
        self._active: dict[Any, Transfer] = {}
        self._accepting = accepting(section.accept)
        self._usual = self._usual_headers()
        self._usual_lines, self._usual_tail = wire(self._usual)
        self._pools = Pools(self._epoll, clock, handles)
        self._ca_file = ca_file or ca_bundle()
        self._sessions = session_caches()
        self._free: list[Transfer] = []
        self._unmade = handles  # transfers are made when they are first needed

    @property
    def in_flight(self) -> int:
        """Transfers begun and not ended."""
        return len(self._active)

    @property
    def free(self) -> int:
        """Transfers that may be submitted now."""
        return len(self._free) + self._unmade

    def fileno(self) -> int:
        """Readable when `poll` has something to do, except for timers: see `timeout_s`."""
        return self._epoll.fileno()

    def timeout_s(self) -> float | None:
        """In how many seconds `poll` must be called even if `fileno` is not readable; None: not at all."""
        if self._done:
            return 0.0
        due = self._wake()
        return None if due == math.inf else max(0.0, due - self._clock())

    @property
    def lookups(self) -> NameCounts:
        """What was counted of name lookups."""
        return self._resolver.counts

    def submit(
        self,
        url: str,
        headers: Sequence[tuple[str, str]],
        tag: object,
        *,
        keep_bytes: int = 0,
        until: float = math.inf,
        address: str | None = None,
        filtered: bool = False,
        is_first: bool = False,
        body: bytes | None = None,
        method: str = "",
        timeout_s: float = 0.0,
    ) -> None:
        """Begins one GET, or the POST of a body; `headers` are added to the usual ones, and replace those of the same
        name. With a `method` the request is that one, and goes over a connection of its own, which cannot turn out dead
        when it is sent. A body is no part of what is recorded: it may hold a password.

        With `keep_bytes` a body is read up to that size; a longer one ends as too large, with the bytes read. `until`:
        a deadline in the client's clock, after which nothing is sent and a transfer in flight is aborted, also when
        this process was stopped meanwhile. `address`: the result of `address_of`; the request goes there and nowhere
        else, or ends with the reason if it is empty. `filtered`: a page of a type that `accept` does not name ends at
        its head, as `content-type`. `is_first`: nothing is known of the host, which has less time to take a connection
        than others. `timeout_s`: for the whole transfer, in the place of the limits of time in the settings.
        """
        transfer = self._free.pop() if self._free else self._make_transfer()
        transfer.url, transfer.tag = url, tag
        transfer.keep(keep_bytes, self._section.max_body_bytes)
        transfer.started = transfer.moved = now = self._clock()
        transfer.until = until
        transfer.total_s = timeout_s or self._section.total_timeout_s
        transfer.quiet_s = timeout_s or self._section.read_timeout_s
        transfer.accepting = self._accepting if filtered else None
        transfer.connect_s = self._connect_s[is_first]
        transfer.connect_by = now + transfer.connect_s
        if not self._active:
            self._next_sweep = now + self._sweep_every_s
        self._active[transfer.curl] = transfer
        found = _URL.fullmatch(url)
        if found is None:
            self._end(transfer, "other", "not a URL that can be requested")
        elif any(_UNSENDABLE.search(name + value) for name, value in headers):
            self._end(transfer, "other", "a header that cannot be sent")
        elif now >= until:
            self._end(transfer, *OVERDUE)
        else:
            self._prepare(transfer, found, headers, body, method)
            if address is None:
                self._resolve(transfer)
            else:
                self._go_to(transfer, address)

    def address_of(self, host: str) -> str | None:
        """The address for requests to a host: empty if there is none, None while it is being resolved (by `poll`)."""
        answer = self._resolver.find(host)
        if answer is None:
            self._waiting.setdefault(host, [])
            self._resolver.ask(host)
            return None
        return next((address for address in answer.addresses if self._refusal(address) is None), "")

    def poll(self, timeout_s: float) -> Done:
        """Works until a transfer has ended or the time is over; returns the ended transfers with their tags."""
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
        """Aborts what is in flight and frees all resources."""
        for transfer in list(self._active.values()):
            self._end(transfer, "aborted", "the client was closed")
        self._pools.close()
        for transfer in self._free:
            transfer.curl.close()
        self._free.clear()
        self._epoll.close()
        self._resolver.close()

    # -- setting up

    def _usual_headers(self) -> list[tuple[str, str]]:
        agent = ("User-Agent", self._section.user_agent())
        usual = [agent, ("Accept", ACCEPT), ("Accept-Encoding", ACCEPT_ENCODING)]
        return merged(usual, tuple(harmless(self._section.headers).items()))  # others are set per request

    def _make_transfer(self) -> Transfer:
        self._unmade -= 1
        transfer = Transfer(self._sessions, self._clock, self._spool)
        set_up(transfer, self._section, self._usual_lines, self._ca_file)
        transfer.curl.setopt(pycurl.OPENSOCKETFUNCTION, partial(self._open_socket, transfer))
        return transfer

    # -- the start of a transfer

    def _prepare(
        self,
        transfer: Transfer,
        found: re.Match[str],
        headers: Sequence[tuple[str, str]],
        body: bytes | None,
        named: str,
    ) -> None:
        """Sets URL, body and headers, and records the request head as it will be sent."""
        scheme, authority, host, port, target = found.groups()
        origin = f"{scheme}://{authority}"
        transfer.host = host
        transfer.aim(origin, target if target and target[0] == "/" else "/" + (target or ""))
        method = named or ("GET" if body is None else "POST")
        is_get = method == "GET" and body is None
        transfer.ask(method, body, alone=bool(named) and not is_get)
        # Only a GET is read leniently: we send it ourselves, in one piece.
        transfer.connect_only(is_get and bool(self._raw.origins) and origin in self._raw.origins)
        tail = self._usual_tail
        if headers or not transfer.usual or transfer.lenient or transfer.posts:
            tail = self._set_headers(transfer, headers)
        if port is not None and port == _DEFAULT_PORT[scheme]:
            authority = host
        transfer.request_head = f"{method} {transfer.target} HTTP/1.1\r\nHost: {authority}\r\n".encode() + tail

    def _set_headers(self, transfer: Transfer, headers: Sequence[tuple[str, str]]) -> bytes:
        chosen = merged(self._usual, headers) if headers else self._usual
        if transfer.lenient:
            chosen = [*chosen, ("Connection", "close")]
        lines, tail = wire(chosen)
        if transfer.posts:
            lines.append(b"Expect:")  # libcurl would wait a second for leave to send a large body
            if not any(name.lower() == "content-type" for name, _ in chosen):
                lines.append(b"Content-Type:")  # libcurl would say that it is a form
        transfer.curl.setopt(pycurl.HTTPHEADER, lines)
        transfer.usual = chosen is self._usual and not transfer.posts
        return tail

    def _resolve(self, transfer: Transfer) -> None:
        answer = self._resolver.find(transfer.host)
        if answer is not None:
            self._route(transfer, answer)
            return
        self._waiting.setdefault(transfer.host, []).append(transfer)
        self._resolver.ask(transfer.host)

    def _route(self, transfer: Transfer, answer: ResolvedName) -> None:
        """Stores the permitted addresses, and connects to the first."""
        transfer.addresses = tuple(a for a in answer.addresses if self._refusal(a) is None)
        if transfer.addresses:
            self._start(transfer)
        elif answer.addresses:
            first = answer.addresses[0]
            self._end(transfer, "address", f"{first}: {self._refusal(first)}")
        else:
            self._end(transfer, "dns", answer.error)

    def _go_to(self, transfer: Transfer, address: str) -> None:
        """Connects to one address only: the politeness slot was claimed for that one."""
        if address:
            transfer.addresses = (address,)
            self._start(transfer)
            return
        answer = self._resolver.find(transfer.host) or ResolvedName((), "no address")
        if any(self._refusal(other) is None for other in answer.addresses):
            self._end(transfer, "dns", "its address has just changed")
        else:
            self._route(transfer, answer)

    def _start(self, transfer: Transfer) -> None:
        """Hands the transfer to libcurl, pinned to its next address; the addresses left share the time to connect."""
        address, transfer.addresses = transfer.addresses[0], transfer.addresses[1:]
        transfer.pin(address)
        transfer.connect_by = transfer.started + transfer.connect_s
        if transfer.addresses:
            now = self._clock()
            transfer.connect_by = now + (transfer.connect_by - now) / (len(transfer.addresses) + 1)
        transfer.running = True
        transfer.pool = self._pools.add(transfer.curl, transfer.host)

    def _open_socket(self, transfer: Transfer, _purpose: int, target: Any) -> Any:
        """Called by libcurl for every new connection: the last check of its address."""
        if transfer.asked:  # see Transfer.ask_once
            transfer.not_sent = STALE
            return pycurl.SOCKET_BAD
        address = str(target.addr[0])
        reason = self._refusal(address)
        if reason is not None:
            transfer.not_sent = ("address", f"{address}: {reason}")
            return pycurl.SOCKET_BAD
        try:
            made = socket.socket(target.family, target.socktype, target.protocol)
        except OSError as error:  # out of file descriptors: not the site's fault
            transfer.not_sent = ("other", f"no socket: {error.strerror}")
            return pycurl.SOCKET_BAD
        transfer.hold(made)  # pycurl gives libcurl a duplicate
        return made

    # -- its end

    def _reap(self) -> None:
        """Ends the transfers that libcurl has completed."""
        for curl, code, message in self._pools.over():
            transfer = self._active[curl]
            if code:
                self._fail(transfer, code, message)
            elif not transfer.lenient:
                self._end(transfer, None, "")
            elif self._clock() >= transfer.until:
                self._end(transfer, *OVERDUE)
            elif not self._raw.ask(transfer):
                self._end(transfer, "reset", "the request could not be sent")

    def _fail(self, transfer: Transfer, code: int, message: str) -> None:
        if transfer.not_sent is not None:
            self._end(transfer, *transfer.not_sent)
        elif transfer.is_full:
            self._end(transfer, "too_large", f"cut off after {transfer.keep_bytes} bytes")
        elif code == pycurl.E_COULDNT_CONNECT and transfer.addresses:
            self._try_next(transfer)
        else:
            if is_sloppy(code, message):
                self._raw.remember(transfer.origin)
            if code == pycurl.E_COULDNT_CONNECT:
                self._resolver.put_last(transfer.host, transfer.pinned)
            self._end(transfer, kind(code, message), detail_of(message))

    def _try_next(self, transfer: Transfer) -> None:
        self._pools.remove(transfer.curl, transfer.pool)
        transfer.moved = self._clock()
        self._start(transfer)

    def _end(self, transfer: Transfer, error: str | None, detail: str) -> None:
        """Removes the transfer from libcurl, makes its result, and frees the handle."""
        curl, status, ip, dropped, surplus = transfer.curl, 0, "", False, False
        if transfer.lenient:
            self._raw.forget(transfer)
        if transfer.running:
            dropped = error is None and curl.getinfo(pycurl.ACTIVESOCKET) < 0
            self._pools.remove(curl, transfer.pool)
            status, ip = curl.getinfo(pycurl.RESPONSE_CODE), curl.getinfo(pycurl.PRIMARY_IP)
        elif transfer.host in self._waiting:
            self._stop_waiting(transfer)
        head = b"".join(transfer.lines)
        body, error, detail = _body_of(transfer, error, detail)
        if transfer.lenient and isinstance(body, bytes) and (body or error is None):
            status, head, body, error, detail, surplus = self._raw.read(body, error, detail)
            transfer.judge(status, head, body)
        elif status < 200 or head.find(b"\r\n\r\n") != len(head) - 4:
            status, head, error, detail = _unusual(transfer.lines, status, error, detail)
        elif dropped and status < 300:
            surplus = has_surplus(head, sum(map(len, transfer.lines)) + len(body), transfer.opened)
        if transfer.left_out:
            body, error, detail = b"", LEFT_OUT, transfer.left_out
        elif error == "too_large":
            body = first_of(body, transfer.keep_bytes)
        now = self._clock()
        was_sent = transfer.asked or transfer.lenient or error is None
        result = FetchResult(
            transfer.url, status, head, body, error, detail, transfer.started, now, ip, transfer.request_head, surplus,
            was_sent=was_sent,
        )  # fmt: skip
        self._done.append((transfer.tag, result))
        del self._active[curl]
        transfer.clear()
        self._free.append(transfer)

    def _stop_waiting(self, transfer: Transfer) -> None:
        waiting = self._waiting[transfer.host]
        if transfer in waiting:
            waiting.remove(transfer)
        if not waiting:
            del self._waiting[transfer.host]

    # -- the loop

    def _work(self, until: float) -> None:
        """Runs one round: waits for events, hands them to libcurl, ends completed transfers, sweeps."""
        wait_s = 0.0 if self._done else max(0.0, min(until, self._wake()) - self._clock())
        act, names = self._pools.act, self._resolver.fileno()
        for fd, events in self._epoll.poll(wait_s, EVENTS):
            if fd == names:
                self._on_names()
            elif fd in self._raw.reading:
                self._on_raw(fd)
            else:
                act(fd, events)
        now = self._clock()
        if self._resolver.due <= now:
            self._on_names()
        self._pools.tick(now)
        self._reap()
        if now >= self._next_sweep and self._active:
            self._sweep(now)

    def _wake(self) -> float:
        """When the next work is due without an event: for libcurl, for the resolver, against slow sites."""
        due = min(self._resolver.due, self._pools.due)
        return min(due, self._next_sweep) if self._active else due

    def _on_names(self) -> None:
        for host, answer in self._resolver.completed():
            for transfer in self._waiting.pop(host, ()):
                self._route(transfer, answer)

    def _on_raw(self, fd: int) -> None:
        transfer = self._raw.reading[fd]
        ended = self._raw.receive(transfer)
        if ended is not None:
            self._end(transfer, *ended)

    # -- time limits

    def _sweep(self, now: float) -> None:
        """Ends the transfers that have run out of time."""
        self._next_sweep = now + self._sweep_every_s
        for transfer in list(self._active.values()):
            mark = transfer.arrived
            if mark != transfer.mark:
                transfer.mark, transfer.moved = mark, now
            over = self._out_of_time(transfer, now)
            if now >= transfer.until:
                self._end(transfer, *OVERDUE)
            elif over.startswith("connect") and transfer.addresses:
                self._try_next(transfer)
            elif over:
                if transfer.running and over.startswith("connect"):
                    self._resolver.put_last(transfer.host, transfer.pinned)
                self._end(transfer, "timeout", over)

    def _out_of_time(self, transfer: Transfer, now: float) -> str:
        """The limit that a transfer has passed, if any."""
        quiet = now - transfer.moved
        if now - transfer.started >= transfer.total_s:
            return f"total: not done in {transfer.total_s:g} s"
        if now < transfer.connect_by and quiet < transfer.quiet_s:
            return ""
        connected_s = transfer.curl.getinfo(pycurl.PRETRANSFER_TIME) if transfer.running else 0.0
        if not transfer.mark and not connected_s:
            what = "connection" if transfer.running else "address for the name"
            return f"connect: no {what} in {now - transfer.started:.3g} s" if now >= transfer.connect_by else ""
        if not transfer.mark:
            quiet -= connected_s
        return f"read: no byte in {transfer.quiet_s:g} s" if quiet >= transfer.quiet_s else ""


def _body_of(transfer: Transfer, error: str | None, detail: str) -> tuple[Body, str | None, str]:
    """The received part of a body, and the error: another one if the body does not fit on the disk."""
    try:
        return transfer.body.whole(), error, detail
    except OSError as why:
        return b"", "other", f"the body could not be kept: {why.strerror or why}"


def _unusual(lines: list[bytes], status: int, error: str | None, detail: str) -> tuple[int, bytes, str | None, str]:
    """Status, final head and error where there are several header blocks, or an incomplete one."""
    head, whole = final_head(lines)
    if status < 200:  # only interim responses
        head, status = b"", 0
    if error is None and not (whole and head):
        error, detail = "protocol", "the connection was closed inside the head"
    return status, head, error, detail

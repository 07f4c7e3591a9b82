"""Behind `fetch/contract.py`: pages are fetched by another transport, and rendered by a browser where that is needed.

To the loop a rendered page is one transfer: it ends when the browser is done with it, and holds its lease until then.
`RenderLink` is the connection to the browser process, shared by all crawls; `RenderingTransport` wraps a crawl's own
transport.

What must stay true: every submit ends in exactly one result, whatever becomes of the browsers; a page that could not be
rendered comes with what was fetched and with the reason; nothing is requested after `until`.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec
from msgspec import Struct

from weft.bodies import first_of
from weft.config import FetchSection
from weft.credentials import harmless
from weft.fetch.browser.messages import (
    LONGEST,
    NO_BROWSERS,
    BrowserReport,
    CancelRender,
    HostSettings,
    PartQuestion,
    PartVerdict,
    RenderedPage,
    RenderOptions,
    RenderOrder,
    ToHost,
    for_engine,
    packed,
)
from weft.fetch.contract import Done, Transport
from weft.fetch.decode import decode
from weft.fetch.dns.resolver import NameCounts
from weft.fetch.headers import Head
from weft.frames import frames
from weft.records import FetchResult, Rendered, RenderedPart

MARGIN_S = 4.0  # before `until`: the time in which the browser process reports that it was too late
LEAST_S = 3.0  # with less time than this left, no browser gets the page
ROBOTS_S = 5.0  # for the robots.txt of a part's host
LATE_S = 2.0  # before `until`: a result at the end of the lease would collide with the page's next attempt
UNKNOWN_PAGES = 8
MOST_TRIES = 3  # of a page whose browser died because of another page
_CHUNK = 1 << 20
CUT_OFF = "cut off"  # the outcome of a part that is unknown
NOT_ASKED = "its robots.txt could not be had in time"


class RenderJudge(Protocol):
    """The engine's rules for a page's parts."""

    def wants(self, tag: object, result: FetchResult) -> RenderOptions | None:
        """How a fetched page is to be rendered; None: not at all."""

    def refusal(self, tag: object, url: str, is_page: bool) -> str | None:
        """Why a part may not be requested, empty if it may; None: its origin's robots.txt must be fetched first."""

    def learn(self, tag: object, origin: str, result: FetchResult) -> None:
        """Records a requested robots.txt; afterwards `refusal` has an answer."""

    def storage(self, tag: object, url: str) -> dict[str, str] | None:
        """The session storage of the page's origin; None if it has no session."""

    def cookies(self, tag: object, url: str) -> list[tuple[str, str]]:
        """The cookies of the crawl's jar for the page."""


class Rendering(Struct):
    """A page that the browsers have."""

    order: RenderOrder
    result: FetchResult
    tag: object
    until: float
    on_done: Callable[[RenderedPage], None]
    on_question: Callable[[PartQuestion], None]
    tries: int = 1
    permitted: list[RenderedPart] = []  # parts that were not reported yet
    parts: list[RenderedPart] = []  # of earlier tries

    @property
    def made(self) -> list[RenderedPart]:
        """All known requests; one whose end was not reported may have lasted until now."""
        now = time.monotonic()
        unknown = (
            msgspec.structs.replace(part, ended=now) if part.outcome == CUT_OFF else part for part in self.permitted
        )
        return [*self.parts, *unknown]


class RenderLink:
    """The engine's end of the connection to the browser process."""

    def __init__(
        self, settings: HostSettings, *, capacity: Callable[[], int] | None = None, margin_s: float = MARGIN_S
    ) -> None:
        """`capacity`: how many pages can be rendered at a time, where the settings do not say it; `margin_s`: the time
        that browsers do not get of a page's."""
        self._settings = settings
        self._capacity = capacity
        self.margin_s = margin_s
        self._sock: socket.socket | None = None
        self._received = bytearray()
        self._unsent = bytearray()
        self._epoll = select.epoll()
        self._pages: dict[int, Rendering] = {}
        self._number = 0
        self.report = NO_BROWSERS
        self.reported_at = 0.0

    def connect(self, sock: socket.socket) -> None:
        """Connects to a new browser process, and sends it the pages to render."""
        self.disconnect()
        sock.setblocking(False)
        self._sock = sock
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        self._send(self._settings)
        for page in list(self._pages.values()):
            self._again(page)

    def disconnect(self) -> None:
        """The browser process has ended; its pages wait for the next one."""
        if self._sock is not None:
            with suppress(OSError):
                self._epoll.unregister(self._sock.fileno())
            self._sock.close()
            self._sock = None
        self._received.clear()
        self._unsent.clear()

    def fileno(self) -> int:
        """Readable when `poll` has something to do."""
        return self._epoll.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether `poll` must be called though nothing is readable."""
        return bool(self._unsent)

    @property
    def capacity(self) -> int:
        """How many pages can be rendered at a time."""
        own = self._settings.max_browsers * self._settings.pages_per_browser
        return own if self._capacity is None else self._capacity()

    def render(self, page: Rendering) -> int:
        """Sends a page to the browsers; returns its number."""
        self._number += 1
        page.order = msgspec.structs.replace(page.order, number=self._number)
        self._pages[self._number] = page
        self._send(page.order)
        return self._number

    def cancel(self, number: int) -> None:
        """Cancels a page whose result is no longer needed."""
        if self._pages.pop(number, None) is not None:
            self._send(CancelRender(number))

    def answer(self, question: PartQuestion, refused: str) -> None:
        """Answers whether a part may be requested. Permitted parts are recorded here: a browser that dies does not
        report them.
        """
        if not refused and (page := self._pages.get(question.number)) is not None:
            now = time.monotonic()
            page.permitted.append(RenderedPart(question.url, question.kind, CUT_OFF, now, now, True))
        self._send(PartVerdict(question.number, question.question, refused))

    def poll(self) -> None:
        """Sends and receives what can be."""
        self._flush()
        while self._sock is not None:
            try:
                data = self._sock.recv(_CHUNK)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.disconnect()
                break
            self._received += data
            for frame in frames(self._received, LONGEST):
                self._handle(for_engine(frame))

    def close(self) -> None:
        """Closes the connection, which ends the browser process."""
        self.disconnect()
        self._epoll.close()

    def _handle(self, message: RenderedPage | PartQuestion | BrowserReport) -> None:
        if isinstance(message, BrowserReport):
            self.report, self.reported_at = message, time.monotonic()
            return
        page = self._pages.get(message.number)
        if page is None:
            return  # it was cancelled, or belongs to an earlier attempt
        if isinstance(message, PartQuestion):
            page.on_question(message)
            return
        del self._pages[message.number]
        page.permitted = _parts_of(message)
        if message.uncounted and page.tries < MOST_TRIES:
            self._again(page)
        else:
            page.on_done(message)

    def _again(self, page: Rendering) -> None:
        """Retries, under a new number, a page that was not at fault; attempts are counted, so that they end."""
        self._pages.pop(page.order.number, None)
        left_s = page.until - time.monotonic() - self.margin_s
        page.tries += 1
        page.parts, page.permitted = page.made, []
        if page.tries > MOST_TRIES or left_s < LEAST_S:
            page.on_done(RenderedPage(page.order.number, error="browser", detail="its browser has died"))
            return
        page.order = msgspec.structs.replace(page.order, left_s=left_s, is_alone=page.tries == MOST_TRIES)
        self.render(page)

    def _send(self, message: ToHost) -> None:
        if self._sock is not None:  # otherwise `connect` sends it
            self._unsent += packed(message)
            self._flush()

    def _flush(self) -> None:
        while self._unsent and self._sock is not None:
            try:
                sent = self._sock.send(self._unsent[:_CHUNK])
            except BlockingIOError:
                return
            except OSError:
                self.disconnect()
                return
            del self._unsent[:sent]


class _RobotsTag:
    """The tag of a robots.txt for parts of pages, which may belong to several crawls."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.waiting: list[tuple[object, PartQuestion]] = []


class RenderingTransport:
    """A transport that renders pages if `RenderJudge.wants` demands it."""

    def __init__(self, inner: Transport, link: RenderLink, judge: RenderJudge, section: FetchSection) -> None:
        self._inner = inner
        self._link = link
        self._judge = judge
        self._section = section
        self._until: dict[object, float] = {}  # of pages that are being fetched
        self._fetched = self._given = 0  # pages, and those of them that a browser has rendered
        self._rendering: dict[object, Rendering] = {}
        self._robots: dict[str, _RobotsTag] = {}
        self._done: Done = []
        self._late: deque[object] = deque()
        self._epoll = select.epoll()
        self._epoll.register(inner.fileno(), select.EPOLLIN)
        self._epoll.register(link.fileno(), select.EPOLLIN)

    @property
    def free(self) -> int:
        """Transfers that may be submitted now: none while the browsers have enough work for a while. Pages being
        fetched count by the share of pages that a browser has had so far.
        """
        share = 1.0 if self._section.render == "always" else (self._given + 1) / (self._fetched + UNKNOWN_PAGES)
        coming = len(self._rendering) + int(share * len(self._until))
        return max(0, min(self._inner.free, 4 * self._link.capacity - coming))

    @property
    def in_flight(self) -> int:
        """Transfers that are started and not ended."""
        return self._inner.in_flight - len(self._robots) + len(self._rendering) + len(self._done)

    @property
    def lookups(self) -> NameCounts:
        """The counts of the inner transport."""
        return self._inner.lookups

    def submit(
        self,
        url: str,
        headers: Sequence[tuple[str, str]],
        tag: object,
        *,
        keep_bytes: int = 0,
        until: float = float("inf"),
        address: str | None = None,
        filtered: bool = False,
        is_first: bool = False,
        body: bytes | None = None,
        method: str = "",
        timeout_s: float = 0.0,
    ) -> None:
        """Starts one transfer; a page (`filtered`) that was requested with GET may be rendered after it."""
        if filtered and not method:
            self._until[tag] = until
        self._inner.submit(
            url, headers, tag, keep_bytes=keep_bytes, until=until, address=address, filtered=filtered,
            is_first=is_first, body=body, method=method, timeout_s=timeout_s,
        )  # fmt: skip

    def address_of(self, host: str) -> str | None:
        """The address from the inner transport."""
        return self._inner.address_of(host)

    def poll(self, timeout_s: float) -> Done:
        """Works until a transfer has ended or the time is over."""
        until = time.monotonic() + timeout_s
        while True:
            self._link.poll()
            for tag, result in self._inner.poll(0.0):
                self._ended(tag, result)
            self._end_late()
            left_s = until - time.monotonic()
            if self._done or left_s <= 0.0:
                done, self._done = self._done, []
                return done
            soon_s = self.timeout_s()
            self._epoll.poll(left_s if soon_s is None else min(left_s, max(0.0, soon_s)))

    def abort(self, tag: object) -> None:
        """Ends the transfers with this tag at once."""
        self._inner.abort(tag)
        if (page := self._rendering.pop(tag, None)) is not None:
            self._link.cancel(page.order.number)
            rendered = Rendered(error="cancelled", parts=tuple(page.made))
            self._done.append((tag, msgspec.structs.replace(page.result, error="aborted", rendered=rendered)))

    def fileno(self) -> int:
        """Readable when `poll` has something to do."""
        return self._epoll.fileno()

    def timeout_s(self) -> float | None:
        """In how many seconds `poll` must be called even if nothing arrives."""
        soon = [left for left in (self._inner.timeout_s(),) if left is not None]
        if self._done:
            soon.append(0.0)
        if self._rendering:
            soon.append(0.5)
        if self._link.has_unsent:
            soon.append(0.01)
        return min(soon, default=None)

    def close(self) -> None:
        """Drops all transfers in flight."""
        for tag in list(self._rendering):
            self.abort(tag)
        self._epoll.close()
        self._inner.close()

    def _ended(self, tag: object, result: FetchResult) -> None:
        if isinstance(tag, _RobotsTag):
            self._robots_came(tag, result)
            return
        until = self._until.pop(tag, None)
        self._fetched += until is not None
        options = None
        if until is not None and result.error is None and 200 <= result.status < 300:
            options = self._judge.wants(tag, result)
        if options is None or until is None:
            self._done.append((tag, result))
            return
        left_s = until - time.monotonic() - self._link.margin_s
        if left_s < LEAST_S:
            self._finish(tag, result, Rendered(error="timeout", detail="no time was left for it"))
            return
        page = Rendering(
            self._order(tag, result, options, left_s), result, tag, until,
            lambda message: self._rendered(tag, message), lambda question: self._asked(tag, question),
        )  # fmt: skip
        self._given += 1
        self._rendering[tag] = page
        self._link.render(page)

    def _order(self, tag: object, result: FetchResult, options: RenderOptions, left_s: float) -> RenderOrder:
        section, head = self._section, Head(result.head)
        limit = section.max_body_bytes
        body = first_of(result.body, limit)
        if encoding := head.content_encoding:
            body = decode(body, encoding, limit).body
        return RenderOrder(
            0, result.url, result.status, list(head.items()), body, section.user_agent(), left_s, options,
            page_s=section.total_timeout_s,
            allow_private=section.allow_private, loopback_only=not section.email, tls_verify=section.tls_verify,
            resolve=dict(section.resolve), cookies=self._judge.cookies(tag, result.url),
            storage=self._judge.storage(tag, result.url),
            part_headers=harmless(section.headers),
            max_bytes=limit,
        )  # fmt: skip

    def _rendered(self, tag: object, message: RenderedPage) -> None:
        page = self._rendering.pop(tag, None)
        if page is None:
            return
        result = page.result
        if message.error == "busy":  # the page is not at fault: it is requested again when there is room
            result = msgspec.structs.replace(result, error="aborted")
        self._finish(tag, result, _as_record(message, page.made))

    def _finish(self, tag: object, result: FetchResult, rendered: Rendered) -> None:
        self._done.append((tag, msgspec.structs.replace(result, rendered=rendered)))

    def _end_late(self) -> None:
        """Ends overdue pages: a browser process that does not answer holds no page beyond its time."""
        now = time.monotonic()
        for tag in [tag for tag, page in self._rendering.items() if now > page.until - LATE_S]:
            page = self._rendering.pop(tag)
            self._link.cancel(page.order.number)
            late = RenderedPage(page.order.number, error="timeout", detail="no browser has answered")
            self._finish(tag, page.result, _as_record(late, page.made))

    # ── parts ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _asked(self, tag: object, question: PartQuestion) -> None:
        refused = self._judge.refusal(tag, question.url, question.is_page)
        if refused is not None:
            self._link.answer(question, refused)
            return
        origin = _origin(question.url)
        asking = self._robots.get(origin)
        if asking is None:
            asking = self._robots[origin] = _RobotsTag(origin)
            self._inner.submit(
                f"{origin}/robots.txt", (), asking, keep_bytes=512 * 1024 + 1, until=time.monotonic() + ROBOTS_S
            )
        asking.waiting.append((tag, question))

    def _robots_came(self, asking: _RobotsTag, result: FetchResult) -> None:
        del self._robots[asking.origin]
        for tag, question in asking.waiting:
            refused = self._judge.refusal(tag, question.url, question.is_page)
            if refused is None:  # its crawl has no answer yet
                self._judge.learn(tag, asking.origin, result)
                refused = self._judge.refusal(tag, question.url, question.is_page)
            self._link.answer(question, NOT_ASKED if refused is None else refused)


def _parts_of(message: RenderedPage) -> list[RenderedPart]:
    now = time.monotonic()
    return [
        RenderedPart(one.url, one.kind, one.outcome, now - one.began_ago_s, now - one.ended_ago_s, one.was_sent)
        for one in message.parts
    ]


def _as_record(message: RenderedPage, parts: Sequence[RenderedPart]) -> Rendered:
    return Rendered(
        message.error, message.detail, message.url, message.html, message.title, message.screenshot,
        tuple(message.pictures), message.pdf, tuple(parts), tuple(message.leads_to), tuple(message.console_errors),
        tuple(message.cookies), message.storage, message.spent_s,
        max((part.ended for part in parts if part.was_sent), default=0.0),
    )  # fmt: skip


def _origin(url: str) -> str:
    return url[: url.index("/", 8)] if "/" in url[8:] else url

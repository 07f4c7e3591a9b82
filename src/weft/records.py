"""The records that pass between rooms: frozen, slotted, plain values only.

They are msgspec structs: made in a fifth of the time of a frozen dataclass, which counts at a thousand pages a second.

A URL's item is its entry in the frontier: admitted once, numbered once (`item`), ended once. The number is unique in a
crawl's data (the pod is in its top bits), names the item's one row in the index, and stands for it as a parent.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from weft.bodies import Body

POD_SHIFT = 48  # an item's number holds its pod above this bit


TOO_MANY_REDIRECTS = "too_many_redirects"  # the error of a row whose redirects go in a circle, or on for too long


class Purpose(StrEnum):
    """The purpose of a request."""

    PAGE = "page"
    ROBOTS = "robots"
    SITEMAP = "sitemap"
    LOGIN = "login"  # a step of a login: its form, the sent form, the redirect target


class Reason(StrEnum):
    """Why a URL was refused, or an item ended without a page. Every refusal is counted under one of these."""

    SCOPE = "scope"
    ROBOTS = "robots"
    ROBOTS_UNREACHABLE = "robots-unreachable"
    BUDGET = "budget"
    DUPLICATE = "duplicate"
    EXTENSION = "extension"
    LENGTH = "length"
    SYNTAX = "syntax"
    SCHEME = "scheme"
    TRAP = "trap"
    BREAKER = "breaker"
    RETRY_AFTER = "retry-after"
    ADDRESS = "address"
    DEPTH = "depth"
    PATTERN = "pattern"
    EXCLUDED = "excluded"
    CONTENT_TYPE = "content-type"
    UNKNOWN_OUTCOME = "unknown_outcome"  # it may have been sent, and the answer is not known: not sent again
    LOST_REQUEST = "lost-request"  # the stored request cannot be read any more


class Found(Struct, frozen=True, gc=False):
    """A URL to be admitted to the frontier."""

    url: str
    depth: int
    parent: int = 0
    hops: int = 0
    purpose: Purpose = Purpose.PAGE
    about: str = ""  # robots and sitemaps: the origin that it is for; a redirect's target: the URLs that led to it
    offsite: int = 0  # hops made outside the scope
    priority: int = 0  # the higher ones of a site come first, whatever their depth
    key: str = ""  # its key, if that is not its URL: two requests of one URL may differ; contains no space
    request: bytes = b""  # what is to be sent beyond a GET of the URL, and for whom: kept until the item has ended


class Lease(Struct, frozen=True, gc=False):
    """A URL that holds one of its site's slots, until `cool`, `finish`, `release` or the deadline."""

    item: int
    crawl: int
    url: str
    key: str
    depth: int
    parent: int
    hops: int
    purpose: Purpose
    about: str
    offsite: int
    attempt: int
    owner: str
    epoch: int
    deadline: float
    delay_s: float
    request: bytes = b""  # as it was admitted with


class HandRoute(Struct, frozen=True, gc=False):
    """A worker on another machine that must make a request: it may be under way for `lasts_s` even if this process
    dies, and its lease lasts for `lease_s`.
    """

    hand: str
    lasts_s: float
    lease_s: float


class RenderedPart(Struct, frozen=True, array_like=True):
    """A request that a page made in a browser, or was refused."""

    url: str
    kind: str
    outcome: str  # a status, an error, or why it was refused
    began: float  # monotonic, as in `FetchResult`
    ended: float
    was_sent: bool


class Rendered(Struct, frozen=True):
    """A browser's rendering of a page. With an `error` there is no page; its parts were requested all the same."""

    error: str = ""  # timeout, crash, too_large, action, browser
    detail: str = ""
    url: str = ""  # the URL of the page at its end
    html: bytes = b""  # UTF-8
    title: str = ""
    screenshot: bytes = b""  # PNG
    pictures: tuple[bytes, ...] = ()  # of actions
    pdf: bytes = b""
    parts: tuple[RenderedPart, ...] = ()
    leads_to: tuple[str, ...] = ()  # targets of the page's scripts on other sites
    console_errors: tuple[str, ...] = ()
    cookies: tuple[str, ...] = ()  # of the page's host, at the end, as Set-Cookie has them
    storage: dict[str, str] = {}  # the session storage of the page's origin, if it has a session
    spent_s: float = 0.0
    ended: float = 0.0  # monotonic: the last request's end


class FetchResult(Struct, frozen=True, gc=False):
    """The result of one transfer. `body` is as received, with its content codings; `head` is the final response's."""

    url: str
    status: int  # 0: there was no response
    head: bytes
    body: Body
    error: str | None  # a kind to count by: timeout, connect, dns, tls, reset, stale, too_large, protocol, ...
    detail: str
    started: float  # monotonic, of the clock that the delays are kept by
    ended: float
    ip: str
    request_head: bytes
    surplus: bool = False  # more bytes arrived than its Content-Length announced, so the body is incomplete
    rendered: Rendered | None = None  # the rendering, if a browser had it
    was_sent: bool = True  # whether the request may have reached the site

    @property
    def site_free_at(self) -> float:
        """When the last request that it has caused was over: the site's delay counts from there."""
        return self.ended if self.rendered is None else max(self.ended, self.rendered.ended)


# Errors of transfers that may succeed another time. Bad certificates and sizes would fail in the same way again.
RETRYABLE = frozenset({"timeout", "connect", "dns", "reset", "truncated", "protocol", "proxy", "hand", "other"})
# Beginnings of a row's error after which a later visit may succeed.
MAY_SUCCEED = RETRYABLE | {Reason.ROBOTS_UNREACHABLE, Reason.BREAKER, Reason.RETRY_AFTER}
BROKEN_OFF = frozenset({"truncated", "protocol", "reset", "timeout", "wrong_length"})  # the response is incomplete


class Row(Struct, frozen=True, gc=False):
    """One ended item in the index: the names are those of the exports (docs/export.md)."""

    item: int
    crawl: int
    url: str
    final_url: str
    status: int
    fetched_at: float
    content_type: str
    charset: str
    language: str
    title: str
    depth: int
    parent: int
    digest: str
    length: int
    error: str
    hops: int = 0
    warc_file: str = ""
    warc_offset: int = 0
    warc_length: int = 0
    fields: str = ""  # what rules have read: JSON, {"fields": {...}, "field_errors": {...}}; empty without rules
    rendered: int = 0  # bytes of the records behind the response's: the browser's rendering
    request: str = ""  # method and SHA-256 of the body, with a space between; empty: a GET without a body

    @property
    def method(self) -> str:
        """How it was asked for."""
        return self.request.partition(" ")[0] or "GET"

    @property
    def request_digest(self) -> str:
        """The SHA-256 of the request's body; empty where it had none."""
        return self.request.partition(" ")[2]

    @property
    def is_whole(self) -> bool:
        """Whether the response is complete."""
        return self.error not in BROKEN_OFF


class RowOutput(Struct, frozen=True, gc=False):
    """The output of a user's code for a page: the number of items, and all of it as JSON (engine/user_code/outputs.py).
    It is stored with the page's row.
    """

    count: int
    data: bytes


class PastVisit(Struct, frozen=True, gc=False):
    """The result of an earlier visit of a URL: its content's digest, and its validators."""

    url: str
    digest: str  # of the body as received; empty: there was no page
    at: float  # wall clock
    etag: str = ""
    last_modified: str = ""


class PanelTable(Struct, frozen=True):
    """What a room shows of itself on the dashboard: a few rows, and a note where there is something to say."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    note: str = ""

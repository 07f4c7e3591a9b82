"""What the engine and the browser process send each other: msgpack frames over a Unix socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from weft.frames import framed

LONGEST = 256 << 20  # bytes of a frame: a page, its rendered form and a picture


class RenderOptions(Struct, frozen=True, omit_defaults=True):
    """How a page is rendered. Plain data: it comes from settings, a task or a spider."""

    wait_for: str | float | None = None  # a CSS selector, or seconds
    settle_s: float = 0.5  # the page counts as loaded after this long without a request in flight
    longest_settle_s: float = 10.0
    scrolls: int = 0  # how often to scroll to the end while the page grows
    actions: tuple[dict[str, Any], ...] = ()
    screenshot: str = ""  # viewport, full, or css:SELECTOR for that element
    pdf: bool = False
    mobile: bool = False
    width: int = 1280
    height: int = 800
    blocked: tuple[str, ...] = ("media", "font", "tracker")  # kinds of parts that are not loaded
    allow_scripts: bool = False  # whether actions may run JavaScript of the caller


class RenderOrder(Struct, frozen=True, tag="render"):
    """A page to be rendered, as it was fetched."""

    number: int
    url: str
    status: int
    headers: list[tuple[str, str]]
    body: bytes  # decoded
    user_agent: str
    left_s: float  # until it must be over, the wait for a browser included
    options: RenderOptions
    page_s: float = 60.0  # in a browser, at most
    is_alone: bool = False  # no other page beside it: one of those in its last browser has killed that
    allow_private: bool = False
    loopback_only: bool = False
    tls_verify: bool = True
    resolve: dict[str, str] = {}
    cookies: list[tuple[str, str]] = []  # of the page's host
    storage: dict[str, str] | None = None  # the session storage of its origin; None: it has no session
    part_headers: dict[str, str] = {}  # sent with parts, too: harmless ones
    max_bytes: int = 10 << 20  # of the rendered page; all of its parts may have ten times as much


class CancelRender(Struct, frozen=True, tag="cancel"):
    """The result of this page is no longer needed."""

    number: int


class PartVerdict(Struct, frozen=True, tag="verdict"):
    """Whether a part may be requested."""

    number: int
    question: int
    refused: str = ""  # the reason; empty: it may


class PartQuestion(Struct, frozen=True, tag="ask"):
    """A page wants to request a part; `is_page`: its frame wants to navigate there."""

    number: int
    question: int
    url: str
    kind: str
    is_page: bool


class PartAge(Struct, frozen=True, array_like=True):
    """A request that a page made, or was refused. Times are seconds before this message: clocks of two processes are
    not compared.
    """

    url: str
    kind: str
    outcome: str  # a status, an error, or the reason of the refusal
    began_ago_s: float
    ended_ago_s: float
    was_sent: bool


class RenderedPage(Struct, frozen=True, tag="rendered"):
    """The result of an order. With an `error` there is no page; its parts were requested all the same."""

    number: int
    error: str = ""  # timeout, crash, too_large, browser, cancelled; busy: no browser had room for it in time
    detail: str = ""
    url: str = ""  # the URL of the page at its end
    html: bytes = b""
    title: str = ""
    screenshot: bytes = b""
    pictures: list[bytes] = []  # of actions
    pdf: bytes = b""
    parts: list[PartAge] = []
    leads_to: list[str] = []  # targets of the page's frame on other sites
    console_errors: list[str] = []
    cookies: list[str] = []  # of the page's host, at the end, as Set-Cookie has them
    storage: dict[str, str] = {}  # the session storage of the page's origin, if it has a session
    spent_s: float = 0.0
    uncounted: bool = False  # it failed because of another page in its browser: retry it without counting this attempt


class BrowserReport(Struct, frozen=True, tag="report"):
    """The state of the browsers, twice a second."""

    browsers: int
    pages: int
    memory_bytes: int
    rendered: int
    recycled: int
    deaths: dict[str, int]  # by cause
    unusable: str = ""  # why no browser can be started
    working: bool = True  # whether pages make progress, or there are none
    refused: dict[str, int] = {}  # requests and connections that no permission explains, or the guard forbids, by cause


NO_BROWSERS = BrowserReport(0, 0, 0, 0, 0, {})


class HostSettings(Struct, frozen=True, tag="settings"):
    """The first message to the browser process."""

    executable: str
    folder: str  # for profiles; emptied at the start
    max_browsers: int = 2
    pages_per_browser: int = 4
    recycle_pages: int = 50
    recycle_bytes: int = 500 << 20  # above the memory of an idle browser
    idle_s: float = 60.0  # after which an idle browser is ended
    sandbox: bool = True
    parts_in_flight: int = 6  # per host and page
    most_parts: int = 200
    dns_servers: tuple[str, ...] = ()


ToHost = RenderOrder | CancelRender | PartVerdict | HostSettings
ToEngine = RenderedPage | PartQuestion | BrowserReport
_encode = msgspec.msgpack.Encoder().encode
_to_host: Callable[[bytes], ToHost] = msgspec.msgpack.Decoder(ToHost).decode
_to_engine: Callable[[bytes], ToEngine] = msgspec.msgpack.Decoder(ToEngine).decode


def packed(message: ToHost | ToEngine) -> bytes:
    """An encoded message."""
    return framed(_encode(message))


def for_host(body: bytes) -> ToHost:
    """Decodes a message to the browser process."""
    return _to_host(body)


def for_engine(body: bytes) -> ToEngine:
    """Decodes a message to the engine."""
    return _to_engine(body)

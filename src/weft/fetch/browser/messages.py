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
    settle_s: float = 0.5  # nothing in flight for so long: the page is there
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
    is_alone: bool = False  # no other page beside it: one of those that its last browser had has killed that
    allow_private: bool = False
    loopback_only: bool = False
    tls_verify: bool = True
    resolve: dict[str, str] = {}
    cookies: list[tuple[str, str]] = []  # of the page's host
    storage: dict[str, str] | None = None  # what its origin has kept for a session; None: it is in none
    part_headers: dict[str, str] = {}  # sent with parts, too: harmless ones
    max_bytes: int = 10 << 20  # of the rendered page, and of all its parts times ten


class CancelRender(Struct, frozen=True, tag="cancel"):
    """Nobody waits for this page any more."""

    number: int


class PartVerdict(Struct, frozen=True, tag="verdict"):
    """Whether a part may be requested."""

    number: int
    question: int
    refused: str = ""  # why not; empty: it may


class PartQuestion(Struct, frozen=True, tag="ask"):
    """A page wants a part; `is_page`: its frame wants to go there."""

    number: int
    question: int
    url: str
    kind: str
    is_page: bool


class PartAge(Struct, frozen=True, array_like=True):
    """A request that a page made, or was refused. Times are seconds before this message: clocks are not compared."""

    url: str
    kind: str
    outcome: str  # a status, an error, or why it was refused
    began_ago_s: float
    ended_ago_s: float
    was_sent: bool


class RenderedPage(Struct, frozen=True, tag="rendered"):
    """What became of an order. With an `error` there is no page; its parts were requested all the same."""

    number: int
    error: str = ""  # timeout, crash, too_large, browser, cancelled; busy: no browser had room for it in time
    detail: str = ""
    url: str = ""  # where the page was at its end
    html: bytes = b""
    title: str = ""
    screenshot: bytes = b""
    pictures: list[bytes] = []  # of actions
    pdf: bytes = b""
    parts: list[PartAge] = []
    leads_to: list[str] = []  # where the page's frame wanted to go, which is another site
    console_errors: list[str] = []
    cookies: list[str] = []  # of the page's host, at the end, as Set-Cookie has them
    storage: dict[str, str] = {}  # what the page's origin keeps, where it is in a session
    spent_s: float = 0.0
    uncounted: bool = False  # it failed because of another page in its browser: try it again, as if it never was


class BrowserReport(Struct, frozen=True, tag="report"):
    """How the browsers are, twice a second."""

    browsers: int
    pages: int
    memory_bytes: int
    rendered: int
    recycled: int
    deaths: dict[str, int]  # by cause
    unusable: str = ""  # why no browser can be started
    working: bool = True  # whether pages make progress, or there are none


NO_BROWSERS = BrowserReport(0, 0, 0, 0, 0, {})


class HostSettings(Struct, frozen=True, tag="settings"):
    """The first message to the browser process."""

    executable: str
    folder: str  # for profiles; emptied at the start
    max_browsers: int = 2
    pages_per_browser: int = 4
    recycle_pages: int = 50
    recycle_bytes: int = 500 << 20  # above what an idle browser takes
    idle_s: float = 60.0  # after which a browser that does nothing is ended
    sandbox: bool = True
    parts_in_flight: int = 6  # to one host, of one page
    most_parts: int = 200
    dns_servers: tuple[str, ...] = ()


ToHost = RenderOrder | CancelRender | PartVerdict | HostSettings
ToEngine = RenderedPage | PartQuestion | BrowserReport
_encode = msgspec.msgpack.Encoder().encode
_to_host: Callable[[bytes], ToHost] = msgspec.msgpack.Decoder(ToHost).decode
_to_engine: Callable[[bytes], ToEngine] = msgspec.msgpack.Decoder(ToEngine).decode


def packed(message: ToHost | ToEngine) -> bytes:
    """A message as it is sent."""
    return framed(_encode(message))


def for_host(body: bytes) -> ToHost:
    """A message that the browser process has received."""
    return _to_host(body)


def for_engine(body: bytes) -> ToEngine:
    """A message that the engine has received."""
    return _to_engine(body)

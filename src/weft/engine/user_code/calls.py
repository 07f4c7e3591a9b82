"""The messages between the engine and the user's code in a parser child: calls and their results. Plain values only.

`Code` names the code, and the function that makes a `Runner` of it in the child: the engine never imports it. A `Call`
goes along with a page that is to be read; its `CallResult` comes back with what was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

if TYPE_CHECKING:  # imports the HTML parser: reports use these classes without pages
    from weft.extract.page import ParsedPage

PAGE, FAILURE, START, CLOSED, ITEMS = "page", "failure", "start", "closed", "items"
STATE = "spider_state"  # the note of a frontier that holds the spider's state
MAX_OUTPUT_BYTES = 16 << 20  # items and requests of one page
DEFAULT_CALLBACK = "parse"


class Code(Struct, frozen=True):
    """Where a user's code is, and how to run it."""

    maker: str  # `module:function` of Weft, imported in the child; called with this object, it returns a Runner
    source: str  # a file or a module
    name: str = ""  # the class, or the function; empty: the only spider of the file
    is_function: bool = False
    arguments: dict[str, str] = {}  # constructor arguments of a Scrapy spider
    settings: dict[str, str] = {}  # Scrapy's settings


class Loading(Struct, frozen=True):
    """The first message to a child: its code, and the spider's saved state as JSON."""

    code: Code
    state: bytes = b""


class RequestSpec(Struct, array_like=True, frozen=True, gc=False):
    """The parts of a request beyond its URL; kept with the queued item until it has ended."""

    callback: str = ""
    method: str = "GET"
    body: bytes | None = None
    headers: dict[str, str] = {}
    meta: bytes = b""  # MessagePack
    parent: str = ""  # the URL of the page that yielded it
    idempotent: bool = True
    render: str = ""  # whether a browser renders it: never, auto or always; empty: as the crawl's setting
    actions: tuple[dict[str, Any], ...] = ()  # performed in the browser first
    errback: str = ""  # the method that is called after a failure; empty: the spider's hook for all failures
    redirects: bool = True  # followed; if not, an answer that redirects is a failure
    offsite: bool = False  # it may go beyond the domains that the spider allows
    jar: str = ""  # the name of its cookie jar; empty: that of the crawl
    cookies: tuple[str, ...] = ()  # added to the jar before it is sent, each as a Set-Cookie value
    timeout_s: float = 0.0  # for the whole transfer; 0: as the crawl's setting

    @property
    def is_plain(self) -> bool:
        """Whether it is a GET of its URL without options, and so the same as a link."""
        return self.method == "GET" and self.body is None


class MadeRequest(Struct, array_like=True, frozen=True, gc=False):
    """A request that the code has yielded."""

    url: str
    spec: RequestSpec
    priority: int = 0
    unique: bool = True
    is_link: bool = False  # a link of the page, limited by scope; if not, the code has chosen it


class Call(Struct, array_like=True, gc=False):
    """A call of the user's code. `spec` is that of the page's request."""

    kind: str
    spec: RequestSpec = RequestSpec()
    url: str = ""
    redirected: tuple[str, ...] = ()  # the URLs that led here by redirects, in order
    status: int = 0
    head: bytes = b""
    depth: int = 0
    fetched_at: float = 0.0
    error: str = ""  # of a failure: its error in the row
    detail: str = ""
    skip: int = 0  # of START: how many requests were read before
    most: int = 0  # ... and how many are wanted
    reason: str = ""  # of CLOSED
    items: list[bytes] = []  # of ITEMS: the committed ones, in the form of `CallResult.objects`
    address: str = ""  # of the server
    is_rendered: bool = False  # the page in the message was rendered by a browser
    original: bytes = b""  # ... and this is the original response
    screenshot: bytes = b""  # PNG

    @property
    def requested_url(self) -> str:
        """The URL that was requested before redirects."""
        return self.redirected[0] if self.redirected else self.url


class ProcessedItem(Struct, array_like=True, gc=False):
    """An item after the pipelines: the item, or why there is none."""

    item: bytes = b""  # JSON
    dropped: str = ""
    error: str = ""
    traceback: str = ""


class CallResult(Struct, array_like=True, gc=False):
    """The result of a call. With an `error`, the other fields are empty."""

    items: list[bytes] = []  # each as JSON
    requests: list[MadeRequest] = []
    error: str = ""
    traceback: str = ""
    printed: str = ""
    is_over: bool = False  # of START: there are no more; of ITEMS: the code has no pipeline
    state: bytes | None = None  # the spider's state as JSON, if it has changed
    objects: list[bytes] = []  # the items in the form that the code's pipelines need, if it has some
    processed: list[ProcessedItem] = []  # of ITEMS: the results for the first of them
    stop: str = ""  # why the code wants the crawl to end


class FeedSpec(Struct, frozen=True):
    """A file that a spider's items are written to."""

    path: str
    format: str  # jsonl, json or csv
    overwrite: bool | None = None  # None: only if the file belongs to this crawl alone
    fields: list[str] = []  # empty: all


class Description(Struct, frozen=True):
    """What the engine must know about the code before it runs."""

    title: str
    start_urls: list[str] = []
    has_start: bool = False  # it yields the first requests itself
    allowed_domains: list[str] = []
    settings: dict[str, object] = {}
    follows: bool = False  # links are followed within the scope, as in a crawl without code
    chooses_links: bool = False  # the code decides which links
    hears_failures: bool = False
    hears_end: bool = False
    callbacks: list[str] = []
    digest: str = ""  # of the source: says whether the code has changed
    has_pipelines: bool = False  # committed items go through them before they are written anywhere
    reads_requests: bool = False  # it is given the bodies of its requests back
    least_public_delay_s: float = 0.0  # where the delay is the code's own: to hosts that are not private by their name
    obeys_private_robots: bool = True  # else robots.txt forbids nothing on hosts that are private by their name
    feeds: list[FeedSpec] = []  # files that it wants its items in
    notes: list[str] = []  # what its user should know before it runs


class Runner(Protocol):
    """The user's code, loaded in a child."""

    def describe(self) -> Description:
        """Describes the code."""

    def restore(self, state: bytes) -> None:
        """Restores the spider's saved state."""

    def run(self, call: Call, page: ParsedPage | None, body: bytes) -> CallResult:
        """Calls the code; never raises."""


class PageOutput(Struct, omit_defaults=True):
    """What is stored of a page's callback beside the page's row, as JSON."""

    items: list[msgspec.Raw] = []
    objects: list[bytes] = []  # see `CallResult.objects`
    request: RequestSpec | None = None  # without its body, and without headers that may contain credentials
    error: str = ""
    traceback: str = ""


class Reextracted(Struct):
    """The result of calling the code again for failed pages."""

    pages: int = 0  # that have succeeded now
    items: int = 0
    requests: int = 0
    failed: dict[str, int] = {}  # by cause: these pages are unchanged
    first_failure: str = ""  # the URL and traceback of the first failure

    def fail(self, url: str, cause: str, traceback: str = "") -> None:
        """Counts another failed page."""
        self.failed[cause] = self.failed.get(cause, 0) + 1
        self.first_failure = self.first_failure or f"{url}\n{traceback}".strip()

    def add(self, other: Reextracted) -> None:
        """Adds the result of another pod's pass."""
        self.pages, self.items = self.pages + other.pages, self.items + other.items
        self.requests += other.requests
        for cause, count in other.failed.items():
            self.failed[cause] = self.failed.get(cause, 0) + count
        self.first_failure = self.first_failure or other.first_failure


encode_spec = msgspec.msgpack.Encoder().encode
decode_spec = msgspec.msgpack.Decoder(RequestSpec).decode
encode = msgspec.msgpack.Encoder().encode
decode_call = msgspec.msgpack.Decoder(Call).decode
decode_result = msgspec.msgpack.Decoder(CallResult).decode
decode_loading = msgspec.msgpack.Decoder(Loading).decode
encode_output = msgspec.json.Encoder().encode
decode_output = msgspec.json.Decoder(PageOutput).decode

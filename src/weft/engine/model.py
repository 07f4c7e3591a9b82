"""What an engine reports about its crawls: their states, snapshots and events. Plain values that the channel carries
unchanged.

    open ──► running ⇄ paused ──► ended(reason) ──► forgotten

A crawl is `open` until it has its first URL; one that is kept open for more seeds runs from the start. Each step is one
durable change with a number; so is each stored row. The numbers of a crawl grow by one, and are the cursors of readers.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field

from weft.errors import BadInput
from weft.records import Reason

LONGEST_NAME = 200
WAITING_FOR_SEEDS = "waiting for seeds"  # `CrawlSnapshot.waiting_for` of a crawl that is kept open and has nothing left
# These reasons are recorded with their cause, as in `breaker: HTTP 502` and `robots-unreachable: dns: no such name`.
CAUSED = frozenset({Reason.BREAKER, Reason.ROBOTS_UNREACHABLE})


class CrawlState(StrEnum):
    """The state of a crawl."""

    OPEN = "open"
    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"
    FORGOTTEN = "forgotten"  # being deleted: invisible to its users


class EndReason(StrEnum):
    """Why a crawl of an engine has ended; a loop with one crawl has `loop.stop.Stop`."""

    DONE = "done"  # nothing is left
    MAX_PAGES = "max_pages"
    MAX_DURATION = "max_duration"
    MAX_MEMORY = "max_memory"  # its URLs leave no memory for a page
    DEADLINE = "deadline"
    BUDGET = "budget"  # all that is left waits behind a limit per domain
    CANCELLED = "cancelled"
    FAILED = "failed"


class CrawlSnapshot(Struct, frozen=True, kw_only=True):
    """A consistent snapshot of one crawl. Times are of the wall clock."""

    name: str
    id: int  # never reused for another crawl of this engine
    state: CrawlState
    reason: EndReason | None = None
    number: int = 0  # of its last row or change of state
    pages: int = 0
    failed: int = 0
    refused: int = 0
    queued: int = 0
    in_flight: int = 0
    left: int = 0  # of a crawl that has ended: what was queued or in flight then
    set_aside: int = 0  # queued URLs that an edit has excluded: they come back when it is taken back
    requests: int = 0
    retries: int = 0
    need_javascript: int = 0  # pages that scripts must draw, whether they were rendered or not
    body_bytes: int = 0
    memory_bytes: int = 0  # with a limit: an upper bound of its memory now, see engine/crawls/memory.py
    rate: float = 0.0  # pages per second, recently
    weight: float = 1.0
    deadline: float | None = None
    opened_at: float = 0.0
    ended_at: float | None = None
    running_s: float = 0.0
    statuses: dict[str, int] = {}
    errors: dict[str, int] = {}  # failures by kind
    reasons: dict[str, int] = {}  # refusals by reason
    # URLs that have ended, each once, by status and kind of error: "200", "0 robots". Those whose rows are not
    # committed count as in flight, so that a kill never undoes a count.
    ends: dict[str, int] = {}
    waiting_for: str = ""  # why a running crawl requests nothing now: a short cause, empty while it works
    waiting_until: float | None = None  # wall clock: when it expects to request again, if known
    is_held: bool = False  # nothing is requested until `resume`, although its state is that of a running crawl
    pause_reason: str = ""  # why it has paused itself: a failed login
    self_paused_at: float = field(default=0.0, name="gave_up_at")  # when it has paused itself
    note: str = ""  # why the whole engine is blocked: a full disk, ...


class Blocked(Struct, frozen=True):
    """A host whose breaker is open: no request is sent until a time of the wall clock, then one."""

    site: str  # the host, with its port if that is not the default
    until: float


class BrowserStatus(Struct, frozen=True):
    """The state of an engine's browsers."""

    is_used: bool = False  # whether a crawl has needed them
    trouble: str = ""  # why no page can be rendered now
    sandbox: bool = True
    browsers: int = 0  # running now, as the other numbers are
    pages: int = 0
    memory_bytes: int = 0
    rendered: int = 0  # pages, since the engine started
    deaths: dict[str, int] = {}  # of browsers and pages, by cause


class CrawlEvent(Struct, frozen=True, kw_only=True):
    """One row or change of state; `progress`, which has no number, is a snapshot."""

    crawl: str
    kind: str  # state, page, redirect, failure, refusal, progress
    number: int = 0
    cursor: int = 0  # pass it as `after` to continue behind this event
    at: float = 0.0
    state: CrawlState | None = None
    reason: EndReason | None = None
    url: str = ""
    status: int = 0
    error: str = ""
    title: str = ""
    depth: int = 0
    length: int = 0
    standing: CrawlSnapshot | None = None


class Seeded(Struct, frozen=True):
    """The result of adding URLs to a crawl."""

    new: int
    known: int
    refused: dict[str, str]  # by URL, the first thousand


def end_kind(error: str) -> str:
    """The kind of error that an ended URL is counted under; if its site was given up, with the cause."""
    kind, _, detail = error.partition(": ")
    if kind in CAUSED and detail:
        cause = detail.partition(":")[0]
        return f"{kind}: {cause.partition(' at ')[0]}"
    return error.partition(":")[0]


def end_name(status: int, error: str) -> str:
    """The key that an ended URL is counted under in `CrawlSnapshot.ends`."""
    return f"{status} {end_kind(error)}".rstrip()


def check_name(name: object) -> str:
    """Checks a crawl's name: 1 to 200 printable characters, without slashes."""
    if not isinstance(name, str) or not name:
        raise BadInput(f"{name!r} is no name of a crawl: use a text of 1 to {LONGEST_NAME} characters")
    shown = repr(name[:40]) + ("..." if len(name) > 40 else "")
    if len(name) > LONGEST_NAME:
        raise BadInput(f"the name {shown} has {len(name)} characters: use {LONGEST_NAME} at most")
    if "/" in name or "\\" in name or not name.isprintable() or name in (".", ".."):
        raise BadInput(f"the name {shown} cannot be used: no slashes, no control characters, not '.' or '..'")
    return name

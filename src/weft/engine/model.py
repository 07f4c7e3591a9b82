"""What an engine says about its crawls: their states, their standings and their events. Plain values that go over the
channel as they are.

    open ──► running ⇄ paused ──► ended(reason) ──► forgotten

A crawl is `open` until it has its first URL; one that is kept open for more seeds runs from the start. Each step is one
durable change with a number; so is each stored row. The numbers of a crawl grow by one, and are the cursors of readers.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from weft.errors import BadInput
from weft.records import Reason

LONGEST_NAME = 200
WAITING_FOR_SEEDS = "waiting for seeds"  # `CrawlSnapshot.waiting_for` of a crawl with nothing left that is kept open
# Reasons that have a cause behind them, as in `breaker: HTTP 502` and `robots-unreachable: dns: no such name`.
CAUSED = frozenset({Reason.BREAKER, Reason.ROBOTS_UNREACHABLE})


class CrawlState(StrEnum):
    """Where a crawl is in its life."""

    OPEN = "open"
    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"
    FORGOTTEN = "forgotten"  # being deleted: gone for its users


class EndReason(StrEnum):
    """Why a crawl of an engine has ended; a loop with one crawl has `loop.stop.Stop`."""

    DONE = "done"  # nothing is left
    MAX_PAGES = "max_pages"
    MAX_DURATION = "max_duration"
    MAX_MEMORY = "max_memory"  # its URLs leave no room for a page
    DEADLINE = "deadline"
    BUDGET = "budget"  # what is left waits behind a limit for each domain
    CANCELLED = "cancelled"
    FAILED = "failed"


class CrawlSnapshot(Struct, frozen=True, kw_only=True):
    """One crawl at one moment: a consistent snapshot. Times are of the wall clock."""

    name: str
    id: int  # never used for another crawl of this engine
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
    memory_bytes: int = 0  # where it has a limit: what it takes at most now, see engine/crawls/memory.py
    rate: float = 0.0  # pages a second, lately
    weight: float = 1.0
    deadline: float | None = None
    opened_at: float = 0.0
    ended_at: float | None = None
    running_s: float = 0.0
    statuses: dict[str, int] = {}
    errors: dict[str, int] = {}  # failures by kind
    reasons: dict[str, int] = {}  # refusals by reason
    # URLs that have ended, each once, by status and kind of error: "200", "0 robots". Those whose rows are not
    # committed count as in flight, so that a kill never takes one back.
    ends: dict[str, int] = {}
    waiting_for: str = ""  # why a running crawl asks nothing now: a short cause, empty while it works
    waiting_until: float | None = None  # wall clock: when that is over, as far as known
    is_held: bool = False  # nothing of it is requested until `resume`, although its state is that of a crawl that runs
    pause_reason: str = ""  # why it is paused, where it has paused itself: a login that has failed
    gave_up_at: float = 0.0  # when that was
    note: str = ""  # why the engine as a whole stands still: a full disk, ...


class Blocked(Struct, frozen=True):
    """A host whose breaker is open: nothing is asked of it until a moment of the wall clock, then one request."""

    site: str  # the host, with its port where that is not the usual one
    until: float


class BrowserStatus(Struct, frozen=True):
    """The browsers of an engine."""

    is_used: bool = False  # whether a crawl has asked for them
    trouble: str = ""  # why no page can be rendered now
    sandbox: bool = True
    browsers: int = 0  # that run now, as the other numbers are
    pages: int = 0
    memory_bytes: int = 0
    rendered: int = 0  # pages, since the engine started
    deaths: dict[str, int] = {}  # of browsers and pages, by cause


class CrawlEvent(Struct, frozen=True, kw_only=True):
    """One row or change of state; `progress`, which has no number, is a standing."""

    crawl: str
    kind: str  # state, page, redirect, failure, refusal, progress
    number: int = 0
    cursor: int = 0  # give it as `after` to go on behind this event
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
    """What became of URLs that were given to a crawl."""

    new: int
    known: int
    refused: dict[str, str]  # by URL, the first thousand


def end_kind(error: str) -> str:
    """The kind of error that an ended URL is counted under; of a site that was given up with what was wrong with it."""
    kind, _, detail = error.partition(": ")
    if kind in CAUSED and detail:
        cause = detail.partition(":")[0]
        return f"{kind}: {cause.partition(' at ')[0]}"
    return error.partition(":")[0]


def end_name(status: int, error: str) -> str:
    """What an ended URL is counted under in `CrawlSnapshot.ends`."""
    return f"{status} {end_kind(error)}".rstrip()


def check_name(name: object) -> str:
    """A crawl's name: text of 1 to 200 characters that can be printed, without slashes."""
    if not isinstance(name, str) or not name:
        raise BadInput(f"{name!r} is no name of a crawl: use a text of 1 to {LONGEST_NAME} characters")
    shown = repr(name[:40]) + ("..." if len(name) > 40 else "")
    if len(name) > LONGEST_NAME:
        raise BadInput(f"the name {shown} has {len(name)} characters: use {LONGEST_NAME} at most")
    if "/" in name or "\\" in name or not name.isprintable() or name in (".", ".."):
        raise BadInput(f"the name {shown} cannot be used: no slashes, no control characters, not '.' or '..'")
    return name

"""The status of a crawl: counted by the engine, written to a small file that displays, `weft watch` and tests read.

The file is replaced as a whole, at most twice a second; reading it costs the crawl nothing. Pages, bytes, statuses and
errors are those of the store: a process reads them there when it starts (`restore`), and counts on from them.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from weft.engine.loop.fetcher.verdict import failure_of, refusal_of
from weft.engine.model import end_kind
from weft.frontier.contract import FrontierStats
from weft.records import Reason, Rendered, Row
from weft.store.contract import Stats
from weft.telemetry import Log

LOG_EVERY_S = 60.0
log = Log("weft.engine.loop.progress")
UNSTORED = frozenset(
    {"noindex", "too_large", Reason.CONTENT_TYPE}
)  # errors of responses that are counted, and not stored


class PodStatus(msgspec.Struct):
    """One pod among several."""

    pod: int
    pages: int = 0
    requests: int = 0
    rate: float = 0.0
    queued: int = 0
    in_flight: int = 0
    sites: int = 0
    errors: int = 0
    processes: int = 0
    restarts: int = 0
    state: str = "starting"


class CrawlStatus(msgspec.Struct):
    """The content of the status file. Times are of the wall clock; counts are of the whole crawl, over all its runs."""

    state: str = "starting"  # starting, running, draining, paused, finished, limit, interrupted, failed
    note: str = ""  # why it has ended (a Stop), or why it is blocked (the error, or what it waits for)
    waiting_for: str = ""  # why it requests nothing now although URLs are queued: a short cause, empty while it works
    waiting_until: float | None = None  # when it expects to request again, if known
    pid: int = 0
    orchestrator: int = 0  # the process that restarts the one of `pid`, if there are two
    run: str = ""  # names a run of the crawl, through all restarts of its processes
    started_at: float = 0.0
    updated_at: float = 0.0
    elapsed_s: float = 0.0
    pages: int = 0
    pages_at_start: int = 0
    live_pages: int | None = None  # URLs that have a page now: counted at the end of a run
    requests: int = 0
    body_bytes: int = 0
    items: int = 0  # that the user's code has made
    stop: str = ""  # why the user's code wants this run to end
    seeds: int = 0  # in large seed files, which are read while the crawl runs
    seeds_read: float = 1.0  # the share of those files that is read
    queued: int = 0
    in_flight: int = 0
    sites: int = 0
    seen: int = 0
    rate: float = 0.0
    statuses: dict[str, int] = {}
    errors: dict[str, int] = {}
    refused: dict[str, int] = {}
    slowed: dict[str, int] = {}  # answers that asked for fewer requests (429, 503), retried ones included
    matched: list[str] = []  # patterns that matched a URL: `include /blog/*`
    retries: int = 0
    redirects: int = 0
    shells: int = 0  # pages without readable text until their scripts run
    rendered: int = 0  # pages that a browser has rendered
    rendering_s: float = 0.0  # total time in browsers
    parts: int = 0  # requests for parts of those pages
    recent: list[str] = []
    poisoned: list[str] = []
    self_paused_at: float = msgspec.field(default=0.0, name="gave_up_at")  # when it paused itself; the note says why
    repairs: dict[str, int] = {}  # damage that this run found, and repaired, when it resumed the crawl
    # Of one process among several, for termination detection: counts that never decrease, except after a crash.
    idle: str = ""  # why it has nothing to do
    changes: int = 0  # of the crawl's folder, in this run, that the process has applied
    reported_at: float = 0.0  # when this was reported, by the machine's monotonic clock
    admitted: int = 0
    finished: int = 0
    sent: int = 0
    received: int = 0
    pods: list[PodStatus] = []  # of a crawl of several pods


class CrawlProgress:
    """Counts progress and writes the status file. `run`: a process that is restarted in the same run continues its
    counts.
    """

    def __init__(self, path: Path | None, pid: int, run: str = "", orchestrator: int = 0) -> None:
        """Without a path, progress is only counted."""
        self._path = path
        earlier = read_status(path) if path is not None else None
        self.status = earlier or CrawlStatus()
        self.is_new_run = not run or self.status.run != run
        self._began_at = time.time()
        self.status.pid = pid
        self.status.run = run
        self.status.orchestrator = orchestrator
        self.status.idle, self.status.self_paused_at = "", 0.0
        if self.is_new_run:
            self.status.started_at = self._began_at
            self.status.repairs, self.status.stop = {}, ""
        self.status.recent = []
        self.status.live_pages = None
        self.refused: Counter[str] = Counter(self.status.refused)
        self.errors: Counter[str] = Counter(self.status.errors)
        self.statuses: Counter[str] = Counter(self.status.statuses)
        self.kinds: Counter[tuple[int, str]] = Counter()  # rows by status and kind of error
        self.slowed: Counter[str] = Counter(self.status.slowed)
        self.matched = set(self.status.matched)
        self._earlier_s = self.status.elapsed_s
        self._rate_window: list[tuple[float, int]] = []
        self._lines = ProgressLines()

    def restore(self, held: Stats) -> None:
        """Starts from the counts of this process's store: what was counted and not committed is counted again."""
        status = self.status
        status.pages, status.body_bytes = held.pages, held.page_bytes
        if self.is_new_run:
            status.pages_at_start = held.pages
        self.statuses, self.errors = counts_of(held)
        self.kinds = Counter()
        for (status_, error), rows in held.kinds.items():
            self.kinds[status_, end_kind(error)] += rows
        for reason, count in _count_refusals(held).items():
            self.refused[reason] = max(self.refused[reason], count)

    def count_repair(self, what: str, count: int) -> None:
        """Counts what was repaired, or given up, at the resume of the crawl."""
        if count:
            self.status.repairs = self.status.repairs | {what: self.status.repairs.get(what, 0) + count}

    def count_rendered(self, rendered: Rendered) -> None:
        """Counts a rendered page; whether it is stored is known by its row."""
        self.status.rendered += not rendered.error
        self.status.rendering_s += rendered.spent_s
        self.status.parts += sum(part.was_sent for part in rendered.parts)

    def count_page(self, url: str, body_bytes: int) -> None:
        """Counts a stored page."""
        status = self.status
        status.pages += 1
        status.body_bytes += body_bytes
        if len(status.recent) < 8:
            status.recent.append(url)

    def uncount_row(self, row: Row) -> None:
        """Takes back the count of a row that is not stored after all."""
        self.statuses[str(row.status)] -= 1
        self.kinds[row.status, end_kind(row.error)] -= 1
        if failure := failure_of(row.status, row.error):
            self.errors[failure] -= 1
        if reason := refusal_of(row.status, row.error):
            self.refused[reason] -= 1
        if 200 <= row.status < 300 and row.error.partition(":")[0] not in UNSTORED:
            self.status.pages -= 1
            self.status.body_bytes -= row.length

    def note_frontier(self, stats: FrontierStats, in_flight: int) -> None:
        """Records the statistics of the pod's frontier, as this process has just read them."""
        status = self.status
        status.admitted, status.finished = stats.admitted, stats.finished
        status.sent, status.received = stats.sent, stats.received
        status.queued, status.sites, status.seen = stats.queued, stats.sites, stats.seen
        status.in_flight = in_flight

    def record_final_stats(self, stats: FrontierStats) -> None:
        """Records the final statistics: leases that were not finished count as queued again."""
        self.note_frontier(stats, 0)
        self.status.queued += stats.leased + stats.to_parse
        self.status.reported_at = time.monotonic()

    def write(self, state: str, note: str = "") -> None:
        """Replaces the status file."""
        status, now = self.status, time.time()
        status.state, status.note, status.updated_at = state, note, now
        if state != "running":
            status.waiting_for, status.waiting_until = "", None
        status.elapsed_s = self._earlier_s + now - self._began_at
        status.refused, status.errors, status.statuses = dict(self.refused), dict(self.errors), dict(self.statuses)
        status.slowed, status.matched = dict(self.slowed), sorted(self.matched)
        self._rate_window.append((now, status.pages))
        self._rate_window = self._rate_window[-20:]
        first_at, first_pages = self._rate_window[0]
        status.rate = (status.pages - first_pages) / (now - first_at) if now > first_at else 0.0
        if self._path is not None:
            write_status(self._path, status)
        status.recent = []
        self._lines(status)


class ProgressLines:
    """Writes a log line every minute: pages, pages per second since the last line, queue, errors."""

    def __init__(self, every_s: float = LOG_EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._last_line: tuple[float, int] | None = None

    def __call__(self, status: CrawlStatus) -> None:
        """Logs if a minute has passed; may be called at any rate."""
        now = self._clock()
        if self._last_line is None:
            self._last_line = (now, status.pages)
            return
        spent_s = now - self._last_line[0]
        if spent_s < self._every_s:
            return
        log.info(
            "progress",
            state=status.state,
            pages=status.pages,
            pages_per_s=round((status.pages - self._last_line[1]) / spent_s, 2),
            queued=status.queued,
            in_flight=status.in_flight,
            errors=sum(status.errors.values()),
            retries=status.retries,
            **_waiting_fields(status),
        )
        self._last_line = (now, status.pages)


def _waiting_fields(status: CrawlStatus) -> dict[str, str | float]:
    """What a crawl waits for, and for how many seconds; empty while it works."""
    if not status.waiting_for:
        return {}
    until = status.waiting_until
    seconds = {} if until is None else {"for_s": round(max(0.0, until - time.time()), 1)}
    return {"waiting_for": status.waiting_for} | seconds


def counts_of(held: Stats) -> tuple[Counter[str], Counter[str]]:
    """The rows of a store counted by status (0: no answer), and the failed ones by kind."""
    statuses: Counter[str] = Counter()
    for (status, _), rows in held.kinds.items():
        statuses[str(status)] += rows
    return statuses, failures_by_kind(held.kinds)


def failures_by_kind(kinds: Mapping[tuple[int, str], int]) -> Counter[str]:
    """Failed requests by kind, from rows by status and error."""
    errors: Counter[str] = Counter()
    for (status, error), rows in kinds.items():
        if failure := failure_of(status, error):
            errors[failure] += rows
    return errors


def _count_refusals(held: Stats) -> Counter[str]:
    reasons: Counter[str] = Counter()
    for (status, error), rows in held.kinds.items():
        if reason := refusal_of(status, error):
            reasons[reason] += rows
    return reasons


def write_status(path: Path, status: CrawlStatus) -> None:
    """Replaces the status file."""
    data, beside = msgspec.json.encode(status), path.with_suffix(".tmp")
    try:
        beside.unlink(missing_ok=True)
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        beside.replace(path)
    except OSError:
        # The disk may be full, which this file must report: the old content can be overwritten without new space.
        beside.unlink(missing_ok=True)
        _overwrite_file(path, data)


def _overwrite_file(path: Path, data: bytes) -> None:
    try:
        with path.open("r+b", buffering=0) as file:
            file.write(data)
            file.truncate(len(data))
    except OSError:
        pass  # the log has the error; this file is written again when there is room


def read_status(path: Path) -> CrawlStatus | None:
    """The file's content, or None if there is no readable file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=CrawlStatus)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None

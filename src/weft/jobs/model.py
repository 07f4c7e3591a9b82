"""Tasks: their specification, states, progress, and the classes of their errors. Plain frozen values, no I/O.

    PENDING ──► RUNNING ⇄ PAUSED ──► COMPLETED | PARTIAL | FAILED | CANCELLED
       └──────────────────────────────► FAILED (expired) | CANCELLED

Invariants: a state changes only in an atomic step of the store (`store/contract.py`), never back; a terminal state is
final; in every answer `discovered = completed + gone + failed + refused + queued + in_flight`.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from weft.engine.model import CAUSED
from weft.patterns import has_control, is_url_pattern
from weft.records import Reason
from weft.scraping import TERMINAL, ErrorClass, FinishReason, Scope, TaskState

MAX_PATTERNS_CHARS = 10_000  # The most characters of one list of patterns: the engine compiles it between two requests.
NO_PROXIES = "this service has none; leave the field out, or start it with `--proxies FILE`"


def problem_of_globs(patterns: Sequence[str]) -> str:
    """What is wrong with the globs in `include` or `exclude`; empty if nothing is."""
    if any(pattern.startswith("re:") or is_url_pattern(pattern) for pattern in patterns):
        return "regular expressions are not accepted: use globs, like /docs/*"
    if any(map(has_control, patterns)):
        return "globs have no control characters"
    if (together := sum(map(len, patterns))) > MAX_PATTERNS_CHARS:
        return f"globs have at most {MAX_PATTERNS_CHARS:,} characters together, these have {together:,}"
    return ""


LIVE = frozenset(TaskState) - TERMINAL
STARTED = frozenset({TaskState.RUNNING, TaskState.PAUSED})
FOR_SLOT = "slot"  # `waiting_for` of a task that could run
FOR_RESUME = "resume"  # `waiting_for` of a paused task
# state -> the states that may follow it
NEXT: Mapping[TaskState, frozenset[TaskState]] = {
    TaskState.PENDING: frozenset({TaskState.RUNNING, TaskState.FAILED, TaskState.CANCELLED}),
    TaskState.RUNNING: TERMINAL | {TaskState.PAUSED},
    TaskState.PAUSED: TERMINAL | {TaskState.RUNNING},
} | dict.fromkeys(TERMINAL, frozenset())


class Lane(StrEnum):
    """The group of slots that a task uses: each lane has its own limit."""

    TASK = "task"  # max_concurrent_tasks
    SCRAPE = "scrape"  # single pages and maps: max_concurrent_scrapes
    SITE = "site"  # sites with a schedule: max_concurrent_sites


class UrlOutcome(StrEnum):
    """The outcome of one URL of a task. A redirect has none: its target is counted instead."""

    COMPLETED = "completed"
    GONE = "gone"  # 404, 410
    FAILED = "failed"
    REFUSED = "refused"


GONE_STATUSES = frozenset({404, 410})
_REASONS = frozenset(map(str, Reason))
_CLASS_BY_ERROR: Mapping[str, ErrorClass] = {
    "timeout": ErrorClass.TIMEOUT,
    "connect": ErrorClass.CONNECTION,
    "reset": ErrorClass.CONNECTION,
    "truncated": ErrorClass.CONNECTION,
    "protocol": ErrorClass.CONNECTION,
    "wrong_length": ErrorClass.CONNECTION,
    "dns": ErrorClass.DNS,
    "tls": ErrorClass.TLS,
    "too_large": ErrorClass.TOO_LARGE,
    "parse_crash": ErrorClass.PARSE,
    "parse_timeout": ErrorClass.PARSE,
    "noindex": ErrorClass.ROBOTS,
    "http_4xx": ErrorClass.HTTP_4XX,
    "http_5xx": ErrorClass.HTTP_5XX,
    str(Reason.ROBOTS): ErrorClass.ROBOTS,
}
# Not fetched because of the site or one of our limits: the page is missing although the caller wanted it. The other
# reasons are decisions of the caller, the site's owner or the service's operator.
_LOSS_REASONS = frozenset({Reason.BREAKER, Reason.RETRY_AFTER, Reason.ROBOTS_UNREACHABLE, Reason.BUDGET})


def error_class(status: int, error: str) -> ErrorClass | None:
    """The class of an ended URL, from its row's status and error; None for a page and for a redirect."""
    kind = error.partition(":")[0]
    if not kind and status < 400:
        return None
    if kind.startswith("redirect to "):  # a redirect whose target was rejected
        return _CLASS_BY_ERROR.get(kind.removeprefix("redirect to "), ErrorClass.BLOCKED)
    if status >= 400 and kind in _REASONS | {""}:  # a 503 whose Retry-After is too long counts as a 503
        return _http_class(status)
    if kind in CAUSED:
        return _cause_class(error.partition(": ")[2])
    return _CLASS_BY_ERROR.get(kind) or (ErrorClass.BLOCKED if kind in _REASONS else ErrorClass.OTHER)


def _cause_class(cause: str) -> ErrorClass:
    """The class of what made a site unreachable: its robots.txt, or the failure that opened its breaker."""
    kind = cause.partition(":")[0]
    if kind.startswith("HTTP ") and kind[5:].isdecimal():
        return _http_class(int(kind[5:]))
    return _CLASS_BY_ERROR.get(kind, ErrorClass.BLOCKED)


def _http_class(status: int) -> ErrorClass:
    return ErrorClass.HTTP_5XX if status >= 500 else ErrorClass.HTTP_4XX


def error_text(status: int, error: str) -> str:
    """The error that is reported for a URL without a page; never empty."""
    return error or f"HTTP {status}"


def outcome(status: int, error: str) -> UrlOutcome | None:
    """How a row is counted; None for a redirect, because its target is counted."""
    what = error_class(status, error)
    if what is None:
        return None if 300 <= status < 400 and status != 304 else UrlOutcome.COMPLETED
    if status in GONE_STATUSES and not error:
        return UrlOutcome.GONE
    if not status and error.partition(":")[0] in _LOSS_REASONS:
        return UrlOutcome.FAILED
    return UrlOutcome.REFUSED if what in (ErrorClass.ROBOTS, ErrorClass.BLOCKED) else UrlOutcome.FAILED


class JobProgress(Struct, frozen=True, kw_only=True):
    """The progress of a task: one consistent snapshot. Redirects are not counted; their targets are."""

    completed: int = 0
    gone: int = 0
    failed: int = 0
    refused: int = 0
    robots_blocked: int = 0  # a subset of `refused`
    queued: int = 0  # at the end of the task: URLs that were left
    in_flight: int = 0
    need_javascript: int = 0  # of the completed: scripts must draw them, whether a browser had them or not

    @property
    def discovered(self) -> int:
        """Every known URL of the task."""
        return self.ended + self.queued + self.in_flight

    @property
    def ended(self) -> int:
        """URLs that have ended."""
        return self.completed + self.gone + self.failed + self.refused

    def counts(self, max_pages: int | None) -> dict[str, int | float]:
        """The counts as answers contain them, with their sum and the percentage."""
        own = {name: getattr(self, name) for name in self.__struct_fields__}
        return {"discovered": self.discovered, **own, "percent": self.percent(max_pages)}

    def within(self, max_pages: int | None) -> int:
        """How many URLs are to be fetched: the known ones, limited by the task's `max_pages`."""
        if max_pages is None:
            return self.discovered
        return max(self.ended, min(self.discovered, max_pages + self.ended - self.completed))

    def percent(self, max_pages: int | None) -> float:
        """The percentage of these that has ended; 0 while no URL is known."""
        whole = self.within(max_pages)
        return round(100 * self.ended / whole, 1) if whole else 0.0

    @property
    def success_rate(self) -> float | None:
        """The share of completed URLs among completed and failed ones; None if there are none."""
        judged = self.completed + self.failed
        return round(self.completed / judged, 4) if judged else None


class TaskSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a caller has submitted, validated by the route that received it. The URLs are stored separately
    (`SqliteJobStore.urls`)."""

    max_depth: int = 2  # links from a submitted URL; 0: only the submitted URLs
    timeout_s: float = 1800.0
    max_concurrent_articles: int = 10
    retry_attempts: int = 3
    partial_results_ok: bool = True
    export_format: str = "json"
    max_pages: int | None = None
    max_memory_bytes: int | None = None  # of its crawl, see engine/crawls/memory.py
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    scope: Scope = "domain"
    trap_rules: bool = True  # reject links that seem to be part of an endless space
    strip_query: tuple[str, ...] = ()  # query parameters to drop from URLs: globs
    delay_s: float | None = None  # between requests to one site; only if it is longer than the service's
    extract: dict[str, Any] = {}  # extraction rules, as submitted: see extract/rules/field_rules.py
    formats: tuple[str, ...] = ()
    format_options: dict[str, Any] = {}  # include_tags, exclude_tags, only_main_content, links
    webhook: dict[str, Any] | None = None
    render: str = ""  # never, auto, always; empty: the service's default
    render_options: dict[str, Any] = {}  # see scraping.RenderWishes
    workers: str = ""  # local, cluster, prefer-cluster; empty: what the service is set to
    proxies: bool = False  # all requests go through the service's proxies
    login: str = ""  # the name of one of the service's logins
    is_batch: bool = False  # fetch only the given URLs; more may be appended
    lane: Lane = Lane.TASK
    revisits: str = ""  # name of a site: its known pages are passed on, and unchanged ones are not read again
    kind: str = "scrape"  # the interface it was submitted over: for display only
    extra: dict[str, Any] = {}  # opaque data that this interface wants back


class Task(Struct, frozen=True, kw_only=True):
    """One task as the store has it. Times are wall clock."""

    id: str
    owner: str  # id of the API key; empty: submitted without keys
    url: str  # the first of its URLs
    url_count: int
    spec: TaskSpec
    state: TaskState = TaskState.PENDING
    finish_reason: FinishReason | None = None
    message: str = ""  # what went wrong, for people
    created_at: float
    started_at: float | None = None
    deadline_at: float | None = None  # started_at + timeout_s; None while PENDING
    finished_at: float | None = None
    # final in a terminal state; while the task runs the engine's progress is current
    progress: JobProgress = JobProgress()
    errors_by_class: dict[str, int] = {}
    last_number: int = 0  # of its last event, in a terminal state
    # Of a RUNNING or PAUSED task without a slot: FOR_RESUME, FOR_SLOT, or what the engine reports that it waits for,
    # and until when. Empty: the task holds a slot.
    waiting_for: str = ""
    waiting_until: float | None = None
    # the last time its crawl paused itself, as far as the task's state reflects it
    self_paused_at: float = field(default=0.0, name="gave_up_at")
    version: int = 1  # incremented by every step

    @property
    def is_terminal(self) -> bool:
        """Whether the state is final."""
        return self.state.is_terminal

    @property
    def holds_slot(self) -> bool:
        """Whether it occupies a slot of its lane."""
        return self.state in STARTED and not self.waiting_for

    def duration_s(self, now: float) -> float:
        """How long it has run so far; 0 while PENDING."""
        return 0.0 if self.started_at is None else max(0.0, (self.finished_at or now) - self.started_at)

    def remaining_s(self, now: float) -> float | None:
        """The time until its deadline; None before its start and after its end."""
        return None if self.deadline_at is None or self.is_terminal else max(0.0, self.deadline_at - now)


def waiting_of(task: Task, cause: str = "", until: float | None = None) -> tuple[str, float | None]:
    """What a task waits for and until when (to the second), as far as known. `cause` and `until`: the engine's, for a
    task that holds a slot."""
    if task.is_terminal:
        return "", None
    if task.state is not TaskState.RUNNING:
        return FOR_SLOT if task.state is TaskState.PENDING else FOR_RESUME, None
    waiting_for, until = (task.waiting_for, task.waiting_until) if task.waiting_for else (cause, until)
    return waiting_for, float(math.ceil(until)) if waiting_for and until is not None else None


def waiting_text(task: Task, waiting_for: str, until: float | None) -> str:
    """What a task waits for, as a message; empty if it waits for nothing."""
    if task.state is TaskState.PENDING or not waiting_for:
        return ""
    if waiting_for == FOR_RESUME:
        return "paused: resume it to continue; its deadline runs on"
    if waiting_for == FOR_SLOT:
        return "it can continue, and waits for a free slot: it gets the next one"
    text = f"it waits: {waiting_for}"
    if until is not None:
        text += f", until {datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return text if task.holds_slot else f"{text}; other tasks use its slot until then"


def new_task_id() -> str:
    """A random id that cannot be guessed and is a valid name of a crawl."""
    return secrets.token_hex(16)


def ending(progress: JobProgress, reason: FinishReason, partial_results_ok: bool) -> tuple[TaskState, FinishReason]:
    """The final state and reason of a task, from the outcomes of its URLs.

    Ended by itself (done, max_pages): COMPLETED when no page failed; PARTIAL when some failed and some did not; FAILED
    when no page was scraped or no request could be sent. 404, 410 and refusals by robots.txt are not failures: a task
    with nothing else is COMPLETED. At the deadline, out of memory, or done with URLs left, it is PARTIAL, with or
    without results. With `partial_results_ok: false` PARTIAL becomes FAILED.
    """
    if reason is FinishReason.CANCELLED:
        return TaskState.CANCELLED, reason
    if reason in (FinishReason.EXPIRED, FinishReason.ERROR, FinishReason.REFUSED):
        return TaskState.FAILED, reason
    is_cut_off = reason in (FinishReason.DEADLINE, FinishReason.MAX_MEMORY)
    is_cut_off = is_cut_off or (reason is FinishReason.DONE and progress.queued > 0)
    if is_cut_off or (progress.failed and progress.completed):
        state = TaskState.PARTIAL
    elif progress.failed:
        state, reason = TaskState.FAILED, FinishReason.TOO_MANY_ERRORS
    elif not progress.completed and progress.refused > progress.robots_blocked and not progress.gone:
        state, reason = TaskState.FAILED, FinishReason.REFUSED
    else:
        state = TaskState.COMPLETED
    if state is TaskState.PARTIAL and not partial_results_ok:
        state = TaskState.FAILED
    return state, reason

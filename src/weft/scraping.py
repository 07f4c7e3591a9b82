"""The scrape service's HTTP interface, declared once: what it is asked, what it answers, and by which calls.

The service checks requests and writes its OpenAPI document by it (`jobs/api`); both clients ask and decode by it
(`client`). Names, types, limits, defaults and descriptions of fields stand here and nowhere else. Times are UTC.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, Required, TypedDict, TypeVar

from msgspec import Meta, Struct, field

from weft.urls import MAX_LENGTH

MAX_PATTERNS = 100  # of `include`, and of `exclude`
MAX_PATTERN_CHARS = 1000
MOST_RESENT = 100  # deliveries that one replay may name


class TaskState(StrEnum):
    """Where a task is in its life."""

    PENDING = "PENDING"  # waits for a slot; its deadline does not run yet
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"  # asks for nothing; its deadline runs on
    COMPLETED = "COMPLETED"
    PARTIAL = "PARTIAL"  # ended with some of it
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing more will happen to it."""
        return self in TERMINAL


TERMINAL = frozenset({TaskState.COMPLETED, TaskState.PARTIAL, TaskState.FAILED, TaskState.CANCELLED})


class FinishReason(StrEnum):
    """Why a task has ended."""

    DONE = "done"  # nothing was left to do
    DEADLINE = "deadline"
    MAX_PAGES = "max_pages"
    MAX_MEMORY = "max_memory"  # its URLs left no room for a page
    CANCELLED = "cancelled"
    TOO_MANY_ERRORS = "too_many_errors"  # it ended by itself, and no page was scraped
    REFUSED = "refused"  # nothing of it may be asked for: addresses, scope, patterns
    EXPIRED = "expired"  # it was PENDING for too long
    ERROR = "error"  # the engine could not run it; the task's `message` says why


class ErrorClass(StrEnum):
    """Why a URL gave no page."""

    TIMEOUT = "timeout"
    CONNECTION = "connection"  # connect, reset, truncated, protocol
    DNS = "dns"
    TLS = "tls"
    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    ROBOTS = "robots"
    BLOCKED = "blocked"  # not asked for: a refused address, a trap, a limit, or a breaker whose cause is not known
    TOO_LARGE = "too_large"
    PARSE = "parse"
    OTHER = "other"


class HookEvent(StrEnum):
    """What a receiver can be told."""

    STARTED = "started"
    PAGE = "page"
    COMPLETED = "completed"  # COMPLETED or PARTIAL: the body's `status` says which
    FAILED = "failed"
    CANCELLED = "cancelled"


# ── what is asked ──────────────────────────────────────────────────────────────────────────────────────────────────


def _about(description: str, **limits: Any) -> Meta:
    return Meta(description=description, **limits)


def _option(default: object, description: str, **limits: Any) -> Meta:
    """A field of a request, which may be left out."""
    return Meta(description=description, extra_json_schema={"default": default}, **limits)


Scope = Literal["any", "domain", "host", "prefix"]
Format = Literal["markdown", "text", "html", "rawHtml", "links", "metadata", "images"]
LinkUse = Literal["keep", "text", "drop"]
ExportFormat = Literal["json", "jsonl", "csv", "markdown", "parquet", "warc"]
Depth = Annotated[int, Meta(ge=0, le=1000)]
PageLimit = Annotated[int, Meta(ge=1, le=1_000_000)]
Articles = Annotated[int, Meta(ge=1, le=100)]
Retries = Annotated[int, Meta(ge=0, le=10)]
Pattern = Annotated[str, Meta(min_length=1, max_length=MAX_PATTERN_CHARS)]
Selector = Annotated[str, Meta(min_length=1, max_length=200)]
WebUrl = Annotated[str, Meta(min_length=8, max_length=MAX_LENGTH, pattern=r"^[hH][tT][tT][pP][sS]?://")]
TargetUrl = Annotated[
    WebUrl, _about("where to begin", examples=["https://example.com/"], extra_json_schema={"format": "http-url"})
]


HookUrl = Annotated[str, Meta(min_length=8, max_length=MAX_LENGTH)]


class WebhookOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Where to tell what happens to a task."""

    url: HookUrl
    events: Annotated[list[HookEvent], _about("what is told; all unless given", min_length=1, max_length=5)] = field(
        default_factory=lambda: list(HookEvent)
    )
    headers: Annotated[
        dict[str, Annotated[str, Meta(max_length=4000)]],
        _about("sent with every delivery, and never shown again", max_length=20),
    ] = {}
    metadata: Annotated[dict[str, Any], _about("handed back in every body", max_length=50)] = {}


Hooked = HookUrl | WebhookOrder


class RenderWishes(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a page is shown in a browser, and what is done on it before it is read."""

    wait_for: Annotated[Selector | Annotated[float, Meta(ge=0, le=60)] | None, _about("a CSS selector, or seconds")] = (
        None
    )
    scrolls: Annotated[int, _about("how often to scroll to the end while the page grows", ge=0, le=20)] = 0
    screenshot: Annotated[
        str,
        _about(
            "keep a picture of each rendered page: none, viewport, full, or css:SELECTOR for an element",
            pattern="^(none|viewport|full|css:.+)$", max_length=1000,
        ),
    ] = "none"  # fmt: skip
    viewport: Annotated[
        str, _about("width and height of what is in view, in pixels", pattern="^[1-9][0-9]{1,3}x[1-9][0-9]{1,3}$")
    ] = "1280x800"
    pdf: Annotated[bool, _about("keep each rendered page as a PDF, too")] = False
    mobile: Annotated[bool, _about("show pages as a telephone would")] = False
    actions: Annotated[
        list[dict[str, Any]],
        _about("click, write, press, scroll, wait, select, screenshot, pdf: see docs/rendering.md", max_length=50),
    ] = []


LoginName = Annotated[str, Meta(min_length=1, max_length=100)]


class ScrapeOptions(TypedDict, total=False):
    """What can be ordered besides the URL; see docs/jobs.md."""

    max_depth: Annotated[Depth, _option(2, "links from the URL; 0: it alone")]
    timeout_minutes: Annotated[int, _option(30, "until the task ends, whatever it has", ge=5, le=120)]
    max_concurrent_articles: Annotated[
        Articles | None,
        _option(None, "pages in flight at a time, over all hosts; left out: what the service is set to, 10"),
    ]
    retry_attempts: Annotated[Retries, _option(3, "tries after the first")]
    proxies: Annotated[bool, _option(False, "ask through the service's proxies; refused where it has none")]
    partial_results_ok: Annotated[
        bool, _option(True, "false: a task that could not do all of it is FAILED, not PARTIAL")
    ]
    export_format: Annotated[ExportFormat, _option("json", "what `/results` answers with where no format is asked for")]
    max_pages: Annotated[PageLimit | None, _option(None, "pages to scrape, at most")]
    include: Annotated[
        list[Pattern],
        _option([], "only URLs that match one of these globs (/PATH for the path alone)", max_length=MAX_PATTERNS),
    ]
    exclude: Annotated[list[Pattern], _option([], "no URL that matches one of these globs", max_length=MAX_PATTERNS)]
    scope: Annotated[Scope, _option("domain", "where links may lead, seen from the URL")]
    trap_rules: Annotated[bool, _option(True, "false: follow links that seem to be part of an endless space, too")]
    extract: Annotated[
        dict[str, Any],
        _option(
            {}, "fields to take from every page: a CSS selector, or an object with css, xpath, regex or jsonld",
            max_length=100,
        ),
    ]  # fmt: skip
    formats: Annotated[
        list[Format], _option(["markdown", "metadata"], "what is kept of a page in its result", max_length=7)
    ]
    include_tags: Annotated[list[Selector], _option([], "only what these CSS selectors match", max_length=50)]
    exclude_tags: Annotated[list[Selector], _option([], "nothing that these match", max_length=50)]
    only_main_content: Annotated[bool, _option(True, "without navigation, footers and the like; false: the whole page")]
    links: Annotated[
        LinkUse, _option("keep", "what becomes of links in Markdown: keep, their text alone (text), or neither (drop)")
    ]
    render: Annotated[
        Literal["never", "auto", "always"] | None,
        _option(
            None, "load pages in a browser: never, those that scripts must draw (auto), or always; left out: what the "
            "service is set to",
        ),
    ]  # fmt: skip
    render_options: Annotated[RenderWishes, _option({}, "how pages are rendered; needs `render`")]
    workers: Annotated[
        Literal["local", "cluster", "prefer-cluster"] | None,
        _option(
            None, "which machines ask for the pages: the service's own, workers on others (cluster), or these while "
            "there are some; left out: what the service is set to",
        ),
    ]  # fmt: skip
    login: Annotated[
        LoginName | None, _option(None, "log in first: the name of a login that the service is configured with")
    ]
    webhook: Annotated[
        Hooked | None,
        _option(None, "a URL that is told what happens, signed; or an object with url, events, headers, metadata"),
    ]
    respect_robots: Annotated[
        bool,
        Meta(
            description="robots.txt is always obeyed: false is refused",
            extra_json_schema={"default": True, "const": True},
        ),
    ]


class AsyncScrapeRequest(ScrapeOptions, total=False):
    """What to scrape, and within which limits."""

    url: Required[TargetUrl]


Number = Annotated[int, Meta(ge=-1, le=2**62)]


class WebhookReplay(TypedDict, total=False):
    """What to send again, with the ids it had. With neither: go on where the webhook has stopped."""

    after: Annotated[Number | None, _option(None, "everything behind this number; -1: everything")]
    numbers: Annotated[list[Number], _option([], "these events alone", max_length=MOST_RESENT)]


class NoQuery(Struct, frozen=True):
    """A call without parameters."""


_Cursor = Annotated[str, Meta(max_length=200)] | None
_BEFORE = _about("`next_cursor` of the answer before")


class ResultsQuery(Struct, frozen=True, kw_only=True):
    """Which results, and how."""

    include_errors: Annotated[bool, _about("list the URLs that gave no page, too")] = False
    limit: Annotated[int, _about("results and errors together, at most", ge=1, le=1000)] = 100
    cursor: Annotated[_Cursor, _BEFORE] = None
    format: Annotated[
        ExportFormat | None, _about("the task's `export_format` unless given; of a stretch, as JSON is")
    ] = None


class ListQuery(Struct, frozen=True, kw_only=True):
    """Which tasks."""

    status: Annotated[TaskState | None, _about("only those in this state")] = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    cursor: Annotated[_Cursor, _BEFORE] = None


class EventsQuery(Struct, frozen=True):
    """Where a stream begins."""

    after: Annotated[
        Annotated[int, Meta(ge=0, le=2**62)] | None,
        _about("as `Last-Event-ID`, for clients that cannot send headers"),
    ] = None


class DeliveriesQuery(Struct, frozen=True, kw_only=True):
    """Which part of the delivery log."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Annotated[_Cursor, _BEFORE] = None


class ReportsQuery(Struct, frozen=True):
    """How many reports."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 10


# ── what is answered ───────────────────────────────────────────────────────────────────────────────────────────────

Count = Annotated[int, Meta(ge=0)]
_TIME = Annotated[datetime | None, _about("null until then")]


class TaskLinks(Struct, frozen=True):
    """Where everything about a task is."""

    status: str
    results: str
    events: str
    cancel: str


class TaskSubmitted(Struct, frozen=True):
    """A task that was accepted: it is on the disk."""

    task_id: str
    status: TaskState
    links: TaskLinks


class TaskChanged(Struct, frozen=True):
    """A task after a change."""

    task_id: str
    status: TaskState
    finish_reason: FinishReason | None


class TaskProgress(Struct, frozen=True):
    """`discovered` is the sum of completed, gone, failed, refused, queued and in_flight, in every answer."""

    discovered: Count
    completed: Count
    gone: Annotated[Count, _about("answered 404 or 410")]
    failed: Count
    refused: Annotated[Count, _about("not asked for: robots.txt, an address, a trap, a pattern")]
    robots_blocked: Annotated[Count, _about("of the refused")]
    queued: Annotated[Count, _about("at the end: what was left")]
    in_flight: Count
    need_javascript: Annotated[Count, _about("of the completed: scripts must draw them; see `render`")]
    percent: Annotated[float, Meta(ge=0, le=100)]


class _TaskFacts(Struct, frozen=True, kw_only=True):
    task_id: str
    url: str
    status: TaskState
    finish_reason: FinishReason | None
    message: Annotated[str, _about("what went wrong or what it waits for, for a person; mostly empty")]
    waiting_for: Annotated[
        str | None,
        _about("what it can do nothing without: `slot`, `resume`, or the cause in words; null while it works"),
    ]
    waiting_until: Annotated[datetime | None, _about("when that is over, as far as known")]
    created_at: datetime
    started_at: _TIME
    finished_at: _TIME


class TaskSummary(_TaskFacts, frozen=True, kw_only=True):
    """A task in a list."""

    links: TaskLinks


class TaskStatus(_TaskFacts, frozen=True, kw_only=True):
    """How a task stands. Times are UTC."""

    progress: TaskProgress
    success_rate: Annotated[float | None, _about("completed of those completed or failed")]
    duration_seconds: Annotated[float, Meta(ge=0)]
    remaining_seconds: Annotated[float | None, _about("until the deadline")]
    deadline_at: _TIME
    errors_by_class: dict[str, int]
    waiting_before: Annotated[
        int | None, _about("tasks of the same API key that get a slot first, while this one is PENDING")
    ]
    last_event: Annotated[Count, _about("the number of its last event")]

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status.is_terminal


class TaskList(Struct, frozen=True):
    """Tasks, newest first."""

    tasks: list[TaskSummary]
    next_cursor: str | None


class PageResult(Struct, frozen=True):
    """One page. Further members are the formats that were ordered, and `fields` where rules were."""

    number: Count
    url: str
    status: int
    title: str
    depth: Count
    fetched_at: datetime


class PageError(Struct, frozen=True):
    """One URL that gave no page."""

    number: Count
    url: str
    status: Annotated[int, _about("0: there was no answer")]
    error: str
    error_class: ErrorClass
    depth: Count
    at: datetime


class TaskResults(Struct, frozen=True):
    """What a task has, from a cursor on."""

    task_id: str
    status: TaskState
    results: Annotated[
        list[dict[str, Any]], Meta(extra_json_schema={"items": {"$ref": "#/components/schemas/PageResult"}})
    ]
    next_cursor: Annotated[str | None, _about("null when there is no more now")]
    cursor: Annotated[str, _about("to ask later for what comes after this answer")]
    errors: list[PageError] | None = None


class Webhook(Struct, frozen=True):
    """A task's webhook."""

    task_id: str
    url: str
    events: list[str]
    state: Annotated[
        Literal["open", "done", "gone", "given_up"],
        _about("open, done, gone (the receiver answered 410) or given_up (after a day)"),
    ]
    delivered_up_to: Annotated[int, _about("the number of the last event that was delivered; -1: none yet")]
    to_send_again: Annotated[list[int], _about("numbers that a replay has asked for")]
    failed_attempts: Annotated[Count, _about("in a row")]
    next_attempt_at: datetime | None
    last_error: str


class WebhookDelivery(Struct, frozen=True):
    """What became of one event."""

    id: Annotated[str, _about("the `webhook-id` of every attempt")]
    number: int
    event: str
    attempts: int
    status: Annotated[int, _about("of the last attempt; 0: there was no answer")]
    error: str
    first_at: datetime
    last_at: datetime
    delivered_at: datetime | None


class WebhookDeliveries(Struct, frozen=True):
    """A stretch of the delivery log."""

    deliveries: list[WebhookDelivery]
    next_cursor: Annotated[str | None, _about("null when there is no more now")]


class WebhookSecret(Struct, frozen=True):
    """What the caller's deliveries are signed with."""

    secret: str


class LaneStatus(Struct, frozen=True):
    """The slots of one kind of work."""

    slots: Count
    available_slots: Count
    running: Count
    waiting: Annotated[Count, _about("of those running: they can do nothing for now, and hold no slot")]
    paused: Annotated[Count, _about("they hold no slot")]
    pending: Count


class BlockedDomain(Struct, frozen=True):
    """A host, with its port, that is left alone for a while, because it failed too often."""

    domain: str
    until: datetime


class ServiceStatus(Struct, frozen=True):
    """How the service as a whole is."""

    status: Literal["healthy", "unhealthy"]
    problems: list[str]
    slots: Count
    available_slots: Count
    queued: Count
    active_tasks: list[str]
    lanes: dict[str, LaneStatus]
    tasks_by_status: dict[str, int]
    blocked_domains: list[BlockedDomain]
    errors_by_class: dict[str, int]
    success_rate: float | None
    pages_per_second: float
    page_seconds_p50: float | None
    page_seconds_p95: float | None
    task_seconds_p50: float | None
    task_seconds_p95: float | None
    event_streams: Count


class Liveness(Struct, frozen=True):
    """Whether the service makes progress."""

    status: Literal["ok", "unhealthy", "starting"]
    problems: list[str]
    warnings: list[str] = []  # what is weaker than it should be, by a setting: it works all the same


class FieldProblem(Struct, frozen=True):
    """One field that is wrong."""

    field: str
    detail: str


class Problem(Struct, frozen=True):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] | None = None


# ── by which calls ─────────────────────────────────────────────────────────────────────────────────────────────────

T = TypeVar("T")


class ApiCall(Struct, Generic[T], frozen=True):
    """One request of the interface, and what its good answer holds."""

    name: str
    method: str
    path: str
    answer: type[T]
    summary: str
    query: type[Struct] = NoQuery
    body: Any = None  # the type of its JSON body
    needs_body: bool = True
    status: int = 200
    said: str = "As asked for."
    problems: tuple[int, ...] = ()  # besides those that every call can have
    headers: tuple[str, ...] = ()  # that it heeds: see `HEADERS`


HEADERS: dict[str, dict[str, Any]] = {  # what a caller may send along
    "Idempotency-Key": {
        "description": "the same key: the first task",
        "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": r"^[\x21-\x7e]+$"},
    },
    "If-None-Match": {"description": "the ETag of an answer before", "schema": {"type": "string"}},
    "Last-Event-ID": {
        "description": "the number of the last event that you have",
        "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
    },
}
_TASK = "/scraping/tasks/{task_id}"
SUBMIT = ApiCall(
    "submit", "POST", "/scraping/async-scrape", TaskSubmitted, "Start a task", body=AsyncScrapeRequest, status=202,
    said="Accepted, and on the disk.", problems=(409, 429), headers=("Idempotency-Key",),
)  # fmt: skip
LIST = ApiCall("list", "GET", "/scraping/tasks", TaskList, "List tasks, newest first", query=ListQuery)
STATUS = ApiCall(
    "status", "GET", f"{_TASK}/status", TaskStatus, "How far a task is", problems=(404,), headers=("If-None-Match",)
)
RESULTS = ApiCall(
    "results", "GET", f"{_TASK}/results", TaskResults, "What was scraped so far, also while the task runs",
    query=ResultsQuery, said="A stretch of what there is now.", problems=(404,),
)  # fmt: skip
EVENTS = ApiCall(
    "events", "GET", f"{_TASK}/events", type(None), "Events as they happen", query=EventsQuery,
    said="Server-sent events: state, page, error (each with its number as id), and progress.", problems=(404, 429),
    headers=("Last-Event-ID",),
)  # fmt: skip
CANCEL = ApiCall("cancel", "DELETE", _TASK, TaskChanged, "Cancel; what was scraped is kept", problems=(404,))
PAUSE = ApiCall("pause", "POST", f"{_TASK}/pause", TaskChanged, "Pause a task", problems=(404, 409))
RESUME = ApiCall("resume", "POST", f"{_TASK}/resume", TaskChanged, "Resume a task", problems=(404, 409))
WEBHOOK = ApiCall("webhook", "GET", f"{_TASK}/webhook", Webhook, "How far a task's webhook is", problems=(404,))
DELIVERIES = ApiCall(
    "deliveries", "GET", f"{_TASK}/webhook/deliveries", WebhookDeliveries, "What became of each event",
    query=DeliveriesQuery, problems=(404,),
)  # fmt: skip
REPLAY = ApiCall(
    "replay", "POST", f"{_TASK}/webhook/replay", Webhook, "Send events again", body=WebhookReplay, needs_body=False,
    status=202, said="It is sent soon.", problems=(404,),
)  # fmt: skip
WEBHOOK_SECRET = ApiCall(
    "webhook_secret", "GET", "/scraping/webhook-secret", WebhookSecret, "The secret to check signatures with"
)
SERVICE_STATUS = ApiCall("service_status", "GET", "/scraping/status", ServiceStatus, "How the service as a whole is")
HEALTHZ = ApiCall("healthz", "GET", "/healthz", Liveness, "Whether it makes progress")
READYZ = ApiCall("readyz", "GET", "/readyz", Liveness, "Whether to send requests here")
METRICS = ApiCall("metrics", "GET", "/metrics", str, "Figures for Prometheus", said="Prometheus' format.")

"""The bodies and parameters of the HTTP interface, as the OpenAPI document shows them. Every field has its limits; an
unknown one is an error."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StrictBool, StrictInt, Tag, field_validator

from weft import urls
from weft.config import accepted
from weft.jobs.model import (
    MAX_PATTERN_CHARS,
    MAX_PATTERNS,
    ErrorClass,
    FinishReason,
    TaskState,
    problem_of_globs,
)
from weft.jobs.webhooks.model import HookEvent

Format = Literal["markdown", "text", "html", "rawHtml", "links", "metadata", "images"]
ExportFormat = Literal["json", "jsonl", "csv", "markdown", "parquet", "warc"]
Pattern = Annotated[str, Field(min_length=1, max_length=MAX_PATTERN_CHARS)]
Selector = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=0)]
_NULLABLE_TIME = "null until then"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WebhookOrder(_Strict):
    """Where to tell what happens to a task."""

    url: Annotated[str, Field(min_length=8, max_length=urls.MAX_LENGTH, pattern=r"^[hH][tT][tT][pP][sS]?://")]
    events: Annotated[
        list[HookEvent], Field(min_length=1, max_length=len(HookEvent), description="what is told; all unless given")
    ] = list(HookEvent)
    headers: Annotated[
        dict[str, Annotated[str, Field(max_length=4000)]],
        Field(max_length=20, description="sent with every delivery, and never shown again"),
    ] = {}
    metadata: Annotated[dict[str, Any], Field(max_length=50, description="handed back in every body")] = {}


HookUrl = Annotated[str, Field(min_length=8, max_length=urls.MAX_LENGTH)]
# Told apart by hand, so that a mistake is told of the one that was meant.
Hooked = Annotated[
    Annotated[HookUrl, Tag("text")] | Annotated[WebhookOrder, Tag("object")],
    Discriminator(lambda given: "text" if isinstance(given, str) else "object"),
]


class AsyncScrapeRequest(_Strict):
    """What to scrape, and within which limits."""

    url: Annotated[
        str,
        Field(
            min_length=8, max_length=urls.MAX_LENGTH, pattern=r"^[hH][tT][tT][pP][sS]?://",
            description="where to begin", json_schema_extra={"format": "http-url"}, examples=["https://example.com/"],
        ),
    ]  # fmt: skip
    max_depth: Annotated[StrictInt, Field(ge=0, le=1000, description="links from the URL; 0: it alone")] = 2
    timeout_minutes: Annotated[StrictInt, Field(ge=5, le=120, description="until the task ends, whatever it has")] = 30
    max_concurrent_articles: Annotated[
        Annotated[StrictInt, Field(ge=1, le=100)] | None,
        Field(description="pages in flight at a time, over all hosts; left out: what the service is set to, 10"),
    ] = None
    retry_attempts: Annotated[StrictInt, Field(ge=0, le=10, description="tries after the first")] = 3
    proxies: Annotated[
        StrictBool, Field(description="ask through the service's proxies; refused where it has none")
    ] = False
    partial_results_ok: Annotated[
        StrictBool, Field(description="false: a task that could not do all of it is FAILED, not PARTIAL")
    ] = True
    export_format: Annotated[
        ExportFormat, Field(description="what `/results` answers with where no format is asked for")
    ] = "json"
    max_pages: Annotated[
        Annotated[StrictInt, Field(ge=1, le=1_000_000)] | None, Field(description="pages to scrape, at most")
    ] = None
    include: Annotated[
        list[Pattern],
        Field(
            max_length=MAX_PATTERNS, description="only URLs that match one of these globs (/PATH for the path alone)"
        ),
    ] = []
    exclude: Annotated[
        list[Pattern], Field(max_length=MAX_PATTERNS, description="no URL that matches one of these globs")
    ] = []
    scope: Annotated[
        Literal["any", "domain", "host", "prefix"], Field(description="where links may lead, seen from the URL")
    ] = "domain"
    trap_rules: Annotated[
        StrictBool, Field(description="false: follow links that seem to be part of an endless space, too")
    ] = True
    extract: Annotated[
        dict[str, Any],
        Field(
            max_length=100,
            description="fields to take from every page: a CSS selector, or an object with css, xpath, regex or jsonld",
        ),
    ] = {}
    formats: Annotated[list[Format], Field(max_length=7, description="what is kept of a page in its result")] = [
        "markdown",
        "metadata",
    ]
    include_tags: Annotated[
        list[Selector], Field(max_length=50, description="only what these CSS selectors match")
    ] = []
    exclude_tags: Annotated[list[Selector], Field(max_length=50, description="nothing that these match")] = []
    only_main_content: Annotated[
        StrictBool, Field(description="without navigation, footers and the like; false: the whole page")
    ] = True
    render: Annotated[
        Literal["never"], Field(description="pages are not loaded in a browser yet: `auto` and `always` are refused")
    ] = "never"
    webhook: Annotated[
        Hooked | None,
        Field(description="a URL that is told what happens, signed; or an object with url, events, headers, metadata"),
    ] = None
    respect_robots: Annotated[Literal[True], Field(description="robots.txt is always obeyed: false is refused")] = True

    @field_validator("include", "exclude")
    @classmethod
    def _check_globs(cls, patterns: list[str]) -> list[str]:
        if problem := problem_of_globs(patterns):
            raise ValueError(problem)
        return patterns


class TaskLinks(BaseModel):
    """Where everything about a task is."""

    status: str
    results: str
    events: str
    cancel: str


class TaskSubmitted(BaseModel):
    """A task that was accepted: it is on the disk."""

    task_id: str
    status: TaskState
    links: TaskLinks


class TaskProgress(BaseModel):
    """`discovered` is the sum of completed, gone, failed, refused, queued and in_flight, in every answer."""

    discovered: Count
    completed: Count
    gone: Annotated[int, Field(ge=0, description="answered 404 or 410")]
    failed: Count
    refused: Annotated[int, Field(ge=0, description="not asked for: robots.txt, an address, a trap, a pattern")]
    robots_blocked: Annotated[int, Field(ge=0, description="of the refused")]
    queued: Annotated[int, Field(ge=0, description="at the end: what was left")]
    in_flight: Count
    percent: Annotated[float, Field(ge=0, le=100)]


class TaskStatus(BaseModel):
    """How a task stands. Times are UTC."""

    task_id: str
    url: str
    status: TaskState
    finish_reason: FinishReason | None
    message: Annotated[str, Field(description="what went wrong or what it waits for, for a person; mostly empty")]
    waiting_for: Annotated[
        str | None,
        Field(
            description="what it can do nothing without: `slot`, `resume`, or the cause in words; null while it works"
        ),
    ]
    waiting_until: Annotated[datetime | None, Field(description="when that is over, as far as known")]
    progress: TaskProgress
    success_rate: Annotated[float | None, Field(description="completed of those completed or failed")]
    duration_seconds: Annotated[float, Field(ge=0)]
    remaining_seconds: Annotated[float | None, Field(description="until the deadline")]
    created_at: datetime
    started_at: Annotated[datetime | None, Field(description=_NULLABLE_TIME)]
    deadline_at: Annotated[datetime | None, Field(description=_NULLABLE_TIME)]
    finished_at: Annotated[datetime | None, Field(description=_NULLABLE_TIME)]
    errors_by_class: dict[str, int]
    waiting_before: Annotated[
        int | None, Field(description="tasks of the same API key that get a slot first, while this one is PENDING")
    ]
    last_event: Annotated[int, Field(ge=0, description="the number of its last event")]


class PageResult(BaseModel):
    """One page. Further members are the formats that were ordered, and `fields` where rules were."""

    model_config = ConfigDict(extra="allow")
    number: Count
    url: str
    status: int
    title: str
    depth: Count
    fetched_at: datetime


class PageError(BaseModel):
    """One URL that gave no page."""

    number: Count
    url: str
    status: Annotated[int, Field(description="0: there was no answer")]
    error: str
    error_class: ErrorClass
    depth: Count
    at: datetime


class TaskResults(BaseModel):
    """What a task has, from a cursor on."""

    task_id: str
    status: TaskState
    results: list[PageResult]
    errors: list[PageError] | None = None
    next_cursor: Annotated[str | None, Field(description="null when there is no more now")]
    cursor: Annotated[str, Field(description="to ask later for what comes after this answer")]


class TaskSummary(BaseModel):
    """A task in a list."""

    task_id: str
    url: str
    status: TaskState
    finish_reason: FinishReason | None
    message: Annotated[str, Field(description="what went wrong or what it waits for, for a person; mostly empty")]
    waiting_for: Annotated[
        str | None,
        Field(
            description="what it can do nothing without: `slot`, `resume`, or the cause in words; null while it works"
        ),
    ]
    waiting_until: Annotated[datetime | None, Field(description="when that is over, as far as known")]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    links: TaskLinks


class TaskList(BaseModel):
    """Tasks, newest first."""

    tasks: list[TaskSummary]
    next_cursor: str | None


class TaskChanged(BaseModel):
    """A task after a change."""

    task_id: str
    status: TaskState
    finish_reason: FinishReason | None


class LaneStatus(BaseModel):
    """The slots of one kind of work."""

    slots: Count
    available_slots: Count
    running: Count
    waiting: Annotated[int, Field(ge=0, description="of those running: they can do nothing for now, and hold no slot")]
    paused: Annotated[int, Field(ge=0, description="they hold no slot")]
    pending: Count


class BlockedDomain(BaseModel):
    """A host, with its port, that is left alone for a while, because it failed too often."""

    domain: str
    until: datetime


class ServiceStatus(BaseModel):
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


class Liveness(BaseModel):
    """Whether the service makes progress."""

    status: Literal["ok", "unhealthy", "starting"]
    problems: list[str]


class FieldProblem(BaseModel):
    """One field that is wrong."""

    field: str
    detail: str


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] | None = None


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ResultsQuery(_Query):
    """Which results, and how."""

    include_errors: Annotated[bool, Field(description="list the URLs that gave no page, too")] = False
    limit: Annotated[int, Field(ge=1, le=1000, description="results and errors together, at most")] = 100
    cursor: Annotated[str | None, Field(max_length=100, description="`next_cursor` of the answer before")] = None
    format: Annotated[
        ExportFormat | None, Field(description="the task's `export_format` unless given; of a stretch, as JSON is")
    ] = None


class ListQuery(_Query):
    """Which tasks."""

    status: Annotated[TaskState | None, Field(description="only those in this state")] = None
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    cursor: Annotated[str | None, Field(max_length=200, description="`next_cursor` of the answer before")] = None


class EventsQuery(_Query):
    """Where a stream begins."""

    after: Annotated[
        int | None, Field(ge=0, le=2**62, description="as `Last-Event-ID`, for clients that cannot send headers")
    ] = None


class NoQuery(_Query):
    """Nothing."""


def accepts(model: type[BaseModel]) -> dict[str, str]:
    """In words, what each field of a model takes."""
    schema = model.model_json_schema()
    found = {}
    for name, field in schema["properties"].items():
        if name == "url":
            found[name] = f"a URL of http or https with at most {urls.MAX_LENGTH:,} characters"
        elif field.get("type") == "null":
            found[name] = "null: this is not available yet"
        elif "const" in field:
            found[name] = str(field["const"]).lower() + f": {field['description'].partition(':')[0]}"
        elif "$ref" not in str(field) and field.get("type") not in ("object", "array", "null"):
            found[name] = accepted(field)
    return found

"""What the service says, typed. Times are UTC."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypedDict

from msgspec import Struct

State = Literal["PENDING", "RUNNING", "PAUSED", "COMPLETED", "PARTIAL", "FAILED", "CANCELLED"]
TERMINAL = frozenset({"COMPLETED", "PARTIAL", "FAILED", "CANCELLED"})


class ScrapeOptions(TypedDict, total=False):
    """What can be ordered besides the URL; see docs/jobs.md."""

    max_depth: int
    timeout_minutes: int
    max_concurrent_articles: int
    retry_attempts: int
    proxies: bool
    partial_results_ok: bool
    export_format: Literal["json", "jsonl", "csv", "markdown", "parquet", "warc"]
    max_pages: int | None
    include: list[str]
    exclude: list[str]
    scope: Literal["any", "domain", "host", "prefix"]
    trap_rules: bool
    extract: dict[str, Any]
    formats: list[Literal["markdown", "text", "html", "rawHtml", "links", "metadata", "images"]]
    include_tags: list[str]
    exclude_tags: list[str]
    only_main_content: bool
    render: Literal["never"]
    webhook: str | dict[str, Any]
    respect_robots: Literal[True]


class Submitted(Struct, frozen=True):
    """A task that was accepted."""

    task_id: str
    status: State


class Changed(Struct, frozen=True):
    """A task after a change."""

    task_id: str
    status: State
    finish_reason: str | None = None


class Progress(Struct, frozen=True):
    """How far a task is: `discovered` is the sum of all but `robots_blocked`, which is part of `refused`."""

    discovered: int
    completed: int
    gone: int
    failed: int
    refused: int
    robots_blocked: int
    queued: int
    in_flight: int
    percent: float


class Status(Struct, frozen=True):
    """How a task stands."""

    task_id: str
    url: str
    status: State
    finish_reason: str | None
    message: str
    progress: Progress
    success_rate: float | None
    duration_seconds: float
    remaining_seconds: float | None
    created_at: datetime
    started_at: datetime | None
    deadline_at: datetime | None
    finished_at: datetime | None
    errors_by_class: dict[str, int]
    waiting_before: int | None
    last_event: int
    waiting_for: str | None = None  # what it can do nothing without: `slot`, `resume`, or the cause in words
    waiting_until: datetime | None = None  # when that is over, as far as known

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in TERMINAL


class Page:
    """One scraped page; `document` is all that the service says about it, formats and fields included."""

    __slots__ = ("document",)

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def __repr__(self) -> str:
        return f"<Page {self.number}: {self.status} {self.url}>"

    @property
    def number(self) -> int:
        """Its event's."""
        return int(self.document["number"])

    @property
    def url(self) -> str:
        """Where it is."""
        return str(self.document["url"])

    @property
    def status(self) -> int:
        """Of the HTTP answer."""
        return int(self.document["status"])

    @property
    def title(self) -> str:
        """What it calls itself."""
        return str(self.document["title"])

    @property
    def depth(self) -> int:
        """Links from the URL of the order."""
        return int(self.document["depth"])

    @property
    def markdown(self) -> str | None:
        """Its text as Markdown, where the format was ordered."""
        return self.document.get("markdown")

    @property
    def text(self) -> str | None:
        """Its text, where the format was ordered."""
        return self.document.get("text")

    @property
    def html(self) -> str | None:
        """Its HTML without what is not content, where the format was ordered."""
        return self.document.get("html")

    @property
    def links(self) -> list[Any]:
        """Where it leads, where the format was ordered."""
        return self.document.get("links") or []

    @property
    def metadata(self) -> dict[str, Any]:
        """What it says about itself, where the format was ordered."""
        return self.document.get("metadata") or {}

    @property
    def fields(self) -> dict[str, Any]:
        """What the rules of `extract` have found."""
        return self.document.get("fields") or {}

    @property
    def field_errors(self) -> dict[str, Any]:
        """What they have found and could not use."""
        return self.document.get("field_errors") or {}


class PageError(Struct, frozen=True):
    """One URL that gave no page."""

    number: int
    url: str
    status: int  # 0: there was no answer
    error: str
    error_class: str
    depth: int
    at: datetime


class Results(Struct, frozen=True):
    """A stretch of what a task has."""

    status: State
    pages: tuple[Page, ...]
    errors: tuple[PageError, ...]
    next_cursor: str | None  # None when there is no more now
    cursor: str  # asks later for what comes after this


class Summary(Struct, frozen=True):
    """A task in a list."""

    task_id: str
    url: str
    status: State
    finish_reason: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    message: str = ""
    waiting_for: str | None = None  # as in `Status`
    waiting_until: datetime | None = None


class Listing(Struct, frozen=True):
    """Some tasks, newest first."""

    tasks: list[Summary]
    next_cursor: str | None


class Event(Struct, frozen=True):
    """Something that has happened: state, page, error, or progress, which has no number."""

    kind: str
    number: int | None
    data: dict[str, Any]


class Scrape(list[Page]):
    """The pages of a task that has ended, with its status and what failed."""

    def __init__(self, pages: list[Page], status: Status, errors: list[PageError]) -> None:
        super().__init__(pages)
        self.status = status
        self.errors = errors


class Webhook(Struct, frozen=True):
    """How far a task's webhook is; `delivered_up_to` is -1 while nothing was delivered."""

    task_id: str
    url: str
    events: list[str]
    state: Literal["open", "done", "gone", "given_up"]
    delivered_up_to: int
    to_send_again: list[int]
    failed_attempts: int
    next_attempt_at: datetime | None
    last_error: str


class Delivery(Struct, frozen=True):
    """What became of one event of a webhook."""

    id: str
    number: int
    event: str
    attempts: int
    status: int
    error: str
    first_at: datetime
    last_at: datetime
    delivered_at: datetime | None


class Deliveries(Struct, frozen=True):
    """A stretch of a delivery log."""

    deliveries: list[Delivery]
    next_cursor: str | None

"""The scrape service as its callers see it: the HTTP API, the Firecrawl routes, the dashboard, and tests.

A caller validates a request (types, limits, rules), makes a `TaskSpec` and `Submission` of it, and converts the result
to its own format. Nothing here knows HTTP. Every method may be called in any worker process; all of them raise
`JobError`s (errors.py), and `BadInput` for what a user can correct.

`owner` is the id of the caller's API key, empty where no keys are used: another owner's task is TaskUnknown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from zlib import crc32

from msgspec import Struct

from weft.engine.model import Blocked
from weft.jobs.model import JobProgress, Task, TaskSpec, waiting_text
from weft.jobs.store.contract import Idempotency, Listing, Submitted, Totals
from weft.scraping import ErrorClass, TaskState
from weft.store.export.facts import iso_time

if TYPE_CHECKING:  # import cycle
    from weft.jobs.sites.site_service import Sites
    from weft.jobs.webhooks.webhook_service import Webhooks


class Submission(Struct, frozen=True, kw_only=True):
    """A task to be submitted."""

    urls: tuple[str, ...]
    spec: TaskSpec
    owner: str = ""
    idempotency: Idempotency | None = None


class TaskSnapshot(Struct, frozen=True, kw_only=True):
    """The status of a task: one consistent answer."""

    task: Task
    progress: JobProgress
    errors_by_class: dict[str, int]
    duration_s: float
    remaining_s: float | None
    waiting_before: int | None = None  # tasks of the same owner that are served first, while it is PENDING
    waiting_for: str = ""  # what it needs to make progress: `slot`, `resume`, or what the engine reports
    waiting_until: float | None = None  # wall clock: when the wait ends, as far as known
    number: int = 0  # of its last event
    pages_per_s: float = 0.0  # recent rate, while it runs
    lost: int = 0  # pages whose stored bytes are damaged or gone
    memory_bytes: int = 0  # maximum that its crawl may use now, if it has a limit

    @property
    def tag(self) -> str:
        """Equal for two answers that differ in nothing but running times: for an ETag."""
        counts = ".".join(str(getattr(self.progress, name)) for name in self.progress.__struct_fields__)
        waiting = crc32(f"{self.waiting_for} {self.waiting_until}".encode())
        return f"{self.task.version}-{self.number}-{counts}-{self.lost}-{waiting:08x}"

    @property
    def message(self) -> str:
        """A message for people: why it ended as it did, or what it waits for."""
        return self.task.message or waiting_text(self.task, self.waiting_for, self.waiting_until)


class ScrapedResult(Struct, frozen=True, kw_only=True):
    """One scraped page. `number` is its event's, and the cursor that continues after it."""

    number: int
    url: str
    status: int
    title: str
    depth: int
    fetched_at: float
    document: dict[str, Any]  # url, metadata, and the task's formats and fields: see documents.py
    asked_url: str = ""  # the URL that was requested before redirects led to `url`; empty: `url` itself

    @property
    def whole(self) -> dict[str, Any]:
        """The complete document: values of the row take precedence over those of the document."""
        own = {name: getattr(self, name) for name in ("number", "url", "status", "title", "depth")}
        return {**self.document, **own, "fetched_at": iso_time(self.fetched_at)}


class Failure(Struct, frozen=True, kw_only=True):
    """One URL that gave no page: failed, gone or refused."""

    number: int
    url: str
    status: int  # 0: no answer
    error: str  # the engine's error, with its detail
    error_class: ErrorClass
    depth: int
    at: float


class ResultSlice(Struct, frozen=True, kw_only=True):
    """Results of a task after a cursor."""

    results: tuple[ScrapedResult, ...]
    errors: tuple[Failure, ...]  # of the same range of events; empty unless requested
    cursor: int  # continue from here later: after everything that this answer covers
    next_cursor: int | None  # the same if there is more *now*; otherwise None


class RecordSlice(Struct, frozen=True, kw_only=True):
    """The WARC records of the pages that `ResultSlice` would have: gzip members, request and response of each."""

    data: bytes
    cursor: int
    next_cursor: int | None


class JobEvent(Struct, frozen=True, kw_only=True):
    """An event of a task. `number` is the id to resume after; progress has none.

    kind      data
    state     state, finish_reason
    page      url, status, title, depth, length
    error     url, status, error, error_class, depth
    progress  the fields of Status
    """

    kind: str
    number: int | None
    at: float
    data: dict[str, Any]


class Latest(Struct, frozen=True):
    """The latest events of a task, newest first."""

    events: tuple[JobEvent, ...]
    before: int | None  # pass this to get older events; None if there are none


class Second(Struct, frozen=True):
    """What a task did in one second of the wall clock."""

    at: int
    pages: int
    errors: int
    body_bytes: int


class Timeline(Struct, frozen=True):
    """A part of a task's history, per second; a second may be split between two parts, which are added."""

    seconds: tuple[Second, ...]
    number: int  # the next part follows this number
    is_whole: bool  # whether this was all that there is now


class LaneHealth(Struct, frozen=True):
    """The slots of one lane."""

    slots: int
    available: int
    running: int
    paused: int
    pending: int
    waiting: int = 0  # RUNNING tasks without a slot, because they cannot make progress now
    is_claimable: bool = False  # a slot is free, and a task may have it now


class Health(Struct, frozen=True, kw_only=True):
    """The health of the service. `is_healthy` means progress: the runner renews its lease, the engine moves."""

    is_healthy: bool
    problems: tuple[str, ...]
    refusing: tuple[str, ...] = ()  # reasons why no task is accepted now; a subset of the problems
    lanes: dict[str, LaneHealth]
    active: tuple[str, ...]  # ids of RUNNING tasks
    blocked_domains: tuple[Blocked, ...]  # hosts, with their ports, whose breakers are open
    errors_by_class: dict[str, int]  # of the tasks that are kept
    tasks_by_state: dict[str, int]
    success_rate: float | None
    pages_per_s: float
    page_seconds_p50: float | None
    page_seconds_p95: float | None
    task_seconds_p50: float | None
    task_seconds_p95: float | None
    totals: Totals = Totals()
    warnings: tuple[str, ...] = ()  # consequences of settings that weaken security


class JobService(Protocol):
    """The interface of the scrape service."""

    @property
    def sites(self) -> Sites:
        """Saved scrapes that run by their schedules."""

    @property
    def webhooks(self) -> Webhooks:
        """The webhooks of tasks, and their delivery logs."""

    async def submit(self, submission: Submission) -> Submitted:
        """Stores a new task; it is durable when this returns. The same idempotency key of the same owner returns the
        first task again (`is_new` False).

        Raises KeyReused if the key came with another request, QueueFull if `max_pending_tasks` wait already, BadInput
        if there is no URL or an invalid one.
        """

    async def status(self, task_id: str, owner: str | None = None) -> TaskSnapshot:
        """The current status: from the store for a task that waits or has ended, from the engine for one that runs."""

    async def results(
        self,
        task_id: str,
        owner: str | None = None,
        *,
        cursor: int = 0,
        limit: int = 100,
        include_errors: bool = False,
    ) -> ResultSlice:
        """What it has scraped after a cursor, in the order of the commits, also while it runs; each page once.

        `limit` counts results and errors together. A cursor is the number of any event; 0 is the beginning.
        """

    async def cursor_behind(self, task_id: str, owner: str | None = None, *, pages: int) -> int:
        """The cursor for `results` that skips a number of pages; after everything if there are fewer now. The cost does
        not grow with that number once the task's pages were counted."""

    async def records(
        self,
        task_id: str,
        owner: str | None = None,
        *,
        cursor: int = 0,
        limit: int = 100,
        include_errors: bool = False,
    ) -> RecordSlice:
        """The pages of `results` as they came over the wire, with credentials masked; with errors, also the error
        responses. Consecutive slices form one WARC file."""

    def events(self, task_id: str, owner: str | None = None, *, after: int = 0) -> AsyncIterator[JobEvent]:
        """Its events after a number, as they happen: numbered ones each once and in order, and progress at most twice
        a second. Ends after the event of its terminal state, or at once if `after` is not before that.

        The first step raises TaskUnknown. A reader that stops reading costs nothing and loses nothing: it continues
        from the disk.
        """

    async def stored(self, task_id: str, owner: str | None = None, *, after: int = 0) -> Sequence[JobEvent]:
        """Some of its numbered events after a number that are stored now, in order, including those of kind `hidden`,
        which carry no data. Empty: there are no more now."""

    async def cancel(self, task_id: str, owner: str | None = None) -> Task:
        """Cancels it within 2 s; what was scraped is kept. A task that has ended is returned unchanged."""

    async def pause(self, task_id: str, owner: str | None = None) -> Task:
        """RUNNING → PAUSED: requests in flight are finished, then the slot is released; the deadline is not extended. A
        PAUSED task is returned unchanged; raises TaskFinished for any other state."""

    async def resume(self, task_id: str, owner: str | None = None) -> Task:
        """PAUSED → RUNNING: it continues as soon as a slot is free, before any PENDING task. A RUNNING task is returned
        unchanged; raises TaskFinished for any other state."""

    async def append(
        self,
        task_id: str,
        urls: Sequence[str],
        owner: str | None = None,
        *,
        idempotency: Idempotency | None = None,
    ) -> Task:
        """Adds URLs to a batch task that has not ended, without duplicates; durable when this returns. Raises
        TaskFinished if it has ended, BadInput if it is not a batch. An append with a key that was used already is not
        repeated, and succeeds also when the task has ended since; KeyReused as for `submit`."""

    async def list(
        self,
        owner: str | None = None,
        *,
        states: Collection[TaskState] = (),
        cursor: str | None = None,
        limit: int = 50,
        text: str = "",
        host: str = "",
    ) -> Listing:
        """Tasks, newest first. Their `progress` is the stored one: final, or empty for those that have not ended.

        `text` and `host`: see `SqliteJobStore.listing`.
        """

    async def started(self) -> tuple[TaskSnapshot, ...]:
        """Every task that is RUNNING or PAUSED, of all owners, at one moment; does not wait long for the engine."""

    async def counts(self, owner: str | None = None) -> dict[str, int]:
        """How many tasks there are in each state."""

    async def latest(
        self,
        task_id: str,
        owner: str | None = None,
        *,
        before: int | None = None,
        limit: int = 50,
        kinds: Collection[str] = (),
        error_class: str = "",
    ) -> Latest:
        """Its numbered events of some kinds, and errors of one class, newest first; without its terminal state."""

    async def timeline(self, task_id: str, owner: str | None = None, *, after: int = 0) -> Timeline:
        """What the task did in each second, after the event with number `after`."""

    async def health(self) -> Health:
        """The health of the service, for `/scraping/status`, `/healthz` and `/metrics`."""

    async def close(self) -> None:
        """Ends this worker's part of the service: streams end, the lease is released."""

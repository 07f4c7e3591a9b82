"""The scrape service as its front doors see it: HTTP, the Firecrawl routes, the dashboard, and tests.

A front door checks what a caller has written (types, limits, rules), makes a `TaskSpec` and `Submission` of it, and
turns what comes back into its own wire. Nothing here knows HTTP. Every method may be called in any worker process; all
of them raise `JobError`s (errors.py), and `BadInput` for what a caller can correct.

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
from weft.store.export.facts import iso

if TYPE_CHECKING:  # it looks at tasks as this room's callers do
    from weft.jobs.sites.site_service import Sites
    from weft.jobs.webhooks.webhook_service import Webhooks


class Submission(Struct, frozen=True, kw_only=True):
    """What a caller has ordered."""

    urls: tuple[str, ...]
    spec: TaskSpec
    owner: str = ""
    idempotency: Idempotency | None = None


class TaskSnapshot(Struct, frozen=True, kw_only=True):
    """How a task stands: one consistent answer."""

    task: Task
    progress: JobProgress
    errors_by_class: dict[str, int]
    duration_s: float
    remaining_s: float | None
    waiting_before: int | None = None  # tasks of its owner that get a slot first, while it is PENDING
    waiting_for: str = ""  # what it can do nothing without: `slot`, `resume`, or what the engine says
    waiting_until: float | None = None  # wall clock: when that is over, as far as known
    number: int = 0  # of its last event
    pages_per_s: float = 0.0  # lately, while it runs
    lost: int = 0  # pages whose stored bytes are damaged or gone
    memory_bytes: int = 0  # that its crawl takes at most now, where it has a limit

    @property
    def tag(self) -> str:
        """Equal for two answers that say the same, times that run aside: for an ETag."""
        counts = ".".join(str(getattr(self.progress, name)) for name in self.progress.__struct_fields__)
        waiting = crc32(f"{self.waiting_for} {self.waiting_until}".encode())
        return f"{self.task.version}-{self.number}-{counts}-{self.lost}-{waiting:08x}"

    @property
    def message(self) -> str:
        """What a person should know: why it ended as it did, or what it waits for."""
        return self.task.message or waiting_text(self.task, self.waiting_for, self.waiting_until)


class ScrapedResult(Struct, frozen=True, kw_only=True):
    """One scraped page. `number` is its event's, and the cursor to go on behind it."""

    number: int
    url: str
    status: int
    title: str
    depth: int
    fetched_at: float
    document: dict[str, Any]  # url, metadata, the formats and fields that the task has ordered: see documents.py
    asked_url: str = ""  # what was asked for before redirects led to `url`; empty: that itself

    @property
    def whole(self) -> dict[str, Any]:
        """As documents of ours have it: what its row says wins over what its document says."""
        own = {name: getattr(self, name) for name in ("number", "url", "status", "title", "depth")}
        return {**self.document, **own, "fetched_at": iso(self.fetched_at)}


class Failure(Struct, frozen=True, kw_only=True):
    """One URL that gave no page: failed, gone or refused."""

    number: int
    url: str
    status: int  # 0: there was no answer
    error: str  # the engine's word for it, with its detail
    error_class: ErrorClass
    depth: int
    at: float


class ResultSlice(Struct, frozen=True, kw_only=True):
    """What a task has, behind a cursor."""

    results: tuple[ScrapedResult, ...]
    errors: tuple[Failure, ...]  # of the same stretch of events; empty unless they were asked for
    cursor: int  # go on from here later: behind everything that this answer has looked at
    next_cursor: int | None  # the same while there is more *now*; None when there is no more now


class Records(Struct, frozen=True, kw_only=True):
    """The WARC records of the pages that `ResultSlice` would have: gzip members, request and response of each."""

    data: bytes
    cursor: int
    next_cursor: int | None


class JobEvent(Struct, frozen=True, kw_only=True):
    """Something that has happened to a task. `number` is the id to resume behind; progress has none.

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
    """What happened to a task last, newest first."""

    events: tuple[JobEvent, ...]
    before: int | None  # what is older than these is asked for with this; None when there is nothing


class Second(Struct, frozen=True):
    """What a task did in one second of the wall clock."""

    at: int
    pages: int
    errors: int
    body_bytes: int


class Timeline(Struct, frozen=True):
    """A stretch of what a task did; a second may be in two stretches, and counts in both."""

    seconds: tuple[Second, ...]
    number: int  # ask for the next stretch behind this
    is_whole: bool  # whether that was all that there is now


class LaneHealth(Struct, frozen=True):
    """The slots of one lane."""

    slots: int
    available: int
    running: int
    paused: int
    pending: int
    waiting: int = 0  # of those running: they can do nothing for now, and hold no slot
    is_claimable: bool = False  # a slot is free, and a task may have it now


class Health(Struct, frozen=True, kw_only=True):
    """How the service as a whole is. `is_healthy` means progress: the runner renews its lease, the engine moves."""

    is_healthy: bool
    problems: tuple[str, ...]
    refusing: tuple[str, ...] = ()  # why no task is accepted now; of the problems
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
    warnings: tuple[str, ...] = ()  # what a setting makes weaker than it should be


class JobService(Protocol):
    """What a front door calls."""

    @property
    def sites(self) -> Sites:
        """Saved scrapes that run by their schedules."""

    @property
    def webhooks(self) -> Webhooks:
        """The webhooks of tasks, and their delivery logs."""

    async def submit(self, submission: Submission) -> Submitted:
        """Keeps a new task; it is durable when this returns. The same idempotency key of the same owner gives the first
        task again (`is_new` False).

        KeyReused: the key came with another request. QueueFull: `max_pending_tasks` wait already. BadInput: no URL, or
        one that is none.
        """

    async def status(self, task_id: str, owner: str | None = None) -> TaskSnapshot:
        """How it stands now: the store's word for a task that waits or has ended, the engine's for one that runs."""

    async def results(
        self,
        task_id: str,
        owner: str | None = None,
        *,
        cursor: int = 0,
        limit: int = 100,
        include_errors: bool = False,
    ) -> ResultSlice:
        """What it has scraped behind a cursor, also while it runs, in the order of the commits; each page once.

        `limit` counts results and errors together. A cursor is the number of any event; 0 is the beginning.
        """

    async def cursor_behind(self, task_id: str, owner: str | None = None, *, pages: int) -> int:
        """The cursor for `results` that skips a number of pages; behind everything where there are fewer now. The cost
        does not grow with that number, once the task's pages were counted."""

    async def records(
        self,
        task_id: str,
        owner: str | None = None,
        *,
        cursor: int = 0,
        limit: int = 100,
        include_errors: bool = False,
    ) -> Records:
        """The same pages as `results` has them, as they came over the wire, with credentials masked; with errors: the
        responses that came with them. Stretches put together are a WARC file."""

    def events(self, task_id: str, owner: str | None = None, *, after: int = 0) -> AsyncIterator[JobEvent]:
        """Its events behind a number, as they happen: numbered ones each once and in order, and progress at most twice
        a second in between. Ends behind the event of its terminal state, at once if that lies behind `after`.

        TaskUnknown comes with the first step. A reader who stops reading costs nothing and loses nothing: what it asks
        for next is read from the disk.
        """

    async def stored(self, task_id: str, owner: str | None = None, *, after: int = 0) -> Sequence[JobEvent]:
        """Some of its numbered events behind a number that are stored now, in order; also those of the kind `hidden`,
        which say nothing. Empty: there are no more now."""

    async def cancel(self, task_id: str, owner: str | None = None) -> Task:
        """Ends it within 2 s; what was scraped is kept. A task that has ended is returned as it is."""

    async def pause(self, task_id: str, owner: str | None = None) -> Task:
        """RUNNING → PAUSED; what is in flight is finished, then the slot is given up; the deadline runs on. A PAUSED
        task is returned as it is; TaskFinished for any other state."""

    async def resume(self, task_id: str, owner: str | None = None) -> Task:
        """PAUSED → RUNNING; it continues as soon as a slot is free, before any PENDING task. A RUNNING task is returned
        as it is; TaskFinished for any other state."""

    async def append(
        self,
        task_id: str,
        urls: Sequence[str],
        owner: str | None = None,
        *,
        idempotency: Idempotency | None = None,
    ) -> Task:
        """Adds URLs to a batch task that has not ended, each once; durable when this returns. TaskFinished if it has
        ended, BadInput if it is no batch. An append with a key that was done already is not done again, and is good
        also when the task has ended since; KeyReused as for `submit`."""

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
        """Tasks, newest first; their `progress` is that of the store: final, or empty for those that have not ended.

        `text` and `host`: see `SqliteJobStore.listing`.
        """

    async def started(self) -> tuple[TaskSnapshot, ...]:
        """Every task that is RUNNING or PAUSED, of all owners, as of one moment; never waits long for the engine."""

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
        """Its numbered events, newest first, of some kinds, and errors of one class; without its terminal state."""

    async def timeline(self, task_id: str, owner: str | None = None, *, after: int = 0) -> Timeline:
        """What it did over time, behind a number."""

    async def health(self) -> Health:
        """How the service is, for `/scraping/status`, `/healthz` and `/metrics`."""

    async def close(self) -> None:
        """Ends this worker's part in it: streams end, a lease is given back."""

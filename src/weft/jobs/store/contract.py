"""What keeps tasks: the truth about those that wait and those that have ended. One contract suite, every backend.

Each method is one atomic step, durable when it returns (kill -9 and power cut). All of them may be called from several
threads and processes at once. A step that would go against the state machine (`model.NEXT`) or against the state that
the caller expected changes nothing and says so by its result; none ever waits for another task.

The runner's steps carry a *fence*, the epoch of its lease: once another has taken the lease over they raise LeaseLost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from weft.jobs.model import Lane, Progress, Task
from weft.jobs.sites.changes import ChangeReport, Learnt
from weft.jobs.sites.model import Site
from weft.jobs.webhooks.model import Attempt, Delivery, Hook
from weft.records import PastVisit
from weft.scraping import FinishReason, TaskState

MOST_WAITING = 1000  # tasks of one owner and lane that have started and hold no slot: each is a crawl in the engine
_T = TypeVar("_T")
ProgressValue = str | int | float | None


class Idempotency(Struct, frozen=True):
    """A caller's word for one request: of the same owner it stands for one task as long as that is kept."""

    key: str
    digest: str  # of the request: the same key with another one is refused
    until: float | None = None  # wall clock: not longer than this


class Submitted(Struct, frozen=True):
    """A task, and whether this call has made it."""

    task: Task
    is_new: bool


class Listing(Struct, frozen=True):
    """Some tasks, newest first; `next_cursor` is None when there are no more.

    With a cursor and no tasks, a search has not come to the end.
    """

    tasks: tuple[Task, ...]
    next_cursor: str | None
    previous_cursor: str | None = None  # to the newer ones before these; None where these are the newest


class Finish(Struct, frozen=True, kw_only=True):
    """What a terminal step writes down besides the state."""

    reason: FinishReason
    progress: Progress = Progress()
    errors_by_class: dict[str, int] = {}
    last_number: int = 0
    message: str = ""


class Totals(Struct, frozen=True, kw_only=True):
    """What became of all tasks that have ended since the store was made: numbers that only grow."""

    tasks: dict[str, int] = {}  # by their last state
    urls: dict[str, int] = {}  # of theirs: completed, gone, failed, refused
    errors: dict[str, int] = {}  # of theirs, by class


class Lease(Struct, frozen=True):
    """The runner's: held until a moment of the wall clock; `epoch` grows with every new holder."""

    holder: str
    epoch: int
    until: float


class HookStore(Protocol):
    """How far the webhooks of tasks are, and their delivery logs."""

    def get(self, task_id: str) -> Hook | None:
        """The hook of a task; None if it has none, or there is no such task."""

    def due(self, now: float, limit: int) -> list[Hook]:
        """Open hooks of tasks that have left PENDING, whose next attempt is not later than now; longest due first."""

    def record(self, hook: Hook, attempts: Sequence[Attempt], *, fence: int) -> Hook:
        """Keeps how far a hook is and logs attempts, in one step; the hook as it is then: another one if a replay came
        in between (its `version` is higher), which holds."""

    def replay(self, task_id: str, after: int | None, numbers: Sequence[int], at: float) -> Hook | None:
        """Opens a hook again: with its cursor back behind an event, with some numbers to be sent again, or just where
        it stopped. None if the task has none."""

    def deliveries(self, task_id: str, after: int, limit: int) -> list[Delivery]:
        """A stretch of the log, in the order of the events."""

    def secret(self) -> bytes:
        """The service's own secret for signatures: random, made the first time, the same ever after."""


class SiteLedger(Protocol):
    """All sites within one step: what is done with it is kept together, or not at all."""

    sites: dict[str, Site]

    def task(self, task_id: str) -> Task | None:
        """A task as it is now."""

    def put(self, site: Site) -> None:
        """Keeps a site."""

    def submit(self, task: Task, urls: Sequence[str]) -> None:
        """Keeps a new PENDING task."""

    def pages(self, site: str) -> dict[str, PastVisit]:
        """What is known of its pages, by URL; of what was no page, too."""

    def learn(self, report: ChangeReport, learnt: Learnt) -> None:
        """Keeps the report of a run, and what it says of the site's pages."""

    def forget(self, site: str) -> None:
        """Deletes a site, its pages and its reports; its tasks stay."""


class SiteStore(Protocol):
    """Sites, the pages that are known of each, and the reports of their runs."""

    def all(self) -> dict[str, Site]:
        """Every site, by name, of one moment."""

    def change(self, step: Callable[[SiteLedger], _T], *, fence: int | None = None) -> _T:
        """One step over all sites, with no other in between. It must not call the store."""

    def pages(self, site: str) -> dict[str, PastVisit]:
        """What is known of its pages, by URL; of what was no page, too."""

    def report(self, task_id: str) -> ChangeReport | None:
        """What a run has found; None while that is not known yet."""

    def reports(self, site: str, limit: int) -> list[ChangeReport]:
        """The last ones of a site, newest first."""

    def note_proxies(self, has_proxies: bool) -> None:
        """Whether the service that runs them has proxies; it says so when it starts."""

    def has_proxies(self) -> bool | None:
        """What the service that was started last has said; None: there was none."""


class ProgressStore(Protocol):
    """How far jobs are that are no tasks, by keys `KIND:JOB:NAME` with a time to live."""

    def put(self, kind: str, job_id: str, values: Mapping[str, ProgressValue], *, now: float, ttl_s: float) -> None:
        """Keeps these values of a job for so long from now."""

    def get(self, kind: str, job_id: str, *, now: float) -> dict[str, ProgressValue]:
        """The values of a job by their keys; empty if there are none, or their time is over."""


class JobStore(Protocol):
    """The durable store of tasks."""

    @property
    def progress(self) -> ProgressStore:
        """The progress of other jobs."""

    @property
    def sites(self) -> SiteStore:
        """The sites: a run is written in one step with its site."""

    @property
    def hooks(self) -> HookStore:
        """The webhooks: a hook is written and deleted in one step with its task."""

    def submit(
        self,
        task: Task,
        urls: Sequence[str],
        *,
        idempotency: Idempotency | None = None,
        max_pending: int | None = None,
    ) -> Submitted:
        """Keeps a new PENDING task. KeyReused, or QueueFull when `max_pending` tasks of its lane wait already."""

    def get(self, task_id: str, owner: str | None = None) -> Task | None:
        """A task; None if there is none, or if it is not this owner's. Without an owner: anybody's."""

    def urls(self, task_id: str) -> list[str]:
        """The URLs that the task was ordered with, and those appended while it was PENDING."""

    def listing(
        self,
        *,
        owner: str | None = None,
        states: Collection[TaskState] = (),
        cursor: str | None = None,
        limit: int = 50,
        text: str = "",
        host: str = "",
    ) -> Listing:
        """Tasks, newest first. Those that come later do not shift a listing that goes on; BadInput for a bad cursor.

        `text`: in their first URL, in any case, or what their id begins with; `host`: that URL's, or a domain above it.
        """

    def append(self, task_id: str, urls: Sequence[str]) -> Task | None:
        """Adds URLs to a task that is PENDING; None if it is not."""

    def remember(self, task: Task, idempotency: Idempotency) -> None:
        """From now on the key of the task's owner stands for it; nothing if the task is gone."""

    def remembered(self, owner: str, idempotency: Idempotency, at: float) -> Task | None:
        """The task that an owner's key stands for; KeyReused if the key came with another request."""

    def move(
        self,
        task_id: str,
        to: TaskState,
        *,
        expect: Collection[TaskState],
        at: float,
        finish: Finish | None = None,
        fence: int | None = None,
    ) -> Task | None:
        """The task in its new state; None when it was in none of the expected ones, or is gone.

        RUNNING sets `started_at` and `deadline_at` the first time; a terminal state sets `finished_at`, and needs
        `finish`. A task without a slot stays without one: PAUSED it waits for FOR_RESUME, resumed for FOR_SLOT.
        """

    def release_slot(
        self, task_id: str, waiting_for: str, until: float | None, *, version: int, fence: int
    ) -> Task | None:
        """A RUNNING or PAUSED task holds no slot from now on, or waits for something else than before; None when it has
        changed since it had this version. With FOR_SLOT it is given the next one."""

    def claim(self, lane: Lane, slots: int, *, at: float, fence: int, per_owner: int | None = None) -> list[Task]:
        """Gives the free ones of a lane's slots: first to RUNNING tasks that wait for one, then to PENDING tasks, which
        are moved to RUNNING. No owner gets more than `per_owner`.

        Fair between owners: next is the owner with the fewest slots, of several the one not served for longest; of one
        owner's tasks, the one that has waited for longest. Nothing is started for an owner of whom MOST_WAITING tasks
        wait without a slot.
        """

    def is_claimable(self, lane: Lane, slots: int, per_owner: int | None = None) -> bool:
        """Whether `claim` would give a slot now."""

    def started(self, *, with_slot: bool = False) -> list[Task]:
        """Every task that is RUNNING or PAUSED, or those of them that hold a slot."""

    def waiting(self) -> Mapping[tuple[Lane, TaskState], int]:
        """How many RUNNING and PAUSED tasks of each lane hold no slot."""

    def pending_since(self, before: float, limit: int = 100) -> list[Task]:
        """PENDING tasks that were submitted before a moment, oldest first."""

    def finished_since(self, before: float, limit: int = 100) -> list[Task]:
        """Terminal tasks that ended before a moment, oldest first; without those whose webhook is still open."""

    def delete(self, *task_ids: str, fence: int) -> int:
        """Deletes terminal tasks, their URLs and idempotency keys; how many there were. Those that still run stay."""

    def counts(self, owner: str | None = None) -> Mapping[tuple[Lane, TaskState], int]:
        """How many tasks there are in each lane and state; without a walk over them, but for those of an owner."""

    def totals(self) -> Totals:
        """What became of all that have ended, those that were deleted since among them."""

    def waiting_before(self, task: Task) -> int:
        """How many PENDING tasks of its owner and lane came before this one: others are served by turns."""

    def lease(self, holder: str, ttl_s: float, *, now: float) -> Lease | None:
        """Takes or renews the runner's lease; None while another holds it. Renewing keeps the epoch."""

    def holder(self) -> Lease | None:
        """The lease as it is, ended or not; None if nobody has it."""

    def release(self, holder: str) -> None:
        """Gives the lease back, if this holder has it."""

    def marker(self) -> object:
        """A value that differs from an earlier one when somebody has changed something since; cheap."""

    def close(self) -> None:
        """Ends this process's use of it."""

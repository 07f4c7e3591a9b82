"""Values that the store of tasks (sqlite.py) accepts and returns: plain and frozen."""

from __future__ import annotations

from msgspec import Struct

from weft.jobs.model import JobProgress, Task
from weft.scraping import FinishReason

MOST_WAITING = 1000  # tasks of one owner and lane that have started and hold no slot: each one is a crawl in the engine
ProgressValue = str | int | float | None


class Idempotency(Struct, frozen=True):
    """An idempotency key: requests of the same owner with the same key are one task, as long as that is kept."""

    key: str
    digest: str  # of the request: another request with the same key is refused
    until: float | None = None  # wall clock: the key expires then, if not before


class Submitted(Struct, frozen=True):
    """A task, and whether this call has created it."""

    task: Task
    is_new: bool


class Listing(Struct, frozen=True):
    """Some tasks, newest first; `next_cursor` is None if there are no more.

    With a cursor and no tasks, a search has not reached the end.
    """

    tasks: tuple[Task, ...]
    next_cursor: str | None
    previous_cursor: str | None = None  # for the newer ones before these; None if these are the newest


class TaskFinish(Struct, frozen=True, kw_only=True):
    """What a terminal step stores besides the state."""

    reason: FinishReason
    progress: JobProgress = JobProgress()
    errors_by_class: dict[str, int] = {}
    last_number: int = 0
    message: str = ""


class Totals(Struct, frozen=True, kw_only=True):
    """Totals of all tasks that have ended since the store was created: they only grow."""

    tasks: dict[str, int] = {}  # by final state
    urls: dict[str, int] = {}  # their URLs: completed, gone, failed, refused
    errors: dict[str, int] = {}  # their errors, by class


class RunnerLease(Struct, frozen=True):
    """The runner's lease: valid until a wall-clock time; `epoch` grows with every new holder."""

    holder: str
    epoch: int
    until: float

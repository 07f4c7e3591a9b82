"""What passes between the store of tasks (sqlite.py) and its callers: plain frozen values."""

from __future__ import annotations

from msgspec import Struct

from weft.jobs.model import JobProgress, Task
from weft.scraping import FinishReason

MOST_WAITING = 1000  # tasks of one owner and lane that have started and hold no slot: each is a crawl in the engine
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


class TaskFinish(Struct, frozen=True, kw_only=True):
    """What a terminal step writes down besides the state."""

    reason: FinishReason
    progress: JobProgress = JobProgress()
    errors_by_class: dict[str, int] = {}
    last_number: int = 0
    message: str = ""


class Totals(Struct, frozen=True, kw_only=True):
    """What became of all tasks that have ended since the store was made: numbers that only grow."""

    tasks: dict[str, int] = {}  # by their last state
    urls: dict[str, int] = {}  # of theirs: completed, gone, failed, refused
    errors: dict[str, int] = {}  # of theirs, by class


class RunnerLease(Struct, frozen=True):
    """The runner's: held until a moment of the wall clock; `epoch` grows with every new holder."""

    holder: str
    epoch: int
    until: float

"""What the scrape service refuses, divided by what the caller does about it.

WeftError
└── JobError
    ├── TaskUnknown      no such task, or another key's: 404
    ├── NoWebhook        the task was ordered without one: 404
    ├── SiteUnknown      no such site, or another key's (a BadInput, too): 404
    ├── SiteConflict     the site's name is taken, or it is in use (a BadInput, too): 409
    ├── BadSite          what a site's file says cannot be (a BadInput, too): 422
    ├── TaskFinished     the task has ended, or is in a state that does not allow this: 409
    ├── KeyReused        the idempotency key stands for another request: 409
    ├── QueueFull        as many tasks wait as may: 429, again after `retry_after_s`
    ├── StoreDamaged     the file of tasks is not as it was written: 500, somebody must repair it
    ├── EngineAway       the engine does not answer now: 503, again after `retry_after_s`
    └── LeaseLost        another runner has taken over: stop, and change nothing more
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from weft.errors import BadInput, WeftError


class JobError(WeftError):
    """The root of what the scrape service refuses."""


class TaskUnknown(JobError):
    """There is no such task, or it is another key's: nobody learns which."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"there is no task {task_id[:64]!r}")
        self.task_id = task_id


class NoWebhook(JobError):
    """The task was ordered without a webhook."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"the task {task_id[:64]} was ordered without a webhook")
        self.task_id = task_id


class SiteUnknown(JobError, BadInput):
    """There is no such site, or it is another key's: nobody learns which."""

    def __init__(self, name: str, hint: str = "") -> None:
        super().__init__(f"there is no site {name[:100]!r}{hint}")
        self.name = name


class SiteConflict(JobError, BadInput):
    """What a site is now does not allow what was asked."""


class BadSite(JobError, BadInput):
    """What a site's file says cannot be: `problems` has fields, and what is wrong with each."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {what}" for field, what in problems))
        self.problems = tuple(problems)


class TaskFinished(JobError):
    """The task's state does not allow what was asked."""

    def __init__(self, task_id: str, state: str, what: str) -> None:
        super().__init__(f"the task {task_id} is {state}: it cannot be {what}")
        self.task_id = task_id
        self.state = state


class KeyReused(JobError):
    """An idempotency key came again with another request."""

    def __init__(self, task_id: str) -> None:
        super().__init__("this idempotency key was used for another request: use a new one")
        self.task_id = task_id


class QueueFull(JobError):
    """As many tasks wait as may."""

    def __init__(self, waiting: int, retry_after_s: float) -> None:
        super().__init__(f"{waiting:,} tasks wait already, which is all there is room for: try again later")
        self.retry_after_s = retry_after_s


class StoreDamaged(JobError):
    """The file of tasks is damaged, or lacks what it must have: nothing about tasks is known."""

    exit_code = 2

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(
            f"{path}: {detail}: restore it from a backup, or stop the service and run `weft rebuild "
            f"{quote(str(path.parent))}`, which makes a new one of the crawls that the engine has"
        )
        self.path = path


class EngineAway(JobError):
    """The engine does not answer; it is being started again."""

    def __init__(self, why: str, retry_after_s: float = 2.0) -> None:
        super().__init__(f"the engine does not answer now: {why}")
        self.retry_after_s = retry_after_s


class LeaseLost(JobError):
    """A step of a runner that is none any more was refused."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"the runner of epoch {epoch} has been replaced")
        self.epoch = epoch

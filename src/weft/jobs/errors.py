"""Errors of the scrape service, divided by what the caller does about them.

WeftError
└── JobError
    ├── TaskUnknown      no such task, or another key's: 404
    ├── NoWebhook        the task was submitted without one: 404
    ├── SiteUnknown      no such site, or another key's (a BadInput, too): 404
    ├── SiteConflict     the site's name is taken, or it is in use (a BadInput, too): 409
    ├── BadSite          a site's file has invalid values (a BadInput, too): 422
    ├── TaskFinished     the task has ended, or is in a state that does not allow this: 409
    ├── KeyReused        the idempotency key was used for another request: 409
    ├── QueueFull        the maximum number of tasks wait: 429, again after `retry_after_s`
    ├── StoreDamaged     the file of tasks is damaged: 500, an operator must repair it
    ├── EngineAway       the engine does not answer now: 503, again after `retry_after_s`
    └── LeaseLost        another runner has the lease: stop, and change nothing more
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from weft.errors import BadInput, WeftError


class JobError(WeftError):
    """The base of all errors of the scrape service."""


class TaskUnknown(JobError):
    """There is no such task, or it belongs to another key; the error does not reveal which."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"there is no task {task_id[:64]!r}")
        self.task_id = task_id


class NoWebhook(JobError):
    """The task was submitted without a webhook."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"the task {task_id[:64]} was submitted without a webhook")
        self.task_id = task_id


class SiteUnknown(JobError, BadInput):
    """There is no such site, or it belongs to another key; the error does not reveal which."""

    def __init__(self, name: str, hint: str = "") -> None:
        super().__init__(f"there is no site {name[:100]!r}{hint}")
        self.name = name


class SiteConflict(JobError, BadInput):
    """The current state of a site does not allow the request."""


class BadSite(JobError, BadInput):
    """A site's file has invalid values; `problems`: the fields, and what is wrong with each."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {what}" for field, what in problems))
        self.problems = tuple(problems)


class TaskFinished(JobError):
    """The task's state does not allow the request."""

    def __init__(self, task_id: str, state: str, what: str) -> None:
        super().__init__(f"the task {task_id} is {state}: it cannot be {what}")
        self.task_id = task_id
        self.state = state


class KeyReused(JobError):
    """An idempotency key was used before with another request."""

    def __init__(self, task_id: str) -> None:
        super().__init__("this idempotency key was used for another request: use a new one")
        self.task_id = task_id


class QueueFull(JobError):
    """The maximum number of tasks wait already."""

    def __init__(self, waiting: int, retry_after_s: float) -> None:
        super().__init__(f"{waiting:,} tasks wait already, which is all there is room for: try again later")
        self.retry_after_s = retry_after_s


class StoreDamaged(JobError):
    """The file of tasks is damaged, or lacks tables that it must have; nothing about tasks is known."""

    exit_code = 2

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(
            f"{path}: {detail}: restore it from a backup, or stop the service and run `weft rebuild "
            f"{quote(str(path.parent))}`, which makes a new one of the crawls that the engine has"
        )
        self.path = path


class EngineAway(JobError):
    """The engine does not answer; it is restarting."""

    def __init__(self, why: str, retry_after_s: float = 2.0) -> None:
        super().__init__(f"the engine does not answer now: {why}")
        self.retry_after_s = retry_after_s


class LeaseLost(JobError):
    """A step of a runner that has lost its lease was refused."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"the runner of epoch {epoch} has been replaced")
        self.epoch = epoch

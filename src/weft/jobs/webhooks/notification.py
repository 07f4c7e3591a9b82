"""One event of a task for its webhook, with everything that a body may contain, whatever its format."""

from __future__ import annotations

from msgspec import Struct

from weft.jobs.model import Task
from weft.jobs.service import ScrapedResult
from weft.jobs.sites.changes import ChangeReport
from weft.jobs.webhooks.webhook_model import HookSpec, event_id
from weft.scraping import HookEvent


class Notification(Struct, frozen=True, kw_only=True):
    """One event of a task for its webhook."""

    task: Task
    hook_spec: HookSpec
    event: HookEvent
    number: int
    at: float
    result: ScrapedResult | None = None  # for a page
    changes: ChangeReport | None = None  # for the end of a site's run

    @property
    def id(self) -> str:
        """The delivery's id: the same for every attempt."""
        return event_id(self.task.id, self.number)

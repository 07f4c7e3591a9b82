"""One event of a webhook with all that a body may need, whatever its form."""

from __future__ import annotations

from msgspec import Struct

from weft.jobs.model import Task
from weft.jobs.service import ScrapedResult
from weft.jobs.sites.changes import ChangeReport
from weft.jobs.webhooks.webhook_model import HookOrder, event_id
from weft.scraping import HookEvent


class Telling(Struct, frozen=True, kw_only=True):
    """One event, with all that a body may need."""

    task: Task
    order: HookOrder
    event: HookEvent
    number: int
    at: float
    result: ScrapedResult | None = None  # of a page
    changes: ChangeReport | None = None  # at the end of a site's run

    @property
    def id(self) -> str:
        """The same for every attempt."""
        return event_id(self.task.id, self.number)

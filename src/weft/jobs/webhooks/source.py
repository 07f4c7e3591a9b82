"""Reads the undelivered events of a webhook: from its task's row, and from the task's rows in the engine's index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from weft.engine.model import CrawlEvent
from weft.jobs.model import Task, error_class
from weft.jobs.reading.documents import Documents
from weft.jobs.reading.index import IndexReaders
from weft.jobs.reading.results import result_of
from weft.jobs.sites.site_model import KIND as SITE
from weft.jobs.store.sqlite_sites import SqliteSites
from weft.jobs.webhooks.notification import Notification
from weft.jobs.webhooks.webhook_model import END, ENDS, STARTED, Hook, HookSpec, end_number
from weft.scraping import HookEvent

AT_ONCE = 20  # pages that are read and rendered together


class EventBatch(Struct, frozen=True):
    """The next events of a hook, in order."""

    notifications: tuple[Notification, ...]
    upto: int  # the number up to which events were read: those not in `notifications` are not wanted
    is_last: bool = False  # there are no events after these
    again: tuple[int, ...] = ()  # these are numbers to be sent again, instead of the events after the cursor


class DeliverySource:
    """Reads for one dispatcher, on one thread."""

    def __init__(self, engine_dir: Path, sites: SqliteSites) -> None:
        self._index = IndexReaders(engine_dir, "webhooks")
        self._sites = sites
        self._documents = Documents()

    async def close(self) -> None:
        """Ends its thread and its parser process."""
        await self._index.run(self._documents.close)
        self._index.close()

    async def next(self, task: Task, hook_spec: HookSpec, hook: Hook) -> EventBatch:
        """The next events of a hook."""
        return await self._index.run(lambda: self._next(task, hook_spec, hook))

    def _next(self, task: Task, hook_spec: HookSpec, hook: Hook) -> EventBatch:
        """The next events after a hook's cursor, or those to be sent again. `task` must be read before the index: an
        end that it does not have yet is in a later batch."""
        if hook.resend:
            numbers = hook.resend[:AT_ONCE]
            return EventBatch(
                tuple(self._notifications_to_repeat(task, hook_spec, numbers)), hook.cursor, again=numbers
            )
        if hook.cursor < STARTED:
            is_wanted = task.started_at is not None and HookEvent.STARTED in hook_spec.events
            return EventBatch((self._start_notification(task, hook_spec),) if is_wanted else (), STARTED)
        events, upto, is_all = self._page_events(task, hook.cursor)
        wanted = events if HookEvent.PAGE in hook_spec.events else []
        notifications = tuple(self._page_notifications(task, hook_spec, wanted))
        if not is_all or not task.is_terminal or self._is_reported_later(task):
            return EventBatch(notifications, upto)
        if hook.cursor < END and ENDS[task.state] in hook_spec.events:
            notifications = (*notifications, self._end_notification(task, hook_spec))
        return EventBatch(notifications, END, is_last=True)

    def _page_events(self, task: Task, after: int) -> tuple[list[CrawlEvent], int, bool]:
        """Some page events after a number, the number up to which was read, and whether these are all for now."""
        if task.started_at is None:
            return [], after, True
        reader = self._index.reader
        crawl = reader.crawl_named(task.id)
        if crawl is None:
            return [], after, True
        events: list[CrawlEvent] = []
        for event in reader.events(crawl, task.id, after):
            if task.last_number and event.number >= task.last_number:
                break
            if _is_page(event):
                if len(events) == AT_ONCE:
                    return events, after, False
                events.append(event)
            after = event.number
        return events, after, True

    def _page_notifications(
        self, task: Task, hook_spec: HookSpec, events: Sequence[CrawlEvent]
    ) -> Iterator[Notification]:
        if not events:
            return
        reader = self._index.reader
        crawl = reader.crawl_named(task.id)
        rows = [(event.number, None if crawl is None else reader.row(crawl, event.number)) for event in events]
        pages = [reader.read_page_even_damaged(number, row) for number, row in rows if row is not None]
        documents = dict(zip((page.number for page in pages), self._documents(pages, task.spec), strict=True))
        for page in pages:
            yield Notification(
                task=task, hook_spec=hook_spec, event=HookEvent.PAGE, number=page.number, at=page.row.fetched_at,
                result=result_of(page, documents[page.number]),
            )  # fmt: skip

    def _notifications_to_repeat(
        self, task: Task, hook_spec: HookSpec, numbers: Sequence[int]
    ) -> Iterator[Notification]:
        reader = self._index.reader
        crawl = reader.crawl_named(task.id)
        for number in numbers:
            if number == STARTED:
                yield self._start_notification(task, hook_spec)
            elif task.is_terminal and number == end_number(task):
                yield self._end_notification(task, hook_spec)
            elif crawl is not None:
                events = [one for one in reader.some_events(crawl, task.id, number - 1)[:1] if one.number == number]
                yield from self._page_notifications(task, hook_spec, [one for one in events if _is_page(one)])

    def _start_notification(self, task: Task, hook_spec: HookSpec) -> Notification:
        at = task.started_at or task.created_at
        return Notification(task=task, hook_spec=hook_spec, event=HookEvent.STARTED, number=STARTED, at=at)

    def _is_reported_later(self, task: Task) -> bool:
        """Whether the site's change report is still being made: it is sent with the end."""
        site = self._sites.all().get(task.spec.extra["site"]) if task.spec.kind == SITE else None
        return site is not None and site.task == task.id

    def _end_notification(self, task: Task, hook_spec: HookSpec) -> Notification:
        at = task.finished_at or 0.0
        report = self._sites.report(task.id) if task.spec.kind == SITE else None
        return Notification(
            task=task, hook_spec=hook_spec, event=ENDS[task.state], number=end_number(task), at=at, changes=report
        )  # fmt: skip


def _is_page(event: CrawlEvent) -> bool:
    """Whether an event is a page that was read; pages unchanged since an earlier run are not sent."""
    return event.kind == "page" and event.status != 304 and error_class(event.status, event.error) is None

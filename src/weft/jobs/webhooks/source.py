"""What a hook has still to tell, read from where it is stored: a task's row, and its rows in the engine's index."""

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
from weft.jobs.webhooks.notification import Telling
from weft.jobs.webhooks.webhook_model import END, ENDS, STARTED, Hook, HookOrder, end_number
from weft.scraping import HookEvent

AT_ONCE = 20  # pages that are read and rendered together


class Stretch(Struct, frozen=True):
    """What comes next, in order."""

    told: tuple[Telling, ...]
    upto: int  # how far has been looked: what is not told up to there is not wanted
    is_last: bool = False  # nothing comes behind it
    again: tuple[int, ...] = ()  # instead of what lies behind the cursor: numbers to be sent once more


class DeliverySource:
    """Reads for one dispatcher, on one thread."""

    def __init__(self, engine_dir: Path, sites: SqliteSites) -> None:
        self._index = IndexReaders(engine_dir, "webhooks")
        self._sites = sites
        self._documents = Documents()

    async def close(self) -> None:
        """Ends its thread and its parser child."""
        await self._index.run(self._documents.close)
        self._index.close()

    async def next(self, task: Task, order: HookOrder, hook: Hook) -> Stretch:
        """What a hook has to tell next."""
        return await self._index.run(lambda: self._next(task, order, hook))

    def _next(self, task: Task, order: HookOrder, hook: Hook) -> Stretch:
        """The next few events behind a hook's cursor, or those that are to be sent again. `task` must be read first: an
        end that it does not know of yet comes with a later look."""
        if hook.resend:
            numbers = hook.resend[:AT_ONCE]
            return Stretch(tuple(self._again(task, order, numbers)), hook.cursor, again=numbers)
        if hook.cursor < STARTED:
            is_wanted = task.started_at is not None and HookEvent.STARTED in order.events
            return Stretch((self._started(task, order),) if is_wanted else (), STARTED)
        events, upto, is_all = self._pages(task, hook.cursor)
        wanted = events if HookEvent.PAGE in order.events else []
        told = tuple(self._of_pages(task, order, wanted))
        if not is_all or not task.is_terminal or self._is_reported_later(task):
            return Stretch(told, upto)
        if hook.cursor < END and ENDS[task.state] in order.events:
            told = (*told, self._ended(task, order))
        return Stretch(told, END, is_last=True)

    def _pages(self, task: Task, after: int) -> tuple[list[CrawlEvent], int, bool]:
        """Some page events behind a number, how far was looked, and whether that was all there is now."""
        if task.started_at is None:
            return [], after, True
        reader = self._index.reader
        crawl = reader.crawl_named(task.id)
        if crawl is None:
            return [], after, True
        found: list[CrawlEvent] = []
        for event in reader.events(crawl, task.id, after):
            if task.last_number and event.number >= task.last_number:
                break
            if _is_page(event):
                if len(found) == AT_ONCE:
                    return found, after, False
                found.append(event)
            after = event.number
        return found, after, True

    def _of_pages(self, task: Task, order: HookOrder, events: Sequence[CrawlEvent]) -> Iterator[Telling]:
        if not events:
            return
        reader = self._index.reader
        crawl = reader.crawl_named(task.id)
        rows = [(event.number, None if crawl is None else reader.row(crawl, event.number)) for event in events]
        pages = [reader.read_even_damaged(number, row) for number, row in rows if row is not None]
        documents = dict(zip((page.number for page in pages), self._documents(pages, task.spec), strict=True))
        for page in pages:
            yield Telling(
                task=task, order=order, event=HookEvent.PAGE, number=page.number, at=page.row.fetched_at,
                result=result_of(page, documents[page.number]),
            )  # fmt: skip

    def _again(self, task: Task, order: HookOrder, numbers: Sequence[int]) -> Iterator[Telling]:
        reader = self._index.reader
        crawl = reader.crawl_named(task.id)
        for number in numbers:
            if number == STARTED:
                yield self._started(task, order)
            elif task.is_terminal and number == end_number(task):
                yield self._ended(task, order)
            elif crawl is not None:
                events = [one for one in reader.some(crawl, task.id, number - 1)[:1] if one.number == number]
                yield from self._of_pages(task, order, [one for one in events if _is_page(one)])

    def _started(self, task: Task, order: HookOrder) -> Telling:
        at = task.started_at or task.created_at
        return Telling(task=task, order=order, event=HookEvent.STARTED, number=STARTED, at=at)

    def _is_reported_later(self, task: Task) -> bool:
        """Whether its report is still being made: it is told with the end."""
        site = self._sites.all().get(task.spec.extra["site"]) if task.spec.kind == SITE else None
        return site is not None and site.task == task.id

    def _ended(self, task: Task, order: HookOrder) -> Telling:
        at = task.finished_at or 0.0
        report = self._sites.report(task.id) if task.spec.kind == SITE else None
        return Telling(
            task=task, order=order, event=ENDS[task.state], number=end_number(task), at=at, changes=report
        )  # fmt: skip


def _is_page(event: CrawlEvent) -> bool:
    """A page that was read: of one that has not changed since an earlier run there is nothing to tell."""
    return event.kind == "page" and event.status != 304 and error_class(event.status, event.error) is None

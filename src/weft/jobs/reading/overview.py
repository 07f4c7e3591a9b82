"""What people look at: which tasks there are, what runs at this moment, what a task did last and over time.

For front doors that show, like the dashboard: everything here reads, is bounded, and is read on a thread of its own, so
that somebody who looks holds up nobody who works.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

from weft.engine.model import CrawlSnapshot
from weft.engine.process.channel import Gone
from weft.engine.process.link import EngineLink
from weft.engine.stored.reader import READ_AT_ONCE
from weft.jobs.crawls import status_of
from weft.jobs.model import UrlOutcome, outcome
from weft.jobs.reading.events import job_event
from weft.jobs.reading.index import IndexReaders
from weft.jobs.service import JobEvent, Latest, Second, TaskSnapshot, Timeline
from weft.jobs.store.contract import Listing
from weft.jobs.store.sqlite import SqliteJobStore
from weft.scraping import TaskState

ENGINE_S = 1.0  # an engine that takes longer is shown as it was
ROWS_AT_ONCE = 20_000  # of a timeline
LOOKED_AT = 10_000  # events that are searched for those of some kinds, before the reader must ask again


class Overview:
    """Looks at store, engine and index for one worker."""

    def __init__(self, store: SqliteJobStore, engine: EngineLink, engine_dir: Path, clock: Callable[[], float]) -> None:
        self._store = store
        self._engine = engine
        self._clock = clock
        self._index = IndexReaders(engine_dir, "overview")
        self._standings: dict[str, CrawlSnapshot] = {}  # as the engine has told them last

    def close(self) -> None:
        """Ends its thread."""
        self._index.close()

    async def list(
        self, owner: str | None = None, *, states: Collection[TaskState] = (), cursor: str | None = None,
        limit: int = 50, text: str = "", host: str = "",
    ) -> Listing:  # fmt: skip
        """Tasks, newest first."""

        def look() -> Listing:
            return self._store.listing(owner=owner, states=states, cursor=cursor, limit=limit, text=text, host=host)

        # A search reads many records; a plain list is quicker than the way to another thread.
        return await self._index.run(look) if text or host else look()

    async def counts(self, owner: str | None = None) -> dict[str, int]:
        """Tasks by state."""
        found: Counter[str] = Counter()
        for (_, state), count in (await self._index.run(lambda: self._store.counts(owner))).items():
            found[str(state)] += count
        return dict(found)

    async def started(self) -> tuple[TaskSnapshot, ...]:
        """What runs, at one moment."""
        tasks = await self._index.run(self._store.started)
        if not tasks:
            return ()
        try:
            self._standings = await self._engine.standings([task.id for task in tasks], ENGINE_S)
        except Gone:
            pass  # it is being started again: what was known is what there is
        now = self._clock()
        return tuple(status_of(task, self._standings.get(task.id), now) for task in tasks)

    async def latest(
        self, task_id: str, owner: str | None = None, *, before: int | None = None, limit: int = 50,
        kinds: Collection[str] = (), error_class: str = "",
    ) -> Latest:  # fmt: skip
        """What happened to a task last."""
        self._store.task(task_id, owner)
        return await self._index.run(lambda: self._latest(task_id, before, limit, kinds, error_class))

    def _latest(self, task_id: str, before: int | None, limit: int, kinds: Collection[str], error_class: str) -> Latest:
        reader = self._index.reader
        crawl = reader.crawl_named(task_id)
        if crawl is None:
            return Latest((), None)
        top = reader.last_number(crawl) if before is None else before - 1
        lowest, found = max(0, top - LOOKED_AT), list[JobEvent]()
        while top > lowest and len(found) < limit:
            bottom = max(0, top - READ_AT_ONCE)
            events = map(job_event, reader.some(crawl, task_id, bottom))
            found += [
                event
                for event in reversed([one for one in events if (one.number or 0) <= top])
                if event.kind in (kinds or ("state", "page", "error"))
                and error_class in ("", event.data.get("error_class"))
            ]
            top = bottom
        if len(found) > limit:
            return Latest(tuple(found[:limit]), found[limit - 1].number)
        return Latest(tuple(found), top + 1 if top else None)

    async def timeline(self, task_id: str, owner: str | None = None, *, after: int = 0) -> Timeline:
        """What a task did over time."""
        self._store.task(task_id, owner)
        return await self._index.run(lambda: self._timeline(task_id, after))

    def _timeline(self, task_id: str, after: int) -> Timeline:
        reader = self._index.reader
        crawl = reader.crawl_named(task_id)
        if crawl is None:
            return Timeline((), after, True)
        last = reader.last_number(crawl)
        upto = min(last, after + ROWS_AT_ONCE)
        seconds: dict[int, list[int]] = {}
        for at, status, error, rows, size in reader.timeline(crawl, after, upto):
            counts, what = seconds.setdefault(at, [0, 0, 0]), outcome(status, error)
            counts[0] += rows if what is UrlOutcome.COMPLETED else 0
            counts[1] += rows if what is UrlOutcome.FAILED else 0
            counts[2] += size
        found = tuple(Second(at, *counts) for at, counts in sorted(seconds.items()))
        return Timeline(found, upto, upto == last)

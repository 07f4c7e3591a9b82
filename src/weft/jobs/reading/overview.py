"""Overviews for people: the list of tasks, what runs now, the latest events of a task and its timeline.

For interfaces such as the dashboard: all reads are bounded, and run on a thread of their own, so that they do not delay
the service's work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

from weft.engine.model import CrawlSnapshot
from weft.engine.process.channel import EngineGone
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

ENGINE_S = 1.0  # an engine that takes longer: its last known snapshots are shown
ROWS_AT_ONCE = 20_000  # rows of a timeline that are read at a time
SEARCHED = 10_000  # events that are searched for the wanted kinds before the caller must ask again


class Overview:
    """Reads store, engine and index for one worker."""

    def __init__(self, store: SqliteJobStore, engine: EngineLink, engine_dir: Path, clock: Callable[[], float]) -> None:
        self._store = store
        self._engine = engine
        self._clock = clock
        self._index = IndexReaders(engine_dir, "overview")
        self._snapshots: dict[str, CrawlSnapshot] = {}  # as last received from the engine

    def close(self) -> None:
        """Ends its thread."""
        self._index.close()

    async def list(
        self, owner: str | None = None, *, states: Collection[TaskState] = (), cursor: str | None = None,
        limit: int = 50, text: str = "", host: str = "",
    ) -> Listing:  # fmt: skip
        """Tasks, newest first; see `JobService.list`."""

        def read() -> Listing:
            return self._store.listing(owner=owner, states=states, cursor=cursor, limit=limit, text=text, host=host)

        # A search reads many records; a plain list is faster than a switch to another thread.
        return await self._index.run(read) if text or host else read()

    async def counts(self, owner: str | None = None) -> dict[str, int]:
        """Tasks by state."""
        counts: Counter[str] = Counter()
        for (_, state), count in (await self._index.run(lambda: self._store.counts(owner))).items():
            counts[str(state)] += count
        return dict(counts)

    async def started(self) -> tuple[TaskSnapshot, ...]:
        """Every task that is RUNNING or PAUSED, at one moment."""
        tasks = await self._index.run(self._store.started)
        if not tasks:
            return ()
        try:
            self._snapshots = await self._engine.standings([task.id for task in tasks], ENGINE_S)
        except EngineGone:
            pass  # it is restarting: use the last known snapshots
        now = self._clock()
        return tuple(status_of(task, self._snapshots.get(task.id), now) for task in tasks)

    async def latest(
        self, task_id: str, owner: str | None = None, *, before: int | None = None, limit: int = 50,
        kinds: Collection[str] = (), error_class: str = "",
    ) -> Latest:  # fmt: skip
        """The latest events of a task; see `JobService.latest`."""
        self._store.task(task_id, owner)
        return await self._index.run(lambda: self._read_latest(task_id, before, limit, kinds, error_class))

    def _read_latest(
        self, task_id: str, before: int | None, limit: int, kinds: Collection[str], error_class: str
    ) -> Latest:
        reader = self._index.reader
        crawl = reader.crawl_named(task_id)
        if crawl is None:
            return Latest((), None)
        top = reader.last_number(crawl) if before is None else before - 1
        lowest, latest = max(0, top - SEARCHED), list[JobEvent]()
        while top > lowest and len(latest) < limit:
            bottom = max(0, top - READ_AT_ONCE)
            events = map(job_event, reader.some_events(crawl, task_id, bottom))
            latest += [
                event
                for event in reversed([one for one in events if (one.number or 0) <= top])
                if event.kind in (kinds or ("state", "page", "error"))
                and error_class in ("", event.data.get("error_class"))
            ]
            top = bottom
        if len(latest) > limit:
            return Latest(tuple(latest[:limit]), latest[limit - 1].number)
        return Latest(tuple(latest), top + 1 if top else None)

    async def timeline(self, task_id: str, owner: str | None = None, *, after: int = 0) -> Timeline:
        """What a task did in each second; see `JobService.timeline`."""
        self._store.task(task_id, owner)
        return await self._index.run(lambda: self._read_timeline(task_id, after))

    def _read_timeline(self, task_id: str, after: int) -> Timeline:
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
        timeline = tuple(Second(at, *counts) for at, counts in sorted(seconds.items()))
        return Timeline(timeline, upto, upto == last)

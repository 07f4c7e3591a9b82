"""The events of tasks, read from the engine's numbered rows as they are committed.

The engine notifies of a commit; the index then lists the crawls with new rows, and each reader of such a crawl
continues after the number that it has. No state is kept: numbers are the engine's, so a reader can continue in another
worker, or after a restart. `hub.py` has one reader for all watchers of a task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from weft.engine.model import CrawlEvent, CrawlSnapshot, CrawlState
from weft.engine.process.channel import EngineGone
from weft.engine.process.link import EngineLink
from weft.engine.stored.reader import READ_AT_ONCE
from weft.errors import WeftError
from weft.jobs.crawls import progress_of, waiting
from weft.jobs.model import Task, error_class, error_text, waiting_text
from weft.jobs.reading.index import IndexReaders
from weft.jobs.service import JobEvent
from weft.jobs.store.sqlite import SqliteJobStore
from weft.scraping import TaskState
from weft.store.export.facts import iso_time
from weft.telemetry import Log

LEAST_S = 0.05  # shortest interval between two reads of the index
PROGRESS_S = 0.5
WAITING_S = 0.1  # interval for tasks that the engine does not know yet, or no longer
LONGEST_S = 15.0  # a reader polls by itself when there was no notification for this long
log = Log("weft.jobs.reading.events")
_STATES = {CrawlState.RUNNING: TaskState.RUNNING, CrawlState.PAUSED: TaskState.PAUSED}


class _FollowedTask:
    """A task with at least one reader."""

    def __init__(self, crawl: int) -> None:
        self.crawl = crawl
        self.readers = 0
        self.last = 0  # number of the last known event in the index
        self.progress: JobEvent | None = None
        self.changed = asyncio.Event()  # set and replaced at each change
        self.task: Task | None = None  # as the store had it at `read_at` (monotonic)
        self.read_at = float("-inf")

    def notify(self) -> None:
        """Wakes all waiting readers."""
        self.changed.set()
        self.changed = asyncio.Event()


class TaskEvents:
    """Reads events in one worker."""

    def __init__(self, store: SqliteJobStore, engine: EngineLink, engine_dir: Path) -> None:
        self._store = store
        self._engine = engine
        self._index = IndexReaders(engine_dir, "events")
        self._followed: dict[str, _FollowedTask] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closed = False

    def start(self) -> None:
        """Starts to follow the index and the progress."""
        self._tasks = [asyncio.create_task(self._follow_index()), asyncio.create_task(self._follow_progress())]

    async def close(self) -> None:
        """Ends every reader."""
        self._is_closed = True
        for one in self._followed.values():
            one.notify()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._index.close(wait=False)

    # ── for a reader ───────────────────────────────────────────────────────────────────────────────────────────────

    async def stored(self, task_id: str, owner: str | None = None, *, after: int = 0) -> Sequence[JobEvent]:
        """Some of a task's stored events after a number."""
        self._store.task(task_id, owner)
        crawl = await self._index.run(lambda: self._index.reader.crawl_named(task_id))
        return [] if crawl is None else await self._some_events(crawl, task_id, after)

    async def events(self, task_id: str, owner: str | None = None, *, after: int = 0) -> AsyncIterator[JobEvent]:
        """A task's events after a number, to its end: see `JobService.events`."""
        wait_s = WAITING_S
        now: Task | None = self._store.task(task_id, owner)
        if now is not None and now.state is TaskState.PENDING and not after:
            yield JobEvent(
                kind="state", number=None, at=now.created_at, data={"state": "PENDING", "finish_reason": None}
            )
        while now is not None and not self._is_closed:
            if now.state is not TaskState.PENDING:
                crawl = await self._index.run(lambda: self._index.reader.crawl_named(task_id))
                if crawl is not None:
                    async with aclosing(self._events_of_crawl(task_id, crawl, after)) as events:
                        async for event in events:
                            yield event
                    return
                if now.is_terminal:
                    if after < _last_number(now):
                        yield _end_event(now)
                    return
            await asyncio.sleep(wait_s)
            wait_s = min(1.0, 1.2 * wait_s)
            now = self._store.get(task_id)

    async def _events_of_crawl(self, task_id: str, crawl: int, after: int) -> AsyncGenerator[JobEvent, None]:
        followed = self._followed.setdefault(task_id, _FollowedTask(crawl))
        followed.readers += 1
        sent: JobEvent | None = None
        given, has_ended = after, False
        try:
            while not self._is_closed:
                changed, task = followed.changed, self._task(followed, task_id)
                # read before the index: if it is terminal no more rows will come
                is_last = task is None or task.is_terminal
                while is_last or not 0 < followed.last <= after:
                    some = await self._some_events(crawl, task_id, after)
                    for event in some:
                        after = event.number or after
                        has_ended = has_ended or "ended" in event.data
                        if event.kind != "hidden":
                            yield event
                    if len(some) < READ_AT_ONCE:
                        followed.last = max(followed.last, after if some else 0)
                        break
                if task is None:
                    return
                if task.is_terminal:
                    if given < _last_number(task):
                        yield _end_event(task)
                    return
                if followed.progress is not None and followed.progress is not sent:
                    sent = followed.progress
                    yield sent
                await _wait_for_change(changed, WAITING_S if has_ended else LONGEST_S)
        finally:
            followed.readers -= 1
            if not followed.readers:
                self._followed.pop(task_id, None)

    def _task(self, followed: _FollowedTask, task_id: str) -> Task | None:
        """The task as read from the store a moment ago, cached for many callers."""
        if time.monotonic() - followed.read_at > LEAST_S:
            followed.read_at, followed.task = time.monotonic(), self._store.get(task_id)
        return followed.task

    async def _some_events(self, crawl: int, task_id: str, after: int) -> list[JobEvent]:
        return await self._index.run(
            lambda: [job_event(one) for one in self._index.reader.some_events(crawl, task_id, after)]
        )

    # ── new events ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _follow_index(self) -> None:
        batch: int | None = None
        async for _ in self._engine.notices():
            try:
                batch = await self._poll_index(batch)
            except WeftError as error:
                log.error("the index cannot be read", error=error)
                await asyncio.sleep(PROGRESS_S)
            await asyncio.sleep(LEAST_S)

    async def _poll_index(self, batch: int | None) -> int:
        if batch is None:
            return await self._index.run(lambda: self._index.reader.last_batch())
        before = batch
        last, news = await self._index.run(lambda: self._index.reader.commits_after(before))
        for one in self._followed.values():
            if one.crawl in news:
                one.last = max(one.last, news[one.crawl])
                one.notify()
        return last

    async def _follow_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            if not self._followed:
                continue
            for name, one in self._followed.items():
                if (task := self._task(one, name)) is None or task.is_terminal:
                    one.notify()
            try:
                snapshots = await self._engine.standings(list(self._followed))
            except (EngineGone, WeftError):
                continue
            for name, snapshot in snapshots.items():
                if name in self._followed and snapshot.state is not CrawlState.ENDED:
                    self._put_progress(self._followed[name], snapshot, self._task(self._followed[name], name))

    def _put_progress(self, followed: _FollowedTask, snapshot: CrawlSnapshot, task: Task | None) -> None:
        if task is None:
            return
        data = progress_data(task, snapshot)
        if followed.progress is None or followed.progress.data != data:
            followed.progress = JobEvent(kind="progress", number=None, at=time.time(), data=data)
            followed.notify()


async def _wait_for_change(changed: asyncio.Event, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await changed.wait()
    except TimeoutError:
        pass


def progress_data(task: Task, snapshot: CrawlSnapshot) -> dict[str, Any]:
    """The data of a progress event."""
    progress, classes = progress_of(snapshot)
    waiting_for, waiting_until = waiting(task, snapshot)
    return {
        "state": str(task.state),
        "message": waiting_text(task, waiting_for, waiting_until),
        "waiting_for": waiting_for or None,
        "waiting_until": None if waiting_until is None else iso_time(waiting_until),
        **progress.counts(task.spec.max_pages),
        "success_rate": progress.success_rate,
        "errors_by_class": classes,
        "pages_per_second": round(snapshot.rate, 2),
    }


def _last_number(task: Task) -> int:
    """The number of a terminal task's last event: 1 if it never ran."""
    return max(1, task.last_number)


def _end_event(task: Task) -> JobEvent:
    data = {"state": str(task.state), "finish_reason": str(task.finish_reason), "message": task.message}
    return JobEvent(kind="state", number=_last_number(task), at=task.finished_at or 0.0, data=data)


def job_event(event: CrawlEvent) -> JobEvent:
    """Converts an engine's event into a task's; events of kind `hidden` have a number, and nothing for callers."""
    data: dict[str, Any]
    if event.kind == "state":
        state = _STATES.get(event.state) if event.state is not None else None
        kind, data = ("state", {"state": str(state), "finish_reason": None}) if state else ("hidden", {})
        if event.state is CrawlState.ENDED:
            data = {"ended": True}  # the task's own final event has more data, under this number
    elif event.kind == "redirect":
        kind, data = "hidden", {}
    else:
        data = {"url": event.url, "status": event.status, "depth": event.depth}
        what = error_class(event.status, event.error)
        if what is None:
            kind, data = "page", data | {"title": event.title, "length": event.length}
        else:
            text = error_text(event.status, event.error)
            kind, data = "error", data | {"error": text, "error_class": str(what)}
    return JobEvent(kind=kind, number=event.number, at=event.at, data=data)

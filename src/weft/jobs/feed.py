"""The events of tasks, for any number of readers in one worker: read once from the index, handed to all who follow.

The engine says that something was committed; one thread then asks the index which crawls have news, and reads those
that somebody follows. A reader that fell behind what is kept in memory reads from the index itself. Numbers are the
engine's, so that a reader goes on in another worker, or after a restart, where it was.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from weft.engine.channel import Gone
from weft.engine.link import EngineLink
from weft.engine.model import Event, Standing, State
from weft.engine.reader import READ_AT_ONCE, Reader
from weft.errors import BadInput, WeftError
from weft.jobs.crawls import progress_of, waiting
from weft.jobs.errors import EngineAway
from weft.jobs.model import Task, error_class, error_text, waiting_text
from weft.jobs.service import JobEvent
from weft.jobs.store.contract import JobStore
from weft.scraping import TaskState
from weft.store.export.facts import iso
from weft.telemetry import Log

KEPT = 1000  # events of a task that are kept for those who follow it
LEAST_S = 0.05  # between two looks at the index
PROGRESS_S = 0.5
WAITING_S = 0.1  # between two looks at tasks that the engine does not know yet, or any more
LONGEST_S = 15.0  # a reader looks for itself when nothing was heard for so long
log = Log("weft.jobs.feed")
_T = TypeVar("_T")
_STATES = {State.RUNNING: TaskState.RUNNING, State.PAUSED: TaskState.PAUSED}


class Feed:
    """What is new of one task, for those who follow it."""

    def __init__(self, crawl: int) -> None:
        self.crawl = crawl
        self.readers = 0
        self.last = 0  # the number of the last event in the index, as far as is known
        self.kept: deque[JobEvent] = deque(maxlen=KEPT)  # without a gap, up to `upto`
        self.since = self.upto = 0  # what `kept` covers: numbers above `since`, up to and with `upto`
        self.progress: JobEvent | None = None
        self.changed = asyncio.Event()  # set and replaced at each change
        self.task: Task | None = None  # as the store had it at `looked_at` (monotonic)
        self.looked_at = float("-inf")

    def notify(self) -> None:
        """Wakes all who wait."""
        self.changed.set()
        self.changed = asyncio.Event()


class Feeds:
    """All that is followed in one worker."""

    def __init__(self, store: JobStore, engine: EngineLink, engine_dir: Path) -> None:
        self._store = store
        self._engine = engine
        self._engine_dir = engine_dir
        self._thread = ThreadPoolExecutor(1, "feed")
        self._reader: Reader | None = None
        self._feeds: dict[str, Feed] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closed = False

    def start(self) -> None:
        """Begins to look for news."""
        self._tasks = [asyncio.create_task(self._follow_index()), asyncio.create_task(self._follow_progress())]

    async def close(self) -> None:
        """Ends every stream."""
        self._is_closed = True
        for feed in self._feeds.values():
            feed.notify()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._thread.shutdown(wait=False)

    # ── for a reader ───────────────────────────────────────────────────────────────────────────────────────────────

    async def events(self, task: Task, after: int) -> AsyncGenerator[JobEvent, None]:
        """A task's events behind a number, to its end: see `JobService.events`."""
        wait_s, now = WAITING_S, self._store.get(task.id)
        if now is not None and now.state is TaskState.PENDING and not after:
            yield JobEvent(
                kind="state", number=None, at=now.created_at, data={"state": "PENDING", "finish_reason": None}
            )
        while now is not None and not self._is_closed:
            if now.state is not TaskState.PENDING:
                crawl = await self._on_thread(lambda reader: reader.crawl_named(task.id))
                if crawl is not None:
                    async for event in self._of_crawl(task.id, crawl, after):
                        yield event
                    return
                if now.is_terminal:
                    if after < _last_number(now):
                        yield _ended(now)
                    return
            await asyncio.sleep(wait_s)
            wait_s = min(1.0, 1.2 * wait_s)
            now = self._store.get(task.id)

    async def _of_crawl(self, task_id: str, crawl: int, after: int) -> AsyncIterator[JobEvent]:
        feed = self._feeds.setdefault(task_id, Feed(crawl))
        feed.readers += 1
        shown: JobEvent | None = None
        given, has_ended = after, False
        try:
            while not self._is_closed:
                changed, task = feed.changed, self._task(feed, task_id)
                is_last = task is None or task.is_terminal
                async for event in self._behind(feed, task_id, after, is_last):
                    after = event.number or after
                    has_ended = has_ended or "ended" in event.data
                    if event.kind != "hidden":
                        yield event
                if task is None:
                    return
                if task.is_terminal:  # it was before the index was read, so nothing more will come
                    if given < _last_number(task):
                        yield _ended(task)
                    return
                if feed.progress is not None and feed.progress is not shown:
                    shown = feed.progress
                    yield shown
                await _wait(changed, WAITING_S if has_ended else LONGEST_S)
        finally:
            feed.readers -= 1
            if not feed.readers:
                self._feeds.pop(task_id, None)

    def _task(self, feed: Feed, task_id: str) -> Task | None:
        """The task, as the store had it a moment ago: many may ask at once."""
        if time.monotonic() - feed.looked_at > LEAST_S:
            feed.looked_at, feed.task = time.monotonic(), self._store.get(task_id)
        return feed.task

    async def _behind(self, feed: Feed, task_id: str, after: int, is_last: bool) -> AsyncIterator[JobEvent]:
        """What there is behind a number: from memory where that has it all, else from the index.

        `is_last`: nobody looks again, so it must be all that there is now, and not all that was heard of.
        """
        while is_last or not 0 < feed.last <= after:
            if feed.kept and feed.since <= after and not is_last:
                for event in [one for one in feed.kept if (one.number or 0) > after]:
                    yield event
                return
            found = await self._some(feed.crawl, task_id, after)
            for one in found:
                yield job_event(one)
            if len(found) < READ_AT_ONCE:
                feed.last = max(feed.last, found[-1].number if found else 0)
                return
            after = found[-1].number

    async def _some(self, crawl: int, task_id: str, after: int) -> list[Event]:
        return await self._on_thread(lambda reader: reader.some(crawl, task_id, after))

    # ── looking for news ───────────────────────────────────────────────────────────────────────────────────────────

    async def _follow_index(self) -> None:
        batch: int | None = None
        async for _ in self._engine.notices():
            try:
                batch = await self._look(batch)
            except WeftError as error:
                log.error("the index cannot be read", error=error)
                await asyncio.sleep(PROGRESS_S)
            await asyncio.sleep(LEAST_S)

    async def _look(self, batch: int | None) -> int:
        if batch is None:
            return await self._on_thread(lambda reader: reader.last_batch())
        before = batch
        last, news = await self._on_thread(lambda reader: reader.news(before))
        for task_id, feed in list(self._feeds.items()):
            if feed.crawl in news:
                await self._read(task_id, feed, news[feed.crawl])
        return last

    async def _read(self, task_id: str, feed: Feed, last: int) -> None:
        """Adds what is new of a task to what is kept of it."""
        if not feed.upto:
            feed.since = feed.upto = last - 1 if last else 0
        while feed.upto < last:
            found = await self._some(feed.crawl, task_id, feed.upto)
            if not found:
                break
            if len(feed.kept) + len(found) > KEPT:
                gone = len(feed.kept) + len(found) - KEPT
                feed.since = feed.kept[gone - 1].number or 0 if gone <= len(feed.kept) else found[-KEPT].number - 1
            feed.kept.extend(job_event(one) for one in found)
            feed.upto = found[-1].number
        feed.last = max(feed.last, last)
        feed.notify()

    async def _follow_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            if not self._feeds:
                continue
            for name, feed in self._feeds.items():
                if (task := self._task(feed, name)) is None or task.is_terminal:
                    feed.notify()
            try:
                standings = await self._engine.standings(list(self._feeds))
            except (Gone, WeftError):
                continue
            for name, standing in standings.items():
                if name in self._feeds and standing.state is not State.ENDED:
                    self._put_progress(self._feeds[name], standing, self._task(self._feeds[name], name))

    def _put_progress(self, feed: Feed, standing: Standing, task: Task | None) -> None:
        if task is None:
            return
        data = progress_data(task, standing)
        if feed.progress is None or feed.progress.data != data:
            feed.progress = JobEvent(kind="progress", number=None, at=time.time(), data=data)
            feed.notify()

    async def _on_thread(self, look: Callable[[Reader], _T]) -> _T:
        def work() -> _T:
            if self._reader is None:
                self._reader = open_reader(self._engine_dir)
            return look(self._reader)

        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def open_reader(engine_dir: Path) -> Reader:
    """A reader of what the engine has stored; EngineAway before its first start."""
    try:
        return Reader(engine_dir)
    except BadInput as error:
        raise EngineAway(str(error)) from None


async def _wait(changed: asyncio.Event, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await changed.wait()
    except TimeoutError:
        pass


def progress_data(task: Task, standing: Standing) -> dict[str, Any]:
    """What a progress event says."""
    progress, classes = progress_of(standing)
    waiting_for, waiting_until = waiting(task, standing)
    counts = {name: getattr(progress, name) for name in progress.__struct_fields__}
    return {
        "state": str(task.state),
        "message": waiting_text(task, waiting_for, waiting_until),
        "waiting_for": waiting_for or None,
        "waiting_until": None if waiting_until is None else iso(waiting_until),
        "discovered": progress.discovered,
        **counts,
        "percent": progress.percent(task.spec.max_pages),
        "success_rate": progress.success_rate,
        "errors_by_class": classes,
        "pages_per_second": round(standing.rate, 2),
    }


def _last_number(task: Task) -> int:
    """The number of a terminal task's last event: one that never ran has that one alone."""
    return max(1, task.last_number)


def _ended(task: Task) -> JobEvent:
    data = {"state": str(task.state), "finish_reason": str(task.finish_reason), "message": task.message}
    return JobEvent(kind="state", number=_last_number(task), at=task.finished_at or 0.0, data=data)


def job_event(event: Event) -> JobEvent:
    """An engine's event as a task's; `hidden` ones have a number, and nothing that a caller wants to know."""
    data: dict[str, Any]
    if event.kind == "state":
        state = _STATES.get(event.state) if event.state is not None else None
        kind, data = ("state", {"state": str(state), "finish_reason": None}) if state else ("hidden", {})
        if event.state is State.ENDED:
            data = {"ended": True}  # the task's own end says more, and has this number
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

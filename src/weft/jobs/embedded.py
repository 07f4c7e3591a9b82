"""The scrape service on one machine: tasks in a SQLite file, all of them run by one engine in a process of its own.

Every worker process holds one of these (`open_service`); the runner in it works in the worker that has the lease. A
command is written to the store first and sent to the engine second: if the worker is killed in between, the runner
sends it. Only a cancel asks the engine first, because the engine has the task's final counts.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

import msgspec

from weft import urls as url_rules
from weft.config import ServiceConfig
from weft.engine.crawls.limits import check_email
from weft.engine.model import CrawlSnapshot, CrawlState
from weft.engine.process.channel import EngineGone
from weft.engine.process.link import EngineLink
from weft.errors import BadInput, DiskFull, WeftError
from weft.jobs.crawls import (
    check_login,
    check_proxies,
    check_rendering,
    check_workers,
    counted,
    crawl_settings,
    finish_of,
    finish_without,
    has_proxies,
    progress_of,
    proxies_of,
    status_of,
)
from weft.jobs.errors import EngineAway, TaskFinished
from weft.jobs.health import Monitor
from weft.jobs.layout import ENGINE, STORE, has_room
from weft.jobs.model import STARTED, Task, new_task_id
from weft.jobs.reading.documents import check_formats
from weft.jobs.reading.events import TaskEvents
from weft.jobs.reading.overview import Overview
from weft.jobs.reading.results import StoredResults
from weft.jobs.runner import ENGINE_S, JobRunner
from weft.jobs.service import Submission, TaskSnapshot
from weft.jobs.sites.registry import SiteRegistry
from weft.jobs.sites.scheduler import SiteScheduler
from weft.jobs.sites.site_model import SiteFile
from weft.jobs.sites.site_service import Sites
from weft.jobs.store.contract import Idempotency, Submitted, TaskFinish
from weft.jobs.store.sqlite import SqliteJobStore
from weft.jobs.targets import why_not_public
from weft.jobs.webhooks.dispatcher import Dispatcher
from weft.jobs.webhooks.webhook_service import Webhooks
from weft.scraping import FinishReason, TaskState

FRESH_S = 0.05  # The maximum age of a snapshot in an answer.
LOST_S = 5.0  # maximum age of the number of a task's lost pages
STATUS_S = 3.0  # The time that a status waits for an engine that restarts.


class EmbeddedJobService:
    """Implements `service.JobService`; see there."""

    def __init__(self, config: ServiceConfig, *, clock: Callable[[], float] = time.time) -> None:
        data_dir = Path(config.server.data_dir)
        self._config = config
        self._clock = clock
        self._engine_dir = data_dir / ENGINE
        self.store = SqliteJobStore(data_dir / STORE)
        self.engine = EngineLink(self._engine_dir)
        self._stored = StoredResults(self._engine_dir, self.store)
        self.results, self.records = self._stored.results, self._stored.records
        self.cursor_behind = self._stored.cursor_behind
        self._events = TaskEvents(self.store, self.engine, self._engine_dir)
        self.events, self.stored = self._events.events, self._events.stored
        holder = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        # A link of its own: while the runner waits for an engine it cannot check the deadlines of other tasks.
        self._runners_engine = EngineLink(self._engine_dir, patience_s=ENGINE_S)
        sites = SiteScheduler(
            self.store, self._runners_engine, self._engine_dir, has_proxies=partial(has_proxies, config), clock=clock
        )
        self.runner = JobRunner(
            self.store, self._runners_engine, config.jobs, holder, committed=self._committed_end, sites=sites.turn,
            proxies=proxies_of(config), clock=clock,
        )  # fmt: skip
        self.health = Monitor(self.store, self.engine, config, self._engine_dir, clock).health
        self._overview = overview = Overview(self.store, self.engine, self._engine_dir, clock)
        self.list, self.started, self.counts = overview.list, overview.started, overview.counts
        self.latest, self.timeline = overview.latest, overview.timeline
        self.webhooks = Webhooks(self.store, clock)
        registry = SiteRegistry(data_dir, clock=clock, store=self.store)
        self.sites = Sites(registry, self._check_site, self.runner.wake, clock)
        self._dispatcher = Dispatcher(
            self.store, self._engine_dir, config.fetch, lambda: self.runner.epoch, clock=clock
        )
        self._running: list[asyncio.Task[None]] = []
        self._snapshots: dict[str, tuple[float, asyncio.Future[CrawlSnapshot | None]]] = {}
        self._lost: dict[str, tuple[float, int]] = {}  # task → when it was read, and the number of its lost pages
        self._snapshots_seen: dict[str, CrawlSnapshot] = {}  # the last snapshot of each task that was returned

    async def start(self) -> None:
        """Starts this worker's part: its runner, which may get the lease, its webhooks and its event streams."""
        await asyncio.to_thread(self.store.sites.note_proxies, bool(proxies_of(self._config)))
        self._running = [
            asyncio.create_task(self._dispatcher.run(), name="webhooks"),
            asyncio.create_task(self.runner.run(), name="runner"),
        ]
        self._events.start()

    async def close(self) -> None:
        """Stops the runner, the webhooks and the event streams, and closes the store."""
        await self._events.close()
        for running in self._running:  # webhooks first: they need the lease to store their progress
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await self.engine.close()
        await self._runners_engine.close()
        self._stored.close()
        self._overview.close()
        await asyncio.to_thread(self.store.close)

    # ── submitting ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def submit(self, submission: Submission) -> Submitted:
        """Stores a new task; see `JobService.submit`."""
        urls = await asyncio.to_thread(self._checked_urls, submission)
        now, spec = self._clock(), submission.spec
        task = Task(
            id=new_task_id(), owner=submission.owner, url=urls[0], url_count=len(urls), spec=spec, created_at=now
        )
        done = await asyncio.to_thread(
            self.store.submit, task, urls, idempotency=submission.idempotency,
            max_pending=self._config.jobs.max_pending,
        )  # fmt: skip
        self.runner.wake()
        return done

    def _checked_urls(self, submission: Submission) -> list[str]:
        """The canonical URLs of a submission, whose rules, formats, proxies and rendering are checked. Run it in a
        thread: there may be 10,000 URLs."""
        self._check_room()
        urls = self._check_targets(submission.urls)
        check_formats(submission.spec)
        check_proxies(submission.spec, proxies_of(self._config))
        check_rendering(submission.spec, self._config)
        check_workers(submission.spec, self._config)
        check_login(submission.spec, self._config)
        return urls

    async def append(
        self,
        task_id: str,
        urls: Sequence[str],
        owner: str | None = None,
        *,
        idempotency: Idempotency | None = None,
    ) -> Task:
        """Adds URLs to a batch; see `JobService.append`."""
        task = self.store.task(task_id, owner)
        if not task.spec.is_batch:
            raise BadInput("only a batch can be appended to")
        self._check_room()
        checked = await asyncio.to_thread(self._check_targets, urls)
        if idempotency is None:
            return await self._append_urls(task, checked)
        known = self.store.remembered(task.owner, idempotency, self._clock())
        if known is not None:
            return known
        longer = await self._append_urls(task, checked)
        await asyncio.to_thread(self.store.remember, longer, idempotency)
        return longer

    async def _append_urls(self, task: Task, urls: Sequence[str]) -> Task:
        task_id = task.id
        if task.state is TaskState.PENDING:
            if (longer := await asyncio.to_thread(self.store.append, task_id, urls)) is not None:
                return longer
            task = self.store.task(task_id, None)
        if task.is_terminal:
            raise TaskFinished(task_id, task.state, "appended to")
        try:
            await self._open_crawl(task)
            await self.engine.seed(task_id, urls)
        except BadInput:
            snapshot = await self._live_snapshot(task_id)
            if snapshot is None or snapshot.state is CrawlState.ENDED:
                raise TaskFinished(task_id, "ended", "appended to") from None
            raise
        except EngineGone as gone:
            raise EngineAway(str(gone)) from None
        return self.store.task(task_id, None)

    def _check_room(self) -> None:
        """Raises DiskFull before a task is accepted that could store no page: SQLite may still have room in its own
        file."""
        if not has_room(self._engine_dir.parent):
            raise DiskFull(self._engine_dir.parent)

    def _check_site(self, file: SiteFile) -> None:
        """Raises BadInput for a site whose runs would be refused as tasks."""
        self._check_room()
        self._check_targets(file.start_urls)
        check_proxies(file.spec, proxies_of(self._config))
        check_login(file.spec, self._config)

    def _check_targets(self, given: Sequence[str]) -> list[str]:
        """The URLs in canonical form, without duplicates; raises BadInput for the first one that may not be fetched."""
        checked = list(dict.fromkeys(url_rules.seed(url) for url in given))
        if not checked:
            raise BadInput("urls: give at least one URL")
        fetch = self._config.fetch
        try:
            check_email(checked, fetch)
        except BadInput:  # its message is for a person who starts a crawl: replaced by one for callers of the service
            raise BadInput(
                f"{checked[0]}: the service has no address at which sites can reach you: start it with `weft serve "
                "--email you@example.com`"
            ) from None
        for url in checked:
            if (why := why_not_public(url_rules.host_of(url), fetch.allow_private, fetch.resolve)) is not None:
                raise BadInput(f"{url}: its address is not public ({why})")
        return checked

    async def _open_crawl(self, task: Task) -> CrawlSnapshot:
        """The snapshot of the task's crawl; opens the crawl if the runner has not done so yet."""
        if (snapshot := await self._live_snapshot(task.id)) is not None:
            return snapshot
        urls = await asyncio.to_thread(self.store.urls, task.id)
        settings = crawl_settings(task, self._config.jobs, proxies_of(self._config))
        flight = task.spec.max_concurrent_articles
        return await self.engine.open(task.id, urls, settings, deadline=task.deadline_at, in_flight=flight)

    # ── status ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def status(self, task_id: str, owner: str | None = None) -> TaskSnapshot:
        """The status of a task; see `JobService.status`."""
        task = self.store.task(task_id, owner)
        snapshot = None
        if task.state in STARTED:
            snapshot = await self._snapshot_of(task_id)
            task = self.store.task(task_id, owner)  # it may have ended since: its stored counts are final then
        waiting = self.store.waiting_before(task) if task.state is TaskState.PENDING else None
        lost = await self._lost_pages(task) if task.is_terminal and task.progress.completed else 0
        return status_of(task, snapshot, self._clock(), waiting, lost)

    async def _lost_pages(self, task: Task) -> int:
        """How many pages of an ended task are lost; cached, since only a start of the engine changes the number."""
        now, (asked_at, lost) = time.monotonic(), self._lost.get(task.id, (float("-inf"), 0))
        if now - asked_at > LOST_S:
            try:
                lost = await self._stored.lost_pages(task)
            except WeftError:  # the index cannot be read now: `results` reports that
                return lost
            if len(self._lost) > 1000:
                self._lost.clear()
            self._lost[task.id] = now, lost
        return lost

    # ── commands ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def cancel(self, task_id: str, owner: str | None = None) -> Task:
        """Cancels a task; see `JobService.cancel`."""
        task = self.store.task(task_id, owner)
        if task.state is TaskState.PENDING:
            state, finish = finish_without(task, FinishReason.CANCELLED)
            ended = await self._move_task(task, state, {TaskState.PENDING}, finish)
            task = ended or self.store.task(task_id, owner)
        if task.is_terminal:
            return task
        try:
            snapshot = await self._live_snapshot(task_id)
            if snapshot is not None:
                snapshot = await self.engine.cancel(task_id)
        except EngineGone as gone:
            raise EngineAway(str(gone)) from None
        # it was given its slot a moment ago: the process that opens its crawl will see the task's end
        if snapshot is None:
            state, finish = finish_without(task, FinishReason.CANCELLED)
        else:
            state, finish = finish_of(task, snapshot)
        return await self._move_task(task, state, STARTED, finish) or self.store.task(task_id, owner)

    async def pause(self, task_id: str, owner: str | None = None) -> Task:
        """RUNNING → PAUSED; see `JobService.pause`."""
        return await self._change_state(task_id, owner, TaskState.RUNNING, TaskState.PAUSED, "paused", "pause")

    async def resume(self, task_id: str, owner: str | None = None) -> Task:
        """PAUSED → RUNNING; see `JobService.resume`."""
        return await self._change_state(task_id, owner, TaskState.PAUSED, TaskState.RUNNING, "resumed", "resume")

    async def _change_state(
        self, task_id: str, owner: str | None, before: TaskState, after: TaskState, what: str, verb: str
    ) -> Task:
        task = self.store.task(task_id, owner)
        if task.state is not after:
            moved = await self._move_task(task, after, {before})
            if moved is None:
                now = self.store.task(task_id, owner)
                raise TaskFinished(task_id, now.state, what)
            task = moved
        if after is TaskState.RUNNING and not task.holds_slot:
            return task  # the runner resumes it when it has a slot
        try:
            await self.engine.call(verb, name=task_id)
        except (BadInput, EngineGone):
            pass  # not opened yet, ended, or no engine: the runner compares it with the store, and sends the command
        return task

    async def _move_task(
        self, task: Task, to: TaskState, expect: Collection[TaskState], finish: TaskFinish | None = None
    ) -> Task | None:
        return await asyncio.to_thread(self.store.move, task.id, to, expect=expect, at=self._clock(), finish=finish)

    # ── inside ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _live_snapshot(self, task_id: str) -> CrawlSnapshot | None:
        try:
            return await self.engine.find(task_id)
        except EngineGone as gone:
            raise EngineAway(str(gone)) from None

    async def _snapshot_of(self, task_id: str) -> CrawlSnapshot | None:
        """The snapshot of a task's crawl; concurrent callers share one request to the engine."""
        now, (asked_at, answer) = time.monotonic(), self._snapshots.get(task_id, (0.0, None))
        if answer is None or now - asked_at > FRESH_S:
            answer = asyncio.ensure_future(self.engine.find(task_id, STATUS_S))
            # Every waiting caller gets the exception; without a caller asyncio must not log it as never retrieved.
            answer.add_done_callback(lambda done: None if done.cancelled() else done.exception())
            if len(self._snapshots) > 1000:
                self._snapshots = {name: one for name, one in self._snapshots.items() if now - one[0] < FRESH_S}
                self._snapshots_seen.clear()
            self._snapshots[task_id] = now, answer
        try:
            snapshot = await asyncio.shield(answer)
        except EngineGone as gone:
            if task_id in self._snapshots_seen:
                return self._snapshots_seen[task_id]
            raise EngineAway(str(gone)) from None
        if snapshot is not None:
            self._snapshots_seen[task_id] = snapshot
        return snapshot

    def _committed_end(self, task: Task) -> TaskFinish | None:
        """The end of a task from what is on the disk; used while the engine does not answer."""
        if (committed := self._stored.committed(task)) is None:
            return None
        ends, number = committed
        progress, classes = counted(ends, 0, 0)
        if (seen := self._snapshots_seen.get(task.id)) is not None:
            left = progress_of(seen)[0].discovered - progress.ended
            progress = msgspec.structs.replace(progress, queued=max(0, left))
        return TaskFinish(
            reason=FinishReason.DEADLINE, progress=progress, errors_by_class=classes, last_number=number + 1
        )

"""Assigns slots to waiting tasks, and ends tasks whose crawls have ended: a loop in the worker that has the lease.

The store is the truth about waiting and ended tasks, the engine about running ones; the runner itself has no state that
decides anything. After a crash of a worker or of the engine it compares the two, and continues:

    RUNNING in the store, unknown to the engine      → opened (idempotent), or ended if its deadline has passed
    RUNNING in the store, waiting for seeds there    → opened again, which sends all of its URLs
    RUNNING or PAUSED in the store, ended there      → its terminal state, in one step
    PAUSED in the store, running there (or converse) → the command is sent again: the store has the caller's wish
    RUNNING in the store, has paused itself there    → PAUSED in the store, with the reason; once for each such pause
    without a slot in the store, running there       → held there
    not running in the store, open in the engine     → cancelled there
    past its deadline, and no engine answers         → ended with what is committed

A task that cannot make progress for a while releases its slot. The engine holds its crawl first, then the store takes
the slot back, in one step. After a kill between the two the crawl is held and the task has its slot: the next turn
resumes it. So nothing is requested for a task without a slot, and no slot is lost. A slot is assigned again in the
opposite order: in the store first, then the crawl is resumed.

Steps carry the lease's epoch, so that a runner that was replaced, and does not know it yet, changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from weft.config import JobsSection
from weft.engine.model import WAITING_FOR_SEEDS, CrawlSnapshot, CrawlState
from weft.engine.process.channel import EngineGone
from weft.engine.process.link import EngineLink
from weft.errors import BadInput, WeftError
from weft.jobs.crawls import crawl_settings, finish_of, finish_without
from weft.jobs.errors import LeaseLost
from weft.jobs.model import FOR_RESUME, FOR_SLOT, STARTED, Lane, Task
from weft.jobs.store.contract import TaskFinish
from weft.jobs.store.sqlite import SqliteJobStore
from weft.records import PastVisit
from weft.scraping import FinishReason, TaskState
from weft.telemetry import Log

LEASE_S = 3.0
RENEW_LEASE_S = 1.0  # interval of renewing the lease of being the runner
TRY_S = 0.5  # interval between attempts to get the lease: it changes hands within LEASE_S + TRY_S
POLL_S = 0.05  # interval between checks for newly submitted tasks
SNAPSHOTS_S = 0.2  # interval between checks of running tasks
WAITING_S = 1.0  # interval between checks of tasks without a slot, which may be many
LONG_WAIT_S = 10.0  # a task that cannot make progress for longer than this releases its slot
ORPHANS_S = 5.0
EXPIRY_S = 10.0
ENGINE_S = 1.0  # limit for an answer of the engine, before the deadlines of other tasks are checked
OVERDUE_S = 2.5  # The wait after a deadline that the engine has not kept: it is dead or stuck.
DELETED_AT_ONCE = 100
CLEANUP_SHARE = 0.1  # The share of the retention by which a deletion may be late.
log = Log("weft.jobs.runner")


class JobRunner:
    """One worker's runner; it does nothing while another worker has the lease."""

    def __init__(
        self,
        store: SqliteJobStore,
        engine: EngineLink,
        jobs: JobsSection,
        holder: str,
        *,
        committed: Callable[[Task], TaskFinish | None] = lambda _: None,
        sites: Callable[[int], Awaitable[None]] | None = None,
        proxies: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`committed`: the end of a task from what is on the disk, while the engine does not answer. `sites`: called
        regularly with the epoch of the lease (sites/scheduler.py). `proxies`: see `crawls.proxies_of`."""
        self._store = store
        self._engine = engine
        self._jobs = jobs
        self._holder = holder
        self._committed_end = committed
        self._sites = sites
        self._sites_turn: asyncio.Task[None] | None = None  # runs `sites`
        self._proxies = proxies
        self._clock = clock
        self._epoch: int | None = None
        self._wake_event = asyncio.Event()
        self._store_marker: object = None
        self._slots = {Lane.TASK: jobs.max_tasks, Lane.SCRAPE: jobs.max_scrapes, Lane.SITE: jobs.max_sites}
        self._per_owner = {Lane.TASK: jobs.max_tasks_per_key}
        self._next = dict.fromkeys(("snapshots", "waiting", "sites", "orphans", "expiry", "cleanup"), 0.0)  # monotonic
        # Tasks with a retention of a minute must not be kept for an hour because the interval is one.
        self._cleanup_s = min(jobs.cleanup_s, jobs.retention_hours * 3600 * CLEANUP_SHARE)

    @property
    def is_holder(self) -> bool:
        """Whether this worker has the lease."""
        return self._epoch is not None

    @property
    def epoch(self) -> int | None:
        """The epoch of this worker's lease; None while it has none."""
        return self._epoch

    def wake(self) -> None:
        """Starts the next turn at once: a task was submitted in this worker."""
        self._wake_event.set()

    async def run(self) -> None:
        """Runs until it is cancelled, and releases the lease then."""
        lease = asyncio.create_task(self._keep_lease(), name="runner-lease")
        try:
            while True:
                if self._epoch is None:
                    await asyncio.sleep(POLL_S)
                    continue
                try:
                    await self.turn()
                except LeaseLost:
                    log.info("the lease was taken over", holder=self._holder)
                    self._epoch = None
                except WeftError as error:  # a full disk, an engine that is away: the next turn tries again
                    log.error("a turn failed", error=error)
                    await asyncio.sleep(TRY_S)
                except Exception:  # a bug: without a runner no task would ever end
                    log.error("a turn failed", exc_info=True)
                    await asyncio.sleep(TRY_S)
                await self._pause_between_turns()
        finally:
            await self._wait_for_sites()
            lease.cancel()
            await asyncio.gather(lease, return_exceptions=True)
            await asyncio.to_thread(self._store.release, self._holder)

    async def _keep_lease(self) -> None:
        while True:
            try:
                lease = await asyncio.to_thread(self._store.lease, self._holder, LEASE_S, now=self._clock())
            except WeftError as error:
                log.error("the lease cannot be had", error=error)
                lease = None
            if lease is not None and self._epoch is None:
                log.info("runner", holder=self._holder, epoch=lease.epoch)
                self._next = dict.fromkeys(self._next, 0.0)
                self._store_marker = None
            self._epoch = None if lease is None else lease.epoch
            await asyncio.sleep(TRY_S if lease is None else RENEW_LEASE_S)

    async def _pause_between_turns(self) -> None:
        try:
            async with asyncio.timeout(POLL_S):
                await self._wake_event.wait()
        except TimeoutError:
            pass
        self._wake_event.clear()

    async def acquire_lease(self) -> bool:
        """Acquires the lease now, for a caller that calls `turn` itself."""
        lease = await asyncio.to_thread(self._store.lease, self._holder, LEASE_S, now=self._clock())
        self._epoch = None if lease is None else lease.epoch
        return lease is not None

    async def turn(self) -> None:
        """Does everything that is due now."""
        marker = self._store.marker()
        if marker != self._store_marker:
            self._store_marker = marker
            await self._start()
        if self._is_due("snapshots", SNAPSHOTS_S):
            await self._monitor_tasks()
        if self._sites is not None and self._is_due("sites", SNAPSHOTS_S):
            self._start_sites_turn(self._sites)
        if self._is_due("expiry", EXPIRY_S):
            await self._expire_tasks()
        if self._is_due("orphans", ORPHANS_S):
            await self._end_orphans()
        if self._is_due("cleanup", self._cleanup_s):
            await self._wait_for_sites()  # the report of a site's run is made from tasks that may be deleted
            await self._clean_up()

    def _is_due(self, what: str, every_s: float) -> bool:
        now = time.monotonic()
        if now < self._next[what]:
            return False
        self._next[what] = now + every_s
        return True

    def _start_sites_turn(self, sites_turn: Callable[[int], Awaitable[None]]) -> None:
        """Starts the sites' turn in the background: the report of a large site's run takes a while."""
        if self._sites_turn is None or self._sites_turn.done():
            self._sites_turn = asyncio.create_task(self._run_sites_turn(sites_turn, self._lease_epoch()), name="sites")

    async def _run_sites_turn(self, sites_turn: Callable[[int], Awaitable[None]], fence: int) -> None:
        try:
            await sites_turn(fence)
        except LeaseLost:
            pass  # the next step of a task raises it, too
        except WeftError as error:
            log.error("sites could not be processed", error=error)
        except Exception:  # a bug: tasks continue nevertheless
            log.error("sites could not be processed", exc_info=True)

    async def _wait_for_sites(self) -> None:
        if self._sites_turn is not None:
            await asyncio.wait([self._sites_turn])

    # ── starting ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _start(self) -> None:
        for lane, slots in self._slots.items():
            at = self._clock()
            tasks = await asyncio.to_thread(
                self._store.claim, lane, slots, at=at, fence=self._lease_epoch(), per_owner=self._per_owner.get(lane)
            )
            await asyncio.gather(*(self._open(task) for task in tasks if task.started_at == at))
            await self._settle_all([task for task in tasks if task.started_at != at])  # these had started before

    async def _open(self, task: Task) -> None:
        """Opens the task's crawl in the engine. If the engine is away, the next turn finds the crawl missing, and tries
        again."""
        if task.deadline_at is not None and task.deadline_at <= self._clock():
            await self._end(task, *finish_without(task, FinishReason.DEADLINE))
            return
        urls = await asyncio.to_thread(self._store.urls, task.id)
        visits = await asyncio.to_thread(self._known_visits, task)
        try:
            await self._engine.open(
                task.id, urls, crawl_settings(task, self._jobs, self._proxies), deadline=task.deadline_at,
                in_flight=task.spec.max_concurrent_articles, memory_bytes=task.spec.max_memory_bytes, visits=visits,
            )  # fmt: skip
        except EngineGone:
            log.info("a task is not started yet: the engine does not answer", task=task.id)
        except BadInput as error:
            if task.deadline_at is not None and task.deadline_at <= self._clock():  # it has passed in the meantime
                await self._end(task, *finish_without(task, FinishReason.DEADLINE))
                return
            log.error("the engine refuses a task", task=task.id, error=error)
            await self._end(task, *finish_without(task, FinishReason.ERROR, message=str(error)))
            return
        log.info("task started", task=task.id, urls=task.url_count)

    def _known_visits(self, task: Task) -> dict[str, PastVisit]:
        """What is known of a site's pages, for a run that skips unchanged pages."""
        known = self._store.sites.pages(task.spec.revisits) if task.spec.revisits else {}
        return {url: page for url, page in known.items() if page.digest}

    # ── what runs ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _monitor_tasks(self) -> None:
        with_slot = not self._is_due("waiting", WAITING_S)
        await self._settle_all(await asyncio.to_thread(self._store.started, with_slot=with_slot))

    async def _settle_all(self, tasks: Sequence[Task]) -> None:
        if not tasks:
            return
        try:
            snapshots = await self._engine.standings([task.id for task in tasks])
        except EngineGone:
            await asyncio.gather(*(self._end_overdue(task) for task in tasks))
            return
        await asyncio.gather(*(self._settle_task(task, snapshots.get(task.id)) for task in tasks))

    async def _settle_task(self, task: Task, snapshot: CrawlSnapshot | None) -> None:
        if snapshot is None:
            await self._settle_unknown(task)
        elif snapshot.state is CrawlState.ENDED:
            await self._end(task, *finish_of(task, snapshot))
        elif task.deadline_at is not None and self._clock() > task.deadline_at + OVERDUE_S:
            await self._end_overdue(task)
        elif task.state is TaskState.PAUSED:
            if snapshot.state is not CrawlState.PAUSED:
                await self._send_command(task, self._engine.pause)
            elif task.holds_slot and not snapshot.in_flight:
                await self._release_slot(task, FOR_RESUME)
        else:
            await self._settle_running(task, snapshot)

    async def _settle_unknown(self, task: Task) -> None:
        """Opens the crawl of a task that the engine does not have; ends the task if its deadline has passed."""
        if task.deadline_at is not None and task.deadline_at <= self._clock():
            await self._end(task, *finish_without(task, FinishReason.DEADLINE))
        elif task.state is TaskState.PAUSED and task.holds_slot:
            await self._release_slot(task, FOR_RESUME)
        elif task.holds_slot and await self._is_unchanged(task):
            await self._open(task)

    async def _settle_running(self, task: Task, snapshot: CrawlSnapshot) -> None:
        is_stopped = snapshot.state is CrawlState.PAUSED or snapshot.is_held
        if snapshot.pause_reason and snapshot.self_paused_at != task.self_paused_at:
            await self._record_given_up(task, snapshot)
            return
        if task.waiting_for and not is_stopped:
            await self._send_command(task, self._engine.hold)
        elif task.waiting_until is not None and task.waiting_until <= self._clock():
            await self._release_slot(task, FOR_SLOT)
        elif task.holds_slot and is_stopped:
            await self._send_command(task, self._engine.resume)
        # its worker died before all of them were sent
        elif task.holds_slot and snapshot.waiting_for == WAITING_FOR_SEEDS:
            await self._open(task)
        elif task.holds_slot and _is_long_wait(snapshot, self._clock()):
            held = await self._send_command(task, self._engine.hold)
            if held is not None and not held.in_flight:  # otherwise it has become active, and is resumed
                await self._release_slot(task, snapshot.waiting_for, snapshot.waiting_until)

    async def _record_given_up(self, task: Task, snapshot: CrawlSnapshot) -> None:
        """Pauses a task whose crawl has paused itself; it stays paused until a caller resumes it."""
        log.warning("task paused", task=task.id, why=snapshot.pause_reason)
        await asyncio.to_thread(
            self._store.record_self_pause, task.id, snapshot.self_paused_at, snapshot.pause_reason, at=self._clock(),
            version=task.version, fence=self._lease_epoch(),
        )  # fmt: skip

    async def _send_command(self, task: Task, verb: Callable[[str], Awaitable[CrawlSnapshot]]) -> CrawlSnapshot | None:
        """Sends a command, so that the engine follows the store; None if the task has changed or ended, or no engine
        answers.

        A caller's wish is written to the store before the command is sent, so the store is read last.
        """
        if not await self._is_unchanged(task):
            return None
        try:
            return await verb(task.id)
        except (BadInput, EngineGone) as error:
            log.info("command not sent", task=task.id, error=error)
            return None

    async def _release_slot(self, task: Task, waiting_for: str, until: float | None = None) -> None:
        released = await asyncio.to_thread(
            self._store.release_slot, task.id, waiting_for, until, version=task.version, fence=self._lease_epoch()
        )
        if released is not None:
            log.info("task waits without a slot", task=task.id, waiting_for=waiting_for, until=until)

    async def _is_unchanged(self, task: Task) -> bool:
        now = await asyncio.to_thread(self._store.get, task.id)
        return now is not None and now.version == task.version

    async def _end_overdue(self, task: Task) -> None:
        """Ends a task whose deadline the engine has not kept, with what is on the disk."""
        if task.deadline_at is None or self._clock() <= task.deadline_at + OVERDUE_S:
            return
        log.error("the engine has not kept a deadline", task=task.id)
        committed = await asyncio.to_thread(self._committed_end, task)
        if committed is None:
            await self._end(task, *finish_without(task, FinishReason.DEADLINE))
            return
        state, finish = finish_without(
            task, FinishReason.DEADLINE, committed.progress, "the engine did not answer at the deadline",
            errors_by_class=committed.errors_by_class, last_number=committed.last_number,
        )  # fmt: skip
        await self._end(task, state, finish)

    async def _end(self, task: Task, state: TaskState, finish: TaskFinish) -> None:
        ended = await asyncio.to_thread(
            self._store.move, task.id, state, expect=STARTED, at=self._clock(), finish=finish, fence=self._lease_epoch()
        )
        if ended is not None:
            log.info("task ended", task=task.id, state=state, reason=finish.reason, pages=finish.progress.completed)

    # ── housekeeping ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _expire_tasks(self) -> None:
        before = self._clock() - self._jobs.max_pending_hours * 3600
        for task in await asyncio.to_thread(self._store.pending_since, before):
            state, finish = finish_without(
                task, FinishReason.EXPIRED, message=f"it waited for more than {self._jobs.max_pending_hours:g} hours"
            )
            await asyncio.to_thread(
                self._store.move, task.id, state, expect={TaskState.PENDING}, at=self._clock(), finish=finish,
                fence=self._lease_epoch(),
            )  # fmt: skip

    async def _end_orphans(self) -> None:
        """Cancels crawls of tasks that were ended while no engine answered, or while the crawl was being opened."""
        try:
            for snapshot in await self._engine.live():
                task = await asyncio.to_thread(self._store.get, snapshot.name)
                if task is None or task.is_terminal:
                    log.info("cancelling a crawl without a task", crawl=snapshot.name)
                    await self._engine.cancel(snapshot.name)
                    if task is None:
                        await self._engine.forget([snapshot.name])
        except EngineGone:
            self._next["orphans"] = 0.0

    async def _clean_up(self) -> None:
        """Deletes tasks at the end of their retention: the crawl first, otherwise a kill would leave one without a row.
        Deletes some at a time, so that other work is not delayed; the next turn continues."""
        before = self._clock() - self._jobs.retention_hours * 3600
        try:
            tasks = await asyncio.to_thread(self._store.finished_since, before, DELETED_AT_ONCE)
            if tasks:
                ids = [task.id for task in tasks]
                await self._engine.forget(ids)
                await asyncio.to_thread(self._store.delete, *ids, fence=self._lease_epoch())
                log.info("tasks deleted", tasks=len(tasks))
            if len(tasks) == DELETED_AT_ONCE:
                self._next["cleanup"] = 0.0
        except EngineGone:
            self._next["cleanup"] = time.monotonic() + EXPIRY_S

    # ── inside ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _lease_epoch(self) -> int:
        if self._epoch is None:
            raise LeaseLost(0)
        return self._epoch


def _is_long_wait(snapshot: CrawlSnapshot, now: float) -> bool:
    """Whether a crawl cannot make progress for longer than its task should keep a slot."""
    until = snapshot.waiting_until
    return bool(snapshot.waiting_for) and not snapshot.in_flight and until is not None and until > now + LONG_WAIT_S

"""The health of the service as a whole: whether it makes progress, what it does, what it cannot reach.

Healthy means that a runner renews its lease and that the engine answers; a process that exists and does nothing is not
healthy. Counts are of running tasks and of those that ended last.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from weft.config import ServiceConfig
from weft.engine.core import SLOT
from weft.engine.model import Blocked, BrowserStatus, CrawlSnapshot
from weft.engine.process.channel import EngineGone
from weft.engine.process.link import EngineLink
from weft.engine.transports.browsers import browser_trouble
from weft.jobs.crawls import progress_of
from weft.jobs.layout import LEAST_ROOM_BYTES, has_room
from weft.jobs.model import JobProgress, Lane, Task
from weft.jobs.service import Health, LaneHealth
from weft.jobs.store.sqlite import SqliteJobStore
from weft.scraping import TERMINAL, TaskState
from weft.telemetry import read_snapshot

FRESH_S = 1.0  # maximum age of a cached answer: many callers may ask
ANSWER_S = 1.5  # an engine that takes longer counts as stalled; callers of /healthz wait for 2 s
IDLE_S = 10.0  # The longest that a task may wait while a slot is free, before the service counts as stalled.
DISK_FULL = f"the disk is full: less than {LEAST_ROOM_BYTES >> 20} MB are free, and no task is accepted"
LAST_TASKS = 200  # The number of recently ended tasks whose counts are included.
# Beginnings of the problems that a new worker solves. The engine has a supervisor of its own, and a full disk needs an
# operator.
NO_BROWSER = "pages cannot be rendered"
NO_SANDBOX = "browsers run without their sandbox (`browser_sandbox: false`)"
NO_RUNNER, STANDSTILL = WORKERS_FAULTS = ("no runner", "standstill")


class Monitor:
    """Reads store and engine, and reports the health, for one worker."""

    def __init__(
        self,
        store: SqliteJobStore,
        engine: EngineLink,
        config: ServiceConfig,
        engine_dir: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._engine = engine
        self._clock = clock
        self._data_dir = engine_dir.parent
        self._metrics = engine_dir / "metrics" / f"{SLOT.name}.metrics"
        self._fetch, jobs = config.fetch, config.jobs
        self._per_owner = {Lane.TASK: jobs.max_tasks_per_key}
        self._slots = {Lane.TASK: jobs.max_tasks, Lane.SCRAPE: jobs.max_scrapes, Lane.SITE: jobs.max_sites}
        self._lock = asyncio.Lock()
        self._last_health: Health | None = None
        self._read_at = 0.0
        self._standstill = Standstill()

    async def health(self) -> Health:
        """The current health, at most FRESH_S old."""
        async with self._lock:
            if self._last_health is None or time.monotonic() - self._read_at > FRESH_S:
                self._last_health = await self._read_health()
                self._read_at = time.monotonic()
            return self._last_health

    async def _read_health(self) -> Health:
        problems: list[str] = []
        lease = self._store.holder()
        if lease is None or lease.until < self._clock():
            problems.append(f"{NO_RUNNER}: tasks that wait are not started")
        lanes = {str(lane): self._lane_health(lane, slots) for lane, slots in self._slots.items()}
        problems += self._standstill.problems(lanes, self._count_started(), time.monotonic())
        refusing: tuple[str, ...] = () if has_room(self._data_dir) else (DISK_FULL,)
        problems += refusing
        snapshots, blocked, browsers = await self._query_engine(problems)
        if trouble := self._browser_trouble(browsers):
            problems.append(trouble)
            refusing += (trouble,) * (self._fetch.render != "never")
        ended = self._store.listing(states=TERMINAL, limit=LAST_TASKS).tasks
        progress, classes = _total_progress(ended, snapshots)
        counts = self._store.counts()
        by_state: Counter[str] = Counter()
        for (_, state), count in counts.items():
            by_state[str(state)] += count
        times = sorted(task.duration_s(self._clock()) for task in ended if task.started_at is not None)
        return Health(
            is_healthy=not problems,
            problems=tuple(problems),
            refusing=refusing,
            lanes=lanes,
            active=tuple(task.id for task in self._store.started() if task.state is TaskState.RUNNING),
            blocked_domains=tuple(blocked),
            errors_by_class=dict(classes),
            tasks_by_state=dict(by_state),
            success_rate=progress.success_rate,
            pages_per_s=round(sum(one.rate for one in snapshots), 2),
            page_seconds_p50=page_seconds(self._metrics, 0.5),
            page_seconds_p95=page_seconds(self._metrics, 0.95),
            task_seconds_p50=quantile(times, 0.5),
            task_seconds_p95=quantile(times, 0.95),
            totals=self._store.totals(),
            warnings=() if self._fetch.browser_sandbox else (NO_SANDBOX,),
        )

    def _browser_trouble(self, status: BrowserStatus) -> str:
        """Why pages cannot be rendered, if tasks or the service's settings ask for it; empty if they can."""
        if status.trouble:
            return f"{NO_BROWSER}: {status.trouble}"
        if self._fetch.render != "never" and (why := browser_trouble(self._fetch)):
            return f"{NO_BROWSER}: {why}"
        return ""

    async def _query_engine(self, problems: list[str]) -> tuple[list[CrawlSnapshot], list[Blocked], BrowserStatus]:
        engine = self._engine
        try:
            async with asyncio.timeout(ANSWER_S):
                snapshots, blocked, browsers = await asyncio.gather(engine.live(), engine.blocked(), engine.browsers())
        except (TimeoutError, EngineGone):
            problems.append(f"the engine has not answered in {ANSWER_S:g} s")
            return [], [], BrowserStatus()
        problems += sorted({f"the engine makes no progress: {one.note}" for one in snapshots if one.note})
        return snapshots, blocked, browsers

    def _count_started(self) -> dict[str, int]:
        """How many tasks of each lane have left their queue."""
        started: Counter[str] = Counter()
        for (lane, state), count in self._store.counts().items():
            started[str(lane)] += 0 if state is TaskState.PENDING else count
        return started

    def _lane_health(self, lane: Lane, slots: int) -> LaneHealth:
        counts, without = self._store.counts(), self._store.waiting()
        running, paused = counts.get((lane, TaskState.RUNNING), 0), counts.get((lane, TaskState.PAUSED), 0)
        waiting = without.get((lane, TaskState.RUNNING), 0)
        used = running + paused - waiting - without.get((lane, TaskState.PAUSED), 0)
        return LaneHealth(
            slots, max(0, slots - used), running, paused, counts.get((lane, TaskState.PENDING), 0), waiting,
            self._store.is_claimable(lane, slots, self._per_owner.get(lane)),
        )  # fmt: skip


class Standstill:
    """Detects lanes in which tasks wait for a free slot and none is started: a runner that lives and does nothing."""

    def __init__(self) -> None:
        # lane → since when it waits, and how many tasks were started by then
        self._since: dict[str, tuple[float, int]] = {}

    def problems(self, lanes: Mapping[str, LaneHealth], started: Mapping[str, int], now_s: float) -> list[str]:
        """A problem for each lane that has started nothing for too long."""
        stalled = []
        for name, lane in lanes.items():
            count = started.get(name, 0)
            since_s, before = self._since.get(name, (now_s, count))
            if not lane.is_claimable or count != before:
                since_s = now_s
            self._since[name] = since_s, count
            if now_s - since_s > IDLE_S:
                stalled.append(
                    f"{STANDSTILL}: {lane.pending} tasks of lane {name} wait, {lane.available} slots are free, and "
                    f"none was started for {now_s - since_s:.0f} s"
                )
        return stalled


def _total_progress(ended: Sequence[Task], snapshots: Sequence[CrawlSnapshot]) -> tuple[JobProgress, Counter[str]]:
    completed = failed = 0
    classes: Counter[str] = Counter()
    live = [progress_of(snapshot) for snapshot in snapshots]
    for progress, by_class in (*((task.progress, task.errors_by_class) for task in ended), *live):
        completed, failed = completed + progress.completed, failed + progress.failed
        classes.update(by_class)
    return JobProgress(completed=completed, failed=failed), classes


def page_seconds(metrics: Path, share: float) -> float | None:
    """A quantile of the time per page, from the engine's metrics; None without data."""
    snapshot = read_snapshot(metrics)
    for series in snapshot.series if snapshot is not None else ():
        if series.name == "weft_fetch_seconds" and series.labels.get("kind") == "page":
            return bucketed(series.bounds, series.values[:-1], share)
    return None


def bucketed(bounds: Sequence[float], counts: Sequence[float], share: float) -> float | None:
    """A quantile of bucketed counts, with values spread evenly in a bucket; the last bucket has no upper bound."""
    wanted, below, start = share * sum(counts), 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and below + count >= wanted:
            return round(start + (bound - start) * (wanted - below) / count, 4)
        below, start = below + count, bound
    return start if sum(counts) else None


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """A quantile of sorted values; None if there are none."""
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 4) if ordered else None

"""Handles a worker's death for the items it had: results for some, another try for others.

The rules are in supervise/pool/suspects.py, the verdict in verdicts.py; here they are applied to the slot and the
item's log. Invariant: every task that the dead worker had outstanding is afterwards in the queue, has its one result,
or waits briefly for its verdict.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import NamedTuple

from weft.pipelines.pool import events
from weft.pipelines.pool.context import PROCESS
from weft.pipelines.pool.engine.backlog import WorkQueue
from weft.pipelines.pool.engine.pool_worker import PoolSlot, PoolWorker
from weft.pipelines.pool.engine.task import PoolTask
from weft.pipelines.pool.engine.verdicts import Verdicts
from weft.pipelines.pool.events import PoolProgress
from weft.pipelines.pool.record import Death, Result, Status, over_limit
from weft.pipelines.pool.settings import PoolSettings
from weft.pipelines.pool.worker import item_log
from weft.pipelines.pool.worker.slot import START_NS
from weft.supervise.pool.process_pool import WorkerDeath
from weft.supervise.pool.suspects import OUTSIDE
from weft.supervise.pool.worker_slot import KillReason
from weft.supervise.process import Exit

_MB = 1024 * 1024


class _CrashScene(NamedTuple):
    """The state at a worker's death, read before its worker is closed."""

    held: PoolTask
    ticket: int
    worker: PoolWorker
    phase: str
    duration_ms: float
    batch_items: int


class CrashAnalysis:
    """Decides what happens to the tasks of dead workers."""

    def __init__(
        self,
        settings: PoolSettings,
        queue: WorkQueue,
        verdicts: Verdicts,
        progress: PoolProgress,
        log_directory: Path | None,
    ) -> None:
        """`log_directory`: the folder of the items' logs; None if they have none."""
        self._settings = settings
        self._queue = queue
        self._verdicts = verdicts
        self._rules = verdicts.rules
        self._progress = progress
        self._log_directory = str(log_directory) if log_directory is not None else None

    def examine(self, ended: WorkerDeath[PoolSlot]) -> None:
        """Handles the death of a worker whose results were read, and which is not closed yet."""
        pool_slot = ended.slot
        scene = _scene_of(pool_slot)
        tasks = pool_slot.clear()
        rest = [task for task in tasks if scene is None or task is not scene.held]
        if scene is None:
            self._complete_log(pool_slot)
        if scene is not None:
            self._settle_held(scene, ended)
        elif tasks and pool_slot.kill is None and pool_slot.finished == 0 and not ended.with_server:
            return self._blame_batch(ended, tasks)
        elif pool_slot.kill is None and ended.how.signal in OUTSIDE:
            self._rules.saw_innocent()
        self._queue.put_back(rest)
        if rest:
            self._progress.tell(events.BATCH_REQUEUED, pid=pool_slot.child.pid, text=f"{len(rest)} items")
        return None

    def _settle_held(self, scene: _CrashScene, ended: WorkerDeath[PoolSlot]) -> None:
        kill, task = ended.slot.kill, scene.held
        if kill is not None and kill.reason is KillReason.STOP:
            self._queue.put_back([task])
            self._close_log(scene, "interrupted", "the run was stopped")
        elif kill is not None and (
            kill.held != scene.ticket or (kill.reason is KillReason.BATCH and scene.batch_items > 1)
        ):
            task.tries += 1  # the kill was for the item before it, or for the batch, not for this one
            self._try_again(scene, f"its worker was ended: {kill.reason.value}")
        elif kill is not None and kill.reason in (KillReason.TIMEOUT, KillReason.BATCH):
            task.tries += 1
            self._end_item(scene, ended, Status.TIMEOUT, self._limit_text(kill.reason))
        elif ended.in_company:
            self._rules.in_company(task)
            self._try_again(scene, self._death_text(ended))
        else:
            self._count_strike(scene, ended)

    def _count_strike(self, scene: _CrashScene, ended: WorkerDeath[PoolSlot]) -> None:
        outside, why = ended.from_outside, self._death_text(ended)
        seen = ended.how.code is not None or ended.how.signal is not None
        if seen and (scene.held.death is None or not outside):
            scene.held.death = _death_of(ended.how)
        if self._rules.strike(scene.held, outside=outside, with_server=ended.with_server):
            self._end_item(scene, ended, Status.CRASHED, why)
        else:
            self._try_again(scene, why)

    def _blame_batch(self, ended: WorkerDeath[PoolSlot], tasks: list[PoolTask]) -> None:
        """Handles a worker that died before it had begun any item: an item of the batch may be the cause."""
        if len(tasks) > 1:
            self._queue.bisect(tasks)
            self._progress.tell(events.BATCH_REQUEUED, pid=ended.slot.child.pid, text=f"{len(tasks)} items, halved")
            return
        assert ended.slot.worker is not None
        self._count_strike(_CrashScene(tasks[0], -1, ended.slot.worker, PROCESS, 0.0, 1), ended)

    def _try_again(self, scene: _CrashScene, why: str) -> None:
        self._verdicts.retry(scene.held, scene.worker.pid, scene.phase, why)
        self._close_log(scene, "retried", why)

    def _end_item(self, scene: _CrashScene, ended: WorkerDeath[PoolSlot], status: Status, why: str) -> None:
        task, log = scene.held, self._close_log(scene, status, why)
        death = task.death if status is Status.CRASHED and task.death is not None else _death_of(ended.how)
        result = Result(
            task.item_id, status, None, scene.phase, why, task.tries, scene.duration_ms, scene.worker.pid, None, log,
            death,
        )  # fmt: skip
        (self._verdicts.accuse if status is Status.CRASHED else self._verdicts.deliver)(task, result)

    def _close_log(self, scene: _CrashScene, status: str, why: str) -> str | None:
        """Completes the item's log for the dead worker; a full disk costs the log and nothing else."""
        if self._log_directory is None:
            return None
        last = item_log.entry("ERROR", scene.phase, why)
        last += item_log.entry("INFO", "end", status, {"processingTimeMs": round(scene.duration_ms)})
        log = item_log.DeadWorkersLog(self._log_directory, scene.worker.pid, scene.worker.slot)
        try:
            output = scene.worker.output(item_log.CAP_BYTES)
            return log.close_item(scene.held.item_id, status, output, scene.phase, last)
        except OSError:
            return item_log.log_path(self._log_directory, scene.held.item_id, scene.worker.pid)

    def _complete_log(self, pool_slot: PoolSlot) -> None:
        """Adds what a worker without an item had not written; a full disk costs the lines."""
        if self._log_directory is not None and pool_slot.worker is not None:
            with contextlib.suppress(OSError):
                item_log.DeadWorkersLog(self._log_directory, pool_slot.worker.pid, pool_slot.worker.slot).complete()

    def _death_text(self, ended: WorkerDeath[PoolSlot]) -> str:
        kill, peak = ended.slot.kill, f"peak {ended.how.peak_rss_bytes / _MB:.0f} MB"
        if ended.with_server:
            return "the fork server died while this item ran"
        if kill is None:
            return f"the worker {_exit_text(ended.how)} while it held this item ({peak})"
        if kill.reason is KillReason.MEMORY:
            return f"the worker went over the memory limit of {self._settings.memory_limit_mb:g} MB ({peak})"
        if kill.reason is KillReason.HUNG:
            return f"the worker gave no sign of life for {self._settings.heartbeat_timeout:g} s"
        return f"the worker was ended: {kill.reason.value}"

    def _limit_text(self, why: KillReason) -> str:
        if why is KillReason.TIMEOUT:
            return over_limit(self._settings.item_timeout or 0)
        return f"its batch took longer than the limit of {self._settings.batch_timeout:g} s"


def _scene_of(pool_slot: PoolSlot) -> _CrashScene | None:
    ticket, worker = pool_slot.current_ticket, pool_slot.worker
    held = pool_slot.outstanding.get(ticket)
    if held is None or worker is None:
        return None
    start_ns = worker.slot.words[START_NS]
    duration_ms = (time.monotonic_ns() - start_ns) / 1e6 if start_ns else 0.0
    return _CrashScene(held, ticket, worker, worker.slot.stage or PROCESS, duration_ms, pool_slot.in_batch(ticket))


def _death_of(how: Exit) -> Death:
    return Death(how.code, how.signal_name, round(how.peak_rss_bytes / _MB, 1))


def _exit_text(how: Exit) -> str:
    return f"was {how}" if how.signal is not None else str(how)

"""What becomes of an item that a worker died with: another try, or its one result and the quarantine.

The rules are in supervise/pool/suspects.py. Invariant: a task that was given to `retry`, `accuse` or `deliver` is
afterwards in the queue, waits briefly for its verdict, or has its result.
"""

from __future__ import annotations

import contextlib
import time
from typing import NamedTuple

from weft.pipelines.pool import events
from weft.pipelines.pool.durability.runs import RunDirectory
from weft.pipelines.pool.engine.backlog import WorkQueue
from weft.pipelines.pool.engine.delivery import ResultDelivery
from weft.pipelines.pool.engine.task import PoolTask
from weft.pipelines.pool.events import PoolProgress
from weft.pipelines.pool.record import Result, Status
from weft.pipelines.pool.target import CallableTarget
from weft.supervise.pool.suspects import DOUBT_S, CrashRules


class _AccusedItem(NamedTuple):
    """An item whose deaths may still turn out to have come from outside."""

    task: PoolTask
    result: Result
    until_s: float


class Verdicts:
    """Applies the rules to the queue, the results and the quarantine of one run."""

    def __init__(
        self,
        rules: CrashRules,
        target: CallableTarget,
        queue: WorkQueue,
        delivery: ResultDelivery,
        progress: PoolProgress,
        directory: RunDirectory | None,
    ) -> None:
        self.rules = rules
        self._target = target
        self._queue = queue
        self._delivery = delivery
        self._progress = progress
        self._directory = directory
        self._accused: list[_AccusedItem] = []

    @property
    def undecided(self) -> bool:
        """Whether an item waits for its verdict."""
        return bool(self._accused)

    def decide(self) -> None:
        """Called regularly: items that proved innocent are tried again, the others are delivered after their time."""
        waiting, self._accused = self._accused, []
        for accused in waiting:
            if not self.rules.guilty(accused.task):
                self.retry(accused.task, accused.result.worker_pid, accused.result.failure_phase, "killed from outside")
            elif time.monotonic() < accused.until_s:
                self._accused.append(accused)
            else:
                self.deliver(accused.task, accused.result)

    def retry(self, task: PoolTask, pid: int | None, phase: str | None, why: str) -> None:
        """Queues a task once more, to run alone."""
        (self._queue.exclusive if task.secluded else self._queue.suspects).append(task)
        self._progress.tell(events.RETRIED, task.item_id, pid=pid, phase=phase, text=why)

    def accuse(self, task: PoolTask, result: Result) -> None:
        """Blames a task for a death. If other causes are possible, waits for signs that many workers die."""
        if self.rules.doubtful(task):
            self._accused.append(_AccusedItem(task, result, time.monotonic() + DOUBT_S))
        else:
            self.deliver(task, result)

    def deliver(self, task: PoolTask, result: Result) -> None:
        """Delivers the final result of a task, which the parent makes."""
        if result.status is Status.CRASHED and self._directory is not None:
            with contextlib.suppress(OSError):  # the result is delivered anyway, and a replay can use the items file
                self._directory.quarantine_item(self._target, result, task.payload)
        self._delivery.made(task.position, result)

"""Assigns work: reads items from the source, gives batches to workers, steals from busy ones, replaces worn ones.

Invariants: no more batches are made than workers can accept; suspects run alone, on workers that have done nothing yet;
while one runs that may have killed the fork server, nothing else does; a stolen task is given to another worker only
after the one it was at can no longer begin it.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from weft.pipelines.pool.engine.backlog import WorkQueue
from weft.pipelines.pool.engine.delivery import ResultDelivery
from weft.pipelines.pool.engine.pool_worker import PoolSlot
from weft.pipelines.pool.engine.task import PoolTask, TaskSource
from weft.pipelines.pool.settings import PoolSettings
from weft.supervise.child import ChildState, Step
from weft.supervise.pool.process_pool import ProcessPool

_SETTLE_AFTER_S = 0.002
"""How long a worker may take to see a word that the parent wrote, by far: a store needs nanoseconds, and a process
that is put to sleep in between has seen it when it wakes."""
_ITEMS_READ_PER_PLAN = 5_000


class _Revocation(NamedTuple):
    due_s: float
    pool_slot: PoolSlot
    limit: int


class WorkDispatcher:
    """Decides in each turn of the loop which worker gets which tasks."""

    def __init__(
        self,
        settings: PoolSettings,
        intake: TaskSource,
        queue: WorkQueue,
        pool: ProcessPool[PoolSlot],
        delivery: ResultDelivery,
    ) -> None:
        self._settings = settings
        self._intake = intake
        self._queue = queue
        self._pool = pool
        self._delivery = delivery
        self._revocations: list[_Revocation] = []
        self._secluded: PoolSlot | None = None
        self.stopping = False
        self.hurry = False
        """The source has more items right now; do not wait."""

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self._intake.exhausted and not self._queue and not self.outstanding()

    def outstanding(self) -> int:
        """The number of tasks that workers have."""
        return sum(len(pool_slot.outstanding) for pool_slot in self._pool.slots)

    def wake_s(self) -> float | None:
        """The time at which timed work is due; None if there is none."""
        return min((revocation.due_s for revocation in self._revocations), default=None)

    def run(self) -> None:
        """Assigns what can be assigned now."""
        self.hurry = False
        self._settle_revocations()
        pool_slots = self._pool.slots
        for pool_slot in pool_slots:
            if pool_slot.open:
                self._feed_worker(pool_slot)
            elif pool_slot.worn or pool_slot.retiring:
                self._retire_worker(pool_slot)
        if not self.stopping:
            self._start()
            self._make_fresh()
            self._steal_tasks()

    def stop(self) -> None:
        """Assigns no more tasks; those that have begun may finish."""
        self.stopping = True
        self._revocations.clear()  # stolen tasks are given to no worker; the victims are revoked completely below
        for pool_slot in self._pool.slots:
            if pool_slot.worker is not None and pool_slot.outstanding:
                self._revoke(pool_slot, len(pool_slot.outstanding))

    def _feed_worker(self, pool_slot: PoolSlot) -> None:
        while pool_slot.open and not self.stopping and (got := self._next_batch_for(pool_slot)) is not None:
            pool_slot.give(got[0], alone=got[1])
        if pool_slot.unsent_bytes:
            self._pool.push(pool_slot)

    def _next_batch_for(self, pool_slot: PoolSlot) -> tuple[list[PoolTask], bool] | None:
        queue = self._queue
        if self._secluded is not None:
            if self._secluded.outstanding:
                return None  # its task may kill the fork server, and with it all other workers
            self._secluded = None
        if (
            not queue.batches
            and not queue.exclusive
            and not (pool_slot.is_unused and queue.suspects)
            and not self._plan_batch()
        ):
            return None
        exclusive = bool(queue.exclusive)
        got = queue.next(fresh=pool_slot.is_unused, pool_idle=exclusive and self.outstanding() == 0)
        if got is not None and exclusive:
            self._secluded = pool_slot
        return got and self._limit_to_worker_life(pool_slot, got)

    def _limit_to_worker_life(
        self, pool_slot: PoolSlot, got: tuple[list[PoolTask], bool]
    ) -> tuple[list[PoolTask], bool] | None:
        """Cuts a batch to the number of items that the worker may still do before it is replaced."""
        if self._settings.recycle_after is None:
            return got
        batch, alone = got
        left = self._settings.recycle_after - pool_slot.given
        self._queue.put_back(batch[left:])
        pool_slot.worn = left <= len(batch)
        return batch[:left], alone

    def _plan_batch(self) -> bool:
        """Queues one batch of the source's next items; False if the source gave none."""
        if self._intake.exhausted:
            return False
        batch, self.hurry = plan_batch(self._intake, self._delivery, self._settings.batch_size)
        if batch:
            self._queue.batches.append(batch)
        return bool(batch)

    def _start(self) -> None:
        """Starts as many workers as there is work for, and a fresh one for every suspect."""
        alive = [pool_slot for pool_slot in self._pool.slots if pool_slot.child.alive and not pool_slot.retiring]
        if not alive and not self._queue:
            self._plan_batch()  # three items do not need eight workers
        wanted = self._queue.tasks() + self.outstanding() if self._intake.exhausted else self._settings.workers
        suspects = len(self._queue.suspects) + bool(self._queue.exclusive)
        missing = max(wanted - len(alive), suspects - sum(pool_slot.is_unused for pool_slot in alive))
        for pool_slot in self._pool.slots:
            if missing > 0 and pool_slot.child.next_step() is Step.START:
                self._pool.start(pool_slot)
                missing -= 1

    def _make_fresh(self) -> None:
        """If a suspect waits and no fresh worker is coming, replaces an idle one."""
        if not (self._queue.suspects or self._queue.exclusive):
            return
        pool_slots = self._pool.slots
        if any(
            m.child.state is not ChildState.DEAD and (m.is_unused or m.worker is None or m.retiring) for m in pool_slots
        ):
            return
        idle = next((pool_slot for pool_slot in pool_slots if pool_slot.idle), None)
        if idle is not None:
            self._pool.end(idle, again=True)

    def _retire_worker(self, pool_slot: PoolSlot) -> None:
        """Ends a worn worker; what it has not begun is revoked, what it has begun may end."""
        if pool_slot.idle:
            self._pool.end(pool_slot, again=True)
        elif pool_slot.running and not pool_slot.alone and self._settings.memory_limit_mb is not None:
            self._revoke(pool_slot, len(pool_slot.outstanding))

    def _steal_tasks(self) -> None:
        """Moves tasks to idle workers from those that have most left to begin."""
        if self._queue or self.hurry:
            return
        thieves = sum(pool_slot.idle and not pool_slot.worn for pool_slot in self._pool.slots) - len(self._revocations)
        for _ in range(thieves):
            victims = [m for m in self._pool.slots if m.running and not m.alone and not self._is_revoking(m)]
            victim = max(victims, key=PoolSlot.unstarted, default=None)
            if victim is None or victim.unstarted() == 0:
                return
            self._revoke(victim, (victim.unstarted() + 1) // 2)

    def _is_revoking(self, pool_slot: PoolSlot) -> bool:
        """Whether tasks of it are being revoked now."""
        return any(revocation.pool_slot is pool_slot for revocation in self._revocations)

    def _revoke(self, pool_slot: PoolSlot, count: int) -> None:
        if not self._is_revoking(pool_slot) and (limit := pool_slot.revoke(count)) is not None:
            self._revocations.append(_Revocation(time.monotonic() + _SETTLE_AFTER_S, pool_slot, limit))

    def _settle_revocations(self) -> None:
        if not self._revocations:
            return
        now_s = time.monotonic()
        for revocation in [each for each in self._revocations if each.due_s <= now_s]:
            self._revocations.remove(revocation)
            if revocation.pool_slot.revoked:
                self._queue.put_back(revocation.pool_slot.settle(revocation.limit))


def plan_batch(intake: TaskSource, delivery: ResultDelivery, size: int) -> tuple[list[PoolTask], bool]:
    """Reads one batch of the source's next items; also returns whether the source has more at once. Items that are
    refused, or were done before, are delivered.
    """
    begin = intake.position
    intaken = intake.take(delivery.room(begin, _ITEMS_READ_PER_PLAN), size)
    delivery.add(intaken.refused)
    for position, key in intaken.known:
        delivery.known(position, key)
    return intaken.tasks, intake.position - begin == _ITEMS_READ_PER_PLAN

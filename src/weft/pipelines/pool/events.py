"""Progress of a running pool: events for listeners, and the counts behind them.

Kinds: started, stage, finished, failed, retried, worker-started, worker-died, batch-requeued, done. Invariant: counts
are right at every event (the item of the event is included), and a listener that raises stops the run: its error
reaches the caller.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import msgspec

from weft.pipelines.pool.record import Result, Status

STARTED, STAGE, FINISHED, FAILED, RETRIED = "started", "stage", "finished", "failed", "retried"
WORKER_STARTED, WORKER_DIED, BATCH_REQUEUED, DONE = "worker-started", "worker-died", "batch-requeued", "done"
_WINDOW_S = 15.0


class PoolCounts(msgspec.Struct, frozen=True):
    """The counts of a run's items, its rate, and the time left."""

    total: int | None
    done: int
    ok: int
    skipped: int
    failed: int
    timeout: int
    crashed: int
    resumed: int
    rate: float
    """Items per second, lately."""
    left_s: float | None


class Event(msgspec.Struct, frozen=True):
    """An event of a run."""

    kind: str
    counts: PoolCounts
    item_id: str | int | None = None
    status: Status | None = None
    worker_pid: int | None = None
    phase: str | None = None
    text: str | None = None


Listener = Callable[[Event], None]


class PoolProgress:
    """Counts results, and calls the listeners."""

    def __init__(
        self, listeners: list[Listener], total: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.listeners = listeners
        self.total = total
        self.by_status = dict.fromkeys(Status, 0)
        self.done = 0
        self.resumed = 0
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque([(clock(), 0)])

    def count(self, results: list[Result]) -> None:
        """Counts results."""
        by_status = self.by_status
        for result in results:
            self.done += 1
            by_status[result.status] += 1
            if self.listeners:
                self.tell_result(result)

    def count_resumed(self, result: Result) -> None:
        """Counts a result of an earlier run, which does not affect the rate."""
        self.by_status[result.status] += 1
        self.done += 1
        self.resumed += 1

    def sample(self) -> None:
        """Takes a sample for the rate; call it regularly."""
        now_s = self._clock()
        self._samples.append((now_s, self.done - self.resumed))
        while len(self._samples) > 2 and self._samples[0][0] < now_s - _WINDOW_S:
            self._samples.popleft()

    def counts(self) -> PoolCounts:
        """The current counts."""
        begin_s, begin = self._samples[0]
        seconds = self._clock() - begin_s
        rate = (self.done - self.resumed - begin) / seconds if seconds > 0 else 0.0
        left_s = None
        if self.total is not None and rate > 0:
            left_s = max(0, self.total - self.done) / rate
        by = self.by_status
        return PoolCounts(
            self.total, self.done, by[Status.OK], by[Status.SKIPPED], by[Status.FAILED], by[Status.TIMEOUT],
            by[Status.CRASHED], self.resumed, rate, left_s,
        )  # fmt: skip

    def tell(
        self,
        kind: str,
        item_id: str | int | None = None,
        status: Status | None = None,
        pid: int | None = None,
        phase: str | None = None,
        text: str | None = None,
    ) -> None:
        """Sends an event; costs nothing without listeners."""
        if self.listeners:
            event = Event(kind, self.counts(), item_id, status, pid, phase, text)
            for listener in self.listeners:
                listener(event)

    def tell_result(self, result: Result) -> None:
        """Sends the event of a finished item."""
        kind = FINISHED if result.good else FAILED
        self.tell(kind, result.item_id, result.status, result.worker_pid, result.failure_phase, result.error)

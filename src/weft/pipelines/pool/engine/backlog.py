"""Work that is at no worker.

What a dead worker had not begun goes back into the queue; the item it held is tried once more, alone, on a fresh
worker. A death with nothing begun blames the batch (an item that cannot even be decoded, say): it is halved until one
item is left, which then is the suspect. Who is to blame is decided by supervise/pool/suspects.py.
"""

from __future__ import annotations

from collections import deque

from weft.pipelines.pool.engine.task import PoolTask


class WorkQueue:
    """The tasks that no worker has: batches, suspects, and suspects that must run with nothing else in the pool."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self.batches: deque[list[PoolTask]] = deque()
        self.suspects: deque[PoolTask] = deque()
        self.exclusive: deque[PoolTask] = deque()

    def __bool__(self) -> bool:
        return bool(self.batches or self.suspects or self.exclusive)

    def next(self, *, fresh: bool, pool_idle: bool) -> tuple[list[PoolTask], bool] | None:
        """The next batch for a worker, and whether it must be alone there. Suspects go first, to fresh workers only."""
        if self.exclusive:
            return ([self.exclusive.popleft()], True) if fresh and pool_idle else None
        if fresh and self.suspects:
            return [self.suspects.popleft()], True
        return (self.batches.popleft(), False) if self.batches else None

    def put_back(self, tasks: list[PoolTask]) -> None:
        """Puts unbegun tasks first in the queue, in batches of the usual size: stolen ones may be of several."""
        size = self._batch_size
        self.batches.extendleft(reversed([tasks[at : at + size] for at in range(0, len(tasks), size)]))

    def bisect(self, tasks: list[PoolTask]) -> None:
        """Halves a batch of which an unknown item kills workers; the halves stay apart from now on."""
        half = (len(tasks) + 1) // 2
        self.put_back(tasks[half:])
        self.put_back(tasks[:half])

    def tasks(self) -> int:
        """The number of waiting tasks."""
        return sum(map(len, self.batches)) + len(self.suspects) + len(self.exclusive)

"""The parent's view of one slot of the pool: what its worker was given, and which results are outstanding.

Tickets number the items given to one worker, from 0. Invariants: every task is either waiting in the queue or
outstanding at exactly one slot; a task leaves `outstanding` by its result, by a settled revocation, or by the
worker's death, and by nothing else; a slot whose work was revoked gets no more until it has passed the revoked
tickets.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from pathlib import Path

from weft.pipelines.pool.engine.task import PoolTask
from weft.pipelines.pool.settings import PoolSettings
from weft.pipelines.pool.worker import slot as slots
from weft.pipelines.pool.worker.slot import (
    CURRENT,
    FRAME_START_NS,
    FRAMES,
    LIMIT,
    NO_LIMIT,
    READY,
    START_NS,
    SlotReader,
)
from weft.pipelines.pool.worker.wire import batch_frame
from weft.supervise.child import Child
from weft.supervise.pool.process_pool import PoolBroken
from weft.supervise.pool.worker_slot import KillReason, WorkerProcess, WorkerSlot, memory_output

_BACKLOG_BYTES = 128 * 1024


class PoolWorker(WorkerProcess):
    """The resources of one worker process: its socket, and its shared memory, which is a file if results must outlive
    the parent.
    """

    def __init__(self, connection: socket.socket, slot_fd: int, output_fd: int, slot_path: Path | None) -> None:
        super().__init__(connection, output_fd)
        self._slot_fd = slot_fd
        self.slot = SlotReader(slot_fd)
        self.slot_path = slot_path

    @classmethod
    def create(cls, connection: socket.socket, folder: Path | None, name: str) -> PoolWorker:
        """Creates the resources, with files in the folder if one is given; raises PoolBroken if that fails."""
        path = None if folder is None else folder / f"{name}.slot"
        try:
            slot_fd = slots.create(None if path is None else str(path))
            output_fd = memory_output() if folder is None else _create_nameless(folder / f"{name}.output")
        except OSError as error:
            what = f"a worker cannot create the files for its results in {folder}"
            raise PoolBroken(f"{what}: {error.strerror}") from None
        return cls(connection, slot_fd, output_fd, path)

    def sent(self) -> list[int]:
        """The descriptors to send to the process: shared memory and output."""
        return [self._slot_fd, self.output_fd]

    def close(self) -> None:
        """Closes everything. A slot with results that never reached the journal is kept: a resume reads them."""
        if self.slot_path is not None and self.slot.emptied:
            self.slot_path.unlink(missing_ok=True)
        self.slot.close()
        os.close(self._slot_fd)
        super().close()


def _create_nameless(path: Path) -> int:
    """Creates an unnamed file on the disk of the run, opened for appending."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    path.unlink()
    return fd


class PoolSlot(WorkerSlot[PoolWorker]):
    """A slot of the pool, with the tasks of its current worker."""

    def __init__(self, number: int, child: Child, settings: PoolSettings) -> None:
        # batches at a worker at a time, so that the next is there when one ends; more if they are small
        self._depth = max(4, min(8, 16 // settings.batch_size))
        self._item_limit_ns = _nanoseconds(settings.item_timeout)
        self._batch_limit_ns = _nanoseconds(settings.batch_timeout)
        super().__init__(number, child)

    def _reset(self) -> None:
        super()._reset()
        self.outstanding: dict[int, PoolTask] = {}
        self._frames: deque[tuple[int, int]] = deque()  # (first ticket, ticket after the last) of frames not ended
        self._frames_ended = 0
        self.given = 0
        self.finished = 0
        self.alone = False
        self.revoked = False
        self.worn = False

    def attach(self, worker: PoolWorker) -> None:
        """Puts a new worker into the slot."""
        super().attach(worker)
        worker.slot.words[LIMIT] = NO_LIMIT

    @property
    def is_unused(self) -> bool:
        """Whether the worker has not been given anything yet."""
        return self.given == 0

    @property
    def idle(self) -> bool:
        """Whether the worker is ready and has nothing to do."""
        return self.running and not self.outstanding and not self._frames and not self.retiring

    @property
    def open(self) -> bool:
        """Whether the worker can be given another batch."""
        return (
            self.running
            and len(self._frames) < self._depth
            and not (self.revoked or self.retiring or self.worn or self.alone)
            and self.unsent_bytes <= _BACKLOG_BYTES
        )

    def give(self, batch: list[PoolTask], *, alone: bool) -> None:
        """Hands over a batch; `push` sends it."""
        first = self.given
        self.given = first + len(batch)
        self.outstanding.update(zip(range(first, self.given), batch, strict=True))
        self._frames.append((first, self.given))
        self.alone = alone
        ring = (self._frames_ended + len(self._frames)) % (self._depth // 2) == 0
        self.enqueue(batch_frame(first, batch[0].tries + 1, ring, [task.payload for task in batch]))

    def frames_ended(self) -> int:
        """How many batches the worker has ended; must be called before its results are read."""
        return self.worker.slot.words[FRAMES] if self.worker is not None else 0

    def close_frames(self, ended: int) -> list[PoolTask]:
        """Closes the batches that had ended before the results were read; returns their tasks that the worker skipped
        because they were revoked."""
        assert self.worker is not None
        passed: list[PoolTask] = []
        while self._frames_ended < ended and self._frames:
            first, end = self._frames.popleft()
            self._frames_ended += 1
            if self.revoked:
                passed += [self.outstanding.pop(ticket) for ticket in range(first, end) if ticket in self.outstanding]
        if not self._frames:
            self.alone = False
            if self.revoked:
                self.revoked = False
                self.worker.slot.words[LIMIT] = NO_LIMIT
        return passed

    @property
    def current_ticket(self) -> int:
        """The ticket of the item that the worker has announced; -1 if there is none."""
        return self.worker.slot.words[CURRENT] - 1 if self.worker is not None else -1

    def current(self) -> PoolTask | None:
        """The task that the worker holds, as far as its results have been read."""
        return self.outstanding.get(self.current_ticket)

    def unstarted(self) -> int:
        """The number of tasks that the worker has not announced."""
        current = self.current_ticket
        return sum(ticket > current for ticket in self.outstanding)

    def revoke(self, count: int) -> int | None:
        """Forbids the last `count` tasks that it has not started, and returns the first ticket of them; None if it has
        started all. `settle` returns those that it really did not start."""
        assert self.worker is not None
        left = sorted(ticket for ticket in self.outstanding if ticket > self.current_ticket)[-count:]
        if not left:
            return None
        self.revoked = True
        self.worker.slot.words[LIMIT] = min(left[0], self.worker.slot.words[LIMIT])
        return left[0]

    def settle(self, limit: int) -> list[PoolTask]:
        """Returns the revoked tasks that the worker has not announced; call it a moment after `revoke`."""
        current = self.current_ticket
        tickets = [ticket for ticket in self.outstanding if ticket >= limit and ticket > current]
        return [self.outstanding.pop(ticket) for ticket in tickets]

    @property
    def held(self) -> int | None:
        """The ticket of the task that the worker holds."""
        return ticket if (ticket := self.current_ticket) in self.outstanding else None

    @property
    def is_busy(self) -> bool:
        """Whether the worker has tasks."""
        return bool(self.outstanding)

    @property
    def is_between_items(self) -> bool:
        """Whether no item is running."""
        return self.worker is not None and self.worker.slot.words[START_NS] == 0

    def sign(self) -> tuple[int, int, int]:
        """Values that change whenever the worker makes progress."""
        assert self.worker is not None
        words = self.worker.slot.words
        return words[CURRENT], words[START_NS], words[FRAMES]

    def over_time(self, since_s: float) -> KillReason | None:
        """Why the worker must be killed: the item or the batch runs for too long; None if not."""
        del since_s
        now_ns = time.monotonic_ns()
        if self._item_limit_ns is not None and self.item_ns(now_ns) > self._item_limit_ns:
            return KillReason.TIMEOUT
        if self._batch_limit_ns is not None and self._batch_ns(now_ns) > self._batch_limit_ns:
            return KillReason.BATCH
        return None

    def near_memory_limit(self) -> None:
        """Marks the worker as near its memory limit: it is replaced after its current item."""
        self.worn = self.worn or not (self.is_unused or self.alone)

    def item_ns(self, now_ns: int) -> int:
        """How long the current item has been running, in nanoseconds."""
        assert self.worker is not None
        start_ns = self.worker.slot.words[START_NS]
        return now_ns - start_ns if start_ns and self.current() is not None else 0

    def _batch_ns(self, now_ns: int) -> int:
        assert self.worker is not None
        start_ns = self.worker.slot.words[FRAME_START_NS]
        return now_ns - start_ns if start_ns and self._frames and self.worker.slot.words[CURRENT] else 0

    def in_batch(self, ticket: int) -> int:
        """The number of items in the batch of a ticket."""
        return next((end - first for first, end in self._frames if first <= ticket < end), 1)

    def ready_word(self) -> int:
        """The worker's word about its start: starting, ready or failed."""
        return self.worker.slot.words[READY] if self.worker is not None else 0

    def clear(self) -> list[PoolTask]:
        """Removes and returns all outstanding tasks after the worker's death, in order."""
        tasks = list(self.outstanding.values())
        self.outstanding = {}
        self._frames.clear()
        return tasks


def _nanoseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)

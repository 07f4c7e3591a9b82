"""The parent's view of one place in the pool: its worker, what it was given, and which results are outstanding.

Tickets number the items given to one worker, from 0. Invariants: every task is either waiting in the queue or
outstanding at exactly one member; a task leaves `outstanding` by its result, by a settled revocation, or by the
worker's death, and by nothing else; a member whose work was revoked gets no more until it has passed the revoked
tickets.
"""

from __future__ import annotations

import contextlib
import enum
import os
import select
import signal
import socket
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

from weft.pipelines.pool.slot import CURRENT, FRAME_START_NS, FRAMES, LIMIT, NO_LIMIT, READY, START_NS, SlotReader
from weft.pipelines.pool.task import Task
from weft.pipelines.pool.wire import batch_frame
from weft.supervise.child import Child, State

_BACKLOG_BYTES = 128 * 1024


class Why(enum.Enum):
    """Why the parent kills a worker."""

    TIMEOUT = "item over its time limit"
    BATCH = "batch over its time limit"
    MEMORY = "over the memory limit"
    HUNG = "no sign of life"
    START = "not ready in time"
    STOP = "did not end when asked"
    BROKEN = "its shared memory is corrupt"


class Kill(NamedTuple):
    """Why and when the parent killed a worker, and the item that it held then."""

    why: Why
    ticket: int
    at_s: float


class Seat:
    """What belongs to one worker process and goes with it: socket, shared memory, output file, pidfd."""

    def __init__(self, connection: socket.socket, slot: SlotReader, output_fd: int, slot_path: Path | None) -> None:
        self.connection = connection
        self.slot = slot
        self.output_fd = output_fd
        self.slot_path = slot_path
        self.pid = 0
        self.pidfd = -1

    def signal(self, number: int) -> None:
        """Signals this very process; a pidfd cannot hit another one that got the same pid."""
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def wait_for_death(self, timeout_s: float) -> None:
        """Until the process has gone, or the time is over."""
        if self.pidfd >= 0:
            poll = select.poll()
            poll.register(self.pidfd, select.POLLIN)
            poll.poll(timeout_s * 1000)

    def close(self) -> None:
        """Closes everything. A slot with results that never reached the journal is kept: a resume reads them."""
        if self.slot_path is not None and self.slot.emptied:
            self.slot_path.unlink(missing_ok=True)
        self.connection.close()
        self.slot.close()
        os.close(self.output_fd)
        if self.pidfd >= 0:
            os.close(self.pidfd)


class Member:
    """One place in the pool."""

    def __init__(self, number: int, child: Child, batch_size: int) -> None:
        self.number = number
        # batches at a worker at a time, so that the next is there when one ends; more if they are small
        self._depth = max(4, min(8, 16 // batch_size))
        self.child = child
        self.seat: Seat | None = None
        self._reset()

    def _reset(self) -> None:
        self.outstanding: dict[int, Task] = {}
        self._frames: deque[tuple[int, int]] = deque()  # (first ticket, ticket after the last) of frames not ended
        self._frames_ended = 0
        self._unsent = b""
        self.given = 0
        self.finished = 0
        self.alone = False
        self.revoked = False
        self.retiring = False
        self.worn = False
        self.kill: Kill | None = None
        self.silent_s = 0.0
        self.last_sign: tuple[int, int, int] = (0, 0, 0)

    def attach(self, seat: Seat) -> None:
        """A new worker takes the place."""
        self._reset()
        self.seat = seat
        seat.slot.words[LIMIT] = NO_LIMIT
        self.child.spawned()

    def detach(self) -> None:
        """The worker has gone."""
        if self.seat is not None:
            self.seat.close()
            self.seat = None

    @property
    def fresh(self) -> bool:
        """It has not been given anything yet."""
        return self.given == 0

    @property
    def running(self) -> bool:
        """It can work."""
        return self.child.state is State.RUNNING and self.kill is None

    @property
    def idle(self) -> bool:
        """It can work and has nothing to do."""
        return self.running and not self.outstanding and not self._frames and not self.retiring

    @property
    def sending(self) -> bool:
        """Part of a batch is still on this side of the socket."""
        return bool(self._unsent)

    @property
    def backlogged(self) -> bool:
        """Whether more waits to be sent than a socket accepts at once."""
        return len(self._unsent) > _BACKLOG_BYTES

    @property
    def open(self) -> bool:
        """It can be given one more batch."""
        return (
            self.running
            and len(self._frames) < self._depth
            and not (self.revoked or self.retiring or self.worn or self.alone or self.backlogged)
        )

    def give(self, batch: list[Task], *, alone: bool) -> None:
        """Hands over a batch; `push` sends it."""
        first = self.given
        self.given = first + len(batch)
        self.outstanding.update(zip(range(first, self.given), batch, strict=True))
        self._frames.append((first, self.given))
        self.alone = alone
        ring = (self._frames_ended + len(self._frames)) % (self._depth // 2) == 0
        self.enqueue(batch_frame(first, batch[0].tries + 1, ring, [task.payload for task in batch]))

    def enqueue(self, frame: bytes) -> None:
        """A frame for the worker; `push` sends it."""
        self._unsent += frame

    def push(self) -> bool:
        """Writes what the socket accepts; True when nothing is left."""
        if not self._unsent or self.seat is None:
            return True
        try:
            sent = self.seat.connection.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            sent = len(self._unsent)  # it is dying; the keeper will report it
        self._unsent = self._unsent[sent:]
        return not self._unsent

    def frames_ended(self) -> int:
        """How many batches the worker has ended; to be asked before its results are taken."""
        return self.seat.slot.words[FRAMES] if self.seat is not None else 0

    def close_frames(self, ended: int) -> list[Task]:
        """Closes the batches that had ended before the results were read; returns their tasks that the worker skipped
        because they were revoked."""
        assert self.seat is not None
        passed: list[Task] = []
        while self._frames_ended < ended and self._frames:
            first, end = self._frames.popleft()
            self._frames_ended += 1
            if self.revoked:
                passed += [self.outstanding.pop(ticket) for ticket in range(first, end) if ticket in self.outstanding]
        if not self._frames:
            self.alone = False
            if self.revoked:
                self.revoked = False
                self.seat.slot.words[LIMIT] = NO_LIMIT
        return passed

    @property
    def current_ticket(self) -> int:
        """The item it has announced; -1 for none."""
        return self.seat.slot.words[CURRENT] - 1 if self.seat is not None else -1

    def current(self) -> Task | None:
        """The task it holds, as far as its results have been read."""
        return self.outstanding.get(self.current_ticket)

    def unstarted(self) -> int:
        """How many tasks it has not announced."""
        current = self.current_ticket
        return sum(ticket > current for ticket in self.outstanding)

    def revoke(self, count: int) -> int | None:
        """Forbids the last `count` tasks that it has not started, and returns the first ticket of them; None if it has
        started all. `settle` returns those that it really did not start."""
        assert self.seat is not None
        left = sorted(ticket for ticket in self.outstanding if ticket > self.current_ticket)[-count:]
        if not left:
            return None
        self.revoked = True
        self.seat.slot.words[LIMIT] = min(left[0], self.seat.slot.words[LIMIT])
        return left[0]

    def settle(self, limit: int) -> list[Task]:
        """A moment after `revoke`: the tasks at or beyond the limit that it has not announced are free."""
        current = self.current_ticket
        tickets = [ticket for ticket in self.outstanding if ticket >= limit and ticket > current]
        return [self.outstanding.pop(ticket) for ticket in tickets]

    def item_ns(self, now_ns: int) -> int:
        """How long the current item has been running."""
        assert self.seat is not None
        start_ns = self.seat.slot.words[START_NS]
        return now_ns - start_ns if start_ns and self.current() is not None else 0

    def batch_ns(self, now_ns: int) -> int:
        """How long the current batch has been running."""
        assert self.seat is not None
        start_ns = self.seat.slot.words[FRAME_START_NS]
        return now_ns - start_ns if start_ns and self._frames and self.seat.slot.words[CURRENT] else 0

    def in_batch(self, ticket: int) -> int:
        """How many items the batch of this ticket had."""
        return next((end - first for first, end in self._frames if first <= ticket < end), 1)

    def ready_word(self) -> int:
        """What the worker says about its start."""
        return self.seat.slot.words[READY] if self.seat is not None else 0

    def sign(self) -> tuple[int, int, int]:
        """A heartbeat: changes whenever the worker makes progress."""
        assert self.seat is not None
        words = self.seat.slot.words
        return words[CURRENT], words[START_NS], words[FRAMES]

    def end_by_force(self, why: Why) -> None:
        """Kills the worker; the keeper reports when it is dead."""
        if self.kill is None and self.seat is not None:
            self.kill = Kill(why, self.current_ticket, time.monotonic())
        if self.seat is not None:
            self.seat.signal(signal.SIGKILL)

    def clear(self) -> list[Task]:
        """After the death: all that is still outstanding, in its order."""
        tasks = list(self.outstanding.values())
        self.outstanding = {}
        self._frames.clear()
        return tasks

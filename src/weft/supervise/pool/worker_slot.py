"""One slot of a pool on the parent's side: its worker process, the frames that wait to be sent to it, and why it was
killed. Users of a pool derive from `WorkerSlot` the state of the work that they assign.
"""

from __future__ import annotations

import enum
import fcntl
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Hashable
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from weft.supervise.child import Child, ChildState
from weft.supervise.held import Held

OUTPUT_LIMIT_BYTES = 8 * 1024 * 1024
_TAIL_BYTES = 2000
_PIECES_AT_ONCE = 64


class KillReason(enum.Enum):
    """Why the parent kills a worker."""

    TIMEOUT = "item over its time limit"
    BATCH = "batch over its time limit"
    MEMORY = "over the memory limit"
    HUNG = "no sign of life"
    START = "not ready in time"
    STOP = "did not end when asked"
    BROKEN = "its shared memory is corrupt"


class Kill(NamedTuple):
    """Why and when the parent killed a worker, and the item that it then held."""

    reason: KillReason
    held: Hashable
    at_s: float


class WorkerProcess:
    """The resources of one worker process: socket, output file, pidfd (in `held`)."""

    def __init__(self, connection: socket.socket, output_fd: int) -> None:
        self.connection = connection
        self.output_fd = output_fd
        self.held: Held | None = None  # until the fork server has reported it

    @property
    def pid(self) -> int:
        """Its pid; 0 until that is known."""
        return 0 if self.held is None else self.held.pid

    def sent(self) -> list[int]:
        """The descriptors that the worker is sent besides its socket."""
        return [self.output_fd]

    def output(self, limit: int) -> bytes:
        """Its output, unless it has read that itself."""
        return os.pread(self.output_fd, limit, 0) if os.fstat(self.output_fd).st_size else b""

    def stderr_tail(self) -> str:
        """The end of its output, for a message."""
        return self.output(OUTPUT_LIMIT_BYTES).decode(errors="replace").strip()[-_TAIL_BYTES:]

    def bound_output(self) -> int:
        """Truncates a flood of output while it grows, so that it fills neither memory nor disk; returns by how much."""
        more = os.fstat(self.output_fd).st_size - OUTPUT_LIMIT_BYTES
        if more > 0:
            os.ftruncate(self.output_fd, OUTPUT_LIMIT_BYTES)
        return max(0, more)

    def close(self) -> None:
        """Closes everything."""
        self.connection.close()
        os.close(self.output_fd)
        if self.held is not None:
            self.held.close()


W = TypeVar("W", bound=WorkerProcess)


class WorkerSlot(Generic[W]):
    """A slot, through all its workers."""

    def __init__(self, number: int, child: Child) -> None:
        self.number = number
        self.child = child
        self.worker: W | None = None
        self._reset()

    def _reset(self) -> None:
        self._unsent: deque[bytes | memoryview] = deque()
        self.unsent_bytes = 0
        self.retiring = False
        self.kill: Kill | None = None
        self.silent_s = 0.0
        self.last_sign: Hashable = None

    # ── what a user of the pool knows ──────────────────────────────────────────────────────────────────────────────

    @property
    def held(self) -> Hashable:
        """Identifies the item that the worker holds now; None if none."""
        return None

    @property
    def is_busy(self) -> bool:
        """Whether it has work."""
        return False

    @property
    def is_between_items(self) -> bool:
        """Whether it should be making progress by itself: no item is running."""
        return False

    def sign(self) -> Hashable:
        """A heartbeat: changes whenever the worker makes progress."""
        return None

    def over_time(self, since_s: float) -> KillReason | None:
        """The time limit that its current work has exceeded. `since_s`: how long it was monitored since the
        last call.
        """
        del since_s
        return None

    def near_memory_limit(self) -> None:
        """Called when it uses most of the memory that it may use."""

    # ── the same for all users ─────────────────────────────────────────────────────────────────────────────────────

    def attach(self, worker: W) -> None:
        """Puts a new worker into the slot."""
        self._reset()
        self.worker = worker
        self.child.spawned()

    def detach(self) -> None:
        """Removes the worker, which has ended."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None

    @property
    def running(self) -> bool:
        """Whether it can work."""
        return self.child.state is ChildState.RUNNING and self.kill is None

    def enqueue(self, frame: bytes) -> None:
        """Queues a frame for the worker; `push` sends it."""
        self._unsent.append(frame)
        self.unsent_bytes += len(frame)

    def push(self) -> bool:
        """Writes as much as the socket accepts; True when nothing is left."""
        while self._unsent and self.worker is not None:
            try:
                sent = self.worker.connection.sendmsg(islice(self._unsent, _PIECES_AT_ONCE))
            except BlockingIOError:
                return False
            except OSError:
                sent = self.unsent_bytes  # it is dying; the fork server will report it
            self.unsent_bytes -= sent
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.popleft())
            if sent:
                self._unsent[0] = memoryview(self._unsent[0])[sent:]
        return not self._unsent

    def end_by_force(self, reason: KillReason) -> None:
        """Kills the worker; the fork server reports when it is dead."""
        if self.worker is not None:
            if self.kill is None:
                self.kill = Kill(reason, self.held, time.monotonic())
            if self.worker.held is not None:
                self.worker.held.send(signal.SIGKILL)


def memory_output() -> int:
    """An output file that lives in memory; all writers append."""
    fd = os.memfd_create("weft-output", os.MFD_CLOEXEC)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    return fd

"""The owner of a run: written into its lock file, and read by a process that finds the file locked.

The lock is held as long as any process that inherited it. When the parent is dead and some process of its run still has
the lock (a fork server that was stopped, a process that an item put into a session of its own), the next run ends it.
Invariant: only a process that carries the dead run's mark in its environment is killed, and through a pidfd opened
before its mark was read, so that another process with the same pid never is.
"""

from __future__ import annotations

import os
import signal
import time

import msgspec

from weft.supervise import leftovers, process

MARK = "WEFT_POOL"
_MAX_BYTES = 1000
_ROUNDS = 10
_KILLED_S = 0.1  # a process that is stuck in the kernel does not end sooner by waiting longer


class Owner(msgspec.Struct, frozen=True):
    """The parent of a run, and the mark of everything that was started for it."""

    pid: int
    birth: int
    mark: str

    @classmethod
    def this_process(cls) -> Owner:
        """A new mark each time: a process may have several runs."""
        pid = os.getpid()
        return cls(pid, process.birth(pid) or 0, f"{pid}.{time.monotonic_ns()}")

    @property
    def alive(self) -> bool:
        """Whether it runs, and its pid was not reused."""
        return process.birth(self.pid) == self.birth and not process.has_ended(self.pid)

    def sign(self, lock_fd: int) -> None:
        """Writes itself into the lock file; on a full disk only this information is missing."""
        data = msgspec.json.encode(self)
        try:
            os.pwrite(lock_fd, data, 0)
            os.ftruncate(lock_fd, len(data))
        except OSError:
            return


def owner_of(lock_fd: int) -> Owner | None:
    """The owner in the file; None if it cannot be read."""
    try:
        return msgspec.json.decode(os.pread(lock_fd, _MAX_BYTES, 0), type=Owner)
    except (OSError, ValueError):
        return None


def sweep(mark: str) -> int:
    """Ends every process that carries the mark; returns how many. Repeats, as one may just have forked."""
    ended: set[int] = set()
    for _ in range(_ROUNDS):
        left = leftovers.find((), f"{MARK}={mark}")
        if not left:
            break
        for held in left:
            held.send(signal.SIGKILL)
            held.wait(_KILLED_S)
            held.close()
            ended.add(held.pid)
    return len(ended)

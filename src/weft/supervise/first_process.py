"""The duties of the first process of a container besides its work.

Orphans become its children, and stay zombies until it waits for them; and the kernel drops a signal that it has no
handler for, so that a stop during its start would only end by SIGKILL. Both are handled here, without a separate init
process: the service itself is process 1.

Invariant: a child that this process has started itself is left to its owner, who wants its exit status. Of one that is
not started by `starter` it is known when it was seen under another parent before; any other zombie is given time first.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from weft.supervise import process, starter

LOOK_S = 0.5
OWNERS_S = 10.0  # an owner that polls has reaped its child long before


def begin() -> None:
    """Must be called first of all; does nothing in a process that is not the first."""
    if os.getpid() != 1:
        return
    signal.signal(signal.SIGTERM, _end)
    reaper = OrphanReaper()
    threading.Thread(target=reaper.work, name="reaper", daemon=True).start()


def _end(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


class OrphanReaper:
    """Waits for those children of this process that no other code waits for."""

    def __init__(
        self,
        is_ours: Callable[[int], bool] = starter.has_started,
        *,
        owners_s: float = OWNERS_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_ours = is_ours
        self._owners_s = owners_s
        self._clock = clock
        self._elsewhere: dict[int, int | None] = {}  # processes under other parents, with their births
        self._zombies: dict[tuple[int, int | None], float] = {}

    def work(self) -> None:
        """Runs for ever, on a thread of its own."""
        while True:
            with suppress(OSError):  # no /proc here
                self.turn()
            time.sleep(LOOK_S)

    def turn(self) -> list[int]:
        """Reaps orphans; returns their pids."""
        children, now = set(process.children(os.getpid())), self._clock()
        ended = {
            (pid, process.birth(pid))
            for pid in children
            if process.state(pid) == "Z" and process.has_ended(pid) and not self._is_ours(pid)
        }
        self._zombies = {one: self._zombies.get(one, now) for one in ended}
        reaped = [
            pid
            for (pid, birth), since in self._zombies.items()
            if self._elsewhere.get(pid, -1) == birth or now - since >= self._owners_s
        ]
        for pid in reaped:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        known = self._elsewhere
        self._elsewhere = {
            pid: birth
            for pid in process.pids()
            if (birth := process.birth(pid)) is not None and (pid not in children or known.get(pid, -1) == birth)
        }
        return reaped

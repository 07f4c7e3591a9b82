"""How many transfers a loop keeps in flight: memory and descriptors set the bound, the loop's own load sets the number.

A constant is wrong for most webs: few transfers are enough for hosts that answer at once, and hosts that hang need
many. So the number begins small and grows while sites wait for a slot and the loop has time to spare. When the loop has
none, more transfers would only make answers wait to be read, so the number shrinks again. Sites that have never
answered may use half of it, slow ones a quarter: hosts that hang can never occupy the rest.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path

from weft.frontier.contract import Slots
from weft.supervise.memory import available_bytes
from weft.telemetry import Log

FIRST_TARGET = 256
MOST_TRANSFERS = 10_000
POLL_EVERY_S = 0.5
TRANSFER_BYTES = 512 << 10  # memory of one transfer, with its connection, buffers and TLS; bodies are bounded elsewhere
MEMORY_SHARE = 1 / 16  # of the available memory: there are other processes, and pages to parse
RESERVED_DESCRIPTORS = 64  # databases, logs, sockets of our own
_BUSY, _FREE = 0.97, 0.9  # shares of the time above which the loop has none to spare, and below which it has
_LEAST_TARGET = 8  # sites that may be due at any moment although nothing is short
log = Log("weft.engine.loop.fetcher.flight")


def most_in_flight(workers: int | None) -> int:
    """The bound for one process: the setting, or what its descriptors and memory allow."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    # A running transfer has two descriptors, and as many connections again are kept open.
    by_files = max(1, (files - RESERVED_DESCRIPTORS) // 4)
    if workers is not None:
        return min(workers, by_files)
    by_memory = int(available_bytes() * MEMORY_SHARE) // TRANSFER_BYTES
    return max(16, min(MOST_TRANSFERS, by_files, by_memory)) if by_files >= 16 else by_files


def busy_s() -> float:
    """How long this thread has run or has waited for a core: on a loaded machine the wait counts too."""
    try:
        ran, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
        return (int(ran) + int(waited)) / 1e9
    except (OSError, ValueError):
        return time.thread_time()


class FlightControl:
    """The number of transfers in flight, and the share of each class of sites."""

    def __init__(self, most: int, *, busy: Callable[[], float] = busy_s) -> None:
        self._most_in_flight = most
        self._busy_at_poll = busy
        self._polled_at: tuple[float, float] | None = None  # the last sample's time and busy time
        self._set_target(min(most, FIRST_TARGET))

    def room(self, in_flight: int) -> int:
        """How many more transfers may be started."""
        return max(0, self.target - in_flight)

    def poll(self, now: float, due: int, in_flight: int) -> None:
        """Adjusts the number; called periodically. `due`: sites that could be asked now, and are not."""
        busy = self._busy_at_poll()
        if self._polled_at is None:
            self._polled_at = (now, busy)
            return
        if now - self._polled_at[0] < POLL_EVERY_S:
            return
        share = (busy - self._polled_at[1]) / (now - self._polled_at[0])
        self._polled_at = (now, busy)
        if share >= _BUSY and self.target > FIRST_TARGET:
            self._set_target(max(FIRST_TARGET, self.target * 9 // 10))
        elif share < _FREE and due > max(_LEAST_TARGET, in_flight // 16) and self.target < self._most_in_flight:
            self._set_target(min(self._most_in_flight, 2 * self.target))

    def _set_target(self, target: int) -> None:
        self.target = target
        self.slots = Slots(unknown=max(1, target // 2), slow=max(1, target // 4))
        log.debug("in flight, at most", transfers=target, most=self._most_in_flight)

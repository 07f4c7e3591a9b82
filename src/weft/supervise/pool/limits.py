"""Checks from outside whether a worker must be killed: time limits, memory, heartbeat.

From outside, because native code cannot be interrupted from within, and a stopped or deadlocked worker cannot report
itself. While an item runs its heartbeat may stay the same for as long as the item's limit, unless the kernel says that
the process is stopped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.supervise import process
from weft.supervise.pool.worker_slot import KillReason, WorkerSlot

LONGEST_POLL_S = 0.25
"""A longer time between two checks means that the parent was busy, not that a worker was silent."""
_NEAR_LIMIT = 0.75
_MB = 1024 * 1024


class PoolLimits(NamedTuple):
    """The limits that apply to all items of one pool; None is no limit."""

    heartbeat_s: float
    memory_mb: float | None

    def over(self, slot: WorkerSlot[Any], since_s: float) -> KillReason | None:
        """Why this worker must be killed now; None if it is within its limits. `since_s` is the time since the last
        check.
        """
        if slot.worker is None or slot.worker.held is None or slot.kill is not None:
            return None
        if slot.running:
            if self.memory_mb is not None:
                used_mb = process.rss_bytes(slot.worker.pid) / _MB
                if used_mb > _NEAR_LIMIT * self.memory_mb:
                    slot.near_memory_limit()
                if used_mb > self.memory_mb:
                    return KillReason.MEMORY
            if not slot.is_busy:
                return None
            if (reason := slot.over_time(since_s)) is not None:
                return reason
        return KillReason.HUNG if self._silent(slot, slot.worker.pid, since_s) else None

    def _silent(self, slot: WorkerSlot[Any], pid: int, since_s: float) -> bool:
        sign = slot.sign()
        between = slot.running and slot.is_between_items
        stuck = sign == slot.last_sign and (between or process.state(pid) in ("T", "t"))
        slot.last_sign = sign
        slot.silent_s = slot.silent_s + min(since_s, LONGEST_POLL_S) if stuck and not slot.unsent_bytes else 0.0
        return slot.silent_s > self.heartbeat_s

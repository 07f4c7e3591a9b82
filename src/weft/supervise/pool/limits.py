"""Checks from outside whether a worker must be killed: time limits, memory, heartbeat.

From outside, because native code cannot be interrupted from within, and a stopped or deadlocked worker cannot report
itself. While an item runs its heartbeat may stay the same for as long as the item's limit, unless the kernel says that
the process is stopped.
"""

from __future__ import annotations

from typing import Any

from weft.supervise import process
from weft.supervise.pool.worker_slot import KillReason, WorkerSlot

LONGEST_LOOK_S = 0.25
"""A longer time between two checks means that the parent was busy, not that a worker was silent."""
_NEAR_LIMIT = 0.75


class LimitWatch:
    """The limits of one pool."""

    def __init__(self, heartbeat_s: float, memory_mb: float | None) -> None:
        self._heartbeat_s = heartbeat_s
        self._memory_bytes = None if memory_mb is None else int(memory_mb * 1024 * 1024)

    def over(self, slot: WorkerSlot[Any], since_s: float) -> KillReason | None:
        """Why this worker must be killed now; None when all is well. `since_s` is the time since the last look."""
        if slot.worker is None or slot.worker.pidfd < 0 or slot.kill is not None:
            return None
        if slot.running:
            if self._memory_bytes is not None and self._over_memory(slot, slot.worker.pid, self._memory_bytes):
                return KillReason.MEMORY
            if not slot.is_busy:
                return None
            if (reason := slot.over_time(since_s)) is not None:
                return reason
        return KillReason.HUNG if self._silent(slot, slot.worker.pid, since_s) else None

    def _over_memory(self, slot: WorkerSlot[Any], pid: int, limit_bytes: int) -> bool:
        used = process.rss_bytes(pid)
        if used > _NEAR_LIMIT * limit_bytes:
            slot.near_memory_limit()
        return used > limit_bytes

    def _silent(self, slot: WorkerSlot[Any], pid: int, since_s: float) -> bool:
        sign = slot.sign()
        between = slot.running and slot.is_between_items
        stuck = sign == slot.last_sign and (between or process.state(pid) in ("T", "t"))
        slot.last_sign = sign
        slot.silent_s = slot.silent_s + min(since_s, LONGEST_LOOK_S) if stuck and not slot.unsent_bytes else 0.0
        return slot.silent_s > self._heartbeat_s

"""Checks from outside whether a worker must be killed: time limits, memory, heartbeat.

From outside, because native code cannot be interrupted from within, and a stopped or deadlocked worker cannot report
itself. The heartbeat is the slot: its words change whenever the worker makes progress. While an item runs they may stay
the same for as long as the item's limit, unless the kernel says that the process is stopped.
"""

from __future__ import annotations

import os

from weft.pipelines.pool.capture import OUTPUT_LIMIT_BYTES
from weft.pipelines.pool.crew import LONGEST_LOOK_S
from weft.pipelines.pool.member import Member, Why
from weft.pipelines.pool.settings import Settings
from weft.pipelines.pool.slot import CUT, START_NS
from weft.supervise import process

_RECYCLE_AT = 0.75


class Watch:
    """The limits of one pool."""

    def __init__(self, settings: Settings) -> None:
        self._item_ns = _ns(settings.item_timeout)
        self._batch_ns = _ns(settings.batch_timeout)
        self._heartbeat_s = settings.heartbeat_timeout
        self._memory_bytes = None if settings.memory_limit_mb is None else int(settings.memory_limit_mb * 1024 * 1024)

    def over(self, member: Member, now_ns: int, since_s: float) -> Why | None:
        """Why this worker must be killed now; None when all is well. `since_s` is the time since the last look."""
        if member.seat is None or member.seat.pidfd < 0 or member.kill is not None:
            return None
        if not member.running:
            return Why.HUNG if self._silent(member, since_s) else None
        if self._memory_bytes is not None and self._over_memory(member, self._memory_bytes):
            return Why.MEMORY
        if not member.outstanding:
            return None
        if self._item_ns is not None and member.item_ns(now_ns) > self._item_ns:
            return Why.TIMEOUT
        if self._batch_ns is not None and member.batch_ns(now_ns) > self._batch_ns:
            return Why.BATCH
        return Why.HUNG if self._silent(member, since_s) else None

    def _over_memory(self, member: Member, limit_bytes: int) -> bool:
        """Whether it is above the limit; near it, it is marked to be replaced after its item."""
        assert member.seat is not None
        used = process.rss_bytes(member.seat.pid)
        if used > _RECYCLE_AT * limit_bytes and not member.fresh and not member.alone:
            member.worn = True
        return used > limit_bytes

    def _silent(self, member: Member, since_s: float) -> bool:
        assert member.seat is not None
        sign = member.sign()
        between = member.running and member.seat.slot.words[START_NS] == 0
        stuck = sign == member.last_sign and (between or process.state(member.seat.pid) in ("T", "t"))
        member.last_sign = sign
        member.silent_s = member.silent_s + min(since_s, LONGEST_LOOK_S) if stuck and not member.sending else 0.0
        return member.silent_s > self._heartbeat_s


def bound_output(member: Member) -> None:
    """Truncates a flood of output while it grows, so that it fills neither memory nor disk."""
    if member.seat is None:
        return
    more = os.fstat(member.seat.output_fd).st_size - OUTPUT_LIMIT_BYTES
    if more > 0:
        os.ftruncate(member.seat.output_fd, OUTPUT_LIMIT_BYTES)
        member.seat.slot.words[CUT] += more


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)

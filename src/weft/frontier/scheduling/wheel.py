"""A timer wheel of short ticks: scheduling costs the same for ten sites and for ten million.

A heap of all sites would cost more the more sites wait. Here a site is put into the list of the tick it is due in; only
the ticks themselves, a few thousand at most, are ordered. A site is never returned before its time: its tick is the
first that begins at or after it.

Due entries are returned in the order of their times, in one queue per rank: the caller chooses the rank, so that sites
that must wait for something else (a slot) block no others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from math import ceil
from typing import Generic, Protocol, TypeVar

TICKS_A_SECOND = 128  # a power of two: no rounding between a time and its tick


class WheelEntry(Protocol):
    """An entry of a wheel. It stores its own tick, so that moving it is O(1)."""

    tick: int

    @property
    def rank(self) -> int:
        """The queue that it waits in once it is due."""


S = TypeVar("S", bound=WheelEntry)
IDLE = -1
READY = 0


class Wheel(Generic[S]):
    """Entries by the time at which they are due."""

    def __init__(self, ranks: int = 1) -> None:
        self._ticks: dict[int, list[S]] = {}
        self._order: list[int] = []
        self._ready: list[deque[S]] = [deque() for _ in range(ranks)]

    def put(self, thing: S, due: float, now: float = -1.0) -> None:
        """Schedules an entry, or moves it to a new time. One that is due `now` does not wait for the next tick."""
        if due <= now:
            if thing.tick != READY:
                thing.tick = READY
                self._ready[thing.rank].append(thing)
            return
        tick = ceil(due * TICKS_A_SECOND)
        if thing.tick == tick:
            return
        thing.tick = tick
        if tick in self._ticks:
            self._ticks[tick].append(thing)
        else:
            self._ticks[tick] = [thing]
            heappush(self._order, tick)

    def remove(self, thing: S) -> None:
        """Removes an entry; its slot in the tick's list is skipped later."""
        thing.tick = IDLE

    def pop(self, now: float, rank: int = 0) -> S | None:
        """The next entry of a rank that is due, in order of time; None if there is none."""
        current, ready = int(now * TICKS_A_SECOND), self._ready[rank]
        while True:
            while ready:
                thing = ready.popleft()
                if READY <= thing.tick <= current:
                    thing.tick = IDLE
                    return thing
            if not self._order or self._order[0] > current:
                return None
            tick = heappop(self._order)
            for thing in self._ticks.pop(tick):
                if thing.tick == tick:
                    self._ready[thing.rank].append(thing)

    def due(self, now: float) -> int:
        """About how many are due: one that was moved may be counted twice. Costs nothing for those not due."""
        current, order = int(now * TICKS_A_SECOND), self._order
        count, places = sum(map(len, self._ready)), [0]
        while places:
            place = places.pop()
            if place < len(order) and order[place] <= current:  # a heap: the children of a later tick are later too
                count += len(self._ticks[order[place]])
                places += (2 * place + 1, 2 * place + 2)
        return count

    def waiting(self, rank: int) -> int:
        """About how many of a rank are known to be due."""
        return len(self._ready[rank])

    def next_due(self, ranks: Iterable[int] | None = None) -> float | None:
        """When the next entry of some ranks may be due; None if none is scheduled. An entry whose time has not come
        counts whatever its rank.
        """
        if any(self._ready if ranks is None else (self._ready[rank] for rank in ranks)):
            return 0.0
        while self._order:
            tick = self._order[0]
            if any(thing.tick == tick for thing in self._ticks[tick]):
                return tick / TICKS_A_SECOND
            del self._ticks[heappop(self._order)]
        return None

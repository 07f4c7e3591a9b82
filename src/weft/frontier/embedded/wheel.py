"""A timer wheel of short ticks: scheduling costs the same for ten sites and for ten million.

A heap of all sites would cost more the more sites wait. Here a site is put into the list of the tick it is due in;
only the ticks themselves, a few thousand at most, are ordered. A site is never returned before its time: its tick is
the first that begins at or after it.

What is due comes out in the order of its time, in two lines: sites that nobody has asked yet, and the others. While
both wait, the others have most of the turns: a first contact brings a robots.txt and no page, and of a million new
hosts every robots.txt would go before any page.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from math import ceil
from typing import Generic, Protocol, TypeVar

TICKS_A_SECOND = 128  # a power of two: no rounding between a time and its tick
KNOWN_TURNS = 3  # of entries that are known, for each one that is new


class Scheduled(Protocol):
    """An entry of a wheel. It stores its own tick, so that moving it is O(1)."""

    tick: int

    @property
    def is_new(self) -> bool:
        """Whether it was never asked."""


S = TypeVar("S", bound=Scheduled)
IDLE = -1
READY = 0


class Wheel(Generic[S]):
    """Entries by the time at which they are due."""

    def __init__(self) -> None:
        self._ticks: dict[int, list[S]] = {}
        self._order: list[int] = []
        self._known: deque[S] = deque()  # that are due
        self._new: deque[S] = deque()
        self._turns = 0  # of known ones since a new one had its turn

    def put(self, thing: S, due: float, now: float = -1.0) -> None:
        """Schedules an entry, or moves it to a new time. One that is due `now` does not wait for the next tick."""
        if due <= now:
            if thing.tick != READY:
                thing.tick = READY
                (self._new if thing.is_new else self._known).append(thing)
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
        """Removes an entry; its place in the tick's list is skipped later."""
        thing.tick = IDLE

    def pop(self, now: float) -> S | None:
        """The next entry that is due, in order of time, new ones in between; None if there is none."""
        current = int(now * TICKS_A_SECOND)
        if self._order and self._order[0] <= current:
            self._collect(current)
        while self._known or self._new:
            is_known = bool(self._known) and (not self._new or self._turns < KNOWN_TURNS)
            thing = (self._known if is_known else self._new).popleft()
            if READY <= thing.tick <= current:
                thing.tick = IDLE
                self._turns = self._turns + 1 if is_known else 0
                return thing
        return None

    def _collect(self, current: int) -> None:
        """Puts what has become due into the two lines."""
        while self._order and self._order[0] <= current:
            tick = heappop(self._order)
            for thing in self._ticks.pop(tick):
                if thing.tick == tick:
                    (self._new if thing.is_new else self._known).append(thing)

    def due(self, now: float) -> int:
        """About how many are due: one that was moved may be counted twice. Costs nothing for those not due."""
        current, order = int(now * TICKS_A_SECOND), self._order
        count, places = len(self._known) + len(self._new), [0]
        while places:
            place = places.pop()
            if place < len(order) and order[place] <= current:  # a heap: the children of a later tick are later too
                count += len(self._ticks[order[place]])
                places += (2 * place + 1, 2 * place + 2)
        return count

    @property
    def new(self) -> int:
        """About how many are due that are new."""
        return len(self._new)

    def next_due(self) -> float | None:
        """When the next entry may be due; None if none is scheduled."""
        if self._known or self._new:
            return 0.0
        while self._order:
            tick = self._order[0]
            if any(thing.tick == tick for thing in self._ticks[tick]):
                return tick / TICKS_A_SECOND
            del self._ticks[heappop(self._order)]
        return None

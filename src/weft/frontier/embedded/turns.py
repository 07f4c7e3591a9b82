"""Whose turn it is among sites that are due: those that answer, those that are slow, those nobody knows yet.

Requests to sites that hang take a process's slots for as long as its time limits allow; if they could take all of them,
a web with one dead host in ten would be crawled at the pace of its dead hosts. So each class but the first has a limit
of requests that may be out, and while several classes have something due they take turns: sites that answer come first,
and the others are never left out. Invariant: `out` counts the leases whose request may still be under way, by class.
"""

from __future__ import annotations

from weft.frontier.contract import Slots
from weft.frontier.embedded.sites import Site
from weft.frontier.embedded.wheel import Wheel
from weft.frontier.politeness import Shown

_NO_LIMIT = 1 << 60
_PATTERN = (Shown.FINE, Shown.FINE, Shown.UNKNOWN, Shown.FINE, Shown.SLOW)
KNOWN_TURNS = len(_PATTERN) - 1  # of sites that are known, for each one that is not
# For each turn the classes in the order in which they are asked.
_ORDERS = tuple((first, *(other for other in Shown if other is not first)) for first in _PATTERN)


class Turns:
    """The classes' slots and turns."""

    def __init__(self) -> None:
        self.out = [0] * len(Shown)
        self._most = [_NO_LIMIT] * len(Shown)
        self._turn = 0

    def limit(self, slots: Slots | None) -> None:
        """How many requests may be out from now on; each class may always have one."""
        if slots is None:
            self._most = [_NO_LIMIT] * len(Shown)
        else:
            self._most[Shown.SLOW], self._most[Shown.UNKNOWN] = max(1, slots.slow), max(1, slots.unknown)

    def has_room(self, rank: int) -> bool:
        """Whether another request to a site of a class may go out."""
        return self.out[rank] < self._most[rank]

    def with_room(self) -> list[int]:
        """The classes that have a slot."""
        return [rank for rank in Shown if self.out[rank] < self._most[rank]]

    def pop(self, wheel: Wheel[Site], now: float) -> Site | None:
        """The next site that is due and has a slot."""
        for rank in _ORDERS[self._turn]:
            if self.out[rank] < self._most[rank] and (site := wheel.pop(now, rank)) is not None:
                self._turn = (self._turn + 1) % len(_ORDERS)
                return site
        return None

"""The requests of a process to sites of each class: how many are out, and how many may be.

Requests to sites that hang take a process's slots for as long as its time limits allow; if they could take all of them,
a web with one dead host in ten would be crawled at the pace of its dead hosts. So each class but the first has a limit
of requests that may be out. Invariant: `out` counts the leases whose request may still be under way, by class.
"""

from __future__ import annotations

from weft.frontier.contract import Slots
from weft.frontier.politeness import Responsiveness

_NO_LIMIT = 1 << 60
# The order of turns while several classes have a site due: responsive sites come first, the others are not starved. The
# turns of redis/lua/claim.lua are the same.
CLASS_TURNS = (
    Responsiveness.FINE,
    Responsiveness.FINE,
    Responsiveness.UNKNOWN,
    Responsiveness.FINE,
    Responsiveness.SLOW,
)


class ClassSlots:
    """The slots of each class."""

    def __init__(self) -> None:
        self.out_by_class = [0] * len(Responsiveness)
        self._most = [_NO_LIMIT] * len(Responsiveness)

    def limit(self, slots: Slots | None) -> None:
        """Sets how many requests may be out from now on; each class may always have one."""
        if slots is None:
            self._most = [_NO_LIMIT] * len(Responsiveness)
        else:
            self._most[Responsiveness.SLOW], self._most[Responsiveness.UNKNOWN] = (
                max(1, slots.slow),
                max(1, slots.unknown),
            )

    def has_room(self, rank: int) -> bool:
        """Whether another request to a site of a class may go out."""
        return self.out_by_class[rank] < self._most[rank]

    def free_slots(self, rank: int) -> int:
        """How many more requests to a class may be started."""
        return max(0, self._most[rank] - self.out_by_class[rank])

    def classes_with_room(self) -> list[int]:
        """The classes that have a free slot."""
        return [rank for rank in Responsiveness if self.out_by_class[rank] < self._most[rank]]

"""Turns among sites that are due: responsive ones, slow ones, and unknown ones.

While several classes have something due they take turns: responsive sites come first, and the others are never starved.
Each class has its slots (`frontier/slots.py`).
"""

from __future__ import annotations

from weft.frontier.politeness import Responsiveness
from weft.frontier.scheduling.sites import Site
from weft.frontier.scheduling.wheel import Wheel
from weft.frontier.slots import CLASS_TURNS, ClassSlots

KNOWN_TURNS = len(CLASS_TURNS) - 1  # of known sites, for each unknown one
# For each turn the classes in the order in which they are asked.
_TURN_ORDERS = tuple((first, *(other for other in Responsiveness if other is not first)) for first in CLASS_TURNS)


class ClassTurns(ClassSlots):
    """The classes' slots and turns."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = 0

    def pop_site(self, wheel: Wheel[Site], now: float) -> Site | None:
        """The next site that is due and has a slot."""
        for rank in _TURN_ORDERS[self._turn]:
            if self.out_by_class[rank] < self._most[rank] and (site := wheel.pop(now, rank)) is not None:
                self._turn = (self._turn + 1) % len(_TURN_ORDERS)
                return site
        return None

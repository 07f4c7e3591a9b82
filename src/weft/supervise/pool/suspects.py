"""Decides when an item is to blame for the deaths of workers. Pure rules, no processes.

- The item that a dead worker held is tried once more. A second death and it is to blame.
- SIGKILL and SIGSTOP may come from outside (an operator, the kernel short of memory) and hit any worker. When an item
  proves not to be the cause (it ended well on its next try, or no item was held), or STORM_ITEMS different items are
  hit, then for the next minute such deaths do not count, and an item hit by them has up to STORM_TRIES tries. The first
  deaths of such a storm may hit one item twice: a verdict that rests on them alone is `doubtful`.
- When the fork server itself dies, every item that was running is a suspect. With several of them that proves nothing
  about any one; each is to be tried again with nothing else running. Only its death with a lone item counts against
  that, and since it may come from outside as well, it takes as many of those as of other deaths from outside.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from typing import Protocol

OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Deaths by these may well have nothing to do with what the worker was doing."""
STORM_TRIES = 6
STORM_ITEMS = 4
DOUBT_S = 1.0
"""How long a doubtful verdict should wait for signs of a storm."""
_STORM_MEMORY_S = 60.0


class Suspect(Protocol):
    """The deaths of workers during one item."""

    position: int
    """Names the item."""
    tries: int
    """How often it was begun and not ended."""
    strikes: int
    """How often a worker died with it."""
    outside: int
    """How many of those deaths may well have come from outside."""
    secluded: bool
    """The fork server died while it was running: from then on it should run with nothing beside it."""


class CrashRules:
    """Decides whether an item is to blame for deaths; remembers recent kills from outside."""

    def __init__(self, tries: int = 2, clock: Callable[[], float] = time.monotonic) -> None:
        self._tries = tries
        self._clock = clock
        self._innocent_s = float("-inf")
        self._hit: dict[int, float] = {}

    def ended(self, items: Iterable[Suspect]) -> None:
        """These items have ended; if workers were killed from outside with them before, they were not the cause."""
        if any(item.outside for item in items):
            self.saw_innocent()

    def saw_innocent(self) -> None:
        """Records a death from outside that no item can have caused."""
        self._innocent_s = self._clock()

    def strike(self, item: Suspect, *, outside: bool, with_server: bool = False) -> bool:
        """A worker died with this item. True: it is to blame; False: it is to be tried again, alone.

        `with_server`: it was the only item that was running when the fork server died. Such deaths of several items are
        no sign of a storm: each of them runs alone from then on, so random kills of the server would hit few of them.
        """
        item.tries += 1
        item.strikes += 1
        item.outside += outside
        if with_server:
            item.secluded = True
        elif outside:
            self._saw_hit(item)
        return self.guilty(item)

    def in_company(self, item: Suspect) -> None:
        """The fork server died while this item and others were running: it must run alone from now on."""
        item.tries += 1
        item.secluded = True

    def guilty(self, item: Suspect) -> bool:
        """Whether it is to blame, by the deaths so far."""
        stormy = self._clock() - self._innocent_s < _STORM_MEMORY_S
        return (self._proven_in_storm(item) if stormy else item.strikes) >= self._tries

    def doubtful(self, item: Suspect) -> bool:
        """Whether it would not be to blame if a storm of kills shows."""
        return self._proven_in_storm(item) < self._tries

    def _proven_in_storm(self, item: Suspect) -> int:
        return item.strikes - item.outside if item.strikes < STORM_TRIES else item.strikes

    def _saw_hit(self, item: Suspect) -> None:
        now_s = self._clock()
        self._hit[item.position] = now_s
        self._hit = {position: at_s for position, at_s in self._hit.items() if now_s - at_s < _STORM_MEMORY_S}
        if len(self._hit) >= STORM_ITEMS:
            self.saw_innocent()

"""Back-pressure: fetchers slow down while parsers cannot keep up.

Up to the soft limit of pages that wait for a parser nothing happens; between the limits a fetcher keeps fewer transfers
in flight, in proportion; at the hard limit it claims nothing more until the queue is below the soft one.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from weft.telemetry import Log

POLL_EVERY_S = 0.1
CALM_S = 5.0  # the level must have been lower for this long before that is logged: a queue may oscillate around it
log = Log("weft.engine.loop.parser.pressure")


class Level(StrEnum):
    """The level of back-pressure."""

    NONE = "none"
    SOFT = "soft"
    HARD = "hard"


_RANK = {Level.NONE: 0, Level.SOFT: 1, Level.HARD: 2}


class Pressure:
    """Watches the parse queue. `waiting` gives its length."""

    def __init__(self, waiting: Callable[[], int], soft: int, hard: int, *, every_s: float = POLL_EVERY_S) -> None:
        self._waiting = waiting
        self._soft = soft
        self._hard = hard
        self._every_s = every_s
        self._next = 0.0
        self._estimate = 0
        self._share = 1.0
        self.level = Level.NONE
        self._logged = Level.NONE  # the level that was logged last
        self._calm_since: float | None = None
        self.events: dict[str, int] = {Level.SOFT: 0, Level.HARD: 0}  # how often each level was reached

    def share(self, now: float) -> float:
        """The share of its transfers that a fetcher may have in flight now, between none and all."""
        if now >= self._next:
            self._next = now + self._every_s
            self._measure(self._waiting())
            self._log_change(now)
        return self._share

    def grew(self, pages: int) -> None:
        """Adds pages that this process has handed over; what the parsers have leased is read at the next check."""
        self._measure(self._estimate + pages)

    def _log_change(self, now: float) -> None:
        """Logs a higher level at once, a lower one when it has lasted."""
        if _RANK[self.level] >= _RANK[self._logged]:
            self._calm_since = None
        elif self._calm_since is None:
            self._calm_since = now
        if _RANK[self.level] > _RANK[self._logged]:
            log.info(
                "back-pressure entered", level=self.level, waiting=self._estimate, soft=self._soft, hard=self._hard
            )
        elif self._calm_since is None or now - self._calm_since < CALM_S:
            return
        else:
            log.info("back-pressure left", level=self._logged, now=self.level, waiting=self._estimate)
        self._logged, self._calm_since = self.level, None

    def _measure(self, waiting: int) -> None:
        self._estimate, before = waiting, self.level
        if waiting < self._soft:
            self.level, self._share = Level.NONE, 1.0
        elif waiting >= self._hard or before is Level.HARD:
            self.level, self._share = Level.HARD, 0.0
        else:
            self.level, self._share = Level.SOFT, (self._hard - waiting) / (self._hard - self._soft)
        if self.level is not before and self.level is not Level.NONE:
            self.events[self.level] += 1

"""Back-pressure: fetchers slow down while parsers cannot keep up.

Up to the soft limit of pages that wait for a parser nothing happens; between the limits a fetcher keeps fewer transfers
in flight, in proportion; at the hard limit it claims nothing more until the queue is below the soft one.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from weft.telemetry import Log

POLL_EVERY_S = 0.1
CALM_BEFORE_LOWER_S = (
    5.0  # the level must have been lower for this long before that is logged: a queue may oscillate around it
)
log = Log("weft.engine.loop.parser.pressure")


class PressureLevel(StrEnum):
    """The level of back-pressure."""

    NONE = "none"
    SOFT = "soft"
    HARD = "hard"


_SEVERITY = {PressureLevel.NONE: 0, PressureLevel.SOFT: 1, PressureLevel.HARD: 2}


class Pressure:
    """Watches the parse queue. `waiting` gives its length."""

    def __init__(self, waiting: Callable[[], int], soft: int, hard: int, *, every_s: float = POLL_EVERY_S) -> None:
        self._waiting = waiting
        self._soft = soft
        self._hard = hard
        self._every_s = every_s
        self._next = 0.0
        self._estimated_pages = 0
        self._share = 1.0
        self.level = PressureLevel.NONE
        self._logged_level = PressureLevel.NONE  # the level that was logged last
        self._calm_since: float | None = None
        self.events: dict[str, int] = {PressureLevel.SOFT: 0, PressureLevel.HARD: 0}  # how often each level was reached

    def transfer_share(self, now: float) -> float:
        """The share of its transfers that a fetcher may have in flight now, between none and all."""
        if now >= self._next:
            self._next = now + self._every_s
            self._level_of(self._waiting())
            self._log_change(now)
        return self._share

    def add_pages(self, pages: int) -> None:
        """Adds pages that this process has handed over; what the parsers have leased is read at the next check."""
        self._level_of(self._estimated_pages + pages)

    def _log_change(self, now: float) -> None:
        """Logs a higher level at once, a lower one when it has lasted."""
        if _SEVERITY[self.level] >= _SEVERITY[self._logged_level]:
            self._calm_since = None
        elif self._calm_since is None:
            self._calm_since = now
        if _SEVERITY[self.level] > _SEVERITY[self._logged_level]:
            log.info(
                "back-pressure entered",
                level=self.level,
                waiting=self._estimated_pages,
                soft=self._soft,
                hard=self._hard,
            )
        elif self._calm_since is None or now - self._calm_since < CALM_BEFORE_LOWER_S:
            return
        else:
            log.info("back-pressure left", level=self._logged_level, now=self.level, waiting=self._estimated_pages)
        self._logged_level, self._calm_since = self.level, None

    def _level_of(self, waiting: int) -> None:
        self._estimated_pages, before = waiting, self.level
        if waiting < self._soft:
            self.level, self._share = PressureLevel.NONE, 1.0
        elif waiting >= self._hard or before is PressureLevel.HARD:
            self.level, self._share = PressureLevel.HARD, 0.0
        else:
            self.level, self._share = PressureLevel.SOFT, (self._hard - waiting) / (self._hard - self._soft)
        if self.level is not before and self.level is not PressureLevel.NONE:
            self.events[self.level] += 1

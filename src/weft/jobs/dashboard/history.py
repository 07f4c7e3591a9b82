"""A task's past as a bar chart: pages, errors and bytes over time.

The task's rows are counted in the index, from the last one that was counted; bars are widened so that there are at most
BARS, so memory and rendering cost the same for a minute and for two hours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from weft.jobs.service import Second

BARS = 120


class Bar(NamedTuple):
    """What was done in one interval, per second."""

    pages: float
    errors: float
    body_bytes: float


class History:
    """The history of one task."""

    def __init__(self) -> None:
        self.number = 0  # of the last event that is counted
        self.start: int | None = None
        self.width_s = 1
        self.errors = self.body_bytes = 0
        self._bars: list[list[int]] = []

    def add(self, seconds: Iterable[Second], number: int) -> None:
        """Adds a part of the task's timeline."""
        self.number = number
        for second in seconds:
            if self.start is None:
                self.start = second.at
            bar = self._bar_at(max(0, second.at - self.start))
            bar[0] += second.pages
            bar[1] += second.errors
            bar[2] += second.body_bytes
            self.errors += second.errors
            self.body_bytes += second.body_bytes

    def bars(self, until: float | None) -> list[Bar]:
        """Consecutive bars, up to `until` if the task still runs; an interval that has only begun by then is left
        out."""
        bars = [Bar(*(value / self.width_s for value in bar)) for bar in self._bars]
        if until is None or self.start is None:
            return bars
        whole = int(until - self.start) // self.width_s
        bars += [Bar(0, 0, 0)] * min(BARS - len(bars), max(0, whole - len(bars)))
        return bars[: max(1, whole)]

    @property
    def length_s(self) -> int:
        """The time from the first bar to the end of the last one, in seconds."""
        return len(self._bars) * self.width_s

    def _bar_at(self, after_s: int) -> list[int]:
        while after_s // self.width_s >= BARS:
            self._bars = [
                [sum(values) for values in zip(*self._bars[at : at + 2], strict=True)]
                for at in range(0, len(self._bars), 2)
            ]
            self.width_s *= 2
        while len(self._bars) <= after_s // self.width_s:
            self._bars.append([0, 0, 0])
        return self._bars[after_s // self.width_s]

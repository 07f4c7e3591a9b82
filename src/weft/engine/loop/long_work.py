"""Reports on work that grows with the crawl: a heartbeat for the supervisor, a progress line for the user.

A process makes one `LongWork` before it opens anything, and hands it down as `alive`: every loop over pages, URLs,
hosts or files calls it once for each bounded piece, and SQLite calls it from inside long statements. A process that
makes progress is not killed, however long its work takes, at its start, at its end and in between; one that is stuck
makes none. Its status names the work and its progress; the log does if the work takes long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from weft.engine.loop.parser.suspects import Heartbeat
from weft.engine.loop.progress import CrawlProgress
from weft.telemetry import Log

PIECES_PER_HEARTBEAT = 1000  # items that `each` passes on between two heartbeats
REPORT_EVERY_S = 0.5
LOG_EVERY_S = 10.0
STARTING = "starting"
log = Log("weft.engine.loop.long_work")
T = TypeVar("T")


class LongWork:
    """Reports progress; call it for each piece of the work."""

    def __init__(
        self, heartbeat: Heartbeat, progress: CrawlProgress, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.heartbeat = heartbeat
        self._progress = progress
        self._clock = clock
        self._state = ""  # the process's state; nothing is reported while it is empty
        self._description = ""
        self._done = self._total = 0
        self._next_report = self._next_log = 0.0

    def begin(self, what: str, total: int = 0, *, state: str = STARTING) -> None:
        """Begins the next work, described in words for the user; `total`: the number of pieces, if known."""
        now = self._clock()
        self._state, self._description, self._done, self._total = state, what, 0, total
        self._next_report, self._next_log = now + REPORT_EVERY_S, now + LOG_EVERY_S

    def end(self) -> None:
        """Ends the reports: other code reports the process's status from now on, and a call is only a heartbeat."""
        self._state = ""

    def __call__(self, count: int = 0) -> None:
        """Reports that a piece is done, with `count` of the total."""
        if self._state == STARTING:
            # no `step`: steps give a process that was asked to end more time, and its start need not be finished
            self.heartbeat.send_heartbeat()
        else:
            self.heartbeat.step()
        self._done += count
        if self._state and self._clock() >= self._next_report:
            self._report_if_due()

    def count_each(self, items: Iterable[T]) -> Iterator[T]:
        """Yields the items and counts them."""
        count = 0
        for item in items:
            yield item
            count += 1
            if count == PIECES_PER_HEARTBEAT:
                self(count)
                count = 0
        self(count)

    def _report_if_due(self) -> None:
        now = self._clock()
        of = f" of {self._total:,}" if self._total else ""
        note = f"{self._description}: {self._done:,}{of}" if self._done else self._description
        self._progress.write(self._state, note)
        self._next_report = self._clock() + REPORT_EVERY_S
        if now >= self._next_log:
            self._next_log = now + LOG_EVERY_S
            log.info("long work", what=self._description, done=self._done, of=self._total)

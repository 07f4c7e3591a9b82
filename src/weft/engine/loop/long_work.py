"""Work that grows with the crawl, as others see it: a heartbeat for the supervisor, a line for the user.

A process makes one `LongWork` before it opens anything, and hands it down as `alive`: every loop over pages, URLs,
hosts or files calls it once for each bounded piece, and SQLite calls it from inside long statements. A process that
makes progress is not killed, however long its work takes, at its start, at its end and in between; one that is stuck
makes none. Its status says what it is doing, and how far it is; the log does when that takes long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from weft.engine.loop.parser.suspects import Heartbeat
from weft.engine.loop.progress import CrawlProgress
from weft.telemetry import Log

PIECE = 1000  # what `each` passes on between two heartbeats
REPORT_EVERY_S = 0.5
LOG_EVERY_S = 10.0
STARTING = "starting"
log = Log("weft.engine.loop.long_work")
T = TypeVar("T")


class LongWork:
    """Call it for each piece of the work."""

    def __init__(
        self, heartbeat: Heartbeat, progress: CrawlProgress, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.heartbeat = heartbeat
        self._progress = progress
        self._clock = clock
        self._state = ""  # in which the process is: without one nothing is reported
        self._what = ""
        self._done = self._total = 0
        self._next_report = self._next_log = 0.0

    def begin(self, what: str, total: int = 0, *, state: str = STARTING) -> None:
        """What comes now, in words for the user; `total`: of how many, where that is known."""
        now = self._clock()
        self._state, self._what, self._done, self._total = state, what, 0, total
        self._next_report, self._next_log = now + REPORT_EVERY_S, now + LOG_EVERY_S

    def end(self) -> None:
        """From now on others report how the process is; a call is a heartbeat alone."""
        self._state = ""

    def __call__(self, count: int = 0) -> None:
        """A piece is done, with `count` of the total."""
        if self._state == STARTING:
            self.heartbeat.send_heartbeat()  # a process that shall end need not finish its start
        else:
            self.heartbeat.step()
        self._done += count
        if self._state and self._clock() >= self._next_report:
            self._report()

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """Passes them on, and counts them."""
        count = 0
        for item in items:
            yield item
            count += 1
            if count == PIECE:
                self(count)
                count = 0
        self(count)

    def _report(self) -> None:
        now = self._clock()
        of = f" of {self._total:,}" if self._total else ""
        note = f"{self._what}: {self._done:,}{of}" if self._done else self._what
        self._progress.write(self._state, note)
        self._next_report = self._clock() + REPORT_EVERY_S
        if now >= self._next_log:
            self._next_log = now + LOG_EVERY_S
            log.info("long work", what=self._what, done=self._done, of=self._total)

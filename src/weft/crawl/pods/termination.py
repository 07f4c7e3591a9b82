"""Detects the end of a crawl of several pods: nothing is left in any of them, and no message is in transit.

That cannot be observed at one instant, so there are two passes. In each pass every pod must report that it is idle, and
as many messages must have been received as were sent. If no count has changed from the first pass to the second, whose
reports were all made after the first pass was complete, then nothing happened between the two: a pod that had done
something would have counted it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from weft.engine.loop.progress import CrawlStatus
from weft.engine.loop.stop import Stop

_COMPARED_COUNTS = ("pid", "idle", "admitted", "finished", "sent", "received")


class TerminationDetector:
    """Detects the end of a crawl from repeated reports of its pods."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first_reports: list[tuple[object, ...]] | None = None
        self._first_at = 0.0

    def judge(self, reports: Sequence[CrawlStatus]) -> Stop | None:
        """Why the crawl is over; None while it is not known to be. `reports`: one for each pod, of its current
        process."""
        if not reports or not all(report.idle for report in reports) or not _are_balanced(reports):
            self._first_reports = None
            return None
        counts = [tuple(getattr(report, name) for name in _COMPARED_COUNTS) for report in reports]
        if counts != self._first_reports:
            self._first_reports, self._first_at = counts, self._clock()
            return None
        if any(report.reported_at <= self._first_at for report in reports):
            return None
        return _stop_reason(reports)


def _are_balanced(reports: Sequence[CrawlStatus]) -> bool:
    return sum(report.sent for report in reports) == sum(report.received for report in reports)


def _stop_reason(reports: Sequence[CrawlStatus]) -> Stop:
    """The reason: a limit that left work takes precedence over the end of all work."""
    idle = {report.idle for report in reports}
    return next((stop for stop in (Stop.MAX_PAGES, Stop.BUDGET) if stop in idle), Stop.DONE)

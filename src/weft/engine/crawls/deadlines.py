"""A clock for the crawls of an engine: which must end at their deadline, or because they have run for `max_duration`.

A deadline is of the wall clock and continues while a crawl is paused; `max_duration` counts running time alone. A check
costs nothing for crawls whose time has not come, however many there are.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Mapping

from weft.engine.crawls.tenant import Tenant
from weft.engine.model import CrawlState, EndReason


class Deadlines:
    """The deadlines of all crawls. An entry that an edit has made invalid is recognised when its time comes."""

    def __init__(self, crawls: Mapping[int, Tenant]) -> None:
        self._crawls = crawls
        self._deadlines: list[tuple[float, int]] = []  # of the wall clock, by crawl
        self._durations: list[tuple[float, int]] = []  # when to check max_duration, by crawl (monotonic)

    def watch(self, tenant: Tenant) -> None:
        """Watches a crawl's limits; called when it begins to run, and when an edit has changed them."""
        if tenant.record.deadline is not None:
            heapq.heappush(self._deadlines, (tenant.record.deadline, tenant.number))
        most = tenant.config.limits.max_duration_s
        if most is not None and tenant.record.state is CrawlState.RUNNING:
            heapq.heappush(self._durations, (time.monotonic() + max(0.0, most - tenant.running_s), tenant.number))

    def passed(self) -> Iterator[tuple[Tenant, EndReason]]:
        """The crawls whose time is over, each with the reason."""
        while self._deadlines and self._deadlines[0][0] <= time.time():
            at, number = heapq.heappop(self._deadlines)
            tenant = self._crawls.get(number)
            if tenant is not None and tenant.record.deadline is not None and tenant.record.deadline <= at:
                yield tenant, EndReason.DEADLINE
        while self._durations and self._durations[0][0] <= time.monotonic():
            _, number = heapq.heappop(self._durations)
            tenant = self._crawls.get(number)
            if tenant is None or tenant.record.state is not CrawlState.RUNNING:
                continue
            most = tenant.config.limits.max_duration_s
            if most is not None and tenant.running_s >= most:
                yield tenant, EndReason.MAX_DURATION
            else:
                self.watch(tenant)

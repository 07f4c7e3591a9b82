"""The engine's numbers for Prometheus: taken from what it counts anyway, and saved every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from weft.engine.progress import Progress
from weft.frontier.contract import FrontierStats
from weft.telemetry import Metrics


class EngineMetrics:
    """Copies progress and frontier into the process's metrics; times are observed as things happen."""

    def __init__(self, metrics: Metrics, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._every_s = every_s
        self._clock = clock
        self._next = 0.0
        self.fetch_s = metrics.histogram("weft_fetch_seconds", "Time of a transfer, from start to last byte.")
        self.parse_s = metrics.histogram("weft_parse_seconds", "Time of parsing a page.")

    def update(self, progress: Progress, stats: FrontierStats, in_flight: int, *, now: bool = False) -> None:
        """Saves everything, if it is time."""
        if self._clock() < self._next and not now:
            return
        self._next = self._clock() + self._every_s
        status = progress.status
        self._count("weft_pages_total", "Pages stored.", status.pages)
        self._count("weft_requests_total", "Requests made.", status.requests)
        self._count("weft_body_bytes_total", "Bytes of stored bodies.", status.body_bytes)
        self._count("weft_retries_total", "Requests that will be tried again.", status.retries)
        self._count("weft_redirects_total", "Redirects followed or refused.", status.redirects)
        self._by_label("weft_errors_total", "Items that ended badly, by kind.", "kind", progress.errors)
        self._by_label("weft_refused_total", "URLs turned away, by reason.", "reason", progress.refused)
        self._by_label("weft_responses_total", "Ended items by HTTP status.", "status", progress.statuses)
        for name, help_, value in (
            ("weft_queue_urls", "URLs queued.", stats.queued),
            ("weft_seen_urls", "URLs known.", stats.seen),
            ("weft_sites", "Sites known.", stats.sites),
            ("weft_active_workers", "Transfers in flight.", in_flight),
        ):
            self._metrics.gauge(name, help_).set(value)
        self._metrics.save()

    def _count(self, name: str, help_: str, value: float) -> None:
        self._metrics.counter(name, help_).value = value

    def _by_label(self, name: str, help_: str, label: str, counts: Mapping[str, int]) -> None:
        for kind, count in counts.items():
            if count:
                self._metrics.counter(name, help_, **{label: str(kind).partition(":")[0]}).value = count

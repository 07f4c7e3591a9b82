"""The engine's metrics for Prometheus: copied from counts that exist anyway, and saved every few seconds.

Every process of a crawl has one: fetchers, parsers, and those that do both. docs/metrics.md lists the series. Times are
observed as things happen, once for a page or a batch; everything else is copied when it is saved.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

from weft.bodies import Spool
from weft.engine.loop.progress import CrawlProgress
from weft.fetch.dns.resolver import NameCounts
from weft.fetch.proxies.counts import ProxyCounts
from weft.frontier.contract import FrontierStats
from weft.records import FetchResult, Purpose, Rendered
from weft.telemetry import BYTES_BUCKETS, Metrics


class EngineMetrics:
    """Copies progress and frontier statistics into the process's metrics."""

    def __init__(self, metrics: Metrics, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._every_s = every_s
        self._clock = clock
        self._next = 0.0
        self.before_save: list[Callable[[], None]] = []  # called before a save, to copy counts that are kept elsewhere
        self._fetch_s = {
            purpose: metrics.histogram(
                "weft_fetch_seconds", "Time of a transfer, from start to last byte.", kind=str(purpose)
            )
            for purpose in Purpose
        }
        self._body_bytes = metrics.histogram("weft_body_size_bytes", "Bodies of pages as they came.", BYTES_BUCKETS)
        self.parse_s = metrics.histogram("weft_parse_seconds", "Time of parsing a page.")
        self._link_delay_s = metrics.histogram(
            "weft_cross_pod_write_seconds", "Time until another pod had taken a batch of links."
        )
        self._received_batches = metrics.counter(
            "weft_cross_pod_writes_total", "Batches of links that other pods have taken."
        )
        self._received_links = metrics.counter("weft_cross_pod_links_total", "Links that other pods have taken.")
        self._pressure_events = {}
        for level in ("soft", "hard"):
            counter = metrics.counter(
                "weft_backpressure_events_total", "Times that the parse queue crossed a limit.", level=level
            )
            self._pressure_events[level] = (counter, counter.value)
        self._waiting_batches = metrics.gauge("weft_outbox_batches", "Batches of links that wait for another pod.")

    def count_transfer(self, purpose: Purpose, result: FetchResult) -> None:
        """Counts a transfer that has ended."""
        self._fetch_s[purpose].observe(result.ended - result.started)
        if result.status and purpose is Purpose.PAGE:
            self._body_bytes.observe(len(result.body))

    def observe_render_time(self, rendered: Rendered) -> None:
        """Records how long a browser took for a page, also for one that failed."""
        self._metrics.histogram("weft_render_seconds", "Time of a page in a browser.").observe(rendered.spent_s)

    def record_browsers(self, report: Mapping[str, float]) -> None:
        """Records the state of the browsers; nothing if none are used."""
        for name, value in report.items():
            kind, _, cause = name.partition("_")
            if kind == "died":
                self._metrics.grown("weft_render_failures_total", "Pages that no browser drew.", value, cause=cause)
            elif kind == "refused":
                self._metrics.grown("weft_browser_refused_total", "Requests stopped by the guard.", value, cause=cause)
            elif name in ("rendered", "recycled"):
                self._metrics.grown(f"weft_browser_{name}_total", f"Pages or browsers {name}.", value)
            else:
                self._metrics.gauge(f"weft_browser_{name}", f"Browsers: {name} now.").set(value)

    def count_received_links(self, links: int, seconds: float) -> None:
        """Counts a batch of links that another pod has received."""
        self._received_batches.value += 1
        self._received_links.value += links
        self._link_delay_s.observe(seconds)

    def record_back_pressure(self, events: Mapping[str, int]) -> None:
        """Records how often the parse queue has exceeded its `soft` and its `hard` limit since this process began."""
        for level, (counter, before) in self._pressure_events.items():
            counter.value = before + events.get(level, 0)

    def record_lookups(self, counts: NameCounts) -> None:
        """Records this process's counts of DNS lookups since it began."""
        for kind in {"found", *counts.outcomes}:
            lookups = counts.outcomes[kind]
            self._metrics.grown("weft_dns_lookups_total", "Names that were looked up.", lookups, outcome=kind)
        self._metrics.grown("weft_dns_seconds_total", "Time that lookups took, together.", counts.seconds)
        self._metrics.grown("weft_dns_cached_total", "Names that the cache knew.", counts.known)
        self._metrics.gauge("weft_dns_running", "Lookups that run.").set(counts.running)

    def record_body_memory(self, spool: Spool) -> None:
        """Records the memory that response bodies occupy, and how many went to files."""
        self._metrics.gauge("weft_body_memory_bytes", "Bodies in memory while they arrive.").set(spool.held)
        self._metrics.grown("weft_bodies_spooled_total", "Bodies that went to files.", spool.files)
        self._metrics.grown("weft_bodies_spooled_bytes_total", "Bytes of them.", spool.spooled_bytes)

    def record_proxies(self, counts: ProxyCounts | None) -> None:
        """Records this process's counts of proxies since it began; None: it uses none."""
        if counts is not None:
            counts.copy_to(self._metrics)

    def record_outbox(self, outbox: int) -> None:
        """Records how many batches wait for another pod now."""
        self._waiting_batches.set(outbox)

    def save_if_due(
        self, progress: CrawlProgress, stats: FrontierStats | None, in_flight: int, *, now: bool = False
    ) -> None:
        """Saves all metrics if it is time. A process that does not know the queues gives no stats."""
        if self._clock() < self._next and not now:
            return
        self._next = self._clock() + self._every_s
        for copy in self.before_save:
            copy()
        status = progress.status
        self._set_counter("weft_pages_total", "Pages stored.", status.pages)
        self._set_counter("weft_requests_total", "Requests made.", status.requests)
        self._set_counter("weft_body_bytes_total", "Bytes of the pages' bodies.", status.body_bytes)
        self._set_counter("weft_retries_total", "Requests that will be tried again.", status.retries)
        self._set_counter("weft_redirects_total", "Redirects followed or refused.", status.redirects)
        self._set_labelled("weft_errors_total", "Items that ended badly, by kind.", "kind", progress.errors)
        self._set_labelled("weft_refused_total", "URLs turned away, by reason.", "reason", progress.refused)
        self._set_labelled("weft_responses_total", "Ended items by HTTP status.", "status", progress.statuses)
        self._metrics.gauge("weft_active_workers", "Transfers in flight, or pages being parsed.").set(in_flight)
        if stats is not None:
            self._set_counter("weft_urls_added_total", "URLs taken into the queues of the pod.", stats.admitted)
        for name, help_, value in _pod_metrics(stats):
            self._metrics.gauge(name, help_).set(value)
        self._metrics.save()

    def _set_counter(self, name: str, help_: str, value: float) -> None:
        self._metrics.counter(name, help_).value = value

    def _set_labelled(self, name: str, help_: str, label: str, counts: Mapping[str, int]) -> None:
        kinds: Counter[str] = Counter()
        for kind, count in counts.items():
            kinds[str(kind).partition(":")[0]] += count
        for kind, count in kinds.items():
            if count:
                self._metrics.counter(name, help_, **{label: kind}).value = count


def _pod_metrics(stats: FrontierStats | None) -> list[tuple[str, str, int]]:
    """A pod's metrics, which each of its processes reports: use the largest of a pod, not the sum."""
    if stats is None:
        return []
    return [
        ("weft_queue_urls", "URLs queued in the pod.", stats.queued),
        ("weft_leased_urls", "URLs of the pod that somebody works on.", stats.leased),
        ("weft_seen_urls", "URLs that the pod knows.", stats.seen),
        ("weft_sites", "Sites that the pod knows.", stats.sites),
        ("weft_due_sites", "Sites of the pod that could be asked now.", stats.due),
        ("weft_parse_queue_pages", "Pages of the pod that are fetched and not parsed yet.", stats.to_parse),
    ]

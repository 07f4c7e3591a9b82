"""The metrics of a worker, and those of the service from its health."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from weft.jobs.service import Health
from weft.telemetry import Counter, Histogram, Metrics, Slot, SlotCollector

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class WorkerMetrics:
    """Counts the answers of one worker; stored with the metrics of the service's other processes."""

    def __init__(self, folder: Path, index: int) -> None:
        """`folder`: where all processes of the service, including the engine, store their metrics."""
        self._folder = folder
        self._metrics = Metrics(folder, Slot(0, "api", index))
        self._requests: dict[tuple[str, str, int], Counter] = {}
        self._seconds: dict[str, Histogram] = {}
        self._streams = self._metrics.gauge("weft_api_event_streams", "Event streams that are open.")

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Counts one answered request; streams are not timed, because they last as long as their tasks."""
        key = (route, _method_label(method), status)
        if key not in self._requests:
            self._requests[key] = self._metrics.counter(
                "weft_api_requests_total", "Requests answered.", route=route, method=key[1], status=str(status)
            )
        self._requests[key].value += 1
        if not route.endswith("/events"):
            if route not in self._seconds:
                self._seconds[route] = self._metrics.histogram(
                    "weft_api_request_seconds", "From a request's headers to the end of its answer.", route=route
                )
            self._seconds[route].observe(seconds)

    def save(self, streams: int) -> None:
        """Writes the metrics to the folder."""
        self._streams.set(streams)
        self._metrics.save()

    def text(self, health: Health) -> bytes:
        """All metrics of the service in Prometheus text format."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(SlotCollector(self._folder))
        registry.register(HealthCollector(health))
        return generate_latest(registry)


class HealthCollector:
    """The tasks, slots and sites of the service at one moment, as Prometheus metrics."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def collect(self) -> Iterable[Metric]:
        """Gauges for current values; counters for the totals of all tasks that have ended."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        health = self._health
        yield GaugeMetricFamily("weft_jobs_healthy", "1 while the service makes progress.", float(health.is_healthy))
        blocked = len(health.blocked_domains)
        yield GaugeMetricFamily("weft_jobs_blocked_domains", "Sites whose breaker is open.", blocked)
        tasks = GaugeMetricFamily("weft_jobs_tasks", "Tasks that are kept, by state.", labels=["state"])
        for state, number in health.tasks_by_state.items():
            tasks.add_metric([str(state)], number)
        yield tasks
        for name, attribute in (("slots", "slots"), ("slots_available", "available"), ("queued", "pending")):
            lanes = GaugeMetricFamily(f"weft_jobs_{name}", f"Of each lane: {attribute}.", labels=["lane"])
            for lane, slots in health.lanes.items():
                lanes.add_metric([str(lane)], getattr(slots, attribute))
            yield lanes
        totals = health.totals
        for name, description, label, numbers in (
            ("weft_jobs_tasks_ended", "Tasks that have ended, by state.", "state", totals.tasks),
            ("weft_jobs_urls", "URLs of tasks that have ended, by what became of them.", "outcome", totals.urls),
            ("weft_jobs_errors", "URLs of tasks that have ended that gave no page.", "class", totals.errors),
        ):
            counter = CounterMetricFamily(name, description, labels=[label])
            for value, number in numbers.items():
                counter.add_metric([value], number)
            yield counter


def _method_label(method: str) -> str:
    """The HTTP method, or a fixed label for unknown ones: callers must not be able to create label values."""
    return method if method in ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS") else "other"

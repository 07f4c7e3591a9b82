"""The supervisor's own metrics: its process, the proxies that it tests, its cluster. Saved beside those of engine and
workers, whose `/metrics` serves them together."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from weft.fetch.proxies.counts import ProxyCounts
from weft.telemetry import Metrics, Slot

if TYPE_CHECKING:
    from weft.cluster.supervised.cluster_figures import ClusterFigures

SAVE_S = 10.0
_STATES = ("up", "lost", "refused")


class Figures:
    """Saves the metrics of one supervisor; `turn` is called in every pass of its loop."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the engine's, which makes it: nothing is saved before it is there."""
        self._folder = folder
        self._metrics: Metrics | None = None
        self._next_s = 0.0
        self._refreshes = 0

    def turn(self, proxies: ProxyCounts | None, cluster: ClusterFigures | None) -> None:
        """Saves the metrics at intervals, and when proxies were tested."""
        refreshes = 0 if proxies is None else proxies.refreshes.total()
        if (time.monotonic() < self._next_s and refreshes == self._refreshes) or not self._folder.is_dir():
            return
        self._next_s, self._refreshes = time.monotonic() + SAVE_S, refreshes
        with suppress(OSError):  # on a full disk the old figures must do
            if self._metrics is None:
                self._metrics = Metrics(self._folder, Slot(0, "supervisor"))
            if proxies is not None:
                proxies.copy_to(self._metrics)
            if cluster is not None:
                _copy_cluster_metrics(cluster, self._metrics)
            self._metrics.save()


def _copy_cluster_metrics(cluster: ClusterFigures, metrics: Metrics) -> None:
    for queue, length in cluster.queues.items():
        metrics.gauge("weft_cluster_queue_messages", "Tasks that wait for a worker.", queue=queue).set(length)
    for queue, age_s in cluster.oldest_s.items():
        metrics.gauge("weft_cluster_queue_oldest_seconds", "How long the first of them waits.", queue=queue).set(age_s)
    for state in _STATES:
        metrics.gauge("weft_cluster_hands", "Workers, by state.", state=state).set(cluster.hands.get(state, 0))
    # Counted by the broker, over all processes and restarts.
    for (queue, outcome), count in cluster.tasks.items():
        help_ = "Tasks that have ended."
        metrics.counter("weft_cluster_tasks_total", help_, queue=queue, outcome=outcome).value = count
    for queue, seconds in cluster.seconds.items():
        metrics.counter("weft_cluster_task_seconds_total", "Time that they took.", queue=queue).value = seconds
    for (queue, host), count in cluster.failures.items():
        help_ = "Tasks that failed, of workers that report, by machine."
        metrics.gauge("weft_cluster_hand_failures", help_, queue=queue, host=host).set(count)
    for reason, count in cluster.refused.items():
        metrics.counter("weft_cluster_refused_total", "Messages that were refused.", reason=reason).value = count

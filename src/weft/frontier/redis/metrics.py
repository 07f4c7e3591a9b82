"""Metrics of the pods' Redis servers, read when the metrics endpoint is scraped.

All pods are asked at the same time, with a short timeout: a server that does not answer is reported as down, and delays
nothing. Used by the orchestrator's metrics endpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from weft.frontier.redis.connection import RedisSettings, connect

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from redis import Redis

ANSWER_TIMEOUT_S = 1.0
_GAUGES = (
    ("weft_redis_ops_per_second", "Commands a second, as the server measures it.", "instantaneous_ops_per_sec"),
    ("weft_redis_memory_used_bytes", "Memory that its data takes.", "used_memory"),
    ("weft_redis_memory_max_bytes", "Memory that it may take; 0 for no limit.", "maxmemory"),
    ("weft_redis_memory_fragmentation_ratio", "Resident memory over used.", "mem_fragmentation_ratio"),
    ("weft_redis_clients", "Connections.", "connected_clients"),
    ("weft_redis_aof_bytes", "Size of its append-only file.", "aof_current_size"),
)
_COUNTERS = (
    ("weft_redis_commands_total", "Commands carried out.", ("total_commands_processed",)),
    ("weft_redis_keyspace_hits_total", "Look-ups that found something.", ("keyspace_hits",)),
    ("weft_redis_keyspace_misses_total", "Look-ups that found nothing.", ("keyspace_misses",)),
    ("weft_redis_cpu_seconds_total", "CPU time spent.", ("used_cpu_user", "used_cpu_sys")),
    ("weft_redis_received_bytes_total", "Bytes received.", ("total_net_input_bytes",)),
    ("weft_redis_sent_bytes_total", "Bytes sent.", ("total_net_output_bytes",)),
)


class RedisMetrics:
    """Collects from the Redis of each pod."""

    def __init__(self, urls: Mapping[int, str], settings: RedisSettings | None = None) -> None:
        given = settings or RedisSettings()
        quick = RedisSettings(given.db, given.password, ANSWER_TIMEOUT_S, ANSWER_TIMEOUT_S, given.keepalive, 2)
        self._clients = {pod: connect(url, quick) for pod, url in urls.items()}

    def collect(self) -> Iterable[Metric]:
        """Every pod's metrics; only `up`, as 0, for one that does not answer."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        infos = self._ask_servers()
        up = GaugeMetricFamily("weft_redis_up", "Whether the pod's Redis answers.", labels=["pod"])
        ratio = GaugeMetricFamily("weft_redis_hit_ratio", "Share of look-ups that found something.", labels=["pod"])
        for pod, info in infos.items():
            up.add_metric([pod], 1 if info else 0)
            looked = _metric_value(info, "keyspace_hits") + _metric_value(info, "keyspace_misses")
            if info:
                ratio.add_metric([pod], _metric_value(info, "keyspace_hits") / looked if looked else 1.0)
        yield up
        yield ratio
        for name, help_, key in _GAUGES:
            gauge = GaugeMetricFamily(name, help_, labels=["pod"])
            for pod, info in infos.items():
                if info:
                    gauge.add_metric([pod], _metric_value(info, key))
            yield gauge
        for name, help_, keys in _COUNTERS:
            counter = CounterMetricFamily(name, help_, labels=["pod"])
            for pod, info in infos.items():
                if info:
                    counter.add_metric([pod], sum(_metric_value(info, key) for key in keys))
            yield counter

    def close(self) -> None:
        """Closes the connections."""
        for client in self._clients.values():
            client.close()

    def _ask_servers(self) -> dict[str, dict[str, Any]]:
        if not self._clients:
            return {}
        with ThreadPoolExecutor(len(self._clients)) as pool:
            answers = pool.map(_read_info, self._clients.values())
            return {str(pod): info for pod, info in zip(self._clients, answers, strict=True)}


def _read_info(client: Redis) -> dict[str, Any]:
    import redis

    try:
        info: Any = client.info()
    except (redis.RedisError, OSError):
        return {}
    return dict(info)


def _metric_value(info: Mapping[str, Any], key: str) -> float:
    try:
        return float(info.get(key, 0))
    except (TypeError, ValueError):
        return 0.0

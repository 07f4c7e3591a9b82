"""What real servers tell, and that one which does not answer holds up nobody."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from weft.frontier.redis.connection import connect
from weft.frontier.redis.metrics import ANSWER_TIMEOUT_S, RedisMetrics
from weft.supervise.redis_server import RedisServer

StartServer = Callable[..., RedisServer]


def figures(metrics: RedisMetrics) -> dict[str, dict[str, float]]:
    return {
        sample.name: {one.labels["pod"]: one.value for one in family.samples}
        for family in metrics.collect()
        for sample in family.samples[:1]
    }


@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_a_pods_redis_tells_its_figures(kind: str, start_server: StartServer) -> None:
    server = start_server(kind, settings={"maxmemory": "100mb"})
    client = connect(server.url)
    client.set("a", 1)
    for key in ("a", "a", "a", "b"):
        client.get(key)
    told = figures(RedisMetrics({3: server.url}))
    assert told["weft_redis_up"] == {"3": 1}
    assert told["weft_redis_hit_ratio"] == {"3": 0.75}
    assert told["weft_redis_keyspace_hits_total"] == {"3": 3}
    assert told["weft_redis_commands_total"]["3"] >= 5
    assert told["weft_redis_clients"]["3"] >= 2
    assert told["weft_redis_memory_max_bytes"] == {"3": 100 * 1024 * 1024}
    assert told["weft_redis_memory_used_bytes"]["3"] > 100_000
    assert told["weft_redis_cpu_seconds_total"]["3"] > 0
    assert "weft_redis_ops_per_second" in told
    assert told["weft_redis_aof_bytes"]["3"] > 0


def test_pods_that_do_not_answer_are_down_and_hold_up_nobody(start_server: StartServer) -> None:
    servers = [start_server() for _ in range(3)]
    stopped_pods = dict.fromkeys(range(2, 32), servers[2].url)
    metrics = RedisMetrics({0: servers[0].url, 1: servers[1].url} | stopped_pods)
    servers[1].kill()
    stopped = servers[2].pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    try:
        began = time.monotonic()
        told = figures(metrics)
        took_s = time.monotonic() - began
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert told["weft_redis_up"] == {"0": 1, "1": 0} | {str(pod): 0 for pod in stopped_pods}
    assert list(told["weft_redis_clients"]) == ["0"]
    assert took_s < len(stopped_pods) * ANSWER_TIMEOUT_S / 2, "asked at the same time, not one after the other"
    assert figures(metrics)["weft_redis_up"] == {"0": 1, "1": 0} | {str(pod): 1 for pod in stopped_pods}

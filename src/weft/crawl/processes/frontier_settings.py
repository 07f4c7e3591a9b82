"""How the processes of `weft crawl` speak to the Redis of their pods."""

from __future__ import annotations

from weft.config import Config
from weft.frontier.redis.connection import RedisSettings


def settings_of(config: Config) -> RedisSettings:
    """How every pod's Redis is spoken to."""
    redis = config.redis
    return RedisSettings(
        redis.db,
        redis.password or None,
        redis.socket_timeout_s,
        redis.connect_timeout_s,
        redis.keepalive,
        redis.max_connections,
    )


def bloom_of(config: Config) -> tuple[int, float] | None:
    """The shape of a pod's filter, where there is one: its share of the URLs, and the error rate."""
    pods = config.pods
    if pods.seen_filter == "exact":
        return None
    return max(1, pods.bloom_capacity // pods.num_pods), pods.bloom_error_rate

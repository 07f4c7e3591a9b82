"""The connection settings of the processes of `weft crawl` for the Redis of their pods."""

from __future__ import annotations

from weft.config import Config
from weft.frontier.redis.connection import RedisSettings


def redis_settings_of(config: Config) -> RedisSettings:
    """The connection settings for every pod's Redis."""
    redis = config.redis
    return RedisSettings(
        redis.db,
        redis.password or None,
        redis.socket_timeout_s,
        redis.connect_timeout_s,
        redis.keepalive,
        redis.max_connections,
    )


def bloom_filter_of(config: Config) -> tuple[int, float] | None:
    """The parameters of a pod's bloom filter, if it has one: its share of the URLs, and the error rate."""
    pods = config.pods
    if pods.seen_filter == "exact":
        return None
    return max(1, pods.bloom_capacity // pods.num_pods), pods.bloom_error_rate

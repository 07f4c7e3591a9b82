"""What a frontier is told of the crawl in it, by whoever opens it: its name, its bounds, how its Redis is spoken to."""

from __future__ import annotations

from weft.config import Config
from weft.frontier.contract import CrawlLimits
from weft.frontier.redis.connection import RedisSettings

MOST_SITEMAPS, FEW_SITEMAPS = 2000, 20  # of one site: at 50,000 URLs each, that is more than most crawls ever fetch
CRAWL = "crawl"  # the name of the one crawl that is in a frontier


def limits_of(config: Config) -> CrawlLimits:
    """The bounds that the frontier keeps. Of a site's sitemaps no crawl needs more than it may take pages."""
    limits = config.limits
    sitemaps = MOST_SITEMAPS if limits.max_pages is None else min(MOST_SITEMAPS, max(FEW_SITEMAPS, limits.max_pages))
    return CrawlLimits(limits.max_pages, limits.max_pages_per_domain, config.scope.max_depth, max_sitemaps=sitemaps)


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

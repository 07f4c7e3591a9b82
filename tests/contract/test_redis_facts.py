"""What decides over the end of a crawl on Redis is one instant: nothing moves from place to place while it is read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, RobotsRecord
from weft.frontier.redis.connection import connect
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.records import Found
from weft.supervise.redis_server import RedisServer

POLITE = PolitenessSection(delay_s=0.0, places=1)


def frontier_of(url: str, folder: Path, slot: str) -> RedisFrontier:
    frontier = RedisFrontier(connect(url), folder, POLITE, slot=slot)
    frontier.crawls.open_crawl("crawl", CrawlLimits())
    return frontier


def test_a_url_that_is_claimed_and_given_back_is_always_somewhere(
    tmp_path: Path, shared_server: Callable[[str], RedisServer]
) -> None:
    """Neither leased nor scheduled, and yet queued, means that its site's budget is used up and the crawl is over."""
    server = shared_server("redis")
    connect(server.url).flushall()
    watcher = frontier_of(server.url, tmp_path, "pod0-orchestrator")
    watcher.queue.admit(1, [Found("https://a.test/", 0)])
    watcher.sites.robots_known("https://a.test", RobotsRecord("ok", b"", 9e12), None)
    over = threading.Event()
    claimed = []

    def claim_and_give_back() -> None:
        fetcher = frontier_of(server.url, tmp_path, "pod0-fetcher0")
        while not over.is_set():
            claimed.extend(fetcher.leases.claim(fetcher.owner, 1))
            fetcher.processes.release_owner("pod0-fetcher0#")

    thread = threading.Thread(target=claim_and_give_back)
    thread.start()
    lost = 0
    try:
        while len(claimed) < 300:
            stats, waits = watcher.status.stats_and_waits()
            lost += stats.queued > 0 and not stats.leased and not waits["scheduled"]
    finally:
        over.set()
        thread.join()
    assert lost == 0

"""A process that is killed again before it could acknowledge anything: what it had settled stays settled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord
from weft.frontier.redis.connection import connect
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.records import Found
from weft.supervise.redis_server import RedisServer

Start = Callable[[], RedisFrontier]


@pytest.fixture
def start(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[Start]:
    """A process in the same slot; the one before was killed."""
    server = shared_server("redis")
    client: Any = connect(server.url)
    client.flushall()
    opened: list[RedisFrontier] = []

    def process() -> RedisFrontier:
        frontier = RedisFrontier(
            connect(server.url), tmp_path / "pod", PolitenessSection(delay_s=0.0, places=9), slot="pod0-fetcher0",
            incarnation=len(opened) + 1, idle_s=0.0,
        )  # fmt: skip
        opened.append(frontier)
        frontier.crawls.open_crawl("test", CrawlLimits())
        return frontier

    yield process
    client.close()


def stored(start: Start, pages: int = 3) -> list[int]:
    """Pages that the store has in its first batch, which was not acknowledged."""
    frontier = start()
    frontier.recovery.recover()
    frontier.sites.robots_known("https://a", RobotsRecord("allow", b"", 9e12), None)
    frontier.queue.admit(1, [Found(f"https://a/{number}", 0) for number in range(pages + 2)])
    leases = frontier.leases.claim(frontier.owner, pages)
    frontier.leases.finish([EndedLease(lease, End.PAGE) for lease in leases], batch=1)
    return [lease.item for lease in leases]


def test_pages_that_were_settled_are_not_unsure_after_the_next_kill(start: Start) -> None:
    items = stored(start)
    second = start()
    second.recovery.recover(items, {1: 3}, batch=1)
    assert second.recovery.lost_ends == []
    third = start()
    assert third.durability.acknowledged == 1, "so that its store tells of none of them"
    third.recovery.recover([], {1: 3}, batch=1)
    stats = third.status.stats()
    assert (third.recovery.lost_ends, stats.finished, stats.queued, stats.pages) == ([], 3, 2, 3)


def test_those_that_are_unsure_are_so_until_their_links_are_read(start: Start) -> None:
    items = stored(start)
    start().recovery.recover(
        items, {1: 3}
    )  # nothing is acknowledged, as by a process that was killed while it read links
    third = start()
    third.recovery.recover(items, {1: 3}, batch=1)
    assert (sorted(third.recovery.lost_ends), third.durability.acknowledged) == (items, 0)
    fourth = start()
    assert fourth.durability.acknowledged == 0
    fourth.recovery.recover(items, {1: 3}, batch=1)
    fourth.durability.acknowledge(1)
    fourth.durability.commit()
    assert start().durability.acknowledged == 1

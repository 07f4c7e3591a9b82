"""What a look at a pod tells whoever decides over the end of a crawl: something will come, or nothing will."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from weft.config import PolitenessSection
from weft.crawl.pods.redis_pods import _stop_reason
from weft.engine.loop.stop import Stop
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord
from weft.frontier.redis.connection import connect
from weft.frontier.redis.link import QueueLimits
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.records import Found, Lease
from weft.supervise.redis_server import RedisServer

SMALL = QueueLimits(split_above=200, moved_at_once=50, refill_below=20, most_in_tail=5000)


@pytest.fixture
def pod(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[Callable[..., RedisFrontier]]:
    server = shared_server("redis")
    client: Any = connect(server.url)
    client.flushall()
    opened: list[RedisFrontier] = []

    def process(slot: str = "pod0-fetcher0", **bounds: int) -> RedisFrontier:
        section = PolitenessSection(delay_s=0.0, places=1000)
        frontier = RedisFrontier(
            connect(server.url), tmp_path / "pod", section, slot=slot, limits=SMALL, idle_s=0.0
        )  # fmt: skip
        opened.append(frontier)
        frontier.crawls.open_crawl("test", CrawlLimits(**bounds))
        frontier.recovery.recover()
        frontier.sites.robots_known("https://hot", RobotsRecord("allow", b"", 9e12), None)
        frontier.notes.note("seeded", "1")
        return frontier

    yield process
    for frontier in opened:
        frontier.close()
    client.close()


def ended(frontier: RedisFrontier, leases: list[Lease], end: End = End.PAGE) -> None:
    frontier.leases.finish([EndedLease(lease, end) for lease in leases])


def drained(frontier: RedisFrontier) -> int:
    """Claims and ends all that can be had without the lead; how many that were."""
    count = 0
    while leases := frontier.leases.claim("me", 100):
        ended(frontier, leases)
        count += len(leases)
    return count


def test_a_queue_whose_rest_is_on_disk_is_no_end(pod: Callable[..., RedisFrontier]) -> None:
    """Another fetcher has emptied its head, and the lead, which brings more, was killed and is starting again."""
    frontier = pod()
    frontier.queue.admit(1, [Found(f"https://hot/{number}", 0) for number in range(1500)])
    assert frontier.spiller.move_segments()
    first = drained(frontier)
    facts = frontier.status.stats_and_waits()
    assert 0 < first < 1500 and facts[0].queued == 1500 - first
    assert (facts[0].leased, facts[1]["scheduled"], facts[1]["blocked"]) == (0, 0, 0)
    assert _stop_reason([facts], None) is None
    total = first
    while frontier.spiller.move_segments():
        total += drained(frontier)
    assert total + drained(frontier) == 1500
    assert _stop_reason([frontier.status.stats_and_waits()], None) is Stop.DONE


def test_a_permit_that_comes_back_goes_to_a_site_that_waits_for_one(pod: Callable[..., RedisFrontier]) -> None:
    """No matter whose it was: pages that are none, leases that are given back, and those of a process that died."""
    frontier = pod(max_pages=3)
    sites = [f"https://s{number}" for number in range(8)]
    for site in sites:
        frontier.sites.robots_known(site, RobotsRecord("allow", b"", 9e12), None)
    frontier.queue.admit(1, [Found(f"{site}/{number}", 0) for site in sites for number in range(3)])
    pages, transports = 0, [End.OTHER, End.RELEASE, End.RETRY, None]
    for turn in range(200):
        facts = frontier.status.stats_and_waits()
        if _stop_reason([facts], 3) is Stop.MAX_PAGES:
            break
        assert _stop_reason([facts], 3) is None, (turn, facts)
        leases = frontier.leases.claim("me", 10)
        assert len(leases) <= 3 - pages and (leases or facts[1]["scheduled"])
        way = transports[turn % 4] if turn < 12 else End.PAGE
        if way is None:
            frontier.processes.release_owner("me")
        else:
            ended(frontier, leases, way)
            pages += len(leases) if way is End.PAGE else 0
    assert (pages, frontier.status.stats().pages) == (3, 3)

"""What sites have shown is kept in Redis for all processes of a pod; the slots are each process's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harnesses import RedisHarness, no_robots, page, pages, polite

from weft.frontier.contract import CrawlLimits, End, EndedLease, HandedTransfer, SlotRequest, Slots, TransferEnd
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.records import Lease
from weft.supervise.redis_server import RedisServer

FEW = Slots(unknown=2, slow=1)
Open = Callable[..., RedisHarness]


@pytest.fixture
def open_pod(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[Open]:
    opened: list[RedisHarness] = []

    def make(**politeness: Any) -> RedisHarness:
        opened.append(RedisHarness(tmp_path / str(len(opened)), shared_server("redis"), len(opened), **politeness))
        opened[-1].start()
        return opened[-1]

    yield make
    for harness in opened:
        harness.close()


def keys(leases: list[Lease]) -> list[str]:
    return [lease.key for lease in leases]


def end(pod: RedisHarness, frontier: RedisFrontier, leases: list[Lease], **facts: Any) -> None:
    frontier.leases.cool([TransferEnd(lease, pod.time, **facts) for lease in leases])
    frontier.leases.finish([EndedLease(lease, End.OTHER) for lease in leases])


def test_each_process_has_slots_of_its_own_and_all_know_what_a_site_has_shown(open_pod: Open) -> None:
    pod = open_pod()
    one, other = pod.frontier, pod._open()
    no_robots(pod, *"abcdef")
    for host in "abcdef":
        one.queue.admit(pod.crawl, pages(host, 3))
    mine = one.leases.claim("one", 9, FEW)
    assert (keys(mine), keys(other.leases.claim("other", 9, FEW))) == (["a", "b"], ["c", "d"])
    assert one.leases.claim("one", 9, FEW) == []
    end(pod, one, mine, ok=True, took_s=0.1)
    pod.advance(11.0)
    assert keys(other.leases.claim("other", 9, FEW)) == ["a", "b"], "its slots for unknown ones are in use"
    assert keys(one.leases.claim("one", 9, FEW)) == ["e", "f"]
    other.close()


def test_a_process_with_room_asks_for_what_another_has_no_room_for_when_its_time_has_come(open_pod: Open) -> None:
    pod = open_pod()
    one, other = pod.frontier, pod._open()
    second = one.crawls.open_crawl("second", CrawlLimits(), polite(1.0))
    no_robots(pod, *"abcdef")
    for crawl, hosts in ((pod.crawl, "abc"), (second, "def")):
        for host in hosts:
            one.queue.admit(crawl, pages(host, 1))
    mine = one.leases.claim("one", 9, FEW)
    assert (len(mine), other.leases.claim("other", 9, FEW)) == (2, [])
    due = other.leases.next_due()
    assert due is not None and due > pod.time, "a loop that asked again at once would get nothing"
    pod.advance(due - pod.time + 0.001)
    theirs = other.leases.claim("other", 9, FEW)
    assert len(theirs) == 2 and not {*keys(mine)} & {*keys(theirs)}
    other.close()


def test_a_page_that_waits_for_a_parser_has_no_slot_any_more(open_pod: Open) -> None:
    pod = open_pod()
    no_robots(pod, *"abcd")
    for host in "abcd":
        pod.frontier.queue.admit(pod.crawl, pages(host, 1))
    out = pod.frontier.leases.claim("me", 9, FEW)
    assert (keys(out), pod.frontier.leases.claim("me", 9, FEW)) == (["a", "b"], [])
    assert all(
        pod.frontier.parse_queue.fetched(
            [HandedTransfer(TransferEnd(lease, pod.time, ok=True), b"place") for lease in out]
        )
    )
    assert keys(pod.frontier.leases.claim("me", 9, FEW)) == ["c", "d"]


def test_crawls_that_wait_for_a_slot_keep_no_other_from_its_turn(open_pod: Open) -> None:
    pod = open_pod(delay_s=1.0)
    frontier = pod.frontier
    crowd = [frontier.crawls.open_crawl(f"crawl {number}", CrawlLimits(), polite(1.0)) for number in range(250)]
    no_robots(pod, "fine", *(f"dead{crawl}" for crawl in crowd))
    frontier.queue.admit(pod.crawl, pages("fine", 30))
    end(pod, frontier, frontier.leases.claim("me", 1, FEW), ok=True, took_s=0.1)
    for crawl in crowd:
        frontier.queue.admit(crawl, pages(f"dead{crawl}", 1))
    assert len(frontier.leases.claim("me", 9, FEW)) == 2
    served = []
    for _ in range(160):
        pod.advance(0.05)
        found = frontier.leases.claim("me", 9, FEW)
        served += keys(found)
        end(pod, frontier, found, ok=True, took_s=0.1)
    assert set(served) == {"fine"} and len(served) >= 6, "every delay of a second, in eight"
    for _ in range(3):  # not all of them are looked at by one claim
        end(pod, frontier, frontier.leases.claim("me", 9, FEW), ok=True, took_s=0.1)
    assert (frontier.leases.next_due() or 0.0) > pod.time


@pytest.mark.parametrize("later", [0, 5000], ids=["", "and thousands that are due much later"])
def test_a_crawl_behind_many_that_wait_for_a_slot_is_asked_for_at_once(open_pod: Open, later: int) -> None:
    """A claim looks at so many crawls and no more: while others are due there is something to ask for."""
    pod = open_pod(delay_s=1.0)
    frontier = pod.frontier
    if later:
        pod.clients[0].zadd("soon", {f"{number}": 9e15 for number in range(10_000, 10_000 + later)})
    crowd = [frontier.crawls.open_crawl(f"crawl {number}", CrawlLimits(), polite(1.0)) for number in range(115)]
    no_robots(pod, "fine", *(f"dead{crawl}" for crawl in crowd))
    frontier.queue.admit(pod.crawl, pages("fine", 3))
    end(pod, frontier, frontier.leases.claim("me", 1, FEW), ok=True, took_s=0.1)
    assert frontier.leases.claim("me", 1, FEW) == []
    for crawl in crowd:
        frontier.queue.admit(crawl, pages(f"dead{crawl}", 1))
    pod.advance(1.1)
    assert len(frontier.leases.claim("me", 9, FEW)) == 2
    due = frontier.leases.next_due()
    assert due is not None and due <= pod.time
    assert keys(frontier.leases.claim("me", 9, FEW)) == ["fine"]
    assert frontier.leases.next_due() == pytest.approx(pod.time + 0.1), "all have been looked at"


def test_however_many_crawls_there_are_each_has_its_first_turn_before_another_has_its_second(open_pod: Open) -> None:
    """More than one claim looks at, and some of them (1000 is before 850 as text) wait long in front of the others."""
    pod = open_pod(delay_s=0.0)
    frontier = pod.frontier
    pod.clients[0].hset("n", "crawl", 849)  # so many it has had before
    crowd = [frontier.crawls.open_crawl(f"crawl {number}", CrawlLimits(), polite(0.0)) for number in range(153)]
    for crawl in crowd:
        hosts = [f"{name}{crawl}" for name in "ab"]
        no_robots(pod, *hosts)
        frontier.queue.admit(crawl, [page(f"http://{host}/") for host in hosts])
    served = [lease.crawl for _ in crowd for lease in frontier.leases.claim("me", 1)]
    assert sorted(served) == crowd


def test_hosts_of_one_address_wait_where_their_address_belongs(open_pod: Open) -> None:
    """They share what it has shown: one that was parked meanwhile is moved when it is looked at."""
    pod = open_pod(key_scope="ip", delay_s=1.0)
    frontier, client = pod.frontier, pod.clients[0]
    no_robots(pod, "a", "b")
    frontier.queue.admit(pod.crawl, [*pages("a", 9), *pages("b", 9)])
    for _ in range(6):
        for lease in frontier.leases.claim("me", 9):
            if frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1")]) == [True]:
                end(pod, frontier, [lease], ok=True, took_s=0.1)
        pod.advance(1.5)
    assert client.hget("s:a", "T") or client.hget("s:b", "T")
    found = frontier.leases.claim("me", 9, Slots(unknown=1, slow=1))
    assert found and client.zcard(f"unknown:{pod.crawl}") == 0
    frontier.queue.admit(pod.crawl, [page("http://a/more")])
    assert frontier.status.stats().due <= 2


def test_a_host_whose_address_answers_no_more_waits_for_a_slot_where_that_belongs(open_pod: Open) -> None:
    pod = open_pod(key_scope="ip", delay_s=1.0)
    frontier, client, few = pod.frontier, pod.clients[0], Slots(unknown=1, slow=1)
    no_robots(pod, "a", "held")
    frontier.queue.admit(pod.crawl, pages("held", 1))
    assert keys(frontier.leases.claim("me", 9, few)) == ["held"]
    client.hset("s:a", "T", "192.0.2.1")
    client.hset("t:192.0.2.1", "l", "100000:100000")
    frontier.queue.admit(pod.crawl, pages("a", 1))
    assert client.zrange(f"due:{pod.crawl}", 0, -1) == [b"a"]
    client.hset("t:192.0.2.1", "l", "-:100000")  # another host of it was asked
    assert frontier.leases.claim("me", 9, few) == []
    assert client.zscore(f"unknown:{pod.crawl}", "a") is not None

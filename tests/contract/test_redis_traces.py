"""What the scripts of a pod on Redis leave in its keys: no more than is needed, once each, and right in every field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harnesses import RedisHarness, claim_one, cool, done, no_robots, page, pages, polite

from weft.frontier.contract import CrawlLimits, End, EndedLease, HandedTransfer, TransferEnd
from weft.frontier.redis.connection import RedisSettings, connect
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.records import Found, Purpose
from weft.supervise.redis_server import RedisServer

AVERAGE = 200  # fingerprints in a bucket of a pod's seen set
Open = Callable[..., RedisHarness]


class EagerHarness(RedisHarness):
    """Each claim asks the server."""

    idle_s = 0.0


@pytest.fixture
def open_pod(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[Open]:
    opened: list[RedisHarness] = []

    def make(limits: CrawlLimits | None = None, **politeness: Any) -> RedisHarness:
        settings = {"delay_s": 0.0} | politeness
        opened.append(EagerHarness(tmp_path / str(len(opened)), shared_server("redis"), len(opened), **settings))
        opened[-1].start(limits)
        return opened[-1]

    yield make
    for harness in opened:
        harness.close()


def server_of(pod: RedisHarness) -> Any:
    return pod.clients[0]


def test_a_pod_has_the_time_of_its_server(open_pod: Open) -> None:
    pod = open_pod()
    server = server_of(pod)
    server.flushdb()

    def micros() -> int:
        seconds, rest = server.time()
        return int(seconds) * 1_000_000 + int(rest)

    frontier = RedisFrontier(
        connect(pod.server.url, RedisSettings(db=pod.db)), pod.folder / "other", polite(0.0), slot="pod0-fetcher1"
    )
    for _ in range(3):
        before = micros()
        frontier.status.stats()
        assert before <= int(server.hget("n", "last")) <= micros()
    assert not server.hexists("n", "offset")
    frontier.close()


def test_what_is_admitted_here_leaves_no_note_and_no_depth_and_was_not_received(open_pod: Open) -> None:
    pod = open_pod()
    found = [page("http://a/1"), Found("http://a/to", 1, 0, 1, about="http://a/from")]
    assert pod.frontier.queue.admit(pod.crawl, found).new == 2
    assert b"" not in server_of(pod).hkeys("meta")
    assert server_of(pod).keys("k:*") == [] and not server_of(pod).exists("senders")
    assert (pod.frontier.status.stats().admitted, pod.frontier.status.stats().received) == (2, 0)


def test_as_many_sites_go_on_as_there_are_permits(open_pod: Open) -> None:
    """Also those that were asked a moment ago: they are due now."""
    pod = open_pod(CrawlLimits(in_flight=1))
    no_robots(pod, *"abc")
    pod.frontier.queue.admit(pod.crawl, [found for host in "abc" for found in pages(host, 3)])
    waiting = []
    for _ in range(3):
        done(pod, claim_one(pod))
        waiting.append(server_of(pod).zcard(f"blocked:{pod.crawl}"))
    assert waiting == [1, 1, 1]


@pytest.mark.parametrize("count", [1, 4])
def test_times_that_are_too_early_are_set_right_before_the_next_one_is_told(open_pod: Open, count: int) -> None:
    pod = open_pod()
    for number in range(count):
        crawl = pod.frontier.crawls.open_crawl(f"crawl {number}", CrawlLimits(), polite(0.0))
        server_of(pod).zadd(f"due:{crawl}", {"a": (pod.time + 50) * 1e6})
        server_of(pod).zadd("soon", {str(crawl): (pod.time + 5 + number) * 1e6})
    assert pod.frontier.leases.claim("me", 9) == []
    assert pod.frontier.leases.next_due() == pytest.approx(pod.time + 50)


def test_one_behind_many_times_that_are_too_early_is_not_kept_waiting(open_pod: Open) -> None:
    pod = open_pod()
    for number in range(6):
        crawl = pod.frontier.crawls.open_crawl(f"crawl {number}", CrawlLimits(), polite(0.0))
        due = pod.time + (10 if number == 5 else 50)
        server_of(pod).zadd(f"due:{crawl}", {"a": due * 1e6})
        server_of(pod).zadd("soon", {str(crawl): (pod.time + 5 + number) * 1e6})
    assert pod.frontier.leases.claim("me", 9) == []
    assert pod.frontier.leases.next_due() == pytest.approx(pod.time + 9), "the last one that was looked at"


def test_something_is_given_however_much_is_asked_for(open_pod: Open) -> None:
    pod = open_pod()
    for limit in (1, 99, 100, 101, 899, 900, 901, 3000):
        no_robots(pod, f"h{limit}")
        pod.frontier.queue.admit(pod.crawl, pages(f"h{limit}", 1))
        assert [lease.key for lease in pod.frontier.leases.claim("me", limit)] == [f"h{limit}"]


def test_pages_that_no_command_takes_at_once_are_parsed_once_each(open_pod: Open) -> None:
    pod = open_pod(places=3000)
    no_robots(pod, "a")
    pod.frontier.queue.admit(pod.crawl, pages("a", 1001))
    leases = pod.frontier.leases.claim("me", 3000)
    assert len(leases) == 1001
    assert all(
        pod.frontier.parse_queue.fetched(
            [HandedTransfer(TransferEnd(lease, pod.time, ok=True), b"place") for lease in leases]
        )
    )
    assert pod.frontier.status.stats().to_parse == 1001
    taken = pod.frontier.parse_queue.claim(3000)
    assert [one.lease.item for one in taken] == [lease.item for lease in leases]
    assert all(pod.frontier.leases.finish([EndedLease(one.lease, End.OTHER) for one in taken]))
    assert (pod.frontier.status.stats().leased, pod.frontier.status.stats().finished) == (0, 1001)


def test_a_page_that_is_handed_over_twice_at_once_is_parsed_once(open_pod: Open) -> None:
    pod = open_pod()
    no_robots(pod, "a")
    pod.frontier.queue.admit(pod.crawl, pages("a", 1))
    handed = HandedTransfer(TransferEnd(claim_one(pod), pod.time, ok=True), b"place")
    assert pod.frontier.parse_queue.fetched([handed, handed]) == [True, False]
    assert len(pod.frontier.parse_queue.claim(9)) == 1


@pytest.mark.parametrize("known_to", ["this node", "the server"])
def test_numbers_that_were_given_out_are_not_given_out_again_after_a_loss(open_pod: Open, known_to: str) -> None:
    """What this node has seen may be lost on the server, and there may be what another node was given."""
    pod = open_pod()
    server = server_of(pod)
    first, second = (5_000_000, 10) if known_to == "this node" else (10, 5_000_000)
    server.hset("n", "item", first)
    pod.frontier.queue.admit(pod.crawl, pages("a", 1))
    server.hset("n", "item", second)
    server.hset("state", "run", "an earlier one")
    server.hincrby("n", "ops", -3)
    pod.crash()
    assert int(server.hget("n", "item")) > 5_000_001


def test_a_robots_txt_whose_reader_died_is_asked_for_again(open_pod: Open) -> None:
    pod = open_pod()
    pod.frontier.queue.admit(pod.crawl, pages("a", 1))
    robots = claim_one(pod)
    cool(pod, robots, ok=True)
    assert pod.frontier.leases.claim("me", 9) == [], "its content may follow"
    pod.frontier.leases.finish([EndedLease(robots, End.OTHER)])
    assert pod.frontier.leases.claim("me", 9) == []
    due = pod.frontier.leases.next_due()
    assert due == pytest.approx(pod.time + 10 * pod.section.lease_s)
    pod.advance(10 * pod.section.lease_s + 0.1)
    assert claim_one(pod).purpose is Purpose.ROBOTS


def test_a_page_that_was_stored_while_it_waited_for_a_parser_has_ended_and_frees_no_other_place(open_pod: Open) -> None:
    pod = open_pod()
    no_robots(pod, "a")
    pod.frontier.queue.admit(pod.crawl, pages("a", 4))
    lease = claim_one(pod)
    assert pod.frontier.parse_queue.fetched([HandedTransfer(TransferEnd(lease, pod.time, ok=True), b"place")]) == [True]
    frontier = pod.crash(done=(lease.item,), pages=1)
    stats = frontier.status.stats()
    assert (stats.to_parse, stats.leased, stats.finished, stats.pages) == (0, 0, 1, 1)
    assert frontier.parse_queue.claim(9) == []
    assert claim_one(pod).url == "http://a/1"
    assert frontier.leases.claim("me", 9) == [], "it has one place"


def test_a_claim_looks_at_a_thousand_sites_in_vain_and_no_more(open_pod: Open) -> None:
    pod = open_pod(CrawlLimits(max_pages=0))
    pod.frontier.queue.admit(pod.crawl, [page(f"http://h{number}/") for number in range(1100)])
    assert pod.frontier.leases.claim("me", 9) == []
    assert server_of(pod).zcard(f"blocked:{pod.crawl}") == 1009
    assert pod.frontier.leases.claim("me", 9) == []
    assert server_of(pod).zcard(f"blocked:{pod.crawl}") == 1100

"""Many crawls on one Redis: what other processes see of an edit or an end, what a kill leaves, what is deleted."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from log_lines import log_lines

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, End, EndedLease, HandedTransfer, RobotsRecord, TransferEnd
from weft.frontier.redis.connection import connect
from weft.frontier.redis.link import QueueLimits
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.records import Found, Lease
from weft.supervise.redis_server import RedisServer

ALLOW = RobotsRecord("allow", b"", 9e12)
SMALL = QueueLimits(split_above=200, moved_at_once=50, refill_below=20, most_in_tail=2000)


class Pod:
    """One pod's processes, under a clock that the test moves."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.folder, self.server = folder, server
        self.time = 1000.0
        self.client: Any = connect(server.url)
        self.client.flushall()
        self._opened: list[RedisFrontier] = []

    def process(self, slot: str = "pod0-fetcher0", *, delay_s: float = 0.0, **more: Any) -> RedisFrontier:
        """A process that has recovered; the one before it in its slot was killed."""
        frontier = RedisFrontier(
            connect(self.server.url), self.folder, polite(delay_s), slot=slot, incarnation=len(self._opened) + 1,
            clock=lambda: self.time, wall=lambda: self.time, server_clock=lambda: self.time, idle_s=0.0, **more,
        )  # fmt: skip
        self._opened.append(frontier)
        frontier.crawls.open_crawl("test", CrawlLimits())
        for name in set(self.client.hkeys("crawls")) - {b"test"}:
            frontier.crawls.open_crawl(name.decode(), CrawlLimits(), polite(delay_s))
        frontier.recovery.recover()
        return frontier

    def keys_of(self, crawl: int) -> set[bytes]:
        """The keys that bear a crawl's number."""
        keys = {key for key in self.client.keys("*") if key.split(b":")[1:2] == [str(crawl).encode()]}
        return keys - {key for key in keys if key.startswith((b"s:", b"x:", b"prep"))}

    def close(self) -> None:
        for frontier in self._opened:
            frontier.close()
        self.client.close()


@pytest.fixture
def pod(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[Pod]:
    made = Pod(tmp_path / "pod", shared_server("redis"))
    yield made
    made.close()


def polite(delay_s: float, places: int = 1) -> PolitenessSection:
    return PolitenessSection(delay_s=delay_s, places=places, lease_s=9000.0)


def pages(host: str, count: int, depth: int = 0) -> list[Found]:
    return [Found(f"https://{host}/{number}", depth) for number in range(count)]


def allow(frontier: RedisFrontier, *hosts: str) -> None:
    for host in hosts:
        frontier.sites.robots_known(f"https://{host}", ALLOW, None)


def finished(frontier: RedisFrontier, *leases: Lease) -> None:
    frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True) for lease in leases])
    assert all(frontier.leases.finish([EndedLease(lease, End.PAGE) for lease in leases]))


# ── edits ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_edit_by_one_process_is_in_force_in_another(pod: Pod) -> None:
    one, two = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    crawl = one.crawls.open_crawl("other", CrawlLimits(), polite(7.0))
    allow(one, "a", "b")
    one.queue.admit(crawl, [*pages("a", 3), *pages("b", 3)])
    one.durability.commit()
    leases = two.leases.claim(two.owner, 9)
    assert [lease.delay_s for lease in leases] == [7.0, 7.0]
    finished(two, *leases)
    one.crawls.change_crawl(crawl, CrawlLimits(in_flight=1), polite(3.0), 1.0)
    pod.time += 3.5
    (lease,) = two.leases.claim(two.owner, 9)
    assert lease.delay_s == 3.0
    one.crawls.pause(crawl)
    finished(two, lease)
    pod.time += 100
    assert two.leases.claim(two.owner, 9) == []
    one.crawls.pause(crawl, False)
    assert len(two.leases.claim(two.owner, 9)) == 1


def test_a_shorter_delay_reaches_all_sites_although_a_kill_came_between(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontier = pod.process()
    crawl = frontier.crawls.open_crawl("other", CrawlLimits(), polite(5000.0))
    allow(frontier, "a")
    frontier.queue.admit(crawl, pages("a", 2))
    (lease,) = frontier.leases.claim("me", 9)
    finished(frontier, lease)
    monkeypatch.setattr(frontier.crawls, "_reschedule_sites", lambda _crawl: None)
    frontier.crawls.change_crawl(crawl, CrawlLimits(), polite(0.0), 1.0)
    again = pod.process()
    pod.time += 1
    assert len(again.leases.claim("me", 9)) == 1


def test_what_a_crawl_is_waiting_for_costs_nobody_else_a_command(pod: Pod) -> None:
    """A claim is about the crawls that have something due, however many there are."""
    frontier = pod.process()
    allow(frontier, "a", "b", *(f"w{number}" for number in range(60)))
    frontier.queue.admit(1, [*pages("a", 40), *pages("b", 40)])

    def commands() -> int:
        before = sum(one["calls"] for one in pod.client.info("commandstats").values())
        leases = frontier.leases.claim("me", 2)
        assert len(leases) == 2
        after = sum(one["calls"] for one in pod.client.info("commandstats").values())
        finished(frontier, *leases)
        return int(after - before)

    commands()
    alone = commands()
    for number in range(60):
        crawl = frontier.crawls.open_crawl(f"waiting {number}", CrawlLimits(), polite(9000.0))
        frontier.queue.admit(crawl, pages(f"w{number}", 2))
        if number % 3 == 0:
            frontier.crawls.pause(crawl)
    waiting = 40  # that are not paused: each has its first page, and waits for its second
    while waiting:
        leases = frontier.leases.claim("me", 200)
        finished(frontier, *leases)
        waiting -= sum(lease.crawl > 1 for lease in leases)
    commands()
    assert commands() <= alone + 4


def test_the_end_of_a_request_schedules_no_crawl_that_has_its_time(pod: Pod) -> None:
    """However many crawls want a site: once it is known to answer, they wait where they are."""
    frontier = pod.process(delay_s=1.0)
    changes = []
    for count in (3, 30):
        host = f"of{count}"
        allow(frontier, host)
        crawls = [frontier.crawls.open_crawl(f"{host} {number}", CrawlLimits(), polite(1.0)) for number in range(count)]
        for crawl in crawls:
            frontier.queue.admit(crawl, pages(host, 2))
        finished(frontier, *frontier.leases.claim("me", 1))
        pod.time += 1.1
        (lease,) = frontier.leases.claim("me", 1)
        before = pod.client.info("commandstats")["cmdstat_zadd"]["calls"]
        finished(frontier, lease)
        changes.append(pod.client.info("commandstats")["cmdstat_zadd"]["calls"] - before)
        assert lease.key == host
        for crawl in crawls:
            frontier.crawls.pause(crawl)
    assert changes[0] == changes[1]


# ── counts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def a_full_life(pod: Pod, frontier: RedisFrontier, crawl: int) -> list[Lease]:
    """Something of every kind that is kept for a crawl; returns what is out."""
    few = [found for host, count in (("b", 3), ("c", 2), ("d", 1), ("e", 2)) for found in pages(host, count)]
    frontier.queue.admit(crawl, [*pages("hot", 1000, depth=1), *few])
    frontier.spiller.move_segments()
    allow(frontier, "hot", "b", "c")
    leases = {lease.key: lease for lease in frontier.leases.claim("me", 99)}
    frontier.leases.exclude([leases.pop("b")])
    frontier.sites.keep_cookies(crawl, "hot", b"cookies")
    frontier.notes.scope_extended(crawl, "https://led.test/")
    failed = leases.pop("d")
    frontier.leases.cool([TransferEnd(failed, frontier.now(), ok=False)])
    frontier.leases.finish([EndedLease(failed, End.RETRY, wait_s=50)])
    retried = leases.pop("c")
    frontier.leases.cool([TransferEnd(retried, frontier.now(), ok=False)])
    frontier.leases.finish([EndedLease(retried, End.RETRY, wait_s=50)])
    return list(leases.values())


# ── what an earlier version has left ───────────────────────────────────────────────────────────────────────────────


# ── whatever happens ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(3))
def test_what_is_counted_is_what_is_there_whatever_happens(pod: Pod, seed: int) -> None:
    rng = random.Random(seed)
    frontier = pod.process(limits=SMALL)
    names, out = {"test": 1}, list[Lease]()
    for step in range(250):
        what = rng.randrange(12)
        name = rng.choice(list(names))
        crawl = names[name]
        if what == 0 and len(names) < 6:
            new = f"c{rng.randrange(9)}"
            names[new] = frontier.crawls.open_crawl(
                new, CrawlLimits(), polite(rng.choice((0.0, 2.0)), rng.choice((1, 3))), 2.0
            )
        elif what == 1:
            out = []
            frontier = pod.process(limits=SMALL)
            frontier.processes.release_owner("me")
            names |= {name: frontier.crawls.open_crawl(name, CrawlLimits(), polite(1.0)) for name in names}
        elif what == 2:
            frontier.crawls.pause(crawl, rng.random() < 0.5)
        elif what == 3 and out:
            frontier.leases.exclude([out.pop()])
        elif what == 4:
            frontier.queue.restore_excluded(crawl, lambda item: item.item % 2 == 0)
        elif what == 5:
            allow(frontier, rng.choice("abcd"))
        elif what in (6, 7):
            count = rng.choice((1, 5, 5, 300))
            frontier.queue.admit(
                crawl, [Found(f"https://{rng.choice('abcd')}/{step}-{at}", at % 3) for at in range(count)]
            )
        elif what in (8, 9):
            out += frontier.leases.claim("me", rng.randrange(1, 9))
        elif out:
            lease = out.pop(rng.randrange(len(out)))
            if rng.random() < 0.8:
                frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True)])
            frontier.leases.finish([EndedLease(lease, rng.choice(list(End)), rng.choice((0.0, 5.0)))])
        frontier.spiller.move_segments()
        pod.time += rng.choice((0.0, 0.5, 3.0))
    standings = {crawl: frontier.status.crawl_counts(crawl) for crawl in names.values()}
    assert {crawl: one.queued for crawl, one in standings.items()} == {
        crawl: sum(1 for _ in frontier.queue.items(crawl)) for crawl in names.values()
    }
    assert frontier.status.stats().queued == sum(one.queued for one in standings.values())
    assert sum(one.leased for one in standings.values()) == sum(lease.crawl in standings for lease in out)
    for lease in out:
        frontier.leases.finish([EndedLease(lease, End.RELEASE)])
    allow(frontier, *"abcd")
    for crawl in names.values():
        frontier.crawls.pause(crawl, False)
    for _ in range(4000):
        pod.time += 3
        frontier.spiller.move_segments()
        leases = frontier.leases.claim("me", 50)
        if not leases and not frontier.status.stats().queued:
            break
        finished(frontier, *leases)
    assert frontier.status.stats().queued == 0 and frontier.status.stats().leased == 0
    assert [frontier.status.has_work(crawl) for crawl in names.values()] == [False] * len(names)


# ── a loss ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_after_a_loss_each_crawl_waits_its_own_delay_and_a_while_at_least(pod: Pod) -> None:
    with log_lines("weft.frontier.redis") as lines:
        frontier = pod.process()
        slow, quick = (
            frontier.crawls.open_crawl(f"by {delay_s}", CrawlLimits(), polite(delay_s)) for delay_s in (30.0, 1.0)
        )
        frontier.queue.admit(slow, pages("a", 1))
        frontier.queue.admit(quick, pages("b", 1))
        allow(frontier, "a", "b")
        frontier.durability.commit()
        assert lines == []
        pod.client.hset("state", "run", "an earlier one")
        pod.client.hincrby("n", "ops", -3)
        again = pod.process()
        assert [message for message, _ in lines] == ["the server has lost data: every site waits a full delay"]
    assert again.crawls.open_crawl("new", CrawlLimits(), polite(0.0)) > 1000, (
        "the numbers of lost crawls are not used again"
    )
    assert int(pod.client.hget("n", "stamp")) >= 1_000_000, "nor those of lost leases"
    for crawl, delay_s in ((slow, 30.0), (quick, 1.0)):
        again.crawls.change_crawl(crawl, CrawlLimits(), polite(delay_s), 1.0)
    pod.time += 9.9
    assert again.leases.claim("me", 9) == []
    pod.time += 0.2
    assert [lease.crawl for lease in again.leases.claim("me", 9)] == [quick]
    pod.time += 19.8
    assert again.leases.claim("me", 9) == []
    pod.time += 0.2
    assert [lease.crawl for lease in again.leases.claim("me", 9)] == [slow]


def test_a_crawl_has_a_time_for_the_sites_where_something_of_it_waits_and_for_no_other(pod: Pod) -> None:
    frontier = pod.process()
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    allow(frontier, "a", "b")
    frontier.queue.admit(1, [*pages("a", 1), *pages("b", 2)])
    out = frontier.leases.claim("me", 9)
    frontier.queue.admit(other, pages("a", 2))
    assert set(pod.client.zrange("unknown:1", 0, -1)) == {b"b"}
    assert set(pod.client.zrange(f"unknown:{other}", 0, -1)) == {b"a"}
    finished(frontier, *out)
    assert set(pod.client.zrange("due:1", 0, -1)) == {b"b"}
    assert set(pod.client.zrange(f"due:{other}", 0, -1)) == {b"a"}, "it is in one line for all crawls"
    assert not pod.client.exists("unknown:1", f"unknown:{other}")


def test_leases_of_a_version_that_did_not_count_them_by_site_end_as_others_do(pod: Pod) -> None:
    frontier = pod.process()
    allow(frontier, "a")
    frontier.queue.admit(1, pages("a", 3))
    (lease,) = frontier.leases.claim(frontier.owner, 9)
    pod.client.hset("s:a", "L", pod.client.hget("s:a", "L").replace(b"1:2:0:0:1:", b"1:2:0:0:0:"))
    assert b"1:2:0:0:0:" in pod.client.hget("s:a", "L")
    finished(frontier, lease)
    frontier.crawls.change_crawl(1, CrawlLimits(max_pages_per_domain=2), polite(0.0), 1.0)
    (lease,) = frontier.leases.claim(frontier.owner, 9)
    finished(frontier, lease)
    assert frontier.leases.claim(frontier.owner, 9) == [] and frontier.status.crawl_counts(1).queued == 1


def test_an_edit_that_has_reached_all_sites_is_not_repeated(pod: Pod) -> None:
    frontier = pod.process()
    frontier.queue.admit(1, [*pages("a", 2), *pages("b", 2)])
    for section in (polite(5.0), polite(1.0)):
        frontier.crawls.change_crawl(1, CrawlLimits(), section, 1.0)
        assert not pod.client.hexists("c:1", "moving")


def test_a_crawl_that_is_opened_again_as_it_was_is_not_scheduled_anew(pod: Pod) -> None:
    pod.process().queue.admit(1, pages("a", 2))
    again = pod.process("pod0-fetcher1")
    called: list[str] = []
    call = again.link.scripts.call
    again.link.scripts.call = lambda name, arguments: called.append(name) or call(name, arguments)  # type: ignore[method-assign, func-returns-value]
    again.crawls.open_crawl("test", CrawlLimits())
    assert "crawl" in called and "schedule" not in called


@pytest.mark.parametrize("times", [{}, {"a": "inf"}])
def test_a_crawl_whose_sites_have_no_time_is_not_what_is_due_next(pod: Pod, times: dict[str, str]) -> None:
    """Its entry among those that are due soon is of before."""
    frontier = pod.process()
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.crawls.pause(other)
    if times:
        pod.client.zadd(f"due:{other}", times)
    pod.client.zadd("soon", {str(other): (pod.time + 5) * 1e6})
    assert frontier.leases.claim("me", 9) == []
    assert pod.client.zscore("soon", str(other)) is None
    assert frontier.leases.next_due() is None


def test_a_page_that_was_parsed_by_one_that_was_killed_before_its_batch_was_safe_is_parsed_again(pod: Pod) -> None:
    fetcher = pod.process()
    allow(fetcher, "a")
    fetcher.queue.admit(1, pages("a", 1))
    (lease,) = fetcher.leases.claim("me", 9)
    assert fetcher.parse_queue.fetched([HandedTransfer(TransferEnd(lease, fetcher.now(), ok=True), b"place")]) == [True]
    parser = pod.process("pod0-parser0")
    (taken,) = parser.parse_queue.claim(9)
    assert parser.leases.finish([EndedLease(taken.lease, End.PAGE)], batch=1) == [True]
    again = pod.process("pod0-parser0")
    assert [(one.lease.url, one.reference) for one in again.parse_queue.claim(9)] == [(lease.url, b"place")]
    assert fetcher.leases.claim("me", 9) == [], "it was fetched"


def test_all_sites_that_wait_for_a_permit_go_on_when_the_limit_is_lifted(pod: Pod) -> None:
    frontier = pod.process()
    crawl = frontier.crawls.open_crawl("other", CrawlLimits(max_pages=1), polite(0.0))
    hosts = [f"h{number}" for number in range(300)]
    allow(frontier, *hosts)
    frontier.queue.admit(crawl, [one for host in hosts for one in pages(host, 1)])
    (lease,) = [lease for _ in range(9) for lease in frontier.leases.claim("me", 999)]
    assert pod.client.exists(f"blocked:{crawl}")
    frontier.crawls.change_crawl(crawl, CrawlLimits(max_pages=2), polite(0.0), 1.0)
    assert pod.client.exists(f"blocked:{crawl}"), "they wait on"
    frontier.crawls.change_crawl(crawl, CrawlLimits(), polite(0.0), 1.0)
    assert len({lease.key, *(lease.key for _ in range(9) for lease in frontier.leases.claim("me", 999))}) == 300

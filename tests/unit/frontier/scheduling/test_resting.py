"""Sites at rest: what they are packed in, that they come back exactly as they were, and never early."""

from __future__ import annotations

import random
import sqlite3
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from xxhash import xxh3_64_digest

from weft.config import PolitenessSection
from weft.engine.admission import names
from weft.frontier.contract import (
    CrawlLimits,
    End,
    EndedLease,
    PageLinks,
    RobotsRecord,
    SlotRequest,
    Slots,
    TransferEnd,
)
from weft.frontier.durability import blobs as blobs_module
from weft.frontier.durability.blobs import BlobStore
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.politeness import PolitenessClock, Responsiveness
from weft.frontier.scheduling import packed_map as packed_module
from weft.frontier.scheduling import queues as queues_module
from weft.frontier.scheduling.packed_map import PackedMap
from weft.frontier.scheduling.site_clocks import CLOCK_KEPT_S
from weft.frontier.scheduling.sites import Site
from weft.frontier.scheduling.swapped_sites import DueSeconds, SwappedSites
from weft.frontier.scheduling.turns import KNOWN_TURNS, ClassTurns
from weft.frontier.scheduling.wheel import Wheel
from weft.records import Found, Lease, Purpose

WALL = 1_700_000_000.0


def mark(number: int) -> bytes:
    return xxh3_64_digest(str(number).encode())


@pytest.mark.parametrize("entries", [64, 4], ids=["grown", "doubled several times"])
def test_a_packed_map_does_what_a_dict_does(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    monkeypatch.setattr(packed_module, "_ENTRIES_PER_BUCKET", entries)
    chance, packed, plain = random.Random(1), PackedMap(), dict[bytes, int]()
    for _ in range(60_000):
        key, value = mark(chance.randrange(30_000)), chance.getrandbits(80)
        if chance.random() < 0.3:
            assert packed.pop(key) == plain.pop(key, None)
        else:
            packed.put(key, value)
            plain[key] = value
    assert len(packed) == len(plain) > 10_000
    assert all(packed.get(mark(number)) == plain.get(mark(number)) for number in range(30_000))


def test_a_set_of_names_is_the_same_when_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_MOST_PLAIN_NAMES", 10)
    found = names.NameSet(f"host{number}" for number in range(9))
    assert [found.add("host8"), found.add("host9"), found.add("host10"), found.add("host10")] == [
        False,
        True,
        True,
        False,
    ]
    assert (len(found), "host0" in found, "host10" in found, "host11" in found) == (11, True, True, False)


def test_the_order_is_that_of_the_due_times_whenever_they_were_added() -> None:
    order = DueSeconds()
    order.add(mark(1), 3600.5)
    order.add(mark(2), 10.2)
    order.add(mark(3), 10.9)
    assert (order.next_due(), order.pop(9.9)) == (10.0, None)
    assert order.pop(12.0) == mark(2)
    order.add(mark(4), 5.0)  # earlier than what is being read: behind it, and not behind the next hour
    assert [order.pop(12.0) for _ in range(3)] == [mark(3), mark(4), None]
    order.add(mark(5), 12.0)
    assert (order.pop(12.0), order.next_due()) == (mark(5), 3600.0)
    order.make_due_now(13.0)
    assert (order.pop(13.0), order.pop(13.0)) == (mark(1), None)


@pytest.mark.parametrize("others", [[], [3600.0]])
def test_what_is_due_later_than_those_that_are_being_read_comes_in_its_own_time(others: list[float]) -> None:
    order = DueSeconds()
    for number, due in enumerate([10.0, 10.0, *others]):
        order.add(mark(number), due)
    assert order.pop(10.0) == mark(0)
    order.add(mark(9), 20.0)
    assert [order.pop(19.9), order.pop(19.9), order.next_due()] == [mark(1), None, 20.0]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlobStore]:
    made = BlobStore(tmp_path / "queues.db")
    yield made
    made.close()


def test_a_site_at_rest_takes_less_than_a_hundred_bytes(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what is written down with the next checkpoint, and what is not in the file yet."""
    monkeypatch.setattr(blobs_module, "_BUFFER_BYTES", 4096)
    swapped, count = SwappedSites(store), 100_000
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(count):
        swapped.add(f"host{number}.example", 1, b"p1 0 0 0 https://host%d.example/" % number, 5.0)
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert (taken - len(swapped.changes)) / count < 60, taken / count


def test_sites_that_nobody_knows_have_a_share_of_the_turns_and_no_more() -> None:
    wheel, turns = Wheel[Site](len(Responsiveness)), ClassTurns()
    for number in range(100):
        wheel.put(Site(f"new{number}", PolitenessClock()), 1.0)
    for number in range(100):
        known = Site(f"known{number}", PolitenessClock())
        known.clock.recent_s = 0.1
        wheel.put(known, 2.0 + number / 1000)
    out = [site.rank for _ in range(80) if (site := turns.pop_site(wheel, 3.0)) is not None]
    fine, unknown = Responsiveness.FINE, Responsiveness.UNKNOWN
    assert out[:10] == [fine, fine, unknown, fine, fine] * 2, "the first turns are theirs that answer"
    share = 80 // (KNOWN_TURNS + 1)
    assert out.count(Responsiveness.UNKNOWN) == share, "those that became due later do not wait for all of the new ones"
    rest = []
    while (site := turns.pop_site(wheel, 3.0)) is not None:
        rest.append(site.rank)
    assert len(rest) == 120


class Bench:
    """A frontier with one site awake, under a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        self.time = 1000.0
        section = PolitenessSection(delay_s=1.0, places=1)
        self.frontier = EmbeddedFrontier(
            folder, section, max_in_memory=1, clock=lambda: self.time, wall=lambda: WALL + self.time
        )
        self.crawl = self.frontier.crawls.open_crawl("test", CrawlLimits())
        self.frontier.recovery.recover()
        self.queues = self.frontier._base.queues

    def allow(self, *hosts: str) -> None:
        for host in hosts:
            self.frontier.sites.robots_known(f"https://{host}", RobotsRecord("allow", b"", WALL * 2), None)

    def admit(self, *urls: str) -> None:
        self.frontier.queue.admit(self.crawl, [Found(url, 0) for url in urls])

    def claim(self, limit: int = 9) -> list[Lease]:
        return self.frontier.leases.claim("me", limit)

    def end(self, lease: Lease, end: End = End.PAGE, retry_after_s: float | None = None) -> None:
        slow = retry_after_s is not None
        self.frontier.leases.cool(
            [TransferEnd(lease, self.time, ok=end is End.PAGE, slow_down=slow, retry_after_s=retry_after_s)]
        )
        self.frontier.leases.finish([EndedLease(lease, end)])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.frontier.close()


def test_new_sites_begin_at_rest_and_are_woken_by_the_claim_that_needs_them(bench: Bench) -> None:
    bench.admit(*(f"https://{host}/{number}" for host in "abcde" for number in range(2)))
    assert (len(bench.queues.sites), len(bench.queues.swapped)) == (1, 4)
    assert (bench.frontier.status.stats().sites, bench.frontier.status.stats().queued) == (5, 10)
    assert sorted(item.url for item in bench.frontier.queue.items(1)) == [
        f"https://{h}/{n}" for h in "abcde" for n in (0, 1)
    ]
    assert [lease.url for lease in bench.claim(3)] == [
        "https://a/robots.txt",
        "https://b/robots.txt",
        "https://c/robots.txt",
    ]
    assert len(bench.queues.swapped) == 2, "no more are woken than are asked for"


def test_a_site_comes_back_as_it_was_and_never_early(bench: Bench) -> None:
    """One that asked for a long wait rests with its whole clock."""
    bench.allow("a", "b")
    bench.admit("https://a/1", "https://a/2", "https://a/3", "https://b/1")
    first = next(lease for lease in bench.claim() if lease.key == "a")
    bench.end(first, End.RETRY, retry_after_s=100.0)
    before, due = bench.queues.sites["a"].clock, bench.time + 100.0
    told = [getattr(before, name) for name in ("due", "last_start", "last_end", "extra_s", "forced_single", "good")]
    bench.claim()
    assert (bench.queues.swapped.find("a"), "a" in bench.queues.sites) == ((1, False), False)
    bench.admit("https://a/4")
    assert "a" not in bench.queues.sites, "a page for the end of its queue does not wake it"
    while bench.time < due:
        assert not [lease for lease in bench.claim() if lease.key == "a"], bench.time
        bench.time += 0.25
    lease = next(lease for lease in bench.claim() if lease.key == "a")
    clock = bench.queues.sites["a"].clock
    assert lease.url == "https://a/1", "what is urgent is first"
    assert [getattr(clock, name) for name in ("due", "last_end", "extra_s", "forced_single", "good")] == [
        told[0], *told[2:]
    ]  # fmt: skip
    assert clock.last_start == bench.time
    assert [item.url for item in bench.frontier.queue.items(1) if item.url.startswith("https://a")] == [
        "https://a/2", "https://a/3", "https://a/4",
    ]  # fmt: skip


def test_what_is_urgent_wakes_a_site(bench: Bench) -> None:
    bench.admit("https://a/1", "https://b/1")
    assert bench.queues.swapped.find("b") == (1, False)
    bench.frontier.queue.admit(1, [Found("https://b/2", 0, 7, 1, Purpose.PAGE, "https://x/")])
    assert [item.url for item in bench.queues.sites["b"].queues[0].items()] == ["https://b/2", "https://b/1"]


def test_a_page_wakes_a_site_where_only_a_retry_waits(bench: Bench) -> None:
    bench.allow("a", "b")
    bench.admit("https://a/1", "https://b/1")
    lease = next(lease for lease in bench.claim() if lease.key == "a")
    bench.frontier.leases.cool([TransferEnd(lease, bench.time, ok=False)])
    bench.frontier.leases.finish([EndedLease(lease, End.RETRY, 500.0)])
    bench.claim()
    assert bench.queues.swapped.find("a") == (1, True)
    bench.admit("https://a/2")
    bench.time += 2.0
    assert [lease.url for lease in bench.claim()] == ["https://a/2"]


def test_many_sites_have_turns_and_each_keeps_its_delay(bench: Bench) -> None:
    """Forty sites of five pages with room for one: all are asked, none twice within its delay, and each page once."""
    hosts = [f"h{number}" for number in range(40)]
    bench.allow(*hosts)
    bench.admit(*(f"https://{host}/{number}" for number in range(5) for host in hosts))
    asked: dict[str, list[float]] = {}
    urls: list[str] = []
    while bench.frontier.leases.next_due() is not None:
        for lease in bench.claim(4):
            asked.setdefault(lease.key, []).append(bench.time)
            urls.append(lease.url)
            bench.end(lease)
        bench.time += 0.1
    assert sorted(urls) == sorted(f"https://{host}/{number}" for number in range(5) for host in hosts)
    assert all(later - earlier >= 1.0 for times in asked.values() for earlier, later in pairwise(times))
    assert bench.frontier.status.stats().queued == 0


def test_a_crawl_that_is_closed_takes_its_sites_at_rest_with_it(bench: Bench) -> None:
    other = bench.frontier.crawls.open_crawl("other", CrawlLimits())
    bench.admit("https://a/1", "https://b/1", "https://c/1")
    bench.frontier.queue.admit(other, [Found("https://d/1", 0), Found("https://b/2", 0)])
    assert sorted(bench.queues.sites) == ["a", "b"], "two crawls have something there"
    bench.frontier.crawls.close_crawl(bench.crawl)
    assert bench.frontier.status.has_work(other) and bench.frontier.status.stats().queued == 2
    bench.frontier.crawls.close_crawl(other)
    assert bench.frontier.status.stats().queued == 0
    bench.claim()
    assert len(bench.queues.swapped) == 0


def test_links_to_a_site_at_rest_are_one_row_of_their_page(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.admit("https://awake/1")
    urls = [f"https://far/a/path/of/some/length/{number}.html" for number in range(50)]
    for first in range(0, 50, 25):
        bench.frontier.queue.admit_links(bench.crawl, [PageLinks("https://far", urls[first : first + 25], 1, 7)])
    assert (len(bench.queues.sites), bench.frontier.status.stats().queued) == (1, 51)
    waiting = [item for item in bench.frontier.queue.items(bench.crawl) if "far" in item.url]
    assert [(item.url, item.depth, item.parent) for item in waiting] == [(url, 1, 7) for url in urls]
    assert len({item.item for item in waiting}) == 50
    bench.frontier.close()
    with closing(sqlite3.connect(tmp_path / "queues.db")) as db:
        sizes = [size for (size,) in db.execute("SELECT length(content) FROM blobs")]
    assert len(sizes) == 2 and sum(sizes) < len("".join(urls)) / 2, "compressed"
    again = Bench(tmp_path)
    again.allow("awake", "far")
    found = []
    while leases := again.claim():
        found += [lease.url for lease in leases if "far" in lease.url]
        for lease in leases:
            again.end(lease)
        again.time += 2.0
    assert found == urls
    again.frontier.close()


def test_idle_sites_are_forgotten_early_where_many_are_in_memory_and_never_while_somebody_waits(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues_module, "MOST_IDLE_SITES", 4)
    hosts = [f"h{number}" for number in range(30)]
    bench.queues.max_in_memory = 30
    bench.allow(*hosts, "slow")
    bench.admit(*(f"https://{host}/1" for host in hosts), "https://slow/1")
    for lease in bench.claim(40):
        bench.end(lease, retry_after_s=500.0 if lease.key == "slow" else None)
    bench.queues.max_in_memory = 1
    bench.claim()
    assert len(bench.queues.sites) == 31, "a delay after their requests"
    bench.time += 2.0
    bench.claim()
    assert len(bench.queues.sites) == 5 and "slow" in bench.queues.sites
    bench.admit("https://slow/2", *(f"https://{host}/2" for host in hosts))
    assert {lease.url for lease in bench.claim(40)} == {f"https://{host}/2" for host in hosts}


def test_what_is_at_rest_of_a_paused_crawl_stays_there(bench: Bench) -> None:
    bench.admit("https://a/1", "https://b/1", "https://c/1")
    bench.frontier.crawls.pause(bench.crawl)
    swapping = len(bench.queues.swapped)
    assert bench.claim() == [] and bench.frontier.leases.next_due() is None
    assert len(bench.queues.swapped) == swapping > 0
    bench.frontier.crawls.pause(bench.crawl, False)
    assert sorted(lease.key for lease in bench.claim()) == ["a", "b", "c"]


@pytest.mark.parametrize(("delay_s", "count", "paths"), [(1.0, 150, 1), (15.0, 12, 3)])
def test_many_hosts_on_one_address_wait_for_its_one_place(
    tmp_path: Path, delay_s: float, count: int, paths: int
) -> None:
    """Whatever is at rest or parked: one request at a time, a delay between two, and each page has its turn, once."""
    time = 1000.0
    section = PolitenessSection(delay_s=delay_s, places=1, key_scope="ip")
    frontier = EmbeddedFrontier(tmp_path, section, max_in_memory=10, clock=lambda: time, wall=lambda: WALL + time)
    crawl = frontier.crawls.open_crawl("test", CrawlLimits())
    frontier.recovery.recover()
    pages = [f"https://h{number}.test/{path}" for path in range(paths) for number in range(count)]
    for page in pages[:count]:
        frontier.sites.robots_known(page.removesuffix("/0"), RobotsRecord("allow", b"", WALL * 2), None)
    frontier.queue.admit(crawl, [Found(page, 0) for page in pages])
    asked: dict[str, float] = {}
    while len(asked) < len(pages) and time < 2000.0:
        while leases := frontier.leases.claim("me", 20):
            granted = frontier.leases.claim_slots([SlotRequest(lease, "10.0.0.1", 0.0) for lease in leases])
            for lease, has_place in zip(leases, granted, strict=True):
                if has_place:
                    assert lease.url not in asked
                    asked[lease.url] = time
                    frontier.leases.cool([TransferEnd(lease, time, ok=True)])
                    frontier.leases.finish([EndedLease(lease, End.PAGE)])
        time += delay_s / 2
    assert frontier.leases.claim("me", 20) == [] and frontier.status.stats().queued == 0
    frontier.close()
    times = sorted(asked.values())
    assert sorted(asked) == sorted(pages)
    assert all(later - earlier >= delay_s for earlier, later in pairwise(times))


def test_a_site_has_its_turns_before_it_leaves_its_place_to_others(bench: Bench) -> None:
    bench.allow("a")
    bench.admit(*(f"https://a/{number}" for number in range(9)), "https://b/1")
    site = bench.queues.sites["a"]
    rested = []
    for served in (KNOWN_TURNS, KNOWN_TURNS + 1):
        site.served = served
        bench.queues.schedule(site)
        rested.append([queue.key for queue in bench.queues.swapping.swap_out(bench.time, lambda _lane: None)])
    assert rested == [[], ["a"]]


def test_a_known_site_at_rest_has_its_turn_while_those_nobody_knows_wait_for_a_slot(bench: Bench) -> None:
    bench.queues.max_in_memory, few = 3, Slots(unknown=1, slow=1)
    bench.allow("known", "held")
    bench.admit("https://known/1", "https://known/2", "https://held/1")
    bench.end(bench.claim(1)[0], retry_after_s=20.0)
    assert [lease.key for lease in bench.frontier.leases.claim("me", 1, few)] == ["held"]
    assert bench.queues.swapped.find("known") == (1, False)
    bench.allow("new")
    bench.admit("https://new/1")
    bench.time += 21.0
    assert [lease.key for lease in bench.frontier.leases.claim("me", 1, few)] == ["known"]


def test_a_robots_txt_of_a_site_at_rest_is_not_held_in_memory_and_still_known(bench: Bench) -> None:
    bench.allow("a", "b")
    bench.admit("https://a/1", "https://a/2", "https://b/1")
    first = next(lease for lease in bench.claim() if lease.key == "a")
    bench.end(first, retry_after_s=100.0)
    assert "https://a" in bench.frontier.sites.robots_files._expiry
    bench.claim()
    assert bench.queues.swapped.find("a") == (1, False)
    assert "https://a" not in bench.frontier.sites.robots_files._expiry
    bench.time += 101.0
    assert [lease.url for lease in bench.claim() if lease.key == "a"] == ["https://a/2"]


def test_a_robots_txt_of_a_site_that_was_forgotten_is_not_held_in_memory_and_still_known(bench: Bench) -> None:
    bench.admit("https://a/1", "https://b/1")
    assert bench.queues.swapped.find("b") == (1, False)
    bench.allow("a", "b")
    for lease in bench.claim():
        bench.end(lease)
    assert sorted(bench.frontier.sites.robots_files._expiry) == ["https://a", "https://b"]
    bench.time += 2 * CLOCK_KEPT_S
    assert bench.claim() == []
    assert (bench.queues.sites, bench.frontier.sites.robots_files._expiry) == ({}, {})
    bench.admit("https://a/2", "https://b/2")
    assert sorted(lease.url for lease in bench.claim()) == ["https://a/2", "https://b/2"]


def test_a_site_that_was_emptied_at_rest_is_forgotten_when_its_wait_is_over(bench: Bench) -> None:
    bench.allow("a", "b")
    bench.admit("https://a/1", "https://a/2", "https://b/1")
    for lease in bench.claim():
        bench.end(lease, retry_after_s=300.0 if lease.key == "a" else None)
    bench.claim()
    assert bench.queues.swapped.find("a") == (1, False)
    bench.frontier.crawls.close_crawl(bench.crawl)
    bench.claim()
    assert "a" in bench.queues.sites, "whoever asks it next must wait"
    for _ in range(3):
        bench.time += 200.0
        bench.claim()
    assert bench.frontier.status.stats().sites == 0


def test_a_crawl_with_budgets_has_work_while_one_of_its_sites_is_at_rest(bench: Bench) -> None:
    bench.admit("https://a/1")
    other = bench.frontier.crawls.open_crawl("other", CrawlLimits(max_pages_per_domain=5))
    bench.frontier.queue.admit(other, [Found("https://b/1", 0)])
    assert (bench.queues.swapped.count(other), bench.frontier.status.has_work(other)) == (1, True)


def test_a_site_that_may_not_come_to_rest_is_claimed_from_when_it_is_due(bench: Bench) -> None:
    other = bench.frontier.crawls.open_crawl("other", CrawlLimits())
    bench.allow("a", "b")
    bench.admit("https://a/1", "https://a/2", "https://b/1")
    bench.frontier.queue.admit(other, [Found("https://a/3", 0)])
    first = next(lease for lease in bench.claim() if lease.key == "a")
    bench.end(first, retry_after_s=100.0)
    assert not [lease for lease in bench.claim() if lease.key == "a"]
    assert "a" in bench.queues.sites, "two crawls wait there"
    bench.time += 100.1
    assert len([lease for lease in bench.claim() if lease.key == "a"]) == 1


def test_sites_that_a_checkpoint_brings_back_are_at_rest_where_they_are_many(tmp_path: Path) -> None:
    hosts = [f"h{number}" for number in range(9)]
    for opening in range(2):
        frontier = EmbeddedFrontier(
            tmp_path, PolitenessSection(delay_s=1.0, places=1), max_in_memory=2, checkpoint_every=-1_000_000,
            clock=lambda: 1000.0, wall=lambda: WALL,
        )  # fmt: skip
        crawl = frontier.crawls.open_crawl("test", CrawlLimits())
        frontier.recovery.recover()
        if not opening:
            frontier.queue.admit(crawl, [Found(f"https://{host}/", 0) for host in hosts])
        assert (len(frontier._base.queues.sites) <= 2, frontier.status.stats().sites) == (True, 9)
        frontier.close()


def test_a_checkpoint_brings_back_what_several_crawls_have_at_a_site_though_sites_are_many(tmp_path: Path) -> None:
    for opening in range(2):
        frontier = EmbeddedFrontier(
            tmp_path, PolitenessSection(delay_s=1.0, places=1), max_in_memory=1, checkpoint_every=-1_000_000,
            clock=lambda: 1000.0, wall=lambda: WALL,
        )  # fmt: skip
        crawls = [frontier.crawls.open_crawl(name, CrawlLimits()) for name in ("one", "two")]
        frontier.recovery.recover()
        wanted = {crawl: [f"https://{host}/{crawl}" for host in "abc"] for crawl in crawls}
        if not opening:
            for crawl in crawls:
                frontier.queue.admit(crawl, [Found(url, 0) for url in wanted[crawl]])
        assert {crawl: sorted(item.url for item in frontier.queue.items(crawl)) for crawl in crawls} == wanted
        frontier.close()


def test_a_crawl_that_ends_leaves_nothing_queued_at_a_site_that_rests_with_its_wait(bench: Bench) -> None:
    bench.allow("a", "b")
    bench.admit("https://a/1", "https://a/2", "https://a/3", "https://b/1")
    bench.end(next(lease for lease in bench.claim() if lease.key == "a"), End.RETRY, retry_after_s=100.0)
    bench.claim()
    assert bench.queues.swapped.find("a") == (1, False)
    bench.frontier.crawls.close_crawl(bench.crawl)
    assert bench.frontier.status.stats().queued == 0
    bench.claim()
    assert bench.queues.sites["a"].clock.due == bench.time + 100.0, "the next crawl waits as well"


def test_a_crawl_that_ends_leaves_nothing_at_sites_that_nobody_has_asked(bench: Bench) -> None:
    other = bench.frontier.crawls.open_crawl("other", CrawlLimits())
    bench.admit(*(f"https://{host}/1" for host in "abcd"))
    assert len(bench.queues.swapped) == 3
    bench.frontier.crawls.close_crawl(bench.crawl)
    assert bench.frontier.status.stats().queued == 0
    bench.frontier.queue.admit(other, [Found(f"https://{host}/2", 0) for host in "abcd"])
    assert {lease.key for lease in bench.claim()} == set("abcd")


def test_nobody_waits_for_a_robots_txt_that_a_crawl_would_have_asked_for_at_a_site_at_rest(bench: Bench) -> None:
    bench.admit("https://a/1", "https://b/1")
    robots = next(lease for lease in bench.claim() if lease.key == "a")
    bench.frontier.leases.cool([TransferEnd(robots, bench.time, ok=False)])
    bench.frontier.leases.finish([EndedLease(robots, End.RETRY, 30.0)])
    for _ in range(2):  # the first finds that its page must wait for the robots.txt
        bench.time += 2.0
        bench.claim()
    assert bench.queues.swapped.find("a") is not None
    other = bench.frontier.crawls.open_crawl("other", CrawlLimits())
    bench.frontier.crawls.close_crawl(bench.crawl)
    bench.frontier.queue.admit(other, [Found("https://a/2", 0)])
    bench.time += 31.0
    assert [lease.url for lease in bench.claim()] == ["https://a/robots.txt"]


def test_where_there_is_room_a_site_at_rest_has_its_turn_though_enough_others_are_due(bench: Bench) -> None:
    bench.allow(*"abc")
    bench.queues.max_in_memory = 3
    bench.admit(*(f"http://{host}/{number}" for host in "abcdef" for number in range(5)))
    swapping = len(bench.queues.swapped)
    assert (len(bench.queues.sites), swapping) == (3, 3)
    for lease in bench.claim(3):
        bench.end(lease)
    bench.time += 5.0
    swapping = len(bench.queues.swapped)
    bench.queues.max_in_memory = 100
    assert len(bench.claim(1)) == 1
    assert len(bench.queues.swapped) < swapping


@pytest.mark.parametrize("before", [0, 1, 2])
def test_what_looks_like_a_key_within_an_entry_is_none(before: int) -> None:
    """The bytes of a value, or the end of one and the beginning of the next, may be those of a key."""
    packed, key = PackedMap(), bytes(range(1, 8)) + b"\0"
    value = int.from_bytes(b"\xff" + key[:7] + b"\xff\xff", "little")
    for number in range(before):
        packed.put(bytes([200 + number] * 7) + b"\0", value)
    assert packed.get(key) is None
    packed.put(key, 5)
    assert (packed.get(key), len(packed)) == (5, before + 1)
    packed.put(key, 6)
    assert (packed.pop(key), packed.pop(key), len(packed)) == (6, None, before)


def test_where_enough_that_nobody_knows_are_due_no_others_are_woken(bench: Bench) -> None:
    bench.queues.max_in_memory = 3
    bench.admit(*(f"https://{host}/{number}" for host in "abcdef" for number in range(5)))
    assert (len(bench.queues.sites), len(bench.queues.swapped)) == (3, 3)
    bench.queues.max_in_memory = 100
    assert len(bench.claim(1)) == 1
    assert len(bench.queues.swapped) == 3


def test_of_those_that_nobody_knows_as_many_are_woken_as_have_a_turn(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.admit(*(f"https://{host}/" for host in "abcdefghi"))
    bench.queues.max_in_memory = 100
    monkeypatch.setattr(Wheel, "due", lambda *_: 1000)
    monkeypatch.setattr(Wheel, "waiting", lambda *_: 1)
    swapping = len(bench.queues.swapped)
    bench.queues.swapping.swap_in_due(3 * (KNOWN_TURNS + 1) - 1, bench.time)
    assert swapping - len(bench.queues.swapped) == 2
    bench.queues.swapping.swap_in_due(3 * (KNOWN_TURNS + 1), bench.time)
    assert swapping - len(bench.queues.swapped) == 2 + 3


def test_a_site_that_was_awake_in_between_is_told_once_and_hides_none_behind_it(store: BlobStore) -> None:
    swapped = SwappedSites(store)
    for due, key in enumerate(("gone", "moved", "again", "other"), 5):
        swapped.add(key, 1, key.encode(), float(due))
    for key in ("gone", "moved", "again"):
        assert swapped.remove(key) == (1, [key.encode()])
    swapped.add("again", 1, b"again, later", 9.0)
    swapped.add("moved", 2, b"of another crawl", 9.0)
    swapped.add("last", 1, b"last", 10.0)
    assert sorted(swapped.rows_of_crawl(1)) == [[b"again, later"], [b"last"], [b"other"]]
    assert list(swapped.rows_of_crawl(2)) == [[b"of another crawl"]]


@pytest.mark.parametrize("permits", [0, 1, 2])
def test_when_sites_at_rest_are_due_is_told_of_a_crawl_that_has_a_permit(bench: Bench, permits: int) -> None:
    bench.frontier.crawls.change_crawl(bench.crawl, CrawlLimits(max_pages=permits), bench.frontier._base.section, 1.0)
    bench.queues.swapped.add("a", bench.crawl, b"", bench.time + 300.0)
    told = pytest.approx(bench.time + 300.0, abs=1.0) if permits else None
    assert bench.frontier.leases.next_due() == told


@pytest.mark.parametrize(("room", "rest"), [(30, 0), (12, 0), (10, 9)])
def test_sites_that_are_not_due_soon_stay_awake_where_there_is_room(bench: Bench, room: int, rest: int) -> None:
    bench.queues.max_in_memory = 1000
    hosts = [f"h{number}" for number in range(9)]
    bench.allow(*hosts)
    bench.admit(*(f"https://{host}/{number}" for host in hosts for number in range(2)))
    leases = bench.claim()
    bench.queues.max_in_memory = room
    for lease in leases:
        bench.end(lease, End.OTHER, retry_after_s=300.0)
    assert (len(leases), bench.claim()) == (9, [])
    assert len(bench.queues.swapped) == rest

"""The working set of an embedded frontier: which sites and addresses it may forget, and what is kept of them; what is
woken when a place or a permit becomes free. Through the queues themselves on a real journal, or a whole frontier."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weft.config import PolitenessSection
from weft.frontier.clock import MachineClock
from weft.frontier.contract import CrawlLimits, End, EndedLease, Item, RobotsRecord, SlotRequest, TransferEnd
from weft.frontier.durability.blobs import BlobStore
from weft.frontier.durability.journal import FrontierJournal
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.politeness import Responsiveness
from weft.frontier.scheduling import queues as queues_module
from weft.frontier.scheduling import site_clocks
from weft.frontier.scheduling.queues import Queues
from weft.frontier.scheduling.site_clocks import CLOCK_KEPT_S
from weft.frontier.scheduling.sites import Crawl
from weft.records import Found, Lease, Purpose

WALL = 1_700_000_000.0


class Bench:
    """Queues, or a frontier, under a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.time = 1000.0
        self._journals: list[FrontierJournal] = []
        self._stores: list[BlobStore] = []
        self._frontiers: list[EmbeddedFrontier] = []
        self.crawl = 0

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return WALL + self.time

    def queues(self, **settings: Any) -> Queues:
        journal = FrontierJournal(self.folder / "frontier.db")
        self._journals.append(journal)
        return Queues(self.section(**settings), journal, self._store(), self.now, self.wall)

    def frontier(self, limits: CrawlLimits | None = None, **settings: Any) -> EmbeddedFrontier:
        for old in self._frontiers:
            old.close()
        self._frontiers.clear()
        frontier = EmbeddedFrontier(self.folder / "f", self.section(**settings), clock=self.now, wall=self.wall)
        self.crawl = frontier.crawls.open_crawl("test", limits or CrawlLimits())
        frontier.recovery.recover()
        self._frontiers.append(frontier)
        return frontier

    def _store(self) -> BlobStore:
        store = BlobStore(self.folder / "queues.db")
        self._stores.append(store)
        return store

    def section(self, **settings: Any) -> PolitenessSection:
        return PolitenessSection(**({"delay_s": 10.0, "places": 1} | settings))

    def close(self) -> None:
        for journal in self._journals:
            journal.close()
        for store in self._stores:
            store.close()
        for frontier in self._frontiers:
            frontier.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def allow(frontier: EmbeddedFrontier, *origins: str, crawl_delay_s: float | None = None) -> None:
    for origin in origins:
        frontier.sites.robots_known(origin, RobotsRecord("allow", b"", 9e12), crawl_delay_s)


def fetch(frontier: EmbeddedFrontier, lease: Lease, **facts: Any) -> None:
    frontier.leases.cool([TransferEnd(lease, frontier.now(), **({"ok": True} | facts))])
    assert frontier.leases.finish([EndedLease(lease, End.PAGE)]) == [True]


def claim_one(frontier: EmbeddedFrontier) -> Lease:
    (lease,) = frontier.leases.claim("me", 9)
    return lease


# ── keys ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("scope", "url", "key"),
    [
        ("domain", "https://www.example.com/", "example.com"),
        ("domain", "https://example.com:8080/x", "example.com"),
        ("host", "https://www.example.com/", "www.example.com"),
        ("ip", "https://b.example.com/x/y", "b.example.com"),
    ],
)
def test_the_key_of_a_url_goes_by_what_counts_as_one_site(bench: Bench, scope: str, url: str, key: str) -> None:
    queues = bench.queues(key_scope=scope)
    assert queues.key_of("https://a.example.org/") != key, "another origin before it"
    assert (queues.key_of(url), queues.key_of(url + "more")) == (key, key)


def test_keys_are_right_also_after_very_many_of_them(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues_module, "_MOST_CACHED_KEYS", 5)
    queues = bench.queues()
    for _ in range(2):
        assert [queues.key_of(f"https://h{n}/x") for n in range(20)] == [f"h{n}" for n in range(20)]
    assert len(queues._key_cache) <= 6


# ── sites that are forgotten ───────────────────────────────────────────────────────────────────────────────────────


def test_a_site_with_nothing_to_do_is_forgotten_after_a_minute(bench: Bench) -> None:
    frontier = bench.frontier()
    allow(frontier, "https://a", "https://b")
    frontier.queue.admit(bench.crawl, [Found("https://a/1", 0), Found("https://b/1", 0), Found("https://b/2", 0)])
    for lease in frontier.leases.claim("me", 9):
        fetch(frontier, lease)
    bench.time += CLOCK_KEPT_S - 1
    frontier.leases.claim("me", 0)
    assert frontier.status.stats().sites == 2
    bench.time += 1
    frontier.leases.claim("me", 0)
    assert frontier.status.stats().sites == 1, "the other one has a page to fetch"
    assert claim_one(frontier).url == "https://b/2"


def test_few_sites_are_forgotten_at_once(bench: Bench) -> None:
    frontier = bench.frontier()
    hosts = [f"https://h{number}" for number in range(50)]
    allow(frontier, *hosts)
    frontier.queue.admit(bench.crawl, [Found(f"{host}/", 0) for host in hosts])
    for lease in frontier.leases.claim("me", 100):
        fetch(frontier, lease)
    bench.time += CLOCK_KEPT_S
    counts = []
    for _ in range(4):
        frontier.leases.claim("me", 0)
        counts.append(frontier.status.stats().sites)
    assert counts == [30, 10, 0, 0]


def test_a_forgotten_site_keeps_what_it_asked_for(bench: Bench) -> None:
    frontier = bench.frontier(places=3)
    allow(frontier, "https://a", crawl_delay_s=25.0)
    frontier.queue.admit(bench.crawl, [Found("https://a/1", 0)])
    bench.time += 25
    fetch(frontier, claim_one(frontier))
    bench.time += CLOCK_KEPT_S + 30
    frontier.leases.claim("me", 0)
    assert frontier.status.stats().sites == 0
    frontier.queue.admit(bench.crawl, [Found(f"https://a/{number}", 0) for number in (2, 3)])
    lease = claim_one(frontier)
    assert (lease.url, lease.delay_s) == ("https://a/2", 25.0)
    fetch(frontier, lease)
    bench.time += 24
    assert frontier.leases.claim("me", 9) == []
    bench.time += 1.1
    assert claim_one(frontier).url == "https://a/3"


def test_a_site_whose_wait_is_not_over_is_not_forgotten(bench: Bench) -> None:
    frontier = bench.frontier()
    allow(frontier, "https://a")
    frontier.queue.admit(bench.crawl, [Found("https://a/1", 0)])
    fetch(frontier, claim_one(frontier), slow_down=True, retry_after_s=300.0)
    bench.time += 299
    frontier.leases.claim("me", 0)
    assert frontier.status.stats().sites == 1
    bench.time += CLOCK_KEPT_S
    frontier.leases.claim("me", 0)
    assert frontier.status.stats().sites == 0


def test_a_site_that_is_being_asked_is_not_forgotten(bench: Bench) -> None:
    frontier = bench.frontier(lease_s=1000.0)
    allow(frontier, "https://a")
    frontier.queue.admit(bench.crawl, [Found("https://a/1", 0)])
    lease = claim_one(frontier)
    bench.time += 2 * CLOCK_KEPT_S
    frontier.leases.claim("me", 0)
    frontier.queue.admit(bench.crawl, [Found("https://a/2", 0)])
    assert frontier.leases.claim("me", 9) == []
    fetch(frontier, lease)
    bench.time += 10.1
    assert claim_one(frontier).url == "https://a/2"


def test_a_wait_that_is_over_is_none_and_one_of_another_clock_ends(bench: Bench) -> None:
    queues = bench.queues()
    wall = queues.clocks._wall()
    assert [queues.clocks.wait_s(wall + seconds) for seconds in (-5.0, 0.0, 7.5)] == [0.0, 0.0, 7.5]
    longest_s = queues.section.max_retry_after_s + 60.0
    assert [queues.clocks.wait_s(wall + seconds) for seconds in (longest_s, longest_s + 1.0, 1e9)] == [
        longest_s,
        60.0,
        60.0,
    ]


def test_a_site_that_waits_for_a_permit_is_not_forgotten(bench: Bench) -> None:
    frontier = bench.frontier(CrawlLimits(max_pages=1), lease_s=1000.0)
    allow(frontier, "https://a", "https://b")
    frontier.queue.admit(bench.crawl, [Found("https://a/1", 0), Found("https://b/1", 0)])
    first = claim_one(frontier)
    bench.time += 2 * CLOCK_KEPT_S
    assert frontier.leases.claim("me", 9) == []
    frontier.leases.finish([EndedLease(first, End.RELEASE)])
    assert len(frontier.leases.claim("me", 9)) == 1


def test_a_domain_keeps_its_budget_however_long_it_is_idle(bench: Bench) -> None:
    frontier = bench.frontier(CrawlLimits(max_pages_per_domain=2))
    allow(frontier, "https://a")
    frontier.queue.admit(bench.crawl, [Found("https://a/1", 0)])
    fetch(frontier, claim_one(frontier))
    for number in (2, 3):
        bench.time += 3 * CLOCK_KEPT_S
        assert frontier.leases.claim("me", 9) == []
        frontier.queue.admit(bench.crawl, [Found(f"https://a/{number}", 0)])
        leases = frontier.leases.claim("me", 9)
        assert len(leases) == (1 if number == 2 else 0)
        for lease in leases:
            fetch(frontier, lease)


def test_a_forgotten_site_is_found_again_with_all_its_origins(bench: Bench) -> None:
    frontier = bench.frontier(delay_s=0.0)
    origins = [f"https://w{number}.example.com" for number in range(12)]
    allow(frontier, *origins)
    for visit in range(3):
        names = [f"{origin}/{visit}" for origin in origins]
        frontier.queue.admit(bench.crawl, [Found(url, 0) for url in names])
        frontier.durability.commit()
        claimed = []
        while leases := frontier.leases.claim("me", 9):
            claimed += [lease.url for lease in leases]
            for lease in leases:
                fetch(frontier, lease)
        assert claimed == names
        bench.time += CLOCK_KEPT_S + 1
        frontier.leases.claim("me", 0)
        assert frontier.status.stats().sites == 0


# ── what a site is known to have asked for ─────────────────────────────────────────────────────────────────────────


def test_what_a_site_asked_for_is_recalled_from_the_journal(bench: Bench) -> None:
    queues = bench.queues(max_retry_after_s=1000.0, breaker_failures=1, breaker_reset_s=300.0)
    site = queues.site("a")
    site.clock.slow_down(bench.time, 500.0, queues.section)
    site.clock.crawl_delay_s = 7.0
    queues.clocks.save_site(site)
    broken = queues.site("b")
    broken.clock.answered(1, False, bench.time, queues.section, "http://b")
    queues.clocks.save_site(broken)
    queues.clocks.save_site(queues.site("c"))
    queues.clocks._journal.commit()
    bench.time += 100
    again = bench.queues()
    a, b, c = (again.site(key).clock for key in "abc")
    assert (a.crawl_delay_s, a.extra_s, a.forced_single, a.held_until()) == (7.0, 20.0, True, 0.0)
    assert [round(clock.due_for(queues.section), 3) for clock in (a, b, c)] == [1500.0, 1000.0, 1000.0]
    assert (b.held_until(), c.forced_single) == (1300.0, False)


def test_breakers_of_each_trust_are_recalled_from_the_journal(bench: Bench) -> None:
    queues = bench.queues(breaker_failures=1, breaker_reset_s=300.0)
    site = queues.site("a")
    site.clock.answered(1, False, bench.time, queues.section, "one http://a")
    breaker = site.clock.breaker("one http://a")
    assert breaker is not None
    breaker.probe = 2
    site.clock.answered(2, False, bench.time, queues.section, "one http://a")
    site.clock.answered(2, True, bench.time, queues.section, "two http://a")
    queues.clocks.save_site(site)
    queues.clocks._journal.commit()
    bench.time += 100
    clock = bench.queues(breaker_failures=1).site("a").clock
    assert clock.breakers is not None and [*clock.breakers] == ["one http://a"]
    assert (round(clock.breakers["one http://a"].open_until), clock.breakers["one http://a"].probes) == (1300, 1)


def test_a_site_that_was_asked_before_this_process_waits_its_delay(bench: Bench) -> None:
    queues = bench.queues()
    queues.clocks.last_ends = {"ended": 995.0, "open": None}
    turns = [queues.site(key).clock for key in ("ended", "open", "never")]
    assert [clock.due_for(queues.section) for clock in turns] == [1005.0, 1010.0, 0.0]
    assert queues.clocks.last_ends == {}


# ── addresses ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_address_waits_a_full_delay_after_a_restart_and_a_longer_one_where_it_wants_that(bench: Bench) -> None:
    queues = bench.queues(key_scope="ip")
    site = queues.site("a")
    site.clock = queues.clocks.address_clock("192.0.2.1")
    assert site.clock.due == 0.0
    site.clock.wants(25.0)
    queues.clocks.save_site(site)
    queues.clocks._journal.commit()
    bench.time += 100
    again = bench.queues(key_scope="ip")
    again.clocks.not_before = bench.time + 10.0
    assert again.clocks.address_clock("192.0.2.2").due == bench.time + 10.0
    known = again.clocks.address_clock("192.0.2.1")
    assert (known.due, known.delay_s(again.section)) == (bench.time + 25.0, 25.0)
    assert again.clocks.address_clock("192.0.2.1") is known


@pytest.mark.parametrize(("left_s", "is_long"), [(600.0, False), (601.0, True)])
def test_an_address_that_asked_for_too_long_a_wait_turns_away_until_then(
    bench: Bench, left_s: float, is_long: bool
) -> None:
    queues = bench.queues(key_scope="ip", max_retry_after_s=600.0)
    site = queues.site("a")
    clock = site.clock = queues.clocks.address_clock("192.0.2.1")
    clock.slow_down(bench.time, 2000.0, queues.section)
    assert (clock.long_until, clock.due) == (3000.0, 1020.0)
    queues.clocks.save_site(site)
    queues.clocks._journal.commit()
    bench.time = 3000.0 - left_s
    again = bench.queues(key_scope="ip", max_retry_after_s=600.0).clocks.address_clock("192.0.2.1")
    assert (round(again.long_until, 3), round(again.due, 3)) == ((3000.0, 0.0) if is_long else (0.0, 3000.0))


def test_addresses_are_forgotten_when_there_are_many_and_they_are_idle(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_clocks, "_MOST_KEPT_CLOCKS", 5)
    queues = bench.queues(key_scope="ip")
    idle, active, waiting, ended, parked = (queues.clocks.address_clock(f"192.0.2.{number}") for number in range(5))
    active.started(bench.time)
    waiting.due = bench.time + 500.0
    ended.last_end = bench.time - 1.0  # its delay is longer
    parked.parked = {queues.site("x"): None}
    bench.time += CLOCK_KEPT_S
    kept = queues.clocks.address_clock("192.0.2.9")
    names = {clock: number for number, clock in enumerate((idle, active, waiting, ended, parked))}
    left = [names[clock] for clock in names if queues.clocks._by_address.get(clock.address) is clock]
    assert left == [1, 2, 3, 4]
    assert queues.clocks.address_clock("192.0.2.9") is kept
    bench.time += 600.0
    for number in range(10, 20):
        queues.clocks.address_clock(f"192.0.2.{number}")
    assert queues.clocks._by_address[active.address] is active
    assert waiting.address not in queues.clocks._by_address


# ── what waits ─────────────────────────────────────────────────────────────────────────────────────────────────────


def crawl_of(queues: Queues, number: int = 1, **limits: int) -> Crawl:
    crawl = Crawl(number, f"c{number}", 5, CrawlLimits(**limits), queues.blobs, queues.section)
    queues.crawls[number] = crawl
    return crawl


def test_an_urgent_item_is_due_at_once_and_counted(bench: Bench) -> None:
    queues = bench.queues()
    queue = queues.site("a").queue_of(crawl_of(queues))
    queues.push_urgent(queue, Item(1, "https://a/1", 0, 0))
    assert (queues.queued, queue.queued, queue.next_time()) == (1, 1, 0.0)
    assert queues.pop(queue, 0.0) == Item(1, "https://a/1", 0, 0)
    assert (queues.queued, queue.queued) == (0, 0)


def test_what_has_ended_since_it_was_written_down_is_passed_over(bench: Bench) -> None:
    queues = bench.queues()
    crawl = crawl_of(queues)
    for number in range(1, 5):
        queues.enqueue(crawl, Found(f"https://a/{number}", 0), number)
    queues.ended.add([1, 3])
    queue = queues.site("a").queue_of(crawl)
    popped = [item.item for _ in range(2) if (item := queues.pop(queue, bench.time)) is not None]
    assert (popped, queues.queued, queues.pop(queue, bench.time)) == ([2, 4], 0, None)


def test_what_was_tried_since_it_was_written_down_waits_its_time(bench: Bench) -> None:
    queues = bench.queues()
    crawl = crawl_of(queues)
    for number in range(1, 4):
        queues.enqueue(crawl, Found(f"https://a/{number}", 0), number)
    queues.retries = {1: (2, bench.wall() + 30.0), 2: (1, bench.wall() - 5.0)}
    queue = queues.site("a").queue_of(crawl)
    first, second = queues.pop(queue, bench.time), queues.pop(queue, bench.time)
    assert first is not None and second is not None
    assert [(one.item, one.attempt) for one in (first, second)] == [(2, 1), (3, 0)]
    assert (queues.pop(queue, bench.time + 29.9), queues.queued) == (None, 1)
    third = queues.pop(queue, bench.time + 30.1)
    assert third is not None
    assert (third.item, third.attempt) == (1, 2)


def test_robots_txt_redirects_and_retries_go_before_sitemaps_and_pages(bench: Bench) -> None:
    queues = bench.queues()
    crawl = crawl_of(queues)
    queues.enqueue(crawl, Found("https://a/page", 0), 1)
    queues.enqueue(crawl, Found("https://a/hop", 0, hops=1, about="https://a/x"), 2)
    queues.enqueue(crawl, Found("https://a/map.xml", 0, purpose=Purpose.SITEMAP, about="https://a"), 3)
    queues.enqueue(crawl, Found("https://a/robots.txt", 0, purpose=Purpose.ROBOTS, about="https://a"), -1)
    queues.enqueue(crawl, Found("https://a/tried", 0, offsite=1), 4, attempt=1, not_before=0.0)
    queue = queues.site("a").queue_of(crawl)
    popped = []
    while (item := queues.pop(queue, bench.time)) is not None:
        popped.append((item.item, item.hops, item.about, item.attempt, item.offsite))
    assert popped == [
        (-1, 0, "https://a", 0, 0), (2, 1, "https://a/x", 0, 0), (4, 0, "", 1, 1), (3, 0, "https://a", 0, 0),
        (1, 0, "", 0, 0),
    ]  # fmt: skip


def test_a_site_is_scheduled_for_its_first_item_and_not_before_its_turn(bench: Bench) -> None:
    queues = bench.queues()
    crawl = crawl_of(queues)
    queues.site("a").clock.due = bench.time + 5
    queues.enqueue(crawl, Found("https://a/1", 0), 1)
    assert queues.wheel.next_due() == bench.time + 5
    queues.enqueue(crawl, Found("https://b/1", 0, hops=1), 2, not_before=bench.time + 3)
    assert queues.wheel.next_due() == bench.time + 3


def parked(queues: Queues, crawl: Crawl, count: int) -> list[str]:
    """So many sites of one address that is fully in use."""
    clock = queues.clocks.address_clock("192.0.2.1")
    clock.active = clock.places(queues.section)
    keys = [f"h{number}" for number in range(count)]
    for number, key in enumerate(keys, 1):
        queues.site(key).clock = clock
        queues.enqueue(crawl, Found(f"https://{key}/", 0), number)
    return keys


@pytest.mark.parametrize(("places", "active"), [(1, 0), (3, 0), (3, 1), (3, 3)])
def test_as_many_parked_sites_are_woken_as_there_are_places_in_the_order_they_came(
    bench: Bench, places: int, active: int
) -> None:
    queues = bench.queues(key_scope="ip", places=places)
    keys = parked(queues, crawl_of(queues), 6)
    clock = queues.clocks.address_clock("192.0.2.1")
    assert queues.wheel.next_due() is None, "nobody tries while all places are taken"
    clock.active = active
    queues.schedule_parked(clock)
    woken = []
    while (site := queues.wheel.pop(bench.time, Responsiveness.UNKNOWN)) is not None:
        woken.append(site.key)
    assert woken == keys[: places - active]
    assert [site.key for site in clock.parked or ()] == keys[places - active :]


def test_a_parked_site_whose_item_must_wait_does_not_take_the_place(bench: Bench) -> None:
    queues = bench.queues(key_scope="ip")
    crawl = crawl_of(queues)
    clock = queues.clocks.address_clock("192.0.2.1")
    clock.active = 1
    for number, (key, not_before) in enumerate((("later", bench.time + 50), ("now", 0.0), ("then", 0.0)), 1):
        queues.site(key).clock = clock
        queues.enqueue(crawl, Found(f"https://{key}/", 0, hops=1), number, not_before=not_before)
    clock.active = 0
    queues.schedule_parked(clock)
    site = queues.wheel.pop(bench.time, Responsiveness.UNKNOWN)
    assert site is not None and site.key == "now"
    assert queues.wheel.next_due() == bench.time + 50
    assert [site.key for site in clock.parked or ()] == ["then"]


def test_as_many_blocked_sites_go_on_as_there_are_permits(bench: Bench) -> None:
    queues = bench.queues()
    crawl = crawl_of(queues, in_flight=2)
    for number in range(5):
        queues.enqueue(crawl, Found(f"https://h{number}/", 0), number + 1)
        site = queues.wheel.pop(bench.time, Responsiveness.UNKNOWN)
        assert site is not None
        crawl.blocked[site] = None
    queues.schedule_blocked(crawl)
    woken = [site.key for _ in range(5) if (site := queues.wheel.pop(bench.time, Responsiveness.UNKNOWN)) is not None]
    assert woken == ["h0", "h1"]
    crawl.flight = 3
    queues.schedule_blocked(crawl)
    assert len(crawl.blocked) == 3


def test_a_site_is_forgotten_at_the_moment_from_which_nobody_waits_for_it(bench: Bench) -> None:
    queues = bench.queues()
    site = queues.site("a")
    site.clock.due = bench.time + CLOCK_KEPT_S
    queues.schedule(site)
    assert queues.forget_idle(bench.time + CLOCK_KEPT_S) == [site]


@pytest.mark.parametrize("due_in_s", [7.0, -7.0])
def test_no_more_parked_sites_are_woken_than_there_are_places_whenever_these_are_due(
    bench: Bench, due_in_s: float
) -> None:
    queues = bench.queues(key_scope="ip")
    keys = parked(queues, crawl_of(queues), 3)
    clock = queues.clocks.address_clock("192.0.2.1")
    clock.active, clock.due = 0, bench.time + due_in_s
    queues.schedule_parked(clock)
    assert [site.key for site in clock.parked or ()] == keys[1:]


def test_a_permit_that_a_sitemap_does_not_use_goes_to_another_site_in_the_same_claim(bench: Bench) -> None:
    frontier = bench.frontier(CrawlLimits(in_flight=1))
    allow(frontier, "https://a", "https://b", "https://c")
    frontier.queue.admit(
        bench.crawl,
        [
            Found("https://a/1", 0),
            Found("https://b/map.xml", 0, purpose=Purpose.SITEMAP, about="https://b"),
            Found("https://c/1", 0),
        ],
    )
    first = next(lease for lease in frontier.leases.claim("me", 1) if lease.purpose is Purpose.PAGE)
    assert frontier.leases.claim("me", 9) == [], "all others wait for its permit"
    fetch(frontier, first)
    assert sorted(lease.url for lease in frontier.leases.claim("me", 9)) == ["https://b/map.xml", "https://c/1"]


def test_a_permit_that_comes_back_is_told_by_when_to_claim_next(bench: Bench) -> None:
    frontier = bench.frontier(CrawlLimits(in_flight=1))
    allow(frontier, "https://a", "https://b")
    frontier.queue.admit(bench.crawl, [Found("https://a/1", 0), Found("https://b/1", 0)])
    first = claim_one(frontier)
    assert (frontier.leases.claim("me", 9), frontier.leases.next_due()) == ([], None)
    fetch(frontier, first)
    due = frontier.leases.next_due()
    assert due is not None and due <= bench.time


def test_a_permit_goes_to_a_site_that_waits_for_it_and_not_to_one_that_waited_before_a_pause(bench: Bench) -> None:
    frontier = bench.frontier(CrawlLimits(in_flight=1))
    allow(frontier, *(f"https://{host}" for host in "abcd"))
    frontier.queue.admit(bench.crawl, [Found(f"https://{host}/1", 0) for host in "abcd"])
    first = claim_one(frontier)
    frontier.crawls.pause(bench.crawl)
    fetch(frontier, first)
    allow(frontier, "https://b", crawl_delay_s=1000.0)
    frontier.crawls.pause(bench.crawl, False)
    second = claim_one(frontier)
    assert (first.key, second.key) == ("a", "c")
    fetch(frontier, second)
    due = frontier.leases.next_due()
    assert due is not None and due <= bench.time, "d is due, and there is a permit"
    assert claim_one(frontier).key == "d"


@pytest.mark.parametrize("places", [1, 2])
def test_what_another_process_has_under_way_is_waited_for_where_one_request_at_a_time_is_made(
    bench: Bench, tmp_path: Path, places: int
) -> None:
    mine, theirs = (MachineClock(tmp_path / "clock", me=os.getpid() << 32 | number) for number in (1, 2))
    section = bench.section(places=places)
    frontier = EmbeddedFrontier(tmp_path / "f", section, clock=bench.now, wall=bench.wall, machine=mine)
    crawl = frontier.crawls.open_crawl("test", CrawlLimits())
    frontier.recovery.recover()
    allow(frontier, "https://a")
    frontier.queue.admit(crawl, [Found("https://a/1", 0)])
    theirs.started("a", bench.time, 60.0)
    bench.time += 20.0
    assert len(frontier.leases.claim("me", 9)) == (0 if places == 1 else 1)
    theirs.ended([("a", bench.time, 0.0)])
    bench.time += 20.0
    assert len(frontier.leases.claim("me", 9)) == (1 if places == 1 else 0)
    frontier.close()
    theirs.close()


@pytest.mark.parametrize("end", ["released", "set aside", "refused", "expired", "fetched"])
def test_other_processes_are_told_that_a_request_is_over_however_it_ends(
    bench: Bench, tmp_path: Path, end: str
) -> None:
    mine, theirs = (MachineClock(tmp_path / "clock", me=os.getpid() << 32 | number) for number in (1, 2))
    section = bench.section(key_scope="ip", lease_s=500.0)
    frontier = EmbeddedFrontier(tmp_path / "f", section, clock=bench.now, wall=bench.wall, machine=mine)
    crawl = frontier.crawls.open_crawl("test", CrawlLimits())
    frontier.recovery.recover()
    allow(frontier, "https://a")
    frontier.queue.admit(crawl, [Found("https://a/1", 0)])
    lease = claim_one(frontier)
    bench.time += 500.0 if end == "expired" else 100.0
    if end == "released":
        frontier.leases.finish([EndedLease(lease, End.RELEASE)])
    elif end == "set aside":
        frontier.leases.exclude([lease])
    elif end == "refused":
        frontier._base.queues.clocks.address_clock("192.0.2.1").due = bench.time + 50.0
        assert frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1", 0.0)]) == [False]
    elif end == "expired":
        frontier.leases.claim("me", 0)
    else:
        fetch(frontier, lease)
    assert theirs.due("a", bench.time + 3.0, 10.0, alone=True) == bench.time + 10.0, "a delay after the end"
    frontier.close()
    theirs.close()


def test_the_time_in_which_a_crawl_was_paused_is_not_one_in_which_it_waited(bench: Bench) -> None:
    """One that has waited ten of its delays at a site is next there, whatever its weight."""
    frontier = bench.frontier(delay_s=1.0)
    allow(frontier, "https://a")
    light = frontier.crawls.open_crawl("light", CrawlLimits(), bench.section(delay_s=1.0), weight=0.01)
    frontier.queue.admit(light, [Found(f"https://a/light{number}", 0) for number in range(3)])
    fetch(frontier, claim_one(frontier))
    frontier.crawls.pause(light)
    frontier.queue.admit(bench.crawl, [Found(f"https://a/{number}", 0) for number in range(30)])
    for _ in range(15):
        bench.time += 1.1
        fetch(frontier, claim_one(frontier))
    frontier.crawls.pause(light, False)
    bench.time += 1.1
    assert claim_one(frontier).crawl == bench.crawl


def test_robots_txt_requests_are_distinguished_by_their_numbers(bench: Bench) -> None:
    frontier = bench.frontier()
    frontier.queue.admit(bench.crawl, [Found(f"https://{host}/1", 0) for host in "abc"])
    leases = frontier.leases.claim("me", 9)
    assert [lease.purpose for lease in leases] == [Purpose.ROBOTS] * 3
    assert len({lease.item for lease in leases}) == 3 and all(lease.item < 0 for lease in leases)
    assert frontier.leases.finish([EndedLease(lease, End.RELEASE) for lease in leases]) == [True] * 3


def test_sitemaps_are_counted_through_a_restart(bench: Bench) -> None:
    maps = [Found(f"https://a/{n}.xml", 0, purpose=Purpose.SITEMAP, about="https://a") for n in range(4)]
    limits = CrawlLimits(max_sitemaps=2)
    assert bench.frontier(limits).queue.admit(bench.crawl, maps[:1]).new == 1
    assert bench.frontier(limits).queue.admit(bench.crawl, maps[1:]).new == 1


def test_a_lease_of_a_crawl_that_has_ended_holds_nothing_that_was_queued_behind_it(bench: Bench) -> None:
    frontier = bench.frontier()
    other = frontier.crawls.open_crawl("other", CrawlLimits())
    allow(frontier, "https://a")
    frontier.queue.admit(other, [Found(f"https://a/{number}", 0) for number in range(5)])
    queue = frontier.leases._live_leases[claim_one(frontier).item].queue
    assert queue.queued == 4
    frontier.crawls.close_crawl(other)
    assert (queue.queued, list(queue.items())) == (0, [])


@pytest.mark.parametrize("why", ["flight", "ready", "blocked", "out", "active", "pages", "queued"])
def test_a_site_of_which_something_is_in_use_does_not_come_to_rest(bench: Bench, why: str) -> None:
    queues = bench.queues()
    crawl, idle = crawl_of(queues), crawl_of(queues, 2)
    queues.enqueue(crawl, Found("https://a/1", 0), 1)
    site = queues.sites["a"]
    queue, other = site.queue_of(crawl), site.queue_of(idle)
    assert queues.swapping._queue_to_swap(site) is queue
    if why == "flight":
        queue.flight = 1
    elif why == "ready":
        queue.is_ready = True
    elif why == "blocked":
        crawl.blocked[site] = None
    elif why == "out":
        site.out = 1
    elif why == "active":
        site.clock.active = 1
    elif why == "pages":
        other.pages = 1
    else:
        queues.enqueue(idle, Found("https://a/2", 0), 2)
    assert queues.swapping._queue_to_swap(site) is None

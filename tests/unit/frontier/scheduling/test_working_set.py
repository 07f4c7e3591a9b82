"""The working set of an embedded frontier: what it notes of idle sites, brings to rest, wakes, and lets go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from log_lines import log_lines

from weft.config import PolitenessSection
from weft.errors import Damaged
from weft.frontier.contract import CrawlLimits, End, EndedLease, PageLinks, RobotsRecord, TransferEnd
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.scheduling import spill
from weft.frontier.scheduling.queues import DUE_SOON_S
from weft.frontier.scheduling.site_clocks import CLOCK_KEPT_S
from weft.frontier.scheduling.spill import pieces_of
from weft.records import Found, Lease, Purpose, Reason

WALL = 1_700_000_000.0
ALLOW = RobotsRecord("allow", b"", 9e12)


class Bench:
    """A frontier under a clock that the test moves, opened again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.time = 1000.0
        self.opened: list[EmbeddedFrontier] = []
        self.open()
        for host in "abcdef":
            self.frontier.sites.robots_known(f"https://{host}", ALLOW, None)
        self.time += CLOCK_KEPT_S
        self.frontier.leases.claim("me", 0)
        assert not self.queues.sites

    def open(self, *weights: float, **more: Any) -> list[int]:
        """With a crawl of each weight besides the usual one: their numbers."""
        self.close()
        section = PolitenessSection(delay_s=1.0, places=1)
        clocks: dict[str, Any] = {"clock": lambda: self.time, "wall": lambda: WALL + self.time}
        self.frontier = EmbeddedFrontier(self.folder, section, **clocks, **more)
        self.opened.append(self.frontier)
        self.crawl = self.frontier.crawls.open_crawl("test", CrawlLimits())
        others = [self.frontier.crawls.open_crawl(f"of weight {one}", CrawlLimits(), weight=one) for one in weights]
        self.frontier.recovery.recover()
        self.queues = self.frontier._base.queues
        return others

    def close(self) -> None:
        while self.opened:
            self.opened.pop().close()

    def admit(self, *urls: str, crawl: int | None = None) -> None:
        self.frontier.queue.admit(crawl or self.crawl, [Found(url, 0) for url in urls])

    def fetch(self, lease: Lease, **facts: Any) -> None:
        self.frontier.leases.cool([TransferEnd(lease, self.time, **({"ok": True} | facts))])
        assert self.frontier.leases.finish([EndedLease(lease, End.PAGE)]) == [True]

    def claim_one(self) -> Lease:
        (lease,) = self.frontier.leases.claim("me", 9)
        return lease

    def rest(self) -> list[str]:
        return [queue.key for queue in self.queues.swapping.swap_out(self.time, lambda _lane: None)]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "f")
    yield made
    made.close()


# ── idle sites ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_site_that_is_idle_again_and_again_is_noted_once(bench: Bench) -> None:
    """In a crawl with a budget for each site none is forgotten: notes that were not needed would stay for ever."""
    bench.frontier.crawls.change_crawl(
        bench.crawl, CrawlLimits(max_pages_per_domain=9), bench.frontier._base.section, 1.0
    )
    for number in range(5):
        bench.admit(f"https://a/{number}")
        bench.fetch(bench.claim_one())
        bench.time += 2.0
    assert len(bench.queues._idle) == 1


def test_sites_that_are_gone_already_hold_up_none_that_is_to_be_forgotten(bench: Bench) -> None:
    gone, idle = bench.queues.site("a"), bench.queues.site("b")
    for site in (gone, idle):
        bench.queues.schedule(site)
    gone.gone = True
    assert bench.queues.forget_idle(bench.time + CLOCK_KEPT_S) == [idle]


def test_nothing_is_kept_of_a_site_that_is_forgotten(bench: Bench) -> None:
    bench.admit("https://a/1", "https://b/1")
    for lease in bench.frontier.leases.claim("me", 9):
        bench.fetch(lease)
    bench.time += CLOCK_KEPT_S + 1
    assert bench.frontier.leases.claim("me", 9) == []
    assert (bench.queues.sites, bench.queues._by_origin, bench.queues.crawls[bench.crawl].sites) == ({}, {}, {})


# ── sites that come to rest ────────────────────────────────────────────────────────────────────────────────────────


def swappable(bench: Bench, *hosts: str) -> None:
    """Sites that are due so late that they may come to rest."""
    bench.admit(*(f"https://{host}/1" for host in hosts))
    bench.queues.max_in_memory = 1
    for host in hosts:
        bench.queues.sites[host].clock.due = bench.time + 10 * DUE_SOON_S
        for _ in range(2):  # with the end of a request, and with that of its lease
            bench.queues.schedule(bench.queues.sites[host])


def test_a_site_that_may_rest_and_was_looked_at_twice_holds_up_no_other(bench: Bench) -> None:
    swappable(bench, "a", "b")
    assert bench.rest() == ["a", "b"]


def test_a_site_that_waits_for_an_event_by_then_does_not_come_to_rest(bench: Bench) -> None:
    swappable(bench, "a")
    site = bench.queues.sites["a"]
    bench.queues.schedule(site, asked=site.queues[0], at=bench.time)  # in vain: for a robots.txt, say
    assert (bench.rest(), list(bench.queues.sites)) == ([], ["a"])
    bench.queues.schedule(site)
    assert bench.rest() == ["a"]


def test_a_site_that_has_nothing_left_by_then_does_not_come_to_rest(bench: Bench) -> None:
    swappable(bench, "a")
    bench.frontier.crawls.close_crawl(bench.crawl)
    assert (bench.rest(), list(bench.queues.sites)) == ([], ["a"])


@pytest.mark.parametrize("why", ["paused", "parked"])
def test_a_site_where_another_crawl_or_a_place_is_waited_for_does_not_come_to_rest(bench: Bench, why: str) -> None:
    bench.admit("https://a/1")
    site = bench.queues.sites["a"]
    if why == "paused":
        other = bench.frontier.crawls.open_crawl("other", CrawlLimits())
        bench.admit("https://a/2", crawl=other)
        bench.frontier.crawls.pause(other)
    else:
        site.clock = clock = bench.queues.clocks.address_clock("192.0.2.1")
        clock.active = 1
        assert bench.queues.swapping._queue_to_swap(site) is site.queues[0], "another host of its address is asked"
        bench.queues.schedule(site)
        assert list(clock.parked or ()) == [site]
    assert bench.queues.swapping._queue_to_swap(site) is None


def test_sites_that_are_ready_for_a_turn_are_enough_and_no_others_are_woken(bench: Bench) -> None:
    bench.frontier.crawls.open_crawl("other", CrawlLimits())  # with several crawls, sites that are due wait for a turn
    bench.queues.max_in_memory = 3
    bench.admit(*(f"https://{host}/{number}" for host in "abcdef" for number in range(2)))
    assert (len(bench.queues.sites), len(bench.queues.swapped)) == (3, 3)
    assert [len(bench.frontier.leases.claim("me", limit)) for limit in (1, 2)] == [1, 2]
    assert len(bench.queues.swapped) == 3


@pytest.mark.parametrize(("room", "woken"), [(3, 0), (4, 1)])
def test_where_enough_are_due_another_is_woken_only_if_there_is_room(bench: Bench, room: int, woken: int) -> None:
    bench.queues.max_in_memory = 3
    bench.admit(*(f"https://{host}/{number}" for host in "abcdef" for number in range(2)))
    for lease in bench.frontier.leases.claim("me", 3):
        bench.fetch(lease)
    bench.time += 5.0
    bench.queues.max_in_memory = room
    assert len(bench.frontier.leases.claim("me", 1)) == 1
    assert (len(bench.queues.sites), len(bench.queues.swapped)) == (3 + woken, 3 - woken)


def test_a_look_at_sites_at_rest_makes_none_of_them_due_early_after_a_restart(bench: Bench) -> None:
    """As a checkpoint takes one: when they were asked before is told to nobody but who asks them next."""
    bench.admit(*(f"https://{host}/{number}" for host in "abc" for number in range(2)))
    for lease in bench.frontier.leases.claim("me", 9):
        bench.fetch(lease)
    bench.open(max_in_memory=1)
    assert len(bench.queues.swapped) == 2 and len(list(bench.frontier.queue.items(bench.crawl))) == 3
    bench.time += 0.9
    assert bench.frontier.leases.claim("me", 9) == []
    bench.time += 0.2
    assert len(bench.frontier.leases.claim("me", 9)) == 3


def test_a_page_that_was_found_nearer_is_one_of_those_that_are_given_up_with_their_site(bench: Bench) -> None:
    bench.frontier.crawls.change_crawl(bench.crawl, CrawlLimits(max_depth=5), bench.frontier._base.section, 1.0)
    with log_lines("weft.frontier.politeness") as lines:
        for host in "ab":
            bench.admit(f"https://{host}/0")
            for depth in (4, 3, 2):
                bench.frontier.queue.admit(bench.crawl, [Found(f"https://{host}/1", depth)])
            bench.fetch(bench.claim_one(), slow_down=True, retry_after_s=1e6)
    assert [fields["urls"] for message, fields in lines if message == "site given up"] == [1, 1]


# ── crawls that have ended ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_site_that_rested_for_a_crawl_that_has_ended_is_gone_when_nobody_must_wait_for_it(bench: Bench) -> None:
    bench.queues.max_in_memory = 1
    bench.admit("https://a/1", "https://a/2")
    bench.fetch(bench.claim_one(), slow_down=True, retry_after_s=20.0)
    assert bench.frontier.leases.claim("me", 9) == [] and bench.queues.swapped.find("a") is not None
    bench.time += 200.0
    bench.frontier.crawls.close_crawl(bench.crawl)
    assert bench.frontier.status.stats().queued == 0
    bench.frontier.leases.claim("me", 9)
    assert bench.frontier.status.stats().sites == 0
    bench.time += 2 * CLOCK_KEPT_S
    assert bench.frontier.leases.claim("me", 9) == []


def test_nothing_is_kept_of_a_crawl_that_has_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "PIECE_BYTES", 100)
    bench.admit(*(f"https://a/{number}" for number in range(60)))
    bench.frontier.rejected.refused(bench.crawl, Reason.SCOPE, "https://x/", 1)
    bench.frontier.leases.exclude([bench.claim_one()])
    (queue,) = bench.frontier._base.queues.crawls[bench.crawl].sites.values()
    (piece, *_) = pieces_of(queue.queues[0].state())
    bench.frontier.crawls.close_crawl(bench.crawl)
    bench.frontier.durability.commit()
    with pytest.raises(Damaged):
        bench.frontier._base.blobs.get(piece)
    assert bench.frontier.rejected._refusals_kept == {}


# ── several crawls at a site ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("by", ["one by one", "links"])
def test_the_time_in_which_a_crawl_had_nothing_queued_is_not_one_in_which_it_waited(bench: Bench, by: str) -> None:
    """One that has waited ten of its delays at a site is next there, whatever its weight."""
    (light,) = bench.open(0.01)
    bench.admit("https://a/light", crawl=light)
    bench.fetch(bench.claim_one())
    bench.admit(*(f"https://a/{number}" for number in range(30)))
    for _ in range(15):
        bench.time += 1.1
        bench.fetch(bench.claim_one())
    if by == "links":
        bench.frontier.queue.admit_links(light, [PageLinks("https://a", ["https://a/again"], 1, 0)])
    else:
        bench.admit("https://a/again", crawl=light)
    bench.time += 1.1
    assert bench.claim_one().crawl == bench.crawl


@pytest.mark.parametrize("checkpoint_every", [-1_000_000, 1_000_000])
def test_a_light_crawl_has_no_more_turns_after_a_restart_than_before(bench: Bench, checkpoint_every: int) -> None:
    """What is brought back begins to wait then, whether a checkpoint or the journal tells of it."""
    (light,) = bench.open(0.01, checkpoint_every=checkpoint_every)
    for crawl in (bench.crawl, light):
        bench.admit(*(f"https://{host}/{number}" for number in range(9) for host in "ab"), crawl=crawl)
    bench.open(0.01, checkpoint_every=checkpoint_every)
    served = []
    for _ in range(5):
        for lease in bench.frontier.leases.claim("me", 9):
            served.append(lease.crawl)
            bench.fetch(lease)
        bench.time += 1.1
    assert (len(served), served.count(light)) == (10, 1)


# ── a robots.txt at another site ───────────────────────────────────────────────────────────────────────────────────


def lead_on(bench: Bench) -> None:
    """The robots.txt that a page waits for leads to another site, where it is queued."""
    bench.admit("https://x/1")
    robots = bench.claim_one()
    hop = Found("https://a/robots.txt", 0, robots.parent, 1, Purpose.ROBOTS, robots.about)
    bench.frontier.queue.admit(bench.crawl, [hop])
    bench.frontier.leases.cool([TransferEnd(robots, bench.time, ok=True)])
    bench.frontier.leases.finish([EndedLease(robots, End.OTHER)])


def test_a_robots_txt_that_another_site_waits_for_does_not_come_to_rest(bench: Bench) -> None:
    bench.frontier.sites.robots_known("https://a", ALLOW, 3 * DUE_SOON_S)
    lead_on(bench)
    bench.queues.max_in_memory = 1
    bench.queues.schedule(bench.queues.sites["a"])
    assert bench.frontier.leases.claim("me", 9) == []
    bench.time += 3 * DUE_SOON_S + 1
    robots = bench.claim_one()
    assert (robots.url, robots.about) == ("https://a/robots.txt", "https://x")
    bench.frontier.sites.robots_known("https://x", ALLOW, None)
    bench.frontier.leases.finish([EndedLease(robots, End.OTHER)])
    assert bench.claim_one().url == "https://x/1"


def test_a_robots_txt_cannot_be_had_whose_redirect_has_led_to_a_site_that_is_given_up(bench: Bench) -> None:
    section = PolitenessSection(delay_s=1.0, places=1, breaker_failures=1, breaker_reset_s=10.0, breaker_max_probes=1)
    bench.frontier.crawls.change_crawl(bench.crawl, CrawlLimits(), section, 1.0)
    lead_on(bench)
    for _ in range(2):
        robots = bench.claim_one()
        assert robots.url == "https://a/robots.txt"
        bench.frontier.leases.cool([TransferEnd(robots, bench.time, ok=False)])
        bench.frontier.leases.finish([EndedLease(robots, End.RETRY)])
        bench.time += 11.0
    assert bench.claim_one().url == "https://x/1", "nobody waits for it any more"
    record = bench.frontier.sites.robots("https://x")
    assert record is not None and (record.status, record.expires) == ("unreachable", WALL + bench.time - 11.0 + 600.0)


def test_a_robots_txt_that_an_ended_crawl_has_at_another_site_is_asked_for_by_who_waits_for_it(bench: Bench) -> None:
    (other,) = bench.open(1.0)
    lead_on(bench)
    robots = bench.claim_one()
    bench.admit("https://x/2", crawl=other)
    bench.frontier.crawls.close_crawl(bench.crawl)
    bench.time += 2.0
    assert bench.frontier.leases.claim("me", 9) == []
    bench.frontier.leases.cool([TransferEnd(robots, bench.time, ok=True)])
    bench.frontier.leases.finish([EndedLease(robots, End.OTHER)])
    again = bench.claim_one()
    assert (again.url, again.crawl) == ("https://x/robots.txt", other)


def test_a_robots_txt_that_is_given_up_with_its_own_site_is_not_known(bench: Bench) -> None:
    bench.admit("https://x/1")
    robots = bench.claim_one()
    bench.frontier.leases.cool([TransferEnd(robots, bench.time, ok=False)])
    bench.frontier.leases.finish([EndedLease(robots, End.RETRY, 60.0)])
    site = bench.queues.sites["x"]
    bench.frontier.rejected.reject_queue(site.queues[0], Reason.BREAKER)
    assert bench.frontier.sites.robots("https://x") is None


def test_a_robots_txt_that_leads_on_for_a_paused_crawl_is_asked_for_by_who_waits_for_it(bench: Bench) -> None:
    (other,) = bench.open(1.0)
    bench.admit("https://x/1")
    robots = bench.claim_one()
    bench.admit("https://x/2", crawl=other)
    bench.frontier.crawls.pause(bench.crawl)
    hop = Found("https://a/robots.txt", 0, robots.parent, 1, Purpose.ROBOTS, robots.about)
    bench.frontier.queue.admit(bench.crawl, [hop])
    bench.frontier.leases.cool([TransferEnd(robots, bench.time, ok=True)])
    bench.frontier.leases.finish([EndedLease(robots, End.OTHER)])
    bench.time += 2.0
    again = bench.claim_one()
    assert (again.url, again.crawl) == ("https://x/robots.txt", other)


def test_what_was_looked_up_and_refused_is_not_kept(bench: Bench) -> None:
    found = [f"https://a/{number}" for number in range(10)]
    assert bench.frontier.queue.unseen(bench.crawl, found) == found
    bench.frontier.queue.admit_links(bench.crawl, [PageLinks("https://a", found[:1], 0, 0)])
    assert bench.queues.crawls[bench.crawl].seen._missed == {}

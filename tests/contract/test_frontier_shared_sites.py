"""Crawls at their sites, on every frontier: who waits for whom, and for how long, and what the end of one leaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harnesses import NO_ENDS, Harness, claim_one, cool, done, no_robots, page, pages, polite, served

from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.records import Found, Purpose

Make = Callable[..., Harness]


@pytest.mark.parametrize("how", ["paused", "closed"])
def test_one_that_is_paused_or_over_is_not_served_however_long_it_has_waited(make: Make, how: str) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(1.0))
    frontier.queue.admit(harness.crawl, pages("a", 60))
    frontier.queue.admit(other, pages("a", 3))
    if how == "paused":
        frontier.crawls.pause(other)
    else:
        if not isinstance(frontier, EmbeddedFrontier):
            pytest.skip(NO_ENDS)
        frontier.crawls.close_crawl(other)
    assert {whose for _, whose in served(harness, 20)} == {harness.crawl}


def test_one_that_finds_more_while_it_waits_has_waited_no_less(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    slow = frontier.crawls.open_crawl("slow", CrawlLimits(), polite(2.0))
    frontier.queue.admit(harness.crawl, pages("a", 100))
    done(harness, claim_one(harness))
    began = harness.time
    whose = None
    while whose != slow:
        assert harness.time - began < 25, "it starves"
        frontier.queue.admit(slow, [page(f"http://a/slow/{harness.time}")])
        for lease in frontier.leases.claim("me", 1):
            whose = lease.crawl
            done(harness, lease)
        harness.advance(0.5)


@pytest.mark.parametrize("had_trouble", [False, True])
def test_answers_as_usual_make_nobody_wait_longer_than_its_own_delay(make: Make, had_trouble: bool) -> None:
    harness = make(delay_s=10.0)
    frontier = harness.start()
    no_robots(harness, "a")
    quick = frontier.crawls.open_crawl("quick", CrawlLimits(), polite(1.0))
    frontier.queue.admit(harness.crawl, pages("a", 9))
    before: list[dict[str, bool]] = [{"slow_down": True, "in_trouble": True}, {"ok": True}] if had_trouble else []
    for facts in before:
        lease = claim_one(harness)
        cool(harness, lease, **facts)
        frontier.leases.finish([EndedLease(lease, End.OTHER)])
        harness.advance(60)
    for number in range(2):
        lease = claim_one(harness)
        assert lease.crawl == harness.crawl
        cool(harness, lease, ok=True, took_s=0.1)
        frontier.leases.finish([EndedLease(lease, End.OTHER)])
        frontier.queue.admit(quick, [page(f"http://a/quick/{number}")])
        harness.advance(1.1)
        lease = claim_one(harness)
        assert lease.crawl == quick
        done(harness, lease)
        harness.advance(10.1)


def test_one_that_comes_back_from_a_pause_is_served_by_what_it_has_had(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    light = frontier.crawls.open_crawl("light", CrawlLimits(), polite(0.0), weight=0.1)
    for crawl in (harness.crawl, light):
        hosts = [f"c{crawl}-{number}" for number in range(12)]
        no_robots(harness, *hosts)
        frontier.queue.admit(crawl, [page(f"http://{host}/") for host in hosts])
    assert {lease.crawl for lease in frontier.leases.claim("me", 3)} == {harness.crawl, light}
    frontier.crawls.pause(light)
    frontier.crawls.pause(light, False)
    assert [lease.crawl for lease in frontier.leases.claim("me", 6)] == [harness.crawl] * 6


@pytest.mark.parametrize("is_over", [False, True])
def test_a_page_that_ends_while_the_robots_txt_is_asked_for_changes_nothing_of_that(make: Make, is_over: bool) -> None:
    harness = make(delay_s=0.0, places=4)
    frontier = harness.start()
    other, third = (
        frontier.crawls.open_crawl(name, CrawlLimits(), polite(0.0, places=4)) for name in ("other", "third")
    )
    frontier.sites.robots_known("http://a", RobotsRecord("allow", b"", harness.wall + 50.0), None)
    frontier.queue.admit(other, pages("a", 1))
    out = claim_one(harness)
    harness.advance(60)
    frontier.queue.admit(harness.crawl, pages("a", 3))
    robots = claim_one(harness)
    assert (robots.purpose, robots.crawl) == (Purpose.ROBOTS, harness.crawl)
    if is_over:
        if not isinstance(frontier, EmbeddedFrontier):
            pytest.skip(NO_ENDS)
        frontier.crawls.close_crawl(other)
        frontier.crawls.forget_closed_crawl(other)
        frontier.durability.commit()
    done(harness, out, End.RELEASE if is_over else End.PAGE)
    assert frontier.leases.claim("me", 9) == [], "it is under way"
    cool(harness, robots, ok=False)
    frontier.leases.finish([EndedLease(robots, End.RETRY, wait_s=5)])
    frontier.crawls.pause(harness.crawl)
    frontier.queue.admit(third, pages("a", 1))
    assert frontier.leases.claim("me", 9) == []
    harness.advance(6)
    again = claim_one(harness)
    assert (again.purpose, again.crawl) == (Purpose.ROBOTS, third)


def test_what_waits_for_a_robots_txt_keeps_its_order(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    found = [Found(f"http://a/{number}", 0, 0, 1, about="http://a/from") for number in range(3)]
    frontier.queue.admit(harness.crawl, found)
    robots = claim_one(harness)
    assert robots.purpose is Purpose.ROBOTS
    done(harness, robots, End.OTHER)
    no_robots(harness, "a")
    urls = []
    for _ in found:
        lease = claim_one(harness)
        urls.append(lease.url)
        done(harness, lease)
    assert urls == [one.url for one in found]


def test_a_site_that_is_being_asked_is_not_due_whatever_is_found_there(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    frontier.queue.admit(harness.crawl, [*pages("a", 1), *pages("b", 2)])
    assert len(frontier.leases.claim("me", 2)) == 2
    frontier.queue.admit(harness.crawl, [page("http://a/new")])
    harness.advance(0.1)
    assert frontier.status.stats().due == 0


@pytest.mark.parametrize("limit", [2, 3])
def test_a_claim_that_gives_every_crawl_its_last_page_leaves_nothing_due(make: Make, limit: int) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(harness.crawl, pages("a", 1))
    frontier.queue.admit(other, pages("b", 1))
    assert len(frontier.leases.claim("me", limit)) == 2
    assert frontier.leases.claim("me", limit) == []
    due = frontier.leases.next_due()
    assert due is None or due > frontier.now()


def test_a_page_that_is_out_and_found_nearer_by_a_redirect_is_not_queued(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start(CrawlLimits(max_depth=5))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1", 4)])
    lease = claim_one(harness)
    frontier.queue.admit(harness.crawl, [Found(lease.url, 2, 0, 1, about="http://a/from")])
    assert frontier.status.crawl_counts(harness.crawl).queued == 0
    frontier.leases.finish([EndedLease(lease, End.RELEASE)])
    assert claim_one(harness).depth == 2


def test_an_end_that_is_told_twice_at_once_counts_once(make: Make) -> None:
    harness = make(delay_s=0.0, places=2)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, pages("a", 3))
    one, two = frontier.leases.claim("me", 2)
    assert frontier.leases.finish([EndedLease(lease, End.OTHER) for lease in (one, one, two)]) == [True, False, True]
    standing = frontier.status.crawl_counts(harness.crawl)
    assert (standing.queued, standing.leased) == (1, 0)
    assert claim_one(harness).url == "http://a/2", "both places are free"


def test_what_is_found_later_at_a_site_that_was_given_up_is_asked_for_in_its_time(make: Make) -> None:
    harness = make(max_retry_after_s=600.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, pages("a", 2))
    lease = claim_one(harness)
    cool(harness, lease, slow_down=True, retry_after_s=9_999_999_999.0)
    frontier.rejected.end_stored([one.item.item for one in frontier.rejected.rejections()])
    frontier.leases.finish([EndedLease(lease, End.OTHER)])
    frontier.queue.admit(harness.crawl, [page("http://a/new")])
    harness.advance(599)
    assert frontier.leases.claim("me", 9) == []
    harness.advance(1.1)
    assert claim_one(harness).url == "http://a/new"


def test_crawls_that_have_nothing_left_are_not_due_for_one_that_asks_for_little(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    crawls = [
        harness.crawl,
        *(frontier.crawls.open_crawl(name, CrawlLimits(), polite(0.0)) for name in ("two", "three")),
    ]
    for crawl in crawls:
        no_robots(harness, f"h{crawl}")
        frontier.queue.admit(crawl, pages(f"h{crawl}", 1))
    found = [lease.crawl for _ in range(9) for lease in frontier.leases.claim("me", 1)]
    assert sorted(found) == crawls
    due = frontier.leases.next_due()
    assert due is None or due > frontier.now()

"""Sitemaps in the queues of every frontier: pages between them, none while pages enough are known, and not too many."""

from __future__ import annotations

from collections.abc import Callable

from harnesses import Harness, cool, done, no_robots, page, urls_of

from weft.frontier.contract import CrawlLimits, End, EndedLease
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.view import FrontierView
from weft.records import Found, Lease, Purpose

AT_ONCE = {"delay_s": 0.0, "places": 1}


def sitemap(number: int, host: str = "a") -> Found:
    return Found(f"http://{host}/map-{number}.xml", 0, purpose=Purpose.SITEMAP, about=f"http://{host}")


def turn(harness: Harness, end: End = End.OTHER) -> str:
    """One request of the site, and what for."""
    (lease,) = harness.frontier.leases.claim("me", 1)
    done(harness, lease, End.PAGE if lease.purpose is Purpose.PAGE and end is End.OTHER else end)
    harness.advance(0.001)
    return lease.url.removeprefix("http://a/")


def test_a_page_has_its_turn_after_each_sitemap(make: Callable[..., Harness]) -> None:
    harness = make(**AT_ONCE)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page(f"http://a/{number}") for number in range(3)])
    frontier.queue.admit(harness.crawl, [sitemap(number) for number in range(5)])
    turns = [turn(harness) for _ in range(8)]
    assert turns == ["map-0.xml", "0", "map-1.xml", "1", "map-2.xml", "2", "map-3.xml", "map-4.xml"]
    assert frontier.leases.claim("me", 9) == []


def test_a_sitemap_that_is_tried_again_takes_no_page_s_turn(make: Callable[..., Harness]) -> None:
    harness = make(**AT_ONCE)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/0"), sitemap(0)])
    (lease,) = frontier.leases.claim("me", 1)
    assert lease.purpose is Purpose.SITEMAP
    cool(harness, lease, ok=False)
    frontier.leases.finish([EndedLease(lease, End.RETRY)])
    assert [turn(harness), turn(harness)] == ["0", "map-0.xml"]


def test_no_sitemap_is_read_while_the_pages_that_may_be_taken_are_known(make: Callable[..., Harness]) -> None:
    harness = make(**AT_ONCE)
    frontier = harness.start(CrawlLimits(max_pages=3))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page(f"http://a/{number}") for number in range(4)])
    frontier.queue.admit(harness.crawl, [sitemap(0)])
    assert [turn(harness), turn(harness)] == ["0", "1"]
    (lease,) = frontier.leases.claim("me", 1)
    assert lease.url == "http://a/2"
    done(harness, lease, End.OTHER)  # it is no page: one more is wanted, and one is known
    assert turn(harness) == "3"
    assert frontier.permits.exhausted()
    assert frontier.leases.claim("me", 9) == []


def test_a_sitemap_is_read_when_the_pages_that_are_known_are_too_few(make: Callable[..., Harness]) -> None:
    harness = make(**AT_ONCE)
    frontier = harness.start(CrawlLimits(max_pages=3))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/0"), page("http://a/1"), page("http://a/2"), sitemap(0)])
    (lease,) = frontier.leases.claim("me", 1)
    assert lease.url == "http://a/0"
    done(harness, lease, End.OTHER)
    assert turn(harness) == "map-0.xml"


def test_a_site_has_so_many_sitemaps_and_no_more_whatever_dies(make: Callable[..., Harness]) -> None:
    harness = make(**AT_ONCE)
    frontier = harness.start(CrawlLimits(max_sitemaps=4))
    no_robots(harness, "a", "b")
    admission = frontier.queue.admit(harness.crawl, [sitemap(number) for number in range(3)])
    assert (admission.new, admission.duplicates) == (3, 0)
    frontier.durability.commit()
    frontier = harness.crash()
    no_robots(harness, "a", "b")
    admission = frontier.queue.admit(harness.crawl, [sitemap(number) for number in range(10)])
    assert (admission.new, admission.duplicates) == (1, 3), "one more is let in, and what is known is known"
    frontier.durability.commit()
    assert turn(harness) == "map-0.xml"
    frontier = harness.crash()
    no_robots(harness, "a", "b")
    assert frontier.queue.admit(harness.crawl, [sitemap(20)]).new == 0
    assert frontier.queue.admit(harness.crawl, [sitemap(20, "b"), page("http://a/1")]).new == 2, (
        "of another site, or a page"
    )
    frontier.durability.commit()
    if isinstance(frontier, EmbeddedFrontier):
        with_refusal = FrontierView([harness.folder])
        assert with_refusal.refusal("http://a/map-20.xml") == "budget"
        assert with_refusal.refusal("http://a/map-1.xml") is None
        with_refusal.close()


def test_a_higher_limit_lets_more_in(make: Callable[..., Harness]) -> None:
    harness = make(**AT_ONCE)
    frontier = harness.start(CrawlLimits(max_sitemaps=1))
    assert frontier.queue.admit(harness.crawl, [sitemap(0), sitemap(1)]).new == 1
    frontier.durability.commit()
    frontier = harness.start(CrawlLimits(max_sitemaps=3))
    assert frontier.queue.admit(harness.crawl, [sitemap(1), sitemap(2), sitemap(3)]).new == 2


def test_sitemaps_come_back_with_the_rest_after_a_crash_and_are_rejected_with_it(make: Callable[..., Harness]) -> None:
    harness = make(**AT_ONCE | {"breaker_failures": 1, "breaker_max_probes": 1, "breaker_reset_s": 1.0})
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [sitemap(0), sitemap(1), page("http://a/0")])
    frontier.durability.commit()
    frontier = harness.crash()
    no_robots(harness, "a")
    assert frontier.status.stats().queued == 3
    leases: list[Lease] = []
    for _ in range(2):
        harness.advance(2.0)
        leases += frontier.leases.claim("me", 1)
        cool(harness, leases[-1], ok=False)
        frontier.leases.finish([EndedLease(leases[-1], End.OTHER)])
    assert urls_of(leases) == ["http://a/map-0.xml", "http://a/0"]
    harness.advance(2.0)
    assert frontier.leases.claim("me", 9) == []
    assert [rejection.item.url for rejection in frontier.rejected.rejections()] == ["http://a/map-1.xml"]


def test_those_for_which_there_was_no_room_are_kept_for_a_larger_crawl(make: Callable[..., Harness]) -> None:
    harness = make(**AT_ONCE)
    frontier = harness.start(CrawlLimits(max_sitemaps=2))
    no_robots(harness, "a")
    found = [Found(f"http://a/map-{n}.xml", 3, 0, 2, Purpose.SITEMAP, "http://a") for n in range(5)]
    assert frontier.queue.admit(harness.crawl, found).new == 2
    frontier.durability.commit()
    frontier = harness.crash()
    assert sorted(frontier.rejected.left_sitemaps(harness.crawl), key=lambda one: one.url) == found[2:]
    assert frontier.rejected.left_sitemaps(harness.crawl + 1) == []
    frontier.crawls.open_crawl("test", CrawlLimits(max_sitemaps=4))
    assert frontier.queue.admit(harness.crawl, frontier.rejected.left_sitemaps(harness.crawl)).new == 2


def test_a_sitemap_that_is_to_be_tried_again_long_after_its_request_is(make: Callable[..., Harness]) -> None:
    """Its site may have been forgotten meanwhile."""
    harness = make(delay_s=1.0, lease_s=1000.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [sitemap(0)])
    (lease,) = frontier.leases.claim("me", 1)
    cool(harness, lease, ok=False)
    for _ in range(4):
        harness.advance(60)
        assert frontier.leases.claim("me", 9) == []
    frontier.leases.finish([EndedLease(lease, End.RETRY, 5.0)])
    harness.advance(6)
    (again,) = frontier.leases.claim("me", 9)
    assert (again.url, again.attempt) == (lease.url, 1)

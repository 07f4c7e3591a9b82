"""Links of pages, admitted as a batch: the same comes of them as of URLs that are admitted one by one."""

from __future__ import annotations

from collections.abc import Callable

from harnesses import Harness, claim_one, done, no_robots, page, urls_of

from weft.frontier.contract import CrawlLimits, PageLinks
from weft.records import Lease


def links(host: str, numbers: range, depth: int = 1, parent: int = 7, offsite: int = 0) -> PageLinks:
    return PageLinks(f"http://{host}", [f"http://{host}/{number}" for number in numbers], depth, parent, offsite)


def facts(lease: Lease) -> tuple[str, int, int, int]:
    return lease.url, lease.depth, lease.parent, lease.offsite


def test_links_come_out_as_they_went_in_each_once_and_in_order_also_after_a_crash(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=1)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    frontier.queue.admit(harness.crawl, [page("http://a/0")])
    batch = [links("a", range(3), 1, 7), links("b", range(2), 2, 8, 1), links("a", range(2, 5), 1, 9)]
    assert frontier.queue.unseen(harness.crawl, batch[0].urls) == ["http://a/1", "http://a/2"]
    admission = frontier.queue.admit_links(harness.crawl, batch)
    assert (admission.new, admission.duplicates, admission.expand) == (6, 2, ())
    again = frontier.queue.admit_links(harness.crawl, batch)
    assert (again.new, again.duplicates) == (0, 8)
    assert (frontier.status.stats().queued, frontier.status.stats().to_parse) == (7, 0), "none is fetched yet"
    frontier.durability.commit()
    frontier = harness.crash()
    no_robots(harness, "a", "b")
    came = []
    while leases := frontier.leases.claim("me", 9):
        for lease in leases:
            came.append(facts(lease))
            done(harness, lease)
        harness.advance(0.001)
    expected = [("http://a/0", 0, 0, 0), ("http://a/1", 1, 7, 0), ("http://a/2", 1, 7, 0), ("http://a/3", 1, 9, 0)]
    assert [one for one in came if "//a/" in one[0]] == [*expected, ("http://a/4", 1, 9, 0)]
    assert [one for one in came if "//b/" in one[0]] == [("http://b/0", 2, 8, 1), ("http://b/1", 2, 8, 1)]


def test_links_beyond_a_domains_budget_are_left_out_and_may_come_later(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start(CrawlLimits(max_pages_per_domain=2))
    no_robots(harness, "a")
    counts = [frontier.queue.admit_links(harness.crawl, [links("a", range(at, at + 400))]).new for at in (0, 400, 800)]
    assert counts == [400, 400, 240]
    assert frontier.status.stats().queued == 1040
    assert frontier.queue.unseen(harness.crawl, ["http://a/1039", "http://a/1040"]) == ["http://a/1040"]


def test_a_page_that_was_fetched_leaves_no_room_in_its_domains_queue(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start(CrawlLimits(max_pages_per_domain=2))
    no_robots(harness, "a")
    assert frontier.queue.admit_links(harness.crawl, [links("a", range(1041))]).new == 1040
    done(harness, frontier.leases.claim("me", 1)[0])
    assert frontier.queue.admit_links(harness.crawl, [links("a", range(1040, 1042))]).new == 0
    assert frontier.queue.admit(harness.crawl, [page("http://a/1040")]).new == 0


def test_a_link_that_is_found_nearer_moves_up_and_a_fetched_page_is_expanded(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=1)
    frontier = harness.start(CrawlLimits(max_depth=5))
    no_robots(harness, "a")
    assert frontier.queue.admit_links(harness.crawl, [links("a", range(2), 3), links("a", range(2, 3), 2)]).new == 3
    fetched = claim_one(harness)
    assert facts(fetched) == ("http://a/2", 2, 7, 0), "what is nearer comes first"
    done(harness, fetched)
    admission = frontier.queue.admit_links(harness.crawl, [links("a", range(1, 3), 1, 9)])
    assert (admission.new, admission.duplicates) == (0, 2)
    assert admission.expand == ((fetched.item, "http://a/2", 1),)
    harness.advance(0.001)
    moved = claim_one(harness)
    assert facts(moved) == ("http://a/1", 1, 9, 0)
    done(harness, moved)
    harness.advance(0.001)
    assert urls_of(frontier.leases.claim("me", 9)) == ["http://a/0"], "its old entry is skipped"

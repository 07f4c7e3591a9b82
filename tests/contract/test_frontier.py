"""One contract, every frontier (workers/harnesses.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from harnesses import ALLOW, EmbeddedHarness, Harness, claim_one, cool, done, no_robots, page, urls_of

from weft.errors import BadInput, Busy
from weft.frontier.contract import CrawlLimits, End, EndedLease, PageLinks, RobotsRecord
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.requests import RequestEnd, read_events
from weft.frontier.view import FrontierView
from weft.records import Found, Lease, Purpose, Reason


def test_a_url_is_admitted_once(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    result = frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/1"), page("http://a/2")])
    assert (result.new, result.duplicates) == (2, 1)
    assert frontier.queue.admit(harness.crawl, [page("http://a/1")]).new == 0
    assert frontier.status.stats().queued == 2


def test_robots_txt_comes_before_the_first_page_and_pages_wait_the_delay(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    robots = claim_one(harness)
    assert (robots.url, robots.purpose, robots.about) == ("http://a/robots.txt", Purpose.ROBOTS, "http://a")
    assert frontier.leases.claim("me", 10) == []
    cool(harness, robots, ok=True)
    frontier.sites.robots_known("http://a", ALLOW, None)
    frontier.leases.finish([EndedLease(robots, End.OTHER)])
    assert frontier.leases.claim("me", 10) == []
    harness.advance(10.1)
    assert claim_one(harness).url == "http://a/1"


def test_robots_txt_that_failed_is_tried_again_and_the_pages_wait_for_it(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0, places=2)
    frontier = harness.start()
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    robots = claim_one(harness)
    cool(harness, robots, ok=False)
    frontier.leases.finish([EndedLease(robots, End.RETRY, wait_s=20)])
    harness.advance(19)
    assert frontier.leases.claim("me", 10) == []
    assert frontier.leases.next_due() == pytest.approx(harness.time + 1, abs=0.02)
    harness.advance(1.1)
    again = claim_one(harness)
    assert (again.purpose, again.attempt) == (Purpose.ROBOTS, 1)
    cool(harness, again, ok=True)
    frontier.leases.finish([EndedLease(again, End.OTHER)])
    frontier.sites.robots_known("http://a", ALLOW, None)
    harness.advance(1.1)
    assert claim_one(harness).url == "http://a/1"


def test_robots_txt_is_asked_again_when_it_has_expired(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    frontier.sites.robots_known("http://a", RobotsRecord("ok", b"x", harness.wall + 5), None)
    assert frontier.sites.robots("http://a") == RobotsRecord("ok", b"x", harness.wall + 5)
    harness.advance(6)
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    assert claim_one(harness).purpose is Purpose.ROBOTS


def test_the_delay_counts_from_the_end_of_the_last_request(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    first = claim_one(harness)
    harness.advance(30)  # a slow answer
    assert frontier.leases.claim("me", 10) == [], "one place"
    done(harness, first)
    harness.advance(9.9)
    assert frontier.leases.claim("me", 10) == []
    harness.advance(0.2)
    assert claim_one(harness).url == "http://a/2"


def test_adding_a_link_never_makes_a_waiting_site_due_earlier(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    done(harness, claim_one(harness))
    harness.advance(5)
    frontier.queue.admit(harness.crawl, [page("http://a/2")])
    assert frontier.leases.claim("me", 10) == []
    assert frontier.leases.next_due() == pytest.approx(harness.time + 5, abs=0.02)


def test_with_several_places_the_delay_counts_between_starts(make: Callable[..., Harness]) -> None:
    harness = make(places=2, delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page(f"http://a/{n}") for n in range(4)])
    claim_one(harness)
    assert frontier.leases.claim("me", 10) == []
    harness.advance(1.1)
    second = claim_one(harness)
    harness.advance(5)
    assert frontier.leases.claim("me", 10) == [], "both places are taken"
    done(harness, second)
    assert claim_one(harness).url == "http://a/2"


def test_without_a_delay_a_site_has_all_its_places_at_once(make: Callable[..., Harness]) -> None:
    harness = make(places=3, delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page(f"http://a/{n}") for n in range(9)])
    assert urls_of(frontier.leases.claim("me", 10)) == ["http://a/0", "http://a/1", "http://a/2"]


def test_pages_come_by_depth_then_in_the_order_found(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=20)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/deep", 2), page("http://a/x", 1), page("http://a/y", 1)])
    frontier.queue.admit(harness.crawl, [page("http://a/seed", 0)])
    assert urls_of(frontier.leases.claim("me", 9)) == ["http://a/seed", "http://a/x", "http://a/y", "http://a/deep"]


@pytest.mark.parametrize("more", ["nothing", "a page", "links"])
def test_sites_come_in_the_order_in_which_they_are_due(make: Callable[..., Harness], more: str) -> None:
    """Whatever is queued there meanwhile."""
    harness = make()
    frontier = harness.start()
    no_robots(harness, "a", "b")
    frontier.queue.admit(
        harness.crawl, [page("http://a/1"), page("http://a/2"), page("http://b/1"), page("http://b/2")]
    )
    a, b = frontier.leases.claim("me", 10)
    done(harness, b)
    harness.advance(1)
    done(harness, a)
    harness.advance(20)
    if more == "a page":
        frontier.queue.admit(harness.crawl, [page("http://a/3")])
    elif more == "links":
        frontier.queue.admit_links(harness.crawl, [PageLinks("http://a", ["http://a/3"], 0, 0)])
    assert urls_of(frontier.leases.claim("me", 10)) == ["http://b/2", "http://a/2"]


def test_a_page_ends_the_item_for_good(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    done(harness, claim_one(harness))
    harness.advance(100)
    assert frontier.leases.claim("me", 10) == []
    stats = frontier.status.stats()
    assert (stats.queued, stats.leased, stats.finished, stats.pages) == (0, 0, 1, 1)


def test_sites_that_could_be_asked_now_are_counted(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    no_robots(harness, "a", "b", "c")
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/{n}") for host in "abc" for n in range(2)])
    harness.advance(0.1)
    assert frontier.status.stats().due == 3
    for lease in frontier.leases.claim("me", 2):
        done(harness, lease)
    assert frontier.status.stats().due == 1, "the two that were asked wait"
    harness.advance(10.1)
    assert frontier.status.stats().due == 3


def test_a_retry_waits_and_counts(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    first = claim_one(harness)
    cool(harness, first, ok=False)
    frontier.leases.finish([EndedLease(first, End.RETRY, wait_s=30)])
    harness.advance(2)
    second = claim_one(harness)
    assert second.url == "http://a/2", "others go on meanwhile"
    done(harness, second)
    harness.advance(27)
    assert frontier.leases.claim("me", 10) == []
    harness.advance(2)
    again = claim_one(harness)
    assert (again.url, again.attempt) == ("http://a/1", 1)
    frontier.leases.finish([EndedLease(again, End.RETRY, wait_s=30)])
    frontier.durability.commit()
    frontier = harness.crash()
    harness.advance(29)
    assert frontier.leases.claim("me", 10) == []
    harness.advance(2)
    assert claim_one(harness).attempt == 2


def test_a_released_lease_is_queued_again_at_its_head(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    lease = claim_one(harness)
    frontier.leases.finish([EndedLease(lease, End.RELEASE)])
    again = claim_one(harness)
    assert (again.url, again.attempt) == ("http://a/1", 0)


def test_an_expired_lease_returns_the_url_after_the_full_delay(make: Callable[..., Harness]) -> None:
    harness = make(lease_s=90.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    old = claim_one(harness)
    harness.advance(91)
    assert frontier.leases.claim("me", 10) == [], "nobody knows when the request ended: the delay counts from now"
    harness.advance(10.1)
    new = claim_one(harness)
    assert new.url == old.url
    assert frontier.leases.finish([EndedLease(old, End.PAGE)]) == [False], "the old owner changes nothing"
    assert frontier.status.stats().leased == 1


def test_a_lease_of_an_older_epoch_changes_nothing(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    frontier.durability.commit()
    old = claim_one(harness)
    frontier = harness.crash()
    harness.advance(11)
    new = claim_one(harness)
    assert (new.item, new.epoch) == (old.item, old.epoch + 1)
    assert frontier.leases.finish([EndedLease(old, End.PAGE)]) == [False]
    assert frontier.leases.finish([EndedLease(new, End.PAGE)]) == [True]


def test_a_crash_loses_nothing_admitted_and_repeats_nothing_finished(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=50)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    names = [f"http://{host}/{n}" for n in range(10) for host in "ab"]
    frontier.queue.admit(harness.crawl, [page(url, 1, 7) for url in names])
    leases = frontier.leases.claim("me", 20)
    for lease in leases[:8]:
        done(harness, lease)
    frontier.durability.commit()
    frontier = harness.crash()
    assert frontier.status.stats().queued == 12
    no_robots(harness, "a", "b")
    rest = frontier.leases.claim("me", 50)
    assert sorted(urls_of(rest)) == sorted(lease.url for lease in leases[8:])
    assert {(lease.depth, lease.parent) for lease in rest} == {(1, 7)}
    assert frontier.queue.admit(harness.crawl, [page(url) for url in names]).new == 0, "all are still seen"


def test_what_the_store_has_is_not_fetched_again_after_a_crash(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    frontier.durability.commit()
    stored, _ = frontier.leases.claim("me", 2)
    frontier = harness.crash(done=(stored.item,), pages=1)
    assert frontier.status.stats().pages == 1
    assert claim_one(harness).url == "http://a/2"


def test_a_batch_counts_as_ended_once_it_is_acknowledged(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    one, two = frontier.leases.claim("me", 2)
    frontier.leases.finish([EndedLease(one, End.PAGE)], batch=1)
    frontier.leases.finish([EndedLease(two, End.PAGE)], batch=2)
    frontier.durability.acknowledge(1)
    frontier.durability.commit()
    frontier = harness.crash()
    assert frontier.durability.acknowledged == 1
    assert claim_one(harness).url == "http://a/2"


def test_a_crash_never_makes_a_site_due_early(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    no_robots(harness, "a", "b", "c")
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/{n}") for host in "abc" for n in range(3)])
    frontier.durability.commit()
    under_way, ended = frontier.leases.claim("me", 2)
    harness.advance(3)
    cool(harness, ended, ok=True)
    frontier.durability.commit()
    harness.advance(1)
    frontier = harness.crash()
    first = claim_one(harness)
    assert first.key == "c", "it was never asked"
    harness.advance(9.1)  # b: 10.1 s after its end; a: 9.1 s after the crash
    assert [lease.key for lease in frontier.leases.claim("me", 9)] == [ended.key]
    harness.advance(0.8)
    assert frontier.leases.claim("me", 9) == []
    harness.advance(1.2)  # what was sent at last may have been on its way for a second
    assert [lease.key for lease in frontier.leases.claim("me", 9)] == [under_way.key]


def test_a_crawl_delay_raises_the_delay_and_is_kept(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0, places=4)
    frontier = harness.start()
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2"), page("http://a/3")])
    robots = claim_one(harness)
    cool(harness, robots, ok=True)
    frontier.sites.robots_known("http://a", ALLOW, 25.0)
    frontier.leases.finish([EndedLease(robots, End.OTHER)])
    frontier.durability.commit()
    harness.advance(24)
    assert frontier.leases.claim("me", 9) == []
    harness.advance(1.1)
    done(harness, claim_one(harness))
    frontier.durability.commit()
    harness.advance(5)
    harness.crash()
    harness.advance(19)
    assert harness.frontier.leases.claim("me", 9) == []
    harness.advance(1.1)
    assert claim_one(harness).url == "http://a/2"


def test_retry_after_is_obeyed_also_after_a_crash(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    lease = claim_one(harness)
    cool(harness, lease, slow_down=True, retry_after_s=120.0)
    frontier.leases.finish([EndedLease(lease, End.RETRY, 120.0)])
    frontier.durability.commit()
    harness.advance(60)
    frontier = harness.crash()
    harness.advance(59)
    assert frontier.leases.claim("me", 9) == []
    harness.advance(1.5)
    assert len(frontier.leases.claim("me", 9)) == 1


def test_a_site_that_asks_for_less_is_slowed_and_eased_again(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page(f"http://a/{n}") for n in range(200)])
    lease = claim_one(harness)
    cool(harness, lease, slow_down=True)
    frontier.leases.finish([EndedLease(lease, End.RETRY)])
    harness.advance(1.5)
    assert frontier.leases.claim("me", 9) == []
    delays = []
    for _ in range(60):
        harness.advance(60)
        lease = claim_one(harness)
        delays.append(lease.delay_s)
        done(harness, lease)
    assert delays[0] == 2.0
    assert delays[-1] == 1.0


def test_a_too_long_retry_after_rejects_what_waits(make: Callable[..., Harness]) -> None:
    harness = make(max_retry_after_s=600.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    lease = claim_one(harness)
    cool(harness, lease, slow_down=True, retry_after_s=3600.0)
    rejected = frontier.rejected.rejections()
    assert [(r.item.url, r.reason) for r in rejected] == [("http://a/2", Reason.RETRY_AFTER)]
    frontier.rejected.end_stored([r.item.item for r in rejected])
    frontier.durability.commit()
    assert harness.crash().status.stats().queued == 1, "the one whose answer it was has its own outcome"


def test_a_long_queue_is_rejected_to_its_end(make: Callable[..., Harness]) -> None:
    harness = make(max_retry_after_s=600.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page(f"http://a/{n}") for n in range(1300)])
    cool(harness, claim_one(harness), slow_down=True, retry_after_s=3600.0)
    urls = []
    while rejected := frontier.rejected.rejections():
        urls += [one.item.url for one in rejected]
        frontier.rejected.end_stored([one.item.item for one in rejected])
    assert len(urls) == len(set(urls)) == 1299 and frontier.status.stats().queued == 0


def test_the_breaker_opens_probes_and_at_last_rejects(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0, breaker_failures=3, breaker_reset_s=300.0, breaker_max_probes=2)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page(f"http://a/{n}") for n in range(10)])
    for _ in range(3):
        harness.advance(1.1)
        lease = claim_one(harness)
        cool(harness, lease, ok=False)
        frontier.leases.finish([EndedLease(lease, End.OTHER)])
    harness.advance(299)
    assert frontier.leases.claim("me", 9) == []
    for _ in range(2):
        harness.advance(301)
        probe = claim_one(harness)
        cool(harness, probe, ok=False)
        frontier.leases.finish([EndedLease(probe, End.OTHER)])
    rejected = frontier.rejected.rejections()
    assert [r.reason for r in rejected] == [Reason.BREAKER] * 5
    assert frontier.status.stats().queued == 0


def test_the_breaker_closes_on_a_good_probe(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0, breaker_failures=2)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page(f"http://a/{n}") for n in range(10)])
    for _ in range(2):
        harness.advance(1.1)
        lease = claim_one(harness)
        cool(harness, lease, ok=False)
        frontier.leases.finish([EndedLease(lease, End.OTHER)])
    harness.advance(301)
    done(harness, claim_one(harness))
    harness.advance(1.1)
    done(harness, claim_one(harness))


def test_one_bad_url_tried_again_and_again_does_not_open_the_breaker(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0, breaker_failures=3)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/bad")])
    for _ in range(6):
        harness.advance(2)
        lease = claim_one(harness)
        cool(harness, lease, ok=False)
        frontier.leases.finish([EndedLease(lease, End.RETRY)])


def test_max_pages_is_never_exceeded_and_reached_exactly(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=4)
    frontier = harness.start(CrawlLimits(max_pages=5))
    hosts = "abcdefgh"
    no_robots(harness, *hosts)
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/{n}") for host in hosts for n in range(3)])
    leases = frontier.leases.claim("me", 50)
    assert len(leases) == 5
    for lease in leases[:2]:
        done(harness, lease, End.OTHER)
    more = frontier.leases.claim("me", 50)
    assert len(more) == 2, "what is no page gives its permit back"
    for lease in leases[2:] + more:
        done(harness, lease)
    assert frontier.leases.claim("me", 50) == []
    stats = frontier.status.stats()
    assert (stats.pages, stats.queued, frontier.permits.exhausted()) == (5, 17, True)
    frontier.durability.commit()
    harness.limits = CrawlLimits(max_pages=7)
    frontier = harness.crash(pages=5)
    no_robots(harness, *hosts)
    assert len(frontier.leases.claim("me", 50)) == 2


def test_a_domain_has_its_budget_and_the_others_go_on(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=4)
    frontier = harness.start(CrawlLimits(max_pages_per_domain=2))
    no_robots(harness, "a", "b")
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/{n}") for host in "ab" for n in range(4)])
    leases = frontier.leases.claim("me", 50)
    assert sorted(lease.key for lease in leases) == ["a", "a", "b", "b"]
    done(harness, leases[0], End.OTHER)
    for lease in leases[1:]:
        done(harness, lease)
    extra = claim_one(harness)
    assert extra.key == leases[0].key
    done(harness, extra)
    assert frontier.leases.claim("me", 50) == []
    assert (frontier.status.stats().queued, frontier.leases.next_due()) == (3, None)


def test_crawls_take_turns_within_a_site(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    other = frontier.crawls.open_crawl("other", CrawlLimits())
    frontier.queue.admit(harness.crawl, [page(f"http://a/{n}") for n in range(3)])
    assert frontier.queue.admit(other, [page(f"http://a/{n}") for n in range(3)]).new == 3, (
        "each crawl has seen its own"
    )
    order = []
    for _ in range(6):
        lease = claim_one(harness)
        order.append(lease.crawl)
        done(harness, lease)
        harness.advance(1.1)
    assert order in ([harness.crawl, other] * 3, [other, harness.crawl] * 3)


def test_a_paused_crawl_waits_until_it_goes_on(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    frontier.crawls.pause(harness.crawl)
    assert frontier.leases.claim("me", 9) == []
    frontier.crawls.pause(harness.crawl, False)
    done(harness, claim_one(harness))
    assert claim_one(harness).url == "http://a/2"


def test_a_crawls_limit_in_flight_is_kept(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start(CrawlLimits(in_flight=2))
    no_robots(harness, *"abcd")
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/1") for host in "abcd"])
    leases = frontier.leases.claim("me", 9)
    assert len(leases) == 2
    done(harness, leases[0])
    assert len(frontier.leases.claim("me", 9)) == 1


def test_a_redirect_target_goes_to_the_head_and_only_hops_end_its_own_loop(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    first = claim_one(harness)
    back = Found(first.url, 0, first.item, hops=1, about=first.url)
    assert frontier.queue.admit(harness.crawl, [back]).new == 1, "a cookie wall sends one back to where one came from"
    known = Found("http://a/2", 0, first.item, hops=1, about=first.url)
    assert frontier.queue.admit(harness.crawl, [known]).duplicates == 1, "what is known otherwise is not fetched twice"
    done(harness, first, End.OTHER)
    again = claim_one(harness)
    assert (again.url, again.hops) == (first.url, 1)
    frontier.durability.commit()
    frontier = harness.crash()
    no_robots(harness, "a")
    lease = claim_one(harness)
    assert (lease.url, lease.hops, lease.about) == (first.url, 1, first.url)
    assert frontier.queue.admit(harness.crawl, [back]).duplicates == 1, (
        "a redirect that is fetched again leads nowhere new"
    )


def test_a_queued_url_that_is_found_shallower_moves_up(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start(CrawlLimits(max_depth=5))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/x", 4), page("http://a/y", 3)])
    frontier.queue.admit(harness.crawl, [page("http://a/x", 1)])
    leases = frontier.leases.claim("me", 9)
    assert [(lease.url, lease.depth) for lease in leases] == [("http://a/x", 1), ("http://a/y", 3)]
    for lease in leases:
        done(harness, lease)
    assert frontier.leases.claim("me", 9) == []
    result = frontier.queue.admit(harness.crawl, [page("http://a/y", 2)])
    assert result.expand == ((leases[1].item, "http://a/y", 2),), "fetched already: its links were cut"
    frontier.durability.commit()
    assert harness.crash().status.stats().queued == 0


@pytest.mark.parametrize("end", [End.RELEASE, End.RETRY])
def test_a_leased_url_that_is_found_shallower_is_given_back_there(make: Callable[..., Harness], end: End) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start(CrawlLimits(max_depth=5))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/x", 4)])
    lease = claim_one(harness)
    frontier.queue.admit(harness.crawl, [page("http://a/x", 2)])
    done(harness, lease, end)
    again = claim_one(harness)
    assert (again.item, again.depth, again.attempt) == (lease.item, 2, int(end is End.RETRY))


def test_failed_tries_of_a_robots_txt_outlive_a_crash(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    robots = claim_one(harness)
    cool(harness, robots)
    frontier.leases.finish([EndedLease(robots, End.RETRY, 20.0)])
    frontier.durability.commit()
    frontier = harness.crash()
    harness.advance(5)
    assert frontier.leases.claim("me", 9) == [], "its wait is not over"
    harness.advance(16)
    again = claim_one(harness)
    assert (again.purpose, again.attempt) == (Purpose.ROBOTS, 1)
    cool(harness, again)
    frontier.leases.finish([EndedLease(again, End.OTHER)])
    no_robots(harness, "a")
    frontier.durability.commit()
    frontier = harness.crash()
    harness.advance(5)
    assert claim_one(harness).url == "http://a/1"


def test_what_a_site_asked_for_outlives_a_crash_before_the_next_commit(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    frontier.durability.commit()
    lease = claim_one(harness)
    cool(harness, lease, slow_down=True, retry_after_s=30.0)
    frontier = harness.crash()
    harness.advance(29)
    assert frontier.leases.claim("me", 9) == []
    harness.advance(2)
    assert claim_one(harness).url == "http://a/1"


def test_a_sitemap_is_fetched_once_and_needs_no_permit(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start(CrawlLimits(max_pages=2))
    no_robots(harness, "a")
    sitemap, other = [
        Found(f"http://a/{name}.xml", 0, purpose=Purpose.SITEMAP, about="http://a") for name in ("sitemap", "other")
    ]
    assert frontier.queue.admit(harness.crawl, [sitemap, sitemap, other]).new == 2
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    claimed = [lease.purpose for lease in frontier.leases.claim("me", 9)]
    assert claimed == [Purpose.SITEMAP, Purpose.PAGE, Purpose.SITEMAP]


def test_a_long_queue_keeps_its_order_across_disk_and_crash(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=100_000)
    frontier = harness.start()
    no_robots(harness, "a")
    names = [f"http://a/some/longer/path/to/page-{n}.html" for n in range(8000)]
    frontier.queue.admit(harness.crawl, [page(url) for url in names])
    frontier.durability.commit()
    assert urls_of(frontier.leases.claim("me", 10_000)) == names
    frontier = harness.crash()
    no_robots(harness, "a")
    assert urls_of(frontier.leases.claim("me", 10_000)) == names


def test_two_processes_cannot_have_one_frontier(tmp_path: Path) -> None:
    harness = EmbeddedHarness(tmp_path / "f")
    with pytest.raises(Busy, match="a crawl is running in it"):
        EmbeddedFrontier(tmp_path / "f", harness.section)
    harness.close()


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "frontier.db").write_bytes(b"not a database, but long enough to be one" * 100)
    with pytest.raises(BadInput, match="is not a frontier"):
        EmbeddedHarness(tmp_path / "f")
    harness = EmbeddedHarness(tmp_path / "g")
    harness.start()
    harness.frontier._base.journal.put_meta("schema_version", 99)
    harness.close()
    with pytest.raises(BadInput, match="layout 99"):
        EmbeddedHarness(tmp_path / "g")


def test_leases_are_plain_records(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    lease = claim_one(harness)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(lease), type=Lease) == lease


def test_a_kill_leaves_the_evidence_for_what_was_asked_and_what_was_not(make: Callable[..., Harness]) -> None:
    """What `weft audit` goes by: the robots.txt behind a claim, and the word that a claim was turned away."""
    harness = make()
    frontier = harness.start()
    frontier.queue.admit(harness.crawl, [page("http://a/forbidden"), page("http://b/1")])
    frontier.durability.commit()  # a checkpoint, where there is one
    no_robots(harness, "a", "b")
    leases = {lease.url: lease for lease in frontier.leases.claim("me", 10)}
    assert frontier.leases.finish([EndedLease(leases["http://a/forbidden"], End.OTHER)]) == [True]
    harness.crash()
    view = FrontierView([harness.folder])
    known = [(one.record.status, one.record.body) for one in view.robots_history("http://b")]
    assert known == [(ALLOW.status, ALLOW.body)]
    view.close()
    ends = [event for event in read_events(harness.folder / "requests") if isinstance(event, RequestEnd)]
    assert [(end.item, end.status) for end in ends][:1] == [(leases["http://a/forbidden"].item, "unasked")]

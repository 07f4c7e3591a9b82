"""What waits at a site: the order in which it comes, what it is packed as, and the limits of a crawl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from blob_stores import unused_store

from weft.config import PolitenessSection
from weft.errors import Damaged
from weft.frontier.contract import CrawlLimits, Item
from weft.frontier.durability.blobs import BlobStore
from weft.frontier.politeness import PolitenessClock
from weft.frontier.scheduling.sites import Crawl, KnownDepth, Site, SiteQueue
from weft.frontier.scheduling.spill import pieces_of
from weft.records import Purpose

SECTION = PolitenessSection(delay_s=1.0, places=1)


def crawl(store: BlobStore | None = None, **limits: Any) -> Crawl:
    return Crawl(1, "test", 5, CrawlLimits(**limits), store or unused_store(), SECTION)


def site_queue(owner: Crawl | None = None) -> SiteQueue:
    return Site("a", PolitenessClock()).queue_of(owner or crawl())


def urgent(item: int, purpose: Purpose = Purpose.PAGE) -> Item:
    return Item(item, f"http://a/{item}", 0, 0, purpose=purpose)


def popped(queue: SiteQueue, now: float = 0.0) -> list[int]:
    items = []
    while (item := queue.pop(now)) is not None:
        items.append(item.item)
    return items


def test_pages_come_by_depth_and_then_in_the_order_in_which_they_came() -> None:
    lane = site_queue()
    for item, depth in enumerate((3, 1, 2, 1, 0, 3, 2), 1):
        lane.push(item, "http://a", f"/{item}", depth, 0, 0)
    assert [queue.depth for queue in lane.queues] == [0, 1, 2, 3]
    assert lane.queued == 7
    assert popped(lane) == [5, 2, 4, 3, 7, 1, 6]
    assert (lane.queued, lane.queues) == (0, [])


def test_an_item_comes_out_as_it_went_in() -> None:
    queue = site_queue()
    queue.push(7, "https://www.a:8443", "/x y?q=1 2", 3, 5, 0)
    queue.push(8, "http://a", "/", 3, 7, 2)
    assert list(queue.items()) == [
        Item(7, "https://www.a:8443/x y?q=1 2", 3, 5),
        Item(8, "http://a/", 3, 7, offsite=2),
    ]
    assert [queue.pop(0.0), queue.pop(0.0), queue.pop(0.0)] == [
        Item(7, "https://www.a:8443/x y?q=1 2", 3, 5),
        Item(8, "http://a/", 3, 7, offsite=2),
        None,
    ]


def test_the_origins_of_a_domain_of_many_hosts_are_told_apart() -> None:
    queue = site_queue()
    origins = [f"http://h{number}.a" for number in range(30)]
    for visit in range(2):
        assert [queue.origin_number(origin) for origin in origins] == list(range(30)), visit
    assert queue.origins == origins
    for item, origin in enumerate(reversed(origins), 1):
        queue.push(item, origin, "/", 0, 0, 0)
    assert [item.url for item in queue.items()] == [f"{origin}/" for origin in reversed(origins)]


def test_urgent_items_come_first_and_those_for_robots_txt_before_them() -> None:
    queue = site_queue()
    queue.push(1, "http://a", "/1", 0, 0, 0)
    queue.push_urgent(urgent(2))
    queue.push_urgent(urgent(3))
    queue.push_urgent(urgent(4), first=True)
    queue.push_urgent(urgent(-5, Purpose.ROBOTS))
    assert queue.queued == 5
    assert popped(queue) == [-5, 4, 2, 3, 1]
    assert queue.queued == 0


def test_an_item_that_must_wait_lets_the_others_go_on() -> None:
    queue = site_queue()
    queue.push_urgent(urgent(1), 50.0)
    queue.push_urgent(urgent(-2, Purpose.ROBOTS), 70.0)
    assert (queue.next_time(), queue.next_waiting_time(0.0)) == (50.0, 50.0)
    queue.push(3, "http://a", "/3", 0, 0, 0)
    assert (queue.next_time(), popped(queue, 49.9)) == (0.0, [3])
    assert (queue.next_waiting_time(49.9), queue.next_waiting_time(50.0), queue.next_waiting_time(70.0)) == (
        50.0,
        70.0,
        None,
    )
    assert popped(queue, 50.0) == [1]
    assert queue.next_time() == 70.0
    assert popped(queue, 70.0) == [-2]
    assert (queue.next_time(), queue.queued) == (None, 0)


def test_urgent_items_are_told_in_the_order_of_their_times() -> None:
    queue = site_queue()
    queue.push_urgent(urgent(1), 50.0)
    queue.push_urgent(urgent(-2, Purpose.ROBOTS), 20.0)
    queue.push_urgent(urgent(3), 20.0)
    queue.push_urgent(urgent(4), 20.0, first=True)
    assert [entry[2].item for entry in queue.urgent_entries()] == [4, -2, 3, 1]


def test_a_cleared_lane_is_empty(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "queues.db")
    queue = site_queue(crawl(store))
    for item in range(20_000):
        queue.push(item, "http://a", f"/a/longer/path/{item}", 0, 0, 0)
    queue.push_urgent(urgent(1))
    queue.push_urgent(urgent(-1, Purpose.ROBOTS))
    (piece, *_) = pieces_of(queue.queues[0].state())
    assert b"/a/longer/path/" in store.get(piece)
    queue.clear()
    store.delete_some()
    assert (queue.queued, list(queue.items()), queue.pop(9.0), queue.next_time()) == (0, [], None, None)
    with pytest.raises(Damaged):
        store.get(piece)
    store.close()


def test_a_domains_budget_counts_pages_and_what_is_under_way() -> None:
    queue = site_queue(crawl(max_pages_per_domain=3))
    assert queue.has_budget()
    queue.pages, queue.flight = 1, 1
    assert queue.has_budget()
    queue.flight = 2
    assert not queue.has_budget()
    assert site_queue().has_budget()


@pytest.mark.parametrize(
    ("limits", "permits"), [({}, 999_999_999), ({"max_pages": 10}, 3), ({"in_flight": 4}, 2), ({"max_pages": 5}, -2)]
)
def test_permits_are_what_the_narrowest_limit_leaves(limits: dict[str, Any], permits: int) -> None:
    made = crawl(**limits)
    made.pages, made.flight = 5, 2
    assert made.permits() >= permits if not limits else made.permits() == permits
    made.paused = True
    assert made.permits() == 0


def test_both_limits_hold() -> None:
    made = crawl(max_pages=10, in_flight=4)
    assert made.permits() == 4
    made.pages = 8
    assert made.permits() == 2


def test_what_is_known_of_a_depth_is_the_items_own() -> None:
    made = crawl(max_depth=3)
    assert made.depths == {}
    item = Item(7, "http://a/1", 2, 0)
    known = KnownDepth(2, 7)
    made.depths[made.seen.fingerprint("http://a/1")] = known
    assert made.known_depth(item) is known
    assert made.known_depth(Item(8, "http://a/1", 2, 0)) is None, "a later visit of the same URL"
    assert made.known_depth(Item(7, "http://a/1", 2, 0, purpose=Purpose.SITEMAP)) is None
    assert made.known_depth(Item(7, "http://a/2", 2, 0)) is None
    assert (crawl().depths, crawl().known_depth(item)) == (None, None)
    assert (known.leased, known.ended, KnownDepth(1, 1, ended=True).ended) == (False, False, True)


def test_a_site_has_one_lane_for_each_crawl() -> None:
    site = Site("a", PolitenessClock())
    crawls = [Crawl(number, f"c{number}", 5, CrawlLimits(), unused_store(), SECTION) for number in range(3)]
    queues = [site.queue_of(one) for one in crawls]
    assert [site.queue_of(one) for one in crawls] == queues
    assert len(site.queues) == 3
    assert {queue.site for queue in queues} == {site}


def test_a_site_may_be_asked_when_the_first_of_its_lanes_may() -> None:
    site = Site("a", PolitenessClock())
    assert site.next_time() is None
    first, second = (
        site.queue_of(Crawl(number, f"c{number}", 5, CrawlLimits(), unused_store(), SECTION)) for number in range(2)
    )
    first.push_urgent(urgent(1), 50.0)
    assert site.next_time() == 50.0
    second.push_urgent(urgent(2), 30.0)
    assert site.next_time() == 30.0
    assert (site.idle, site.gone) == (False, False)

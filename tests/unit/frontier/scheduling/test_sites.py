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


def lane_of(owner: Crawl | None = None) -> SiteQueue:
    return Site("a", PolitenessClock()).lane(owner or crawl())


def urgent(item: int, purpose: Purpose = Purpose.PAGE) -> Item:
    return Item(item, f"http://a/{item}", 0, 0, purpose=purpose)


def popped(lane: SiteQueue, now: float = 0.0) -> list[int]:
    items = []
    while (item := lane.pop(now)) is not None:
        items.append(item.item)
    return items


def test_pages_come_by_depth_and_then_in_the_order_in_which_they_came() -> None:
    lane = lane_of()
    for item, depth in enumerate((3, 1, 2, 1, 0, 3, 2), 1):
        lane.push(item, "http://a", f"/{item}", depth, 0, 0)
    assert [queue.depth for queue in lane.queues] == [0, 1, 2, 3]
    assert lane.queued == 7
    assert popped(lane) == [5, 2, 4, 3, 7, 1, 6]
    assert (lane.queued, lane.queues) == (0, [])


def test_an_item_comes_out_as_it_went_in() -> None:
    lane = lane_of()
    lane.push(7, "https://www.a:8443", "/x y?q=1 2", 3, 5, 0)
    lane.push(8, "http://a", "/", 3, 7, 2)
    assert list(lane.items()) == [
        Item(7, "https://www.a:8443/x y?q=1 2", 3, 5),
        Item(8, "http://a/", 3, 7, offsite=2),
    ]
    assert [lane.pop(0.0), lane.pop(0.0), lane.pop(0.0)] == [
        Item(7, "https://www.a:8443/x y?q=1 2", 3, 5),
        Item(8, "http://a/", 3, 7, offsite=2),
        None,
    ]


def test_the_origins_of_a_domain_of_many_hosts_are_told_apart() -> None:
    lane = lane_of()
    origins = [f"http://h{number}.a" for number in range(30)]
    for visit in range(2):
        assert [lane.place_of(origin) for origin in origins] == list(range(30)), visit
    assert lane.origins == origins
    for item, origin in enumerate(reversed(origins), 1):
        lane.push(item, origin, "/", 0, 0, 0)
    assert [item.url for item in lane.items()] == [f"{origin}/" for origin in reversed(origins)]


def test_urgent_items_come_first_and_those_for_robots_txt_before_them() -> None:
    lane = lane_of()
    lane.push(1, "http://a", "/1", 0, 0, 0)
    lane.push_urgent(urgent(2))
    lane.push_urgent(urgent(3))
    lane.push_urgent(urgent(4), first=True)
    lane.push_urgent(urgent(-5, Purpose.ROBOTS))
    assert lane.queued == 5
    assert popped(lane) == [-5, 4, 2, 3, 1]
    assert lane.queued == 0


def test_an_item_that_must_wait_lets_the_others_go_on() -> None:
    lane = lane_of()
    lane.push_urgent(urgent(1), 50.0)
    lane.push_urgent(urgent(-2, Purpose.ROBOTS), 70.0)
    assert (lane.next_time(), lane.later(0.0)) == (50.0, 50.0)
    lane.push(3, "http://a", "/3", 0, 0, 0)
    assert (lane.next_time(), popped(lane, 49.9)) == (0.0, [3])
    assert (lane.later(49.9), lane.later(50.0), lane.later(70.0)) == (50.0, 70.0, None)
    assert popped(lane, 50.0) == [1]
    assert lane.next_time() == 70.0
    assert popped(lane, 70.0) == [-2]
    assert (lane.next_time(), lane.queued) == (None, 0)


def test_urgent_items_are_told_in_the_order_of_their_times() -> None:
    lane = lane_of()
    lane.push_urgent(urgent(1), 50.0)
    lane.push_urgent(urgent(-2, Purpose.ROBOTS), 20.0)
    lane.push_urgent(urgent(3), 20.0)
    lane.push_urgent(urgent(4), 20.0, first=True)
    assert [entry[2].item for entry in lane.urgents()] == [4, -2, 3, 1]


def test_a_cleared_lane_is_empty(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "queues.db")
    lane = lane_of(crawl(store))
    for item in range(20_000):
        lane.push(item, "http://a", f"/a/longer/path/{item}", 0, 0, 0)
    lane.push_urgent(urgent(1))
    lane.push_urgent(urgent(-1, Purpose.ROBOTS))
    (piece, *_) = pieces_of(lane.queues[0].state())
    assert b"/a/longer/path/" in store.get(piece)
    lane.clear()
    store.delete_some()
    assert (lane.queued, list(lane.items()), lane.pop(9.0), lane.next_time()) == (0, [], None, None)
    with pytest.raises(Damaged):
        store.get(piece)
    store.close()


def test_a_domains_budget_counts_pages_and_what_is_under_way() -> None:
    lane = lane_of(crawl(max_pages_per_domain=3))
    assert lane.has_budget()
    lane.pages, lane.flight = 1, 1
    assert lane.has_budget()
    lane.flight = 2
    assert not lane.has_budget()
    assert lane_of().has_budget()


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
    assert made.known(item) is known
    assert made.known(Item(8, "http://a/1", 2, 0)) is None, "a later visit of the same URL"
    assert made.known(Item(7, "http://a/1", 2, 0, purpose=Purpose.SITEMAP)) is None
    assert made.known(Item(7, "http://a/2", 2, 0)) is None
    assert (crawl().depths, crawl().known(item)) == (None, None)
    assert (known.leased, known.ended, KnownDepth(1, 1, ended=True).ended) == (False, False, True)


def test_a_site_has_one_lane_for_each_crawl() -> None:
    site = Site("a", PolitenessClock())
    crawls = [Crawl(number, f"c{number}", 5, CrawlLimits(), unused_store(), SECTION) for number in range(3)]
    lanes = [site.lane(one) for one in crawls]
    assert [site.lane(one) for one in crawls] == lanes
    assert len(site.lanes) == 3
    assert {lane.site for lane in lanes} == {site}


def test_a_site_may_be_asked_when_the_first_of_its_lanes_may() -> None:
    site = Site("a", PolitenessClock())
    assert site.next_time() is None
    first, second = (
        site.lane(Crawl(number, f"c{number}", 5, CrawlLimits(), unused_store(), SECTION)) for number in range(2)
    )
    first.push_urgent(urgent(1), 50.0)
    assert site.next_time() == 50.0
    second.push_urgent(urgent(2), 30.0)
    assert site.next_time() == 30.0
    assert (site.idle, site.gone) == (False, False)

"""Turns among crawls: by weight, at once for a newcomer, paid for when something is claimed."""

from __future__ import annotations

from collections import Counter

import pytest
from blob_stores import unused_store

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits
from weft.frontier.politeness import PolitenessClock
from weft.frontier.scheduling.fairness import Fairness
from weft.frontier.scheduling.sites import Crawl, Site

SECTION = PolitenessSection(delay_s=0.0, places=1)


def crawl(number: int, weight: float = 1.0) -> Crawl:
    return Crawl(number, f"crawl {number}", number, CrawlLimits(), unused_store(), SECTION, weight)


def offer(fairness: Fairness, one: Crawl, count: int = 1) -> None:
    """So many sites at which a crawl has something to claim."""
    for _ in range(count):
        site = Site(f"site {id(one)}", PolitenessClock())
        site.queue_of(one).push(1, "http://a", "/", 0, 0, 0)
        fairness.offer_site(site, 1.0)


def serve(fairness: Fairness, turns: int) -> Counter[int]:
    served: Counter[int] = Counter()
    for _ in range(turns):
        queue = fairness.next_queue()
        assert queue is not None
        served[queue.crawl.number] += 1
        fairness.count_served(queue.crawl)
    return served


@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 1.0), (0.5, 2.0, 2.5)])
def test_turns_are_shared_by_weight(weights: tuple[float, ...]) -> None:
    fairness = Fairness()
    for number, weight in enumerate(weights):
        offer(fairness, crawl(number, weight), 400)
    served = serve(fairness, 200)
    for number, weight in enumerate(weights):
        assert served[number] == pytest.approx(200 * weight / sum(weights), abs=2)


def test_a_newcomer_neither_waits_nor_makes_up_for_its_absence() -> None:
    fairness, old = Fairness(), crawl(1)
    offer(fairness, old, 1000)
    serve(fairness, 500)
    offer(fairness, crawl(2), 400)
    assert serve(fairness, 2)[2] >= 1, "the newcomer waits"
    assert serve(fairness, 100)[2] == pytest.approx(50, abs=2), "the newcomer takes more than its share"


def test_one_that_comes_back_begins_where_the_others_are() -> None:
    fairness, old, other = Fairness(), crawl(1), crawl(2)
    offer(fairness, other)
    offer(fairness, old, 1000)
    serve(fairness, 300)
    offer(fairness, other, 400)
    assert serve(fairness, 100)[2] == pytest.approx(50, abs=2)


def test_a_turn_that_comes_to_nothing_is_not_paid_for() -> None:
    fairness, one, other = Fairness(), crawl(1), crawl(2)
    offer(fairness, one, 3)
    offer(fairness, other, 3)
    for _ in range(2):
        queue = fairness.next_queue()
        assert queue is not None and queue.crawl is one
    queue = fairness.next_queue()
    assert queue is not None and queue.crawl is one, "it has had nothing yet"
    assert serve(fairness, 3) == {2: 3} and not fairness and fairness.next_queue() is None


def test_a_crawl_that_leaves_has_no_turn() -> None:
    fairness, one, other = Fairness(), crawl(1), crawl(2)
    offer(fairness, one, 5)
    offer(fairness, other, 2)
    fairness.remove_crawl(one)
    assert serve(fairness, 2) == {2: 2} and not fairness


def test_only_those_whose_own_delay_is_over_are_offered() -> None:
    fairness, quick = Fairness(), crawl(1)
    slow = crawl(2)
    slow.section = PolitenessSection(delay_s=10.0, places=1)
    site = Site("a", PolitenessClock())
    site.clock.ended(100.0)
    for one in (slow, quick):
        site.queue_of(one).push(1, "http://a", "/", 0, 0, 0)
    fairness.offer_site(site, 105.0)
    queue = fairness.next_queue()
    assert queue is not None and queue.crawl is quick and not fairness
    fairness.offer_site(site, 110.0)
    assert serve(fairness, 2) == {1: 1, 2: 1}


def test_one_that_was_served_before_its_first_turn_has_paid_for_it() -> None:
    """In another's turn, because it had waited long."""
    fairness, one, other = Fairness(), crawl(1), crawl(2)
    fairness.count_served(one)
    for each in (one, other):
        offer(fairness, each)
    queue = fairness.next_queue()
    assert queue is not None and queue.crawl is other

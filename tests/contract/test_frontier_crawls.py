"""Several crawls on one embedded frontier: whose delay counts, whose turn it is, what an end leaves to the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from harnesses import ALLOW, CheckpointedHarness, EmbeddedHarness, claim_one, cool, done, no_robots, page

from weft.config import PolitenessSection
from weft.errors import BadInput
from weft.frontier.contract import CrawlLimits, End, Ended, Outcome
from weft.frontier.embedded.frontier import EmbeddedFrontier
from weft.records import Purpose

Make = Callable[..., EmbeddedHarness]


@pytest.fixture(params=[EmbeddedHarness, CheckpointedHarness])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made: list[EmbeddedHarness] = []

    def build(**politeness: Any) -> EmbeddedHarness:
        made.append(request.param(tmp_path / f"f{len(made)}", **politeness))
        return made[-1]

    yield build
    for harness in made:
        harness.close()


def polite(delay_s: float, places: int = 1) -> PolitenessSection:
    return PolitenessSection(delay_s=delay_s, places=places)


def pages(host: str, count: int) -> list[Any]:
    return [page(f"http://{host}/{number}") for number in range(count)]


def served(harness: EmbeddedHarness, seconds: float, step_s: float = 0.5) -> list[tuple[float, int]]:
    """Claims and ends what is due, again and again: when, and whose."""
    found = []
    until = harness.time + seconds
    while harness.time < until:
        for lease in harness.frontier.claim("me", 10):
            found.append((harness.time, lease.crawl))
            done(harness, lease)
        harness.advance(step_s)
    return found


def test_the_asking_crawls_delay_counts_from_anyones_last_request(make: Make) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    slow = frontier.open_crawl("slow", CrawlLimits(), polite(4.0))
    frontier.admit(harness.crawl, pages("a", 3))
    frontier.admit(slow, pages("a", 2))
    found = served(harness, 20)
    starts = [at for at, _ in found]
    for (before, _), (at, whose) in pairwise(found):
        assert at - before >= (4.0 if whose == slow else 1.0) - 0.05
    assert Counter(whose for _, whose in found) == {harness.crawl: 3, slow: 2} and starts == sorted(starts)


def test_one_that_waited_ten_of_its_own_delays_is_next(make: Make) -> None:
    """Another without a delay would never let enough time pass for it."""
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    slow = frontier.open_crawl("slow", CrawlLimits(), polite(2.0))
    frontier.admit(harness.crawl, pages("a", 500))
    first = claim_one(harness)
    done(harness, first)
    frontier.admit(slow, pages("a", 1))
    began = harness.time
    found: list[tuple[float, int]] = []
    while not any(whose == slow for _, whose in found):
        lease = frontier.claim("me", 1)
        for one in lease:
            found.append((harness.time - began, one.crawl))
            done(harness, one)
        harness.advance(0.1)
        assert harness.time - began < 60, "it starves"
    when = next(at for at, whose in found if whose == slow)
    assert 20.0 <= when <= 22.5
    assert max(at for at, whose in found if whose != slow and at < when) <= when - 2.0 + 0.05
    assert harness.frontier.claim("me", 1), "the other goes on"


def test_a_crawl_that_waits_for_something_holds_nobody_up(make: Make) -> None:
    """One has used up its budget at the site, and has waited for ever: it is not next."""
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    limited = frontier.open_crawl("limited", CrawlLimits(max_pages_per_domain=1), polite(1.0))
    frontier.admit(limited, pages("a", 5))
    done(harness, claim_one(harness))
    frontier.admit(harness.crawl, pages("a", 20))
    found = served(harness, 40, step_s=1.1)
    assert Counter(whose for _, whose in found) == {harness.crawl: 20}
    assert not frontier.has_work(limited) and frontier.crawl_standing(limited).queued == 4


def test_what_the_site_asks_for_binds_all(make: Make) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    other = frontier.open_crawl("other", CrawlLimits(), polite(0.0, places=8))
    frontier.admit(harness.crawl, pages("a", 3))
    frontier.admit(other, pages("a", 3))
    robots = claim_one(harness)
    assert robots.purpose is Purpose.ROBOTS
    assert frontier.claim("me", 10) == [], "one robots.txt for all"
    cool(harness, robots, ok=True)
    frontier.robots_known("http://a", ALLOW, 6.0)
    frontier.finish([Outcome(robots, End.OTHER)])
    found = served(harness, 60)
    assert len(found) == 6
    assert all(later - earlier >= 6.0 - 0.05 for (earlier, _), (later, _) in pairwise(found))


def test_turns_at_one_site_are_by_weight(make: Make) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    heavy = frontier.open_crawl("heavy", CrawlLimits(), polite(1.0), weight=3.0)
    frontier.admit(harness.crawl, pages("a", 60))
    frontier.admit(heavy, pages("a", 60))
    found = Counter(whose for _, whose in served(harness, 44, step_s=1.1))
    assert found[heavy] == pytest.approx(30, abs=2) and found[harness.crawl] == pytest.approx(10, abs=2)


def test_one_that_was_alone_for_long_does_not_pay_for_it(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    frontier.admit(harness.crawl, pages("a", 300))
    for _ in range(200):
        done(harness, claim_one(harness))
    other = frontier.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.admit(other, pages("b", 100))
    first = [frontier.claim("me", 1)[0] for _ in range(2)]
    assert sorted(lease.crawl for lease in first) == [harness.crawl, other]


def test_a_paused_crawl_lets_another_ask_for_the_robots_txt_it_waited_for(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    other = frontier.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.admit(harness.crawl, pages("a", 1))
    robots = claim_one(harness)
    frontier.admit(other, pages("a", 1))
    cool(harness, robots, ok=False)
    frontier.finish([Outcome(robots, End.RETRY, wait_s=50)])
    assert frontier.claim("me", 10) == []
    frontier.pause(harness.crawl)
    assert frontier.claim("me", 10) == [], "the site has its time all the same"
    harness.advance(51)
    again = claim_one(harness)
    assert (again.purpose, again.crawl) == (Purpose.ROBOTS, other)


def test_a_crawl_that_ends_drops_its_queue_and_lets_its_leases_end_without_a_trace(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    other = frontier.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.admit(other, pages("a", 50))
    frontier.admit(harness.crawl, pages("a", 2))
    lease = next(one for one in frontier.claim("me", 1))
    frontier.close_crawl(other)
    assert frontier.stats().queued == 2 - (lease.crawl == harness.crawl)
    done(harness, lease)
    assert {one.crawl for _ in range(2) for one in frontier.claim("me", 1)} <= {harness.crawl}
    assert frontier.open_crawl("other", CrawlLimits()) > other, "its number is not used again"


def test_an_end_that_was_not_confirmed_is_undone_by_a_kill_and_a_confirmed_one_is_not(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    other = frontier.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.admit(other, pages("a", 5))
    frontier.commit()
    frontier.close_crawl(other)
    again = frontier.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.admit(again, pages("a", 2))
    frontier.commit()
    frontier = brought_back(harness)
    assert frontier.kept_crawls() == [harness.crawl, other, again]
    assert (frontier.crawl_standing(other).queued, frontier.crawl_standing(again).queued) == (5, 2)
    frontier.close_crawl(other)
    frontier.closed(other)
    frontier.commit()
    frontier = brought_back(harness)
    assert frontier.kept_crawls() == [harness.crawl, again] and frontier.crawl_standing(again).queued == 2


def brought_back(harness: EmbeddedHarness) -> EmbeddedFrontier:
    """After a kill, with every crawl that is kept."""
    opened = harness._open

    def open_all() -> EmbeddedFrontier:
        frontier = opened()
        for number in set(frontier.kept_crawls()) - {harness.crawl}:
            frontier.reopen_crawl(number, CrawlLimits(), polite(0.0), 1.0)
        return frontier

    harness._open = open_all  # type: ignore[method-assign]
    try:
        return harness.crash()
    finally:
        harness._open = opened  # type: ignore[method-assign]


def test_what_is_forgotten_is_gone_in_pieces_and_no_item_number_comes_again(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    other = frontier.open_crawl("other", CrawlLimits(), polite(0.0))
    for number in range(12):
        frontier.admit(other, [page(f"http://a/{number}")])
        frontier.commit()
    frontier.close_crawl(other)
    frontier.closed(other)
    frontier.commit()
    assert not frontier.forget_crawl(other, at_most=5)
    frontier = brought_back(harness)
    pieces = 1
    while not frontier.forget_crawl(other, at_most=5):
        pieces += 1
    assert pieces >= 2
    frontier = brought_back(harness)
    no_robots(harness, "b")
    frontier.admit(harness.crawl, pages("b", 1))
    assert claim_one(harness).item > 12


def test_what_was_set_aside_comes_back_also_over_a_kill(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.admit(harness.crawl, pages("a", 3))
    lease = claim_one(harness)
    frontier.set_aside([lease])
    frontier.commit()
    assert frontier.crawl_standing(harness.crawl).set_aside == 1
    frontier = harness.crash()
    assert (frontier.crawl_standing(harness.crawl).set_aside, frontier.stats().queued) == (1, 2)
    frontier.commit()
    assert frontier.take_back(harness.crawl, lambda item: item.url == "nobody") == 0
    assert frontier.take_back(harness.crawl, lambda item: item.url == lease.url) == 1
    frontier.commit()
    frontier = harness.crash()
    assert (frontier.crawl_standing(harness.crawl).set_aside, frontier.stats().queued) == (0, 3)


def test_a_depth_limit_cannot_be_added_to_a_crawl_that_has_begun(make: Make) -> None:
    harness = make()
    frontier = harness.start()
    frontier.change_crawl(harness.crawl, CrawlLimits(max_depth=2), harness.section, 1.0)
    frontier.change_crawl(harness.crawl, CrawlLimits(), harness.section, 1.0)
    other = frontier.open_crawl("other", CrawlLimits())
    frontier.admit(other, pages("a", 1))
    with pytest.raises(BadInput, match="not added to a crawl that has begun"):
        frontier.change_crawl(other, CrawlLimits(max_depth=2), harness.section, 1.0)


def test_a_breaker_binds_the_crawls_of_its_trust_alone(make: Make) -> None:
    harness = make(delay_s=1.0, breaker_failures=2, breaker_reset_s=300.0, breaker_max_probes=1)
    frontier = harness.start()
    no_robots(harness, "a")
    crawls = [frontier.open_crawl(name, CrawlLimits(), harness.section) for name in ("pinned", "pinned too", "plain")]
    pinned, pinned_too, plain = crawls
    for crawl in (pinned, pinned_too):
        frontier.set_trust(crawl, "pinned")
        frontier.robots_known("pinned http://a", ALLOW, None)
    for crawl in crawls:
        frontier.admit(crawl, pages("a", 9))
    failed = Counter[int]()
    asked: list[tuple[float, int]] = []
    began = harness.time
    while harness.time < began + 400:
        for lease in frontier.claim("me", 10):
            asked.append((harness.time - began, lease.crawl))
            ok = lease.crawl == plain
            failed[lease.crawl] += not ok
            frontier.cool([Ended(lease, harness.time, ok=ok)])
            frontier.finish([Outcome(lease, End.PAGE if ok else End.OTHER)])
        harness.advance(0.5)
    assert [whose for _, whose in asked].count(plain) == 9 and max(at for at, whose in asked if whose == plain) < 60
    assert sum(failed.values()) == 3, "two open it, one is the probe after its time"
    assert max(at for at, whose in asked if whose != plain) >= 300
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(asked)]
    assert min(gaps) >= 0.95, "the clock is everybody's"
    rejected = Counter(rejection.crawl for rejection in frontier.rejections())
    assert rejected[plain] == 0 and rejected[pinned] + rejected[pinned_too] == 18 - 3


def test_a_paused_crawl_is_out_of_its_sites_sight_and_comes_back_with_everything(make: Make) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    paused = [frontier.open_crawl(f"paused {number}", CrawlLimits(), harness.section) for number in range(20)]
    for place, crawl in enumerate(paused):
        if place % 2:
            frontier.pause(crawl)  # before it has anything, or after
        frontier.admit(crawl, pages("a", 1))
        frontier.pause(crawl)
    frontier.admit(harness.crawl, pages("a", 3))
    assert len(frontier._queues.sites["a"].lanes) == 1, "what is due is found without a look at those that wait"
    assert {whose for _, whose in served(harness, 5)} == {harness.crawl}
    frontier.commit()
    frontier._checkpoint()
    for crawl in paused[:10]:
        frontier.pause(crawl, False)
    frontier.close_crawl(paused[10])
    found = served(harness, 40)
    assert sorted(whose for _, whose in found) == paused[:10]
    starts = [at for at, _ in found]
    assert min(later - earlier for earlier, later in pairwise(starts)) >= 0.95
    assert frontier.stats().queued == 9 and [frontier.crawl_standing(crawl).queued for crawl in paused[11:]] == [1] * 9

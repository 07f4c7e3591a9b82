"""Several crawls on one frontier: whose delay counts, whose turn it is, what an end leaves to the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from harnesses import (
    ALLOW,
    EmbeddedHarness,
    Harness,
    claim_one,
    cool,
    done,
    no_robots,
    page,
    pages,
    polite,
    served,
    urls_of,
)

from weft.errors import BadInput
from weft.frontier.contract import CrawlLimits, End, EndedLease
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.records import Purpose

Make = Callable[..., Harness]
MakeEmbedded = Callable[..., EmbeddedHarness]


def test_the_asking_crawls_delay_counts_from_anyones_last_request(make: Make) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    slow = frontier.crawls.open_crawl("slow", CrawlLimits(), polite(4.0))
    frontier.queue.admit(harness.crawl, pages("a", 3))
    frontier.queue.admit(slow, pages("a", 2))
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
    slow = frontier.crawls.open_crawl("slow", CrawlLimits(), polite(2.0))
    frontier.queue.admit(harness.crawl, pages("a", 500))
    first = claim_one(harness)
    done(harness, first)
    frontier.queue.admit(slow, pages("a", 1))
    began = harness.time
    found: list[tuple[float, int]] = []
    while not any(whose == slow for _, whose in found):
        lease = frontier.leases.claim("me", 1)
        for one in lease:
            found.append((harness.time - began, one.crawl))
            done(harness, one)
        harness.advance(0.1)
        assert harness.time - began < 60, "it starves"
    when = next(at for at, whose in found if whose == slow)
    assert 20.0 <= when <= 22.5
    assert max(at for at, whose in found if whose != slow and at < when) <= when - 2.0 + 0.05
    assert harness.frontier.leases.claim("me", 1), "the other goes on"


def test_a_crawl_that_waits_for_something_holds_nobody_up(make: Make) -> None:
    """One has used up its budget at the site, and has waited for ever: it is not next."""
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    limited = frontier.crawls.open_crawl("limited", CrawlLimits(max_pages_per_domain=1), polite(1.0))
    frontier.queue.admit(limited, pages("a", 5))
    done(harness, claim_one(harness))
    frontier.queue.admit(harness.crawl, pages("a", 20))
    found = served(harness, 40, step_s=1.1)
    assert Counter(whose for _, whose in found) == {harness.crawl: 20}
    assert not frontier.status.has_work(limited) and frontier.status.crawl_counts(limited).queued == 4


def test_what_the_site_asks_for_binds_all(make: Make) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0, places=8))
    frontier.queue.admit(harness.crawl, pages("a", 3))
    frontier.queue.admit(other, pages("a", 3))
    robots = claim_one(harness)
    assert robots.purpose is Purpose.ROBOTS
    assert frontier.leases.claim("me", 10) == [], "one robots.txt for all"
    cool(harness, robots, ok=True)
    frontier.sites.robots_known("http://a", ALLOW, 6.0)
    frontier.leases.finish([EndedLease(robots, End.OTHER)])
    found = served(harness, 60)
    assert len(found) == 6
    assert all(later - earlier >= 6.0 - 0.05 for (earlier, _), (later, _) in pairwise(found))


@pytest.mark.parametrize("delay_s", [0.0, 1.0])
def test_turns_at_one_site_are_by_weight(make: Make, delay_s: float) -> None:
    harness = make(delay_s=delay_s)
    frontier = harness.start()
    no_robots(harness, "a")
    heavy = frontier.crawls.open_crawl("heavy", CrawlLimits(), polite(delay_s), weight=3.0)
    frontier.queue.admit(harness.crawl, pages("a", 60))
    frontier.queue.admit(heavy, pages("a", 60))
    found = Counter(whose for _, whose in served(harness, 44, step_s=1.1))
    assert found[heavy] == pytest.approx(30, abs=2) and found[harness.crawl] == pytest.approx(10, abs=2)


def test_one_that_was_alone_for_long_does_not_pay_for_it(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    frontier.crawls.change_crawl(harness.crawl, CrawlLimits(), polite(0.0), 0.25)
    frontier.queue.admit(harness.crawl, pages("a", 300))
    for _ in range(200):
        done(harness, claim_one(harness))
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(other, pages("b", 100))
    first = []
    for _ in range(2):
        (lease,) = frontier.leases.claim("me", 1)
        first.append(lease.crawl)
        done(harness, lease)
    assert sorted(first) == [harness.crawl, other]


def test_a_paused_crawl_lets_another_ask_for_the_robots_txt_it_waited_for(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(harness.crawl, pages("a", 1))
    robots = claim_one(harness)
    frontier.queue.admit(other, pages("a", 1))
    cool(harness, robots, ok=False)
    frontier.leases.finish([EndedLease(robots, End.RETRY, wait_s=50)])
    assert frontier.leases.claim("me", 10) == []
    frontier.crawls.pause(harness.crawl)
    assert frontier.leases.claim("me", 10) == [], "the site has its time all the same"
    harness.advance(51)
    again = claim_one(harness)
    assert (again.purpose, again.crawl) == (Purpose.ROBOTS, other)


def test_a_crawl_that_ends_drops_its_queue_and_lets_its_leases_end_without_a_trace(make_embedded: MakeEmbedded) -> None:
    harness = make_embedded(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(other, pages("a", 50))
    frontier.queue.admit(harness.crawl, pages("a", 2))
    lease = next(one for one in frontier.leases.claim("me", 1))
    frontier.crawls.close_crawl(other)
    assert frontier.status.stats().queued == 2 - (lease.crawl == harness.crawl)
    done(harness, lease)
    assert {one.crawl for _ in range(2) for one in frontier.leases.claim("me", 1)} <= {harness.crawl}
    assert frontier.crawls.open_crawl("other", CrawlLimits()) > other, "its number is not used again"


def test_an_end_that_was_not_confirmed_is_undone_by_a_kill_and_a_confirmed_one_is_not(
    make_embedded: MakeEmbedded,
) -> None:
    harness = make_embedded(delay_s=0.0)
    frontier = harness.start()
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(other, pages("a", 5))
    frontier.durability.commit()
    frontier.crawls.close_crawl(other)
    again = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(again, pages("a", 2))
    frontier.durability.commit()
    frontier = brought_back(harness)
    assert frontier.crawls.kept_crawls() == [harness.crawl, other, again]
    assert (frontier.status.crawl_counts(other).queued, frontier.status.crawl_counts(again).queued) == (5, 2)
    frontier.crawls.close_crawl(other)
    frontier.crawls.forget_closed_crawl(other)
    frontier.durability.commit()
    frontier = brought_back(harness)
    assert frontier.crawls.kept_crawls() == [harness.crawl, again] and frontier.status.crawl_counts(again).queued == 2


def brought_back(harness: Harness) -> Any:
    """After a kill, with every crawl that is kept."""
    harness.others = (CrawlLimits(), polite(0.0), 1.0)
    return harness.crash()


def test_what_is_forgotten_is_gone_in_pieces_and_no_item_number_comes_again(make_embedded: MakeEmbedded) -> None:
    harness = make_embedded(delay_s=0.0)
    frontier = harness.start()
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    for number in range(12):
        frontier.queue.admit(other, [page(f"http://a/{number}")])
        frontier.durability.commit()
    frontier.crawls.close_crawl(other)
    frontier.crawls.forget_closed_crawl(other)
    frontier.durability.commit()
    assert not frontier.crawls.forget_crawls([other], at_most=5)
    frontier = brought_back(harness)
    pieces = 1
    while not frontier.crawls.forget_crawls([other], at_most=5):
        pieces += 1
    assert pieces >= 2
    frontier = brought_back(harness)
    no_robots(harness, "b")
    frontier.queue.admit(harness.crawl, pages("b", 1))
    assert claim_one(harness).item > 12


def test_what_was_set_aside_comes_back_also_over_a_kill(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, pages("a", 3))
    lease = claim_one(harness)
    frontier.leases.exclude([lease])
    frontier.durability.commit()
    assert frontier.status.crawl_counts(harness.crawl).set_aside == 1
    frontier = harness.crash()
    assert (frontier.status.crawl_counts(harness.crawl).set_aside, frontier.status.stats().queued) == (1, 2)
    frontier.durability.commit()
    assert frontier.queue.restore_excluded(harness.crawl, lambda item: item.url == "nobody") == 0
    assert frontier.queue.restore_excluded(harness.crawl, lambda item: item.url == lease.url) == 1
    frontier.durability.commit()
    frontier = harness.crash()
    assert (frontier.status.crawl_counts(harness.crawl).set_aside, frontier.status.stats().queued) == (0, 3)


def test_of_many_that_were_set_aside_all_come_back_once(make: Make) -> None:
    harness = make(delay_s=0.0, places=999)
    frontier = harness.start()
    no_robots(harness, "a")
    found = [f"http://a/{number}" for number in range(700)]
    frontier.queue.admit(harness.crawl, [page(url) for url in found])
    while leases := frontier.leases.claim("me", 999):
        frontier.leases.exclude(leases)
    assert frontier.status.crawl_counts(harness.crawl).set_aside == 700
    assert frontier.queue.restore_excluded(harness.crawl, lambda _: True) == 700
    came: list[str] = []
    while leases := frontier.leases.claim("me", 999):
        came += urls_of(leases)
        frontier.leases.finish([EndedLease(lease, End.OTHER) for lease in leases])
    assert sorted(came) == sorted(found)


def test_a_depth_limit_cannot_be_added_to_a_crawl_that_has_begun(make: Make) -> None:
    harness = make()
    frontier = harness.start()
    frontier.crawls.change_crawl(harness.crawl, CrawlLimits(max_depth=2), harness.section, 1.0)
    frontier.crawls.change_crawl(harness.crawl, CrawlLimits(), harness.section, 1.0)
    other = frontier.crawls.open_crawl("other", CrawlLimits())
    frontier.queue.admit(other, pages("a", 1))
    with pytest.raises(BadInput, match="not added to a crawl that has begun"):
        frontier.crawls.change_crawl(other, CrawlLimits(max_depth=2), harness.section, 1.0)


def test_a_crawl_with_many_sites_due_lets_a_new_one_go_at_once(make: Make) -> None:
    """Its site became due after all of the others'."""
    harness = make(delay_s=0.0)
    frontier = harness.start()
    hosts = [f"h{number}" for number in range(300)]
    no_robots(harness, *hosts, "new")
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/") for host in hosts])
    harness.advance(5)
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(other, pages("new", 1))
    assert other in [lease.crawl for lease in frontier.leases.claim("me", 3)]


def test_a_max_depth_that_is_taken_away_leaves_what_is_queued_as_it_is(make: Make) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start(CrawlLimits(max_depth=3))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/0", 2), page("http://a/1", 3)])
    frontier.crawls.change_crawl(harness.crawl, CrawlLimits(), polite(0.0, places=9), 1.0)
    frontier.queue.admit(harness.crawl, [page("http://a/2", 4), page("http://a/1", 1)])
    frontier.durability.commit()
    assert {item.url for item in frontier.queue.items(harness.crawl)} == {f"http://a/{number}" for number in range(3)}
    harness.crash()
    frontier = harness.frontier
    no_robots(harness, "a")
    frontier.crawls.change_crawl(harness.crawl, CrawlLimits(), polite(0.0, places=9), 1.0)
    found = {lease.url: lease.depth for lease in frontier.leases.claim("me", 9)}
    assert found == {"http://a/0": 2, "http://a/1": 1, "http://a/2": 4}
    frontier.crawls.change_crawl(harness.crawl, CrawlLimits(max_depth=5), polite(0.0, places=9), 1.0)
    assert frontier.status.stats().leased == 3, "it may have one again"


def test_one_claim_serves_many_crawls_by_weight(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    heavy = frontier.crawls.open_crawl("heavy", CrawlLimits(), polite(0.0), weight=3.0)
    light = frontier.crawls.open_crawl("light", CrawlLimits(), polite(0.0), weight=0.5)
    for crawl in (harness.crawl, heavy, light):
        hosts = [f"c{crawl}-{number}" for number in range(60)]
        no_robots(harness, *hosts)
        frontier.queue.admit(crawl, [page(f"http://{host}/") for host in hosts])
    found = Counter(lease.crawl for lease in frontier.leases.claim("me", 45))
    assert found[harness.crawl] == pytest.approx(10, abs=1)
    assert found[heavy] == pytest.approx(30, abs=1) and found[light] == pytest.approx(5, abs=1)


def test_crawls_that_come_back_in_any_order_are_served_by_what_they_have_had(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    turns = {}
    for delay_s, turn in enumerate((6, 3, 5, 7, 4, 1, 2, 8), 1):
        crawl = frontier.crawls.open_crawl(f"of turn {turn}", CrawlLimits(), polite(float(delay_s)), weight=1 / turn)
        no_robots(harness, f"of{crawl}")
        frontier.queue.admit(crawl, [page(f"http://of{crawl}/{number}") for number in range(2)])
        turns[crawl] = turn
    for lease in frontier.leases.claim("me", 9):
        done(harness, lease)
    assert frontier.leases.claim("me", 9) == []
    assert frontier.leases.next_due() == pytest.approx(harness.time + 1.0, abs=0.02), "the first of them"
    harness.advance(9.0)
    assert [turns[lease.crawl] for lease in frontier.leases.claim("me", 9)] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_turn_out_of_turn_of_a_light_crawl_makes_no_newcomer_wait(make: Make) -> None:
    """One that has waited long for a site is far ahead of the others by its weight; a newcomer begins with these."""
    harness = make(delay_s=1.0)
    frontier = harness.start()
    light = frontier.crawls.open_crawl("light", CrawlLimits(), polite(1.0), weight=0.001)
    hosts = [f"h{number}" for number in range(60)]
    no_robots(harness, *hosts)
    frontier.queue.admit(
        harness.crawl, [page(f"http://{host}/{number}") for host in hosts[:20] for number in range(50)]
    )
    frontier.queue.admit(light, pages("h0", 9))
    turns = 0
    while turns < 3:
        for lease in frontier.leases.claim("me", 5):
            turns += lease.crawl == light
            done(harness, lease)
        harness.advance(1.0)
    new = frontier.crawls.open_crawl("new", CrawlLimits(), polite(1.0))
    frontier.queue.admit(new, [page(f"http://{host}/") for host in hosts[20:]])
    found = Counter(lease.crawl for lease in frontier.leases.claim("me", 20))
    assert found[new] == pytest.approx(10, abs=1)


def test_one_that_may_have_one_request_is_not_starved_by_one_that_may_have_many(make: Make) -> None:
    """There is never a moment without a request of the other."""
    harness = make(delay_s=0.0, places=4)
    frontier = harness.start()
    no_robots(harness, "a")
    single = frontier.crawls.open_crawl("single", CrawlLimits(), polite(1.0, places=1))
    frontier.queue.admit(harness.crawl, pages("a", 400))
    out = frontier.leases.claim("me", 2)
    frontier.queue.admit(single, pages("a", 1))
    for _ in range(100):
        harness.advance(0.5)
        out += frontier.leases.claim("me", 2)
        if any(lease.crawl == single for lease in out):
            break
        if out:
            done(harness, out.pop(0))
    assert any(lease.crawl == single for lease in out)


def test_an_edit_of_the_delay_is_in_force_at_once(make: Make) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(1000.0))
    frontier.queue.admit(other, pages("a", 3))
    done(harness, claim_one(harness))
    harness.advance(10)
    assert frontier.leases.claim("me", 9) == []
    frontier.crawls.change_crawl(other, CrawlLimits(), polite(5.0), 1.0)
    lease = claim_one(harness)
    assert lease.delay_s == 5.0
    done(harness, lease)
    frontier.crawls.change_crawl(other, CrawlLimits(), polite(50.0), 1.0)
    harness.advance(10)
    assert frontier.leases.claim("me", 9) == []
    harness.advance(40.5)
    assert claim_one(harness).crawl == other


def test_a_standing_is_of_its_crawl_alone(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(harness.crawl, pages("a", 5))
    frontier.queue.admit(other, pages("b", 7))
    mine, theirs = sorted(frontier.leases.claim("me", 9), key=lambda lease: lease.crawl)
    standing = frontier.status.crawl_counts(other)
    assert (standing.queued, standing.leased, standing.pages, standing.seen) == (6, 1, 0, 7)
    done(harness, theirs)
    done(harness, mine, End.OTHER)
    standing = frontier.status.crawl_counts(other)
    assert (standing.queued, standing.leased, standing.pages) == (6, 0, 1)
    standing = frontier.status.crawl_counts(harness.crawl)
    assert (standing.queued, standing.leased, standing.pages, standing.seen) == (4, 0, 0, 5)
    (lease,) = (lease for lease in frontier.leases.claim("me", 9) if lease.crawl == other)
    frontier.leases.finish([EndedLease(lease, End.RELEASE)])
    assert (frontier.status.crawl_counts(other).queued, frontier.status.crawl_counts(other).leased) == (6, 0)
    with pytest.raises(KeyError):
        frontier.status.crawl_counts(other + 1)


def test_a_paused_crawl_loses_nothing_and_holds_nobody_up(make: Make) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(1.0))
    frontier.queue.admit(other, pages("a", 4))
    frontier.queue.admit(harness.crawl, pages("a", 4))
    frontier.crawls.pause(other)
    assert {whose for _, whose in served(harness, 20)} == {harness.crawl}
    assert frontier.leases.next_due() is None or frontier.leases.claim("me", 9) == []
    frontier.crawls.pause(other, False)
    assert [whose for _, whose in served(harness, 20)] == [other] * 4


def test_a_crawl_that_waits_for_a_delay_does_not_put_off_when_another_is_due(make: Make) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(1.0))
    no_robots(harness, "a", "b", "c")
    for crawl, host in ((other, "a"), (harness.crawl, "b")):
        frontier.queue.admit(crawl, pages(host, 2))
        done(harness, claim_one(harness))
        harness.advance(0.49)
    frontier.queue.admit(harness.crawl, pages("c", 2))
    assert claim_one(harness).key == "c"
    assert frontier.leases.next_due() == pytest.approx(1001.0, abs=0.02), "a delay after the end at the first"


def test_numbers_of_crawls_are_never_given_out_again(make_embedded: MakeEmbedded) -> None:
    harness = make_embedded(delay_s=0.0)
    frontier = harness.start()
    numbers = [harness.crawl]
    for name in ("one", "two", "one", "two"):
        numbers.append(frontier.crawls.open_crawl(name, CrawlLimits(), polite(0.0)))
        frontier.queue.admit(numbers[-1], pages("a", 1))
        frontier.durability.commit()
        frontier.crawls.close_crawl(numbers[-1])
        frontier.crawls.forget_closed_crawl(numbers[-1])
        frontier.durability.commit()
        while not frontier.crawls.forget_crawls([numbers][-1]):
            pass
        frontier = brought_back(harness)
    assert numbers == sorted(set(numbers)) and len(numbers) == 5
    assert frontier.crawls.kept_crawls() == [harness.crawl]


def test_another_crawl_of_the_site_goes_on_while_one_is_forgotten(make_embedded: MakeEmbedded) -> None:
    harness = make_embedded(delay_s=0.0)
    frontier = harness.start()
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(other, pages("a", 3))
    robots = claim_one(harness)
    assert (robots.purpose, robots.crawl) == (Purpose.ROBOTS, other)
    frontier.queue.admit(harness.crawl, pages("a", 3))
    frontier.crawls.close_crawl(other)
    frontier.crawls.forget_closed_crawl(other)
    frontier.durability.commit()
    while not frontier.crawls.forget_crawls([other], at_most=3):
        pass
    cool(harness, robots, ok=False)
    frontier.leases.finish([EndedLease(robots, End.RETRY, wait_s=5)])
    harness.advance(6)
    again = claim_one(harness)
    assert (again.purpose, again.crawl) == (Purpose.ROBOTS, harness.crawl)
    cool(harness, again, ok=True)
    no_robots(harness, "a")
    frontier.leases.finish([EndedLease(again, End.OTHER)])
    assert [whose for _, whose in served(harness, 5)] == [harness.crawl] * 3


def test_a_paused_crawl_is_out_of_its_sites_sight_and_comes_back_with_everything(make: Make) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    paused = [frontier.crawls.open_crawl(f"paused {number}", CrawlLimits(), harness.section) for number in range(20)]
    for place, crawl in enumerate(paused):
        if place % 2:
            frontier.crawls.pause(crawl)  # before it has anything, or after
        frontier.queue.admit(crawl, pages("a", 1))
        frontier.crawls.pause(crawl)
    frontier.queue.admit(harness.crawl, pages("a", 3))
    if isinstance(frontier, EmbeddedFrontier):
        queues = frontier._base.queues.sites["a"].queues
        assert len(queues) == 1, "what is due is found without a look at those that wait"
    assert {whose for _, whose in served(harness, 5)} == {harness.crawl}
    frontier.durability.commit()
    for crawl in paused[:10]:
        frontier.crawls.pause(crawl, False)
    found = served(harness, 40)
    assert sorted(whose for _, whose in found) == paused[:10]
    starts = [at for at, _ in found]
    assert min(later - earlier for earlier, later in pairwise(starts)) >= 0.95
    assert (
        frontier.status.stats().queued == 10
        and [frontier.status.crawl_counts(crawl).queued for crawl in paused[10:]] == [1] * 10
    )


def test_what_was_refused_of_one_crawl_outlasts_the_end_of_another(make_embedded: MakeEmbedded) -> None:
    harness = make_embedded(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(harness.crawl, pages("a", 2))
    frontier.queue.admit(other, pages("b", 3))
    for lease in frontier.leases.claim("me", 9):
        cool(harness, lease, slow_down=True, retry_after_s=1e6)
    frontier.crawls.close_crawl(other)
    assert {rejection.crawl for rejection in frontier.rejected.rejections()} == {harness.crawl}


def test_what_is_not_acknowledged_of_one_crawl_outlasts_another_that_is_forgotten(make_embedded: MakeEmbedded) -> None:
    harness = make_embedded(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(harness.crawl, pages("a", 1))
    frontier.queue.admit(other, pages("b", 1))
    for lease in frontier.leases.claim("me", 9):
        cool(harness, lease, ok=True)
        assert frontier.leases.finish([EndedLease(lease, End.PAGE)], batch=1) == [True]
    frontier.durability.commit()
    frontier.crawls.close_crawl(other)
    frontier.crawls.forget_closed_crawl(other)
    while not frontier.crawls.forget_crawls([other]):
        pass
    frontier.durability.acknowledge(1)
    frontier.durability.commit()
    assert frontier.status.crawl_counts(harness.crawl).pages == 1
    assert harness.crash(pages=1).status.stats().queued == 0, "it has ended for good"


def test_leases_that_are_over_keep_no_other_from_being_set_aside(make: Make) -> None:
    harness = make(delay_s=0.0, places=4)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, pages("a", 2))
    gone, kept = frontier.leases.claim("me", 2)
    done(harness, gone)
    frontier.leases.exclude([gone, kept])
    standing = frontier.status.crawl_counts(harness.crawl)
    assert (standing.set_aside, standing.leased, standing.queued) == (1, 0, 0)


def test_a_lease_that_expires_is_no_lease_of_its_crawl(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, pages("a", 1))
    lease = claim_one(harness)
    harness.advance(lease.deadline - harness.time + 1.0)
    (again,) = frontier.leases.claim("me", 9) or frontier.leases.claim("me", 9)
    assert again.item == lease.item and frontier.status.crawl_counts(harness.crawl).leased == 1
    done(harness, again)
    assert frontier.status.crawl_counts(harness.crawl).leased == 0


def test_cookies_that_were_committed_are_there_after_a_crash(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    frontier.queue.admit(harness.crawl, [*pages("a", 2), *pages("b", 1)])
    lease = next(one for one in frontier.leases.claim("me", 9) if one.key == "a")
    frontier.sites.keep_cookies(harness.crawl, lease.key, b"old")
    frontier.sites.keep_cookies(harness.crawl, lease.key, b"new")
    frontier.durability.commit()
    frontier = harness.crash()
    no_robots(harness, "a", "b")
    found = {one.key: frontier.sites.cookies_of(one) for one in frontier.leases.claim("me", 9)}
    assert found["b"] is None
    assert found["a"] is not None and found["a"][1] == b"new"

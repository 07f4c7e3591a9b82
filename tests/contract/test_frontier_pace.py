"""Politeness by latency, on every frontier: a site that slows down is asked no more often than it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from harnesses import Harness, claim_one, cool, no_robots, page, pages, polite
from log_lines import log_lines

from weft.frontier.contract import CrawlLimits, End, EndedLease
from weft.frontier.politeness import PolitenessClock
from weft.records import Lease

TICK_S = 1 / 64  # an embedded frontier may be this much later than the time itself


def begin(make: Callable[..., Harness], **politeness: float) -> Harness:
    harness = make(**({"delay_s": 1.0} | politeness))
    harness.start()
    no_robots(harness, "a")
    harness.frontier.queue.admit(harness.crawl, pages("a", 80))
    return harness


def answer(harness: Harness, took_s: float | None) -> float:
    """One request; the delay that it was made with."""
    lease = claim_one(harness)
    cool(harness, lease, ok=took_s is not None, took_s=took_s)
    harness.frontier.leases.finish([EndedLease(lease, End.OTHER)])
    return lease.delay_s


def test_each_answer_sets_the_delay_that_the_rule_says_and_no_request_comes_before(
    make: Callable[..., Harness],
) -> None:
    harness, clock = begin(make, breaker_failures=99), PolitenessClock()
    times: Iterable[float | None] = (0.2, 0.2, 0.2, 3.0, 9.0, 20.0, None, 20.0, 0.2, 0.3, 0.2, 0.1, 0.2, 0.2, 0.2, 0.2)
    for took_s in times:
        due = clock.due_for(harness.section)
        if due > harness.time:
            harness.advance(due - harness.time - 0.001)
            assert harness.frontier.leases.claim("me", 1) == [], "before its time"
            harness.advance(0.001 + TICK_S)
        assert answer(harness, took_s) == pytest.approx(clock.delay_s(harness.section), abs=1e-4)
        clock.ended(harness.time)
        clock.took(took_s, harness.section)
    assert clock.delay_s(harness.section) == 1.0, "it is over"


def test_the_beginning_and_the_end_of_a_slow_time_are_logged_and_each_doubling(make: Callable[..., Harness]) -> None:
    harness = begin(make)
    with log_lines("weft.frontier.politeness") as lines:
        for took_s in (0.2, 9.0, 9.0, 9.0, 9.0, 9.0, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2):
            harness.advance(60.0)
            answer(harness, took_s)
        harness.frontier.durability.commit()
    told = [(message, round(float(str(fields["delay_s"])), 2)) for message, fields in lines]
    assert [message for message, _ in told] == ["site slowed", "site slowed", "site eased", "site eased"]
    assert told[0] == ("site slowed", 2.4) and told[-1] == ("site eased", 1.0)


def test_a_crawl_without_a_delay_is_not_slowed_and_one_beside_it_is(make: Callable[..., Harness]) -> None:
    harness = begin(make)
    eager = harness.frontier.crawls.open_crawl("eager", CrawlLimits(), polite(0.0))
    harness.frontier.queue.admit(eager, [page(f"http://a/eager-{number}") for number in range(9)])
    delays: dict[int, list[float]] = {harness.crawl: [], eager: []}
    for took_s in (0.2, 0.2, *[30.0] * 12):
        harness.advance(100.0)
        for lease in harness.frontier.leases.claim("me", 1):
            delays[lease.crawl].append(lease.delay_s)
            cool(harness, lease, ok=True, took_s=took_s)
            harness.frontier.leases.finish([EndedLease(lease, End.OTHER)])
    assert set(delays[eager]) == {0.0}
    assert delays[harness.crawl][0] == 1.0 < max(delays[harness.crawl])


@pytest.mark.parametrize("slow_s", [0.9, 8.0])
def test_small_times_and_what_was_always_slow_are_not_held_against_a_site(
    make: Callable[..., Harness], slow_s: float
) -> None:
    harness = begin(make)
    for took_s in (0.01 if slow_s < 1.0 else 8.0, *[slow_s] * 5):
        harness.advance(2.0)
        assert answer(harness, took_s) == 1.0


def test_a_site_with_several_requests_at_once_is_asked_as_often_as_it_answers_them(
    make: Callable[..., Harness],
) -> None:
    """25 articles of 2 s behind a quick front page take under 10 s; nothing is nearer than the delay."""
    harness = begin(make, delay_s=0.2, places=10)
    answer(harness, 0.01)
    began, starts, in_flight = harness.time, list[float](), list[tuple[float, Lease]]()
    while len(starts) < 25:
        harness.advance(0.05)
        for ends, lease in [one for one in in_flight if one[0] <= harness.time]:
            in_flight.remove((ends, lease))
            cool(harness, lease, ok=True, took_s=2.0)
            harness.frontier.leases.finish([EndedLease(lease, End.PAGE)])
        for lease in harness.frontier.leases.claim("me", 1):
            starts.append(harness.time)
            in_flight.append((harness.time + 2.0, lease))
    assert starts[-1] + 2.0 - began < 10.0
    assert min(after - before for before, after in pairwise(starts)) >= 0.2 - 1e-6


def test_a_site_that_has_one_request_at_once_again_is_asked_as_one(make: Callable[..., Harness]) -> None:
    harness = begin(make, delay_s=0.2, places=10)
    for took_s in (0.01, *[8.0] * 9):
        harness.advance(60.0)
        delay_s = answer(harness, took_s)
    assert 0.6 < delay_s < 0.8, "a tenth of what it takes"
    harness.advance(60.0)
    lease = claim_one(harness)
    cool(harness, lease, ok=True, took_s=8.0, slow_down=True)
    harness.frontier.leases.finish([EndedLease(lease, End.OTHER)])
    harness.advance(60.0)
    assert answer(harness, 8.0) > 12.0, "twice what it takes"


def test_a_site_that_takes_a_little_less_is_due_earlier_for_all_crawls(make: Callable[..., Harness]) -> None:
    harness, clock = begin(make, places=4), PolitenessClock()
    single = polite(1.0, places=1)
    other = harness.frontier.crawls.open_crawl("other", CrawlLimits(), single)
    for took_s in (0.2, 9.0, 9.0, 9.0):
        harness.advance(60.0)
        clock.started(harness.time)
        answer(harness, took_s)
        clock.ended(harness.time)
        clock.took(took_s, harness.section)
    harness.advance(60.0)
    clock.started(harness.time)
    long = claim_one(harness)
    harness.frontier.queue.admit(other, [page("http://a/other")])
    for took_s in (6.0, 0.1):
        harness.advance(took_s)
        cool(harness, long, ok=True, took_s=took_s)
        clock.ended(harness.time)
        clock.took(took_s, harness.section)
        if took_s > 1.0:
            clock.started(harness.time)
            long = claim_one(harness)
            assert long.crawl == harness.crawl, "it may have several requests at once"
            before = clock.due_for(single)
    due = clock.due_for(single)
    assert due < before - 1.0
    harness.frontier.crawls.pause(harness.crawl)
    harness.advance(due - harness.time - 0.01)
    assert harness.frontier.leases.claim("me", 1) == []
    harness.advance(0.01 + TICK_S)
    assert claim_one(harness).crawl == other


@pytest.mark.parametrize("in_trouble", [False, True])
def test_a_site_that_has_eased_to_a_crawls_own_delay_does_not_hold_up_one_with_less(
    make: Callable[..., Harness], in_trouble: bool
) -> None:
    times = 4.0 if in_trouble else 2.0  # how many times less the delay becomes
    harness = begin(make, delay_s=1.0)
    eager = harness.frontier.crawls.open_crawl("eager", CrawlLimits(), polite(0.5))
    for _ in range(int(times) // 2):
        lease = claim_one(harness)
        cool(harness, lease, slow_down=True, in_trouble=in_trouble)
        harness.frontier.leases.finish([EndedLease(lease, End.OTHER)])
        harness.advance(60.0)
    for _ in range(1 if in_trouble else 20):
        assert answer(harness, 0.1) == times
        harness.advance(60.0)
    harness.frontier.crawls.pause(harness.crawl)
    harness.frontier.queue.admit(eager, [page("http://a/eager")])
    assert claim_one(harness).delay_s == 0.5


def test_an_answer_that_nobody_has_timed_counts_as_a_quick_one(make: Callable[..., Harness]) -> None:
    harness = begin(make)
    lease = claim_one(harness)
    cool(harness, lease, ok=True)
    harness.frontier.leases.finish([EndedLease(lease, End.OTHER)])
    delays = []
    for _ in range(2):
        harness.advance(60.0)
        delays.append(answer(harness, 9.0))
    assert delays == pytest.approx([1.0, 2.25], abs=1e-4), "a quarter of nine seconds is much longer than nothing"

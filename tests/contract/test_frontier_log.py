"""What every frontier tells the log of a site: slowed and eased, its breaker opened and closed, given up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from harnesses import Harness, claim_one, cool, done, no_robots, page
from log_lines import Line, log_lines

from weft.frontier.contract import End, EndedLease


@pytest.fixture
def logged() -> Iterator[list[Line]]:
    """Every line about a site, in order."""
    with log_lines("weft.frontier.politeness") as lines:
        yield lines


def fail(harness: Harness) -> None:
    lease = claim_one(harness)
    cool(harness, lease, ok=False)
    harness.frontier.leases.finish([EndedLease(lease, End.OTHER)])


def begin(make: Callable[..., Harness], pages: int = 10, **politeness: float) -> Harness:
    harness = make(delay_s=1.0, **politeness)
    harness.start()
    no_robots(harness, "a")
    harness.frontier.queue.admit(harness.crawl, [page(f"http://a/{n}") for n in range(pages)])
    return harness


def test_a_breaker_that_opens_fails_its_probes_and_gives_the_site_up(
    make: Callable[..., Harness], logged: list[Line]
) -> None:
    harness = begin(make, breaker_failures=3, breaker_reset_s=300.0, breaker_max_probes=2)
    for wait_s in (1.1, 1.1, 1.1, 301, 301):
        harness.advance(wait_s)
        fail(harness)
    harness.frontier.rejected.rejections()
    assert logged == [
        ("breaker opened", {"site": "a", "reset_s": 300}),
        ("breaker probe failed", {"site": "a", "probes": 1}),
        ("breaker probe failed", {"site": "a", "probes": 2}),
        ("site given up", {"site": "a", "reason": "breaker", "urls": 5}),
    ]


def test_a_breaker_that_closes(make: Callable[..., Harness], logged: list[Line]) -> None:
    harness = begin(make, breaker_failures=2, breaker_reset_s=300.0)
    for wait_s in (1.1, 1.1, 301):
        harness.advance(wait_s)
        fail(harness)
    harness.advance(301)
    done(harness, claim_one(harness))
    harness.advance(1.1)
    done(harness, claim_one(harness))
    harness.frontier.durability.commit()
    assert logged == [
        ("breaker opened", {"site": "a", "reset_s": 300}),
        ("breaker probe failed", {"site": "a", "probes": 1}),
        ("breaker closed", {"site": "a", "probes": 1}),
    ]


def test_a_site_that_is_slowed_and_eased_again(make: Callable[..., Harness], logged: list[Line]) -> None:
    harness = begin(make, pages=100)
    lease = claim_one(harness)
    cool(harness, lease, slow_down=True)
    harness.frontier.leases.finish([EndedLease(lease, End.RETRY)])
    for _ in range(45):
        harness.advance(60)
        done(harness, claim_one(harness))
    harness.frontier.durability.commit()
    assert logged == [("site slowed", {"site": "a", "delay_s": 2}), ("site eased", {"site": "a", "delay_s": 1})]


def test_a_site_that_asks_for_too_long_a_wait(make: Callable[..., Harness], logged: list[Line]) -> None:
    harness = begin(make, pages=4, max_retry_after_s=600.0)
    cool(harness, claim_one(harness), slow_down=True, retry_after_s=3600.0)
    harness.frontier.rejected.rejections()
    slowed = {"site": "a", "delay_s": 2}
    given_up = {"site": "a", "reason": "retry-after", "urls": 3}
    assert sorted(logged, key=str) == [("site given up", given_up), ("site slowed", slowed)]


def test_nothing_is_logged_of_a_site_that_answers(make: Callable[..., Harness], logged: list[Line]) -> None:
    harness = begin(make)
    for _ in range(10):
        harness.advance(1.1)
        done(harness, claim_one(harness))
    harness.frontier.durability.commit()
    assert logged == []


def test_a_robots_txt_is_no_url_that_is_given_up_with_its_site(
    make: Callable[..., Harness], logged: list[Line]
) -> None:
    harness = make(delay_s=1.0, breaker_failures=1, breaker_reset_s=300.0, breaker_max_probes=1)
    frontier = harness.start()
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    for _ in range(2):
        robots = claim_one(harness)
        cool(harness, robots, ok=False)
        frontier.leases.finish([EndedLease(robots, End.RETRY)])
        harness.advance(301)
    assert frontier.leases.claim("me", 9) == [], "what is left of the site is its robots.txt"
    assert sorted(one.item.url for one in frontier.rejected.rejections()) == ["http://a/1", "http://a/2"]
    assert logged == [
        ("breaker opened", {"site": "a", "reset_s": 300}),
        ("breaker probe failed", {"site": "a", "probes": 1}),
        ("site given up", {"site": "a", "reason": "breaker", "urls": 2}),
    ]

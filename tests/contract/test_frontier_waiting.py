"""What a crawl waits for, and until when: every frontier names the cause, and none while it can work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harnesses import Harness, claim_one, cool, no_robots, page

from weft.frontier.contract import CrawlLimits, End, EndedLease

Make = Callable[..., Harness]
# Both servers take the same way through the code, and so does one that is killed; sites at rest take another.
pytestmark = pytest.mark.parametrize("make", ["embedded", "crowded", "redis"], indirect=True)


def waits(harness: Harness) -> tuple[str, float | None] | None:
    waiting = harness.frontier.status.waits_for(harness.crawl)
    if waiting is None:
        return None
    return waiting.cause, None if waiting.until is None else round(waiting.until - harness.frontier.now(), 1)


def started(make: Make, *paths: str, **politeness: float) -> Harness:
    harness = make(**politeness)
    frontier = harness.start(CrawlLimits())
    no_robots(harness, "a.example")
    frontier.queue.admit(harness.crawl, [page(f"http://a.example/{path}") for path in paths])
    return harness


def test_a_crawl_that_can_work_waits_for_nothing(make: Make) -> None:
    harness = started(make, "1", "2")
    assert waits(harness) is None, "something is due"
    lease = claim_one(harness)
    assert waits(harness) is None, "something is in flight"
    cool(harness, lease, ok=True)
    harness.frontier.leases.finish([EndedLease(lease, End.PAGE)])
    assert waits(harness) == ("politeness delay of a.example", 10.0)
    harness.advance(9.0)
    assert waits(harness) is None, "a second is not worth a message"


def test_a_paused_crawl_says_so(make: Make) -> None:
    harness = started(make, "1")
    harness.frontier.crawls.pause(harness.crawl)
    assert waits(harness) == ("paused", None)
    harness.frontier.crawls.pause(harness.crawl, False)
    assert waits(harness) is None


def test_a_retry_after_is_named_with_its_end(make: Make) -> None:
    harness = started(make, "1", "2")
    lease = claim_one(harness)
    cool(harness, lease, slow_down=True, retry_after_s=120.0)
    harness.frontier.leases.finish([EndedLease(lease, End.RETRY, 1.0)])
    assert waits(harness) == ("Retry-After of a.example", 120.0)


def test_a_breaker_is_named_with_its_end(make: Make) -> None:
    harness = started(make, "1", "2", delay_s=1.0, breaker_failures=1, breaker_reset_s=300.0)
    lease = claim_one(harness)
    cool(harness, lease, ok=False)
    harness.frontier.leases.finish([EndedLease(lease, End.RETRY, 1.0)])
    harness.advance(1.0)
    assert harness.frontier.leases.claim("me", 9) == []
    assert waits(harness) == ("circuit breaker of a.example", 299.0)


@pytest.mark.parametrize("wait_s", [30.0])
def test_what_is_tried_again_later_is_named(make: Make, wait_s: float) -> None:
    harness = started(make, "1", delay_s=1.0)
    lease = claim_one(harness)
    cool(harness, lease)
    harness.frontier.leases.finish([EndedLease(lease, End.RETRY, wait_s)])
    assert waits(harness) == ("retry of a failed request to a.example", wait_s)

"""Parts of rendered pages: what may be asked for now, and which clocks they move. Every frontier has the same rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harnesses import Harness, claim_one, cool, done, no_robots, page

from weft.frontier.contract import End, EndedLease
from weft.records import RenderedPart

Make = Callable[..., Harness]
pytestmark = pytest.mark.parametrize("make", ["embedded", "crowded", "redis"], indirect=True)
OTHER = "http://cdn.example.org"


def started(make: Make, **politeness: float) -> Harness:
    harness = make(**{"delay_s": 1.0} | politeness)
    harness.start()
    no_robots(harness, "example.com", "cdn.example.org")
    return harness


def asked(harness: Harness, *paths: str, ago_s: float = 0.0) -> None:
    at = harness.frontier.now() - ago_s
    parts = [RenderedPart(f"{OTHER}{path}", "Script", "200", at, at, True) for path in paths]
    harness.frontier.sites.asked(harness.crawl, parts)


def test_a_site_that_gave_a_part_of_a_page_is_due_a_delay_later(make: Make) -> None:
    harness = started(make)
    harness.frontier.queue.admit(harness.crawl, [page(f"{OTHER}/page")])
    asked(harness, "/app.js", "/data")
    harness.advance(0.9)
    assert not harness.frontier.leases.claim("me", 9), "the delay counts from the last part"
    harness.advance(0.2)
    done(harness, claim_one(harness))


def test_a_part_never_makes_a_site_due_earlier(make: Make) -> None:
    harness = started(make)
    harness.frontier.queue.admit(harness.crawl, [page(f"{OTHER}/1"), page(f"{OTHER}/2")])
    done(harness, claim_one(harness))
    asked(harness, "/old.js", ago_s=50.0)
    harness.advance(0.9)
    assert not harness.frontier.leases.claim("me", 9)
    harness.advance(0.2)
    assert len(harness.frontier.leases.claim("me", 9)) == 1


def test_nothing_is_asked_of_a_host_that_is_behind_a_breaker_or_asked_for_silence(make: Make) -> None:
    harness = started(make, breaker_failures=1, breaker_reset_s=100.0, max_retry_after_s=600.0)
    held = harness.frontier.sites.held
    assert held(harness.crawl, f"{OTHER}/x.js") == ""
    harness.frontier.queue.admit(harness.crawl, [page(f"{OTHER}/1"), page("http://example.com/1")])
    for lease in harness.frontier.leases.claim("me", 9):
        if "cdn." in lease.url:
            cool(harness, lease, ok=False)
        else:
            cool(harness, lease, ok=None, slow_down=True, retry_after_s=60.0)
        harness.frontier.leases.finish([EndedLease(lease, End.RETRY, 1.0)])
    assert held(harness.crawl, f"{OTHER}/x.js") == "breaker"
    assert held(harness.crawl, "http://example.com/x.js") == "retry-after"
    harness.advance(101.0)
    assert held(harness.crawl, f"{OTHER}/x.js") == "" == held(harness.crawl, "http://example.com/x.js")

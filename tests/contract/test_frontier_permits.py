"""Permits of a crawl on every frontier: one that is free goes to a site that can use it, and none is left waiting."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harnesses import ALLOW, EmbeddedHarness, Harness, claim_one, done, no_robots, page

from weft.frontier.contract import CrawlLimits, End, EndedLease, TransferEnd
from weft.records import Lease

Make = Callable[..., Harness]
MakeEmbedded = Callable[..., EmbeddedHarness]


def waiting_for_a_permit(harness: Harness, hosts: list[str]) -> tuple[Lease, list[str]]:
    """A page is out, the only one that may be; the other hosts wait."""
    frontier = harness.start(CrawlLimits(in_flight=1))
    no_robots(harness, *hosts)
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/") for host in hosts])
    out = claim_one(harness)
    assert frontier.leases.claim("me", 9) == []
    return out, [host for host in hosts if host != out.key]


def slow_down(harness: Harness, *hosts: str) -> None:
    for host in hosts:
        harness.frontier.sites.robots_known(f"http://{host}", ALLOW, 1000.0)


def is_due(harness: Harness) -> bool:
    """Whether a loop that sleeps until something is due would claim now."""
    due = harness.frontier.leases.next_due()
    return due is not None and due <= harness.frontier.now()


def claimed(harness: Harness) -> Lease | None:
    """What a loop claims now that asks for as long as something is due."""
    for _ in range(9):
        if not is_due(harness):
            return None
        if leases := harness.frontier.leases.claim("me", 9):
            return leases[0]
    raise AssertionError("it is said to be due, and is not given")


@pytest.mark.parametrize("pauses", [False, True])
def test_a_free_permit_goes_past_a_site_that_is_not_due_yet(make: Make, pauses: bool) -> None:
    harness = make(delay_s=0.0)
    out, (slow, *quick) = waiting_for_a_permit(harness, list("abcd"))
    if pauses:
        harness.frontier.crawls.pause(harness.crawl)
        done(harness, out)
        slow_down(harness, slow)
        harness.frontier.crawls.pause(harness.crawl, False)
    else:
        slow_down(harness, slow)
        done(harness, out)
    found = []
    while (lease := claimed(harness)) is not None:
        found.append(lease.key)
        assert harness.frontier.leases.claim("me", 9) == [], "one page may be out"
        done(harness, lease)
    assert sorted(found) == quick
    due = harness.frontier.leases.next_due()
    assert due is not None and harness.time + 999 < due < harness.time + 1001
    harness.advance(1001)
    assert claim_one(harness).key == slow


def test_a_site_that_slows_down_before_it_is_asked_leaves_its_permit_to_the_next(make: Make) -> None:
    harness = make(delay_s=0.0)
    out, (slow, *quick) = waiting_for_a_permit(harness, list("abc"))
    done(harness, out)
    slow_down(harness, slow)
    lease = claimed(harness)
    assert lease is not None and [lease.key] == quick


def test_as_many_go_on_as_permits_are_free_past_those_that_are_not_due(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start(CrawlLimits(in_flight=2))
    no_robots(harness, *"abcdef")
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/") for host in "abcdef"])
    out = frontier.leases.claim("me", 9)
    assert len(out) == 2 and frontier.leases.claim("me", 9) == []
    first, *slow, last = sorted(set("abcdef") - {lease.key for lease in out})
    slow_down(harness, *slow)
    frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True) for lease in out])
    assert frontier.leases.finish([EndedLease(lease, End.PAGE) for lease in out]) == [True, True]
    assert sorted(lease.key for lease in frontier.leases.claim("me", 9)) == [first, last]


def test_of_many_that_wait_for_a_permit_the_one_that_is_due_is_found_and_none_is_lost(make: Make) -> None:
    harness = make(delay_s=0.0)
    out, (*slow, quick) = waiting_for_a_permit(harness, [f"h{number:03}" for number in range(350)])
    slow_down(harness, *slow)
    done(harness, out)
    lease = claimed(harness)
    assert lease is not None and lease.key == quick
    done(harness, lease)
    assert claimed(harness) is None
    harness.advance(1001)
    found = []
    while (lease := claimed(harness)) is not None:
        found.append(lease.key)
        done(harness, lease)
    assert sorted(found) == slow


def test_where_nobody_waits_for_a_permit_any_more_nothing_is_due(make: Make) -> None:
    harness = make(delay_s=0.0)
    out, _ = waiting_for_a_permit(harness, list("abcd"))
    done(harness, out)
    for _ in range(3):
        lease = claimed(harness)
        assert lease is not None
        done(harness, lease)
    harness.frontier.leases.claim("me", 9)
    assert not is_due(harness)


def test_the_end_of_a_crawl_ends_its_wait_for_permits(make_embedded: MakeEmbedded) -> None:
    harness = make_embedded(delay_s=0.0)
    out, _ = waiting_for_a_permit(harness, list("abcd"))
    done(harness, out)
    assert is_due(harness)
    harness.frontier.crawls.close_crawl(harness.crawl)
    harness.frontier.leases.claim("me", 9)
    assert not is_due(harness)

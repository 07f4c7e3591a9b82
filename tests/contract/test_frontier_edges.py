"""The edges of the contract, on each kind of frontier: waits to the microsecond, limits at their last unit, a disk that
is full at the worst moment, and what a process knows before it has done anything."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest
from harnesses import ALLOW, Harness, claim_one, cool, done, no_robots, page, urls_of

from weft.errors import DiskFull
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord, SlotRequest, TransferEnd
from weft.frontier.politeness import MOST_EXTRA_DELAY_S
from weft.frontier.requests import RequestEnd, RequestStart, read_events, writing
from weft.records import Found, Lease, Purpose

# Both servers take the same way through the code, and so does one that is killed.
each = pytest.mark.parametrize("make", ["embedded", "redis"], indirect=True)
NARROW_S = 20e-6  # times are kept to the microsecond; the wheel of the embedded frontier has ticks of 1/128 s
TICK_S = 1 / 128


def due_exactly(harness: Harness, after_s: float, slack_s: float = TICK_S) -> list[Lease]:
    """Claims just before a moment, when nothing may come, and at it."""
    harness.advance(after_s - NARROW_S)
    assert urls_of(harness.frontier.leases.claim("me", 9)) == []
    harness.advance(NARROW_S + slack_s)
    return harness.frontier.leases.claim("me", 9)


def two_pages(harness: Harness) -> Lease:
    harness.start()
    no_robots(harness, "a")
    harness.frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    return claim_one(harness)


class _Os:
    """The operating system with another `write`."""

    def __init__(self, write: Callable[[int, bytes], int]) -> None:
        self.write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def release(harness: Harness, lease: Lease) -> None:
    assert harness.frontier.leases.finish([EndedLease(lease, End.RELEASE)]) == [True]


@each
def test_the_delay_is_kept_to_the_microsecond(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=333.25)
    done(harness, two_pages(harness))
    assert urls_of(due_exactly(harness, 333.25)) == ["http://a/2"]


@each
def test_the_delay_counts_from_the_end_that_is_told(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=300.0)
    lease = two_pages(harness)
    harness.advance(200.0)
    harness.frontier.leases.cool([TransferEnd(lease, harness.frontier.now() - 100.0, ok=True)])
    harness.frontier.leases.finish([EndedLease(lease, End.PAGE)])
    assert urls_of(due_exactly(harness, 200.0)) == ["http://a/2"]


@each
def test_a_crawl_delay_is_kept_to_the_microsecond(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0)
    lease = two_pages(harness)
    harness.frontier.sites.robots_known("http://a", RobotsRecord("allow", b"", 9e12), 444.5)
    done(harness, lease)
    assert urls_of(due_exactly(harness, 444.5)) == ["http://a/2"]


@each
def test_a_retry_after_is_kept_to_the_microsecond(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0, max_retry_after_s=600.0)
    lease = two_pages(harness)
    cool(harness, lease, slow_down=True, retry_after_s=555.5)
    harness.frontier.leases.finish([EndedLease(lease, End.RETRY)])
    assert urls_of(due_exactly(harness, 555.5)) == ["http://a/1"]


@each
@pytest.mark.parametrize(
    ("longest_s", "retry_after_s", "stays"), [(600.0, 600.0, True), (600.0, 600.01, False), (0.5, None, True)]
)
def test_only_a_retry_after_beyond_the_longest_gives_a_site_up(
    make: Callable[..., Harness], longest_s: float, retry_after_s: float | None, stays: bool
) -> None:
    harness = make(delay_s=1.0, max_retry_after_s=longest_s)
    lease = two_pages(harness)
    cool(harness, lease, slow_down=True, retry_after_s=retry_after_s)
    assert [one.item.url for one in harness.frontier.rejected.rejections()] == ([] if stays else ["http://a/2"])


@each
def test_a_retry_waits_to_the_microsecond(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0)
    harness.start()
    no_robots(harness, "a")
    harness.frontier.queue.admit(harness.crawl, [page("http://a/1")])
    lease = claim_one(harness)
    cool(harness, lease, ok=True)
    harness.frontier.leases.finish([EndedLease(lease, End.RETRY, 222.5)])
    (again,) = due_exactly(harness, 222.5)
    assert (again.url, again.attempt) == ("http://a/1", 1)


@each
def test_a_short_wait_of_a_retry_is_no_longer_after_a_crash(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    lease = claim_one(harness)
    cool(harness, lease, ok=False)
    frontier.leases.finish([EndedLease(lease, End.RETRY, wait_s=0.25)])
    frontier.durability.commit()
    frontier = harness.crash()
    assert frontier.leases.claim("me", 9) == []
    harness.advance(0.25)
    assert claim_one(harness).attempt == 1


def test_a_lease_ends_to_the_microsecond(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, lease_s=250.5)
    lease = two_pages(harness)
    assert lease.deadline == pytest.approx(harness.time + 250.5, abs=NARROW_S)
    # A process that found nothing does not ask its server again at once.
    assert urls_of(due_exactly(harness, 250.5, slack_s=5.0)) == ["http://a/1"]


@each
def test_an_open_breaker_waits_to_the_microsecond(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, breaker_failures=1, breaker_reset_s=350.5)
    lease = two_pages(harness)
    cool(harness, lease, ok=False)
    harness.frontier.leases.finish([EndedLease(lease, End.RETRY)])
    assert urls_of(due_exactly(harness, 350.5)) == ["http://a/1"]


@each
def test_a_robots_txt_and_a_page_that_fail_are_two_failures(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0, breaker_failures=2, breaker_reset_s=300.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    failed = claim_one(harness)
    cool(harness, failed, ok=False)
    frontier.leases.finish([EndedLease(failed, End.OTHER)])
    frontier.sites.robots_known("http://a", RobotsRecord("allow", b"", harness.wall + 1.0), None)
    frontier.queue.admit(harness.crawl, [page("http://a/2")])
    harness.advance(2.0)
    robots = claim_one(harness)
    assert robots.item < 0 < failed.item, "numbers that may differ in their sign alone"
    cool(harness, robots, ok=False)
    frontier.leases.finish([EndedLease(robots, End.RETRY)])
    harness.advance(299.0)
    assert frontier.leases.claim("me", 9) == [], "its breaker is open"
    harness.advance(1.0)
    assert claim_one(harness).url == "http://a/robots.txt"


@each
def test_a_robots_txt_is_in_force_until_the_moment_it_expires(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start()
    frontier.sites.robots_known("http://a", RobotsRecord("allow", b"", harness.wall + 100.0), None)
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2"), page("http://a/3")])
    harness.advance(99.9)
    (lease,) = frontier.leases.claim("me", 1)
    assert lease.url == "http://a/1"
    harness.advance(0.2)
    assert urls_of(frontier.leases.claim("me", 1)) == ["http://a/robots.txt"]


@each
def test_a_slowed_site_waits_twice_as_long_each_time_up_to_a_minute(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=8.0, places=3)
    harness.start()
    no_robots(harness, "a")
    harness.frontier.queue.admit(harness.crawl, [page(f"http://a/{number}") for number in range(9)])
    waits = []
    for _ in range(5):
        (lease, *others) = harness.frontier.leases.claim("me", 9)
        assert others == []
        cool(harness, lease, slow_down=True)
        harness.frontier.leases.finish([EndedLease(lease, End.PAGE)])
        due = harness.frontier.leases.next_due()
        harness.frontier.leases.claim("me", 9)
        due = harness.frontier.leases.next_due()
        assert due is not None
        waits.append(round(due - harness.time, 1))
        harness.advance(waits[-1] + TICK_S)
    assert waits == [16.0, 32.0, MOST_EXTRA_DELAY_S, MOST_EXTRA_DELAY_S, MOST_EXTRA_DELAY_S]


def waits_for_a_lease(harness: Harness) -> tuple[float, Lease]:
    """How long nothing is due, and what is then. A frontier may name a time that turns out to be too early."""
    began = harness.time
    while not (leases := harness.frontier.leases.claim("me", 9)):
        due = harness.frontier.leases.next_due()
        assert due is not None
        harness.advance(max(TICK_S, due - harness.time + TICK_S))
    (lease,) = leases
    return harness.time - began, lease


@each
def test_a_site_whose_fault_has_passed_is_asked_as_before_after_a_few_answers(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0)
    harness.start()
    no_robots(harness, "a")
    harness.frontier.queue.admit(harness.crawl, [page(f"http://a/{number}") for number in range(20)])
    _, lease = waits_for_a_lease(harness)
    waits: list[float] = []
    for facts in (*[{"ok": False, "slow_down": True, "in_trouble": True}] * 4, *[{"ok": True}] * 4):
        cool(harness, lease, **facts)
        harness.frontier.leases.finish([EndedLease(lease, End.PAGE)])
        harness.frontier.sites.robots_known("http://a", ALLOW, (len(waits) + 1) / 10)  # a shorter delay changes nothing
        wait_s, lease = waits_for_a_lease(harness)
        waits.append(wait_s)
    # A shorter delay counts from the next request on.
    assert waits == pytest.approx([2.0, 4.0, 8.0, 16.0, 16.0, 4.0, 1.0, 1.0], abs=0.5)


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@each
def test_a_crawl_that_may_have_no_page_gets_none(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0)
    harness.start(CrawlLimits(max_pages=3))
    no_robots(harness, "a", "b")
    harness.frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://b/1")])
    assert harness.frontier.permits.left(harness.crawl) == 3
    harness.frontier.permits.allow(harness.crawl, 0)
    assert harness.frontier.permits.left(harness.crawl) == 0
    assert urls_of(harness.frontier.leases.claim("me", 9)) == []
    harness.frontier.permits.allow(harness.crawl, 1)
    harness.advance(1.0)
    assert len(harness.frontier.leases.claim("me", 9)) == 1
    assert harness.frontier.permits.left(harness.crawl) == 0


@each
def test_a_crawl_without_a_limit_has_more_permits_than_anyone_claims(make: Callable[..., Harness]) -> None:
    harness = make()
    harness.start()
    assert harness.frontier.permits.left(harness.crawl) >= 10**8
    assert not harness.frontier.permits.exhausted()


@each
def test_nothing_that_is_admitted_changes_nothing(make: Callable[..., Harness]) -> None:
    harness = make()
    harness.start()
    before = harness.frontier.status.stats()
    admitted = harness.frontier.queue.admit(harness.crawl, [])
    assert (admitted.new, admitted.duplicates, admitted.expand) == (0, 0, ())
    assert harness.frontier.status.stats() == before
    assert harness.frontier.leases.cool([]) is None
    assert harness.frontier.leases.finish([]) == []
    assert harness.frontier.leases.claim("me", 0) == []


# ── a full disk ────────────────────────────────────────────────────────────────────────────────────────────────────


@each
def test_what_was_claimed_when_the_disk_was_full_is_given_back(
    make: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = make()
    frontier = harness.start()
    no_robots(harness, "a", "b")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://b/1")])
    frontier.durability.commit()

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(writing, "os", _Os(full))
        with pytest.raises(DiskFull):
            frontier.leases.claim("me", 9)
    assert (frontier.status.stats().leased, frontier.status.stats().queued) == (0, 2)
    harness.advance(1.0)
    again = frontier.leases.claim("me", 9)
    assert sorted((lease.url, lease.attempt) for lease in again) == [("http://a/1", 0), ("http://b/1", 0)], (
        "nothing was sent: no site has to wait"
    )


@each
def test_an_end_that_found_the_disk_full_is_logged_when_there_is_room(
    make: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = make()
    lease = two_pages(harness)
    frontier = harness.frontier

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(writing, "os", _Os(full))
        cool(harness, lease, ok=True, outcome="200")
        with pytest.raises(DiskFull):
            frontier.durability.commit()
    frontier.durability.commit()
    ends = [event for event in read_events(harness.folder / "requests") if isinstance(event, RequestEnd)]
    assert [(event.item, event.status) for event in ends] == [(lease.item, "200")]


# ── attempts and places ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("make", ["checkpointed", "embedded", "redis"], indirect=True)
def test_a_page_whose_batch_was_lost_comes_back_with_its_attempts(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    for _ in range(2):
        lease = claim_one(harness)
        cool(harness, lease, ok=True)
        frontier.leases.finish([EndedLease(lease, End.RETRY)])
        harness.advance(1.0)
    lease = claim_one(harness)
    cool(harness, lease, ok=True)
    assert frontier.leases.finish([EndedLease(lease, End.PAGE)], 7) == [True]
    frontier.durability.commit()
    harness.crash()
    no_robots(harness, "a")
    harness.advance(60.0)
    again = claim_one(harness)
    assert (again.url, again.attempt) == ("http://a/1", 2)


@pytest.mark.parametrize("make", ["checkpointed", "embedded", "redis"], indirect=True)
def test_a_page_whose_batch_was_lost_does_not_count_for_its_domain(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start(CrawlLimits(max_pages_per_domain=1, max_pages=1))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    lease = claim_one(harness)
    cool(harness, lease, ok=True)
    frontier.leases.finish([EndedLease(lease, End.PAGE)], 7)
    harness.advance(1.0)
    assert urls_of(frontier.leases.claim("me", 9)) == []
    frontier.durability.commit()
    harness.crash()
    no_robots(harness, "a")
    harness.advance(60.0)
    assert claim_one(harness).url == "http://a/1"
    harness.advance(1.0)
    assert urls_of(harness.frontier.leases.claim("me", 9)) == []


SUBDOMAINS = ("a.com", "www.a.com", "x.a.com", "y.a.com", "x.y.a.com", "a.com:8080", "x.a.com:8080")
LONG_HOST = ".".join(["a" * 49] * 5)


@each
@pytest.mark.parametrize(
    "origins",
    [
        pytest.param([f"{scheme}://{host}" for scheme in ("http", "https") for host in SUBDOMAINS], id="many"),
        pytest.param([f"https://{LONG_HOST}:44{number}" for number in range(2)], id="longer than 255 bytes"),
    ],
)
def test_every_origin_of_a_site_is_asked_for_its_own_robots_txt(
    make: Callable[..., Harness], origins: list[str]
) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    frontier.queue.admit(harness.crawl, [page(f"{origin}/{number}") for number in range(2) for origin in origins])
    asked = []
    for _ in range(3 * len(origins)):
        lease = claim_one(harness)
        asked.append(lease.url)
        done(harness, lease, End.OTHER)
        if lease.purpose is Purpose.ROBOTS:
            frontier.sites.robots_known(lease.about, RobotsRecord("allow", b"", 9e12), None)
        harness.advance(1.0)
    names = [f"{origin}/{name}" for name in ("robots.txt", "0", "1") for origin in origins]
    assert sorted(asked) == sorted(names), "each once"


@each
def test_a_robots_txt_that_failed_while_its_crawl_was_paused_keeps_its_attempts_and_its_wait(
    make: Callable[..., Harness],
) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    robots = claim_one(harness)
    frontier.crawls.pause(harness.crawl)
    cool(harness, robots, ok=True)
    frontier.leases.finish([EndedLease(robots, End.RETRY, 100.0)])
    frontier.crawls.pause(harness.crawl, False)
    harness.advance(99.9)
    assert urls_of(frontier.leases.claim("me", 9)) == []
    harness.advance(0.2)
    again = claim_one(harness)
    assert (again.url, again.attempt) == ("http://a/robots.txt", 1)


@each
def test_a_place_that_was_refused_is_logged_as_not_asked(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="ip")
    frontier = harness.start()
    no_robots(harness, "a", "b")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://b/1")])
    harness.advance(10.0)
    leases = frontier.leases.claim("me", 9)
    assert len(leases) == 2
    assert frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1", 0.0) for lease in leases]) == [True, False]
    events = [
        event for event in read_events(harness.folder / "requests") if isinstance(event, RequestStart | RequestEnd)
    ]
    assert [(event.item, event.status) for event in events if isinstance(event, RequestEnd)] == [
        (leases[1].item, "unasked")
    ]
    assert frontier.leases.finish([EndedLease(leases[1], End.PAGE)]) == [False], "the lease is over"
    release(harness, leases[0])


@each
def test_a_host_that_moves_to_another_address_goes_on_there(make: Callable[..., Harness]) -> None:
    """Its old address is full, so it waits for nothing there; at the new one is room."""
    harness = make(key_scope="ip", delay_s=0.0, places=2)
    frontier = harness.start()
    no_robots(harness, "x", "h")
    frontier.queue.admit(harness.crawl, [page("http://x/1"), *(page(f"http://h/{number}") for number in range(4))])
    first = {}
    for _ in range(9):
        harness.advance(1.0)
        for lease in frontier.leases.claim("me", 1):
            if frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1", 0.0)]) == [True]:
                first[lease.url] = lease
    assert len(first) == 2, "as many as the address has places"
    mine = next(lease for url, lease in first.items() if url.startswith("http://h/"))
    done(harness, mine)
    moved = set()
    for _ in range(9):
        harness.advance(1.0)
        for lease in frontier.leases.claim("me", 1):
            if frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.2", 0.0)]) == [True]:
                moved.add(lease.url)
    assert len(moved) == 2, moved


@each
def test_a_place_at_an_address_that_a_host_has_left_goes_to_who_waits_there(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="ip", delay_s=0.0, places=2)
    frontier = harness.start()
    no_robots(harness, "h", "y", "x")
    old, new = "192.0.2.1", "192.0.2.2"

    def granted(address: str) -> Lease | None:
        """The first lease that gets its place there, within a while."""
        for _ in range(5):
            harness.advance(1.0)
            for lease in frontier.leases.claim("me", 1):
                if frontier.leases.claim_slots([SlotRequest(lease, address, 0.0)]) == [True]:
                    return lease
        return None

    frontier.queue.admit(harness.crawl, [page("http://h/1"), page("http://h/2")])
    first = granted(old)
    assert first is not None and granted(new) is not None
    frontier.queue.admit(harness.crawl, [page("http://y/1")])
    assert granted(old) is not None
    frontier.queue.admit(harness.crawl, [page("http://x/1")])
    assert granted(old) is None, "both places are taken"
    done(harness, first)
    last = granted(old)
    assert last is not None and last.url == "http://x/1"


@each
def test_one_that_has_waited_long_is_next_from_the_very_moment_of_its_retry_on(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), harness.section)
    frontier.queue.admit(harness.crawl, [page(f"http://a/{number}") for number in range(5)])
    frontier.queue.admit(other, [page("http://a/again")])
    done(harness, claim_one(harness))
    harness.advance(1.0)
    failed = claim_one(harness)
    assert failed.crawl == other
    cool(harness, failed)
    frontier.leases.finish([EndedLease(failed, End.RETRY, wait_s=20.0)])
    harness.advance(5.0)
    done(harness, claim_one(harness))
    harness.advance(15.0)
    assert claim_one(harness).crawl == other


@each
def test_the_next_claim_can_be_told_before_and_after_there_is_something(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=50.0)
    frontier = harness.start()
    frontier.leases.claim("me", 9)
    assert frontier.leases.next_due() is None
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    due = frontier.leases.next_due()
    assert due is not None and due <= harness.time
    done(harness, claim_one(harness))
    assert urls_of(frontier.leases.claim("me", 9)) == []
    due = frontier.leases.next_due()
    assert due == pytest.approx(harness.time + 50.0, abs=TICK_S)


@pytest.mark.parametrize("hops", [0, 1])
@each
def test_a_shorter_way_counts_whether_it_is_a_link_or_a_redirect(make: Callable[..., Harness], hops: int) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start(CrawlLimits(max_depth=9))
    no_robots(harness, "a", "b")
    about = "http://a/from" if hops else ""
    frontier.queue.admit(harness.crawl, [page("http://a/1", 5), page("http://b/1", 5)])
    frontier.queue.admit(harness.crawl, [Found("http://a/1", 2, 7, hops=hops, about=about)])
    frontier.queue.admit(harness.crawl, [Found("http://b/1", 7, 7, hops=hops, about=about)])
    leases = {lease.url: lease for lease in frontier.leases.claim("me", 9)}
    assert {url: lease.depth for url, lease in leases.items()} == {"http://a/1": 2, "http://b/1": 5}
    assert (leases["http://a/1"].hops, leases["http://a/1"].about) == (hops, about), "as it was found last"
    item = leases["http://a/1"].item
    done(harness, leases["http://a/1"])
    nearer = frontier.queue.admit(harness.crawl, [Found("http://a/1", 1, 7, hops=hops, about=about)])
    assert (nearer.new, nearer.duplicates, nearer.expand) == (0, 1, ((item, "http://a/1", 1),))
    harness.advance(1.0)
    assert urls_of(frontier.leases.claim("me", 9)) == [], "it was fetched already"


@each
def test_a_note_and_a_key_are_the_frontiers_own(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="domain")
    frontier = harness.start()
    assert frontier.sites.key_of("https://www.shop.example.com:8443/x?y") == "example.com"
    assert frontier.notes.note("word") == ""
    assert frontier.notes.note("word", "first") == "first"
    frontier.durability.commit()
    assert frontier.notes.note("word") == "first"
    frontier = harness.crash()
    assert frontier.notes.note("word") == "first"


@each
def test_sitemaps_and_redirects_are_seen_apart_from_pages(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    url = "http://a/x"
    first: list[Any] = [Found(url, 0), Found(url, 0, purpose=Purpose.SITEMAP), Found(url, 0, hops=1, about=url)]
    assert frontier.queue.admit(harness.crawl, first).new == 3
    assert frontier.queue.admit(harness.crawl, first).new == 0
    assert frontier.queue.admit(harness.crawl, [Found(url, 0, hops=2, about=f"http://a/y {url}")]).new == 1
    assert frontier.queue.admit(harness.crawl, [Found(url, 0, hops=2, about="http://a/xx")]).new == 0, (
        "not in its chain"
    )


def test_what_is_not_new_hides_nothing_that_comes_with_it(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start(CrawlLimits(max_sitemaps=1))
    maps = [Found(f"http://a/{n}.xml", 0, purpose=Purpose.SITEMAP, about="http://a") for n in range(2)]
    robots = Found("http://a/moved/robots.txt", 0, hops=1, purpose=Purpose.ROBOTS, about="http://a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), maps[0]])
    admitted = frontier.queue.admit(harness.crawl, [page("http://a/1"), robots, maps[1], page("http://a/2")])
    assert (admitted.new, admitted.duplicates, frontier.status.stats().queued) == (1, 1, 4)


@each
def test_what_the_frontier_asks_for_by_itself_is_no_hop_outside_the_scope(make: Callable[..., Harness]) -> None:
    harness = make()
    harness.start()
    harness.frontier.queue.admit(harness.crawl, [Found("https://a.test/1", 3, 7, offsite=2)])
    (robots,) = harness.frontier.leases.claim("me", 9)
    assert (robots.url, robots.purpose, robots.offsite) == ("https://a.test/robots.txt", Purpose.ROBOTS, 0)
    (item,) = harness.frontier.queue.items(harness.crawl)
    assert (item.depth, item.parent, item.offsite) == (3, 7, 2)

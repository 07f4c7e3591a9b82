"""Circuit breakers: of one host and port each, and never for ever. Every frontier has the same rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harnesses import Harness, claim_one, cool, done, no_robots, page

from weft.frontier.contract import End, EndedLease, RobotsRecord
from weft.records import Found, Lease, Purpose, Reason

Make = Callable[..., Harness]
# Both servers take the same way through the code, and so does one that is killed; sites at rest take another.
pytestmark = pytest.mark.parametrize("make", ["embedded", "crowded", "redis"], indirect=True)
SOON = {"delay_s": 1.0, "breaker_failures": 2, "breaker_reset_s": 300.0, "breaker_max_probes": 2}
DEAD, WELL = "http://dead.example.com", "http://well.example.com"


def started(make: Make, *urls: str, **politeness: float) -> Harness:
    """One site with hosts of which one is dead."""
    harness = make(**SOON | politeness)
    harness.start()
    no_robots(harness, "dead.example.com", "well.example.com", "example.com:8080")
    harness.frontier.queue.admit(harness.crawl, [page(url) for url in urls])
    return harness


def fail(harness: Harness, lease: Lease, end: End = End.OTHER) -> None:
    cool(harness, lease, ok=False)
    harness.frontier.leases.finish([EndedLease(lease, end, 1.0)])


def served(harness: Harness, turns: int) -> list[str]:
    """What is asked turn by turn: the dead host fails, the others answer."""
    asked = []
    for _ in range(turns):
        for lease in harness.frontier.leases.claim("me", 9):
            asked.append(lease.url)
            if lease.url.startswith(DEAD):
                fail(harness, lease)
            else:
                done(harness, lease)
        harness.advance(1.0)
    return asked


def test_a_dead_host_holds_up_none_of_its_neighbours(make: Make) -> None:
    dead, well = [f"{DEAD}/{number}" for number in range(8)], [f"{WELL}/{number}" for number in range(4)]
    harness = started(make, *dead, *well)
    assert served(harness, 20) == [*dead[:2], *well], "two failures open its breaker, the others go on at the delay"
    assert harness.frontier.status.stats().queued == 6
    harness.advance(300.0)
    assert len(served(harness, 20)) == 1, "one probe"
    harness.frontier.queue.admit(harness.crawl, [page(f"{WELL}/late"), page("http://example.com:8080/late")])
    assert served(harness, 20) == [f"{WELL}/late", "http://example.com:8080/late"], "what is found meanwhile"
    harness.advance(300.0)
    assert len(served(harness, 5)) == 1
    rejected = harness.frontier.rejected.rejections()
    assert {(one.item.url.rpartition("/")[0], one.reason) for one in rejected} == {(DEAD, Reason.BREAKER)}
    assert len(rejected) == 4 and harness.frontier.status.stats().queued == 0


@pytest.mark.parametrize(("outcome", "cause"), [("503", "HTTP 503"), ("timeout", "timeout"), ("", "")])
def test_what_is_rejected_with_a_dead_host_names_its_last_failure(make: Make, outcome: str, cause: str) -> None:
    harness = started(make, *(f"{DEAD}/{number}" for number in range(5)), breaker_failures=1, breaker_max_probes=1)
    for _ in range(2):
        (lease,) = harness.frontier.leases.claim("me", 9)
        cool(harness, lease, ok=False, outcome=outcome)
        harness.frontier.leases.finish([EndedLease(lease, End.RETRY, 1.0)])
        harness.advance(300.0)
    rejected = harness.frontier.rejected.rejections()
    assert len(rejected) == 5, "the probe too"
    assert {(one.reason, one.detail) for one in rejected} == {(Reason.BREAKER, cause)}


def test_what_is_far_behind_urls_of_a_dead_host_is_found(make: Make) -> None:
    harness = started(make, *(f"{DEAD}/{number}" for number in range(200)), f"{WELL}/1")
    assert f"{WELL}/1" in served(harness, 30)


def test_each_port_of_a_host_has_its_own_breaker(make: Make) -> None:
    harness = started(make, *(f"{DEAD}/{number}" for number in range(3)), *(f"{DEAD}:8080/{n}" for n in range(3)))
    harness.frontier.sites.robots_known(f"{DEAD}:8080", RobotsRecord("allow", b"", 9e12), None)
    asked = []
    for _ in range(9):
        for lease in harness.frontier.leases.claim("me", 9):
            asked.append(lease.url)
            (done if ":8080" in lease.url else fail)(harness, lease)
        harness.advance(1.0)
    assert asked == [f"{DEAD}/0", f"{DEAD}/1", *(f"{DEAD}:8080/{number}" for number in range(3))]


def test_what_was_in_flight_when_a_breaker_opened_is_no_probe(make: Make) -> None:
    harness = started(make, *(f"{DEAD}/{number}" for number in range(9)), delay_s=0.0, places=6)
    leases = harness.frontier.leases.claim("me", 6)
    assert len(leases) == 6
    for lease in leases:
        fail(harness, lease)
    assert harness.frontier.rejected.rejections() == [], (
        "six failures at one moment are not two that open it and four probes"
    )
    harness.advance(299.0)
    assert harness.frontier.leases.claim("me", 9) == []
    harness.advance(1.0)
    probe = claim_one(harness)
    assert harness.frontier.leases.claim("me", 9) == [], "one at a time"
    done(harness, probe)
    assert len(harness.frontier.leases.claim("me", 9)) == 2


def test_a_probe_that_was_not_sent_is_made_by_the_next(make: Make) -> None:
    harness = started(make, *(f"{DEAD}/{number}" for number in range(4)))
    for _ in range(2):
        fail(harness, claim_one(harness))
        harness.advance(1.0)
    harness.advance(300.0)
    given_back = claim_one(harness)
    harness.frontier.leases.finish([EndedLease(given_back, End.RELEASE)])
    harness.advance(1.0)
    fail(harness, claim_one(harness))
    harness.advance(301.0)
    expired = claim_one(harness)
    harness.advance(harness.section.lease_s + 2.0)
    assert harness.frontier.leases.claim("me", 9) == [], "it may have been sent just now"
    harness.advance(1.0)
    assert claim_one(harness).url == expired.url


def test_what_is_tried_again_of_other_hosts_does_not_wait_behind_a_breaker(make: Make) -> None:
    harness = started(make, f"{DEAD}/1", f"{DEAD}/2", f"{WELL}/1", breaker_failures=1)
    fail(harness, claim_one(harness), End.RETRY)
    harness.advance(1.0)
    retried = claim_one(harness)
    assert retried.url == f"{WELL}/1"
    cool(harness, retried, ok=True)
    harness.frontier.leases.finish([EndedLease(retried, End.RETRY, 30.0)])
    harness.advance(29.0)
    assert harness.frontier.leases.claim("me", 9) == []
    harness.advance(1.0)
    assert claim_one(harness).url == f"{WELL}/1"


def test_a_breaker_is_there_after_a_restart_and_holds_its_own_host_alone(make: Make) -> None:
    harness = started(make, *(f"{DEAD}/{number}" for number in range(4)))
    for _ in range(2):
        lease = claim_one(harness)
        fail(harness, lease)
        harness.advance(1.0)
    harness.frontier.durability.commit()
    harness.crash()
    harness.frontier.queue.admit(harness.crawl, [page(f"{WELL}/1")])
    harness.advance(60.0)
    well = claim_one(harness)
    assert well.url == f"{WELL}/1"
    done(harness, well)
    harness.advance(250.0)
    assert claim_one(harness).url.startswith(DEAD), "its time has come"


def test_a_robots_txt_that_a_redirect_led_to_a_dead_host_cannot_be_had(make: Make) -> None:
    """Or those who wait for it would be led there again and again, and their crawl had no end."""
    harness = make(**SOON | {"breaker_failures": 1, "breaker_max_probes": 1})
    frontier = harness.start()
    no_robots(harness, "dead.example.com")
    frontier.queue.admit(harness.crawl, [page(f"{WELL}/1")])
    robots = claim_one(harness)
    assert robots.url == f"{WELL}/robots.txt"
    led = Found(f"{DEAD}/robots.txt", 0, robots.parent, 1, Purpose.ROBOTS, WELL)
    frontier.queue.admit(harness.crawl, [led])
    cool(harness, robots, ok=True)
    frontier.leases.finish([EndedLease(robots, End.OTHER)])
    harness.advance(1.0)
    for _ in range(2):
        lease = claim_one(harness)
        assert lease.url == f"{DEAD}/robots.txt"
        fail(harness, lease, End.RETRY)
        harness.advance(301.0)
    frontier.rejected.rejections()
    assert claim_one(harness).url == f"{WELL}/1", "it is given out, to be refused with the reason"
    record = frontier.sites.robots(WELL)
    assert record is not None and record.status == "unreachable"


@pytest.mark.parametrize("path", ["/1", "/robots.txt"])
def test_no_retry_waits_longer_than_the_settings_allow(make: Make, path: str) -> None:
    """A robots.txt that answers 503 with a Retry-After of centuries held its pages back for as long."""
    harness = make(**SOON)
    frontier = harness.start()
    if path != "/robots.txt":
        no_robots(harness, "well.example.com")
    frontier.queue.admit(harness.crawl, [page(f"{WELL}/1")])
    lease = claim_one(harness)
    assert lease.url == WELL + path
    cool(harness, lease)
    frontier.leases.finish([EndedLease(lease, End.RETRY, 9_999_999_999.0)])
    harness.advance(659.0)
    assert frontier.leases.claim("me", 9) == []
    harness.advance(1.0)
    assert claim_one(harness).url == WELL + path


def test_a_failed_robots_txt_of_a_clock_that_was_ahead_is_asked_for_again(make: Make) -> None:
    harness = make(**SOON)
    frontier = harness.start()
    harness.wall += 86400.0 * 365
    frontier.sites.robots_known(WELL, RobotsRecord("unreachable", b"", harness.wall + 600.0), None)
    frontier.queue.admit(harness.crawl, [page(f"{WELL}/1")])
    frontier.durability.commit()
    harness.wall -= 86400.0 * 365
    harness.crash()
    harness.advance(601.0)
    assert claim_one(harness).url == f"{WELL}/robots.txt"


@pytest.mark.parametrize("waits", ["retry-after", "breaker"])
def test_a_time_that_was_written_while_the_clock_was_ahead_stalls_nothing(make: Make, waits: str) -> None:
    harness = started(make, f"{DEAD}/1", f"{DEAD}/2", breaker_failures=1)
    harness.wall += 86400.0 * 365
    lease = claim_one(harness)
    if waits == "breaker":
        cool(harness, lease, ok=False)
    else:
        cool(harness, lease, slow_down=True, retry_after_s=400.0)
    harness.frontier.leases.finish([EndedLease(lease, End.RETRY, 400.0)])
    harness.frontier.durability.commit()
    harness.wall -= 86400.0 * 365
    frontier = harness.crash()
    assert frontier.leases.claim("me", 9) == []
    harness.advance(601.0)
    assert len(frontier.leases.claim("me", 9)) == 1


def test_a_long_queue_of_a_host_that_is_given_up_is_rejected_whole_and_nothing_else(make: Make) -> None:
    dead = [f"{DEAD}/{number}" for number in range(2100)]
    harness = started(make, *dead, f"{WELL}/1", breaker_failures=1, breaker_max_probes=1)
    frontier, asked, rejected = harness.frontier, [], []
    for _ in range(60):
        for lease in frontier.leases.claim("me", 9):
            asked.append(lease.url)
            (fail if lease.url.startswith(DEAD) else done)(harness, lease)
        while some := frontier.rejected.rejections():
            frontier.rejected.end_stored([one.item.item for one in some])
            rejected += [one.item.url for one in some]
        harness.advance(301.0 if len(asked) == 1 else 1.0)
    assert sorted(asked) == sorted([*dead[:1], f"{WELL}/1", *(set(dead[1:]) - set(rejected))])
    assert len(rejected) == 2098 and frontier.status.stats().queued == 0

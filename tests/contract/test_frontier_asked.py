"""What a request has beyond its URL, on every frontier that keeps it: it comes out with the lease, survives a kill, is
known by its key, comes in the order of its priority, and is not sent twice where that must not be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harnesses import Harness, claim_one, cool, done, no_robots, page, urls_of

from weft.frontier.contract import CrawlLimits, End, EndedLease
from weft.records import Found, Lease, Reason

URL = "http://a/form"


def asked(request: bytes = b"POST 1", key: str = "post-1", url: str = URL, priority: int = 0) -> Found:
    return Found(url, 1, request=request, key=key, priority=priority)


def started(harness: Harness, limits: CrawlLimits | None = None) -> Harness:
    harness.start(limits)
    no_robots(harness, "a")
    return harness


def next_lease(harness: Harness) -> Lease:
    harness.advance(20.0)
    return claim_one(harness)


def test_a_request_comes_out_with_its_lease(make_embedded: Callable[..., Harness]) -> None:
    harness = started(make_embedded())
    harness.frontier.queue.admit(harness.crawl, [asked(priority=1), Found("http://a/2", 1)])
    lease = claim_one(harness)
    assert (lease.url, lease.request, lease.depth) == (URL, b"POST 1", 1)
    done(harness, lease)
    assert next_lease(harness).request == b""


def test_a_request_survives_a_kill(make_embedded: Callable[..., Harness]) -> None:
    harness = started(make_embedded())
    harness.frontier.queue.admit(harness.crawl, [asked(b"x" * 100_000)])
    harness.frontier.durability.commit()
    harness.crash()
    no_robots(harness, "a")
    assert next_lease(harness).request == b"x" * 100_000


def test_a_request_is_known_by_its_key(make_embedded: Callable[..., Harness]) -> None:
    harness = started(make_embedded(), CrawlLimits(max_depth=3))
    admission = harness.frontier.queue.admit(
        harness.crawl, [asked(), asked(b"POST 2", "post-2"), asked(), page(URL), asked(key="")]
    )
    assert (admission.new, admission.duplicates) == (3, 2)
    harness.frontier.durability.commit()
    harness.crash()
    again = harness.frontier.queue.admit(harness.crawl, [asked(), asked(b"POST 2", "post-2"), page(URL)])
    assert (again.new, again.duplicates) == (0, 3)


def test_a_request_that_has_ended_stays_known(make_embedded: Callable[..., Harness]) -> None:
    harness = started(make_embedded())
    harness.frontier.queue.admit(harness.crawl, [asked()])
    lease = claim_one(harness)
    cool(harness, lease)
    harness.frontier.leases.finish([EndedLease(lease, End.PAGE)], 1)
    harness.frontier.durability.commit()
    harness.frontier.durability.acknowledge(1)
    harness.frontier.durability.commit()
    harness.crash()
    assert harness.frontier.queue.admit(harness.crawl, [asked()]).duplicates == 1
    harness.advance(20.0)
    assert harness.frontier.leases.claim("me", 5) == []


def test_a_higher_priority_comes_first_and_the_depth_stays(make_embedded: Callable[..., Harness]) -> None:
    harness = started(make_embedded())
    found = [
        asked(b"1", "1", "http://a/low", -5),
        asked(b"2", "2", "http://a/usual"),
        asked(b"3", "3", "http://a/high", 9),
    ]
    harness.frontier.queue.admit(harness.crawl, [page("http://a/seed"), *found])
    harness.frontier.durability.commit()
    harness.crash()
    no_robots(harness, "a")
    leases = []
    for _ in range(4):
        leases.append(next_lease(harness))
        done(harness, leases[-1])
    assert urls_of(leases) == ["http://a/high", "http://a/seed", "http://a/usual", "http://a/low"]
    assert [lease.depth for lease in leases] == [1, 0, 1, 1]


@pytest.mark.parametrize("make_embedded", ["embedded", "pod"], indirect=True)  # nothing is committed but by `sending`
def test_what_may_have_been_sent_is_rejected_after_a_kill(make_embedded: Callable[..., Harness]) -> None:
    harness = started(make_embedded())
    harness.frontier.queue.admit(harness.crawl, [asked()])
    lease = claim_one(harness)
    harness.frontier.leases.sending([lease])
    harness.crash()
    no_robots(harness, "a")
    harness.advance(100.0)
    assert harness.frontier.leases.claim("me", 5) == []
    rejected = harness.frontier.rejected.rejections()
    assert [(one.item.url, one.reason) for one in rejected] == [(URL, Reason.UNKNOWN_OUTCOME)]
    harness.frontier.rejected.end_stored([one.item.item for one in rejected])
    harness.frontier.durability.commit()
    assert harness.frontier.status.crawl_counts(harness.crawl).queued == 0


def test_what_may_have_been_sent_is_rejected_when_it_is_released(make_embedded: Callable[..., Harness]) -> None:
    harness = started(make_embedded())
    harness.frontier.queue.admit(harness.crawl, [asked()])
    lease = claim_one(harness)
    harness.frontier.leases.sending([lease])
    cool(harness, lease)
    harness.frontier.leases.finish([EndedLease(lease, End.RELEASE)])
    harness.advance(100.0)
    assert harness.frontier.leases.claim("me", 5) == []
    assert [one.reason for one in harness.frontier.rejected.rejections()] == [Reason.UNKNOWN_OUTCOME]


def test_what_was_not_sent_after_all_is_given_out_again(make_embedded: Callable[..., Harness]) -> None:
    harness = started(make_embedded())
    harness.frontier.queue.admit(harness.crawl, [asked()])
    lease = claim_one(harness)
    harness.frontier.leases.sending([lease])
    harness.frontier.leases.not_sent(lease)
    cool(harness, lease)
    harness.frontier.leases.finish([EndedLease(lease, End.RETRY)])
    assert next_lease(harness).request == b"POST 1"


def test_a_request_that_is_damaged_ends_its_item_alone(make_embedded: Callable[..., Harness]) -> None:
    harness = started(make_embedded())
    harness.frontier.queue.admit(harness.crawl, [asked(b"first" * 100, "1"), asked(b"second" * 100, "2", "http://a/2")])
    harness.frontier.durability.commit()
    (segment,) = (harness.folder / "payloads").glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[40] ^= 1
    segment.write_bytes(data)
    harness.crash()
    no_robots(harness, "a")
    assert next_lease(harness).url == "http://a/2"
    assert [one.reason for one in harness.frontier.rejected.rejections()] == [Reason.LOST_REQUEST]


def test_payloads_that_are_not_needed_any_more_go(make_embedded: Callable[..., Harness]) -> None:
    harness = started(make_embedded(delay_s=0.0))
    harness.frontier.queue.admit(harness.crawl, [asked(b"x", f"{n}", f"http://a/{n}") for n in range(5)])
    harness.frontier.durability.commit()
    for _ in range(5):
        done(harness, next_lease(harness))
    harness.frontier.durability.commit()
    harness.crash()
    assert not list((harness.folder / "payloads").glob("*.seg"))


def test_a_request_that_has_ended_is_in_no_file_any_more(make_embedded: Callable[..., Harness]) -> None:
    harness = started(make_embedded(delay_s=0.0))
    harness.frontier.queue.admit(
        harness.crawl,
        [asked(b"password=s3cret", "1"), asked(b"kept", "2", "http://a/2"), asked(b"x", "3", "http://a/3")],
    )
    harness.frontier.durability.commit()

    def kept() -> bytes:
        return b"".join(path.read_bytes() for path in (harness.folder / "payloads").glob("*.seg"))

    assert b"s3cret" in kept()
    first = next_lease(harness)
    assert first.request == b"password=s3cret"
    done(harness, first)
    harness.frontier.durability.commit()
    assert b"s3cret" not in kept() and b"kept" in kept()
    harness.crash()
    no_robots(harness, "a")
    second = next_lease(harness)  # of a file of an earlier process
    assert second.request == b"kept"
    done(harness, second)
    harness.frontier.durability.commit()
    assert b"kept" not in kept()

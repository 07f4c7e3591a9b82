"""Hosts that turn out to share an address, on Redis (lua/wait.lua): what one of them has asked for, or shown, holds for
the clock that they share in their pod from then on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harnesses import ALLOW, RedisHarness, no_robots, page, pages

from weft.errors import ServerAway
from weft.frontier.contract import End, EndedLease, SlotRequest, Slots, TransferEnd
from weft.records import Found, Lease
from weft.supervise.redis_server import RedisServer

OLD, NEW = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def pod(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[RedisHarness]:
    harness = RedisHarness(tmp_path, shared_server("redis"), 0, key_scope="ip", delay_s=10.0, places=2)
    harness.start()
    yield harness
    harness.close()


def claimed(pod: RedisHarness, *hosts: str) -> list[Lease]:
    """One lease of each host, in their order."""
    no_robots(pod, *hosts)
    pod.frontier.queue.admit(pod.crawl, [page(f"http://{host}/{pod.time}") for host in hosts])
    leases = {lease.key: lease for lease in pod.frontier.leases.claim("me", 9)}
    return [leases[host] for host in hosts]


def taken(pod: RedisHarness, address: str, *leases: Lease) -> list[bool]:
    return pod.frontier.leases.claim_slots([SlotRequest(lease, address) for lease in leases])


def end(pod: RedisHarness, lease: Lease, **facts: Any) -> None:
    pod.frontier.leases.cool([TransferEnd(lease, pod.time, **facts)])
    assert pod.frontier.leases.finish([EndedLease(lease, End.OTHER)]) == [True]


def shared(pod: RedisHarness, **facts: Any) -> None:
    """Two hosts of an address: what the last request of one of them, of five seconds, has shown counts for both."""
    first, second = claimed(pod, "first", "second")
    assert taken(pod, NEW, first, second) == [True, False]
    end(pod, first)
    pod.advance(100.0)
    (second,) = pod.frontier.leases.claim("me", 9)
    assert taken(pod, NEW, second) == [True]
    pod.advance(5.0)
    end(pod, second, **facts)


def test_a_host_that_was_slowed_is_slowed_at_the_next_address_too(pod: RedisHarness) -> None:
    (lease,) = claimed(pod, "b")
    assert taken(pod, OLD, lease) == [True]
    end(pod, lease, slow_down=True)
    pod.advance(100.0)
    first, lease = claimed(pod, "a", "b")
    assert taken(pod, NEW, first, lease) == [True, False]
    pod.frontier.queue.admit(pod.crawl, pages("b", 2))
    pod.advance(40.0)
    (lease,) = pod.frontier.leases.claim("me", 9)
    assert (lease.delay_s, taken(pod, NEW, lease)) == (20.0, [False]), "the other one is under way"
    end(pod, first)
    pod.advance(40.0)
    (lease,) = pod.frontier.leases.claim("me", 9)
    assert (lease.delay_s, taken(pod, NEW, lease)) == (20.0, [True])
    pod.advance(40.0)
    assert pod.frontier.leases.claim("me", 9) == [], "one at a time"


@pytest.mark.parametrize(
    ("facts", "crawl_delay_s", "waits_s", "delay_s"),
    [
        ({"slow_down": True}, None, 20.0, 20.0),
        ({"slow_down": True, "retry_after_s": 300.0}, None, 300.0, 20.0),
        ({"ok": True}, 30.0, 30.0, 30.0),
    ],
    ids=["slow-down", "Retry-After", "Crawl-delay"],
)
def test_what_an_address_asked_for_holds_for_its_next_host_though_nobody_tells_of_its_places(
    pod: RedisHarness, monkeypatch: pytest.MonkeyPatch, facts: Any, crawl_delay_s: float | None, waits_s: float,
    delay_s: float,
) -> None:  # fmt: skip
    shared(pod, **facts)
    pod.frontier.sites.robots_known("http://second", ALLOW, crawl_delay_s)

    def away(*_: Any) -> Any:
        raise ServerAway("for a while")

    pod.frontier.durability.commit()
    pod.advance(1.0)
    (lease,) = claimed(pod, "third")
    monkeypatch.setattr(pod.frontier.leases._address_slots, "_call_script_of_pod", away)
    assert taken(pod, NEW, lease) == [False]
    pod.advance(waits_s - 1.1)
    assert pod.frontier.leases.claim("me", 9) == []
    pod.advance(0.2)
    (lease,) = pod.frontier.leases.claim("me", 9)
    assert (lease.key, lease.delay_s) == ("third", delay_s)


@pytest.mark.parametrize(("was_s", "took_s", "is_slow"), [(None, 9.0, True), (0.1, 9.0, False), (9.0, 0.1, True)])
def test_an_address_is_as_slow_as_it_has_shown_or_else_as_the_host_that_comes_to_it(
    pod: RedisHarness, was_s: float | None, took_s: float, is_slow: bool
) -> None:
    if was_s is not None:
        shared(pod, ok=True, took_s=was_s)
        pod.advance(100.0)
    for host, time_s in (("slug", 9.0), ("third", took_s)):
        (lease,) = claimed(pod, host)
        assert taken(pod, OLD, lease) == [True]
        end(pod, lease, ok=True, took_s=time_s)
        pod.advance(100.0)
    first, lease = claimed(pod, "a", "third")
    assert taken(pod, NEW, first, lease) == [True, False]
    end(pod, first)
    claimed(pod, "slug")  # the one slot of those that are slow
    pod.advance(50.0)
    found = pod.frontier.leases.claim("me", 9, Slots(unknown=9, slow=1))
    assert [lease.key for lease in found] == ([] if is_slow else ["third"])


def test_what_got_no_place_is_before_all_that_waits_at_its_host(pod: RedisHarness) -> None:
    no_robots(pod, "a", "b")
    redirects = [Found(f"http://b/{number}", 1, hops=1, about="http://b/from") for number in range(2)]
    pod.frontier.queue.admit(pod.crawl, [page("http://a/"), *redirects])
    leases = {lease.key: lease for lease in pod.frontier.leases.claim("me", 9)}
    assert taken(pod, NEW, leases["a"], leases["b"]) == [True, False]
    pod.advance(20.0)
    assert [lease.url for lease in pod.frontier.leases.claim("me", 9)] == [leases["b"].url]


def test_a_host_stays_at_the_address_where_another_request_of_it_is_under_way(pod: RedisHarness) -> None:
    """Or the end of that one would count elsewhere, and its old address have a place too few for ever."""
    for hosts in (("b", "c"), ("c", "b")):
        first, second = claimed(pod, *hosts)
        assert taken(pod, OLD, first, second) == [True, False]
        end(pod, first)
        pod.advance(100.0)
        (second,) = pod.frontier.leases.claim("me", 9)
        assert taken(pod, OLD, second) == [True]
        end(pod, second)
        pod.advance(100.0)
    (under_way,) = claimed(pod, "b")
    assert taken(pod, OLD, under_way) == [True]
    pod.advance(15.0)
    other, moving = claimed(pod, "a", "b")
    assert taken(pod, NEW, other, moving) == [True, False]
    end(pod, other)
    pod.frontier.queue.admit(pod.crawl, pages("c", 2))
    slowed: list[Lease] = []
    while not slowed:
        pod.advance(5.0)
        for lease in pod.frontier.leases.claim("me", 9):
            if lease.key == "c":
                slowed.append(lease)
            else:
                end(pod, lease)
    assert taken(pod, OLD, *slowed) == [True]
    end(pod, slowed[0], slow_down=True)  # one at a time at this address from now on
    end(pod, under_way)
    pod.advance(100.0)
    assert [lease.key for lease in pod.frontier.leases.claim("me", 9)] == ["c"]

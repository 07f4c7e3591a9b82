"""Politeness by address, every frontier: hosts that share an address are asked one after the other.

A small fetcher under the test's clock claims, asks for places, sends and ends; what it sent is judged by address. The
same with several pods on Redis, whose hosts share addresses across the pods.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from harnesses import ALLOW, Harness, done, no_robots, page

from weft import urls
from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord, SlotRequest, TransferEnd
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.redis.connection import RedisSettings, connect
from weft.frontier.redis.link import PodLink
from weft.frontier.redis.pods.client import PodClient
from weft.frontier.redis.pods.other_pod import OtherPod
from weft.frontier.redis.redis_frontier import RedisFrontier, RoutedRedisFrontier
from weft.records import Lease, Reason
from weft.supervise.redis_server import RedisServer

DELAY_S = 10.0
Address = Callable[[str], str]


class Fetcher:
    """One process: what it has under way, and what all of them have sent."""

    def __init__(self, frontier: EmbeddedFrontier | RedisFrontier, sent: list[tuple[float, float, str, str]]) -> None:
        self.frontier = frontier
        self.sent = sent
        self.asked = 0
        self._out: list[tuple[float, Lease, float, str]] = []

    def step(self, address_of: Address, transfer_s: float = 2.5, delays: dict[str, float] | None = None) -> None:
        now = self.frontier.now()
        for end, lease, start, address in [one for one in self._out if one[0] <= now]:
            self.frontier.leases.cool([TransferEnd(lease, end, ok=True)])
            assert self.frontier.leases.finish([EndedLease(lease, End.PAGE)]) == [True]
            self.sent.append((start, end, address, lease.url))
        self._out = [one for one in self._out if one[0] > now]
        while leases := self.frontier.leases.claim("me", 50):
            wanted = []
            for lease in leases:
                host = urls.host_of(lease.url)
                wanted.append(SlotRequest(lease, address_of(host), (delays or {}).get(host, 0.0)))
            self.asked += len(wanted)
            for one, granted in zip(wanted, self.frontier.leases.claim_slots(wanted), strict=True):
                if granted:
                    self._out.append((now + transfer_s, one.lease, now, one.address))


def judged(sent: list[tuple[float, float, str, str]], delay_s: float = DELAY_S, places: int = 1) -> None:
    by_address = defaultdict(list)
    for start, end, address, url in sorted(sent):
        by_address[address].append((start, end, url))
    for one in by_address.values():
        for before, after in pairwise(one):
            assert after[0] >= (before[1] if places == 1 else before[0]) + delay_s - 1e-4, (before, after)
        for start, _, url in one:
            assert sum(other[0] <= start < other[1] for other in one) <= places, (start, url)


def hosts_of(count: int) -> list[str]:
    return [f"h{number}.test" for number in range(count)]


def by_last_digit(host: str) -> str:
    return f"127.0.0.{int(host[1:-5]) % 3}"


def test_hosts_of_an_address_take_turns_and_few_of_them_try_at_once(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="ip")
    frontier, hosts = harness.start(), hosts_of(36)
    no_robots(harness, *hosts)
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/{number}") for host in hosts for number in range(2)])
    fetcher = Fetcher(frontier, [])
    while len(fetcher.sent) < 72:
        assert harness.time < 1000 + 72 * 20, (len(fetcher.sent), frontier.status.stats(), frontier.leases.next_due())
        fetcher.step(by_last_digit)
        harness.advance(0.5)
    judged(fetcher.sent)
    assert harness.time - 1000 < 24 * (DELAY_S + 2.5) * 1.2, "an address is not left alone for long"
    assert fetcher.asked < 36 + 2.5 * 72, "what must wait is not tried again and again"
    first = Counter(url.rpartition("/")[0] for *_, url in fetcher.sent[:36])
    assert len(first) > 18, "no host is always before the others"
    assert frontier.status.stats().queued == frontier.status.stats().leased == 0


def test_an_address_may_have_several_places(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="ip", delay_s=1.0, places=3)
    frontier, hosts = harness.start(), hosts_of(9)
    no_robots(harness, *hosts)
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/{number}") for host in hosts for number in range(5)])
    fetcher = Fetcher(frontier, [])
    while len(fetcher.sent) < 45:
        assert harness.time < 1000 + 45 * 5, (len(fetcher.sent), frontier.status.stats())
        fetcher.step(lambda _: "127.0.0.1", 2.5)
        harness.advance(0.25)
    judged(fetcher.sent, 1.0, places=3)


def test_hosts_whose_address_changes_get_stuck_nowhere(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="ip", delay_s=2.0, places=2)
    frontier, hosts = harness.start(), hosts_of(8)
    no_robots(harness, *hosts)
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/{number}") for host in hosts for number in range(6)])
    fetcher = Fetcher(frontier, [])
    while len(fetcher.sent) < 48:
        assert harness.time < 1000 + 48 * 6, (len(fetcher.sent), frontier.status.stats())
        period = int(harness.time) // 7
        fetcher.step(lambda host, period=period: f"127.0.0.{(int(host[1:-5]) + period) % 3}", 3.0)  # type: ignore[misc]
        harness.advance(0.25)
    judged(fetcher.sent, 2.0, places=2)


def take(harness: Harness, lease: Lease, address: str = "127.0.0.1", crawl_delay_s: float = 0.0) -> bool:
    (granted,) = harness.frontier.leases.claim_slots([SlotRequest(lease, address, crawl_delay_s)])
    return granted


def claimed(harness: Harness, *hosts: str) -> list[Lease]:
    """One lease of each host, in their order."""
    no_robots(harness, *hosts)
    harness.frontier.queue.admit(harness.crawl, [page(f"http://{host}/{harness.time}") for host in hosts])
    harness.frontier.durability.commit()
    leases = {lease.key: lease for lease in harness.frontier.leases.claim("me", 50)}
    return [leases[host] for host in hosts]


def test_a_host_that_moves_to_another_address_lets_those_it_leaves_go_on(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="ip", delay_s=0.0)
    frontier = harness.start()
    for lease in claimed(harness, "x.test", "y.test"):
        assert take(harness, lease)
        done(harness, lease)
    harness.advance(1)
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/next") for host in ("x.test", "y.test")])
    first, *others = frontier.leases.claim(
        "me", 9
    )  # on Redis the other, too: there places are asked for after the claim
    assert take(harness, first, "127.0.0.2")
    done(harness, first)
    harness.advance(1)
    (second,) = others or frontier.leases.claim("me", 9)
    assert {first.key, second.key} == {"x.test", "y.test"} and take(harness, second)


def test_a_host_that_moves_to_an_address_with_more_places_uses_them_at_once(make: Callable[..., Harness]) -> None:
    """It was to wait for a place at the old one, behind the others there."""
    harness = make(key_scope="ip", delay_s=1.0, places=2)
    frontier, hosts = harness.start(), hosts_of(5)
    for host in (*hosts, "last.test"):
        (lease,) = claimed(harness, host)
        assert take(harness, lease)
        slow_down = host == "last.test"  # one at a time at this address from then on
        frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True, slow_down=slow_down)])
        frontier.leases.finish([EndedLease(lease, End.PAGE)])
        harness.advance(10)
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/{number}") for host in hosts for number in range(4)])
    for address in ("127.0.0.1", "127.0.0.2"):
        harness.advance(10)
        first, *others = frontier.leases.claim("me", 9)  # on Redis all: there places are asked for after the claim
        frontier.leases.finish([EndedLease(lease, End.RELEASE) for lease in others])
        assert take(harness, first, address)
        if address == "127.0.0.1":
            done(harness, first)
    harness.advance(1.1)
    second = next(lease for lease in frontier.leases.claim("me", 9) if lease.key == first.key)
    assert take(harness, second, "127.0.0.2"), "while the first is under way"


def test_a_host_that_came_too_early_for_a_place_is_tried_again_a_delay_later(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="ip", places=2)
    harness.start()
    (one,) = claimed(harness, "a")
    assert take(harness, one)
    harness.advance(7.0)
    (two,) = claimed(harness, "b")
    assert not take(harness, two)
    harness.advance(DELAY_S - 0.1)
    assert harness.frontier.leases.claim("me", 9) == []
    harness.advance(0.2)
    (two,) = harness.frontier.leases.claim("me", 9)
    assert take(harness, two)


def test_a_place_that_was_not_used_is_free_at_once(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="ip")
    frontier = harness.start()
    one, two = claimed(harness, "a", "b")
    assert (take(harness, one), take(harness, two)) == (True, False)
    assert frontier.leases.finish([EndedLease(two, End.PAGE)]) == [False], "its lease is over"
    assert frontier.leases.finish([EndedLease(one, End.OTHER)]) == [True]
    harness.advance(DELAY_S + 0.1)
    (two,) = frontier.leases.claim("me", 50)
    assert (two.url, two.attempt, take(harness, two)) == ("http://b/1000.0", 0, True)


@pytest.mark.parametrize("is_claimed", [True, False])
def test_a_lease_that_has_ended_gets_no_place(make: Callable[..., Harness], is_claimed: bool) -> None:
    harness = make(key_scope="ip", delay_s=0.0)
    harness.start()
    one, two = claimed(harness, "a", "b")
    assert harness.frontier.leases.finish([EndedLease(two, End.OTHER)]) == [True]
    assert not is_claimed or take(harness, one)
    assert not take(harness, two)
    assert is_claimed or take(harness, one), "nothing is kept for it"


def test_a_crawl_delay_and_a_retry_after_hold_for_the_whole_address(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="ip")
    harness.start()
    one, two = claimed(harness, "a", "b")
    assert take(harness, one)
    done(harness, one)
    assert not take(harness, two, crawl_delay_s=40.0)
    harness.advance(39)
    assert not any(take(harness, lease) for lease in harness.frontier.leases.claim("me", 50))
    harness.advance(2)
    (two,) = harness.frontier.leases.claim("me", 50)
    assert take(harness, two)
    harness.frontier.leases.cool([TransferEnd(two, harness.time, ok=None, slow_down=True, retry_after_s=300.0)])
    harness.frontier.leases.finish([EndedLease(two, End.OTHER)])
    (three,) = claimed(harness, "c")
    assert not take(harness, three)
    harness.crash()
    harness.advance(290)
    assert not any(take(harness, lease) for lease in harness.frontier.leases.claim("me", 50))
    harness.advance(11.5)
    (three,) = harness.frontier.leases.claim("me", 50)
    assert (three.key, take(harness, three)) == ("c", True)


def test_an_address_that_slows_down_is_asked_less_often_whichever_host_it_was(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="ip", delay_s=1.0)
    harness.start()
    for took_s in (0.2, 0.2, 40.0, 40.0):
        harness.advance(100.0)
        (lease,) = claimed(harness, "a")
        assert take(harness, lease)
        harness.frontier.leases.cool([TransferEnd(lease, harness.time, ok=True, took_s=took_s)])
        harness.frontier.leases.finish([EndedLease(lease, End.PAGE)])
    harness.advance(10.0)
    (other,) = claimed(harness, "b")
    assert not take(harness, other)
    harness.advance(30.0)
    (other,) = harness.frontier.leases.claim("me", 50)
    assert (other.key, take(harness, other)) == ("b", True)


@pytest.mark.parametrize(("in_trouble", "answers"), [(False, 20), (True, 1)])
def test_an_eased_address_keeps_the_longer_delay_for_one_more_request_whichever_host_is_next(
    make: Callable[..., Harness], in_trouble: bool, answers: int
) -> None:
    harness = make(key_scope="ip")
    harness.start()
    for is_slow in (True, *[False] * answers):
        harness.advance(100.0)
        (lease,) = claimed(harness, "a")
        assert take(harness, lease, crawl_delay_s=0.0 if is_slow else 12.0)
        ok = None if is_slow else True
        harness.frontier.leases.cool(
            [TransferEnd(lease, harness.time, ok=ok, slow_down=is_slow, in_trouble=in_trouble)]
        )
        harness.frontier.leases.finish([EndedLease(lease, End.PAGE)])
    for host, delay_s in (("b", 2 * DELAY_S), ("c", 12.0)):
        harness.advance(delay_s - 0.5)
        (other,) = claimed(harness, host)
        assert not take(harness, other), host
        harness.advance(1.0)
        (other,) = harness.frontier.leases.claim("me", 50)
        assert (other.key, take(harness, other)) == (host, True)
        done(harness, other)


def test_a_wait_that_is_too_long_rejects_what_is_queued_at_the_address(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="ip", max_retry_after_s=60.0)
    harness.start()
    one, two = claimed(harness, "a", "b")
    assert take(harness, one)
    assert not take(harness, two)
    harness.frontier.leases.cool([TransferEnd(one, harness.time, slow_down=True, retry_after_s=1e6)])
    harness.frontier.leases.finish([EndedLease(one, End.OTHER)])
    for _ in range(40):
        harness.advance(5)
        for lease in harness.frontier.leases.claim("me", 50):
            assert not take(harness, lease)
        if rejected := harness.frontier.rejected.rejections():
            break
    assert [(one.item.url, one.reason) for one in rejected] == [("http://b/1000.0", Reason.RETRY_AFTER)]


def test_a_place_of_a_dead_process_returns_with_a_full_delay(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="ip")
    harness.start()
    one, two = claimed(harness, "a", "b")
    assert (take(harness, one), take(harness, two)) == (True, False)
    harness.advance(30)
    harness.crash()
    harness.advance(9.9)
    assert not any(take(harness, lease) for lease in harness.frontier.leases.claim("me", 50))
    harness.advance(12)
    assert any(take(harness, lease) for lease in harness.frontier.leases.claim("me", 50))


def test_a_place_that_nobody_gives_back_returns_at_its_deadline_with_a_full_delay(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="ip", lease_s=20.0)
    harness.start()
    one, two = claimed(harness, "a", "b")
    assert (take(harness, one), take(harness, two)) == (True, False)
    for _ in range(29):
        harness.advance(1)
        assert not any(take(harness, lease) for lease in harness.frontier.leases.claim("me", 50)), harness.time
    got = 0
    for _ in range(30):
        harness.advance(1)
        got += sum(take(harness, lease) for lease in harness.frontier.leases.claim("me", 50))
    assert got


# ── several pods on Redis ──────────────────────────────────────────────────────────────────────────────────────────


class Pods:
    """Two pods in two databases of one server, a fetcher each, under one clock."""

    def __init__(self, folder: Path, server: RedisServer, **politeness: Any) -> None:
        self.time = 1000.0
        self.folder, self.server = folder, server
        settings: dict[str, Any] = {"delay_s": DELAY_S, "places": 1, "key_scope": "ip"}
        self.section = PolitenessSection(**(settings | politeness))
        self._connections: list[Any] = []
        self.incarnation = 0
        for db in (0, 1):
            self.connection(db).flushdb()
        self.frontiers = [self.process(pod) for pod in (0, 1)]

    def connection(self, db: int) -> Any:
        self._connections.append(connect(self.server.url, RedisSettings(db=db)))
        return self._connections[-1]

    def process(self, pod: int, other: Any = None) -> RoutedRedisFrontier:
        self.incarnation += 1
        client = PodClient(
            PodLink(
                other or self.connection(1 - pod), self.section, pod=1 - pod, pods=2, server_clock=lambda: self.time
            )
        )
        slot = f"pod{pod}-fetcher0"
        frontier = RoutedRedisFrontier(
            self.connection(pod), self.folder / str(pod), self.section, slot=slot, incarnation=self.incarnation,
            pod=pod, pods=2, clock=lambda: self.time, wall=lambda: self.time, server_clock=lambda: self.time,
            idle_s=0.0, others={1 - pod: OtherPod(1 - pod, client, self.folder / str(1 - pod) / "robots.db")},
            outbox=self.folder / f"{slot}-{self.incarnation}.db",
        )  # fmt: skip
        frontier.crawls.open_crawl("test", CrawlLimits())
        return frontier

    def start(self) -> list[RoutedRedisFrontier]:
        for frontier in self.frontiers:
            frontier.recovery.recover()
        return self.frontiers

    def close(self) -> None:
        for frontier in self.frontiers:
            frontier.close()
        for connection in self._connections:
            connection.close()


@pytest.fixture(params=["redis", "valkey"])
def make_pods(
    request: pytest.FixtureRequest, tmp_path: Path, shared_server: Callable[[str], RedisServer]
) -> Iterator[Callable[..., Pods]]:
    made: list[Pods] = []

    def build(**politeness: Any) -> Pods:
        made.append(Pods(tmp_path, shared_server(request.param), **politeness))
        return made[-1]

    yield build
    for pods in made:
        pods.close()


def admit(frontier: RoutedRedisFrontier, pod: int, hosts: int, pages: int = 1) -> list[str]:
    """URLs of so many hosts that belong to a pod."""
    mine = [host for host in (f"h{number}.test" for number in range(1000)) if urls.pod_of(host, 2) == pod][:hosts]
    for host in mine:
        frontier.sites.robots_known(f"http://{host}", ALLOW, None)
    frontier.queue.admit(1, [page(f"http://{host}/{number}") for host in mine for number in range(pages)])
    return mine


def address_in(pod: int) -> str:
    """One whose place is kept in this pod."""
    return next(one for one in (f"127.0.0.{number}" for number in range(1, 99)) if urls.pod_of(one, 2) == pod)


def test_pods_take_turns_at_an_address(make_pods: Callable[..., Pods]) -> None:
    pods = make_pods()
    frontiers = pods.start()
    for pod, frontier in enumerate(frontiers):
        admit(frontier, pod, 4, 3)
    sent: list[tuple[float, float, str, str]] = []
    fetchers = [Fetcher(frontier, sent) for frontier in frontiers]
    while len(sent) < 24:
        assert pods.time < 1000 + 24 * 30, (len(sent), [one.status.stats() for one in frontiers])
        for fetcher in fetchers:
            fetcher.step(lambda _: "127.0.0.1")
        pods.time += 0.25
    judged(sent)
    assert pods.time - 1000 < 24 * (DELAY_S + 2.5) * 1.2
    assert sum(fetcher.asked for fetcher in fetchers) < 3.5 * 24
    by_pod = Counter(urls.pod_of(urls.domain_of(url), 2) for *_, url in sent[:12])
    assert min(by_pod.values()) >= 4, by_pod


def test_an_address_whose_pod_is_away_is_not_asked(make_pods: Callable[..., Pods], tmp_path: Path) -> None:
    pods = make_pods()
    pods.start()
    away = connect(f"unix://{tmp_path}/nobody.sock")
    frontier = pods.frontiers[0] = pods.process(0, away)
    frontier.recovery.recover()
    one, two = admit(frontier, 0, 2)
    for _ in range(3):
        leases = frontier.leases.claim("me", 9)
        addresses = {one: address_in(0), two: address_in(1)}
        wanted = [SlotRequest(lease, addresses[urls.host_of(lease.url)]) for lease in leases]
        for lease, granted in zip(leases, frontier.leases.claim_slots(wanted), strict=True):
            assert granted is (urls.host_of(lease.url) == one)
        pods.time += 0.1
        assert frontier.leases.claim("me", 9) == [], "it is tried again, but not at once"
        pods.time += 1.0
    assert [item.url for item in frontier.queue.items(1)] == [f"http://{two}/0"]
    away.close()


def test_a_dead_process_gives_back_places_in_all_pods(make_pods: Callable[..., Pods]) -> None:
    pods = make_pods()
    first, other = pods.start()
    admit(first, 0, 1)
    admit(other, 1, 1)
    (mine,), (theirs,) = first.leases.claim("me", 9), other.leases.claim("me", 9)
    address = address_in(1)
    assert first.leases.claim_slots([SlotRequest(mine, address)]) == [True]
    assert other.leases.claim_slots([SlotRequest(theirs, address)]) == [False]
    pods.time += 15
    pods.frontiers[0] = pods.process(0)
    pods.frontiers[0].recovery.recover()
    assert not other.leases.claim_slots([SlotRequest(lease, address) for lease in other.leases.claim("me", 9)])[0]
    pods.time += DELAY_S + 0.5
    assert not any(other.leases.claim_slots([SlotRequest(lease, address) for lease in other.leases.claim("me", 9)])), (
        "on its way"
    )
    pods.time += 1.0
    assert any(other.leases.claim_slots([SlotRequest(lease, address) for lease in other.leases.claim("me", 9)]))


def test_after_lost_data_an_address_waits_for_all_leases_of_that_time(make_pods: Callable[..., Pods]) -> None:
    pods = make_pods(lease_s=30.0)
    first, _ = pods.start()
    admit(first, 0, 1)
    server = pods.connection(1)
    server.hset("n", "lost", int(pods.time * 1e6))
    waited = 0
    while (
        not (leases := first.leases.claim("me", 9))
        or not first.leases.claim_slots([SlotRequest(leases[0], address_in(1))])[0]
    ):
        pods.time += 1.0
        waited += 1
    assert 39 <= waited <= 42


def test_robots_txt_keeps_its_place_until_it_was_read(make_pods: Callable[..., Pods]) -> None:
    """Another pod must not slip in between the end of its transfer and the Crawl-delay that it brings."""
    pods = make_pods(delay_s=1.0)
    first, other = pods.start()
    admit(other, 1, 1)
    host = next(host for host in hosts_of(99) if urls.pod_of(host, 2) == 0)
    first.queue.admit(1, [page(f"http://{host}/")])
    (robots,), (theirs,) = first.leases.claim("me", 9), other.leases.claim("me", 9)
    address = address_in(0)
    assert first.leases.claim_slots([SlotRequest(robots, address)]) == [True]
    pods.time += 1.0
    end = pods.time
    first.leases.cool([TransferEnd(robots, pods.time, ok=True)])
    assert other.leases.claim_slots([SlotRequest(theirs, address)]) == [False]
    pods.time += 1.5
    assert not any(other.leases.claim_slots([SlotRequest(lease, address) for lease in other.leases.claim("me", 9)]))
    first.sites.robots_known(f"http://{host}", RobotsRecord("ok", b"", 9e12), 20.0)
    first.leases.finish([EndedLease(robots, End.OTHER)])
    while not any(other.leases.claim_slots([SlotRequest(lease, address) for lease in other.leases.claim("me", 9)])):
        pods.time += 0.25
    assert end + 20 <= pods.time < end + 22


def test_an_address_that_asked_for_too_long_a_wait_is_asked_again_at_its_end(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="ip", max_retry_after_s=60.0)
    frontier = harness.start()
    (one,) = claimed(harness, "a")
    assert take(harness, one)
    frontier.leases.cool([TransferEnd(one, harness.time, slow_down=True, retry_after_s=100.0)])
    frontier.leases.finish([EndedLease(one, End.OTHER)])
    harness.advance(100)
    no_robots(harness, "b")
    frontier.queue.admit(harness.crawl, [page("http://b/1"), page("http://b/2")])
    (lease,) = frontier.leases.claim("me", 9)
    assert take(harness, lease)
    assert (frontier.rejected.rejections(), frontier.status.stats().queued) == ([], 1)


def test_a_closed_frontier_leaves_its_outbox_in_one_file(make_pods: Callable[..., Pods]) -> None:
    pods = make_pods()
    first, _ = pods.start()
    (outbox,) = pods.folder.glob("pod0-fetcher0-1.db")
    assert list(pods.folder.glob("pod0-fetcher0-1.db-*")) != []
    pods.frontiers[0] = pods.process(0)
    first.close()
    assert list(pods.folder.glob("pod0-fetcher0-1.db*")) == [outbox]


def test_places_of_idle_addresses_are_forgotten(make_pods: Callable[..., Pods]) -> None:
    pods = make_pods()
    first, _ = pods.start()
    admit(first, 0, 1)
    (lease,) = first.leases.claim("me", 9)
    assert first.leases.claim_slots([SlotRequest(lease, address_in(1))]) == [True]
    first.leases.cool([TransferEnd(lease, pods.time, ok=True)])
    server = pods.connection(1)
    assert server.zcard("held") == 0
    assert 0 < server.pttl(f"a:{address_in(1)}") <= (DELAY_S + 90 + 60) * 1000


@pytest.mark.parametrize("make", ["embedded", "checkpointed", "crowded", "pod"], indirect=True)
def test_a_host_whose_address_asks_for_a_longer_delay_meanwhile_is_asked_after_it(make: Callable[..., Harness]) -> None:
    """Where several crawls are: it was to be asked earlier, and none of them may then. On Redis `take_places` alone
    knows the address's delay."""
    harness = make(key_scope="ip", delay_s=DELAY_S)
    frontier = harness.start()
    frontier.crawls.open_crawl("other", CrawlLimits())
    no_robots(harness, "a.test", "b.test")
    frontier.queue.admit(harness.crawl, [page("http://a.test/"), page("http://b.test/")])
    first, second = frontier.leases.claim("me", 9)
    assert frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1") for lease in (first, second)]) == [True, False]
    done(harness, first)
    frontier.sites.robots_known(f"http://{first.key}", ALLOW, 100.0)
    for _ in range(9):
        harness.advance(DELAY_S + 1)
        assert frontier.leases.claim("me", 9) == []
    harness.advance(DELAY_S + 1)
    (lease,) = frontier.leases.claim("me", 9)
    assert lease.url == second.url

"""How long a site takes to answer is kept in Redis: for all processes of its pod, and for `weft explain`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harnesses import RedisHarness, no_robots, pages

from weft.frontier.contract import End, EndedLease, TransferEnd
from weft.frontier.redis.pod_view import site_pace
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.records import Lease
from weft.supervise.redis_server import RedisServer


@pytest.fixture
def pod(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[RedisHarness]:
    harness = RedisHarness(tmp_path / "f", shared_server("redis"), 0, delay_s=1.0)
    harness.start()
    no_robots(harness, "a")
    harness.frontier.queue.admit(harness.crawl, pages("a", 30))
    yield harness
    harness.close()


def ask(pod: RedisHarness, frontier: RedisFrontier, took_s: float | None, **facts: Any) -> Lease:
    pod.advance(100.0)
    (lease,) = frontier.leases.claim("me", 1)
    frontier.leases.cool([TransferEnd(lease, pod.time, ok=took_s is not None, took_s=took_s, **facts)])
    frontier.leases.finish([EndedLease(lease, End.OTHER)])
    return lease


def test_processes_share_what_a_site_has_shown_to_any_of_them(pod: RedisHarness) -> None:
    other = pod._open()
    for _ in range(3):
        ask(pod, pod.frontier, 0.2)
    for _ in range(3):
        ask(pod, other, 9.0)
    lease = ask(pod, pod.frontier, None)
    pace = site_pace(pod.clients[0], "redis", "a")
    assert lease.delay_s == pytest.approx(pace.lag, abs=1e-5) and pace.lag > 5.0
    assert (pace.recent, pace.breakers, pace.extra) == (0.0, {}, 0.0) and 0.2 < pace.usual < 1.0
    other.close()


def test_explain_is_told_what_holds_requests_back(pod: RedisHarness) -> None:
    client = pod.clients[0]
    assert site_pace(client, "redis", "a").lag == site_pace(client, "redis", "nobody").lag == 0.0
    for took_s in (0.2, 8.0):
        ask(pod, pod.frontier, took_s)
    ask(pod, pod.frontier, 8.0, slow_down=True)
    pace = site_pace(client, "redis", "a")
    assert pace.extra == pytest.approx(2 * pace.lag, abs=1e-4)
    assert 2.0 < pace.lag == pace.recent < 8.0 and pace.usual < 0.5
    for _ in range(pod.section.breaker_failures):
        ask(pod, pod.frontier, None)
    assert [*site_pace(client, "redis", "a").breakers] == ["http://a"]


@pytest.mark.parametrize("rare", ["7000000:2000000:3:2:0:0:", "7000000:2000000:3:2:0:0:-4,5,"])
def test_a_site_of_an_older_version_keeps_what_it_was_held_to(pod: RedisHarness, rare: str) -> None:
    client: Any = pod.clients[0]
    client.hset("s:a", "t", rare)
    pace = site_pace(client, "redis", "a")
    assert (pace.crawl_delay, pace.extra, pace.lag, pace.usual) == (7.0, 2.0, 0.0, 0.0)
    assert ask(pod, pod.frontier, 0.1).delay_s == 7.0
    for _ in range(6):
        ask(pod, pod.frontier, 30.0)
    assert ask(pod, pod.frontier, 30.0).delay_s > 20.0


def test_a_sites_pace_is_told_to_the_microsecond(pod: RedisHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = pod.clients[0]
    client.hset("s:a", mapping={"t": "7000000:2000000:3:2:0:0::250000000", "l": "1500000:125000000"})
    # By origin: http of the site (one byte), and another port of it, which is closed.
    client.hset("s:a", "o", b"\x82\xa1\0\x95\xce\x35\xa4\xe9\0\x02\xa0\xa0\0\xa1\1\x95\0\0\xa0\xa0\0")
    client.hset("n", "offset", 20_000_000)
    monkeypatch.setattr(client, "time", lambda: (400, 500_000))
    monkeypatch.setattr("weft.frontier.redis.pod_view.time.time", lambda: 5000.0)
    pace = site_pace(client, "redis", "a")
    assert (pace.crawl_delay, pace.extra, pace.lag, pace.recent, pace.usual) == (7.0, 2.0, 250.0, 1.5, 125.0)
    assert pace.breakers == {"http://a": (2, True, 5000.0 + 900.0 - 420.5)}
    client.hset("s:a", "T", "192.0.2.1")
    client.hset("t:192.0.2.1", mapping={"t": "3000000:0:0:0:0:0::0", "l": "-:500000"})
    pace = site_pace(client, "redis", "a")
    assert (pace.crawl_delay, pace.recent, pace.usual) == (3.0, 0.0, 0.5), "that of its address"
    client.hdel("n", "offset")
    assert site_pace(client, "redis", "a").breakers == {"http://a": (2, True, 5000.0 + 900.0 - 400.5)}


@pytest.mark.parametrize(
    ("recent", "usual", "took_s", "lag"),
    [
        (11_000_000, 3_000_000, 3.0, 0.0),
        (11_000_004, 3_000_000, 3.0, 9.000003),
        (1_000_000, 100_000, 1.0, 0.0),
        (1_000_004, 100_000, 1.0, 1.000003),
    ],
)
def test_a_site_lags_from_more_than_three_times_the_usual_and_a_second_on(
    pod: RedisHarness, recent: int, usual: int, took_s: float, lag: float
) -> None:
    client: Any = pod.clients[0]
    client.hset("s:a", "l", f"{recent}:{usual}")
    ask(pod, pod.frontier, took_s)
    assert site_pace(client, "redis", "a").lag == lag


@pytest.mark.parametrize("facts", [{"ok": False}, {"slow_down": True}])
def test_a_failure_and_a_slow_down_are_known_to_other_processes_at_once(
    pod: RedisHarness, facts: dict[str, Any]
) -> None:
    for _ in range(pod.section.breaker_failures - 1):
        ask(pod, pod.frontier, None)
    pod.advance(100.0)
    (lease,) = pod.frontier.leases.claim("me", 1)
    pod.frontier.leases.cool([TransferEnd(lease, pod.time, **facts)])
    pace = site_pace(pod.clients[0], "redis", "a")
    assert (bool(pace.breakers), pace.extra > 0.0) == ("ok" in facts, "slow_down" in facts)

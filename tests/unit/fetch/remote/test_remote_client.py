"""The transport through workers, with a dispatcher that records: who gets what, and what becomes of what is lost."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from weft.config import ClusterSection, FetchSection
from weft.fetch.contract import Done
from weft.fetch.dns.resolver import NameCounts
from weft.fetch.remote.contract import HandFacts, RemoteArrival
from weft.fetch.remote.messages import LATE, FetchTask, RemoteResult, section_of, settings_for_hands
from weft.fetch.remote.pool import LOSSES, HandPool
from weft.fetch.remote.remote_client import RemoteTransport
from weft.fetch.remote.routing import FAILURES, OUT_S, Routing
from weft.records import FetchResult, Lease, Purpose

SECTION = ClusterSection(hand_queue_s=30.0, hand_slack_s=15.0, hand_in_flight=64)


class RecordingDispatcher:
    """Keeps the tasks that it was to send; the test says what comes back."""

    def __init__(self, *hands: str, is_private: bool = True) -> None:
        self.known = {name: HandFacts(name, 1) for name in hands}
        self.is_private = is_private
        self.why = ""
        self.tasks: list[tuple[str, FetchTask]] = []
        self.come: list[RemoteArrival] = []
        self.counted: list[str] = []
        self._pipe = os.pipe()

    def fileno(self) -> int:
        return self._pipe[0]

    def arrivals(self) -> list[RemoteArrival]:
        come, self.come = self.come, []
        return come

    def hands(self) -> Mapping[str, HandFacts]:
        return self.known

    def renderers(self) -> Mapping[str, HandFacts]:
        return {}

    def browsers(self) -> socket.socket:
        raise AssertionError("no page is rendered")

    def trouble(self) -> str:
        return self.why

    def task(self, make: Callable[[str, int], FetchTask], hand: str, start_by: float) -> None:
        self.tasks.append((hand, make("slot", 1)))

    def count(self, name: str) -> None:
        self.counted.append(name)

    def close(self) -> None:
        for fd in self._pipe:
            os.close(fd)


class LocalTransport:
    """What the transport wraps: remembers what it was asked for."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.free, self.in_flight, self.lookups = 7, 0, NameCounts()
        self._epoll = select.epoll()

    def submit(self, url: str, headers: Sequence[tuple[str, str]], tag: object, **_: object) -> None:
        self.urls.append(url)

    def address_of(self, host: str) -> str | None:
        return None

    def poll(self, timeout_s: float) -> Done:
        return []

    def abort(self, tag: object) -> None: ...

    def fileno(self) -> int:
        return self._epoll.fileno()

    def timeout_s(self) -> float | None:
        return None

    def close(self) -> None:
        self._epoll.close()


class Bench:
    """A pool, a transport over it, and a clock that the test moves."""

    def __init__(self, *hands: str, mode: str = "cluster", is_private: bool = True) -> None:
        self.now = time.monotonic()
        self.fetch = FetchSection(hands=mode, total_timeout_s=20.0)  # type: ignore[arg-type]
        self.dispatcher = RecordingDispatcher(*hands, is_private=is_private)
        self.pool = HandPool(SECTION, self.dispatcher, lambda: self.now)
        self.local = LocalTransport()
        self.transport = RemoteTransport(self.local, self.pool, self.fetch, 100)
        self._item = 0

    def ask(
        self, host: str, *, headers: tuple[tuple[str, str], ...] = (), secret: bool = False, method: str = ""
    ) -> Lease:
        self._item += 1
        lease = Lease(
            self._item, 1, f"http://{host}/{self._item}", host, 0, 0, 0, Purpose.PAGE, "", 0, 0, "me", 1, 0.0, 1.0
        )
        return self.ask_again(lease, headers=headers, secret=secret, method=method)

    def ask_again(
        self, lease: Lease, *, headers: tuple[tuple[str, str], ...] = (), secret: bool = False, method: str = ""
    ) -> Lease:
        self.pool.route(lease, self.fetch, self.now, has_secrets=secret)
        body = b"x" if method else None
        self.transport.submit(lease.url, headers, lease, method=method, body=body)
        return lease

    def answer(self, number: int = 0, **changes: object) -> None:
        """The next result of the first request of a task."""
        hand, task = self.dispatcher.tasks[number]
        facts = {
            "id": task.requests[0].id,
            "status": 200,
            "head": b"",
            "error": None,
            "detail": "",
            "age_s": 0.5,
            "took_s": 0.25,
        } | changes
        result = RemoteResult(slot="slot", epoch=1, hand=hand, ip="", request_head=b"", **facts)  # type: ignore[arg-type]
        self.dispatcher.come.append(RemoteArrival(result, b"body", self.now))

    def results(self) -> list[FetchResult]:
        return [result for _, result in self.transport.poll(0.0)]


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench("a", "b")
    yield made
    made.transport.close()
    made.pool.close()


def test_requests_travel_together_but_never_two_of_one_site_and_no_order_with_others(bench: Bench) -> None:
    for number in range(25):
        bench.ask(f"h{number}.example")
    bench.ask("h1.example")
    bench.ask("h2.example", method="POST", secret=True)
    assert bench.results() == []
    for _, task in bench.dispatcher.tasks:
        hosts = [request.url.split("/")[2] for request in task.requests]
        assert len(hosts) == len(set(hosts)) <= 20
        assert len(hosts) == 1 or not any(request.method for request in task.requests)
    assert sum(len(task.requests) for _, task in bench.dispatcher.tasks) == 27
    by_host: dict[str, set[str]] = {}
    for hand, task in bench.dispatcher.tasks:
        for request in task.requests:
            by_host.setdefault(request.url.split("/")[2], set()).add(hand)
    assert all(len(hands) == 1 for hands in by_host.values())


def test_a_result_counts_once_and_its_end_is_the_age_that_the_hand_names(bench: Bench) -> None:
    bench.ask("a.example")
    bench.results()
    bench.now += 5.0
    bench.answer()
    bench.answer()
    (result,) = bench.results()
    assert (result.status, result.body) == (200, b"body")
    assert result.ended == pytest.approx(bench.now - 0.5)
    assert result.ended - result.started == pytest.approx(0.25)
    assert bench.dispatcher.counted == ["fetch:refused:unexpected_result"]
    assert bench.transport.in_flight == 0


def test_a_lost_result_ends_at_its_deadline_and_not_before(bench: Bench) -> None:
    begin = bench.now
    bench.ask("a.example")
    bench.results()
    bench.now = begin + 65.0
    assert bench.results() == []
    bench.now = begin + 71.0
    (result,) = bench.results()
    assert (result.error, result.was_sent, result.status) == ("lost", True, 0)
    assert result.ended == pytest.approx(begin + 65.0)


def test_losses_are_no_attempts_at_the_site_but_not_for_ever(bench: Bench) -> None:
    errors = []
    lease = bench.ask("a.example")
    for _ in range(LOSSES + 1):
        bench.results()
        bench.now += 71.0
        errors += [result.error for result in bench.results()]
        bench.ask_again(lease)
    assert errors == ["lost"] * LOSSES + ["hand"]


def test_a_hand_that_had_no_time_is_at_fault_and_nothing_was_sent(bench: Bench) -> None:
    bench.dispatcher.known.pop("b")
    for number in range(FAILURES):
        bench.ask(f"h{number}.example")
    bench.results()
    ((_, task),) = bench.dispatcher.tasks
    for request in task.requests:
        bench.answer(status=0, error=LATE, id=request.id)
    results = bench.results()
    assert [(result.error, result.was_sent) for result in results] == [("unasked", False)] * FAILURES
    assert bench.pool.failures() == {("a", LATE): FAILURES}
    assert bench.pool.has_hands, "those of one task are one failure"


def test_an_aborted_request_may_be_sent_until_its_deadline(bench: Bench) -> None:
    begin, lease = bench.now, bench.ask("a.example")
    bench.results()
    bench.transport.abort(lease)
    (result,) = bench.results()
    assert (result.error, result.was_sent) == ("aborted", True)
    assert result.ended == pytest.approx(begin + 65.0)


def test_what_may_hold_a_secret_stays_here_where_strangers_could_read_it() -> None:
    bench = Bench("a", is_private=False)
    bench.ask("plain.example", headers=(("Referer", "x"),))
    bench.ask("login.example", headers=(("Cookie", "x"),))
    bench.ask("own.example", headers=(("X-Api-Key", "x"),))
    bench.results()
    assert [request.url for _, task in bench.dispatcher.tasks for request in task.requests] == [
        "http://plain.example/1"
    ]
    assert [url.split("/")[2] for url in bench.local.urls] == ["login.example", "own.example"]


def test_without_a_hand_cluster_waits_and_prefer_cluster_asks_for_itself() -> None:
    waiting = Bench()
    assert waiting.transport.free == 0
    assert "no worker is connected" in waiting.pool.held_up()
    waiting.ask("a.example")
    (result,) = waiting.results()
    assert (result.error, result.was_sent) == ("unasked", False)
    alone = Bench(mode="prefer-cluster")
    assert alone.transport.free == alone.local.free
    alone.ask("a.example")
    assert alone.local.urls == ["http://a.example/1"]


def test_a_hand_that_reaches_nothing_is_at_fault_and_left_out_for_a_while(bench: Bench) -> None:
    bench.dispatcher.known.pop("b")
    for number in range(FAILURES):
        bench.ask(f"h{number}.example")
        bench.results()
        bench.answer(number, status=0, error="dns", detail="no such name")
        (result,) = bench.results()
        assert (result.error, result.detail) == ("hand", "worker a: dns: no such name")
    assert bench.transport.free == 0
    assert "every worker has failed 3 times" in bench.pool.held_up()
    bench.now += OUT_S
    assert bench.transport.free == SECTION.hand_in_flight
    assert not bench.pool.held_up()


def test_a_site_is_at_fault_where_the_hand_has_reached_another() -> None:
    routing = Routing(1)
    routing.reached("a", "well.example", 100.0)
    assert routing.is_sites_fault("a", "dead.example", 129.0)
    assert not routing.is_sites_fault("a", "dead.example", 131.0)
    assert not routing.is_sites_fault("a", "well.example", 101.0)


def test_a_host_with_cookies_stays_with_its_hand_also_when_that_is_full() -> None:
    routing = Routing(1)
    hand = routing.choose("shop.example", ["a", "b", "c"], 0.0, keep=True)
    routing.out[hand] = 1
    assert routing.choose("shop.example", ["a", "b", "c"], 0.0, keep=False) == ""
    others = [name for name in "abc" if name != hand]
    assert routing.choose("shop.example", others, 0.0, keep=True) in others


def test_a_hand_is_sent_what_it_needs_and_no_secret() -> None:
    section = FetchSection(
        email="me@example.com", auth={"a.example": "me:secret"}, total_timeout_s=5.0,
        headers={"Authorization": "secret", "Accept-Language": "de"}, resolve={"a.example": "127.0.0.1"},
    )  # fmt: skip
    sent = settings_for_hands(section)
    assert "secret" not in str(sent)
    there = section_of(sent)
    assert (there.email, there.total_timeout_s, there.resolve) == ("me@example.com", 5.0, {"a.example": "127.0.0.1"})
    assert there.headers == {"Accept-Language": "de"}
    assert there.user_agent() == section.user_agent()

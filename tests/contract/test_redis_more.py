"""A pod on Redis: what one process tells the others, and keeps for itself; the pod's own figures."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from clocked_pod import ALLOW, Pod, admit, claim
from harnesses import stored

from weft.config import PolitenessSection
from weft.errors import ServerAway
from weft.frontier.contract import CrawlLimits, End, Ended, Handed, Outcome, RobotsRecord, Wanted
from weft.frontier.redis import leases as leases_module
from weft.frontier.redis.client import Limits
from weft.frontier.redis.connection import connect
from weft.frontier.redis.outbox import Behind
from weft.frontier.redis.routing import RoutedRedisFrontier
from weft.frontier.requests import Finish, Start, read_events
from weft.records import Found, Purpose
from weft.supervise.redis_server import RedisServer


@pytest.fixture
def pod(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[Pod]:
    pod = Pod(tmp_path / "pod", shared_server("redis"))
    yield pod
    pod.client.close()


def log_of(pod: Pod, slot: str) -> list[tuple[str, int]]:
    events = read_events(pod.folder / "requests" / slot)
    return [
        ("start", event.item) if isinstance(event, Start) else (event.status, event.item)
        for event in events
        if isinstance(event, Start | Finish)
    ]


# ── processes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_dead_owner_had_under_way_is_logged_as_soon_as_it_is_given_back(pod: Pod) -> None:
    dead, other = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    admit(dead, "a", "b", "c")
    leases = {lease.key: lease for lease in claim(dead)}
    dead.cool([Ended(leases["c"], dead.now(), ok=True)])
    dead.commit()
    assert other.release_owner(dead.owner) == 2, "one was over"
    assert sorted(log_of(pod, "pod0-fetcher1")) == sorted(("expired", leases[key].item) for key in "ab")
    assert other.release_owner(dead.owner) == 0
    pod.time += 12  # what was sent at last may have been on its way for a second
    assert len(claim(other)) == 3


def test_an_end_is_logged_before_another_process_may_ask(pod: Pod) -> None:
    one, other = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    admit(one, "a", pages=2)
    (lease,) = claim(one)
    pod.time += 2
    one.cool([Ended(lease, one.now(), ok=True, outcome="200")])
    assert log_of(pod, "pod0-fetcher0") == [("start", lease.item), ("200", lease.item)]
    one.commit()
    pod.time += 9.9
    assert claim(other) == []
    pod.time += 0.2
    assert [found.url for found in claim(other)] == ["https://a/1"]


def test_a_process_hears_with_what_it_has_put_off_of_what_another_has_rejected(pod: Pod) -> None:
    one, other = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    admit(one, "a", pages=2)
    one.drop(1)
    other.robots_known("https://b", ALLOW, None)
    assert [rejection.item.url for rejection in other.rejections()] == ["https://a/0", "https://a/1"]


def test_a_process_among_pods_sends_what_it_has_put_off_when_it_is_closed(pod: Pod) -> None:
    section = PolitenessSection(delay_s=10.0, places=1)
    frontier = RoutedRedisFrontier(
        connect(pod.server.url), pod.folder, section, slot="pod0-fetcher0", clock=lambda: pod.time,
        wall=lambda: pod.time, server_clock=lambda: pod.time, idle_s=0.0, others={}, outbox=pod.folder / "box.db",
    )  # fmt: skip
    frontier.open_crawl("test", CrawlLimits())
    assert [frontier.pod_of(f"{scheme}://a/") for scheme in ("http", "https")] == [0, 0]
    admit(frontier, "a", pages=2)
    (lease,) = claim(frontier)
    frontier.cool([Ended(lease, frontier.now(), ok=True, outcome="200")])
    frontier.close()
    assert log_of(pod, "pod0-fetcher0") == [("start", lease.item), ("200", lease.item)]
    pod.time += 10.1
    assert [found.url for found in claim(pod.process("pod0-fetcher1"))] == ["https://a/1"]


def test_the_delay_counts_from_when_a_request_ended_not_from_when_that_was_reported(pod: Pod) -> None:
    frontier = pod.process()
    admit(frontier, "a", pages=2)
    (lease,) = claim(frontier)
    ended = Ended(lease, frontier.now(), ok=True)
    pod.time += 6
    frontier.cool([ended])
    frontier.finish([Outcome(lease, End.PAGE)])
    pod.time += 3.9
    assert claim(frontier) == []
    pod.time += 0.2
    assert len(claim(frontier)) == 1


def test_a_process_asks_no_more_for_a_while_when_nothing_was_due(pod: Pod) -> None:
    idle, other = pod.process("pod0-fetcher0", idle_s=5.0), pod.process("pod0-fetcher1")
    assert claim(idle) == []
    admit(other, "a", "b")
    other.commit()
    pod.time += 4.9
    assert claim(idle) == []
    pod.time += 0.2
    assert len(claim(idle, 1)) == 1
    assert len(claim(idle, 1)) == 1, "as many as were wanted: there may be more"
    assert claim(idle) == []
    idle.admit(1, [Found("https://c/1", 0)])
    assert [lease.purpose for lease in claim(idle)] == [Purpose.ROBOTS], "what it has done itself may have made it due"


def test_a_page_on_its_way_to_a_parser_is_awaited(pod: Pod) -> None:
    frontier = pod.process()
    admit(frontier, "a", "b", pages=2)
    first, second = claim(frontier)
    waiting = frontier.admit(1, [Found("https://c/1", 0)])
    assert waiting.new == 1
    assert frontier.fetched([Handed(Ended(first, frontier.now(), ok=True, outcome="200"), b"place")]) == [True]
    assert frontier.fetched([Handed(Ended(first, frontier.now(), ok=True), b"place")]) == [False], "it was told"
    assert first.item not in frontier._out, "nothing is kept of what another process has now"
    assert (("200", first.item) in log_of(pod, "pod0-fetcher0"), frontier.stats().to_parse) == (True, 1)
    assert frontier.awaited([first.item, second.item, first.item + 100]) == [True, True, False]
    assert [frontier.died_on(first.item) for _ in range(2)] == [1, 2]
    parser = pod.process("pod0-parser0")
    (taken,) = parser.take(9)
    assert (taken.lease.item, taken.lease.url, taken.reference, taken.deaths) == (first.item, first.url, b"place", 2)
    assert taken.lease.delay_s == first.delay_s
    assert parser.finish([Outcome(taken.lease, End.PAGE)]) == [True]
    assert frontier.awaited([first.item]) == [False]
    assert (parser.stats().pages, parser.stats().to_parse) == (1, 0)


def test_a_page_whose_lease_has_ended_hides_no_other_that_was_fetched(pod: Pod) -> None:
    frontier = pod.process()
    admit(frontier, "a", "b")
    gone, kept = claim(frontier)
    frontier.finish([Outcome(gone, End.OTHER)])
    handed = [Handed(Ended(lease, frontier.now(), ok=True), b"place") for lease in (gone, kept)]
    assert frontier.fetched(handed) == [False, True]
    assert frontier.stats().to_parse == 1


def test_a_page_on_its_way_to_a_parser_holds_its_address_no_longer(pod: Pod) -> None:
    frontier = pod.process(key_scope="ip")
    frontier.recover()
    admit(frontier, "a", "b")
    pod.time += 10.1
    leases = claim(frontier)
    assert sorted(frontier.take_places([Wanted(lease, "192.0.2.1") for lease in leases])) == [False, True]
    (first,) = (lease for lease in leases if lease.item in frontier._out)
    pod.time += 5
    assert frontier.fetched([Handed(Ended(first, frontier.now(), ok=True), b"place")]) == [True]
    ended_at = pod.time
    granted: list[bool] = []
    while not any(granted):
        assert pod.time < ended_at + 60
        pod.time += 0.5
        granted = frontier.take_places([Wanted(lease, "192.0.2.1") for lease in claim(frontier)])
    assert ended_at + 10 <= pod.time <= ended_at + 13, "a full delay after the end, and not much later"


def test_the_oldest_page_is_parsed_first_and_no_more_than_are_wanted(pod: Pod) -> None:
    frontier = pod.process()
    admit(frontier, *"abcd")
    leases = claim(frontier)
    for lease in leases:
        pod.time += 1
        frontier.fetched([Handed(Ended(lease, frontier.now(), ok=True), lease.key.encode())])
    parser = pod.process("pod0-parser0")
    taken = [parser.take(limit) for limit in (0, 1, 2, 9)]
    assert [len(some) for some in taken] == [0, 1, 2, 1]
    order = [out.lease.key for out in parser._out.values()]
    assert order == [lease.key for lease in leases]
    parser.finish([Outcome(one.lease, End.PAGE) for some in taken for one in some])
    assert log_of(pod, "pod0-parser0") == [], "their requests are over"


@pytest.mark.parametrize("drawn", [0, 2**48 - 1])
def test_cookies_are_there_at_once_for_whoever_kept_them(pod: Pod, monkeypatch: pytest.MonkeyPatch, drawn: int) -> None:
    monkeypatch.setattr(random, "getrandbits", lambda _: drawn)
    one, other = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    admit(one, "a", pages=3)
    (lease,) = claim(one)
    assert one.cookies_of(lease) is None
    number = one.keep_cookies(1, "a", b"jar")
    assert one.cookies_of(lease) == (number, b"jar")
    one.cool([Ended(lease, one.now(), ok=True)])
    one.commit()
    pod.time += 10.1
    (second,) = claim(other)
    assert other.cookies_of(second) == (number, b"jar")
    other.cool([Ended(second, other.now(), ok=True)])
    pod.time += 10.1
    (third,) = claim(other)
    monkeypatch.setattr(other, "_ask", None)  # nobody is asked for what is known
    assert other.cookies_of(third) == (number, b"jar")


def test_cookies_of_others_are_there_for_every_lease_however_many_sites_have_some(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases_module, "_KEPT_ROBOTS", 2)
    one, other = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1", delay_s=0.0)
    admit(one, *"abcdef", pages=2)
    for host in "abcdef":
        one.keep_cookies(1, host, host.encode())
    one.commit()
    for _ in range(2):
        leases = claim(other)
        kept = [other.cookies_of(lease) for lease in leases]
        assert [(lease.key, copy[1]) for lease, copy in zip(leases, kept, strict=True) if copy is not None] == [
            (host, host.encode()) for host in "abcdef"
        ]
        other.cool([Ended(lease, other.now(), ok=True) for lease in leases])
        other.finish([Outcome(lease, End.PAGE) for lease in leases])
        pod.time += 11
    other.keep_cookies(1, "z", b"last")
    assert max(len(other._cookies), len(other._cookies_wanted)) <= 4, "it remembers a few"


def test_what_is_acknowledged_at_a_start_is_on_the_disk_before(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    frontier = pod.process()
    admit(frontier, "a", pages=2)
    (lease,) = claim(frontier)
    frontier.finish([Outcome(lease, End.PAGE)], batch=3)
    again = pod.process()
    steps: list[str] = []
    call = again._call
    monkeypatch.setattr(again, "sync", lambda: steps.append("sync"))
    monkeypatch.setattr(again, "_call", lambda name, arguments: steps.append(name) or call(name, arguments))  # type: ignore[func-returns-value]
    again.recover([lease.item], {1: 1}, batch=3)
    assert steps[:2] == ["sync", "recover"]
    assert pod.client.hget("slots", "pod0-fetcher0") == b"3"


def test_pages_that_a_store_tells_of_count_for_the_crawl_that_has_them(pod: Pod) -> None:
    limits = CrawlLimits(max_pages_per_domain=3)
    frontier = pod.process(crawl=limits, delay_s=0.0, places=9)
    other = frontier.open_crawl("other", limits)
    frontier.recover((), {other: 2}, by_crawl={other: {"a": 2}})
    admit(frontier, "a", pages=4)
    frontier.admit(other, [Found(f"https://a/{number}", 0) for number in range(4)])
    found = [lease.crawl for lease in claim(frontier, 99)]
    assert (found.count(1), found.count(other)) == (3, 1)


def test_items_of_a_pod_are_distinguished_from_anothers(pod: Pod) -> None:
    frontier = pod.process(pod=3)
    frontier.admit(1, [Found("https://a/1", 0)])
    (robots,) = claim(frontier)
    assert robots.item == -(3 << 48) - 1 or robots.item < -(3 << 48)
    frontier.cool([Ended(robots, frontier.now(), ok=True)])
    frontier.robots_known("https://a", ALLOW, None)
    assert frontier.finish([Outcome(robots, End.OTHER)]) == [True]
    pod.time += 10.1
    (lease,) = claim(frontier)
    assert lease.item == (3 << 48) + 1
    assert frontier.finish([Outcome(lease, End.OTHER)]) == [True]
    assert frontier.recover(done=[lease.item, 5, -7]) == 0


def test_a_page_of_another_pod_that_a_store_has_ends_none_of_this_pod(pod: Pod) -> None:
    frontier = pod.process(pod=3)
    admit(frontier, "a", "b")
    again = pod.process(pod=3)
    assert again.recover(done=[(2 << 48) + 1, (3 << 48) + 2]) == 2
    assert again.lost_ends == [(3 << 48) + 2], "the links of the other pod's page are that pod's"
    assert [lease.url for lease in claim(again)] == ["https://a/0"]


def test_a_long_queue_of_one_depth_takes_no_room_from_another(pod: Pod) -> None:
    frontier = pod.process(limits=Limits(cap=4, keep=2, low=1, hard=6))
    for depth in (11, 1):
        first = frontier.admit(1, [Found(f"https://a/{depth}/{number}", depth) for number in range(8)])
        assert (first.new, first.full) == (8, ())
    assert len(frontier.admit(1, [Found(f"https://a/more/{depth}", depth) for depth in (1, 11)]).full) == 2


def test_the_crawl_with_the_shortest_delay_says_when_to_ask_again(pod: Pod) -> None:
    frontier = pod.process(delay_s=5.0)
    for name, delay_s in (("slow", 30.0), ("slower", 60.0)):
        frontier.open_crawl(name, CrawlLimits(), PolitenessSection(delay_s=delay_s, places=1))
    admit(frontier, "a")
    (lease,) = claim(frontier)
    assert claim(frontier) == []
    frontier.cool([Ended(lease, frontier.now(), ok=True)])
    assert frontier.next_due() == pytest.approx(pod.time + 5.0)


def test_a_lease_that_got_no_place_has_one_end_also_if_the_server_did_not_hear_of_it(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontier = pod.process(key_scope="ip")
    admit(frontier, "a", "b")
    pod.time += 10.1
    leases = claim(frontier)
    call = frontier._call

    def away(name: str, arguments: Any) -> Any:
        if name == "wait":
            raise ServerAway("for a moment")
        return call(name, arguments)

    with monkeypatch.context() as patch:
        patch.setattr(frontier, "_call", away)
        with pytest.raises(ServerAway):
            frontier.take_places([Wanted(lease, "192.0.2.1") for lease in leases])
    assert frontier.finish([Outcome(lease, End.RELEASE) for lease in leases]) == [True, True]
    ends = [entry for entry in log_of(pod, "pod0-fetcher0") if entry[0] == "unasked"]
    assert sorted(ends) == sorted(("unasked", lease.item) for lease in leases)


def test_a_robots_txt_that_is_forgotten_leaves_its_site_as_many_places_as_before(pod: Pod) -> None:
    frontier = pod.process(delay_s=0.0, places=9)
    frontier.robots_known("https://a", RobotsRecord("unreachable", b"", 9e12), None)
    frontier.readmit(1, Found("https://a/0", 0))
    (robots,) = claim(frontier)
    assert robots.purpose is Purpose.ROBOTS
    frontier.cool([Ended(robots, frontier.now(), ok=True)])
    admit(frontier, "a", pages=4)
    frontier.finish([Outcome(robots, End.OTHER)])
    assert len(claim(frontier)) == 4


def test_an_ended_crawl_that_was_never_opened_here_is_closed_here_too(pod: Pod) -> None:
    one, other = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    crawl = one.open_crawl("short", CrawlLimits())
    one.admit(crawl, [Found("https://a/1", 0)])
    other.close_crawl(crawl)
    assert other.stats().queued == 0


def test_a_site_is_told_by_its_domain_whatever_the_scheme(pod: Pod) -> None:
    frontier = pod.process()
    assert [frontier.key_of(f"{scheme}://www.a.com/x") for scheme in ("http", "https")] == ["a.com", "a.com"]


def test_a_server_whose_clock_is_set_back_goes_on_from_where_it_was(pod: Pod) -> None:
    frontier = pod.process(delay_s=10.0, places=1)
    frontier.robots_known("https://a", RobotsRecord("allow", b"", 9e12), None)
    frontier.admit(1, [Found(f"https://a/{number}", 0) for number in range(3)])
    for back_s in (500.0, 200.0):
        (lease,) = frontier.claim("me", 9)
        frontier.cool([Ended(lease, frontier.now(), ok=True)])
        frontier.finish([Outcome(lease, End.PAGE)])
        pod.time -= back_s
        assert frontier.claim("me", 9) == []
        pod.time += 9.0
        assert frontier.claim("me", 9) == []
        pod.time += 1.1
    assert len(frontier.claim("me", 9)) == 1


# ── known pages ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_recrawl_that_was_cut_off_goes_on_where_it_was(pod: Pod) -> None:
    frontier = pod.process(places=9, delay_s=0.0)
    known = [Found(f"https://a/{number}", 0) for number in range(2500)]
    begun: list[int] = []
    frontier.recrawl(1, "run", stored(known), begun.append)
    assert (frontier.stats().queued, begun) == (2500, [0])
    frontier.recrawl(1, "run", stored(known), begun.append)
    assert frontier.stats().queued == 2500
    pod.client.hset("meta", "recrawl:1", "later 2000")
    frontier.recrawl(1, "later", stored(known), begun.append)
    assert (frontier.stats().queued, len(begun)) == (3000, 1), "the last five hundred alone"
    frontier.recrawl(1, "next", stored(known[:1000]), begun.append)
    assert (frontier.stats().queued, begun[1]) == (4000, 3000)
    with pytest.raises(OSError):
        frontier.recrawl(1, "stopped", lambda _: CutOff(), begun.append)
    frontier.recrawl(1, "stopped", stored(known[:1]), begun.append)
    assert len(begun) == 3, "it began once"


def test_a_recrawl_that_is_cut_off_while_it_looks_for_its_place_begins_there_again(pod: Pod) -> None:
    frontier = pod.process()

    def known(until: int, after: int) -> Iterator[tuple[int, Found]]:
        yield from ((number, Found(f"https://a/{number}", 0)) for number in range(after + 1, until + 1))
        if until < 2500:
            raise OSError

    for until in (1500, 500):
        with pytest.raises(OSError):
            frontier.recrawl(1, "run", partial(known, until), lambda _: None)
    frontier.recrawl(1, "run", partial(known, 2500), lambda _: None)
    assert frontier.stats().queued == 2500, "each once"


def test_a_recrawl_in_a_pod_that_had_no_item_begins_before_its_first_one(pod: Pod) -> None:
    begun: list[int] = []
    pod.process(pod=3).recrawl(1, "run", stored([Found("https://a/1", 0)]), begun.append)
    assert begun == [3 << 48]


def test_a_recrawl_asks_again_for_a_robots_txt_that_could_not_be_had(pod: Pod) -> None:
    frontier = pod.process(crawl=CrawlLimits(max_depth=5))
    frontier.robots_known("https://a", RobotsRecord("unreachable", b"", 9e12), None)
    frontier.recrawl(1, "run", stored([Found("https://a/1", 0)]), lambda _: None)
    (lease,) = claim(frontier)
    assert (lease.purpose, frontier.depth_of(lease)) == (Purpose.ROBOTS, lease.depth), "no way there is known"


class CutOff:
    """A source that breaks at once."""

    def __iter__(self) -> Iterator[tuple[int, Found]]:
        raise OSError


def test_a_process_knows_what_it_has_admitted_and_asks_for_the_rest(pod: Pod) -> None:
    one, other = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    one.admit(1, [Found("https://a.test/1", 0), Found("https://b.test/1", 0)])
    assert one.unseen(1, ["https://a.test/1", "https://a.test/2"]) == ["https://a.test/2"]
    assert other.unseen(1, ["https://a.test/1"]) == ["https://a.test/1"], "it was never told"
    admission = other.admit(1, [Found("https://a.test/1", 0), Found("https://a.test/2", 0)])
    assert (admission.new, admission.duplicates) == (1, 1)
    assert other.unseen(1, ["https://a.test/1", "https://a.test/2"]) == []


def test_batches_of_another_pod_come_in_their_order_and_once(pod: Pod) -> None:
    frontier = pod.process()
    sender = pod.from_afar()
    with pytest.raises(ServerAway, match="pod 0 has not been opened yet"):
        sender.find_crawl("nobody's")
    assert sender.find_crawl("test") == 1
    assert sender.deliver(1, "pod1", 1, [Found("https://a/1", 0)]).new == 1
    again = sender.deliver(1, "pod1", 1, [Found("https://a/1", 0), Found("https://a/2", 0)])
    assert (again.new, again.duplicates) == (0, 2), "a batch that came before changes nothing"
    with pytest.raises(Behind):
        sender.deliver(1, "pod1", 4, [Found("https://a/4", 0)], after=3)
    assert sender.deliver(1, "pod1", 4, [Found("https://a/4", 0)], after=1).new == 1
    assert sender.arrived("pod1").last == 4
    assert sender.arrived("nobody").last == 0
    assert frontier.stats().queued == 2
    sender.sent(5)
    assert (frontier.stats().sent, frontier.stats().received) == (5, 2)


def test_after_a_loss_the_pods_own_processes_come_before_anothers_batches(pod: Pod) -> None:
    pod.process()
    sender = pod.from_afar()
    sender.find_crawl("test")
    pod.client.hset("n", "lost", int(pod.time * 1e6))  # as it stands after data was lost
    pod.client.sadd("settling", "pod0-fetcher0")
    with pytest.raises(ServerAway, match="has lost data and is recovering"):
        sender.deliver(1, "pod1", 1, [Found("https://a/1", 0)])
    assert sender.arrived("pod1").last == 0
    pod.client.delete("settling")
    assert sender.deliver(1, "pod1", 1, [Found("https://a/1", 0)]).new == 1


# ── figures ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pods_figures_tell_what_waits_where(pod: Pod) -> None:
    frontier = pod.process(crawl=CrawlLimits(max_pages=1))
    assert frontier.facts()[1] == {
        "outboxes": 0, "scheduled": 0, "blocked": 0, "rejects": 0, "mail": 0, "seeded": 0, "spilled": 0,
    }  # fmt: skip
    admit(frontier, "a", "b", pages=2)
    assert frontier.facts()[1]["scheduled"] == 2
    assert len(claim(frontier)) == 1
    facts = frontier.facts()[1]
    assert (facts["scheduled"], facts["blocked"]) == (0, 1)
    frontier.mail_robots(b"x")
    pod.client.rpush("nearer", b"y")
    pod.client.hset("outboxes", mapping={"1": 3, "2": 4})
    frontier.note("seeded", "7")
    frontier.drop(1)
    stats, facts = frontier.facts()
    assert (facts["mail"], facts["outboxes"], facts["seeded"]) == (2, 7, 7)
    assert (facts["rejects"] > 0, stats.queued) == (True, 0)
    assert (facts["scheduled"], facts["blocked"]) == (0, 0), "of what has nothing queued nothing waits"


def test_a_note_is_kept_changed_and_taken_away(pod: Pod) -> None:
    one, other = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    assert one.note("word") == ""
    assert one.note("word", "first") == "first"
    assert other.note("word") == "first"
    other.note("word", "")
    assert one.note("word") == ""
    assert pod.client.hexists("meta", "word") == 0


def test_a_pods_permits_bind_it_more_than_the_crawls(pod: Pod) -> None:
    frontier = pod.process(crawl=CrawlLimits(max_pages=5), delay_s=0.0, places=9)
    admit(frontier, "a", pages=9)
    assert (frontier.permits(1), frontier.given(1), frontier.given(2)) == (5, (0, 0, -1), (0, 0, -1))
    frontier.allow(1, 2)
    assert (frontier.permits(1), frontier.given(1)) == (2, (0, 0, 2))
    leases = claim(frontier)
    assert (len(leases), frontier.permits(1), frontier.given(1)) == (2, 0, (0, 2, 2))
    for lease in leases:
        frontier.cool([Ended(lease, frontier.now(), ok=True)])
    frontier.finish([Outcome(lease, End.PAGE) for lease in leases])
    assert (frontier.exhausted(), frontier.given(1)) == (True, (2, 0, 2))
    frontier.allow(1, 4)
    assert (frontier.exhausted(), frontier.lower_permits(1, 3), frontier.permits(1)) == (False, 3, 1)


def test_a_pod_that_was_given_no_pages_has_none_and_another_crawl_has_its_own(pod: Pod) -> None:
    frontier = pod.process(crawl=CrawlLimits(max_pages=5))
    frontier.allow(1, 0)
    assert (frontier.exhausted(), frontier.permits(1), frontier.given(1)) == (True, 0, (0, 0, 0))
    other = frontier.open_crawl("other", CrawlLimits())
    assert (frontier.exhausted(), frontier.permits(1), frontier.given(other)) == (False, 0, (0, 0, -1))
    assert frontier.permits(other) > 10**6

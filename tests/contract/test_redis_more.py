"""A pod on Redis: what one process tells the others, and keeps for itself; the pod's own figures."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from clocked_pod import ALLOW, Pod, admit, claim
from harnesses import RECRAWL, stored, walked

from weft.config import PolitenessSection
from weft.errors import ServerAway
from weft.frontier.contract import CrawlLimits, End, EndedLease, HandedTransfer, RobotsRecord, SlotRequest, TransferEnd
from weft.frontier.redis.connection import connect
from weft.frontier.redis.link import QueueLimits
from weft.frontier.redis.pods.pod_outbox import MessageLost
from weft.frontier.redis.redis_frontier import RoutedRedisFrontier
from weft.frontier.requests import RequestEnd, RequestStart, read_events
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
        ("start", event.item) if isinstance(event, RequestStart) else (event.status, event.item)
        for event in events
        if isinstance(event, RequestStart | RequestEnd)
    ]


# ── processes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_dead_owner_had_under_way_is_logged_as_soon_as_it_is_given_back(pod: Pod) -> None:
    dead, other = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    admit(dead, "a", "b", "c")
    leases = {lease.key: lease for lease in claim(dead)}
    dead.leases.cool([TransferEnd(leases["c"], dead.now(), ok=True)])
    dead.durability.commit()
    assert other.processes.release_owner(dead.owner) == 2, "one was over"
    assert sorted(log_of(pod, "pod0-fetcher1")) == sorted(("expired", leases[key].item) for key in "ab")
    assert other.processes.release_owner(dead.owner) == 0
    pod.time += 12  # what was sent at last may have been on its way for a second
    assert len(claim(other)) == 3


def test_an_end_is_logged_before_another_process_may_ask(pod: Pod) -> None:
    one, other = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    admit(one, "a", pages=2)
    (lease,) = claim(one)
    pod.time += 2
    one.leases.cool([TransferEnd(lease, one.now(), ok=True, outcome="200")])
    assert log_of(pod, "pod0-fetcher0") == [("start", lease.item), ("200", lease.item)]
    one.durability.commit()
    pod.time += 9.9
    assert claim(other) == []
    pod.time += 0.2
    assert [found.url for found in claim(other)] == ["https://a/1"]


def test_a_process_hears_with_what_it_has_put_off_of_what_another_has_rejected(pod: Pod) -> None:
    one, other = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    admit(one, "a", pages=2)
    (lease,) = claim(one, 1)
    one.leases.cool([TransferEnd(lease, one.now(), slow_down=True, retry_after_s=1e9)])
    other.sites.robots_known("https://b", ALLOW, None)
    assert [rejection.item.url for rejection in other.rejected.rejections()] == ["https://a/1"]


def test_a_process_among_pods_sends_what_it_has_put_off_when_it_is_closed(pod: Pod) -> None:
    section = PolitenessSection(delay_s=10.0, places=1)
    frontier = RoutedRedisFrontier(
        connect(pod.server.url), pod.folder, section, slot="pod0-fetcher0", clock=lambda: pod.time,
        wall=lambda: pod.time, server_clock=lambda: pod.time, idle_s=0.0, others={}, outbox=pod.folder / "box.db",
    )  # fmt: skip
    frontier.crawls.open_crawl("test", CrawlLimits())
    assert [frontier.pods.pod_of(f"{scheme}://a/") for scheme in ("http", "https")] == [0, 0]
    admit(frontier, "a", pages=2)
    (lease,) = claim(frontier)
    frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True, outcome="200")])
    frontier.close()
    assert log_of(pod, "pod0-fetcher0") == [("start", lease.item), ("200", lease.item)]
    pod.time += 10.1
    assert [found.url for found in claim(pod.process("pod0-fetcher1"))] == ["https://a/1"]


def test_the_delay_counts_from_when_a_request_ended_not_from_when_that_was_reported(pod: Pod) -> None:
    frontier = pod.process()
    admit(frontier, "a", pages=2)
    (lease,) = claim(frontier)
    ended = TransferEnd(lease, frontier.now(), ok=True)
    pod.time += 6
    frontier.leases.cool([ended])
    frontier.leases.finish([EndedLease(lease, End.PAGE)])
    pod.time += 3.9
    assert claim(frontier) == []
    pod.time += 0.2
    assert len(claim(frontier)) == 1


def test_a_process_asks_no_more_for_a_while_when_nothing_was_due(pod: Pod) -> None:
    idle, other = pod.process("pod0-fetcher0", idle_s=5.0), pod.process("pod0-fetcher1")
    assert claim(idle) == []
    admit(other, "a", "b")
    other.durability.commit()
    pod.time += 4.9
    assert claim(idle) == []
    pod.time += 0.2
    assert len(claim(idle, 1)) == 1
    assert len(claim(idle, 1)) == 1, "as many as were wanted: there may be more"
    assert claim(idle) == []
    idle.queue.admit(1, [Found("https://c/1", 0)])
    assert [lease.purpose for lease in claim(idle)] == [Purpose.ROBOTS], "what it has done itself may have made it due"


def test_a_page_on_its_way_to_a_parser_is_awaited(pod: Pod) -> None:
    frontier = pod.process()
    admit(frontier, "a", "b", pages=2)
    first, second = claim(frontier)
    waiting = frontier.queue.admit(1, [Found("https://c/1", 0)])
    assert waiting.new == 1
    assert frontier.parse_queue.fetched(
        [HandedTransfer(TransferEnd(first, frontier.now(), ok=True, outcome="200"), b"place")]
    ) == [True]
    assert frontier.parse_queue.fetched([HandedTransfer(TransferEnd(first, frontier.now(), ok=True), b"place")]) == [
        False
    ], "it was told"
    assert (("200", first.item) in log_of(pod, "pod0-fetcher0"), frontier.status.stats().to_parse) == (True, 1)
    assert frontier.parse_queue.awaited([first.item, second.item, first.item + 100]) == [True, True, False]
    assert [frontier.parse_queue.died_on(first.item) for _ in range(2)] == [1, 2]
    parser = pod.process("pod0-parser0")
    (taken,) = parser.parse_queue.claim(9)
    assert (taken.lease.item, taken.lease.url, taken.reference, taken.deaths) == (first.item, first.url, b"place", 2)
    assert taken.lease.delay_s == first.delay_s
    assert parser.leases.finish([EndedLease(taken.lease, End.PAGE)]) == [True]
    assert frontier.parse_queue.awaited([first.item]) == [False]
    assert (parser.status.stats().pages, parser.status.stats().to_parse) == (1, 0)


def test_a_page_whose_lease_has_ended_hides_no_other_that_was_fetched(pod: Pod) -> None:
    frontier = pod.process()
    admit(frontier, "a", "b")
    gone, kept = claim(frontier)
    frontier.leases.finish([EndedLease(gone, End.OTHER)])
    handed = [HandedTransfer(TransferEnd(lease, frontier.now(), ok=True), b"place") for lease in (gone, kept)]
    assert frontier.parse_queue.fetched(handed) == [False, True]
    assert frontier.status.stats().to_parse == 1


def test_a_page_on_its_way_to_a_parser_holds_its_address_no_longer(pod: Pod) -> None:
    frontier = pod.process(key_scope="ip")
    frontier.recovery.recover()
    admit(frontier, "a", "b")
    pod.time += 10.1
    leases = claim(frontier)
    granted = frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1") for lease in leases])
    assert sorted(granted) == [False, True]
    (first,) = (lease for lease, has_place in zip(leases, granted, strict=True) if has_place)
    pod.time += 5
    assert frontier.parse_queue.fetched([HandedTransfer(TransferEnd(first, frontier.now(), ok=True), b"place")]) == [
        True
    ]
    ended_at = pod.time
    granted = []
    while not any(granted):
        assert pod.time < ended_at + 60
        pod.time += 0.5
        granted = frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1") for lease in claim(frontier)])
    assert ended_at + 10 <= pod.time <= ended_at + 13, "a full delay after the end, and not much later"


def test_the_oldest_page_is_parsed_first_and_no_more_than_are_wanted(pod: Pod) -> None:
    frontier = pod.process()
    admit(frontier, *"abcd")
    leases = claim(frontier)
    for lease in leases:
        pod.time += 1
        frontier.parse_queue.fetched([HandedTransfer(TransferEnd(lease, frontier.now(), ok=True), lease.key.encode())])
    parser = pod.process("pod0-parser0")
    taken = [parser.parse_queue.claim(limit) for limit in (0, 1, 2, 9)]
    assert [len(some) for some in taken] == [0, 1, 2, 1]
    assert [one.lease.key for some in taken for one in some] == [lease.key for lease in leases]
    parser.leases.finish([EndedLease(one.lease, End.PAGE) for some in taken for one in some])
    assert log_of(pod, "pod0-parser0") == [], "their requests are over"


@pytest.mark.parametrize("drawn", [0, 2**48 - 1])
def test_cookies_are_there_at_once_for_whoever_kept_them(pod: Pod, monkeypatch: pytest.MonkeyPatch, drawn: int) -> None:
    monkeypatch.setattr(random, "getrandbits", lambda _: drawn)
    one, other = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    admit(one, "a", pages=3)
    (lease,) = claim(one)
    assert one.sites.cookies_of(lease) is None
    number = one.sites.keep_cookies(1, "a", b"jar")
    assert one.sites.cookies_of(lease) == (number, b"jar")
    one.leases.cool([TransferEnd(lease, one.now(), ok=True)])
    one.durability.commit()
    pod.time += 10.1
    (second,) = claim(other)
    assert other.sites.cookies_of(second) == (number, b"jar")
    other.leases.cool([TransferEnd(second, other.now(), ok=True)])
    pod.time += 10.1
    (third,) = claim(other)
    monkeypatch.setattr(other.link, "run_command", None)  # nobody is asked for what is known
    assert other.sites.cookies_of(third) == (number, b"jar")


def test_what_is_acknowledged_at_a_start_is_on_the_disk_before(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    frontier = pod.process()
    admit(frontier, "a", pages=2)
    (lease,) = claim(frontier)
    frontier.leases.finish([EndedLease(lease, End.PAGE)], batch=3)
    again = pod.process()
    steps: list[str] = []
    call = again.link.call_script
    monkeypatch.setattr(again.durability, "sync", lambda: steps.append("sync"))
    monkeypatch.setattr(again.link, "call_script", lambda name, arguments: steps.append(name) or call(name, arguments))  # type: ignore[func-returns-value]
    again.recovery.recover([lease.item], {1: 1}, batch=3)
    assert steps[:2] == ["sync", "recover"]
    assert pod.client.hget("slots", "pod0-fetcher0") == b"3"


def test_pages_that_a_store_tells_of_count_for_the_crawl_that_has_them(pod: Pod) -> None:
    limits = CrawlLimits(max_pages_per_domain=3)
    frontier = pod.process(crawl=limits, delay_s=0.0, places=9)
    other = frontier.crawls.open_crawl("other", limits)
    frontier.recovery.recover((), {other: 2}, by_crawl={other: {"a": 2}})
    admit(frontier, "a", pages=4)
    frontier.queue.admit(other, [Found(f"https://a/{number}", 0) for number in range(4)])
    found = [lease.crawl for lease in claim(frontier, 99)]
    assert (found.count(1), found.count(other)) == (3, 1)


def test_items_of_a_pod_are_distinguished_from_anothers(pod: Pod) -> None:
    frontier = pod.process(pod=3)
    frontier.queue.admit(1, [Found("https://a/1", 0)])
    (robots,) = claim(frontier)
    assert robots.item == -(3 << 48) - 1 or robots.item < -(3 << 48)
    frontier.leases.cool([TransferEnd(robots, frontier.now(), ok=True)])
    frontier.sites.robots_known("https://a", ALLOW, None)
    assert frontier.leases.finish([EndedLease(robots, End.OTHER)]) == [True]
    pod.time += 10.1
    (lease,) = claim(frontier)
    assert lease.item == (3 << 48) + 1
    assert frontier.leases.finish([EndedLease(lease, End.OTHER)]) == [True]
    assert frontier.recovery.recover(done=[lease.item, 5, -7]) == 0


def test_a_page_of_another_pod_that_a_store_has_ends_none_of_this_pod(pod: Pod) -> None:
    frontier = pod.process(pod=3)
    admit(frontier, "a", "b")
    again = pod.process(pod=3)
    assert again.recovery.recover(done=[(2 << 48) + 1, (3 << 48) + 2]) == 2
    assert again.recovery.lost_ends == [(3 << 48) + 2], "the links of the other pod's page are that pod's"
    assert [lease.url for lease in claim(again)] == ["https://a/0"]


def test_a_long_queue_of_one_depth_takes_no_room_from_another(pod: Pod) -> None:
    frontier = pod.process(limits=QueueLimits(split_above=4, moved_at_once=2, refill_below=1, most_in_tail=6))
    for depth in (11, 1):
        first = frontier.queue.admit(1, [Found(f"https://a/{depth}/{number}", depth) for number in range(8)])
        assert (first.new, first.full) == (8, ())
    assert len(frontier.queue.admit(1, [Found(f"https://a/more/{depth}", depth) for depth in (1, 11)]).full) == 2


def test_the_crawl_with_the_shortest_delay_says_when_to_ask_again(pod: Pod) -> None:
    frontier = pod.process(delay_s=5.0)
    for name, delay_s in (("slow", 30.0), ("slower", 60.0)):
        frontier.crawls.open_crawl(name, CrawlLimits(), PolitenessSection(delay_s=delay_s, places=1))
    admit(frontier, "a")
    (lease,) = claim(frontier)
    assert claim(frontier) == []
    frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True)])
    assert frontier.leases.next_due() == pytest.approx(pod.time + 5.0)


def test_a_lease_that_got_no_place_has_one_end_also_if_the_server_did_not_hear_of_it(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontier = pod.process(key_scope="ip")
    admit(frontier, "a", "b")
    pod.time += 10.1
    leases = claim(frontier)
    call = frontier.link.call_script

    def away(name: str, arguments: Any) -> Any:
        if name == "wait":
            raise ServerAway("for a moment")
        return call(name, arguments)

    with monkeypatch.context() as patch:
        patch.setattr(frontier.link, "call_script", away)
        with pytest.raises(ServerAway):
            frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1") for lease in leases])
    assert frontier.leases.finish([EndedLease(lease, End.RELEASE) for lease in leases]) == [True, True]
    ends = [entry for entry in log_of(pod, "pod0-fetcher0") if entry[0] == "unasked"]
    assert sorted(ends) == sorted(("unasked", lease.item) for lease in leases)


def test_a_robots_txt_that_is_forgotten_leaves_its_site_as_many_places_as_before(pod: Pod) -> None:
    frontier = pod.process(delay_s=0.0, places=9)
    frontier.sites.robots_known("https://a", RobotsRecord("unreachable", b"", 9e12), None)
    frontier.revisits.readmit(1, Found("https://a/0", 0))
    (robots,) = claim(frontier)
    assert robots.purpose is Purpose.ROBOTS
    frontier.leases.cool([TransferEnd(robots, frontier.now(), ok=True)])
    admit(frontier, "a", pages=4)
    frontier.leases.finish([EndedLease(robots, End.OTHER)])
    assert len(claim(frontier)) == 4


def test_a_site_is_told_by_its_domain_whatever_the_scheme(pod: Pod) -> None:
    frontier = pod.process()
    assert [frontier.sites.key_of(f"{scheme}://www.a.com/x") for scheme in ("http", "https")] == ["a.com", "a.com"]


def test_a_server_whose_clock_is_set_back_goes_on_from_where_it_was(pod: Pod) -> None:
    frontier = pod.process(delay_s=10.0, places=1)
    frontier.sites.robots_known("https://a", RobotsRecord("allow", b"", 9e12), None)
    frontier.queue.admit(1, [Found(f"https://a/{number}", 0) for number in range(3)])
    for back_s in (500.0, 200.0):
        (lease,) = frontier.leases.claim("me", 9)
        frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True)])
        frontier.leases.finish([EndedLease(lease, End.PAGE)])
        pod.time -= back_s
        assert frontier.leases.claim("me", 9) == []
        pod.time += 9.0
        assert frontier.leases.claim("me", 9) == []
        pod.time += 1.1
    assert len(frontier.leases.claim("me", 9)) == 1


# ── known pages ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_recrawl_that_was_cut_off_goes_on_where_it_was(pod: Pod) -> None:
    frontier = pod.process(places=9, delay_s=0.0)
    known = [Found(f"https://a/{number}", 0) for number in range(2500)]
    begun: list[int] = []
    walked(frontier.revisits.walk(1, RECRAWL, "run", stored(known), begun.append))
    assert (frontier.status.stats().queued, begun) == (2500, [0])
    walked(frontier.revisits.walk(1, RECRAWL, "run", stored(known), begun.append))
    assert frontier.status.stats().queued == 2500
    pod.client.hset("meta", RECRAWL, "later 2000")
    walked(frontier.revisits.walk(1, RECRAWL, "later", stored(known), begun.append))
    assert (frontier.status.stats().queued, len(begun)) == (3000, 1), "the last five hundred alone"
    walked(frontier.revisits.walk(1, RECRAWL, "next", stored(known[:1000]), begun.append))
    assert (frontier.status.stats().queued, begun[1]) == (4000, 3000)
    with pytest.raises(OSError):
        walked(frontier.revisits.walk(1, RECRAWL, "stopped", lambda _: CutOff(), begun.append))
    walked(frontier.revisits.walk(1, RECRAWL, "stopped", stored(known[:1]), begun.append))
    assert len(begun) == 3, "it began once"


def test_a_recrawl_that_is_cut_off_while_it_looks_for_its_place_begins_there_again(pod: Pod) -> None:
    frontier = pod.process()

    def known(until: int, after: int) -> Iterator[tuple[int, Found]]:
        yield from ((number, Found(f"https://a/{number}", 0)) for number in range(after + 1, until + 1))
        if until < 2500:
            raise OSError

    for until in (1500, 500):
        with pytest.raises(OSError):
            walked(frontier.revisits.walk(1, RECRAWL, "run", partial(known, until), lambda _: None))
    walked(frontier.revisits.walk(1, RECRAWL, "run", partial(known, 2500), lambda _: None))
    assert frontier.status.stats().queued == 2500, "each once"


def test_a_recrawl_in_a_pod_that_had_no_item_begins_before_its_first_one(pod: Pod) -> None:
    begun: list[int] = []
    walked(pod.process(pod=3).revisits.walk(1, RECRAWL, "run", stored([Found("https://a/1", 0)]), begun.append))
    assert begun == [3 << 48]


def test_a_recrawl_asks_again_for_a_robots_txt_that_could_not_be_had(pod: Pod) -> None:
    frontier = pod.process(crawl=CrawlLimits(max_depth=5))
    frontier.sites.robots_known("https://a", RobotsRecord("unreachable", b"", 9e12), None)
    walked(frontier.revisits.walk(1, RECRAWL, "run", stored([Found("https://a/1", 0)]), lambda _: None))
    (lease,) = claim(frontier)
    assert (lease.purpose, frontier.leases.depth_of(lease)) == (Purpose.ROBOTS, lease.depth), "no way there is known"


class CutOff:
    """A source that breaks at once."""

    def __iter__(self) -> Iterator[tuple[int, Found]]:
        raise OSError


def test_a_process_knows_what_it_has_admitted_and_asks_for_the_rest(pod: Pod) -> None:
    one, other = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    one.queue.admit(1, [Found("https://a.test/1", 0), Found("https://b.test/1", 0)])
    assert one.queue.unseen(1, ["https://a.test/1", "https://a.test/2"]) == ["https://a.test/2"]
    assert other.queue.unseen(1, ["https://a.test/1"]) == ["https://a.test/1"], "it was never told"
    admission = other.queue.admit(1, [Found("https://a.test/1", 0), Found("https://a.test/2", 0)])
    assert (admission.new, admission.duplicates) == (1, 1)
    assert other.queue.unseen(1, ["https://a.test/1", "https://a.test/2"]) == []


def test_batches_of_another_pod_come_in_their_order_and_once(pod: Pod) -> None:
    frontier = pod.process()
    sender = pod.from_afar()
    with pytest.raises(ServerAway, match="pod 0 has not been opened yet"):
        sender.find_crawl("nobody's")
    assert sender.find_crawl("test") == 1
    assert sender.intake.deliver_batch(1, "pod1", 1, [Found("https://a/1", 0)]).new == 1
    again = sender.intake.deliver_batch(1, "pod1", 1, [Found("https://a/1", 0), Found("https://a/2", 0)])
    assert (again.new, again.duplicates) == (0, 2), "a batch that came before changes nothing"
    with pytest.raises(MessageLost):
        sender.intake.deliver_batch(1, "pod1", 4, [Found("https://a/4", 0)], after=3)
    assert sender.intake.deliver_batch(1, "pod1", 4, [Found("https://a/4", 0)], after=1).new == 1
    assert sender.intake.last_arrival("pod1").last == 4
    assert sender.intake.last_arrival("nobody").last == 0
    assert frontier.status.stats().queued == 2
    assert frontier.status.stats().received == 2


def test_after_a_loss_the_pods_own_processes_come_before_anothers_batches(pod: Pod) -> None:
    pod.process()
    sender = pod.from_afar()
    sender.find_crawl("test")
    pod.client.hset("n", "lost", int(pod.time * 1e6))  # as it stands after data was lost
    pod.client.sadd("settling", "pod0-fetcher0")
    with pytest.raises(ServerAway, match="has lost data and is recovering"):
        sender.intake.deliver_batch(1, "pod1", 1, [Found("https://a/1", 0)])
    assert sender.intake.last_arrival("pod1").last == 0
    pod.client.delete("settling")
    assert sender.intake.deliver_batch(1, "pod1", 1, [Found("https://a/1", 0)]).new == 1


# ── figures ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pods_figures_tell_what_waits_where(pod: Pod) -> None:
    frontier = pod.process(crawl=CrawlLimits(max_pages=1))
    assert frontier.status.stats_and_waits()[1] == {
        "outboxes": 0, "scheduled": 0, "blocked": 0, "rejects": 0, "mail": 0, "seeded": 0, "spilled": 0,
    }  # fmt: skip
    admit(frontier, "a", "b", pages=2)
    assert frontier.status.stats_and_waits()[1]["scheduled"] == 2
    (lease,) = claim(frontier)
    facts = frontier.status.stats_and_waits()[1]
    assert (facts["scheduled"], facts["blocked"]) == (0, 1)
    frontier.pod.mail_robots(b"x")
    pod.client.rpush("nearer", b"y")
    pod.client.hset("outboxes", mapping={"1": 3, "2": 4})
    frontier.notes.note("seeded", "7")
    frontier.leases.cool([TransferEnd(lease, frontier.now(), slow_down=True, retry_after_s=1e9)])
    stats, facts = frontier.status.stats_and_waits()
    assert (facts["mail"], facts["outboxes"], facts["seeded"]) == (2, 7, 7)
    assert (facts["rejects"] > 0, stats.queued) == (True, 2)
    assert (facts["scheduled"], facts["blocked"]) == (0, 1), "of what has nothing queued nothing waits"


def test_a_note_is_kept_changed_and_taken_away(pod: Pod) -> None:
    one, other = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    assert one.notes.note("word") == ""
    assert one.notes.note("word", "first") == "first"
    assert other.notes.note("word") == "first"
    other.notes.note("word", "")
    assert one.notes.note("word") == ""
    assert pod.client.hexists("meta", "word") == 0


def test_a_pods_permits_bind_it_more_than_the_crawls(pod: Pod) -> None:
    frontier = pod.process(crawl=CrawlLimits(max_pages=5), delay_s=0.0, places=9)
    admit(frontier, "a", pages=9)
    assert (frontier.permits.left(1), frontier.permits.permit_counts(1), frontier.permits.permit_counts(2)) == (
        5,
        (0, 0, -1),
        (0, 0, -1),
    )
    frontier.permits.allow(1, 2)
    assert (frontier.permits.left(1), frontier.permits.permit_counts(1)) == (2, (0, 0, 2))
    leases = claim(frontier)
    assert (len(leases), frontier.permits.left(1), frontier.permits.permit_counts(1)) == (2, 0, (0, 2, 2))
    for lease in leases:
        frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True)])
    frontier.leases.finish([EndedLease(lease, End.PAGE) for lease in leases])
    assert (frontier.permits.exhausted(), frontier.permits.permit_counts(1)) == (True, (2, 0, 2))
    frontier.permits.allow(1, 4)
    assert (frontier.permits.exhausted(), frontier.permits.lower_permits(1, 3), frontier.permits.left(1)) == (
        False,
        3,
        1,
    )


def test_a_pod_that_was_given_no_pages_has_none_and_another_crawl_has_its_own(pod: Pod) -> None:
    frontier = pod.process(crawl=CrawlLimits(max_pages=5))
    frontier.permits.allow(1, 0)
    assert (frontier.permits.exhausted(), frontier.permits.left(1), frontier.permits.permit_counts(1)) == (
        True,
        0,
        (0, 0, 0),
    )
    other = frontier.crawls.open_crawl("other", CrawlLimits())
    assert (frontier.permits.exhausted(), frontier.permits.left(1), frontier.permits.permit_counts(other)) == (
        False,
        0,
        (0, 0, -1),
    )
    assert frontier.permits.left(other) > 10**6

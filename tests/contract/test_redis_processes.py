"""A pod's frontier with several processes: who holds what, what a death leaves, what pods ask of one another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from server_kills import Past, kill_written

from weft import urls
from weft.config import PolitenessSection
from weft.engine.loop.fetcher.cookies import CookieShare
from weft.errors import BadInput, Busy, ServerAway
from weft.fetch.cookies import CookieJar
from weft.frontier.contract import CrawlLimits, End, EndedLease, HandedTransfer, RobotsRecord, TransferEnd
from weft.frontier.redis.connection import Emptied, connect
from weft.frontier.redis.link import DataLost, PodLink
from weft.frontier.redis.pod_info import PodIdentity, claim_pod
from weft.frontier.redis.pod_view import waiting_items
from weft.frontier.redis.pods.client import PodClient
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.frontier.requests import RequestEnd, RequestStart, read_events
from weft.frontier.view import FrontierView
from weft.records import Found, Lease, Purpose
from weft.supervise.redis_server import RedisServer

ALLOW = RobotsRecord("allow", b"", 9e12)


class Pod:
    """One pod, its clock moved by the test."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.folder = folder
        self.server = server
        self.time = 1000.0
        self.client: Any = connect(server.url)
        self.client.flushall()
        self.incarnations: dict[str, int] = {}
        self.limits = CrawlLimits()

    def process(
        self,
        slot: str,
        pod: int = 0,
        folder: Path | None = None,
        identity: PodIdentity | None = None,
        **settings: Any,
    ) -> RedisFrontier:
        self.incarnations[slot] = self.incarnations.get(slot, 0) + 1
        section = PolitenessSection(**({"delay_s": 10.0, "places": 1} | settings))
        frontier = RedisFrontier(
            connect(self.server.url), folder or self.folder, section, slot=slot, incarnation=self.incarnations[slot],
            pod=pod, clock=lambda: self.time, wall=lambda: self.time, server_clock=lambda: self.time, idle_s=0.0,
            identity=identity,
        )  # fmt: skip
        assert frontier.crawls.open_crawl("test", self.limits) == 1
        return frontier

    def advance(self, seconds: float) -> None:
        self.time += seconds


@pytest.fixture
def pod(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[Pod]:
    pod = Pod(tmp_path / "pod", shared_server("redis killed"))
    yield pod
    pod.client.close()


def admit(frontier: RedisFrontier, *hosts: str, pages: int = 1) -> None:
    for host in hosts:
        frontier.sites.robots_known(f"http://{host}", ALLOW, None)
    frontier.queue.admit(1, [Found(f"http://{host}/{number}", 0) for host in hosts for number in range(pages)])


def ended(frontier: RedisFrontier, lease: Lease) -> TransferEnd:
    return TransferEnd(lease, frontier.now(), ok=True)


def fetch(frontier: RedisFrontier) -> Lease:
    """Claims one and hands it to the parsers."""
    (lease,) = frontier.leases.claim(frontier.owner, 1)
    assert frontier.parse_queue.fetched([HandedTransfer(ended(frontier, lease), b"segment 0 17")]) == [True]
    return lease


def test_two_fetchers_never_hold_one_item(pod: Pod) -> None:
    one, two = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    admit(one, *"abcdefgh", pages=2)
    first, second = one.leases.claim(one.owner, 5), two.leases.claim(two.owner, 50)
    assert len(first) == 5
    assert {lease.key for lease in first}.isdisjoint(lease.key for lease in second)
    assert {lease.key for lease in first + second} == set("abcdefgh")
    assert two.leases.finish([EndedLease(first[0], End.PAGE)]) == [False], "it is not this process's lease"
    assert one.leases.finish([EndedLease(first[0], End.PAGE)]) == [True]


def test_what_a_dead_owner_held_returns_at_once_and_its_site_waits_a_delay(pod: Pod) -> None:
    one, two = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    admit(one, "a")
    (lease,) = one.leases.claim(one.owner, 5)
    pod.advance(4)
    assert two.processes.release_owner(one.owner) == 1
    assert one.leases.finish([EndedLease(lease, End.PAGE)]) == [False]
    pod.advance(10.9)
    assert two.leases.claim(two.owner, 5) == [], "what it sent last may reach the site a second later"
    pod.advance(0.2)
    assert [again.item for again in two.leases.claim(two.owner, 5)] == [lease.item]


def test_a_fetched_page_has_no_deadline_and_goes_to_one_parser(pod: Pod) -> None:
    fetcher, parser = pod.process("pod0-fetcher0"), pod.process("pod0-parser0")
    admit(fetcher, "a", pages=2)
    lease = fetch(fetcher)
    assert fetcher.status.stats().to_parse == 1
    pod.advance(500)
    assert [other.url for other in fetcher.leases.claim("me", 9)] == ["http://a/1"], (
        "the place is free, the item is not queued"
    )
    (taken,) = parser.parse_queue.claim(9)
    assert (taken.reference, taken.deaths) == (b"segment 0 17", 0)
    assert (taken.lease.item, taken.lease.url, taken.lease.owner) == (lease.item, lease.url, parser.owner)
    assert parser.parse_queue.claim(9) == []
    assert fetcher.leases.finish([EndedLease(lease, End.PAGE)]) == [False], "it has handed it over"
    assert parser.leases.finish([EndedLease(taken.lease, End.PAGE)]) == [True]
    assert (parser.status.stats().pages, parser.status.stats().to_parse) == (1, 0)


def test_a_page_whose_parser_dies_is_taken_again_with_its_deaths(pod: Pod) -> None:
    fetcher, parser = pod.process("pod0-fetcher0"), pod.process("pod0-parser0")
    admit(fetcher, "a")
    lease = fetch(fetcher)
    parser.parse_queue.claim(9)
    assert fetcher.parse_queue.died_on(lease.item) == 1
    fetcher.processes.release_owner(parser.owner)
    parser = pod.process("pod0-parser0")
    parser.recovery.recover()
    (again,) = parser.parse_queue.claim(9)
    assert (again.reference, again.deaths) == (b"segment 0 17", 1)
    pod.advance(91)
    other = pod.process("pod0-parser1")
    (late,) = other.parse_queue.claim(9)
    assert late.lease.item == lease.item, "its deadline is over"
    assert parser.leases.finish([EndedLease(again.lease, End.PAGE)]) == [False]
    assert other.leases.finish([EndedLease(late.lease, End.PAGE)]) == [True]


@pytest.mark.parametrize(("end", "parsed"), [(End.RELEASE, True), (End.RETRY, False)])
def test_a_page_that_its_parser_gives_back_is_parsed_again_and_one_that_failed_fetched_again(
    pod: Pod, end: End, parsed: bool
) -> None:
    fetcher, parser = pod.process("pod0-fetcher0"), pod.process("pod0-parser0")
    admit(fetcher, "a")
    fetch(fetcher)
    (taken,) = parser.parse_queue.claim(9)
    assert parser.leases.finish([EndedLease(taken.lease, end)]) == [True]
    assert (len(parser.parse_queue.claim(9)), parser.status.stats().queued) == ((1, 0) if parsed else (0, 1))


def test_a_prepared_item_belongs_to_its_slot_until_its_index_decides(pod: Pod) -> None:
    parser = pod.process("pod0-parser0", delay_s=0.0, places=9)
    admit(parser, "a", pages=3)
    leases = parser.leases.claim(parser.owner, 3)
    parser.leases.finish([EndedLease(lease, End.PAGE) for lease in leases], batch=7)
    assert parser.status.stats().finished == 0
    pod.advance(1000)
    other = pod.process("pod0-fetcher1", delay_s=0.0, places=9)
    other.recovery.recover()
    other.processes.release_owner(parser.owner)
    assert other.leases.claim(other.owner, 9) == [], "no deadline and no other process gives it to another"
    again = pod.process("pod0-parser0", delay_s=0.0, places=9)
    again.recovery.recover([leases[1].item], {1: 1})
    assert (again.status.stats().finished, again.status.stats().pages) == (1, 1)
    assert [lease.item for lease in again.leases.claim(again.owner, 9)] == [leases[0].item, leases[2].item]
    assert again.recovery.lost_ends == []


def test_an_answer_that_was_lost_is_given_again(pod: Pod) -> None:
    frontier = pod.process("pod0-parser0", delay_s=0.0)
    admit(frontier, "a")
    (lease,) = frontier.leases.claim(frontier.owner, 1)
    held = frontier.leases._held.by_item[lease.item]
    assert frontier.leases.finish([EndedLease(lease, End.PAGE)], batch=3) == [True]
    frontier.leases._held.by_item[lease.item] = held  # as if the answer had not come
    assert frontier.leases.finish([EndedLease(lease, End.PAGE)], batch=3) == [True]
    assert frontier.status.stats().pages == 1


def test_a_server_that_only_restarts_keeps_every_clock(pod: Pod) -> None:
    frontier = pod.process("pod0-fetcher0")
    admit(frontier, "a", "b", pages=2)
    first = frontier.leases.claim(frontier.owner, 1)[0]
    frontier.leases.cool([ended(frontier, first)])
    frontier.leases.finish([EndedLease(first, End.PAGE)])
    kill_written(pod.server)
    with pytest.raises(ServerAway):
        frontier.status.stats()
    pod.server.start()
    assert [lease.key for lease in frontier.leases.claim(frontier.owner, 9)] == ["b"], (
        "it was never asked: it need not wait"
    )
    pod.advance(10.1)
    assert [lease.url for lease in frontier.leases.claim(frontier.owner, 9)] == ["http://a/1"]


def test_a_server_that_has_lost_data_makes_every_site_wait_and_uses_no_number_twice(pod: Pod) -> None:
    frontier, watcher = pod.process("pod0-fetcher0"), pod.process("pod0-orchestrator")
    admit(frontier, "a", pages=2)
    (lease,) = frontier.leases.claim(frontier.owner, 9)
    frontier.durability.commit()
    kill_written(pod.server)
    pod.server.start()
    pod.client.hincrby("n", "ops", -3)  # what an append-only file without its last second holds
    assert watcher.status.stats().queued == 1, "who only watches goes on"
    with pytest.raises(DataLost):
        frontier.leases.finish([EndedLease(lease, End.PAGE)], batch=1)
    frontier.close()
    again = pod.process("pod0-fetcher0")
    again.recovery.recover()
    admit(again, "b")
    assert again.leases.claim(again.owner, 9) == []
    pod.advance(9.9)
    assert again.leases.claim(again.owner, 9) == []
    pod.advance(1.2)  # a second more: what its dead owner sent last may reach the site late
    other, repeated = sorted(again.leases.claim(again.owner, 9), key=lambda lease: -lease.item)
    assert (repeated.item, other.key) == (lease.item, "b")
    assert lease.item + 1_000_000 < other.item < lease.item + 1_000_100


@pytest.mark.parametrize("noticed", ["by another", "by itself", "after a failed call"])
def test_nothing_deferred_reaches_a_server_that_has_lost_data(pod: Pod, tmp_path: Path, noticed: str) -> None:
    """An acknowledgement would: the next process in the slot would take pages for known whose claims are lost."""
    frontier, other = pod.process("pod0-parser0", delay_s=0.0), pod.process("pod0-fetcher0", delay_s=0.0)
    admit(frontier, "a")
    frontier.durability.commit()
    past = Past(pod.server, tmp_path / "past")
    (lease,) = frontier.leases.claim(frontier.owner, 1)
    frontier.leases.finish([EndedLease(lease, End.PAGE)], batch=7)
    frontier.durability.commit()
    frontier.durability.acknowledge(7)
    past.bring_back(start=False)
    if noticed == "after a failed call":
        with pytest.raises(ServerAway):
            frontier.durability.commit()
    pod.server.start()
    if noticed == "by another":
        other.status.stats()  # the scripts are loaded then
    with pytest.raises(DataLost):
        frontier.durability.commit()
    frontier.close()
    again = pod.process("pod0-parser0", delay_s=0.0)
    assert again.durability.acknowledged == 0
    again.recovery.recover([lease.item], batch=7)
    assert again.recovery.lost_ends == [lease.item]


OURS = PodIdentity("crawl0000001", 0, 1)


@pytest.mark.parametrize("then", ["nothing", "claimed again", "claimed by another crawl", "its counters are deleted"])
def test_a_process_changes_nothing_in_a_database_that_was_emptied(pod: Pod, then: str) -> None:
    claim_pod(pod.client, "here", OURS)
    worker, watcher = pod.process("pod0-fetcher0", identity=OURS), pod.process("pod0-orchestrator", identity=OURS)
    section = PolitenessSection(delay_s=10.0, places=1)
    other = PodClient(PodLink(connect(pod.server.url), section, pod=0, pods=1, identity=OURS))
    assert other.find_crawl("test") == 1
    worker.recovery.recover()
    admit(worker, "a", pages=3)
    (lease,) = worker.leases.claim(worker.owner, 1)
    pod.client.delete("n") if then == "its counters are deleted" else pod.client.flushall()
    if "claimed" in then:
        assert claim_pod(pod.client, "here", OURS if then == "claimed again" else PodIdentity("another", 0, 1))
    before = content(pod)
    if then in ("nothing", "claimed by another crawl"):
        with pytest.raises(Emptied):
            watcher.processes.report_again()
    for _ in range(2):
        with pytest.raises(DataLost, match="was emptied"):
            worker.leases.finish([EndedLease(lease, End.PAGE)], batch=1)
        with pytest.raises((Emptied, BadInput)):
            watcher.pod.hold_pod("node", 30.0)
        with pytest.raises(Emptied):
            other.intake.deliver_batch(1, "pod1-fetcher0", 1, [Found("http://b/", 0)])
    for one in (worker, watcher):
        one.close()
    assert content(pod) == before
    if then == "claimed by another crawl":
        with pytest.raises(BadInput, match=r"holds another crawl \(another, "):
            pod.process("pod0-fetcher0", identity=OURS)
        with pytest.raises(ServerAway, match="holds another crawl"):
            other.find_crawl("test")
    elif then == "nothing":
        with pytest.raises(
            Emptied, match="was emptied while the crawl used it; it is filled again from what is stored"
        ):
            pod.process("pod0-fetcher0", identity=OURS)
    assert content(pod) == before
    if then == "its counters are deleted":
        assert claim_pod(pod.client, "here", OURS, was_ours=True), "what is left fits together no longer"
        assert pod.client.dbsize() == 3


def test_a_pod_whose_database_was_emptied_knows_what_is_stored_once_all_have_reported(pod: Pod) -> None:
    claim_pod(pod.client, "here", OURS)
    first = pod.process("pod0-fetcher0", identity=OURS)
    first.processes.assign_slots(["pod0-fetcher0", "pod0-parser0"])
    first.recovery.recover()
    admit(first, "a", pages=2)
    (lease,) = first.leases.claim(first.owner, 1)
    first.leases.finish([EndedLease(lease, End.PAGE)], batch=1)
    first.durability.commit()
    pod.client.flushall()
    with pytest.raises(DataLost):
        first.status.stats()
    first.close()
    assert claim_pod(pod.client, "here", OURS, was_ours=True)
    lead = pod.process("pod0-orchestrator", identity=OURS)
    lead.processes.assign_slots(["pod0-fetcher0", "pod0-parser0"])
    fetcher = pod.process("pod0-fetcher0", identity=OURS)
    fetcher.recovery.recover([lease.item], batch=1)
    assert fetcher.recovery.lost_ends == [lease.item]
    fetcher.recovery.restore_stored(1, [(lease.url, 0, lease.item)])
    admit(fetcher, "a", pages=2)
    pod.advance(20)
    assert not fetcher.recovery.settled() and fetcher.leases.claim(fetcher.owner, 9) == [], (
        "the parser may have stored pages as well"
    )
    pod.process("pod0-parser0", identity=OURS).recovery.recover()
    assert fetcher.recovery.settled()
    (again,) = fetcher.leases.claim(fetcher.owner, 9)
    assert again.url != lease.url and again.item > lease.item + 1_000_000


def content(pod: Pod) -> dict[bytes, bytes]:
    return {name: pod.client.dump(name) for name in pod.client.scan_iter()}


def test_one_that_has_recovered_and_hears_of_a_loss_sends_nothing_more(pod: Pod) -> None:
    frontier, watcher = pod.process("pod0-fetcher0"), pod.process("pod0-orchestrator")
    frontier.recovery.recover()
    kill_written(pod.server)
    pod.server.start()
    pod.client.hincrby("n", "ops", -3)  # what an append-only file without its last second holds
    watcher.status.stats()  # the scripts are loaded then
    for step in (lambda: frontier.notes.note("x"), frontier.status.stats, lambda: frontier.notes.note("x")):
        with pytest.raises(DataLost):
            step()
    for one in (frontier, watcher):
        one.close()


def test_a_parser_that_has_taken_a_page_and_hears_of_a_loss_sends_nothing_more(pod: Pod) -> None:
    fetcher, parser = pod.process("pod0-fetcher0"), pod.process("pod0-parser0")
    admit(fetcher, "a")
    fetch(fetcher)
    assert len(parser.parse_queue.claim(9)) == 1
    pod.client.hincrby("n", "losses", 1)
    parser.status.stats()
    with pytest.raises(DataLost):
        parser.status.stats()


def test_a_row_whose_end_was_lost_is_not_fetched_again(pod: Pod) -> None:
    frontier = pod.process("pod0-parser0", delay_s=0.0)
    admit(frontier, "a", pages=2)
    stored = frontier.leases.claim("x", 1)[0]
    frontier.leases.finish([EndedLease(stored, End.RELEASE)])  # the claim and its end were lost: it is queued as it was
    again = pod.process("pod0-parser0", delay_s=0.0)
    again.recovery.recover([stored.item])
    assert again.recovery.lost_ends == [stored.item], "its links may have been lost too: they must be read again"
    assert [lease.url for lease in again.leases.claim("x", 9)] == ["http://a/1"]
    assert again.status.stats().finished == 1


def test_a_robots_txt_whose_reader_died_is_asked_for_again(pod: Pod) -> None:
    frontier = pod.process("pod0-fetcher0")
    frontier.queue.admit(1, [Found("http://a/1", 0)])
    (robots,) = frontier.leases.claim(frontier.owner, 9)
    frontier.leases.cool([ended(frontier, robots)])
    frontier.leases.finish([EndedLease(robots, End.OTHER)])
    frontier.durability.commit()
    again = pod.process("pod0-fetcher0")
    again.recovery.recover()
    pod.advance(100)
    assert again.leases.claim(again.owner, 9) == [], "its reader may be slow"
    pod.advance(900)
    (second,) = again.leases.claim(again.owner, 9)
    assert (second.purpose, second.url) == (Purpose.ROBOTS, "http://a/robots.txt")


def test_a_robots_txt_whose_reader_died_is_asked_for_again_although_others_have_looked_for_it(pod: Pod) -> None:
    frontier, other = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    frontier.queue.admit(1, [Found("http://a/1", 0)])
    (robots,) = frontier.leases.claim(frontier.owner, 9)
    frontier.leases.cool([ended(frontier, robots)])
    frontier.durability.commit()
    pod.advance(11)
    assert other.leases.claim(other.owner, 9) == [], "it is being read"
    frontier.leases.finish([EndedLease(robots, End.OTHER)])
    pod.advance(1000)
    (second,) = other.leases.claim(other.owner, 9)
    assert (second.purpose, second.url) == (Purpose.ROBOTS, "http://a/robots.txt")


@pytest.mark.parametrize("origin", ["http://a", "https://a"])
def test_a_robots_txt_that_another_process_learnt_is_known_here(pod: Pod, tmp_path: Path, origin: str) -> None:
    one, two = pod.process("pod0-fetcher0", delay_s=0.0), pod.process("pod0-fetcher1", delay_s=0.0)
    one.sites.robots_known(origin, RobotsRecord("ok", b"first", 9e12), None)
    one.queue.admit(1, [Found(f"{origin}/{number}", 0) for number in range(4)])
    (lease,) = two.leases.claim(two.owner, 1)
    record = two.sites.robots(origin)
    assert record is not None and record.body == b"first"
    assert two.sites.robots(origin) is record, "the same object while it is unchanged"
    two.leases.finish([EndedLease(lease, End.OTHER)])
    one.sites.robots_known(origin, RobotsRecord("ok", b"second", 9e12), None)
    one.durability.commit()
    two.leases.claim(two.owner, 1)
    record = two.sites.robots(origin)
    assert record is not None and record.body == b"second"
    elsewhere = pod.process("pod0-fetcher2", delay_s=0.0, folder=tmp_path / "other node")
    elsewhere.processes.release_owner(two.owner)
    assert elsewhere.leases.claim(elsewhere.owner, 1) == [], "its body is on another node's disk"
    assert elsewhere.leases.claim(elsewhere.owner, 1)[0].purpose is Purpose.ROBOTS


def test_cookies_of_a_site_are_seen_by_every_process(pod: Pod) -> None:
    one, two = pod.process("pod0-fetcher0", delay_s=0.0), pod.process("pod0-fetcher1", delay_s=0.0)
    admit(one, "a", pages=3)
    (lease,) = one.leases.claim(one.owner, 1)
    assert one.sites.cookies_of(lease) is None
    one.sites.keep_cookies(lease.crawl, lease.key, b"jar \xff 1")
    one.leases.finish([EndedLease(lease, End.PAGE)])
    (lease,) = two.leases.claim(two.owner, 1)
    assert (two.sites.cookies_of(lease) or (0, b""))[1] == b"jar \xff 1"
    two.sites.keep_cookies(lease.crawl, lease.key, b"jar 2")
    two.leases.finish([EndedLease(lease, End.PAGE)])
    (lease,) = one.leases.claim(one.owner, 1)
    assert (one.sites.cookies_of(lease) or (0, b""))[1] == b"jar 2"


def test_a_jar_follows_what_another_process_received(pod: Pod) -> None:
    one, two = pod.process("pod0-fetcher0", delay_s=0.0), pod.process("pod0-fetcher1", delay_s=0.0)
    admit(one, "a.com", pages=5)
    first, second = CookieJar(urls.domain), CookieJar(urls.domain)
    here, there = CookieShare(1, first, one.sites), CookieShare(1, second, two.sites)

    def visit(frontier: RedisFrontier, share: CookieShare, jar: CookieJar, *told: str) -> str | None:
        (lease,) = frontier.leases.claim(frontier.owner, 1)
        share.load_shared_cookies(lease)
        sent = jar.header("a.com", "/", False, 0.0)
        if told:
            share.store_cookies(lease.url, "/", told, 0.0)
        frontier.leases.finish([EndedLease(lease, End.OTHER)])
        return sent

    assert visit(one, here, first, "wall=passed", "lang=en; Path=/deep") is None
    assert visit(two, there, second, "wall=again") == "wall=passed"
    assert visit(one, here, first) == "wall=again"
    assert first.header("a.com", "/deep/x", False, 0.0) == "lang=en; wall=again"
    before = one.link.scripts.round_trips
    assert visit(one, here, first, "wall=again") == "wall=again", "nothing new: nobody is told"
    assert one.link.scripts.round_trips == before + 2
    assert visit(two, there, second, "wall=; Max-Age=0") == "wall=again"


def test_a_batch_from_another_pod_counts_once(pod: Pod) -> None:
    frontier = pod.process("pod0-fetcher0", delay_s=0.0)
    found = [Found(f"http://a/{number}", 1, parent=(3 << 48) + 5) for number in range(4)]
    assert frontier.pod.intake.deliver_batch(1, "pod3-parser0", 1, found).new == 4
    assert frontier.pod.intake.deliver_batch(1, "pod3-parser0", 1, found).duplicates == 4
    assert frontier.pod.intake.deliver_batch(1, "pod3-parser0", 2, [*found, Found("http://a/9", 1)]).new == 1
    stats = frontier.status.stats()
    assert (stats.received, stats.admitted) == (9, 5)
    frontier.sites.robots_known("http://a", ALLOW, None)
    assert frontier.leases.claim("me", 1)[0].parent == (3 << 48) + 5


def test_another_pods_process_sends_links_but_never_judges_a_server_that_was_started_anew(pod: Pod) -> None:
    section = PolitenessSection(delay_s=0.0, places=1)
    sender = PodClient(PodLink(connect(pod.server.url), section, pod=0, pods=2))
    with pytest.raises(ServerAway, match="not been opened"):
        sender.find_crawl("test")
    own = pod.process("pod0-fetcher0")
    crawl = sender.find_crawl("test")
    assert sender.intake.admit(crawl, [Found("http://a/1", 1), Found("http://a/2", 1)]).new == 2
    assert sender.intake.unseen(crawl, ["http://a/1", "http://a/3"]) == ["http://a/3"]
    kill_written(pod.server)
    pod.server.start()
    pod.client.hincrby("n", "ops", -2)
    with pytest.raises(ServerAway, match="opened again"):
        sender.intake.deliver_batch(crawl, "pod1-parser0", 1, [Found("http://a/4", 1)])
    assert own.status.stats().queued == 2
    assert sender.intake.unseen(crawl, ["http://a/1"]) == [], "it has not heard of the loss yet"
    assert sender.intake.deliver_batch(crawl, "pod1-parser0", 1, [Found("http://a/4", 1)]).new == 1
    assert sender.intake.unseen(crawl, ["http://a/1"]) == ["http://a/1"], "what it knew may be lost"
    assert (sender.status.stats().received, sender.status.stats().admitted) == (1, 3)


def test_items_carry_their_pod(pod: Pod) -> None:
    frontier = pod.process("pod5-fetcher0", pod=5)
    frontier.queue.admit(1, [Found("http://a/1", 0)])
    (robots,) = frontier.leases.claim("me", 9)
    assert robots.item < 0
    assert robots.parent == (5 << 48) + 1
    frontier.sites.robots_known("http://a", ALLOW, None)
    frontier.leases.cool([ended(frontier, robots)])
    assert frontier.leases.finish([EndedLease(robots, End.OTHER)]) == [True]
    pod.advance(10.1)
    (lease,) = frontier.leases.claim("me", 9)
    assert lease.item == (5 << 48) + 1
    assert frontier.leases.finish([EndedLease(lease, End.PAGE)], batch=1) == [True]
    again = pod.process("pod5-fetcher0", pod=5)
    again.recovery.recover([lease.item], {1: 1})
    assert (again.status.stats().queued, again.status.stats().finished) == (0, 1)


def test_permits_are_given_within_the_limit_and_never_exceeded(pod: Pod) -> None:
    pod.limits = CrawlLimits(max_pages=10)
    frontier = pod.process("pod0-fetcher0", delay_s=0.0, places=50)
    admit(frontier, "a", pages=20)
    assert frontier.permits.give_permits(1, 0, 4) == 4
    assert frontier.permits.give_permits(1, 1, 9) == 6, "what is left"
    assert frontier.permits.give_permits(1, 1, 9) == 6, "asked again, the same"
    frontier.permits.allow(1, 4)
    leases = frontier.leases.claim("me", 50)
    assert len(leases) == 4
    frontier.leases.finish([EndedLease(lease, End.PAGE) for lease in leases[:3]])
    assert frontier.permits.lower_permits(1, 0) == 4, "three are used, one is under way"
    frontier.leases.finish([EndedLease(leases[3], End.OTHER)])
    assert frontier.permits.lower_permits(1, 0) == 3
    assert frontier.leases.claim("me", 50) == []
    assert frontier.permits.give_permits(1, 0, 3) == 3
    assert frontier.permits.give_permits(1, 1, 9) == 7
    assert frontier.permits.give_permits(1, 0, 99) == 3


def test_a_pod_has_one_owner_and_a_crawl_one_decider(pod: Pod) -> None:
    one, two = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    one.pod.hold_pod("node-1", 30)
    one.pod.hold_pod("node-1", 30)
    with pytest.raises(Busy, match="node-1"):
        two.pod.hold_pod("node-2", 30)
    one.pod.hold_pod("node-1", 0)
    two.pod.hold_pod("node-2", 30)
    assert one.pod.elect_decider("node-1", 30)
    assert not two.pod.elect_decider("node-2", 30)
    assert one.pod.elect_decider("node-1", 30)


def test_every_slot_has_its_own_request_log_and_all_are_read_together(pod: Pod) -> None:
    one, two = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    admit(one, "a", "b")
    (a,) = one.leases.claim(one.owner, 1)
    (b,) = two.leases.claim(two.owner, 1)
    pod.advance(1)
    two.leases.cool([TransferEnd(b, two.now(), ok=True, outcome="200")])
    two.durability.commit()
    one.durability.commit()
    events = [event for event in read_events(pod.folder / "requests") if isinstance(event, RequestStart | RequestEnd)]
    assert [event.item for event in events] == [a.item, b.item, b.item]


def test_urls_for_another_pod_are_reported_where_that_is_asked_for(
    pod: Pod, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    told = []
    for asked in ("", "true"):
        monkeypatch.setenv("WEFT_DEBUG_POD_ASSIGNMENT", asked)
        section = PolitenessSection(delay_s=0.0, places=1)
        frontier = RedisFrontier(connect(pod.server.url), pod.folder, section, slot="x", pod=0, pods=2)
        frontier.crawls.open_crawl("test", CrawlLimits())
        frontier.queue.admit(1, [Found(f"http://{name}.com/{asked}", 0) for name in ("a", "b", "c", "d")])
        told.append(len([line for line in caplog.records if "wrong pod" in line.getMessage()]))
    assert told[0] == 0 < told[1] < 4


def test_what_waits_can_be_read_from_outside(pod: Pod) -> None:
    frontier = pod.process("pod0-fetcher0", pod=3)
    frontier.queue.admit(1, [Found(f"http://a/{number}", 1, 77) for number in range(4)])
    frontier.queue.admit(1, [Found("http://a/to", 1, 78, hops=1, about="http://a/from")])
    frontier.sites.robots_known("http://a", ALLOW, None)
    (lease,) = frontier.leases.claim(frontier.owner, 1)
    assert lease.url == "http://a/to"
    look = partial(waiting_items, pod.client, "redis", 3, "domain", spill=pod.folder / "spill")
    (found,) = look("http://a/to")
    entry = found.entry
    assert (entry.item, entry.hops, entry.parent, found.ahead) == (lease.item, 1, 78, 0)
    assert found.location == "leased to a process"
    (found,) = look("http://a/2")
    entry = found.entry
    assert (entry.item, entry.depth, entry.parent, entry.ended, found.ahead) == ((3 << 48) + 3, 1, 77, False, 2)
    assert look("http://a/9") == []
    frontier.notes.scope_extended(1, "http://b/")
    frontier.durability.commit()
    assert FrontierView([pod.folder]).scope_extensions() == ["http://b/"]
    assert sorted(item.url for item in frontier.queue.items(1)) == [f"http://a/{number}" for number in range(4)]


def test_a_bloom_filter_of_the_right_size_takes_the_place_of_the_fingerprints(pod: Pod) -> None:
    section = PolitenessSection(delay_s=0.0, places=1)
    frontier = RedisFrontier(
        connect(pod.server.url), pod.folder, section, slot="x", bloom_filter=(5000, 0.01), idle_s=0.0
    )
    crawl = frontier.crawls.open_crawl("test", CrawlLimits())
    new = frontier.queue.admit(crawl, [Found(f"http://a/{number}", 0) for number in range(5000)]).new
    assert 4900 < new <= 5000, "less than one in a hundred is taken for known"
    assert frontier.queue.admit(crawl, [Found(f"http://a/{number}", 0) for number in range(5000)]).new == 0
    false = 3000 - frontier.queue.admit(crawl, [Found(f"http://b/{number}", 0) for number in range(3000)]).new
    assert 0 < false < 150
    assert not pod.client.keys("e:*")

"""Processes of two pods on Redis: what belongs to the other pod is known there, and told with nothing left out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pace import patience

from weft import urls
from weft.config import PolitenessSection
from weft.errors import ServerAway
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord
from weft.frontier.outbox import PodMessage, encode_message
from weft.frontier.redis.connection import RedisSettings, connect
from weft.frontier.redis.link import PodLink, QueueLimits
from weft.frontier.redis.pod_view import PodCounters, read_counters, site_pace
from weft.frontier.redis.pods import other_pod
from weft.frontier.redis.pods.client import PodClient
from weft.frontier.redis.pods.other_pod import OtherPod
from weft.frontier.redis.pods.pod_outbox import FileOutbox
from weft.frontier.redis.redis_frontier import RoutedRedisFrontier
from weft.records import Found, Purpose
from weft.supervise.redis_server import RedisServer

HOSTS = {
    pod: [host for host in (f"h{number}.test" for number in range(40)) if urls.pod_of(host, 2) == pod] for pod in (0, 1)
}
MINE, THEIRS = HOSTS[0][0], HOSTS[1][0]
ALLOW = RobotsRecord("ok", b"User-agent: *\nAllow: /", 9e12)


class Pods:
    """Two or more pods in databases of one server, a process each, under one clock."""

    def __init__(self, folder: Path, server: RedisServer, limits: CrawlLimits, count: int = 2) -> None:
        self.time = 1000.0
        self.count = count
        self.folder, self.server, self.limits = folder, server, limits
        self.connections: list[Any] = []
        self.client: Any = self.connect(0)
        self.client.flushall()
        self.frontiers = [self.process(pod) for pod in range(count)]
        self.one, self.two = self.frontiers[:2]

    def connect(self, db: int) -> Any:
        self.connections.append(connect(self.server.url, RedisSettings(db=db)))
        return self.connections[-1]

    def process(self, pod: int) -> RoutedRedisFrontier:
        section = PolitenessSection(delay_s=10.0, places=1)
        others = {}
        for at in range(self.count):
            if at != pod:
                client = PodClient(PodLink(self.connect(at), section, pod=at, pods=self.count, clock=lambda: self.time,
                    server_clock=lambda: self.time,))  # fmt: skip
                others[at] = OtherPod(at, client, self.folder / str(at) / "robots.db")
        frontier = RoutedRedisFrontier(
            self.connect(pod), self.folder / str(pod), section, slot=f"pod{pod}-fetcher0", pod=pod, pods=self.count,
            clock=lambda: self.time, wall=lambda: self.time, server_clock=lambda: self.time, idle_s=0.0,
            others=others, outbox=self.folder / f"pod{pod}.db",
        )  # fmt: skip
        assert frontier.crawls.open_crawl("test", self.limits) == 1
        frontier.recovery.recover()
        return frontier

    def close(self) -> None:
        for frontier in self.frontiers:
            frontier.close()
        for connection in self.connections:
            connection.close()


@pytest.fixture
def make(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[Callable[..., Pods]]:
    made: list[Pods] = []

    def build(count: int = 2, **limits: Any) -> Pods:
        made.append(Pods(tmp_path, shared_server("redis"), CrawlLimits(**limits), count))
        return made[-1]

    yield build
    for pods in made:
        pods.close()


def test_a_url_is_the_pods_that_its_domain_names(make: Callable[..., Pods]) -> None:
    pods = make()
    for pod, frontier in enumerate(pods.frontiers):
        for host_pod, hosts in HOSTS.items():
            assert {frontier.pods.owns(f"http://{host}/") for host in hosts} == {pod == host_pod}
            assert {frontier.pods.pod_of(f"https://{host}:8443/x") for host in hosts} == {host_pod}


def test_what_is_known_to_its_pod_is_not_offered_again(make: Callable[..., Pods]) -> None:
    pods = make()
    mine, theirs = [f"http://{MINE}/{number}" for number in range(3)], [f"http://{THEIRS}/{n}" for n in range(3)]
    assert sorted(pods.one.queue.unseen(1, mine + theirs)) == sorted(mine + theirs)
    admitted = pods.one.queue.admit(1, [Found(url, 1) for url in (*mine[:2], *theirs[:2])])
    assert (admitted.new, admitted.duplicates) == (4, 0)
    assert sorted(pods.one.queue.unseen(1, mine + theirs)) == [mine[2], theirs[2]]
    again = pods.one.queue.admit(1, [Found(url, 1) for url in (*mine, *theirs)])
    assert (again.new, again.duplicates) == (2, 4)
    assert [frontier.status.stats().queued for frontier in pods.frontiers] == [3, 3]
    assert [(one.status.stats().sent, one.status.stats().received) for one in pods.frontiers] == [(0, 0), (0, 5)]


def test_urls_that_wait_for_a_pod_that_is_away_are_kept_once(make: Callable[..., Pods]) -> None:
    pods = make()
    theirs = [f"http://{THEIRS}/{number}" for number in range(4)]
    pods.one.pods._other_pods[1]._is_answering.clear()
    assert pods.one.pods._other_pods[1].is_away
    found = [Found(url, 1) for url in theirs[:2]]
    assert (pods.one.queue.admit(1, found).new, pods.one.pods.outgoing.undelivered_messages) == (2, 1)
    assert pods.one.queue.unseen(1, theirs) == theirs[2:]
    again = pods.one.queue.admit(1, [*found, Found(theirs[2], 1)])
    assert (again.new, again.duplicates, pods.one.pods.outgoing.undelivered_messages) == (1, 2, 2)
    redirect = Found(theirs[0], 1, hops=1, about=f"http://{MINE}/")
    assert pods.one.queue.admit(1, [redirect]).new == 1, "more than a link: always told"
    site_map = Found(f"http://{THEIRS}/map.xml", 0, purpose=Purpose.SITEMAP, about=f"http://{THEIRS}")
    assert [pods.one.queue.admit(1, [site_map]).new for _ in range(2)] == [1, 1], "so is a sitemap"
    assert pods.client.hget("outboxes", "pod0-fetcher0") in (b"1", b"2", b"3", b"4", b"5")
    assert pods.one.status.stats_and_waits()[1]["outboxes"] > 0
    assert pods.one.pods.deliver_waiting() == []
    pods.one.pods._other_pods[1]._is_answering.set()
    came = pods.one.pods.deliver_waiting()
    assert [(one.new, one.duplicates) for one in came] == [(2, 0), (1, 0), (0, 1), (1, 0), (0, 1)]
    assert (pods.two.status.stats().queued, pods.one.pods.outgoing.undelivered_messages) == (4, 0)


def test_urls_that_waited_for_a_pod_are_told_once_also_while_it_comes_and_goes(make: Callable[..., Pods]) -> None:
    pods = make()
    other, found = pods.one.pods._other_pods[1], [Found(f"http://{THEIRS}/1", 1)]
    other._is_answering.clear()
    assert (pods.one.queue.admit(1, found).new, pods.one.pods.outgoing.undelivered_messages) == (1, 1)
    other._is_answering.set()
    again = pods.one.queue.admit(1, found)
    assert (again.new, again.duplicates, pods.one.pods.outgoing.undelivered_messages) == (0, 1, 1), (
        "it answers, and has not got it yet"
    )
    pods.one.pods.deliver_waiting()
    other._is_answering.clear()
    again = pods.one.queue.admit(1, found)
    assert (again.new, again.duplicates, pods.one.pods.outgoing.undelivered_messages) == (0, 1, 0), (
        "it has got it, and is away"
    )
    other._is_answering.set()


def test_where_depth_decides_a_shorter_way_is_told_again(make: Callable[..., Pods]) -> None:
    pods = make(max_depth=5)
    url = f"http://{THEIRS}/1"
    pods.one.pods._other_pods[1]._is_answering.clear()
    assert pods.one.queue.admit(1, [Found(url, 3)]).new == 1
    assert pods.one.queue.admit(1, [Found(url, 3)]).new == 0
    assert pods.one.queue.admit(1, [Found(url, 2)]).new == 1
    pods.one.pods._other_pods[1]._is_answering.set()
    pods.one.pods.deliver_waiting()
    pods.two.sites.robots_known(f"http://{THEIRS}", ALLOW, None)
    pods.time += 10.0
    assert [(lease.url, lease.depth) for lease in pods.two.leases.claim("me", 9)] == [(url, 2)]


def test_a_robots_txt_of_another_pods_origin_is_kept_there_with_its_delay(make: Callable[..., Pods]) -> None:
    pods = make()
    origin = f"http://{THEIRS}"
    record = RobotsRecord("ok", b"User-agent: *\nCrawl-delay: 40", 1000.0 + 500_000.0)
    pods.one.sites.robots_known(origin, record, 40.0)
    assert pods.two.sites.robots(origin) == record
    assert pods.one.sites.robots(origin) is None
    pods.two.queue.admit(1, [Found(f"{origin}/{number}", 1) for number in range(3)])
    pods.time += 39.99
    assert pods.two.leases.claim("me", 9) == []
    pods.time += 0.01
    (lease,) = pods.two.leases.claim("me", 9)
    assert (lease.url, lease.delay_s) == (f"{origin}/0", 40.0)
    pods.time += 499_959.9
    pods.two.leases.finish([EndedLease(lease, End.RELEASE)])
    (lease,) = pods.two.leases.claim("me", 9)
    assert lease.url == f"{origin}/0", "the file still holds"
    pods.two.leases.finish([EndedLease(lease, End.RELEASE)])
    pods.time += 0.2
    assert [lease.url for lease in pods.two.leases.claim("me", 9)] == [f"{origin}/robots.txt"], (
        "it has expired there too"
    )


def test_a_robots_txt_without_a_delay_asks_for_none(make: Callable[..., Pods]) -> None:
    pods = make()
    pods.one.sites.robots_known(f"http://{THEIRS}", ALLOW, None)
    pods.two.queue.admit(1, [Found(f"http://{THEIRS}/1", 1)])
    (lease,) = pods.two.leases.claim("me", 9)
    assert (lease.url, lease.delay_s) == (f"http://{THEIRS}/1", 10.0)
    assert site_pace(pods.connect(1), "redis", THEIRS).crawl_delay == 0.0


def test_where_a_redirect_led_is_known_in_all_pods(make: Callable[..., Pods]) -> None:
    pods = make()
    pods.one.notes.scope_extended(1, "http://led.test/")
    assert pods.two.notes.scope_extensions(1) == ["http://led.test/"]
    assert pods.one.notes.scope_extensions(1) == ["http://led.test/"]


def test_what_found_its_queue_full_counts_as_new_and_comes_again(make: Callable[..., Pods]) -> None:
    pods = make()
    pods.one.pods._other_pods[1]._client.link.limits = QueueLimits(
        split_above=4, moved_at_once=2, refill_below=1, most_in_tail=6
    )
    theirs = [Found(f"http://{THEIRS}/{number}", 1) for number in range(12)]
    assert (pods.one.queue.admit(1, theirs[:8]).new, pods.one.pods.outgoing.undelivered_messages) == (8, 0)
    second = pods.one.queue.admit(1, [theirs[0], *theirs[8:]])
    assert (second.new, second.duplicates, pods.one.pods.outgoing.undelivered_messages) == (4, 1, 1)
    assert pods.two.status.stats().queued == 8


def test_what_finds_this_pods_own_queue_full_counts_as_new_beside_what_goes_to_others(
    make: Callable[..., Pods],
) -> None:
    pods = make()
    pods.one.link.limits = QueueLimits(split_above=4, moved_at_once=2, refill_below=1, most_in_tail=6)
    mine = [Found(f"http://{MINE}/{number}", 1) for number in range(12)]
    assert pods.one.queue.admit(1, mine[:8]).new == 8
    both = pods.one.queue.admit(1, [Found(f"http://{THEIRS}/1", 1), *mine[8:]])
    assert (both.new, both.duplicates, pods.one.pods.outgoing.undelivered_messages) == (5, 0, 1)
    assert [frontier.status.stats().queued for frontier in pods.frontiers] == [8, 1]


def test_a_process_tells_at_its_start_that_nothing_of_its_slot_is_on_its_way(make: Callable[..., Pods]) -> None:
    pods = make()
    pods.client.hset("outboxes", "pod0-fetcher0", 9)  # left by an earlier process
    again = pods.process(0)
    assert again.status.stats_and_waits()[1]["outboxes"] == 0
    again.close()


def test_what_is_on_its_way_is_told_again_every_second(make: Callable[..., Pods]) -> None:
    pods = make()
    pods.one.pods._other_pods[1]._is_answering.clear()
    pods.one.queue.admit(1, [Found(f"http://{THEIRS}/1", 1)])
    pods.client.delete("outboxes")  # the server has lost it
    told = []
    for _ in range(3):
        pods.one.pods.deliver_waiting()
        told.append(pods.client.hget("outboxes", "pod0-fetcher0"))
        pods.time += 0.5
    assert told == [None, None, b"1"]
    pods.one.pods._other_pods[1]._is_answering.set()


def test_links_to_another_pod_are_counted_with_their_time(make: Callable[..., Pods]) -> None:
    pods = make()
    crossed: list[tuple[int, float]] = []
    pods.one.pods.on_links_sent = lambda links, seconds: crossed.append((links, seconds))
    pods.one.queue.admit(1, [Found(f"http://{THEIRS}/{number}", 1) for number in range(3)])
    pods.one.notes.scope_extended(1, "http://led.test/")
    assert crossed == [(3, 0.0)]


def test_a_pod_that_has_no_crawl_yet_is_away(tmp_path: Path, make: Callable[..., Pods]) -> None:
    pods = make()
    client = PodClient(
        PodLink(pods.connect(5), PolitenessSection(delay_s=1.0, places=1), pod=1, pods=2, where="redis 5")
    )
    with pytest.raises(ServerAway, match="redis 5: pod 1 has not been opened yet"):
        client.find_crawl("test")
    other = OtherPod(1, client, tmp_path / "robots.db")
    with pytest.raises(ServerAway):
        other.deliver("me", 1, [Found(f"http://{THEIRS}/1", 1)], 0, "test")
    assert other.is_away
    assert other.unseen(["http://a/"], "test") == ["http://a/"], "nothing is known of it"
    assert client.link.is_server_answering()


def test_a_pod_that_answers_again_is_asked_again(make: Callable[..., Pods], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_pod, "NOT_CALLED_S", 0.01)
    pods = make()
    other = pods.one.pods._other_pods[1]

    def refuse(client: PodClient) -> None:
        raise ServerAway("for a moment")

    with pytest.raises(ServerAway):
        other.call(refuse)
    until = time.monotonic() + patience(5.0)
    while other.is_away:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert pods.one.queue.admit(1, [Found(f"http://{THEIRS}/1", 1)]).new == 1
    assert (pods.two.status.stats().queued, pods.one.pods.outgoing.undelivered_messages) == (1, 0)


def test_a_pod_that_does_not_answer_is_left_alone_and_one_that_has_not_opened_a_crawl_is_not(
    make: Callable[..., Pods], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OtherPod, "_poll_until_answer", lambda _: None)  # nobody looks whether it is back
    pods = make()
    other, new = pods.one.pods._other_pods[1], pods.one.crawls.open_crawl("new", CrawlLimits())
    assert pods.one.queue.admit(1, [Found(f"http://{THEIRS}/1", 1)]).new == 1
    pods.one.queue.admit(new, [Found(f"http://{THEIRS}/2", 1)])
    assert (other.is_away, pods.one.pods.outgoing.undelivered_messages) == (False, 1), "it works on the other crawl"

    def refuse(client: PodClient) -> None:
        raise ServerAway("for a moment")

    with pytest.raises(ServerAway):
        other.call(refuse)
    assert other.is_away
    other._is_answering.set()


def test_the_outbox_of_another_slot_is_brought_and_gone(make: Callable[..., Pods], synced: list[str]) -> None:
    pods = make()
    path = pods.folder / "pod0-fetcher7.db"
    left = FileOutbox(path)
    message = PodMessage([], [], [], [], {1: "test"})
    message.add(1, Found(f"http://{THEIRS}/left", 1))
    left.save_messages({1: encode_message(message)})
    left.close()
    pods.client.hset("outboxes", "pod0-fetcher7", 1)
    synced.clear()
    pods.one.pods.outgoing.adopt_outbox(path)
    assert synced == ["pod0.db-wal"], "before the other file is gone"
    assert not path.exists() and not pods.client.hexists("outboxes", "pod0-fetcher7")
    assert pods.client.hget("outboxes", "pod0-fetcher0") == b"1"
    pods.one.pods.deliver_waiting()
    assert [item.url for item in pods.two.queue.items(1)] == [f"http://{THEIRS}/left"]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files that were put on the disk, in order."""
    names: list[str] = []
    sync = os.fdatasync

    def watched(fd: int) -> None:
        names.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", watched)
    return names


def test_what_no_stored_page_tells_of_is_on_the_disk_before_it_is_sent(
    make: Callable[..., Pods], synced: list[str]
) -> None:
    pods = make()
    page = Found(f"http://{THEIRS}/1", 1)
    errand = Found(f"http://{THEIRS}/robots.txt", 0, purpose=Purpose.ROBOTS, about=f"http://{MINE}", hops=1)
    pods.one.queue.admit(1, [page, Found(f"http://{THEIRS}/2", 1, hops=1, about=page.url)])
    assert synced == [], "a page's links are found again with it"
    for tell in (
        lambda: pods.one.queue.admit(1, [errand]),
        lambda: pods.one.notes.scope_extended(1, "http://led.test/"),
        lambda: pods.one.sites.robots_known(f"http://{THEIRS}", ALLOW, None),
    ):
        tell()
        assert synced == ["pod0.db-wal"]
        synced.clear()
    pods.one.durability.sync()
    assert sorted(synced) == ["pod0.db-wal", "requests-00000.log", "robots.db-wal"]


# ── one pod, from outside ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_pods_figures_can_be_read_from_outside(make: Callable[..., Pods]) -> None:
    pods = make()
    assert read_counters(pods.connect(5), "redis") == PodCounters(0, 0, 0, 0, 0)
    assert read_counters(pods.client, "redis") == PodCounters(0, 0, 0, 0, 0)
    pods.one.sites.robots_known(f"http://{MINE}", ALLOW, None)
    other = pods.one.crawls.open_crawl("other", CrawlLimits())
    pods.one.queue.admit(1, [Found(f"http://{host}/{number}", 0) for host in HOSTS[0][:2] for number in range(3)])
    pods.one.queue.admit(other, [Found(f"http://{MINE}/{number}", 0) for number in range(2)])
    pods.one.leases.claim("me", 1)
    pods.one.durability.commit()
    assert read_counters(pods.client, "redis") == PodCounters(queued=7, seen=8, sites=2, leased=1, to_parse=0)


def test_sitemaps_and_redirects_wait_before_the_pages_of_their_site(make: Callable[..., Pods]) -> None:
    from weft.frontier.redis.pod_view import waiting_items

    pods = make()
    at = f"https://{MINE}"
    maps = [Found(f"{at}/{name}.xml", 0, purpose=Purpose.SITEMAP, about=at) for name in ("map", "other")]
    pods.one.queue.admit(1, [Found(f"{at}/page", 1), *maps])
    pods.one.queue.admit(1, [Found(f"{at}/to", 1, 5, hops=2, about=f"{at}/from")])
    found = {
        url: waiting_items(pods.client, "redis", 0, "domain", f"{at}/{url}", pods.folder / "0" / "spill")
        for url in ("page", "map.xml", "other.xml", "to", "none")
    }
    assert [(one.ahead, one.location, one.entry.hops, one.entry.sitemap) for url in found for one in found[url]] == [
        (3, "in its queue", 0, False),
        (1, "before the others of its site", 0, True),
        (2, "before the others of its site", 0, True),
        (0, "before the others of its site", 2, False),
    ]
    assert found["none"] == []


def test_each_crawl_is_known_to_other_pods_by_its_name(make: Callable[..., Pods]) -> None:
    """Each pod numbers its own: what is 2 in one is 3 in the other."""
    pods = make()
    for name in ("blue", "red"):
        pods.one.crawls.open_crawl(name, CrawlLimits())
    theirs = {name: pods.two.crawls.open_crawl(name, CrawlLimits()) for name in ("red", "blue")}
    mine = {name: pods.one.crawls.open_crawl(name, CrawlLimits()) for name in ("red", "blue")}
    assert mine != theirs
    links = [Found(f"http://{THEIRS}/{number}", 1) for number in range(3)]
    assert pods.one.queue.admit(mine["red"], links).new == 3
    assert pods.one.queue.unseen(mine["blue"], [links[0].url]) == [links[0].url], "another crawl has seen it"
    assert pods.one.queue.unseen(mine["red"], [links[0].url]) == []
    assert pods.one.queue.admit(mine["blue"], links[:1]).new == 1
    pods.one.notes.scope_extended(mine["blue"], "http://led.test/")
    assert [pods.two.status.crawl_counts(theirs[name]).queued for name in ("red", "blue")] == [3, 1]
    assert pods.two.notes.scope_extensions(theirs["blue"]) == ["http://led.test/"]
    assert pods.two.notes.scope_extensions(theirs["red"]) == []


def test_what_waits_in_the_outbox_goes_to_its_crawl_also_from_the_next_process(make: Callable[..., Pods]) -> None:
    pods = make()
    pods.two.crawls.open_crawl("other", CrawlLimits())
    red, blue = (pods.one.crawls.open_crawl(name, CrawlLimits()) for name in ("red", "blue"))
    other = pods.one.pods._other_pods[1]
    other._is_answering.clear()
    for crawl in (red, blue, red):
        pods.one.queue.admit(crawl, [Found(f"http://{THEIRS}/1", 1)])
    assert pods.one.pods.outgoing.undelivered_messages == 2, "in each crawl once"
    pods.one.close()
    theirs = {name: pods.two.crawls.open_crawl(name, CrawlLimits()) for name in ("blue", "red")}
    pods.frontiers[0] = again = pods.process(0)
    again.pods.deliver_waiting()
    assert again.pods.outgoing.undelivered_messages == 0
    assert [pods.two.status.crawl_counts(theirs[name]).queued for name in ("red", "blue")] == [1, 1]


@pytest.mark.parametrize("trouble", ["away", "waits", "lost"])
def test_a_pod_that_does_not_get_its_message_keeps_no_other_from_its_own(
    make: Callable[..., Pods], trouble: str
) -> None:
    pods = make(count=3)
    other = pods.one.pods._other_pods[1]
    pods.one.notes.scope_extended(1, "http://first/")
    if trouble == "lost":
        pods.connect(1).hdel("senders", "pod0-fetcher0")
    else:
        other._is_answering.clear()
    if trouble == "waits":
        pods.one.notes.scope_extended(1, "http://second/")
        other._is_answering.set()
    pods.one.notes.scope_extended(1, "http://last/")
    assert "http://last/" in pods.frontiers[2].notes.scope_extensions(1)
    other._is_answering.set()
    pods.one.pods.deliver_waiting()
    told = ["http://first/", "http://last/", *(["http://second/"] if trouble == "waits" else [])]
    assert pods.two.notes.scope_extensions(1) == told, "the last one has overtaken none"


def test_a_pod_that_is_away_keeps_none_from_what_waits_for_it(make: Callable[..., Pods]) -> None:
    pods = make()
    pods.two.link.limits = QueueLimits(split_above=4, moved_at_once=2, refill_below=1, most_in_tail=6)
    pods.two.queue.admit(1, [Found(f"http://{THEIRS}/{number}", 1) for number in range(8)])
    pods.two.pods._other_pods[0]._is_answering.clear()
    pods.two.queue.admit(1, [Found(f"http://{MINE}/1", 1), Found(f"http://{THEIRS}/8", 1)])
    assert (pods.two.pods.outgoing.undelivered_messages, pods.two.status.stats().queued) == (2, 8)
    pods.two.link.limits = QueueLimits()
    assert [one.new for one in pods.two.pods.deliver_waiting()] == [1]
    assert (pods.two.pods.outgoing.undelivered_messages, pods.two.status.stats().queued) == (1, 9)
    pods.two.pods._other_pods[0]._is_answering.set()


def test_a_pod_that_gets_many_messages_is_asked_now_and_then_which_are_safe(
    make: Callable[..., Pods], monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = make()
    asked: list[float] = []
    arrived = pods.one.pods._read_arrival
    monkeypatch.setattr(pods.one.pods, "_read_arrival", lambda pod: asked.append(pods.time) or arrived(pod))  # type: ignore[func-returns-value]
    pods.one.pods.deliver_waiting()
    assert asked == [], "nothing was sent"
    for number in range(30):
        pods.one.queue.admit(1, [Found(f"http://{THEIRS}/{number}", 1)])
        pods.one.pods.deliver_waiting()
        pods.time += 0.1
    assert 2 <= len(asked) <= 4

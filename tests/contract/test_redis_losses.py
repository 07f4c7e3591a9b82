"""What one pod has sent to another is there again after that one's server has lost its last moments: all, and once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pace import patience
from server_kills import Past

from weft import urls
from weft.config import PolitenessSection
from weft.crawl.folder import CrawlFolder
from weft.crawl.pods.redis_process import RedisPermits
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord, TransferEnd
from weft.frontier.redis import marks
from weft.frontier.redis.connection import connect
from weft.frontier.redis.link import PodLink, QueueLimits
from weft.frontier.redis.pods.client import PodClient
from weft.frontier.redis.pods.other_pod import OtherPod
from weft.frontier.redis.pods.pod_outbox import ArrivalState
from weft.frontier.redis.redis_frontier import RoutedRedisFrontier
from weft.records import Found
from weft.supervise.redis_server import RedisServer

ALLOW = RobotsRecord("allow", b"", 9e12)
HOSTS = {
    pod: [host for host in (f"h{number}.test" for number in range(60)) if urls.pod_of(host, 2) == pod]
    for pod in range(2)
}


class Pods:
    """Two pods, a process each, under a clock that the test moves."""

    def __init__(self, folder: Path, servers: list[RedisServer], limits: CrawlLimits, afar: bool) -> None:
        self.folder = folder
        self.servers = servers
        self.limits = limits
        self.afar = afar
        self.time = 1000.0
        self._connections: list[Any] = []
        self._incarnation = 0
        for server in servers:
            self.connection(server).flushall()
        self.frontiers = [self.process(0), self.process(1)]
        for pod, frontier in enumerate(self.frontiers):
            for host in HOSTS[pod]:
                frontier.sites.robots_known(f"https://{host}", ALLOW, None)
            frontier.durability.commit()

    def connection(self, server: RedisServer) -> Any:
        self._connections.append(connect(server.url))
        return self._connections[-1]

    def process(self, pod: int, done: Sequence[int] = ()) -> RoutedRedisFrontier:
        self._incarnation += 1
        other, section = 1 - pod, PolitenessSection(delay_s=0.0, places=1)
        client = PodClient(
            PodLink(self.connection(self.servers[other]), section, pod=other, pods=2, server_clock=lambda: self.time)
        )
        there = OtherPod(other, client, None if self.afar else self.folder / str(other) / "robots.db")
        frontier = RoutedRedisFrontier(
            self.connection(self.servers[pod]), self.folder / str(pod), section, slot=f"pod{pod}-fetcher0",
            incarnation=self._incarnation, pod=pod, pods=2, clock=lambda: self.time, wall=lambda: self.time,
            server_clock=lambda: self.time, idle_s=0.0, others={other: there}, outbox=self.folder / str(pod) / "box.db",
        )  # fmt: skip
        frontier.crawls.open_crawl("test", self.limits)
        frontier.recovery.recover(done)
        return frontier

    def restart(self, pod: int, done: Sequence[int] = ()) -> RoutedRedisFrontier:
        """A process that was killed, or has died of a loss, and the next one in its slot; its store has some items."""
        self.frontiers[pod] = self.process(pod, done)
        return self.frontiers[pod]

    def periodic_tasks(self, pod: int, turns: int) -> None:
        for _ in range(turns):
            self.time += 1.0
            self.frontiers[pod].pods.deliver_waiting()

    def delivered(self, pod: int) -> None:
        """Until all is safe that a pod has sent: a server that lost something is away at first."""
        until = time.monotonic() + patience(20)
        while True:
            self.periodic_tasks(pod, 1)
            if not self.waiting():
                return
            assert time.monotonic() < until
            time.sleep(0.02)

    def waiting(self) -> int:
        return sum(frontier.status.stats_and_waits()[1]["outboxes"] for frontier in self.frontiers)

    def crawled(self, pod: int) -> list[str]:
        """Everything that a pod has queued, claimed and ended."""
        frontier, done = self.frontiers[pod], []
        for _ in range(2):  # after a loss every site waits
            self.time += 11.0
            while leases := frontier.leases.claim(frontier.owner, 1000):
                done += [lease.url for lease in leases]
                frontier.leases.cool(TransferEnd(lease, frontier.now(), ok=True) for lease in leases)
                frontier.leases.finish([EndedLease(lease, End.PAGE) for lease in leases], batch=1)
                frontier.durability.acknowledge(1)
                frontier.durability.commit()
        return sorted(done)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


@pytest.fixture
def make_pods(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[Callable[..., Pods]]:
    made: list[Pods] = []

    def build(limits: CrawlLimits | None = None, *, afar: bool = False) -> Pods:
        servers = [shared_server("redis killed"), shared_server("redis killed too")]
        made.append(Pods(tmp_path, servers, limits or CrawlLimits(), afar))
        return made[-1]

    yield build
    for pods in made:
        pods.close()


def links(first: int, last: int, depth: int = 1) -> list[Found]:
    """Pages of pod 1's hosts."""
    hosts = HOSTS[1][:3]
    return [Found(f"https://{hosts[number % 3]}/{number}", depth) for number in range(first, last)]


def names(first: int, last: int) -> list[str]:
    return sorted(found.url for found in links(first, last))


@pytest.mark.parametrize("afar", [False, True], ids=["one node", "two nodes"])
@pytest.mark.parametrize("sender", ["lives", "was killed", "lost data too"])
def test_links_that_another_server_has_lost_come_again_once(
    make_pods: Callable[..., Pods], tmp_path: Path, sender: str, afar: bool
) -> None:
    pods = make_pods(afar=afar)
    assert pods.frontiers[0].queue.admit(1, links(0, 10)).new == 10
    past = [Past(server, tmp_path / f"past{pod}") for pod, server in enumerate(pods.servers)]
    for at in range(10, 40, 10):
        assert pods.frontiers[0].queue.admit(1, links(at - 3, at + 10)).new == 10
    pods.frontiers[0].notes.scope_extended(1, "https://elsewhere.test/")
    if sender == "lost data too":
        past[0].bring_back()
    past[1].bring_back()
    pods.restart(1)
    if sender != "lives":
        pods.restart(0)
        pods.time += 5.0
    if not afar:
        pods.frontiers[0].queue.admit(1, links(40, 50))
    pods.delivered(0)
    pods.frontiers[0].queue.admit(1, links(40, 50))
    pods.delivered(0)
    assert pods.crawled(1) == names(0, 50), "each is there, and once"
    assert pods.frontiers[1].notes.scope_extensions(1) == ["https://elsewhere.test/"]
    stats = pods.frontiers[1].status.stats()
    assert (stats.admitted, stats.finished, stats.queued, stats.pages) == (50, 50, 0, 50)
    assert pods.waiting() == 0


def test_the_crawl_waits_until_the_other_server_has_written_what_it_took(
    make_pods: Callable[..., Pods], tmp_path: Path
) -> None:
    pods = make_pods()
    past = Past(pods.servers[1], tmp_path / "past")
    pods.frontiers[0].queue.admit(1, links(0, 10))
    assert pods.crawled(1) == names(0, 10)
    assert pods.waiting() == 1, "it may be lost, though it was crawled"
    past.bring_back()
    assert pods.frontiers[0].status.stats_and_waits()[1]["outboxes"] == 1, "a loss that nobody has noticed"
    pods.restart(1)
    pods.delivered(0)
    assert pods.crawled(1) == names(0, 10)
    assert pods.waiting() == 0


def test_a_page_that_is_stored_is_not_fetched_again_when_its_link_comes_again(
    make_pods: Callable[..., Pods], tmp_path: Path
) -> None:
    pods = make_pods(CrawlLimits(max_depth=5))
    past = Past(pods.servers[1], tmp_path / "past")
    pods.frontiers[0].queue.admit(1, links(0, 4, depth=3))
    before = pods.frontiers[1]
    leases = before.leases.claim(before.owner, 2)
    before.leases.cool(TransferEnd(lease, before.now(), ok=True) for lease in leases)
    before.leases.finish([EndedLease(lease, End.PAGE) for lease in leases], batch=1)
    past.bring_back()
    after = pods.restart(1, [lease.item for lease in leases])
    assert sorted(after.recovery.lost_ends) == sorted(lease.item for lease in leases)
    assert not after.recovery.settled(), "what is stored is told before anything is taken in"
    after.recovery.restore_stored(1, [(lease.url, lease.depth, lease.item) for lease in leases])
    assert after.recovery.settled()
    pods.delivered(0)
    assert pods.crawled(1) == sorted({found.url for found in links(0, 4)} - {lease.url for lease in leases})
    stats = after.status.stats()
    assert (stats.admitted, stats.finished, stats.queued) == (2, 2, 0)
    nearer = pods.frontiers[0].queue.admit(1, [Found(lease.url, 2) for lease in leases])
    assert sorted(nearer.expand) == sorted((lease.item, lease.url, 2) for lease in leases)


def test_after_a_power_cut_the_links_of_all_pages_since_the_last_sync_are_read_again(
    make_pods: Callable[..., Pods], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages' rows may be on the disk, and what was on its way to other pods not."""
    pods = make_pods()
    pods.frontiers[0].queue.admit(1, links(0, 3))
    frontier = pods.frontiers[1]
    leases = frontier.leases.claim(frontier.owner, 3)
    items = sorted(lease.item for lease in leases)
    frontier.leases.cool(TransferEnd(lease, frontier.now(), ok=True) for lease in leases)
    frontier.leases.finish([EndedLease(lease, End.PAGE) for lease in leases], batch=1)
    assert pods.restart(1, items[:2]).recovery.lost_ends == []
    frontier = pods.frontiers[1]
    (lease,) = frontier.leases.claim(frontier.owner, 3)
    frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True)])
    frontier.leases.finish([EndedLease(lease, End.PAGE)], batch=2)
    monkeypatch.setattr(marks, "boot_id", lambda: "another")
    assert pods.restart(1, [lease.item]).recovery.lost_ends == [lease.item]


def test_what_a_pod_surely_has_is_not_kept_for_long(make_pods: Callable[..., Pods]) -> None:
    pods = make_pods()
    box = pods.frontiers[0].pods.outgoing._file_outbox
    for at in range(0, 100, 10):
        pods.frontiers[0].queue.admit(1, links(at, at + 10))
    assert len(box) == 10
    pods.periodic_tasks(0, 2)
    assert (pods.waiting(), len(box)) == (0, 10), "until the other server has synced"
    pods.periodic_tasks(0, 12)
    assert len(box) == 0
    pods.restart(0).queue.admit(1, links(100, 110))
    pods.delivered(0)
    assert pods.crawled(1) == names(0, 110)


def test_depths_are_the_nearest_after_a_loss(make_pods: Callable[..., Pods], tmp_path: Path) -> None:
    pods = make_pods(CrawlLimits(max_depth=5))
    pods.frontiers[0].queue.admit(1, links(0, 6, depth=4))
    past = Past(pods.servers[1], tmp_path / "past")
    pods.frontiers[0].queue.admit(1, links(0, 3, depth=2))
    pods.frontiers[0].queue.admit(1, links(3, 9, depth=3))
    past.bring_back()
    pods.restart(1)
    pods.delivered(0)
    depths = {lease.url: lease.depth for lease in pods.frontiers[1].leases.claim("me", 1000)}
    nearest = {found.url: found.depth for found in [*links(0, 3, 2), *links(3, 9, 3)]}
    assert depths == {url: nearest[url] for url in depths}


def test_the_outbox_of_a_slot_that_nobody_fills_any_more_is_taken_over(
    make_pods: Callable[..., Pods], tmp_path: Path
) -> None:
    pods = make_pods()
    pods.servers[1].kill()
    pods.frontiers[0].queue.admit(1, links(0, 10))
    pods.frontiers[0].queue.admit(1, links(5, 20))
    pods.servers[1].start()
    pods.restart(1)
    left = tmp_path / "0" / "pod0-fetcher9.db"
    pods.frontiers[0].pods.outgoing._file_outbox.close()
    (tmp_path / "0" / "box.db").rename(left)
    pods.connection(pods.servers[0]).hset("outboxes", "pod0-fetcher9", 2)
    pods.restart(0).pods.outgoing.adopt_outbox(left)
    assert pods.waiting() == 2
    pods.delivered(0)
    assert pods.crawled(1) == names(0, 20)
    assert not left.exists()


def test_what_finds_its_queue_full_comes_again(make_pods: Callable[..., Pods], monkeypatch: pytest.MonkeyPatch) -> None:
    pods = make_pods()
    tight = QueueLimits(split_above=20, moved_at_once=5, refill_below=2, most_in_tail=30)
    monkeypatch.setattr(pods.frontiers[0].pods._other_pods[1]._client.link, "limits", tight)
    monkeypatch.setattr(pods.frontiers[1].link, "limits", tight)
    host = HOSTS[1][0]
    many = [Found(f"https://{host}/{number}", 1) for number in range(100)]
    for at in range(0, 100, 10):
        pods.frontiers[0].queue.admit(1, many[at : at + 10])
    assert pods.frontiers[0].pods.outgoing.undelivered_messages, "the tail is full, and nobody has spilled it"
    done: list[str] = []
    while pods.waiting():
        pods.periodic_tasks(0, 1)
        done += pods.crawled(1)
    done += pods.crawled(1)
    assert sorted(done) == sorted(found.url for found in many)


def test_a_permit_is_used_when_the_server_that_gave_it_has_written_so(
    make_pods: Callable[..., Pods], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = make_pods(CrawlLimits(max_pages=160))
    frontier = pods.frontiers[0]
    frontier.permits.allow(1, 0)
    frontier.queue.admit(1, [Found(f"https://{HOSTS[0][0]}/{number}", 1) for number in range(20)])
    config = SimpleNamespace(limits=SimpleNamespace(max_pages=160))
    order: Any = SimpleNamespace(config=config, pod=0, pods=2)
    permits = RedisPermits(order, CrawlFolder([tmp_path]), frontier, 1)
    with monkeypatch.context() as patch:
        for runs, unwritten in (("aa", 5), ("ab", 0)):
            said = [ArrivalState(0, run, 100, unwritten) for run in runs]
            patch.setattr(frontier.pod.intake, "last_arrival", lambda _, said=said: said.pop(0))
            permits()
            assert frontier.permits.permit_counts(1) == (0, 0, 0), "it may be forgotten, and given to another"
    until = time.monotonic() + patience(20)
    while frontier.permits.permit_counts(1) != (0, 0, 10):
        permits()
        assert time.monotonic() < until

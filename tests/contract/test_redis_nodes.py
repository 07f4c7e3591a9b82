"""What the nodes of a crawl find in a pod's Redis: whose it is, what they agree on, what they leave each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from redis.client import Pipeline
from redis.exceptions import WatchError

from weft import urls
from weft.config import PolitenessSection
from weft.errors import BadInput, Busy
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord, TransferEnd
from weft.frontier.outbox import RobotsNotice
from weft.frontier.redis import pod_info
from weft.frontier.redis.connection import connect
from weft.frontier.redis.link import PodLink
from weft.frontier.redis.pod_info import (
    SCHEMA,
    PodIdentity,
    agree_on_crawl_id,
    bind_pod,
    claim_pod,
    is_claimed,
    unbind_pod,
)
from weft.frontier.redis.pods import mail
from weft.frontier.redis.pods.client import PodClient
from weft.frontier.redis.pods.other_pod import OtherPod
from weft.frontier.redis.redis_frontier import RoutedRedisFrontier
from weft.frontier.redis.shared import SHARED_KEY, lock_pods, running_node, save_or_compare_settings, used_permits
from weft.records import Found
from weft.supervise.redis_server import RedisServer

ALLOW = RobotsRecord("ok", b"User-agent: *\nAllow: /", 9e12)
POLITE = PolitenessSection(delay_s=0.0, places=9)
HOST = next(host for host in (f"h{number}.test" for number in range(99)) if urls.pod_of(host, 2) == 0)
ONE, TWO = "1@here:/one", "2@there:/two"


@pytest.fixture
def server(shared_server: Callable[[str], RedisServer]) -> str:
    url = shared_server("redis").url
    connect(url).flushall()
    return url


@pytest.fixture
def client(server: str) -> Iterator[Any]:
    client = connect(server)
    yield client
    client.close()


def test_of_nodes_that_start_at_once_one_makes_the_crawl_and_all_are_a_part_of_it(server: str) -> None:
    def start(number: int) -> str:
        return agree_on_crawl_id(connect(server), "redis", 2, f"crawl{number}")

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(start, range(8)))) == 1
    with pytest.raises(BadInput, match="the crawl has 2 pods, 3 were given"):
        agree_on_crawl_id(connect(server), "redis", 3, "other")


def test_a_pod_is_the_node_s_that_ran_it_first_wherever_its_folder_is_now(client: Any) -> None:
    one, two = PodIdentity("crawl", 0, 2, ONE), PodIdentity("crawl", 0, 2, TWO)
    with pytest.raises(BadInput, match="was emptied"):
        bind_pod(client, "redis", one)
    claim_pod(client, "redis", one)
    assert bind_pod(client, "redis", one)
    assert not bind_pod(client, "redis", PodIdentity("crawl", 0, 2, "1@elsewhere:/moved"))
    for refused in (bind_pod, claim_pod):
        with pytest.raises(BadInput, match="pod 0 belongs to node here:/one, which has its pages"):
            refused(client, "redis", two)
    unbind_pod(client, "redis", TWO)
    assert not bind_pod(client, "redis", one)
    unbind_pod(client, "redis", ONE)
    assert bind_pod(client, "redis", two)


def test_settings_are_written_once_and_changed_only_while_nobody_else_runs(client: Any) -> None:
    assert save_or_compare_settings(client, "redis", {"a": "1", "b": "2"}, may_change=False) == {}
    assert save_or_compare_settings(client, "redis", {"b": "2", "a": "1"}, may_change=False) == {}
    other = {"a": "9", "c": "3"}
    assert save_or_compare_settings(client, "redis", other, may_change=False) == {
        "a": ("1", "9"),
        "b": ("2", None),
        "c": (None, "3"),
    }
    assert save_or_compare_settings(client, "redis", other, may_change=True) == {}
    assert save_or_compare_settings(client, "redis", other, may_change=False) == {}


def test_all_pods_are_held_or_none(client: Any) -> None:
    second = connect("unix://" + client.connection_pool.connection_kwargs["path"] + "?db=1")
    pods = {0: (client, "zero"), 1: (second, "one")}
    second.set("owner", TWO)
    with pytest.raises(Busy, match=r"one: pod 1 is run by node there:/two, and `fresh=True`"):
        lock_pods(pods, ONE, 30)
    assert running_node(client, "zero") == ""
    second.delete("owner")
    lock_pods(pods, ONE, 30)
    lock_pods(pods, ONE, 30)
    assert (running_node(client, "zero"), running_node(second, "one")) == (ONE, ONE)


def test_a_pod_that_a_node_holds_already_is_held_for_the_whole_time(client: Any) -> None:
    client.set("owner", ONE, px=900)
    lock_pods({0: (client, "zero")}, ONE, 30)
    assert running_node(client, "zero") == ONE and client.pttl("owner") > 900


def test_a_pod_that_another_node_takes_meanwhile_is_its_own(
    server: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, taken = Pipeline.get, list[Any]()

    def slow(self: Any, name: str) -> Any:
        found = read(self, name)
        if not taken:
            taken.append(connect(server).set("owner", TWO))
        return found

    monkeypatch.setattr(Pipeline, "get", slow)
    with pytest.raises(Busy, match="zero: pod 0 is run by node there:/two"):
        lock_pods({0: (client, "zero")}, ONE, 30)
    assert running_node(client, "zero") == TWO


def own(server: str, folder: Path) -> RoutedRedisFrontier:
    frontier = RoutedRedisFrontier(
        connect(server), folder, POLITE, slot="pod0-parser0", pod=0, pods=2, others={}, outbox=folder / "outbox.db",
        idle_s=0.0,
    )  # fmt: skip
    assert frontier.crawls.open_crawl("crawl", CrawlLimits(max_depth=5)) == 1
    return frontier


def test_what_another_node_cannot_do_is_left_for_the_pod_s_own(server: str, client: Any, tmp_path: Path) -> None:
    """A page that is nearer than it was known to be is in the other node's store, and a robots.txt on its disk."""
    frontier = own(server, tmp_path)
    afar = OtherPod(0, PodClient(PodLink(connect(server), POLITE, pod=0, pods=2), is_afar=True), None)
    afar.send_robots(RobotsNotice(f"http://{HOST}", ALLOW, None), 0.0)
    afar.deliver("pod1-parser1", 1, [Found(f"http://{HOST}/", 3)], 0, "crawl")
    nearer: list[tuple[int, str, int]] = []

    def expand(known: Sequence[tuple[int, str, int]]) -> None:
        nearer.extend(known)
        assert frontier.status.stats_and_waits()[1]["mail"] == 1, "until it is done it is there"

    assert frontier.status.stats_and_waits()[1]["mail"] == 1
    frontier.mail.deliver(expand)
    assert frontier.sites.robots(f"http://{HOST}") == ALLOW
    (lease,) = frontier.leases.claim(frontier.owner, 9)
    frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True)])
    frontier.leases.finish([EndedLease(lease, End.PAGE)], batch=1)
    assert afar.deliver("pod1-parser1", 2, [Found(f"http://{HOST}/", 1)], 1, "crawl").expand == ()
    assert afar.deliver("pod1-parser0", 1, [Found(f"http://{HOST}/", 2)], 0, "crawl").new == 0
    frontier.mail.deliver(expand)
    assert nearer == [(lease.item, f"http://{HOST}/", 1)]
    assert frontier.status.stats_and_waits()[1]["mail"] == 0
    assert used_permits(client, "redis", "crawl") == 1
    frontier.close()


def test_a_crawl_uses_the_permits_of_what_is_in_flight_and_none_before(
    server: str, client: Any, tmp_path: Path
) -> None:
    assert used_permits(client, "redis", "crawl") == 0
    frontier = own(server, tmp_path)
    assert used_permits(client, "redis", "crawl") == 0, "its pod was opened"
    frontier.sites.robots_known(f"http://{HOST}", ALLOW, None)
    frontier.queue.admit(1, [Found(f"http://{HOST}/{number}", 1) for number in range(3)])
    assert len(frontier.leases.claim(frontier.owner, 2)) == 2
    assert used_permits(client, "redis", "crawl") == 2
    frontier.close()


def test_a_pod_that_was_never_given_permits_is_recorded_once(server: str, tmp_path: Path) -> None:
    frontier = own(server, tmp_path)
    frontier.permits.limit_pages(1, 10)
    frontier.permits.record_permits(1, 1, 4)
    assert frontier.permits.pods_with_permits(1) == {1}
    assert frontier.permits.give_permits(1, 0, 9) == 6
    frontier.permits.record_permits(1, 1, 0)
    assert frontier.permits.give_permits(1, 0, 9) == 6
    frontier.close()


@pytest.mark.parametrize("may_change", [False, True])
def test_settings_that_another_node_writes_meanwhile_are_looked_at_again(
    server: str, client: Any, monkeypatch: pytest.MonkeyPatch, may_change: bool
) -> None:
    read, tries = Pipeline.hgetall, list[int]()

    def slow(self: Any, name: str) -> Any:
        found = read(self, name)
        if not tries:
            connect(server).hset(SHARED_KEY, mapping={"a": "2", "b": "2"})
        tries.append(1)
        return found

    monkeypatch.setattr(Pipeline, "hgetall", slow)
    differs = save_or_compare_settings(client, "redis", {"a": "1"}, may_change=may_change)
    assert differs == ({} if may_change else {"a": ("2", "1"), "b": ("2", None)})
    assert client.hgetall(SHARED_KEY) == ({b"a": b"1"} if may_change else {b"a": b"2", b"b": b"2"})
    assert len(tries) == 2


def test_a_node_that_another_was_quicker_than_looks_again(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    execute, tries = Pipeline.execute, []

    def overtaken(self: Any, *args: Any, **more: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise WatchError
        return execute(self, *args, **more)

    monkeypatch.setattr(Pipeline, "execute", overtaken)
    assert save_or_compare_settings(client, "redis", {"a": "1"}, may_change=False) == {}
    assert len(tries) == 2
    assert client.hgetall(SHARED_KEY) == {b"a": b"1"}


def test_a_node_that_another_was_quicker_than_binds_its_pod_in_the_end(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = PodIdentity("crawl", 0, 2, ONE)
    execute, tries = Pipeline.execute, []

    def overtaken(self: Any, *args: Any, **more: Any) -> Any:
        tries.append(1)
        if len(tries) in (1, 3):
            raise WatchError
        return execute(self, *args, **more)

    monkeypatch.setattr(Pipeline, "execute", overtaken)
    assert claim_pod(client, "redis", identity) is True
    assert bind_pod(client, "redis", identity) is True
    assert len(tries) == 4
    assert client.hget("pod:info", "node") == ONE.encode()


def test_a_crawl_that_another_node_has_just_made_is_the_one_that_is_agreed_on(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(client: Any, where: str, identity: PodIdentity) -> bool:
        claim_pod(client, where, PodIdentity("theirs", 0, 2))
        return claim_pod(client, where, identity)

    monkeypatch.setattr(pod_info, "claim_pod", overtaken)
    assert agree_on_crawl_id(client, "redis", 2, "mine") == "theirs"


class Changing:
    """A database that another process takes while it is looked at: what each look finds, in order."""

    def __init__(self, infos: list[dict[bytes, bytes]], schema: bytes | None) -> None:
        self._infos, self._schema = infos, schema

    def dbsize(self) -> int:
        return 0

    def hgetall(self, _key: str) -> dict[bytes, bytes]:
        return self._infos.pop(0)

    def get(self, _key: str) -> bytes | None:
        return self._schema


def test_a_database_that_is_taken_while_it_is_looked_at_is_no_foreign_one() -> None:
    identity = PodIdentity("crawl", 0, 2)
    info = {b"crawl": b"crawl", b"pods": b"2", b"pod_id": b"0"}
    before: Any = Changing([{}, info], None)
    assert not is_claimed(before, "redis", identity), "whoever claims it notices that it has changed"
    between: Any = Changing([{}, info], b"%d" % SCHEMA)
    assert is_claimed(between, "redis", identity)


def test_mail_that_is_more_than_is_read_at_a_time_is_left_for_the_next_time(
    server: str, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "MAILS_AT_ONCE", 2)
    frontier = own(server, tmp_path)
    afar = OtherPod(0, PodClient(PodLink(connect(server), POLITE, pod=0, pods=2), is_afar=True), None)
    pages = [Found(f"http://{HOST}/{number}", 3) for number in range(5)]
    frontier.sites.robots_known(f"http://{HOST}", ALLOW, None)
    frontier.queue.admit(1, pages)
    leases = frontier.leases.claim(frontier.owner, 9)
    frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True) for lease in leases])
    frontier.leases.finish([EndedLease(lease, End.PAGE) for lease in leases])
    afar.deliver("pod1-parser0", 1, [Found(page.url, 1) for page in pages], 0, "crawl")
    ports = range(8001, 8006)
    for port in ports:
        afar.send_robots(RobotsNotice(f"http://{HOST}:{port}", ALLOW, None), 0.0)
    nearer: list[str] = []
    left = []
    for _ in range(4):
        frontier.mail.deliver(lambda known: nearer.extend(url for _, url, _ in known))
        left.append((client.llen("told"), client.llen("nearer")))
    assert left == [(3, 3), (1, 1), (0, 0), (0, 0)]
    assert nearer == [page.url for page in pages]
    assert all(frontier.sites.robots(f"http://{HOST}:{port}") == ALLOW for port in ports)
    frontier.close()

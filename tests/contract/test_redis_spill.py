"""Long queues on Redis: the tail goes to disk and comes back in order, whoever is killed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from server_kills import kill_written

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord, TransferEnd
from weft.frontier.redis.connection import connect
from weft.frontier.redis.link import QueueLimits
from weft.frontier.redis.pod_view import waiting_items
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.records import Found
from weft.supervise.redis_server import RedisServer

SMALL = QueueLimits(split_above=200, moved_at_once=50, refill_below=20, most_in_tail=2000)


class Pod:
    """One pod's processes, as objects; each may be dropped as a kill would drop it."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.folder = folder
        self.server = server
        self.client: Any = connect(server.url)
        self.client.flushall()
        self.opened: list[RedisFrontier] = []

    def process(self, limits: QueueLimits = SMALL) -> tuple[RedisFrontier, int]:
        section = PolitenessSection(delay_s=0.0, places=1000)
        frontier = RedisFrontier(
            connect(self.server.url), self.folder, section, slot="pod0-fetcher0", incarnation=len(self.opened) + 1,
            limits=limits, idle_s=0.0,
        )  # fmt: skip
        self.opened.append(frontier)
        crawl = frontier.crawls.open_crawl("test", CrawlLimits())
        frontier.recovery.recover()
        frontier.sites.robots_known("http://hot", RobotsRecord("allow", b"", 9e12), None)
        return frontier, crawl


@pytest.fixture
def pod(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[Pod]:
    pod = Pod(tmp_path / "pod", shared_server("redis killed"))
    yield pod
    pod.client.close()


def names(start: int, stop: int) -> list[str]:
    return [f"http://hot/page-{number}" for number in range(start, stop)]


def drained(frontier: RedisFrontier, *, most: int = 10**9) -> list[str]:
    """Claims and ends everything, with the lead's chores between, as its fetcher does them."""
    urls: list[str] = []
    empty = 0
    while empty < 3 and len(urls) < most:
        leases = frontier.leases.claim(frontier.owner, min(90, most - len(urls)))
        frontier.leases.finish([EndedLease(lease, End.OTHER) for lease in leases])
        urls += [lease.url for lease in leases]
        empty = 0 if leases or frontier.spiller.move_segments() else empty + 1
        frontier.spiller.move_segments()
    return urls


def test_a_long_queue_goes_to_disk_and_comes_back_in_order(pod: Pod) -> None:
    frontier, crawl = pod.process()
    for start in range(0, 3000, 500):
        assert frontier.queue.admit(crawl, [Found(url, 1) for url in names(start, start + 500)]).new == 500
        frontier.spiller.move_segments()
    in_redis = sum(pod.client.llen(key) for key in pod.client.keys("[qw]:*"))
    assert in_redis < 2 * SMALL.split_above + SMALL.moved_at_once, in_redis
    assert len(list((pod.folder / "spill").glob("*/*.seg"))) >= 12
    assert sorted(item.url for item in frontier.queue.items(crawl)) == sorted(names(0, 3000))
    first = drained(frontier, most=700)
    frontier.queue.admit(crawl, [Found(url, 1) for url in names(3000, 3500)])
    assert first + drained(frontier) == names(0, 3500)
    stats = frontier.status.stats()
    assert (stats.queued, stats.admitted, stats.finished) == (0, 3500, 3500)


def test_a_shallower_page_comes_before_what_is_on_disk(pod: Pod) -> None:
    frontier, crawl = pod.process()
    frontier.queue.admit(crawl, [Found(url, 2) for url in names(0, 1000)])
    frontier.spiller.move_segments()
    drained(frontier, most=100)
    frontier.queue.admit(crawl, [Found("http://hot/near", 1)])
    assert frontier.leases.claim("me", 1)[0].url == "http://hot/near"


def test_a_lead_that_dies_at_any_step_loses_nothing(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    frontier, crawl = pod.process()
    frontier.queue.admit(crawl, [Found(url, 1) for url in names(0, 2000)])

    class Killed(Exception):
        pass

    def dies(*_: Any) -> Any:
        raise Killed

    lead = frontier.spiller
    real = lead._link.call_script
    monkeypatch.setattr(lead._link, "call_script", dies)  # the segment is on disk, and Redis was not told
    with pytest.raises(Killed):
        lead.move_segments()

    def tells_then_dies(name: str, arguments: Any) -> Any:
        real(name, arguments)
        raise Killed

    monkeypatch.setattr(
        lead._link, "call_script", tells_then_dies
    )  # Redis was told, and the lead never heard the answer
    with pytest.raises(Killed):
        lead.move_segments()
    frontier, crawl = pod.process()
    assert drained(frontier, most=300) == names(0, 300)
    frontier.queue.admit(crawl, [Found(url, 1) for url in names(2000, 2600)])
    monkeypatch.setattr(frontier.link, "call_script", tells_then_dies)
    with pytest.raises(Killed):
        frontier.spiller.move_segments()
    again, _ = pod.process()
    again.processes.release_owner("me")
    assert drained(again) == names(300, 2600)


def test_a_server_that_is_killed_with_queues_on_disk_loses_nothing(pod: Pod) -> None:
    frontier, crawl = pod.process()
    frontier.queue.admit(crawl, [Found(url, 1) for url in names(0, 2000)])
    frontier.spiller.move_segments()
    done = drained(frontier, most=450)
    kill_written(pod.server)
    pod.server.start()
    frontier, crawl = pod.process()
    assert done + drained(frontier) == names(0, 2000)


def test_a_queue_is_long_when_its_tail_is_above_the_cap(pod: Pod) -> None:
    frontier, crawl = pod.process()
    frontier.queue.admit(crawl, [Found(url, 1) for url in names(0, SMALL.split_above + SMALL.moved_at_once)])
    assert (pod.client.exists("long"), frontier.spiller.move_segments()) == (0, 0)
    frontier.queue.admit(
        crawl,
        [
            Found(url, 1)
            for url in names(SMALL.split_above + SMALL.moved_at_once, SMALL.split_above + SMALL.moved_at_once + 1)
        ],
    )
    assert pod.client.exists("long") == 1 and frontier.spiller.move_segments() > 0
    assert drained(frontier) == names(0, SMALL.split_above + SMALL.moved_at_once + 1)


def test_a_queue_that_was_long_until_the_lead_came_is_left_alone(pod: Pod) -> None:
    frontier, crawl = pod.process()
    frontier.queue.admit(crawl, [Found(url, 1) for url in names(0, SMALL.split_above + SMALL.moved_at_once + 1)])
    leases = frontier.leases.claim(frontier.owner, SMALL.moved_at_once)
    assert pod.client.exists("long") == 1
    assert (frontier.spiller.move_segments(), pod.client.exists("long")) == (0, 0), (
        "or it would be read with every look"
    )
    frontier.leases.finish([EndedLease(lease, End.OTHER) for lease in leases])
    assert [lease.url for lease in leases] + drained(frontier) == names(0, SMALL.split_above + SMALL.moved_at_once + 1)


@pytest.mark.parametrize("is_swept", [False, True])
def test_a_queue_that_changes_while_it_is_spilled_stays_as_it_is(
    pod: Pod, monkeypatch: pytest.MonkeyPatch, is_swept: bool
) -> None:
    """By another lead: what this one has written is of no use, and deleted by whoever comes first."""
    frontier, crawl = pod.process()
    frontier.queue.admit(crawl, [Found(url, 1) for url in names(0, 1000)])
    other, _ = pod.process()
    lead, spill = frontier.spiller, pod.folder / "spill"
    real = lead._link.call_script

    def late(name: str, arguments: Any) -> Any:
        monkeypatch.setattr(lead._link, "call_script", real)
        mine = set(spill.glob("*/*.seg"))
        assert other.spiller.move_segments() > 0
        for path in mine if is_swept else ():
            path.unlink()
        return real(name, arguments)

    monkeypatch.setattr(lead._link, "call_script", late)
    assert frontier.spiller.move_segments() == 0
    registered = {name.decode() for key in pod.client.keys("g:*") for name in pod.client.lrange(key, 0, -1)}
    assert {str(path.relative_to(spill)) for path in spill.glob("*/*.seg")} == registered
    assert drained(frontier) == names(0, 1000)


def test_a_queue_whose_end_was_lost_while_it_was_spilled_stays_as_it_is(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was killed has lost the last of what another pod's process had brought, and others came since."""
    frontier, crawl = pod.process()
    frontier.queue.admit(crawl, [Found(url, 1) for url in names(0, 1000)])
    lead = frontier.spiller
    real = lead._link.call_script

    def late(name: str, arguments: Any) -> Any:
        monkeypatch.setattr(lead._link, "call_script", real)
        queue, amount = b"w:" + arguments[1], arguments[3]
        pod.client.ltrim(queue, 0, amount - 2)
        pod.client.rpush(queue, b"another")
        return real(name, arguments)

    monkeypatch.setattr(lead._link, "call_script", late)
    frontier.spiller.move_segments()
    assert pod.client.keys("g:*") == []
    ((length, last),) = [(pod.client.llen(key), pod.client.lindex(key, -1)) for key in pod.client.keys("w:*")]
    assert (length, last) == (SMALL.split_above, b"another")


def test_a_queue_of_a_host_that_is_an_address_comes_back_from_disk(pod: Pod) -> None:
    frontier, crawl = pod.process()
    found = [f"http://[2001:db8::1]/{number}" for number in range(600)]
    frontier.sites.robots_known("http://[2001:db8::1]", RobotsRecord("allow", b"", 9e12), None)
    frontier.queue.admit(crawl, [Found(url, 1) for url in found])
    assert frontier.spiller.move_segments() > 0
    came: list[str] = []
    for _ in range(5):
        while leases := frontier.leases.claim(frontier.owner, 90):
            frontier.leases.finish([EndedLease(lease, End.OTHER) for lease in leases])
            came += [lease.url for lease in leases]
        frontier.spiller.move_segments()
    assert came == found


def test_above_the_hard_cap_the_sender_keeps_its_urls(pod: Pod) -> None:
    frontier, crawl = pod.process(QueueLimits(split_above=200, moved_at_once=50, refill_below=20, most_in_tail=600))
    found = [Found(url, 1) for url in names(0, 600)]
    assert frontier.queue.admit(crawl, found).full == ()
    more = [Found(url, 1) for url in names(600, 1000)]
    answer = frontier.queue.admit(crawl, more)
    assert answer.new + len(answer.full) == 400
    assert answer.full, "the tail is full, and the lead has not come"
    assert frontier.queue.admit(crawl, answer.full).new == 0
    frontier.spiller.move_segments()
    assert frontier.queue.admit(crawl, answer.full).new == len(answer.full), "they were not marked seen"
    assert drained(frontier) == names(0, 1000)


def test_what_is_on_disk_is_rejected_with_the_rest(pod: Pod) -> None:
    frontier, crawl = pod.process()
    frontier.queue.admit(crawl, [Found(url, 1) for url in names(0, 1000)])
    (first,) = frontier.leases.claim(frontier.owner, 1)
    frontier.spiller.move_segments()
    frontier.leases.cool([TransferEnd(first, frontier.now(), slow_down=True, retry_after_s=1e9)])
    assert frontier.status.stats().queued == 0
    rejected = []
    for _ in range(50):
        rejected += frontier.rejected.rejections()
        frontier.spiller.move_segments()
    assert sorted(rejection.item.url for rejection in rejected) == sorted(names(1, 1000))
    frontier.rejected.end_stored([rejection.item.item for rejection in rejected])
    assert frontier.status.stats().finished == 999


def test_whoever_looks_from_outside_finds_what_is_on_disk(pod: Pod) -> None:
    frontier, crawl = pod.process()
    for start in range(0, 1000, 100):
        frontier.queue.admit(crawl, [Found(url, 1) for url in names(start, start + 100)])
        frontier.spiller.move_segments()
    places = []
    for number in (0, 49, 50, 500, 999):
        (found,) = waiting_items(pod.client, "redis", 0, "host", f"http://hot/page-{number}", pod.folder / "spill")
        assert (found.ahead, found.entry.depth) == (number, 1)
        places.append(found.location.partition(":")[0])
    assert places == ["in its queue", "in its queue", *["in a long queue, on disk"] * 2, "at the end of a long queue"]
    (found,) = waiting_items(pod.client, "redis", 0, "host", "http://hot/page-500", pod.folder / "spill")
    assert Path(found.location.partition(": ")[2]).is_file()
    assert waiting_items(pod.client, "redis", 0, "host", "http://hot/page-1000", pod.folder / "spill") == []
    assert drained(frontier) == names(0, 1000), "looking has changed nothing"


def test_whoever_looks_from_another_node_finds_what_is_not_on_its_disk(pod: Pod, tmp_path: Path) -> None:
    frontier, crawl = pod.process()
    frontier.queue.admit(crawl, [Found(url, 1) for url in names(0, 1000)])
    frontier.spiller.move_segments()
    look = partial(waiting_items, pod.client, "redis", 0, "host", spill=tmp_path / "elsewhere")
    (first,) = look("http://hot/page-0")
    (last,) = look("http://hot/page-999")
    assert (first.location, last.location) == ("in its queue", "at the end of a long queue")
    assert look("http://hot/page-500") == []


def test_what_waits_in_a_queue_of_thousands_is_counted_once(pod: Pod, tmp_path: Path) -> None:
    frontier, crawl = pod.process(QueueLimits())
    frontier.queue.admit(crawl, [Found(url, 1) for url in names(0, 2100)])
    for number in (999, 1000, 1001, 2099):
        (found,) = waiting_items(pod.client, "redis", 0, "host", f"http://hot/page-{number}", tmp_path)
        assert (found.ahead, found.location) == (number, "in its queue")


def test_all_that_comes_before_the_queue_of_its_site_is_found(pod: Pod, tmp_path: Path) -> None:
    frontier, crawl = pod.process()
    frontier.queue.admit(crawl, [Found(url, 1) for url in names(0, 4)])
    frontier.leases.finish([EndedLease(lease, End.RETRY) for lease in frontier.leases.claim("me", 3)])
    found = [one for url in names(0, 4) for one in waiting_items(pod.client, "redis", 0, "host", url, tmp_path)]
    assert [one.entry.url for one in found] == names(0, 4)
    assert sorted(one.ahead for one in found[:3]) == [0, 1, 2] and found[3].ahead == 3
    assert [one.location for one in found] == [*["before the others of its site"] * 3, "in its queue"]


def test_what_waits_is_found_where_depth_decides(pod: Pod, tmp_path: Path) -> None:
    section = PolitenessSection(delay_s=0.0, places=1)
    frontier = RedisFrontier(connect(pod.server.url), pod.folder, section, slot="pod0-fetcher0", limits=SMALL)
    crawl = frontier.crawls.open_crawl("deep", CrawlLimits(max_depth=9))
    frontier.queue.admit(crawl, [Found(f"http://hot/{depth}", depth, 70 + depth) for depth in (3, 1, 2)])
    for ahead, depth in enumerate((1, 2, 3)):
        (found,) = waiting_items(pod.client, "redis", 0, "host", f"http://hot/{depth}", tmp_path)
        assert (found.ahead, found.entry.depth, found.entry.parent) == (ahead, depth, 70 + depth)
    assert [item.url for item in sorted(frontier.queue.items(crawl), key=lambda item: item.depth)] == [
        f"http://hot/{depth}" for depth in (1, 2, 3)
    ]
    frontier.close()

"""A pod on Redis at its edges: how its sets grow, its Bloom filter where nothing may be added, budgets that a store
tells of, the crew that is waited for, and figures that fit to the last unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError

from weft.config import PolitenessSection
from weft.errors import Busy
from weft.frontier.contract import CrawlLimits, End, EndedLease, HandedTransfer, RobotsRecord, SlotRequest, TransferEnd
from weft.frontier.redis import bloom, scripts
from weft.frontier.redis import marks as marks_module
from weft.frontier.redis.connection import connect
from weft.frontier.redis.link import CrawlFacts, PodLink, QueueLimits
from weft.frontier.redis.marks import PodMarks
from weft.frontier.redis.pods.client import PodClient
from weft.frontier.redis.pods.pod_outbox import MessageLost
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.frontier.requests import RequestEnd, read_events
from weft.frontier.view import FrontierView
from weft.records import Found, Purpose, Reason
from weft.supervise.redis_server import RedisServer

ALLOW = RobotsRecord("allow", b"", 9e12)
PLAIN = ["22150534121148796", "1506923474884522140", "-5044204668139258671", "9148053809655392616"]
BLOOM = ["195485937717628:113451097254557", "187924552380572:131146973475135"]
AVERAGE = 200  # fingerprints in a bucket of a pod's seen set


class Pod:
    """One pod under a clock that the test moves."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.folder, self.server = folder, server
        self.time = 1000.0
        self.client: Any = connect(server.url)
        self.client.flushall()
        self._opened: list[RedisFrontier] = []

    def process(self, slot: str = "pod0-fetcher0", crawl: CrawlLimits | None = None, **more: Any) -> RedisFrontier:
        settings: dict[str, Any] = {"delay_s": 10.0, "places": 1}
        settings |= {name: more.pop(name) for name in ("delay_s", "places", "key_scope") if name in more}
        section = PolitenessSection(**settings)
        frontier = RedisFrontier(
            connect(self.server.url), self.folder, section, slot=slot, incarnation=len(self._opened) + 1,
            clock=lambda: self.time, wall=lambda: self.time, server_clock=lambda: self.time,
            **{"idle_s": 0.0, **more},
        )  # fmt: skip
        self._opened.append(frontier)
        assert frontier.crawls.open_crawl("test", crawl or CrawlLimits()) == 1
        return frontier

    def close(self) -> None:
        for frontier in self._opened:
            frontier.close()
        self.client.close()


@pytest.fixture
def pod(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[Pod]:
    made = Pod(tmp_path / "pod", shared_server("redis"))
    yield made
    made.close()


def pages(*numbers: int, host: str = "a", depth: int = 0) -> list[Found]:
    return [Found(f"http://{host}/{number}", depth) for number in numbers]


# ── what is seen ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_fingerprints_are_those_of_crawls_that_are_on_servers_already() -> None:
    """Whoever changes them makes every page of a running crawl a new one."""
    plain, filtered = CrawlFacts(1, 5, CrawlLimits(), ""), CrawlFacts(1, 5, CrawlLimits(), "100:7")
    assert [plain.fingerprint(f"http://a/{n}") for n in range(4)] == PLAIN
    assert [filtered.fingerprint(f"http://a/{n}") for n in range(2)] == BLOOM
    assert CrawlFacts(1, 5, CrawlLimits(), "server").fingerprint("http://a/0") == PLAIN[0]


def test_the_seen_set_grows_by_one_bucket_at_a_time_and_finds_all_again(pod: Pod) -> None:
    frontier = pod.process()
    total = 0
    for amount in (AVERAGE * 16, 1, AVERAGE - 1, 1, AVERAGE * 15, 700):
        frontier.queue.admit(1, pages(*range(total, total + amount)))
        total += amount
        size, split = (int(value) for value in pod.client.hmget("c:1", "size", "split"))
        buckets = size + split
        assert (buckets - 1) * AVERAGE < max(total, 15 * AVERAGE + 1) <= buckets * AVERAGE
        assert 0 <= split < size
        names = {f"e:1:{number}".encode() for number in range(buckets)}
        assert set(pod.client.keys("e:*")) <= names
        assert sum(pod.client.scard(name) for name in names) == total == frontier.status.stats().seen
    assert (size, split) == (32, 4)
    again = pod.process("pod0-fetcher1").queue.admit(1, pages(*range(total)))
    assert (again.new, again.duplicates) == (0, total)


def test_a_bloom_filter_answers_also_where_nothing_may_be_added(pod: Pod) -> None:
    frontier = pod.process(
        crawl=CrawlLimits(max_pages_per_domain=1, max_sitemaps=1),
        bloom_filter=(10_000, 1e-6),
        limits=QueueLimits(most_in_tail=200_000),
    )
    frontier.queue.admit(1, pages(*range(1020)))
    assert frontier.queue.admit(1, pages(5, 2000, 7, 2001)).duplicates == 2, "over its budget, and still told apart"
    assert frontier.queue.admit(1, pages(2000)).new == 0
    maps = [Found(f"http://b/{n}.xml", 0, purpose=Purpose.SITEMAP, about="http://b") for n in range(2)]
    assert (frontier.queue.admit(1, maps[:1]).new, frontier.queue.admit(1, maps[:1]).duplicates) == (1, 1)
    assert (frontier.queue.admit(1, maps[1:]).new, frontier.queue.admit(1, maps[1:]).duplicates) == (0, 0)


def test_the_bits_of_a_filter_are_those_of_crawls_that_are_on_servers_already(pod: Pod) -> None:
    frontier = pod.process(bloom_filter=(1000, 0.01))
    frontier.queue.admit(1, pages(1))
    bits, hashes = map(int, frontier.link.crawls[1].bloom.split(":"))
    first, step = map(int, frontier.link.crawls[1].fingerprint("http://a/1").split(":"))
    places = {(first + number * step) % bits for number in range(hashes)}
    assert hashes > 1 and {bit for bit in range(bits) if pod.client.getbit("b:1:0", bit)} == places


BLOOM_BY_SETS = """
local server = redis
local redis = setmetatable({ call = function(command, ...)
  local by = ({ ['BF.ADD'] = 'SADD', ['BF.EXISTS'] = 'SISMEMBER' })[command]
  return server.call(by or command, ...)
end }, { __index = server })
"""


def test_a_filter_of_the_servers_own_is_asked_and_filled(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands are those of a module that not every server has: sets stand for them here."""
    plain = scripts.script_source
    monkeypatch.setattr(scripts, "script_source", lambda name: BLOOM_BY_SETS + plain(name))
    monkeypatch.setattr(scripts, "script_digest", lambda name: sha1(scripts.script_source(name).encode()).hexdigest())
    monkeypatch.setattr(bloom, "filter_shape", lambda *_: "server")
    reserved: list[Any] = []
    monkeypatch.setattr(bloom, "reserve_filter", lambda _client, _where, *what: reserved.append(what))
    frontier = pod.process(crawl=CrawlLimits(max_pages_per_domain=1), bloom_filter=(10_000, 1e-6))
    frontier.crawls.open_crawl("test", CrawlLimits(max_pages_per_domain=1))
    assert reserved == [(1, 10_000, 1e-6)], "before anything is added: the server would make a small one"
    assert frontier.queue.admit(1, pages(*range(1020))).new == 1020
    assert (frontier.queue.admit(1, pages(5)).duplicates, frontier.status.crawl_counts(1).seen) == (1, 1020)
    full = frontier.queue.admit(1, pages(5, 2000, 7))
    assert (full.new, full.duplicates) == (0, 2), "over its budget, and still told apart"
    assert pod.client.scard("b:1") == 1020 and not pod.client.keys("e:1:*")


def test_whoever_looks_a_crawl_up_knows_its_filter(pod: Pod) -> None:
    frontier = pod.process(crawl=CrawlLimits(max_depth=7), bloom_filter=(1000, 1e-6))
    frontier.queue.admit(1, pages(1, 2))
    section = PolitenessSection(delay_s=1.0, places=1)
    client = PodClient(PodLink(connect(pod.server.url), section, pod=0, pods=1))
    assert client.find_crawl("test") == 1
    assert (client.link.crawls[1].bloom, client.link.crawls[1].limits.max_depth) == (frontier.link.crawls[1].bloom, 7)
    frontier.queue.admit(1, pages(1))
    frontier.crawls.change_crawl(1, CrawlLimits(), frontier.link.section, 1.0)
    client.find_crawl("test")
    assert (client.link.crawls[1].has_depths, client.link.crawls[1].limits.max_depth) == (True, None)
    admitted = client.intake.admit(1, pages(1, 2, 3))
    assert (admitted.new, admitted.duplicates) == (1, 2)


def test_what_finds_its_queue_full_is_not_marked_as_seen(pod: Pod) -> None:
    frontier = pod.process(limits=QueueLimits(split_above=4, moved_at_once=2, refill_below=1, most_in_tail=6))
    first = frontier.queue.admit(1, pages(*range(8)))
    assert (first.new, first.full) == (8, ())
    second = frontier.queue.admit(1, pages(0, 8, 9))
    assert (second.new, second.duplicates, [one.url for one in second.full]) == (0, 1, ["http://a/8", "http://a/9"])
    assert frontier.status.stats().seen == 8
    assert frontier.queue.admit(1, pages(8, host="b")).new == 1, "another site has room"


# ── depth ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_many_that_are_told_at_once_each_nearer_one_is_expanded_as_itself(pod: Pod) -> None:
    frontier = pod.process(crawl=CrawlLimits(max_depth=9), delay_s=0.0, places=99)
    for host in "ab":
        frontier.sites.robots_known(f"http://{host}", ALLOW, None)
    known = [*pages(1, 2, 3, depth=5), *pages(1, 2, host="b", depth=5)]
    frontier.queue.admit(1, known)
    items = {}
    for lease in frontier.leases.claim("me", 99):
        items[lease.url] = lease.item
        frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True)])
        frontier.leases.finish([EndedLease(lease, End.PAGE)])
    assert len(items) == 5
    at_once = [
        Found("http://b/2", 2),
        Found("http://a/new", 2),
        Found("http://a/3", 2),
        Found("http://b/map.xml", 0, purpose=Purpose.SITEMAP, about="http://b"),
        Found("http://a/1", 1),
        Found("http://a/to", 1, hops=1, about="http://a/from"),
    ]
    expand = frontier.queue.admit(1, at_once).expand
    assert sorted(expand) == sorted(
        (items[url], url, depth) for url, depth in (("http://b/2", 2), ("http://a/3", 2), ("http://a/1", 1))
    )


# ── budgets, permits, crews ────────────────────────────────────────────────────────────────────────────────────────


def test_pages_of_a_site_that_its_store_tells_of_count_where_the_server_knows_nothing(pod: Pod) -> None:
    frontier = pod.process(crawl=CrawlLimits(max_pages_per_domain=3), delay_s=0.0, places=9)
    frontier.recovery.recover((), {1: 2}, {"a": 2})
    for host in "ab":
        frontier.sites.robots_known(f"http://{host}", ALLOW, None)
    frontier.queue.admit(1, [*pages(1, 2, 3), *pages(1, 2, 3, host="b")])
    leases = frontier.leases.claim("me", 99)
    assert sorted(lease.url for lease in leases) == ["http://a/1", "http://b/1", "http://b/2", "http://b/3"]
    for lease in leases:
        frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True)])
        frontier.leases.finish([EndedLease(lease, End.PAGE)])
    again = pod.process(crawl=CrawlLimits(max_pages_per_domain=4), delay_s=0.0, places=9)
    again.recovery.recover((), {1: 6}, {"a": 0, "b": 1})
    assert sorted(lease.url for lease in again.leases.claim("me", 99)) == ["http://a/2"], "the server knows better"
    assert again.status.stats().pages == 6


def test_only_the_crew_is_waited_for_after_a_loss(pod: Pod) -> None:
    frontier = pod.process()
    assert frontier.recovery.settled()
    pod.client.sadd("settling", "pod0-fetcher0", "pod0-fetcher9")
    assert not frontier.recovery.settled()
    frontier.processes.assign_slots(["pod0-fetcher0", "pod0-fetcher1"])
    assert pod.client.smembers("crew") == {b"pod0-fetcher0", b"pod0-fetcher1"}
    assert pod.client.smembers("settling") == {b"pod0-fetcher0"}
    frontier.recovery.restore_stored(1, [])
    assert frontier.recovery.settled()
    frontier.processes.assign_slots(["pod0-fetcher2"])
    assert pod.client.smembers("crew") == {b"pod0-fetcher2"}, "others are not waited for any more"


def test_while_a_pod_settles_it_is_asked_again_after_a_moment(pod: Pod) -> None:
    frontier = pod.process()
    frontier.sites.robots_known("http://a", ALLOW, None)
    frontier.queue.admit(1, pages(1))
    pod.client.sadd("settling", "pod0-fetcher9")
    pod.client.hset("n", "lost", int((pod.time - 30.0) * 1e6))
    assert frontier.leases.claim("me", 9) == []
    assert frontier.leases.next_due() == pytest.approx(pod.time + 0.1)
    pod.time += 31.0
    assert [lease.url for lease in frontier.leases.claim("me", 9)] == ["http://a/1"], "a slot that never comes"


def test_while_a_pod_settles_a_crawl_that_was_in_the_middle_of_its_turns_is_still_due(pod: Pod) -> None:
    frontier = pod.process()
    for host in "ab":
        frontier.sites.robots_known(f"http://{host}", ALLOW, None)
        frontier.queue.admit(1, pages(1, host=host))
    (lease,) = frontier.leases.claim("me", 1)
    frontier.leases.finish([EndedLease(lease, End.OTHER)])
    pod.client.sadd("settling", "pod0-fetcher9")
    pod.client.hset("n", "lost", int((pod.time - 30.0) * 1e6))
    assert (frontier.leases.claim("me", 9), frontier.status.stats().queued) == ([], 1)
    assert frontier.leases.next_due() == pytest.approx(pod.time + 0.1), "None: nothing is scheduled"
    pod.time += 31.0
    assert [lease.url for lease in frontier.leases.claim("me", 9)] == ["http://b/1"]


def test_while_a_pod_settles_that_has_nothing_queued_nothing_is_due(pod: Pod) -> None:
    frontier = pod.process()
    pod.client.sadd("settling", "pod0-fetcher9")
    pod.client.hset("n", "lost", int((pod.time - 30.0) * 1e6))
    assert (frontier.leases.claim("me", 9), frontier.leases.next_due()) == ([], None)


def test_a_queue_that_wants_more_and_has_none_on_disk_is_left_alone(pod: Pod) -> None:
    frontier = pod.process()
    pod.client.sadd("low", "1:0:a", "1:0:b")
    assert frontier.spiller.move_segments() == 0
    assert pod.client.smembers("low") == set()


def test_a_pod_is_given_what_is_left_of_the_pages_and_gives_back_what_it_does_not_use(pod: Pod) -> None:
    frontier = pod.process(crawl=CrawlLimits(max_pages=10), delay_s=0.0, places=9)
    assert (frontier.permits.give_permits(1, 0, 7), frontier.permits.give_permits(1, 1, 7)) == (7, 3)
    assert (frontier.permits.give_permits(1, 0, 2), frontier.permits.give_permits(1, 1, 99)) == (2, 8)
    assert frontier.permits.give_permits(1, 2, 5) == 0
    assert frontier.permits.pods_with_permits(1) == {0, 1, 2}
    frontier.permits.allow(1, 4)
    frontier.sites.robots_known("http://a", ALLOW, None)
    frontier.queue.admit(1, pages(*range(9)))
    leases = frontier.leases.claim("me", 2)
    frontier.leases.cool([TransferEnd(leases[0], frontier.now(), ok=True)])
    frontier.leases.finish([EndedLease(leases[0], End.PAGE)])
    assert frontier.permits.permit_counts(1) == (1, 1, 4)
    assert frontier.permits.permit_counts(9) == (0, 0, -1)
    assert frontier.permits.left(1) == 2
    assert [frontier.permits.lower_permits(1, wanted) for wanted in (9, 3, 0)] == [4, 3, 2]
    assert (frontier.permits.left(1), frontier.permits.permit_counts(1)) == (0, (1, 1, 2))


def test_a_crawl_without_a_limit_gives_every_pod_what_it_wants(pod: Pod) -> None:
    frontier = pod.process()
    assert [frontier.permits.give_permits(1, number, 10**6) for number in (0, 1)] == [10**6, 10**6]
    assert frontier.permits.permit_counts(1) == (0, 0, -1)


def test_a_pod_is_held_by_one_node_until_it_lets_go(pod: Pod) -> None:
    frontier = pod.process()
    frontier.pod.hold_pod("1@here:/one", 30.0)
    frontier.pod.hold_pod("1@here:/one", 30.0)
    assert 29_000 < pod.client.pttl("owner") <= 30_000
    with pytest.raises(Busy, match="pod 0 is run by node here:/one"):
        frontier.pod.hold_pod("2@there:/two", 30.0)
    frontier.pod.hold_pod("1@here:/one", 0.0)
    assert pod.client.get("owner") is None
    frontier.pod.hold_pod("2@there:/two", 30.0)
    assert frontier.pod.elect_decider("a", 30.0) and not frontier.pod.elect_decider("b", 30.0)
    assert not frontier.pod.elect_decider("a", 0.0) and frontier.pod.elect_decider("b", 30.0)


# ── calls ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_put_off_comes_before_whatever_is_asked_next(pod: Pod) -> None:
    frontier = pod.process()
    frontier.durability.acknowledge(5)
    assert pod.client.hget("slots", "pod0-fetcher0") is None
    frontier.notes.note("word")
    assert pod.client.hget("slots", "pod0-fetcher0") == b"5"


def test_a_process_that_is_closed_holds_no_file_open(pod: Pod) -> None:
    def held() -> list[str]:
        names = []
        for link in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                names.append(str(link.readlink()))
        return [name for name in names if name.startswith(str(pod.folder / "own"))]

    section = PolitenessSection(delay_s=1.0, places=1)
    connection = connect(pod.server.url)
    frontier = RedisFrontier(connection, pod.folder / "own", section, slot="pod0-fetcher0")
    frontier.crawls.open_crawl("own", CrawlLimits())
    frontier.sites.robots_known("http://a", ALLOW, None)
    frontier.rejected.refused(1, Reason.SCOPE, "http://a/", 1)
    assert len(held()) > 2
    frontier.close()
    assert held() == []
    connection.close()


def test_a_batch_that_came_before_is_known_and_one_too_early_is_refused(pod: Pod) -> None:
    frontier = pod.process()
    assert frontier.pod.intake.deliver_batch(1, "sender", 5, pages(1, 2)).new == 2
    again = frontier.pod.intake.deliver_batch(1, "sender", 5, pages(1, 2, 3))
    assert (again.new, again.duplicates) == (0, 3)
    assert frontier.pod.intake.deliver_batch(1, "sender", 4, pages(4)).new == 0
    with pytest.raises(MessageLost):
        frontier.pod.intake.deliver_batch(1, "sender", 9, pages(9), after=6)
    assert frontier.pod.intake.deliver_batch(1, "sender", 9, pages(9), after=5).new == 1
    assert frontier.pod.intake.deliver_batch(1, "other", 1, pages(1, 10)).duplicates == 1
    assert frontier.status.stats().received == 2 + 1 + 2
    arrived = frontier.pod.intake.last_arrival("sender")
    assert (arrived.last, frontier.pod.intake.last_arrival("nobody").last) == (9, 0)


def test_what_was_refused_can_be_looked_up_after_a_commit(pod: Pod) -> None:
    frontier = pod.process(crawl=CrawlLimits(max_pages_per_domain=1))
    frontier.queue.admit(1, pages(*range(1021)))
    frontier.rejected.refused(1, Reason.SCOPE, "http://elsewhere/", 3)
    view = FrontierView([pod.folder])
    assert view.refusal("http://elsewhere/") is None
    frontier.durability.commit()
    assert (view.refusal("http://elsewhere/"), view.refusal("http://a/1020")) == ("scope", "budget")
    assert view.refusal("http://a/1019") is None
    view.close()


@pytest.mark.parametrize("limit", ["in_flight", "max_pages", "max_pages_per_domain"])
def test_a_process_asks_at_once_when_it_has_freed_a_permit(pod: Pod, limit: str) -> None:
    """It asks no more for a while where nothing was due; but what it has ended itself may be what others wait for."""
    frontier = pod.process(crawl=CrawlLimits(**{limit: 1}), delay_s=0.0, places=9, idle_s=50.0)
    frontier.sites.robots_known("http://a", ALLOW, None)
    frontier.queue.admit(1, pages(1, 2))
    (lease,) = frontier.leases.claim("me", 9)
    pod.time += 1.0
    assert frontier.leases.claim("me", 9) == []
    frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True)])
    pod.time += 1.0
    frontier.leases.claim("me", 9)
    frontier.leases.finish([EndedLease(lease, End.OTHER)])
    assert frontier.leases.next_due() == pytest.approx(pod.time)
    assert [lease.url for lease in frontier.leases.claim("me", 9)] == ["http://a/2"]


def test_a_process_without_limits_need_not_ask_for_what_it_has_ended(pod: Pod) -> None:
    frontier = pod.process(delay_s=30.0, idle_s=50.0)
    frontier.sites.robots_known("http://a", ALLOW, None)
    frontier.queue.admit(1, pages(1, 2))
    (lease,) = frontier.leases.claim("me", 9)
    frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True)])
    frontier.leases.claim("me", 9)
    frontier.leases.finish([EndedLease(lease, End.PAGE)])
    assert frontier.leases.next_due() == pytest.approx(pod.time + 30.0, abs=0.001)


def test_what_is_not_due_is_told_to_whoever_waits(pod: Pod) -> None:
    frontier = pod.process(delay_s=30.0)
    assert frontier.leases.next_due() is not None, "it has not asked yet"
    frontier.sites.robots_known("http://a", ALLOW, 70.0)
    frontier.queue.admit(1, pages(1))
    assert frontier.leases.claim("me", 9) == []
    assert frontier.leases.next_due() == pytest.approx(1070.0, abs=0.001)
    frontier.crawls.pause(1)
    assert frontier.leases.next_due() == pytest.approx(pod.time)
    pod.time += 80.0
    assert frontier.leases.claim("me", 9) == []
    frontier.crawls.pause(1, False)
    assert [lease.url for lease in frontier.leases.claim("me", 9)] == ["http://a/1"]
    assert frontier.leases.claim("me", 0) == []


def test_every_item_that_was_numbered_is_marked_on_disk(pod: Pod) -> None:
    """A server that loses them must not give their numbers out again."""
    frontier = pod.process()
    marks = PodMarks(pod.folder / "marks", "other")
    frontier.queue.admit(1, pages(1, 2, 3))
    assert marks.last_seen()[1] == 3
    frontier.queue.admit(1, [*pages(1, 4), Found("http://a/to", 1, hops=1, about="http://a/from")])
    operation, item = marks.last_seen()
    assert item == 5
    assert operation == int(pod.client.hget("n", "ops"))
    marks.close()


def test_a_request_whose_page_was_stored_before_a_kill_is_logged_as_over(pod: Pod) -> None:
    frontier = pod.process()
    frontier.sites.robots_known("http://a", ALLOW, None)
    frontier.queue.admit(1, pages(1, 2))
    (lease,) = frontier.leases.claim(frontier.owner, 9)
    pod.time += 3.0
    again = pod.process()
    again.recovery.recover([lease.item], {1: 1})
    ends = [event for event in read_events(pod.folder / "requests") if isinstance(event, RequestEnd)]
    assert [(event.item, event.status, event.at) for event in ends] == [(lease.item, "expired", 1003.0)]
    assert (again.status.stats().finished, again.status.stats().pages, again.recovery.lost_ends) == (1, 1, [lease.item])
    pod.time += 9.9
    assert again.leases.claim("me", 9) == [], "a full delay from then on"
    pod.time += 0.2
    assert [one.url for one in again.leases.claim("me", 9)] == ["http://a/2"]


def test_only_a_request_that_was_under_way_is_logged_as_expired(pod: Pod) -> None:
    frontier = pod.process(delay_s=0.0, places=9)
    frontier.sites.robots_known("http://a", ALLOW, None)
    frontier.queue.admit(1, pages(1, 2))
    one, two = frontier.leases.claim("me", 9)
    frontier.leases.cool([TransferEnd(one, frontier.now(), ok=True)])
    pod.time = max(one.deadline, two.deadline) + 1.0
    assert len(frontier.leases.claim("me", 9)) == 2
    ends = [event for event in read_events(pod.folder / "requests") if isinstance(event, RequestEnd)]
    assert sorted((event.item, event.status) for event in ends) == sorted([(one.item, "-"), (two.item, "expired")])


def test_whoever_has_lost_its_lease_frees_no_place_of_another(pod: Pod) -> None:
    one, two = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    one.sites.robots_known("http://a", ALLOW, None)
    one.queue.admit(1, pages(1, 2))
    one.durability.commit()
    (lost,) = one.leases.claim(one.owner, 9)
    pod.time = lost.deadline + 1.0
    two.leases.claim(two.owner, 9)
    pod.time += 11.0
    (held,) = two.leases.claim(two.owner, 9)
    assert held.item == lost.item
    one.leases.cool([TransferEnd(lost, one.now(), ok=True)])
    one.durability.commit()
    assert one.leases.finish([EndedLease(lost, End.PAGE)]) == [False]
    pod.time += 11.0
    assert two.leases.claim(two.owner, 9) == [], "the other one is still being asked"
    two.leases.cool([TransferEnd(held, two.now(), ok=True)])
    assert two.leases.finish([EndedLease(held, End.PAGE)]) == [True]
    again = pod.process("pod0-fetcher2")
    again.leases.cool([TransferEnd(held, again.now(), ok=True)])
    pod.time += 10.1
    assert [lease.url for lease in two.leases.claim(two.owner, 9)] == ["http://a/2"]


def test_an_end_that_comes_after_its_lease_is_nobodys(pod: Pod) -> None:
    one, two = pod.process("pod0-fetcher0"), pod.process("pod0-fetcher1")
    one.sites.robots_known("http://a", ALLOW, None)
    one.queue.admit(1, pages(1))
    one.durability.commit()
    (lost,) = one.leases.claim(one.owner, 9)
    assert two.processes.release_owner(one.owner) == 1
    one.leases.cool([TransferEnd(lost, one.now(), ok=True)])
    one.durability.commit()
    assert one.parse_queue.fetched([HandedTransfer(TransferEnd(lost, one.now(), ok=True), b"somewhere")]) == [False]
    assert (one.status.stats().queued, one.status.stats().leased, one.status.stats().to_parse) == (1, 0, 0)


def test_after_a_broken_connection_the_server_is_looked_at_before_it_is_asked(pod: Pod) -> None:
    """It may be another run of the server, that has lost something: a plain command would not notice."""
    frontier = pod.process()
    frontier.queue.admit(1, pages(1))
    frontier.notes.note("word", "kept")
    pod.client.hset("state", "run", "an earlier one")
    pod.client.hincrby("n", "ops", -3)
    assert frontier.notes.note("word") == "kept"
    assert not pod.client.hexists("n", "lost")
    frontier.link.scripts.has_failed = True
    frontier.notes.note("word")
    assert pod.client.hexists("n", "lost")
    assert not frontier.link.scripts.has_failed


def test_with_several_places_a_page_that_was_fetched_lets_the_next_be_asked_for_at_once(pod: Pod) -> None:
    for places, due_s in ((2, 0.0), (1, 30.0)):
        frontier = pod.process(f"pod0-fetcher{places}", delay_s=30.0, places=places)
        frontier.sites.robots_known(f"http://h{places}", ALLOW, None)
        frontier.queue.admit(1, pages(1, host=f"h{places}"))
        (lease,) = frontier.leases.claim("me", 9)
        assert frontier.leases.claim("me", 9) == []
        assert frontier.parse_queue.fetched(
            [HandedTransfer(TransferEnd(lease, frontier.now(), ok=True), b"somewhere")]
        ) == [True]
        assert frontier.leases.next_due() == pytest.approx(pod.time + due_s)


def test_an_end_that_is_told_at_once_makes_a_site_due_a_whole_delay_later(pod: Pod) -> None:
    frontier = pod.process(delay_s=10.0)
    frontier.sites.robots_known("http://a", ALLOW, None)
    frontier.queue.admit(1, pages(1, 2))
    (lease,) = frontier.leases.claim("me", 9)
    frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True)])
    frontier.leases.finish([EndedLease(lease, End.PAGE)])
    pod.time += 10.0 - 1e-6
    assert frontier.leases.claim("me", 9) == []
    pod.time += 1e-6
    assert len(frontier.leases.claim("me", 9)) == 1


def test_segments_that_came_back_can_be_claimed_at_once(pod: Pod) -> None:
    frontier = pod.process(
        delay_s=0.0,
        places=99,
        limits=QueueLimits(split_above=20, moved_at_once=5, refill_below=2, most_in_tail=200),
        idle_s=50.0,
    )
    frontier.sites.robots_known("http://a", ALLOW, None)
    frontier.queue.admit(1, pages(*range(100)))
    assert frontier.spiller.move_segments() > 0
    while leases := frontier.leases.claim("me", 99):
        frontier.leases.finish([EndedLease(lease, End.OTHER) for lease in leases])
    due = frontier.leases.next_due()
    assert due is None or due > pod.time
    assert frontier.spiller.move_segments() > 0
    assert frontier.leases.next_due() == pytest.approx(pod.time)
    assert frontier.leases.claim("me", 99) != []


def test_an_address_that_is_taken_makes_its_host_wait_and_the_next_be_asked_for(pod: Pod) -> None:
    section = PolitenessSection(delay_s=10.0, places=1, key_scope="ip")
    frontier = RedisFrontier(
        connect(pod.server.url), pod.folder, section, slot="pod0-fetcher0", idle_s=50.0,
        clock=lambda: pod.time, wall=lambda: pod.time, server_clock=lambda: pod.time,
    )  # fmt: skip
    frontier.crawls.open_crawl("test", CrawlLimits())
    for host in "ab":
        frontier.sites.robots_known(f"http://{host}", ALLOW, None)
    frontier.queue.admit(1, [*pages(1), *pages(1, host="b")])
    leases = frontier.leases.claim("me", 9)
    assert frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1", 0.0) for lease in leases]) == [True, False]
    assert frontier.leases.next_due() == pytest.approx(pod.time)
    frontier.close()


def test_sites_that_have_nothing_any_more_take_no_place_of_their_address(pod: Pod) -> None:
    frontier = pod.process(key_scope="ip")
    for host in "abc":
        frontier.sites.robots_known(f"http://{host}", ALLOW, None)
    frontier.queue.admit(1, [*pages(1), *pages(1, 2, host="b"), *pages(1, host="c")])
    leases = frontier.leases.claim("me", 9)
    for name in range(20):
        pod.client.sadd("P:192.0.2.1", f"gone{name}")
    assert frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1", 0.0) for lease in leases]) == [
        True,
        False,
        False,
    ]
    assert frontier.leases.next_due() == pytest.approx(pod.time)
    assert pod.client.scard("P:192.0.2.1") <= 20, "the one that has been claimed, and not all that are gone"


def test_what_a_host_asked_for_holds_for_the_address_that_it_turns_out_to_share(pod: Pod) -> None:
    frontier = pod.process(key_scope="ip")
    frontier.sites.robots_known("http://a", ALLOW, None)
    frontier.sites.robots_known("http://b", ALLOW, 50.0)
    frontier.queue.admit(1, [*pages(1), *pages(1, host="b")])
    pod.time += 51.0
    by_host = {lease.key: lease for lease in frontier.leases.claim("me", 9)}
    wanted = [SlotRequest(by_host[host], "192.0.2.1", delay_s) for host, delay_s in (("a", 0.0), ("b", 50.0))]
    assert frontier.leases.claim_slots(wanted) == [True, False]
    frontier.leases.cool([TransferEnd(by_host["a"], frontier.now(), ok=True)])
    frontier.leases.finish([EndedLease(by_host["a"], End.PAGE)])
    assert frontier.leases.claim("me", 9) == []
    pod.time += 49.0
    assert frontier.leases.claim("me", 9) == []
    pod.time += 1.5
    assert [lease.key for lease in frontier.leases.claim("me", 9)] == ["b"]


def test_whoever_has_lost_its_lease_gives_back_no_others_when_its_address_is_taken(pod: Pod) -> None:
    section = PolitenessSection(delay_s=10.0, places=1, key_scope="ip")

    def process(slot: str) -> RedisFrontier:
        frontier = RedisFrontier(
            connect(pod.server.url), pod.folder, section, slot=slot, idle_s=0.0,
            clock=lambda: pod.time, wall=lambda: pod.time, server_clock=lambda: pod.time,
        )  # fmt: skip
        frontier.crawls.open_crawl("test", CrawlLimits())
        return frontier

    one, two = process("pod0-fetcher0"), process("pod0-fetcher1")
    one.sites.robots_known("http://a", ALLOW, None)
    one.queue.admit(1, pages(1))
    one.durability.commit()
    (lost,) = one.leases.claim(one.owner, 9)
    pod.time = lost.deadline + 1.0
    two.leases.claim(two.owner, 9)
    pod.time += 11.0
    (held,) = two.leases.claim(two.owner, 9)
    assert two.leases.claim_slots([SlotRequest(held, "192.0.2.1", 0.0)]) == [True]
    assert one.leases.claim_slots([SlotRequest(lost, "192.0.2.1", 0.0)]) == [False]
    assert one.status.stats().leased == 1
    two.leases.cool([TransferEnd(held, two.now(), ok=True)])
    assert two.leases.finish([EndedLease(held, End.PAGE)]) == [True]
    one.close()
    two.close()


def test_pages_that_waited_for_a_robots_txt_are_due_when_it_is_known(pod: Pod) -> None:
    frontier = pod.process(delay_s=0.0, places=9, idle_s=50.0)
    frontier.queue.admit(1, pages(1))
    (robots,) = frontier.leases.claim("me", 9)
    frontier.leases.cool([TransferEnd(robots, frontier.now(), ok=True)])
    frontier.leases.finish([EndedLease(robots, End.OTHER)])
    pod.time += 1.0
    assert frontier.leases.claim("me", 9) == []
    frontier.sites.robots_known("http://a", ALLOW, None)
    assert frontier.leases.next_due() == pytest.approx(pod.time)
    assert [lease.url for lease in frontier.leases.claim("me", 9)] == ["http://a/1"]


def test_a_bloom_filter_has_the_bits_that_its_error_rate_needs(pod: Pod) -> None:
    assert bloom.filter_shape(pod.client, "redis", 1_000_000, 0.01) in ("server", "9585059:7")
    assert bloom.filter_shape(pod.client, "redis", 1000, 0.5) in ("server", "1443:1")
    assert bloom.filter_shape(pod.client, "redis", 1000, 0.9) in ("server", "220:1")


@pytest.mark.parametrize(
    ("known", "shape"),
    [
        ([None], "4792530:7"),
        ([], "4792530:7"),
        ({}, "4792530:7"),
        ([[b"bf.add", -1], None], "server"),
        ({"bf.add": {"arity": -1}}, "server"),
    ],
)
def test_a_server_that_has_filters_of_its_own_is_known_by_its_commands(known: Any, shape: str) -> None:
    class Server:
        def execute_command(self, *command: Any) -> Any:
            assert command == ("COMMAND INFO", "BF.ADD")
            return known

    assert bloom.filter_shape(Server(), "redis", 500_000, 0.01) == shape


@pytest.mark.parametrize("answer", ["OK", "ERR item exists", "ERR unknown command"])
def test_a_filter_of_the_servers_own_is_reserved_once(answer: str) -> None:
    asked: list[tuple[Any, ...]] = []

    class Server:
        def execute_command(self, *command: Any) -> Any:
            asked.append(command)
            if answer != "OK":
                raise ResponseError(answer)

    with pytest.raises(ResponseError, match="unknown") if "unknown" in answer else nullcontext():
        bloom.reserve_filter(Server(), "redis", 7, 10_000, 1e-6)
    assert asked == [("BF.RESERVE", "b:7", 1e-6, 10_000)]


def test_a_crawl_that_is_not_there_cannot_be_changed(pod: Pod) -> None:
    frontier = pod.process()
    with pytest.raises(KeyError, match="99"):
        frontier.crawls.change_crawl(99, CrawlLimits(), PolitenessSection(delay_s=1.0, places=1), 1.0)
    assert pod.client.hgetall("crawls") == {b"test": b"1"}


def test_a_new_visit_of_a_page_takes_nothing_from_the_one_before(pod: Pod) -> None:
    frontier = pod.process(crawl=CrawlLimits(max_depth=9), delay_s=0.0, places=9)
    frontier.sites.robots_known("http://a", ALLOW, None)
    frontier.queue.admit(1, pages(1, depth=5))
    (first,) = frontier.leases.claim("me", 9)
    frontier.revisits.readmit(1, Found("http://a/1", 3))
    (second,) = frontier.leases.claim("me", 9)
    assert first.item != second.item
    assert frontier.leases.finish([EndedLease(first, End.RELEASE), EndedLease(second, End.PAGE)]) == [True, True]
    assert [(lease.item, lease.depth) for lease in frontier.leases.claim("me", 9)] == [(first.item, 5)]


def test_nobody_answers_where_nobody_is(tmp_path: Path) -> None:
    section = PolitenessSection(delay_s=1.0, places=1)
    assert not PodClient(
        PodLink(connect(f"unix://{tmp_path}/none.sock"), section, pod=0, pods=1)
    ).link.is_server_answering()


def test_what_a_store_tells_of_a_page_changes_nothing_that_is_known_of_it(pod: Pod) -> None:
    frontier = pod.process(crawl=CrawlLimits(max_depth=5), delay_s=0.0)
    frontier.sites.robots_known("http://a", ALLOW, None)
    frontier.queue.admit(1, pages(1, depth=1))
    (lease,) = frontier.leases.claim(frontier.owner, 9)
    frontier.leases.finish([EndedLease(lease, End.OTHER)])
    frontier.recovery.restore_stored(1, [("http://a/1", 3, lease.item), ("http://a/2", 3, lease.item + 1)])
    assert frontier.queue.admit(1, pages(1, depth=2)).expand == (), "it was expanded from a smaller depth"
    assert len(frontier.queue.admit(1, pages(2, depth=2)).expand) == 1
    frontier.queue.admit(1, pages(3, depth=3))
    (lease,) = frontier.leases.claim(frontier.owner, 9)
    frontier.leases.finish([EndedLease(lease, End.OTHER)])
    frontier.recovery.restore_stored(1, [("http://a/3", 1, lease.item)])
    assert len(frontier.queue.admit(1, pages(3, depth=2)).expand) == 1


def test_depths_are_not_kept_of_stored_pages_where_they_decide_nothing(pod: Pod) -> None:
    frontier = pod.process()
    frontier.recovery.restore_stored(1, [("http://a/1", 3, 5)])
    assert frontier.queue.admit(1, pages(1)).duplicates == 1
    assert not pod.client.keys("k:*")


def test_a_loss_is_noticed_once_however_often_the_server_is_started_again(pod: Pod) -> None:
    frontier, watcher = pod.process("pod0-fetcher0"), pod.process("pod0-orchestrator")
    for _ in range(30):
        watcher.status.stats()
    pod.client.hset("n", "ops", 1)
    for run in ("second", "third"):
        pod.client.hset("state", "run", run)
        frontier = pod.process("pod0-fetcher0")
        assert pod.client.hget("n", "losses") == b"1", run
    assert frontier.status.stats().queued == 0


def test_a_server_that_was_started_anew_with_the_machine_is_taken_to_have_lost_data(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.process().queue.admit(1, pages(1))
    monkeypatch.setattr(marks_module, "boot_id", lambda: "another")
    pod.client.hset("state", "run", "another")
    frontier = pod.process()
    frontier.sites.robots_known("http://a", ALLOW, None)
    assert pod.client.hget("n", "losses") == b"1"
    assert frontier.leases.claim(frontier.owner, 9) == []
    pod.time += 10.1
    assert [lease.url for lease in frontier.leases.claim(frontier.owner, 9)] == ["http://a/1"]


def test_the_last_item_of_all_is_not_fetched_again_if_it_is_stored(pod: Pod) -> None:
    frontier = pod.process(delay_s=0.0)
    frontier.sites.robots_known("http://a", ALLOW, None)
    frontier.queue.admit(1, pages(1))
    (lease,) = frontier.leases.claim("x", 9)
    frontier.leases.finish([EndedLease(lease, End.RELEASE)])
    again = pod.process(delay_s=0.0)
    again.recovery.recover([lease.item, lease.item + 1])
    assert pod.client.smembers("gone") == {str(lease.item).encode()}, "the other one is nobody's"
    assert again.leases.claim("x", 9) == []

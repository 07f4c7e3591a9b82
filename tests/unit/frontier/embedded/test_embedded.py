"""The embedded frontier by itself: its crawls, its clock, what it writes down and what it knows after a restart."""

from __future__ import annotations

import gc
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from weft.config import PolitenessSection
from weft.errors import Busy
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord, SlotRequest, TransferEnd
from weft.frontier.embedded import rejected as rejected_module
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.requests import RequestEnd, RequestStart, read_events, writing
from weft.frontier.view import FrontierView
from weft.records import POD_SHIFT, Found, Lease, Purpose, Reason

WALL = 1_700_000_000.0


def copied(folder: Path, copy: Path) -> None:
    """The files as they are at one moment: closed request logs are packed, and then deleted, meanwhile."""
    for _ in range(100):
        try:
            shutil.copytree(folder, copy)
        except shutil.Error:
            shutil.rmtree(copy)
        else:
            return
    pytest.fail("the folder changes all the time")


class Bench:
    """A frontier whose clock the test moves, and that can be closed or killed and opened again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.time = 1000.0
        self.times: Iterator[float] = iter(())  # what the clock shows before that
        self.settings: dict[str, Any] = {"delay_s": 10.0, "places": 1}
        self._opened: EmbeddedFrontier | None = None
        self._copies = 0

    def open(
        self, *crawls: tuple[str, CrawlLimits], recover: dict[str, Any] | None = None, **more: Any
    ) -> EmbeddedFrontier:
        self.close()
        section = PolitenessSection(**self.settings)
        frontier = EmbeddedFrontier(
            self.folder, section, clock=lambda: next(self.times, self.time), wall=lambda: WALL + self.time, **more
        )
        self._opened = frontier
        for name, limits in crawls or (("test", CrawlLimits()),):
            frontier.crawls.open_crawl(name, limits)
        frontier.recovery.recover(**(recover or {}))
        return frontier

    def kill(self) -> None:
        """Leaves what the files hold now."""
        self._copies += 1
        copy = self.folder.with_name(f"killed{self._copies}")
        copied(self.folder, copy)
        self.close()
        self.folder = copy

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self._opened = None


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "f")
    yield made
    made.close()


def allow(frontier: EmbeddedFrontier, *origins: str, crawl_delay_s: float | None = None) -> None:
    for origin in origins:
        frontier.sites.robots_known(origin, RobotsRecord("allow", b"", 9e12), crawl_delay_s)


def fetch(frontier: EmbeddedFrontier, lease: Lease, end: End = End.PAGE, batch: int = 0, **facts: Any) -> None:
    frontier.leases.cool([TransferEnd(lease, frontier.now(), **({"ok": True} | facts))])
    assert frontier.leases.finish([EndedLease(lease, end)], batch) == [True]


def claimed(frontier: EmbeddedFrontier) -> list[str]:
    return [lease.url for lease in frontier.leases.claim("me", 99)]


# ── crawls ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_crawl_keeps_its_number_and_what_it_has_seen(bench: Bench) -> None:
    frontier = bench.open(("one", CrawlLimits()), ("two", CrawlLimits()))
    numbers = [frontier.crawls.open_crawl(name, CrawlLimits()) for name in ("one", "two", "three")]
    assert len(set(numbers)) == 3
    frontier.queue.admit(numbers[1], [Found("https://a/1", 0)])
    frontier = bench.open(("two", CrawlLimits()))
    assert frontier.crawls.open_crawl("two", CrawlLimits(max_pages=1)) == numbers[1]
    assert frontier.queue.admit(numbers[1], [Found("https://a/1", 0)]).new == 0
    assert frontier.crawls.open_crawl("four", CrawlLimits()) not in numbers
    assert frontier.crawls.open_crawl("one", CrawlLimits()) == numbers[0]
    assert frontier.permits.left(numbers[1]) == 1


def test_all_crawls_must_have_their_pages_for_all_to_be_done(bench: Bench) -> None:
    frontier = bench.open(("one", CrawlLimits(max_pages=1)), ("two", CrawlLimits(max_pages=1)))
    one, two = (frontier.crawls.open_crawl(name, CrawlLimits(max_pages=1)) for name in ("one", "two"))
    allow(frontier, "https://a", "https://b")
    assert not frontier.permits.exhausted()
    for crawl, url in ((one, "https://a/1"), (two, "https://b/1")):
        frontier.queue.admit(crawl, [Found(url, 0)])
        assert not frontier.permits.exhausted()
        for lease in frontier.leases.claim("me", 9):
            fetch(frontier, lease)
    assert frontier.permits.exhausted()
    frontier.crawls.open_crawl("three", CrawlLimits())
    assert not frontier.permits.exhausted(), "one without an end"


def test_listing_concerns_one_crawl(bench: Bench) -> None:
    frontier = bench.open(("one", CrawlLimits()), ("two", CrawlLimits()))
    one, two = (frontier.crawls.open_crawl(name, CrawlLimits()) for name in ("one", "two"))
    for crawl in (one, two):
        frontier.queue.admit(crawl, [Found(f"https://{host}/{crawl}", 0) for host in "ab"])
    assert [item.url for item in frontier.queue.items(one)] == [f"https://a/{one}", f"https://b/{one}"]
    frontier.crawls.close_crawl(one)
    assert (len(list(frontier.queue.items(two))), frontier.status.stats().queued) == (2, 2)
    assert frontier.leases.next_due() is not None
    frontier.crawls.close_crawl(two)
    bench.time += 1
    assert (claimed(frontier), frontier.leases.next_due()) == ([], None), "nobody need look again"


def test_a_site_with_nothing_left_is_not_looked_at_again(bench: Bench) -> None:
    bench.settings["places"] = 2
    frontier = bench.open()
    allow(frontier, "https://a")
    frontier.queue.admit(1, [Found(f"https://a/{number}", 0) for number in range(3)])
    (lease,) = frontier.leases.claim("me", 9)
    assert frontier.leases.next_due() == bench.time + 10, "the next page may start then"
    fetch(frontier, lease, ok=None, slow_down=True, retry_after_s=1e6)
    assert frontier.leases.next_due() is None


def test_items_are_numbered_from_one_in_each_pod(bench: Bench) -> None:
    frontier = bench.open(pod=3)
    frontier.queue.admit(1, [Found("https://a/1", 0), Found("https://a/2", 0)])
    assert [item.item for item in frontier.queue.items(1)] == [(3 << POD_SHIFT) + 1, (3 << POD_SHIFT) + 2]
    frontier.close()
    bench._opened = None
    frontier = bench.open(pod=3)
    frontier.queue.admit(1, [Found("https://a/3", 0)])
    assert [item.item for item in frontier.queue.items(1)][-1] == (3 << POD_SHIFT) + 3
    assert frontier.leases.epoch == 2


# ── time ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_its_clock_never_runs_backwards(bench: Bench) -> None:
    frontier = bench.open()
    bench.time = 1500.0
    assert frontier.now() == 1500.0
    bench.time = 1200.0
    assert frontier.now() == 1500.0


@pytest.mark.parametrize(("boot", "waits"), [("another boot", True), (None, False)])
def test_after_another_boot_every_site_waits_a_full_delay(bench: Bench, boot: str | None, waits: bool) -> None:
    frontier = bench.open()
    allow(frontier, "https://a")
    frontier.queue.admit(1, [Found("https://a/1", 0)])
    if boot is not None:
        frontier._base.journal.put_meta("boot", boot)
    frontier = bench.open()
    bench.time += 9.9
    assert claimed(frontier) == ([] if waits else ["https://a/1"])
    bench.time += 0.2
    assert claimed(frontier) == (["https://a/1"] if waits else [])


def test_by_address_every_site_waits_a_full_delay_after_a_restart(bench: Bench) -> None:
    bench.settings["key_scope"] = "ip"
    frontier = bench.open()
    allow(frontier, "https://a")
    frontier.queue.admit(1, [Found("https://a/1", 0)])
    assert frontier.leases.next_due() == 0.0 or frontier.leases.next_due() == bench.time, "not at the very first start"
    frontier = bench.open()
    bench.time += 9.9
    assert claimed(frontier) == []
    bench.time += 0.2
    (lease,) = frontier.leases.claim("me", 9)
    assert frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1")]) == [True]


def test_an_address_that_asks_for_nothing_keeps_its_places(bench: Bench) -> None:
    bench.settings |= {"key_scope": "ip", "places": 2, "delay_s": 0.0}
    frontier = bench.open()
    allow(frontier, "https://a", "https://b", "https://c")
    frontier.queue.admit(1, [Found(f"https://{host}/1", 0) for host in "abc"])
    leases = frontier.leases.claim("me", 9)
    assert frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1") for lease in leases]) == [True, True, False]
    assert frontier.leases.claim_slots([SlotRequest(leases[2], "192.0.2.1")]) == [False], "its lease is over"


def test_a_robots_txt_raises_the_delay_and_never_lowers_it(bench: Bench) -> None:
    frontier = bench.open()
    frontier.queue.admit(1, [Found(f"https://a/{number}", 0) for number in range(5)])
    delays = []
    for crawl_delay_s in (None, 30.0, 20.0, None):
        allow(frontier, "https://a", crawl_delay_s=crawl_delay_s)
        bench.time += 100
        (lease,) = frontier.leases.claim("me", 9)
        delays.append(lease.delay_s)
        fetch(frontier, lease)
    assert delays == [10.0, 30.0, 30.0, 30.0]


def test_the_news_of_a_longer_delay_counts_from_now(bench: Bench) -> None:
    bench.settings["places"] = 3
    frontier = bench.open()
    frontier.queue.admit(1, [Found("https://a/1", 0)])
    allow(frontier, "https://a", crawl_delay_s=30.0)
    bench.time += 29.9
    assert claimed(frontier) == []
    bench.time += 0.2
    assert claimed(frontier) == ["https://a/1"]


# ── what is written down ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_checkpoint_is_written_when_enough_has_been_and_not_before(bench: Bench) -> None:
    frontier = bench.open(checkpoint_every=100)
    path = bench.folder / "checkpoint"
    frontier.queue.admit(1, [Found(f"https://a/{number}", 0) for number in range(60)])
    frontier.durability.commit()
    frontier.queue.admit(1, [Found(f"https://a/{number}", 0) for number in range(60, 100)])
    frontier.durability.commit()
    assert not path.exists()
    frontier.queue.admit(1, [Found(f"https://b/{number}", 0) for number in range(20)])
    frontier.durability.commit()
    assert path.exists(), "a hundred lines, and a tenth of what it holds"
    path.unlink()
    frontier.queue.admit(1, [Found(f"https://c/{number}", 0) for number in range(20)])
    frontier.durability.commit()
    assert not path.exists(), "counted anew from the last one"


@pytest.mark.parametrize(("lines", "is_written"), [(4, False), (5, True)])
def test_closing_writes_a_checkpoint_where_that_saves_something(bench: Bench, lines: int, is_written: bool) -> None:
    frontier = bench.open(checkpoint_every=100)
    frontier.queue.admit(1, [Found(f"https://a/{number}", 0) for number in range(lines)])
    bench.close()
    assert (bench.folder / "checkpoint").exists() == is_written


def test_what_is_leased_and_what_is_rejected_is_in_a_checkpoint_and_a_robots_txt_request_is_not(bench: Bench) -> None:
    frontier = bench.open(checkpoint_every=-1_000_000)
    allow(frontier, "https://a", "https://b")
    frontier.queue.admit(1, [Found("https://a/1", 0), Found("https://b/1", 0), Found("https://c/1", 0)])
    leases = {lease.url: lease for lease in frontier.leases.claim("me", 9)}
    assert sorted(leases) == ["https://a/1", "https://b/1", "https://c/robots.txt"]
    frontier.queue.admit(1, [Found("https://a/2", 0)])
    frontier.leases.cool([TransferEnd(leases["https://a/1"], frontier.now(), slow_down=True, retry_after_s=1e6)])
    frontier.durability.commit()
    bench.kill()
    frontier = bench.open()
    assert sorted(item.url for item in frontier.queue.items(1)) == [
        "https://a/1",
        "https://a/2",
        "https://b/1",
        "https://c/1",
    ]
    assert (frontier.status.stats().admitted, frontier.status.stats().finished) == (4, 0)


def test_batches_are_over_as_far_as_they_are_acknowledged(bench: Bench) -> None:
    bench.settings |= {"delay_s": 0.0, "places": 9}
    assert bench.open().durability.acknowledged == 0, "no batch was stored"
    for every in (-1_000_000, 1_000_000):
        frontier = bench.open(checkpoint_every=every)
        allow(frontier, "https://a")
        urls = [f"https://a/{every}/{number}" for number in range(4)]
        frontier.queue.admit(1, [Found(url, 0) for url in urls])
        for batch, lease in enumerate(frontier.leases.claim("me", 9), 1):
            fetch(frontier, lease, batch=batch)
        frontier.durability.acknowledge(2)
        frontier.durability.commit()
        assert frontier.status.stats().finished == frontier.status.stats().admitted
        bench.kill()
        frontier = bench.open(checkpoint_every=1_000_000)
        assert frontier.durability.acknowledged == 2
        allow(frontier, "https://a")
        assert frontier.status.stats().finished == frontier.status.stats().admitted - 2
        leases = frontier.leases.claim("me", 9)
        assert sorted(lease.url for lease in leases) == urls[2:]
        for lease in leases:
            fetch(frontier, lease)
        frontier.durability.acknowledge(0)


def test_pages_of_earlier_processes_count_against_the_budgets(bench: Bench) -> None:
    bench.settings |= {"delay_s": 0.0, "places": 9}
    limits = CrawlLimits(max_pages=7, max_pages_per_domain=3)
    bench.open(("test", limits))
    frontier = bench.open(("test", limits), recover={"pages": {1: 4, 99: 5}, "by_key": {"a": 2}})
    allow(frontier, "https://a", "https://b")
    assert (frontier.status.stats().pages, frontier.permits.left(1)) == (4, 3)
    frontier.queue.admit(1, [Found(f"https://{host}/{number}", 0) for host in "ab" for number in range(5)])
    assert sorted(lease.key for lease in frontier.leases.claim("me", 9)) == ["a", "b", "b"]


def test_refusals_are_remembered_up_to_a_bound(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejected_module, "REMEMBERED_REFUSALS", 3)
    frontier = bench.open()
    for number in range(5):
        frontier.rejected.refused(1, Reason.SCOPE, f"https://x/{number}", 1)
    frontier.rejected.refused(2, Reason.TRAP, "https://x/4", 1)
    frontier.durability.commit()
    view = FrontierView([bench.folder])
    try:
        assert [view.refusal(f"https://x/{number}") for number in range(5)] == [Reason.SCOPE] * 3 + [None, Reason.TRAP]
        assert view.refusal("https://x/4", crawl=1) is None, "another crawl's bound, and another crawl's reason"
        assert (view.refusal("https://x/4", crawl=2), view.refusal("https://x/0", crawl=1)) == ("trap", "scope")
    finally:
        view.close()


def test_only_an_end_that_tells_something_of_its_site_is_written_at_once(bench: Bench) -> None:
    bench.settings["delay_s"] = 0.0
    frontier = bench.open()
    allow(frontier, "https://a")
    for number, slow_down in enumerate((False, True, False)):
        frontier.queue.admit(1, [Found(f"https://a/{number}", 0)])
        (lease,) = frontier.leases.claim("me", 9)
        frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True, slow_down=slow_down)])
        assert (frontier._base.journal.unwritten_items == 0) == slow_down, number
        frontier.leases.finish([EndedLease(lease, End.PAGE)])
        bench.time += 100


def test_every_request_is_logged_with_its_key_its_delay_and_its_places(bench: Bench) -> None:
    bench.settings |= {"delay_s": 2.0, "places": 4, "lease_s": 90.0}
    frontier = bench.open()
    allow(frontier, "https://a", "https://b")
    allow(frontier, "https://c", crawl_delay_s=30.0)
    bench.time += 40
    frontier.queue.admit(1, [Found(f"https://{host}/1", 0) for host in "abc"])
    leases = {lease.key: lease for lease in frontier.leases.claim("me", 9)}
    bench.time += 1
    fetch(frontier, leases["a"], outcome="200")
    frontier.leases.finish([EndedLease(leases["b"], End.RELEASE)])
    bench.time += 100
    frontier.leases.claim("me", 0)
    frontier.durability.commit()
    events = list(read_events(bench.folder / "requests"))
    starts = [(event.key, event.delay_s, event.slots) for event in events if isinstance(event, RequestStart)]
    assert sorted(starts)[:3] == [("a", 2.0, 4), ("b", 2.0, 4), ("c", 30.0, 1)]
    ends = {event.item: event.status for event in events if isinstance(event, RequestEnd)}
    assert [ends[leases[key].item] for key in "abc"] == ["200", "unasked", "expired"]


def test_tries_of_what_has_ended_are_forgotten(bench: Bench) -> None:
    frontier = bench.open()
    frontier.queue.admit(1, [Found("https://a/1", 0)])

    def tried(table: str) -> int:
        frontier.durability.commit()
        return len(list(frontier._base.journal.rows(table)))

    (robots,) = frontier.leases.claim("me", 9)
    frontier.leases.cool([TransferEnd(robots, frontier.now(), ok=False)])
    frontier.leases.finish([EndedLease(robots, End.RETRY, 5.0)])
    assert tried("robots_tries") == 1
    bench.time += 11
    (robots,) = frontier.leases.claim("me", 9)
    fetch(frontier, robots, End.OTHER)
    allow(frontier, "https://a")
    assert tried("robots_tries") == 0
    bench.time += 11
    (lease,) = frontier.leases.claim("me", 9)
    frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=False)])
    frontier.leases.finish([EndedLease(lease, End.RETRY, 5.0)])
    assert tried("retries") == 1
    bench.time += 11
    (lease,) = frontier.leases.claim("me", 9)
    fetch(frontier, lease)
    assert tried("retries") == 0


def test_a_site_waits_its_delay_also_when_its_last_request_is_many_files_ago(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "SEGMENT_BYTES", 300)
    bench.settings["delay_s"] = 1000.0
    frontier = bench.open()
    hosts = [f"h{number}" for number in range(40)]
    allow(frontier, *(f"https://{host}" for host in hosts))
    frontier.queue.admit(1, [Found(f"https://{host}/{page}", 0) for host in hosts for page in range(2)])
    ends = {}
    for _ in hosts:
        (lease,) = frontier.leases.claim("me", 1)
        bench.time += 10
        fetch(frontier, lease)
        frontier.durability.commit()
        ends[lease.key] = bench.time
    assert len(list((bench.folder / "requests").glob("*.log"))) > 5
    bench.kill()
    frontier = bench.open()
    allow(frontier, *(f"https://{host}" for host in hosts))
    while len(ends) > 30:
        due = frontier.leases.next_due()
        assert due is not None
        bench.time = due
        for lease in frontier.leases.claim("me", 9):
            assert bench.time - ends.pop(lease.key) == pytest.approx(1000.0, abs=0.02)


def test_whoever_is_refused_holds_no_file_open(bench: Bench) -> None:
    bench.open()
    gc.collect()  # what others have left is closed before, not meanwhile
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(Busy):
            EmbeddedFrontier(bench.folder, PolitenessSection(**bench.settings))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# ── robots.txt ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_robots_txt_request_comes_from_the_page_that_waits_for_it(bench: Bench) -> None:
    frontier = bench.open()
    frontier.queue.admit(1, [Found("https://a.test/1", 3, 9)])
    (lease,) = frontier.leases.claim("me", 9)
    assert (lease.url, lease.purpose, lease.depth, lease.parent) == (
        "https://a.test/robots.txt", Purpose.ROBOTS, 3, 1,
    )  # fmt: skip
    assert lease.item < 0


def test_a_robots_txt_that_is_being_asked_for_holds_back_its_own_origin_alone(bench: Bench) -> None:
    bench.settings |= {"delay_s": 0.0, "places": 9}
    frontier = bench.open(("one", CrawlLimits()), ("two", CrawlLimits()))
    allow(frontier, "https://b.a.test")
    frontier.queue.admit(1, [Found("https://a.a.test/1", 0)])
    frontier.queue.admit(2, [Found("https://b.a.test/1", 0), Found("https://a.a.test/2", 0)])
    assert sorted(claimed(frontier)) == ["https://a.a.test/robots.txt", "https://b.a.test/1"]


def test_the_cookies_of_a_forgotten_crawl_are_gone(bench: Bench) -> None:
    frontier = bench.open(("one", CrawlLimits()), ("two", CrawlLimits()))
    for crawl in (1, 2):
        frontier.sites.keep_cookies(crawl, "a", b"jar")
    frontier.durability.commit()
    frontier.crawls.close_crawl(1)
    while not frontier.crawls.forget_crawls([1]):
        pass
    assert list(frontier._base.journal.keys("cookies")) == ["2 a"]


def test_a_page_that_was_found_stored_does_not_come_back_with_the_end_of_another_crawl(bench: Bench) -> None:
    crawls = ("one", CrawlLimits()), ("two", CrawlLimits())
    frontier = bench.open(*crawls)
    allow(frontier, "https://a")
    frontier.queue.admit(2, [Found("https://a/1", 0)])
    (lease,) = frontier.leases.claim("me", 9)
    frontier.durability.commit()
    bench.kill()
    frontier = bench.open(*crawls, recover={"done": [lease.item]})
    frontier.crawls.close_crawl(1)
    while not frontier.crawls.forget_crawls([1]):
        pass
    bench.kill()
    assert bench.open(crawls[1]).status.stats().queued == 0


def test_a_journal_that_does_not_tell_the_last_crawl_has_the_highest_number(bench: Bench) -> None:
    """An older Weft did not write it down."""
    bench.open(("one", CrawlLimits()), ("two", CrawlLimits()))
    bench.close()
    with closing(sqlite3.connect(bench.folder / "frontier.db")) as journal:
        assert journal.execute("DELETE FROM meta WHERE name = 'last_crawl'").rowcount == 1
        journal.commit()
    assert bench.open(("one", CrawlLimits())).crawls.open_crawl("three", CrawlLimits()) == 3


def test_a_robots_txt_that_got_no_place_is_asked_for_by_another_crawl_while_its_own_is_paused(bench: Bench) -> None:
    bench.settings |= {"key_scope": "ip", "delay_s": 1.0}
    frontier = bench.open(("one", CrawlLimits()), ("two", CrawlLimits()))
    allow(frontier, "https://a")
    frontier.queue.admit(2, [Found("https://a/1", 0)])
    (page,) = frontier.leases.claim("me", 9)
    assert frontier.leases.claim_slots([SlotRequest(page, "192.0.2.1")]) == [True]
    frontier.queue.admit(1, [Found("https://x/1", 0)])
    (robots,) = frontier.leases.claim("me", 9)
    frontier.queue.admit(2, [Found("https://x/2", 0)])
    frontier.crawls.pause(1)
    assert frontier.leases.claim_slots([SlotRequest(robots, "192.0.2.1")]) == [False]
    frontier.leases.cool([TransferEnd(page, frontier.now(), ok=True)])
    frontier.leases.finish([EndedLease(page, End.PAGE)])
    bench.time += 5.0
    (again,) = frontier.leases.claim("me", 9)
    assert (again.url, again.crawl) == ("https://x/robots.txt", 2)


def test_a_crawl_delay_that_an_address_was_asked_for_is_known_after_a_kill(bench: Bench) -> None:
    bench.settings |= {"key_scope": "ip", "delay_s": 1.0}
    frontier = bench.open()
    allow(frontier, "https://a")
    frontier.queue.admit(1, [Found("https://a/1", 0), Found("https://a/2", 0), Found("https://a/3", 0)])
    frontier.durability.commit()
    (lease,) = frontier.leases.claim("me", 9)
    frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1", 50.0)])
    bench.kill()
    frontier = bench.open()
    bench.time += 60.0
    for wait_s, granted in ((0.0, True), (40.0, False), (11.0, True)):
        bench.time += wait_s
        leases = frontier.leases.claim("me", 9)
        assert [frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1")])[0] for lease in leases] == [
            granted
        ] * len(leases)
        assert leases or not granted
        for lease in leases if granted else ():
            fetch(frontier, lease)


def test_stats_of_one_process_tell_of_no_other(bench: Bench) -> None:
    stats = bench.open().status.stats()
    assert (stats.sent, stats.received, stats.to_parse) == (0, 0, 0)


def test_tries_of_a_page_that_was_stored_before_a_kill_are_forgotten_and_no_others(bench: Bench) -> None:
    frontier = bench.open()
    allow(frontier, "https://a", "https://b")
    frontier.queue.admit(1, [Found("https://a/1", 0), Found("https://b/1", 0)])
    leases = frontier.leases.claim("me", 9)
    for lease in leases:
        frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=False)])
        frontier.leases.finish([EndedLease(lease, End.RETRY, 5.0)])
    bench.time += 11
    (again,) = frontier.leases.claim("me", 1)
    fetch(frontier, again, batch=1)
    frontier.durability.commit()
    bench.kill()
    frontier = bench.open(recover={"done": [again.item]})
    (left,) = {lease.item for lease in leases} - {again.item}
    assert [row[0] for row in frontier._base.journal.rows("retries")] == [left]


# ── open breakers ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_sites_at_rest_are_due_by_a_clock_that_has_just_begun(bench: Bench) -> None:
    bench.time = 0.0
    frontier = bench.open(max_in_memory=0)
    frontier.queue.admit(1, [Found("https://a.test/", 0)])
    assert frontier.leases.next_due() == 0.0
    assert [lease.url for lease in frontier.leases.claim("me", 9)] == ["https://a.test/robots.txt"]


def test_a_site_that_asks_for_a_delay_has_no_open_breaker_by_a_clock_that_has_just_begun(bench: Bench) -> None:
    bench.time = 0.0
    frontier = bench.open()
    assert frontier.sites.open_breakers() == []
    frontier.sites.robots_known("https://a.test", RobotsRecord("ok", b"", WALL * 2), 5.0)
    assert frontier.sites.open_breakers() == []


@pytest.mark.parametrize("trust", ["", "pinned"])
def test_sites_with_an_open_breaker_are_told_until_when_also_after_a_restart(bench: Bench, trust: str) -> None:
    bench.settings |= {"breaker_failures": 5, "breaker_reset_s": 300.0}
    frontier = bench.open()
    crawl = frontier.crawls.open_crawl("test", CrawlLimits())
    frontier.crawls.follow(crawl, 1, trust)
    allow(frontier, *(f"{trust + ' ' if trust else ''}https://a.test",))
    frontier.queue.admit(crawl, [Found(f"https://a.test/{n}", 0) for n in range(9)])

    def ask(ok: bool) -> None:
        (lease,) = frontier.leases.claim("me", 9)
        fetch(frontier, lease, End.PAGE if ok else End.OTHER, ok=ok)
        bench.time += 10.0

    for _ in range(4):
        ask(ok=False)
    assert frontier.sites.open_breakers() == []
    ask(ok=False)
    until = WALL + bench.time - 10 + 300
    assert [(site, round(at)) for site, at in frontier.sites.open_breakers()] == [("a.test", round(until))]
    assert claimed(frontier) == []
    frontier.durability.commit()
    bench.kill()
    frontier = bench.open()
    assert [(site, round(at)) for site, at in frontier.sites.open_breakers()] == [("a.test", round(until))]
    frontier.crawls.follow(crawl, 1, trust)
    bench.time += 290.0
    assert len(frontier.leases.claim("me", 9)) == 1, "one probe"
    assert claimed(frontier) == []
    assert frontier.sites.open_breakers() == []


def test_what_comes_due_during_a_claim_is_asked_for_later(bench: Bench) -> None:
    """A process may be held up in the middle of a claim: a robots.txt whose wait ends then is not forgotten."""
    frontier = bench.open(("one", CrawlLimits()))
    frontier.queue.admit(1, [Found("https://a/1", 0, 0)])
    (robots,) = frontier.leases.claim("me", 1)
    frontier.leases.cool([TransferEnd(robots, bench.time, ok=False)])
    frontier.leases.finish([EndedLease(robots, End.RETRY, 30.0)])
    before, after = bench.time + 29.999, bench.time + 30.001
    bench.time = before
    bench.times = iter([before])
    bench.time = after  # it is later at every look but the first
    assert frontier.leases.claim("me", 1) == []
    assert frontier.leases.next_due() is not None
    bench.time += 1.0
    assert [lease.purpose for lease in frontier.leases.claim("me", 1)] == [Purpose.ROBOTS]

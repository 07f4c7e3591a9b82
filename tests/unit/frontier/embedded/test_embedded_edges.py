"""The embedded frontier's rarer ways: pages that a store had and the journal lost, a disk that fills up while it
writes, memories that are full, and files from which some of it can be read."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from request_lines import with_sums

from weft.config import PolitenessSection, ScopeSection
from weft.engine.admission import rules as admission
from weft.engine.admission.rules import AdmissionRules
from weft.errors import DiskFull
from weft.frontier.contract import CrawlLimits, End, EndedLease, PageLinks, RobotsRecord, SlotRequest, TransferEnd
from weft.frontier.durability import checkpoint
from weft.frontier.durability.journal import FROM_STORE, FrontierJournal, with_checksum
from weft.frontier.durability.renew import renew_frontier
from weft.frontier.embedded import pods, rejected, restoring, robots_files
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.embedded.robots_files import RobotsFiles
from weft.frontier.requests import RequestLog, boot_id, last_requests, read_events
from weft.frontier.scheduling import spill
from weft.frontier.view import FrontierView
from weft.records import Found, Purpose, Reason

WALL = 1_700_000_000.0


class Bench:
    """A frontier whose clock the test moves, opened again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.time = 1000.0
        self.frontier: EmbeddedFrontier | None = None

    def open(self, limits: CrawlLimits | None = None, *, from_store: bool = False, **more: Any) -> EmbeddedFrontier:
        self.close()
        if from_store:
            journal = FrontierJournal(self.folder / "frontier.db")
            journal.put_meta(FROM_STORE, True)
            journal.close()
        section = PolitenessSection(delay_s=0.0, places=9)
        frontier = EmbeddedFrontier(
            self.folder, section, clock=lambda: self.time, wall=lambda: WALL + self.time, **more
        )
        self.frontier = frontier
        assert frontier.crawls.open_crawl("test", limits or CrawlLimits()) == 1
        frontier.recovery.recover()
        return frontier

    def close(self) -> None:
        if self.frontier is not None:
            self.frontier.close()
        self.frontier = None


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "f")
    yield made
    made.close()


# ── pages that the journal lost ────────────────────────────────────────────────────────────────────────────────────


def test_pages_that_the_store_had_are_counted_once_and_never_fetched_again(bench: Bench) -> None:
    frontier = bench.open(from_store=True)
    assert frontier.recovery.is_new and frontier.recovery.may_lack_links
    rows = [(Found("http://a/1", 1), 1), (Found("http://a/2", 1), 2)]
    frontier.recovery.restore_stored(1, rows)
    assert frontier.status.stats().admitted == 2
    assert frontier.queue.admit(1, [Found("http://a/1", 1), Found("http://a/3", 1)]).new == 1
    frontier.recovery.record_links_complete()
    frontier = bench.open()
    assert not (frontier.recovery.is_new or frontier.recovery.may_lack_links)
    assert frontier.queue.admit(1, [one for one, _ in rows]).new == 0
    assert frontier.status.stats().admitted == 3


def test_that_the_links_are_known_outlives_a_kill(bench: Bench, tmp_path: Path) -> None:
    frontier = bench.open(from_store=True)
    frontier.recovery.restore_stored(1, [(Found("http://a/1", 1), 1)])
    frontier.recovery.record_links_complete()
    shutil.copytree(bench.folder, tmp_path / "killed")
    bench.close()
    again = Bench(tmp_path / "killed")
    frontier = again.open()
    assert not frontier.recovery.is_new
    assert frontier.queue.admit(1, [Found("http://a/1", 1)]).new == 0
    again.close()


def test_a_long_queue_comes_back_from_a_checkpoint_piece_by_piece(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "PIECE_BYTES", 100)
    frontier = bench.open(checkpoint_every=-1_000_000)
    urls = [f"http://a/{number:03}" for number in range(60)]
    frontier.queue.admit(1, [Found(url, 1) for url in urls])
    frontier = bench.open(checkpoint_every=-1_000_000)
    frontier.sites.robots_known("http://a", RobotsRecord("ok", b"", WALL + 9e9), None)
    claimed = []
    while leases := frontier.leases.claim("me", 9):
        claimed += [lease.url for lease in leases]
        frontier.leases.finish([EndedLease(lease, End.OTHER) for lease in leases])
    assert claimed == urls
    assert (frontier.status.stats().queued, list(frontier.queue.items(1)), frontier.leases.next_due()) == (0, [], None)
    frontier.queue.admit(1, [Found("http://a/deeper", 2)])
    assert [lease.url for lease in frontier.leases.claim("me", 9)] == ["http://a/deeper"], "nothing is left before it"


@pytest.mark.parametrize("checkpoint_every", [-1_000_000, 1_000_000])
def test_what_the_journal_or_a_checkpoint_still_knows_is_not_counted_twice(bench: Bench, checkpoint_every: int) -> None:
    frontier = bench.open(checkpoint_every=checkpoint_every)
    frontier.queue.admit(1, [Found("http://a/1", 1)])
    frontier = bench.open(from_store=True)
    frontier.recovery.restore_stored(
        1, [(Found("http://a/1", 1), 1), (Found("http://a/2", 1), 2), (Found("http://a/3", 1), 3)]
    )
    assert frontier.status.stats().admitted == 3


def test_a_redirects_target_that_was_stored_is_known_in_its_chain_too(bench: Bench) -> None:
    frontier = bench.open(from_store=True)
    frontier.recovery.restore_stored(1, [(Found("http://a/1", 1, hops=2), 1)])
    chain = Found("http://a/1", 1, hops=2, about="http://a/0 http://a/1")
    assert frontier.queue.admit(1, [chain]).new == 0
    assert frontier.queue.admit(1, [Found("http://a/1", 1, hops=3, about="http://a/1")]).new == 1, "another request"


def test_a_stored_page_that_is_found_nearer_is_expanded_again(bench: Bench) -> None:
    frontier = bench.open(CrawlLimits(max_depth=9), from_store=True)
    frontier.recovery.restore_stored(1, [(Found("http://a/1", 4), 7)])
    admitted = frontier.queue.admit(1, [Found("http://a/1", 2)])
    assert (admitted.new, admitted.expand) == (0, ((7, "http://a/1", 2),))
    assert frontier.queue.admit(1, [Found("http://a/1", 2)]).expand == ()


# ── crawls that are not opened, counts that a checkpoint has ───────────────────────────────────────────────────────


def test_what_is_queued_of_a_crawl_that_is_not_opened_stays_in_the_journal(bench: Bench) -> None:
    frontier = bench.open()
    other = frontier.crawls.open_crawl("other", CrawlLimits())
    frontier.queue.admit(other, [Found("http://a/other", 1)])
    frontier.queue.admit(1, [Found("http://a/1", 1)])
    frontier = bench.open()
    assert frontier.status.stats().queued == 1
    frontier = bench.open()
    bench.close()
    section = PolitenessSection(delay_s=0.0, places=9)
    both = EmbeddedFrontier(bench.folder, section)
    assert [both.crawls.open_crawl(name, CrawlLimits()) for name in ("test", "other")] == [1, other]
    assert both.recovery.recover() == 2
    both.close()


@pytest.mark.parametrize("step", ["opened", "flushed"])
def test_a_checkpoint_that_finds_no_room_leaves_the_old_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    frontier = bench.open(checkpoint_every=-1_000_000)
    frontier.queue.admit(1, [Found("http://a/1", 1)])
    frontier.durability.commit()
    path = bench.folder / "checkpoint"
    before = path.read_bytes()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        if step == "opened":
            patch.setattr(checkpoint, "_open_private", full)
        else:
            patch.setattr(checkpoint.os, "fsync", full)  # type: ignore[attr-defined]
        frontier.queue.admit(1, [Found("http://a/2", 1)])
        frontier.durability.commit()
    assert path.read_bytes() == before
    assert not path.with_suffix(".tmp").exists()
    frontier = bench.open()
    assert frontier.status.stats().queued == 2


# ── the journal ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_that_fails_leaves_nothing_and_can_be_made_again(tmp_path: Path) -> None:
    journal = FrontierJournal(tmp_path / "frontier.db")
    journal.put_meta("kept", 1)
    journal.put("retries", 7, 1, object(), 1)  # what no database takes
    with pytest.raises((sqlite3.Error, TypeError)):
        journal.commit()
    assert "kept" not in dict(journal.rows("meta")), "all or nothing"
    journal.put("retries", 7, 1, 5.0, 1)
    journal.commit()
    assert (journal.meta("kept"), journal.row("retries", 7)) == (1, (7, 1, 5.0, 1))
    journal.close()


# ── robots.txt files ───────────────────────────────────────────────────────────────────────────────────────────────


def test_robots_txt_files_come_from_the_journal_where_memory_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FrontierJournal(tmp_path / "frontier.db")
    files = RobotsFiles(journal, lambda: 100.0, lambda: 0.0)
    records = {f"http://h{number}": RobotsRecord("ok", b"%d" % number, 100.0 + number) for number in range(6)}
    for origin, record in records.items():
        files.save_record(origin, record)
    journal.commit()
    monkeypatch.setattr(robots_files, "_KEPT_IN_MEMORY", 2)
    again = RobotsFiles(journal, lambda: 100.0, lambda: 0.0)
    for _ in range(2):
        for origin, record in records.items():
            assert again.in_memory(origin) is None or again.in_memory(origin) == record
            assert again.get(origin) == record
            assert again.is_in_force(origin) == (record.expires > 100.0)
            assert (again.in_memory(origin) == record) == (record.expires > 100.0)
            assert len(again._records) <= 3
    assert again.get("http://other") is None
    assert not again.is_in_force("http://other")
    journal.close()


@pytest.mark.parametrize(
    ("status", "asked"), [("unreachable", True), ("address", True), ("ok", False), ("allow", False)]
)
def test_a_robots_txt_that_could_not_be_had_is_asked_for_again_with_a_new_visit(
    bench: Bench, status: Any, asked: bool
) -> None:
    frontier = bench.open()
    frontier.sites.robots_known("http://a", RobotsRecord(status, b"", WALL + 9e9), None)
    frontier.durability.commit()
    frontier = bench.open()
    frontier.revisits.readmit(1, Found("http://a/1", 1))
    assert [lease.url for lease in frontier.leases.claim("me", 9)] == ["http://a/robots.txt" if asked else "http://a/1"]


# ── memories that are full ─────────────────────────────────────────────────────────────────────────────────────────


def test_origins_are_judged_alike_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_MOST_ORIGINS", 3)
    rules = AdmissionRules(ScopeSection(scope="host"), ["http://h1.test/"], this_year=2026)
    for _ in range(2):
        assert [rules.in_scope(f"http://h{number}.test/") for number in range(9)] == [n == 1 for n in range(9)]
        assert len(rules._origins) <= 4


def test_pods_are_told_alike_however_many_origins_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "_MOST_CACHED_ORIGINS", 3)
    frontier = EmbeddedFrontier(tmp_path, PolitenessSection(delay_s=0.0, places=1), pod=0, pods=2)
    first = [frontier.pods.pod_of(f"http://h{number}.test/") for number in range(20)]
    assert set(first) == {0, 1}
    assert [frontier.pods.pod_of(f"http://h{number}.test/") for number in range(20)] == first
    assert len(frontier.pods.by_origin) <= 4
    frontier.close()


# ── a damaged file ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_can_be_read_of_a_damaged_frontier_is_taken_over(tmp_path: Path) -> None:
    journal = FrontierJournal(tmp_path / "frontier.db")
    site = msgspec.msgpack.encode({"crawl_delay": 9.0})
    journal.put("sites", "a", site)
    journal.put("refusals", ("scope", "http://x/", 3, 2))
    record = msgspec.msgpack.encode(RobotsRecord("ok", b"", 1.0))
    journal.record_robots("http://a", 5.0, record)
    journal.record_robots("http://a", 6.0, record)
    journal.put_meta("word", 1)
    journal.add_admitted_lines(1, b"1 0 0 0 0 1 p http://a/1\n", 1)
    journal.close()
    db = sqlite3.connect(tmp_path / "frontier.db", isolation_level=None)
    broken = with_checksum(site)
    db.execute("INSERT INTO sites VALUES ('broken', ?)", (broken[:-1] + bytes([broken[-1] ^ 1]),))
    db.execute("INSERT INTO sites VALUES ('cut', ?)", (site[:-1],))
    db.execute("INSERT INTO refusals VALUES ('scope', ?, 1, 1)", (b"no text",))
    db.execute("INSERT INTO refusals VALUES (?, 'http://y/', 1, 1)", (b"no text",))
    db.close()
    assert renew_frontier(tmp_path, [2])
    db = sqlite3.connect(tmp_path / "frontier.db")
    assert db.execute("SELECT key FROM sites").fetchall() == [("a",)]
    assert db.execute("SELECT * FROM refusals").fetchall() == [("scope", "http://x/", 3, 2)]
    assert db.execute("SELECT origin, wall FROM robots_history").fetchall() == [("http://a", 5.0), ("http://a", 6.0)]
    assert db.execute("SELECT count(*) FROM journal").fetchone() == (0,)
    db.close()
    view = FrontierView([tmp_path])
    assert [one.wall for one in view.robots_history("http://a")] == [5.0, 6.0]
    assert view.refusal("http://x/") == "scope"
    view.close()
    again = FrontierJournal(tmp_path / "frontier.db")
    assert again.meta("sent:2") > 10**15, "beyond all numbers that were used"
    assert (again.meta("word"), again.meta(FROM_STORE)) == (None, True)
    again.close()


def test_an_empty_frontier_is_a_new_one(tmp_path: Path) -> None:
    FrontierJournal(tmp_path / "frontier.db").close()
    assert renew_frontier(tmp_path, [])


def test_every_opening_is_another_epoch_also_after_a_kill(bench: Bench, tmp_path: Path) -> None:
    first = bench.open().leases.epoch
    shutil.copytree(bench.folder, tmp_path / "killed")
    again = Bench(tmp_path / "killed")
    assert again.open().leases.epoch == first + 1
    again.close()


@pytest.mark.parametrize("column", ["admitted", "done"])
def test_damage_in_the_first_line_of_a_journal_makes_it_anew(tmp_path: Path, column: str) -> None:
    journal = FrontierJournal(tmp_path / "frontier.db")
    journal.add_admitted_lines(1, b"1 0 0 0 0 1 p http://a/1\n", 1)
    journal.done[1].append(1)
    journal.close()
    db = sqlite3.connect(tmp_path / "frontier.db", isolation_level=None)
    ((seq, blob),) = db.execute(f"SELECT seq, {column} FROM journal").fetchall()
    assert seq == 1
    db.execute(f"UPDATE journal SET {column} = ?", (blob[:-1] + bytes([blob[-1] ^ 1]),))
    db.close()
    assert renew_frontier(tmp_path, [])


# ── the request log ────────────────────────────────────────────────────────────────────────────────────────────────


def lines(folder: Path, *events: str) -> Path:
    (folder / "requests-00000.log").write_bytes(with_sums("\n".join(events)))
    return folder


def test_what_an_earlier_boot_asked_is_forgotten_with_its_clock(tmp_path: Path) -> None:
    start, end = "S\t{0}\t{1}.0\t1.0\t{2}\t1\t1\thttp://{2}/", "E\t{0}\t{1}.0\t200"
    folder = lines(
        tmp_path, start.format(8, 1, "early"), end.format(8, 2), "B\tanother boot\t10.0\t1.0",
        start.format(1, 50, "a"), end.format(1, 60), start.format(3, 5000, "c"), end.format(3, 6000),
        f"B\t{boot_id()}\t5.0\t100.0", start.format(2, 6, "b"), end.format(2, 7),
    )  # fmt: skip
    recent = last_requests(folder, 0.0, 100.0)
    assert (recent.ended, recent.unreadable, recent.unsure_at) == ({"b": 7.0}, 0, None)


@pytest.mark.parametrize(
    ("at", "is_an_end"), [("59.9995", True), ("59.9", False), ("100.0005", True), ("100.1", False)]
)
def test_an_end_may_be_off_by_what_is_rounded_and_no_more(tmp_path: Path, at: str, is_an_end: bool) -> None:
    folder = lines(tmp_path, f"B\t{boot_id()}\t5.0\t1.0", "S\t1\t60.0\t1.0\ta\t1\t1\thttp://a/", f"E\t1\t{at}\t200")
    recent = last_requests(folder, 0.0, 100.0)
    told = (recent.ended["a"], recent.unreadable, recent.unsure_at)
    assert told == ((float(at), 0, None) if is_an_end else (None, 1, 100.0))


def test_a_site_with_several_requests_has_ended_with_the_last_of_them(tmp_path: Path) -> None:
    log = RequestLog(tmp_path, 1.0)
    for item in (1, 2):
        log.log_start(item, 10.0 + item, "a", 1.0, 2, "http://a/")
    log.log_end(1, 20.0, "200")
    log.flush()
    assert last_requests(tmp_path, 0.0, 100.0).ended == {"a": None}
    log.log_end(2, 30.0, "200")
    log.log_end(9, 99.0, "200")
    log.close()
    assert last_requests(tmp_path, 0.0, 100.0).ended == {"a": 30.0}


def test_a_robots_txt_request_leaves_its_place_to_whoever_knows_it(bench: Bench) -> None:
    frontier = bench.open()
    frontier.queue.admit(
        1, [Found("http://a/1", 1), Found("http://a/map.xml", 0, purpose=Purpose.SITEMAP, about="http://a")]
    )
    (robots,) = frontier.leases.claim("me", 9)
    frontier.leases.cool([TransferEnd(robots, bench.time, ok=True)])
    frontier.leases.finish([EndedLease(robots, End.OTHER)])
    assert frontier.leases.claim("me", 9) == []
    frontier.sites.robots_known("http://a", RobotsRecord("ok", b"", WALL + 9e9), None)
    assert len(frontier.leases.claim("me", 9)) == 2


def test_a_full_disk_is_told_by_the_next_commit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    frontier = bench.open()
    frontier.queue.admit(1, [Found("http://a/1", 1)])

    def full(self: RequestLog) -> None:
        raise DiskFull(bench.folder)

    with monkeypatch.context() as patch:
        patch.setattr(RequestLog, "flush", full)
        with pytest.raises(DiskFull):
            frontier.durability.commit()
    frontier.durability.commit()
    assert bench.open().status.stats().queued == 1


def test_a_request_that_began_files_ago_and_ended_now_is_waited_for(bench: Bench) -> None:
    """It may take ten minutes; meanwhile others fill a file."""
    bench.open()
    bench.close()
    folder = bench.folder / "requests"
    (folder / "requests-00000.log").write_bytes(
        with_sums(f"B\t{boot_id()}\t5.0\t1.0\nS\t1\t500.0\t1.0\tslow.test\t100\t1\thttp://slow.test/1\n")
    )
    (folder / "requests-00001.log").write_bytes(
        with_sums("S\t2\t501.0\t1.0\tb.test\t100\t1\thttp://b.test/\nE\t2\t502.0\t200\nE\t1\t990.0\t200\n")
    )
    section = PolitenessSection(delay_s=100.0, places=1)
    frontier = EmbeddedFrontier(bench.folder, section, clock=lambda: 1000.0, wall=lambda: WALL + 1000.0)
    frontier.crawls.open_crawl("test", CrawlLimits())
    frontier.recovery.recover()
    frontier.queue.admit(1, [Found("http://slow.test/2", 1)])
    assert frontier.leases.next_due() == pytest.approx(1090.0, abs=0.1)
    frontier.close()


def test_what_was_under_way_in_an_earlier_process_hides_no_later_end(tmp_path: Path) -> None:
    for at in (10.0, 20.0):
        log = RequestLog(tmp_path, at)
        assert (tmp_path / "requests-00000.log").read_bytes().splitlines()[-1].startswith(b"B\t"), "at once"
        log.log_start(int(at), at + 1, "a", 1.0, 1, "http://a/")
        if at == 20.0:
            log.log_end(int(at), at + 2, "200")
        log.close()
    assert last_requests(tmp_path, 0.0, 100.0).ended == {"a": 22.0}


@pytest.mark.parametrize("torn", [b"S", b"B\tx", b"E\t1\t5"])
def test_a_log_of_half_a_line_is_ended_and_goes_on(tmp_path: Path, torn: bytes, caplog: Any) -> None:
    path = tmp_path / "requests-00000.log"
    path.write_bytes(torn)
    log = RequestLog(tmp_path, 1.0)
    log.log_start(1, 2.0, "a", 1.0, 1, "http://a/1")
    log.close()
    assert path.read_bytes().startswith(torn + b"\0\nB\t")
    assert [type(event).__name__ for event in read_events(tmp_path)] == ["LogOpening", "RequestStart"]
    assert last_requests(tmp_path, 0.0, 100.0).unreadable == 1


# ── clocks and checkpoints ─────────────────────────────────────────────────────────────────────────────────────────


def polite(folder: Path, time: float, **settings: Any) -> EmbeddedFrontier:
    section = PolitenessSection(**({"delay_s": 10.0, "places": 1} | settings))
    frontier = EmbeddedFrontier(folder, section, clock=lambda: time, wall=lambda: WALL + time)
    frontier.crawls.open_crawl("test", CrawlLimits())
    frontier.recovery.recover()
    return frontier


def test_after_another_boot_a_site_waits_its_own_longer_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frontier = polite(tmp_path, 1000.0)
    frontier.sites.robots_known("http://slow", RobotsRecord("ok", b"", WALL + 9e9), 60.0)
    frontier.sites.robots_known("http://quick", RobotsRecord("ok", b"", WALL + 9e9), None)
    frontier.close()
    monkeypatch.setattr(restoring, "boot_id", lambda: "another boot")
    for host, due in (("slow", 5060.0), ("quick", 5010.0)):
        frontier = polite(tmp_path, 5000.0)
        frontier.queue.admit(1, [Found(f"http://{host}/{due}", 1)])
        assert frontier.leases.next_due() == pytest.approx(due, abs=0.01)
        journal = frontier._base.journal
        frontier.durability.commit()
        journal.put_meta("boot", "yet another")
        frontier.close()


def test_what_a_site_asked_for_holds_for_its_address_once_that_is_known(tmp_path: Path) -> None:
    time = [1000.0]
    section = PolitenessSection(delay_s=0.0, places=3, key_scope="ip")
    frontier = EmbeddedFrontier(tmp_path, section, clock=lambda: time[0], wall=lambda: WALL + time[0])
    frontier.crawls.open_crawl("test", CrawlLimits())
    frontier.recovery.recover()
    frontier.sites.robots_known("http://a", RobotsRecord("ok", b"", WALL + 9e9), 60.0)
    frontier.sites.robots_known("http://b", RobotsRecord("ok", b"", WALL + 9e9), None)
    frontier.queue.admit(1, [Found("http://a/1", 1)])
    time[0] += 61.0
    (lease,) = frontier.leases.claim("me", 9)
    assert frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1", 0.0)]) == [True]
    frontier.queue.admit(1, [Found("http://b/1", 1)])
    (other,) = frontier.leases.claim("me", 9)
    assert frontier.leases.claim_slots([SlotRequest(other, "192.0.2.1", 0.0)]) == [False], "one at a time, and slowly"
    frontier.close()


def test_what_has_ended_counts_for_a_checkpoint_like_what_was_admitted(bench: Bench) -> None:
    frontier = bench.open(checkpoint_every=10)
    frontier.sites.robots_known("http://a", RobotsRecord("ok", b"", WALL + 9e9), None)
    frontier.queue.admit(1, [Found(f"http://a/{number}", 1) for number in range(6)])
    frontier.durability.commit()
    path = bench.folder / "checkpoint"
    assert not path.exists()
    for lease in frontier.leases.claim("me", 9):
        fetched = TransferEnd(lease, bench.time, ok=True)
        frontier.leases.cool([fetched])
        frontier.leases.finish([EndedLease(lease, End.PAGE)])
    frontier.durability.commit()
    assert path.exists(), "six and six are more than ten"
    assert path.read_bytes()[6:7] == b"\x07", "the layout that checkpoints on disk have"


def test_the_longest_delay_that_a_site_asked_for_is_known_to_the_next_process_however_short(tmp_path: Path) -> None:
    """As long as that the request log is read back."""
    frontier = polite(tmp_path, 1000.0, delay_s=0.0)
    assert frontier._base.journal.meta("longest_delay") is None
    frontier.sites.robots_known("http://a", RobotsRecord("ok", b"", WALL + 9e9), 0.5)
    frontier.sites.robots_known("http://b", RobotsRecord("ok", b"", WALL + 9e9), 0.25)
    assert frontier._base.journal.meta("longest_delay") == 0.5
    frontier.close()
    frontier = polite(tmp_path, 1000.0, delay_s=0.75)
    frontier.durability.commit()
    assert frontier._base.journal.meta("longest_delay") == 0.75
    frontier.crawls.change_crawl(1, CrawlLimits(), PolitenessSection(delay_s=30.0, places=1), 1.0)
    frontier.durability.commit()
    assert frontier._base.journal.meta("longest_delay") == 30.0, "an edit may ask for more, too"
    frontier.close()


@pytest.mark.parametrize("is_told", [True, False], ids=["closed", "not known to its owner"])
def test_nothing_is_left_in_the_journal_of_a_crawl_that_is_forgotten(bench: Bench, is_told: bool) -> None:
    frontier = bench.open(CrawlLimits(max_sitemaps=1))
    other = frontier.crawls.open_crawl("other", CrawlLimits(max_sitemaps=1))
    for crawl in (1, other):
        frontier.queue.admit(crawl, [
            Found(f"http://a/{crawl}-{number}.xml", 0, purpose=Purpose.SITEMAP, about="http://a") for number in range(3)
        ])  # fmt: skip
        frontier.rejected.refused(crawl, Reason.SCOPE, "http://b/", 0)
        frontier.notes.scope_extended(crawl, "http://c/")
    frontier.durability.commit()
    frontier.crawls.close_crawl(other)
    if is_told:
        frontier.crawls.forget_closed_crawl(other)
    assert not frontier._base.journal.forget_crawls([other], 1)
    assert len(list(frontier._base.journal.rows("crawls"))) == 2, (
        "a kill now leaves a crawl that is forgotten, not rows of none"
    )
    while not frontier.crawls.forget_crawls([other]):
        pass
    assert len(list(frontier._base.journal.rows("crawls"))) == 1
    assert (len(frontier.rejected.left_sitemaps(1)), frontier.rejected.left_sitemaps(other)) == (2, [])
    assert (frontier.notes.scope_extensions(1), frontier.notes.scope_extensions(other)) == (["http://c/"], [])
    assert {row[1] for row in frontier._base.journal.rows("left_sitemaps")} == {1}
    assert {site for site, *_ in frontier._base.journal.rows("sitemaps")} == {"1 a"}


def test_cookies_that_this_process_has_kept_are_not_those_of_an_earlier_one(bench: Bench) -> None:
    frontier = bench.open()
    version, _ = [frontier.sites.keep_cookies(1, key, b"old " + key.encode()) for key in ("a", "b")]
    frontier = bench.open()
    for host in ("a", "b"):
        frontier.sites.robots_known(f"http://{host}", RobotsRecord("ok", b"", WALL + 9e9), None)
    frontier.queue.admit(1, [Found("http://a/1", 1), Found("http://b/1", 1)])
    leases = {lease.key: lease for lease in frontier.leases.claim("me", 9)}
    frontier.sites.keep_cookies(1, "a", b"new")
    assert [frontier.sites.cookies_of(leases[key]) for key in ("a", "b", "b")] == [None, (version, b"old b"), None]


def test_sitemaps_without_room_are_remembered_up_to_a_bound_and_pages_are_not_among_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejected, "REMEMBERED_REFUSALS", 4)
    frontier = bench.open(CrawlLimits(max_sitemaps=1, max_pages_per_domain=1))
    frontier.queue.admit(1, [Found(f"http://a/{number}", 1) for number in range(1022)])
    maps = [Found(f"http://a/{n}.xml", 0, purpose=Purpose.SITEMAP, about="http://a") for n in range(6)]
    assert frontier.queue.admit(1, maps).new == 1
    assert [one.url for one in frontier.rejected.left_sitemaps(1)] == []
    frontier.durability.commit()
    assert [one.url for one in frontier.rejected.left_sitemaps(1)] == ["http://a/1.xml", "http://a/2.xml"], (
        "two pages, two maps"
    )


@pytest.mark.parametrize("limits", [CrawlLimits(), CrawlLimits(max_depth=9), CrawlLimits(max_pages_per_domain=1)])
def test_links_that_are_known_are_counted_whatever_limits_a_crawl_has(bench: Bench, limits: CrawlLimits) -> None:
    frontier = bench.open(limits)
    links = [PageLinks("http://a", [f"http://a/{n}" for n in range(start, start + 3)], 1, 7) for start in (0, 1)]
    both = frontier.queue.admit_links(1, links)
    again = frontier.queue.admit_links(1, links)
    assert [(one.new, one.duplicates) for one in (both, again)] == [(4, 2), (0, 6)]


@pytest.mark.parametrize("offsite", [0, 2])
def test_links_keep_how_far_outside_the_scope_they_are(bench: Bench, offsite: int) -> None:
    frontier = bench.open()
    frontier.sites.robots_known("http://a", RobotsRecord("ok", b"", WALL + 9e9), None)
    frontier.queue.admit(1, [Found("http://a/0", 0)])
    frontier.queue.admit_links(1, [PageLinks("http://a", ["http://a/1", "http://a/2"], 1, 7, offsite)])
    assert [(lease.url, lease.parent, lease.offsite) for lease in frontier.leases.claim("me", 9)] == [
        ("http://a/0", 0, 0), ("http://a/1", 7, offsite), ("http://a/2", 7, offsite),
    ]  # fmt: skip


def test_the_request_log_is_read_as_far_back_as_the_longest_delay_of_any_site(tmp_path: Path) -> None:
    """A site that asked for an hour was last asked files ago."""
    frontier = polite(tmp_path, 1000.0, delay_s=1.0)
    frontier.sites.robots_known("http://slow.test", RobotsRecord("ok", b"", WALL + 9e9), 3600.0)
    frontier.close()
    folder = tmp_path / "requests"
    (folder / "requests-00000.log").write_bytes(
        with_sums(
            f"B\t{boot_id()}\t5.0\t1.0\nS\t1\t1000.0\t1.0\tslow.test\t3600\t1\thttp://slow.test/1\nE\t1\t1001.0\t200\n"
            f"S\t3\t1002.0\t1.0\tc.test\t1\t1\thttp://c.test/\nE\t3\t1003.0\t200\n"  # no shorter than it was
        )
    )
    (folder / "requests-00001.log").write_bytes(
        with_sums("S\t2\t1500.0\t1.0\tb.test\t1\t1\thttp://b.test/\nE\t2\t1501.0\t200\n")
    )
    frontier = polite(tmp_path, 3000.0, delay_s=1.0)
    frontier.queue.admit(1, [Found("http://slow.test/2", 1)])
    assert frontier.leases.next_due() == pytest.approx(4601.0, abs=0.1)
    frontier.close()


@pytest.mark.parametrize("max_depth", [None, 5])
def test_what_a_crawls_urls_take_of_memory(bench: Bench, max_depth: int | None) -> None:
    frontier = bench.open(CrawlLimits(max_depth=max_depth))
    assert frontier.status.url_bytes(1) == 0
    frontier.queue.admit(1, [Found(f"http://{host}/1", 1) for host in "abc"])
    queued = sum(
        len(text) + 1 for queue in frontier._base.queues.crawls[1].sites.values() for text in queue.queues[0].texts()
    )
    assert queued > 0
    assert frontier.status.url_bytes(1) == 3 * 16 + (3 * 176 if max_depth else 0) + queued


def test_how_many_pages_are_out_can_be_limited_while_they_are(bench: Bench) -> None:
    frontier = bench.open(CrawlLimits(in_flight=1))
    for host in "abc":
        frontier.sites.robots_known(f"http://{host}", RobotsRecord("ok", b"", WALL + 9e9), None)
    frontier.queue.admit(1, [Found(f"http://{host}/1", 1) for host in "abc"])
    assert [len(frontier.leases.claim("me", 9)) for _ in range(2)] == [1, 0]
    frontier.permits.limit_flight(1, 2)
    assert [len(frontier.leases.claim("me", 9)) for _ in range(2)] == [1, 0], "those that wait for a permit are due"
    frontier.permits.limit_flight(1, 1)
    assert frontier.leases.claim("me", 9) == []
    frontier.permits.limit_flight(1, None)
    assert len(frontier.leases.claim("me", 9)) == 1


def test_a_row_is_read_as_the_next_commit_will_leave_it(tmp_path: Path) -> None:
    journal = FrontierJournal(tmp_path / "frontier.db")
    assert journal.row("sites", "a") is None
    journal.put("sites", "a", b"one")
    assert journal.row("sites", "a") == ("a", b"one")
    journal.commit()
    assert journal.row("sites", "a") == ("a", b"one")
    journal.put("sites", "a", b"two")
    assert journal.row("sites", "a") == ("a", b"two")
    journal.delete("sites", "a")
    assert journal.row("sites", "a") is None
    journal.close()

"""What is put on the disk, and when: everything that must outlive a power cut is handed to fsync or fdatasync, which is
watched here and carried out all the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft.config import PolitenessSection
from weft.errors import BadInput, Damaged
from weft.files import sync_folder
from weft.frontier.clock import MachineClock
from weft.frontier.contract import CrawlLimits, RobotsRecord
from weft.frontier.durability.journal import FrontierJournal, check_file_size
from weft.frontier.durability.mark import read_mark
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.redis.link import QueueLimits
from weft.frontier.redis.marks import PodMarks
from weft.frontier.redis.parts.lead import PodSpiller
from weft.frontier.redis.parts.shelf import SharedRecords
from weft.frontier.redis.pods.pod_outbox import FileOutbox
from weft.frontier.requests import RequestLog
from weft.frontier.view import FrontierView
from weft.records import Found

Synced = list[str]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Synced:
    """The names of what was put on the disk, in order."""
    names: Synced = []

    def watched(carry_out: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            names.append(Path(f"/proc/self/fd/{fd}").readlink().name)
            carry_out(fd)

        return sync

    monkeypatch.setattr(os, "fsync", watched(os.fsync))
    monkeypatch.setattr(os, "fdatasync", watched(os.fdatasync))
    return names


def test_syncing_a_frontier_puts_its_log_and_its_journal_on_the_disk(tmp_path: Path, synced: Synced) -> None:
    frontier = EmbeddedFrontier(tmp_path, PolitenessSection(delay_s=1.0, places=1))
    crawl = frontier.crawls.open_crawl("test", CrawlLimits())
    frontier.recovery.recover()
    frontier.queue.admit(crawl, [Found("http://a/1", 0)])
    frontier.durability.commit()
    synced.clear()
    frontier.durability.sync()
    assert synced == ["requests-00000.log", "requests", "frontier.db-wal"]
    synced.clear()
    frontier.durability.sync()
    assert "requests" not in synced, "its folder has no new name"
    frontier.close()


def test_a_checkpoint_is_on_the_disk_after_its_journal_and_before_it_counts(tmp_path: Path, synced: Synced) -> None:
    frontier = EmbeddedFrontier(tmp_path, PolitenessSection(delay_s=1.0, places=1), checkpoint_every=-1_000_000)
    crawl = frontier.crawls.open_crawl("test", CrawlLimits())
    frontier.recovery.recover()
    frontier.queue.admit(crawl, [Found("http://a/1", 0)])
    synced.clear()
    frontier.durability.commit()
    assert synced == ["frontier.db-wal", "queues.db-wal", "sites-1", "checkpoint.tmp", tmp_path.name]
    assert sorted(path.name for path in tmp_path.glob("checkpoint*")) == ["checkpoint"]
    frontier.close()


def test_a_journal_tells_its_mark_what_is_on_the_disk(tmp_path: Path, synced: Synced) -> None:
    journal = FrontierJournal(tmp_path / "frontier.db")
    path = tmp_path / "frontier.mark"

    def told() -> tuple[int, int]:
        mark = read_mark(path)
        assert mark is not None
        return mark.commits, mark.durable

    for number in range(3):
        journal.put_meta("x", number)
        journal.commit()
    assert told() == (3, 0)
    journal.sync()
    assert told() == (3, 0), "the mark has it with the next commit"
    journal.put_meta("x", 9)
    journal.commit()
    assert told() == (4, 3)
    journal.commit()
    assert told() == (4, 3), "nothing was to be written"
    journal.record_robots("http://a", 1.0, b"\x01")
    journal.commit()
    assert told() == (5, 3)
    journal.commit()
    assert told() == (5, 3), "once is enough"
    journal.put_meta("x", 10)
    synced.clear()
    journal.close()
    assert synced == ["frontier.db-wal"]
    assert told() == (6, 6)
    again = FrontierJournal(tmp_path / "frontier.db")
    again.put_meta("x", 11)
    again.commit()
    assert told() == (7, 6)
    again.close()


def test_a_request_log_is_synced_as_it_is(tmp_path: Path, synced: Synced) -> None:
    log = RequestLog(tmp_path, 1.0)
    log.log_start(1, 2.0, "a", 1.0, 1, "http://a/1")
    log.flush()
    assert synced == []
    log.sync()
    assert synced == ["requests-00000.log", tmp_path.name]
    log.close()


def test_what_processes_of_a_pod_keep_on_disk_is_synced_where_it_is_asked_for(tmp_path: Path, synced: Synced) -> None:
    shelf, box = SharedRecords(tmp_path / "robots.db"), FileOutbox(tmp_path / "outbox.db")
    shelf.save_robots("http://a", RobotsRecord("ok", b"", 9e12), 1.0)
    box.save_messages({1: b"message"})
    synced.clear()
    shelf.sync()
    box.sync()
    assert synced == ["robots.db-wal", "outbox.db-wal"]
    shelf.close()
    box.close()


def test_a_segment_is_on_the_disk_with_its_folders_before_it_counts(
    tmp_path: Path, synced: Synced, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [b"%d" % number for number in range(3)]
    registered: list[tuple[Any, Synced]] = []
    sizes, sync = list[int](), os.fsync

    def measured(fd: int) -> None:
        sizes.append(os.fstat(fd).st_size)
        sync(fd)

    monkeypatch.setattr(os, "fsync", measured)

    def call(name: str, arguments: Any) -> list[int]:
        registered.append((arguments[2], list(synced)))
        return [int(len(registered) < 3)]

    def ask(*command: Any) -> Any:
        if command[0] == "SMEMBERS":
            return {b"1:0:a"} if command[1] == "long" else set()
        return entries if command[0] == "LRANGE" and command[1] == b"w:1:0:a" else []

    nothing_claimed = SimpleNamespace(allow_after=lambda _seconds: None)
    link: Any = SimpleNamespace(
        limits=QueueLimits(split_above=3),
        call_script=call,
        run_command=ask,
        now=lambda: 0.0,
        next_claim=nothing_claimed,
    )
    lead = PodSpiller(link, tmp_path / "spill")
    assert lead.move_segments() == 2
    segments = [segment for segment, _ in registered]
    folder, name = segments[0].split("/")
    assert registered[0][1] == [name, folder, "spill", tmp_path.name]
    assert sizes[0] == (tmp_path / "spill" / folder / name).stat().st_size > 0, "all of it"
    assert registered[1][1][4:] == [segments[1].split("/")[1], folder], "the folder was there already"
    assert sorted(path.name for path in tmp_path.glob("spill/*/*")) == sorted(
        one.split("/")[1] for one in segments[:2]
    ), "what was refused is gone again"


def open_in(folder: Path) -> list[str]:
    """The files there that this process holds open."""
    held = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            held.append(str(link.readlink()))
    return sorted(name for name in held if name.startswith(str(folder)))


def test_nothing_is_left_open(tmp_path: Path) -> None:
    for life in range(3):
        section = PolitenessSection(delay_s=1.0, places=1)
        frontier = EmbeddedFrontier(
            tmp_path / "f",
            section,
            checkpoint_every=-1_000_000,
            max_in_memory=0,
            machine=MachineClock(tmp_path / "clock"),
        )
        crawl = frontier.crawls.open_crawl("test", CrawlLimits())
        frontier.recovery.recover()
        frontier.queue.admit(crawl, [Found(f"http://a/{life}", 0)])
        frontier.durability.commit()
        held = open_in(tmp_path)
        frontier.durability.sync()
        frontier.durability.commit()
        assert open_in(tmp_path) == held
        assert {"clock", "queues.db", "frontier.db", "lock"} <= {Path(name).name for name in held}
        frontier.close()
        shelf, box = SharedRecords(tmp_path / "robots.db"), FileOutbox(tmp_path / "outbox.db")
        marks = PodMarks(tmp_path / "marks", "slot")
        marks.record_seen(1)
        for one in (shelf, box):
            one.sync()
        for closed in (shelf, box, marks):
            closed.close()
        sync_folder(tmp_path)
        view = FrontierView([tmp_path / "f"])
        view.entries_of_url("http://a/0")
        view.close()
        assert open_in(tmp_path) == []


def test_a_frontier_that_cannot_be_opened_holds_nothing_open(tmp_path: Path) -> None:
    """Whoever mends it can open it in the same process."""
    (tmp_path / "frontier.db").write_bytes(b"no database" * 20)
    for _ in range(2):
        with pytest.raises(Damaged, match="is not a frontier"):
            EmbeddedFrontier(tmp_path, PolitenessSection(delay_s=1.0, places=1))
        assert open_in(tmp_path) == []


def test_a_journal_is_of_the_layout_that_frontiers_have_on_disk(tmp_path: Path) -> None:
    """Whoever changes the number, or what it stands for, leaves every crawl behind that was begun before."""
    journal = FrontierJournal(tmp_path / "frontier.db")
    journal.close()
    journal = FrontierJournal(tmp_path / "frontier.db")
    assert journal.meta("schema_version") == 2
    journal.put_meta("schema_version", 3)
    journal.close()
    with pytest.raises(BadInput, match="has layout 3, this Weft reads 2"):
        FrontierJournal(tmp_path / "frontier.db")


def test_folders_are_made_where_there_are_none(tmp_path: Path) -> None:
    deep = tmp_path / "one" / "two" / "three"
    for number in range(2):  # they may be there, too
        SharedRecords(deep / "shelf" / "robots.db").close()
        FileOutbox(deep / "box" / "outbox.db").close()
        PodMarks(deep / "marks", "slot").close()
        RequestLog(deep / "requests", float(number)).close()
        FrontierJournal(deep / "journal" / "frontier.db").close()
        EmbeddedFrontier(deep / "frontier", PolitenessSection(delay_s=1.0, places=1)).close()
    assert sorted(path.name for path in deep.iterdir()) == ["box", "frontier", "journal", "marks", "requests", "shelf"]


@pytest.mark.parametrize("size", [1, 15, 16, 99])
def test_a_file_that_is_too_short_for_a_database_is_none(tmp_path: Path, size: int) -> None:
    path = tmp_path / "frontier.db"
    path.write_bytes((b"SQLite format 3\0" + bytes(100))[:size])
    with pytest.raises(Damaged, match="is not a frontier"):
        check_file_size(path)
    path.write_bytes(b"SQLite format 3\1" + bytes(100))
    with pytest.raises(Damaged, match="is not a frontier"):
        check_file_size(path)
    Path(f"{path}-wal").write_bytes(b"x")
    check_file_size(path)  # the log may hold what is missing here
    path.write_bytes(b"")
    Path(f"{path}-wal").unlink()
    check_file_size(path)


@pytest.mark.parametrize(("page_bytes", "stored"), [(512, 512), (4096, 4096), (65536, 1)])
def test_a_database_has_the_pages_that_its_header_tells_of(tmp_path: Path, page_bytes: int, stored: int) -> None:
    path = tmp_path / "frontier.db"
    header = bytearray(b"SQLite format 3\0" + bytes(84))
    header[16:18] = stored.to_bytes(2, "big")
    header[24:28] = header[92:96] = b"\0\0\0\7"
    header[28:32] = (3).to_bytes(4, "big")
    path.write_bytes(bytes(header) + bytes(3 * page_bytes - 100))
    check_file_size(path)
    os.truncate(path, 3 * page_bytes - 1)
    with pytest.raises(Damaged, match=f"is cut off: {3 * page_bytes - 1:,} bytes, of 3 pages"):
        check_file_size(path)
    header[28:32] = (1 << 24).to_bytes(4, "big")
    with path.open("r+b") as file:
        file.write(header)
    with pytest.raises(Damaged, match="of 16,777,216 pages"):
        check_file_size(path)
    header[95] = 8  # written by a program that does not tell the number of pages
    with path.open("r+b") as file:
        file.write(header)
    check_file_size(path)

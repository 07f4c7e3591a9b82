"""An embedded frontier whose files were cut, emptied, deleted or changed: it is as it was, or says what is wrong."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import stat
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from weft.config import PolitenessSection
from weft.errors import Damaged
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord
from weft.frontier.durability import mark
from weft.frontier.durability.journal import FrontierJournal, packed_items, unpacked_items
from weft.frontier.durability.mark import MarkFile, read_mark
from weft.frontier.durability.renew import renew_frontier
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.view import FrontierView
from weft.records import Found

SECTION = PolitenessSection(delay_s=0.0, places=1000)
CUTS, FLIPS = 8, 24
URLS = [f"http://h{number % 7}.test/{number}" for number in range(400)]


def opened(folder: Path, done: list[int] | None = None, checkpoint_every: int = 10**9) -> EmbeddedFrontier:
    frontier = EmbeddedFrontier(folder, SECTION, checkpoint_every=checkpoint_every)
    try:
        assert frontier.crawls.open_crawl("crawl", CrawlLimits()) == 1
        frontier.recovery.recover(done or [])
    except BaseException:
        os.close(frontier._lock)
        raise
    return frontier


def work(folder: Path) -> set[str]:
    """Admits all in ten commits, and ends a quarter; gives what is left."""
    frontier = opened(folder)
    for origin in {url[: url.index("/", 8)] for url in URLS}:
        frontier.sites.robots_known(origin, RobotsRecord("ok", b"", 2e9), None)
    for start in range(0, len(URLS), 40):
        frontier.queue.admit(1, [Found(url, 1) for url in URLS[start : start + 40]])
        frontier.durability.commit()
    leases = frontier.leases.claim("me", 100)
    assert len(leases) == 100
    frontier.leases.finish(EndedLease(lease, End.PAGE) for lease in leases)
    frontier.durability.commit()
    left = {item.url for item in frontier.queue.items(1)}
    assert len(left) == 300
    frontier.close()
    return left


def left_in(folder: Path) -> set[str]:
    frontier = opened(folder)
    try:
        return {item.url for item in frontier.queue.items(1)} - set(_passed_over(frontier))
    finally:
        frontier.close()


def _passed_over(frontier: EmbeddedFrontier) -> list[str]:
    return [item.url for item in frontier.queue.items(1) if item.item in frontier._base.queues.ended]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str]]:
    """A frontier after a clean end."""
    folder = tmp_path_factory.mktemp("closed")
    return folder, work(folder)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str]]:
    """A frontier whose process was killed: most of it is in SQLite's log."""
    folder = tmp_path_factory.mktemp("killed")
    if (child := os.fork()) == 0:
        try:
            frontier = opened(folder)
            frontier.queue.admit(1, [Found(url, 1) for url in URLS])
            frontier.durability.commit()
            frontier.durability.sync()
            frontier.queue.admit(1, [Found(url + "/late", 1) for url in URLS[:100]])
            frontier.durability.commit()
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    return folder, {*URLS, *(url + "/late" for url in URLS[:100])}


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def same_or_said(folder: Path, left: set[str]) -> str:
    """The frontier has what it had (what it forgot to have ended is only asked again), or says that it has not."""
    try:
        now = left_in(folder)
    except Damaged as error:
        return "said" if "weft rebuild CRAWL_DIR --frontier" in str(error) else str(error)
    assert left <= now <= set(URLS) | left, "something is lost without a word"
    return "same"


def test_a_whole_frontier_comes_back(
    closed: tuple[Path, set[str]], killed: tuple[Path, set[str]], tmp_path: Path
) -> None:
    for number, (folder, left) in enumerate((closed, killed)):
        assert left_in(copied(folder, tmp_path / str(number))) == left


@pytest.mark.parametrize("name", ["frontier.db", "frontier.mark"])
@pytest.mark.parametrize("state", ["closed", "killed"])
def test_every_damage_is_seen_or_harmless(
    state: str, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder, left = request.getfixturevalue(state)
    data, chance = (folder / name).read_bytes(), random.Random(name)
    damages: list[bytes | None] = [None, b""]
    damages += [data[: chance.randrange(len(data))] for _ in range(CUTS)]
    for _ in range(FLIPS):
        at = chance.randrange(len(data))
        damages.append(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
    came = []
    for number, damage in enumerate(damages):
        copy = copied(folder, tmp_path / str(number))
        (copy / name).unlink()
        if damage is not None:
            (copy / name).write_bytes(damage)
        came.append(same_or_said(copy, left))
        assert came[-1] in ("same", "said")
        shutil.rmtree(copy)
    if name == "frontier.db":
        # Where the process was killed, all of it may be in SQLite's log.
        gone = 2 + CUTS if state == "closed" else 2
        assert came[:gone] == ["said"] * gone, "a frontier that is gone, empty or cut is never taken for a whole one"
    else:
        assert came == ["same"] * len(came), "a damaged mark is no reason to refuse a whole frontier"


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "flipped"])
def test_a_log_of_sqlite_that_lost_its_tail_is_seen(killed: tuple[Path, set[str]], tmp_path: Path, damage: str) -> None:
    copy = copied(killed[0], tmp_path / "copy")
    path = copy / "frontier.db-wal"
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        at = len(data) - 2000
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        path.write_bytes({"empty": b"", "cut": data[:at], "flipped": flipped}[damage])
    with pytest.raises(Damaged, match=r"frontier\.db: (has lost what was written to it last|is gone, or empty)"):
        left_in(copy)


def test_a_power_cut_may_take_what_was_not_synced_and_no_more(
    killed: tuple[Path, set[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mark, "boot_id", lambda: "another boot")
    copy = copied(killed[0], tmp_path / "tail")
    path = copy / "frontier.db-wal"
    data = path.read_bytes()
    path.write_bytes(data[:-2000])
    frontier = opened(copy)
    assert {item.url for item in frontier.queue.items(1)} == set(URLS), "the second commit is gone, as it may be"
    assert frontier.recovery.may_lack_links and not frontier.recovery.is_new
    frontier.close()
    copy = copied(killed[0], tmp_path / "more")
    (copy / "frontier.db-wal").write_bytes(data[: len(data) // 3])
    with pytest.raises(Damaged, match=r"has lost what was written to it last|is gone, or empty"):
        left_in(copy)


def test_pages_that_the_frontier_never_gave_out_mean_that_it_is_not_theirs(tmp_path: Path) -> None:
    """All of its folder is gone, the mark too: the store still tells."""
    with pytest.raises(Damaged, match=r"does not have what was fetched last \(item 17 "):
        opened(tmp_path, done=[3, 17])
    fresh = opened(tmp_path, done=[])
    fresh.close()


def test_numbers_go_on_beyond_what_a_power_cut_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work(tmp_path)
    monkeypatch.setattr(FrontierJournal, "_open_database", _loses_its_tail(FrontierJournal._open_database))
    frontier = opened(tmp_path, done=[5, 900])
    frontier.queue.admit(1, [Found("http://new.test/", 1)])
    assert {item.item for item in frontier.queue.items(1) if item.url == "http://new.test/"} == {901}
    frontier.close()


def _loses_its_tail(opens: Callable[[FrontierJournal], None]) -> Callable[[FrontierJournal], None]:
    def open_(self: FrontierJournal) -> None:
        opens(self)
        self.lost_tail = True

    return open_


def test_a_damaged_checkpoint_is_as_good_as_none(tmp_path: Path) -> None:
    folder = tmp_path / "whole"
    left = work(folder)
    opened(folder, checkpoint_every=-1_000_000).close()
    data, chance = (folder / "checkpoint").read_bytes(), random.Random(1)
    assert stat.S_IMODE((folder / "checkpoint").stat().st_mode) == 0o600
    for number in range(20):
        copy = copied(folder, tmp_path / str(number))
        at = chance.randrange(len(data))
        flipped = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        (copy / "checkpoint").write_bytes(flipped if number % 2 else data[:at])
        assert left_in(copy) == left
        shutil.rmtree(copy)


def test_a_checkpoint_that_is_ahead_of_its_journal_tells_of_the_loss(tmp_path: Path) -> None:
    work(tmp_path)
    opened(tmp_path, checkpoint_every=-1_000_000).close()
    for name in ("frontier.db", "frontier.mark"):
        (tmp_path / name).unlink()
    with pytest.raises(Damaged, match="ends before the checkpoint beside it"):
        left_in(tmp_path)


def test_a_frontier_made_anew_keeps_what_cannot_be_found_again(tmp_path: Path) -> None:
    frontier = opened(tmp_path)
    frontier.queue.admit(1, [Found(url, 1) for url in URLS])
    frontier.sites.robots_known("http://h1.test", RobotsRecord("ok", b"User-agent: *", 2e9), 9.0)
    frontier.close()
    path = tmp_path / "frontier.db"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 4096)
    with pytest.raises(Damaged, match="is cut off"):
        left_in(tmp_path)
    assert renew_frontier(tmp_path, [1, 2])
    again = opened(tmp_path, done=[4])
    assert again.recovery.is_new and again.recovery.may_lack_links
    assert (tmp_path / "frontier.db.damaged").stat().st_size == size - 4096
    again.recovery.restore_stored(1, [(Found(URLS[3], 1), 4)])
    assert again.queue.admit(1, [Found(URLS[3], 2), Found(URLS[9], 2)]).new == 1, "what is stored is not asked again"
    assert {item.item for item in again.queue.items(1)} == {5}
    again.recovery.record_links_complete()
    again.close()
    kept = sqlite3.connect(path)
    assert kept.execute("SELECT origin FROM robots_history").fetchall() == [("http://h1.test",)]
    assert kept.execute("SELECT key FROM sites").fetchall() == [("h1.test",)], "its Crawl-delay"
    assert kept.execute("SELECT count(*) FROM robots").fetchone() == (0,)
    kept.close()
    other = tmp_path.with_name("other")
    opened(other).close()
    view = FrontierView([tmp_path, other])
    assert view.rebuilt_at() > 0, "one of them was"
    view.close()
    assert left_in(tmp_path) == {URLS[9]}
    assert not renew_frontier(tmp_path, []), "one that can be read is kept, and takes in what is stored"
    again = opened(tmp_path)
    assert again.recovery.is_new
    again.close()


@pytest.mark.parametrize("columns", ["reason, url, parent, crawl", "reason, url"])
def test_refusals_are_kept_where_they_can_be_read(tmp_path: Path, columns: str) -> None:
    path = tmp_path / "frontier.db"
    db = sqlite3.connect(path)
    db.executescript(f"PRAGMA page_size=4096; CREATE TABLE refusals ({columns}); CREATE TABLE filler (text)")
    row: tuple[object, ...] = ("scope", "http://b.test/", 7, 3)[: columns.count(",") + 1]
    db.execute(f"INSERT INTO refusals VALUES ({','.join('?' * len(row))})", row)
    broken = (5, "http://b.test/", 7, 3), ("scope", 6, 7, 3)
    db.executemany(f"INSERT INTO refusals VALUES ({','.join('?' * len(row))})", [one[: len(row)] for one in broken])
    db.executemany("INSERT INTO filler VALUES (?)", [("x" * 4000,)] * 3)
    db.commit()
    db.close()
    os.truncate(path, path.stat().st_size - 4096)
    assert renew_frontier(tmp_path, [])
    with contextlib.closing(sqlite3.connect(path)) as made:
        kept = made.execute("SELECT * FROM refusals").fetchall()
    assert kept == ([("scope", "http://b.test/", 7, 3)] if len(row) == 4 else [])


def test_a_record_that_fails_its_checksum_makes_a_frontier_anew(tmp_path: Path) -> None:
    frontier = opened(tmp_path)
    frontier.sites.robots_known("http://h1.test", RobotsRecord("ok", b"User-agent: *", 2e9), 9.0)
    frontier.close()
    db = sqlite3.connect(tmp_path / "frontier.db", isolation_level=None)
    ((record,),) = db.execute("SELECT record FROM sites").fetchall()
    db.execute("UPDATE sites SET record = ?", (record[:-1] + bytes([record[-1] ^ 1]),))
    db.close()
    frontier = opened(tmp_path)
    with pytest.raises(Damaged, match="a record fails its checksum"):
        frontier.queue.admit(1, [Found("http://h1.test/", 0)])
    frontier.close()
    assert renew_frontier(tmp_path, []), "a file that opens well may be damaged all the same"
    frontier = opened(tmp_path)
    assert frontier.queue.admit(1, [Found("http://h1.test/", 0)]).new == 1
    frontier.close()


def test_a_view_says_what_is_damaged(closed: tuple[Path, set[str]], tmp_path: Path) -> None:
    copy = copied(closed[0], tmp_path / "copy")
    path = copy / "frontier.db"
    data = path.read_bytes()
    for damage in (b"", b"no database" * 100, data[:5000], data[:100] + bytes(len(data) - 100)):
        path.write_bytes(damage)
        with pytest.raises(Damaged, match=r"frontier\.db: is (empty|damaged)"):
            FrontierView([copy]).entries_of_url(URLS[0])


def test_ended_items_carry_a_checksum() -> None:
    blob = packed_items([1, 2, 1 << 50])
    assert list(unpacked_items(blob)) == [1, 2, 1 << 50]
    for at in range(len(blob)):
        with pytest.raises(zlib.error):
            unpacked_items(blob[:at] + bytes([blob[at] ^ 4]) + blob[at + 1 :])


def test_of_two_records_of_a_mark_one_may_be_half_written(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    one = MarkFile(path)
    for commits in range(1, 6):
        one.write(commits, commits - 1)
    one.close()
    data = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        told = read_mark(path)
        assert told is not None and (told.commits, told.durable) in ((5, 4), (4, 3))
    path.write_bytes(bytes(len(data)))
    assert read_mark(path) is None or MarkFile(path).earlier_mark is None


def test_the_frontiers_files_are_its_owners_alone(closed: tuple[Path, set[str]], tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        work(tmp_path / "frontier")
    finally:
        os.umask(before)
    files = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "frontier").rglob("*")}
    assert {mode for path, mode in files.items() if path.is_file()} == {0o600}
    assert stat.S_IMODE((tmp_path / "frontier").stat().st_mode) == 0o700


def test_a_journal_may_be_used_by_another_thread_than_the_one_that_opened_it(tmp_path: Path) -> None:
    journal = FrontierJournal(tmp_path / "frontier.db")
    journal.put_meta("of", "the first")

    def use() -> str:
        journal.commit()
        return str(journal.meta("of"))

    with ThreadPoolExecutor(1) as other:
        assert other.submit(use).result() == "the first"
    journal.close()


@pytest.mark.parametrize(
    "text", [b"TABLE retries", b"(item INTEGER", b"meta (name", b"TABLE refusals", b"INDEX refusals_by_url"]
)
def test_a_table_of_another_name_is_damage_and_not_made_again_empty(tmp_path: Path, text: bytes) -> None:
    work(tmp_path / "frontier")
    path = tmp_path / "frontier" / "frontier.db"
    whole = path.read_bytes()
    at = whole.index(text) + len(text) - 1
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :])
    with pytest.raises(Damaged, match=r"frontier\.db.*weft rebuild CRAWL_DIR --frontier"):
        opened(tmp_path / "frontier")

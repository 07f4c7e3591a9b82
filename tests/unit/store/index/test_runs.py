"""The runs of keys: every row is found by its URL, its item and its host, whatever was merged or killed in between."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lost_writes import LostWrites

from weft.store.errors import DamagedIndex
from weft.store.index import hosts, runs, schema
from weft.store.index import index_writer as index_module
from weft.store.index.index_writer import FileState, SlotIndex
from weft.store.index.query import IndexReader, RowFilter

if TYPE_CHECKING:
    from collections.abc import Iterator

FACTS = {"crawl_id": "c", "data_dirs": 1, "data_dir": 0}
HOSTS = 20


def url_of(item: int) -> str:
    return f"http://h{item % HOSTS}.test/{item}"


def values(item: int, crawl: int = 1) -> tuple[Any, ...]:
    url = url_of(item)
    rest = (
        schema.url_hash(url), crawl, url, None, 200, 1e9 + item, "text/html", "utf-8", "en", "A title", 1, 0, "sha1:A",
        100, "", 0, 1, item * 100, 100, 0, None, None,
    )  # fmt: skip
    return (item, *rest, schema.checksum((item, *rest)))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "FOLD_ROWS", 10)
    monkeypatch.setattr(runs, "ENTRIES_PER_STEP", 16)
    monkeypatch.setattr(runs, "RUNS_PER_MERGE", 3)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[SlotIndex]:
    made = SlotIndex(tmp_path / "index-a.db", FACTS)
    made.register("1/f")
    yield made
    made.close()


def shuffled(count: int) -> list[int]:
    """Items as a crawl ends them: not in the order in which they were found."""
    items = list(range(1, count + 1))
    random.Random(5).shuffle(items)
    return items


def fill(index: SlotIndex, items: list[int], crawl: int = 1, batch: int = 0) -> int:
    left = iter(items)
    while some := list(islice(left, 7)):
        batch += 1
        index.commit(batch, batch, [values(item, crawl) for item in some], [])
        index.sync()
    return batch


def entries(path: Path, levels: str = "level >= 0") -> Counter[tuple[int, int]]:
    """The keys in readable runs."""
    sql = f"SELECT key, seq FROM keys WHERE run IN (SELECT run FROM runs WHERE {levels})"
    with closing(sqlite3.connect(path)) as db:
        return Counter(db.execute(sql).fetchall())


def check(path: Path, items: set[int]) -> None:
    """Every way to a row leads there, and to no other."""
    with closing(sqlite3.connect(path)) as db:
        (folded,) = db.execute("SELECT value FROM meta WHERE key = 'folded'").fetchone()
        rows = db.execute("SELECT seq, item, url_hash FROM pages WHERE seq <= ?", (folded,)).fetchall()
    assert entries(path) == Counter((key, seq) for seq, *both in rows for key in both)
    with closing(IndexReader(path)) as reader:
        assert [row.item for row in reader.rows()] == sorted(items)
        assert [row.item for row in reader.rows(RowFilter(after_item=20, upto_item=90))] == sorted(
            item for item in items if 20 < item <= 90
        )
        for item in sorted(items)[::7]:
            assert [row.item for row in reader.rows_of_url(url_of(item))] == [item]
            found = reader.row_of_item(item)
            assert found is not None and found.url == url_of(item)
        last = reader.last_batch()
        positions = reader.positions_of_hosts(["h3.test"], last, 10_000)
        found_rows = [row.item for some in reader.rows_in_order(0, last, only=positions) for _, _, row in some]
        assert sorted(found_rows) == sorted(item for item in items if item % HOSTS == 3)
        assert sorted(reader.hashes()) == list(reader.hashes())


def test_rows_are_found_while_runs_are_merged_and_afterwards(index: SlotIndex) -> None:
    items = shuffled(600)
    fill(index, items)
    check(index.path, set(items))
    with closing(sqlite3.connect(index.path)) as db:
        levels = Counter(level for (level,) in db.execute("SELECT level FROM runs WHERE level >= 0"))
    assert max(levels) >= 2 and max(levels.values()) < 2 * runs.RUNS_PER_MERGE


def test_a_merge_may_stop_anywhere(index: SlotIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "MERGE_S", 0)
    monkeypatch.setattr(runs, "runs_in_fullest_level", lambda db: 0)
    items = shuffled(300)
    fill(index, items)
    with closing(sqlite3.connect(index.path)) as db:
        steps = 0
        while runs.merge_piece(db, index.path):
            db.commit()
            steps += 1
            if steps % 5 == 0:
                check(index.path, set(items))
    assert steps > 20
    assert entries(index.path, "level < 0") == Counter()


def test_rows_that_are_deleted_in_the_middle_of_a_merge_leave_no_keys(
    index: SlotIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "MERGE_S", 0)
    monkeypatch.setattr(runs, "runs_in_fullest_level", lambda db: 0)
    batch = fill(index, list(range(100)), crawl=1)
    fill(index, list(range(100, 200)), crawl=2, batch=batch)
    with closing(sqlite3.connect(index.path)) as db:
        for _ in range(9):
            assert runs.merge_piece(db, index.path)
            db.commit()
        lost = [row for row in index.rows_in(1) if row.item in range(150, 160)]
        index.move_to_lost(lost, FileState(1, "1/f", 0, 0))
        while not index.forget([1], 30):
            assert runs.merge_piece(db, index.path)
            db.commit()
        while runs.merge_piece(db, index.path):
            db.commit()
    check(index.path, set(range(100, 200)) - set(range(150, 160)))
    assert index.items_with_rows(list(range(200))) == set(range(100, 200)) - set(range(150, 160))
    assert list(index.verify())


def test_an_item_has_one_row_after_any_opening(index: SlotIndex) -> None:
    items = shuffled(100)
    fill(index, items)
    with closing(SlotIndex(index.path, FACTS)) as again:
        assert again.items_with_rows([*items, 1000]) == set(items)
        again.commit(99, 99, [values(item) for item in (3, 3, 1000, 1000)], [])
        assert again.items_with_rows([3, 1000, 2000]) == {3, 1000}
    check(index.path, {*items, 1000})


@pytest.mark.parametrize("after", [3, 11, 24, 40, 57])
def test_a_kill_at_any_moment_leaves_every_row_with_its_keys(tmp_path: Path, after: int) -> None:
    path, items = tmp_path / "index-a.db", shuffled(2000)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            index = SlotIndex(path, FACTS)
            index.register("1/f")
            for batch, start in enumerate(range(0, len(items), 7), 1):
                index.commit(batch, batch, [values(item) for item in items[start : start + 7]], [])
                os.write(write, b".")
                index.sync()
        finally:
            os._exit(1)
    os.close(write)
    for _ in range(after):
        assert os.read(read, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    committed = after + len(os.read(read, 4096) or b"")
    os.close(read)
    with closing(SlotIndex(path, FACTS)) as index:
        there = set(index.items_since(0))
        assert set(items[: 7 * committed]) <= there <= set(items[: 7 * committed + 7])
        check(path, there)
        fill(index, [5000, 5001], batch=1000)
        check(path, {*there, 5000, 5001})
        assert list(index.verify())


def test_a_power_cut_at_any_step_leaves_every_synced_row_with_its_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are merged in the transactions between two syncs, and the log is moved into the database meanwhile."""
    folder, items, synced = tmp_path / "store", shuffled(105), set[int]()
    folder.mkdir()

    def check_left(left: Path) -> None:
        with closing(SlotIndex(left / "index-a.db", FACTS)) as index:
            there = set(index.items_since(0))
            assert synced <= there <= set(items)
            check(index.path, there)
            assert len(list(index.verify())) >= (len(there) > 0)

    index = SlotIndex(folder / "index-a.db", FACTS)
    index.register("1/f")
    index.sync()
    disk = LostWrites(folder, tmp_path / "left", check_left)
    with monkeypatch.context() as patch:
        disk.watch(patch)
        for batch, start in enumerate(range(0, len(items), 7), 1):
            some = items[start : start + 7]
            index.commit(batch, batch, [values(item) for item in some], [])
            index.sync()
            synced.update(some)
    index.close()
    with closing(sqlite3.connect(index.path)) as db:
        ((highest,),) = db.execute("SELECT max(level) FROM runs")
    assert highest >= 1 and disk.cuts > 10


def test_a_merge_that_finds_the_disk_full_is_continued_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "MERGE_S", 0)
    monkeypatch.setattr(index_module, "FOLD_ROWS", 100)
    path, items = tmp_path / "index-a.db", shuffled(700)
    with closing(SlotIndex(path, FACTS)) as index:
        index.register("1/f")
        with monkeypatch.context() as patch:
            patch.setattr(runs, "runs_in_fullest_level", lambda db: 0)
            batch = fill(index, items)
    with closing(sqlite3.connect(path)) as db:
        db.execute("VACUUM")
        refusals, room, is_over = 0, 0, False
        while not is_over:
            ((pages,),) = db.execute("PRAGMA page_count")
            db.execute(f"PRAGMA max_page_count = {pages + room}")
            try:
                is_over = not runs.merge_piece(db, path)
                db.commit()
                room = 0
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname != "SQLITE_FULL":
                    raise
                db.rollback()
                check(path, set(items))
                refusals, room = refusals + 1, room + 1
    assert refusals > 2
    with closing(SlotIndex(path, FACTS)) as index:
        fill(index, [5000, 5001], batch=batch)
        check(path, {*items, 5000, 5001})
        assert list(index.verify())


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE keys SET key = key + 1 WHERE seq = 40 AND key < 0",
        "UPDATE keys SET seq = seq + 64 WHERE seq = 40 AND key >= 0",
        "DELETE FROM keys WHERE seq = 40",
        "UPDATE runs SET checksum = checksum + 1",
    ],
)
def test_keys_that_are_not_what_was_written_are_damage(index: SlotIndex, sql: str) -> None:
    batch = fill(index, shuffled(200))
    with closing(sqlite3.connect(index.path)) as db:
        db.execute(sql)
        db.commit()
    with pytest.raises(DamagedIndex, match=r"keys of run.* not what was written"):
        list(index.verify())
    with pytest.raises(DamagedIndex, match=r"keys of its runs .* not what was written"):
        fill(index, list(range(1000, 3000)), batch=batch)


def test_rows_since_a_time_are_read_from_the_first_batch_that_has_one(index: SlotIndex) -> None:
    fill(index, [*range(100, 170), 3, *range(170, 200)])  # one with an early time among the late ones
    with closing(IndexReader(index.path)) as reader:
        last = reader.last_batch()
        found = [row.item for some in reader.rows_in_order(0, last, since=1e9 + 160) for _, _, row in some]
        assert [item for item in found if item >= 160] == list(range(160, 200))
        assert len(found) < 60


def test_hosts_are_counted_as_rows_are_stored(index: SlotIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = fill(index, list(range(1, 200)))
    batch = fill(index, list(range(1000, 1030)), crawl=2, batch=batch)
    with closing(IndexReader(index.path)) as reader:
        for crawl in (0, 1, 2):
            assert list(reader.top_hosts(crawl)) == list(reader.hosts(crawl))
        index.move_to_lost([row for row in index.rows_in(1) if row.item < 50], FileState(1, "1/f", 0, 0))
        assert list(reader.top_hosts()) == list(reader.hosts())
        while not index.forget([1], 30):
            pass
        assert list(reader.top_hosts()) == list(reader.hosts())


def test_of_too_many_hosts_the_largest_are_known(index: SlotIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "MOST_HOSTS", 8)
    hot = [3 + HOSTS * number for number in range(60)]
    others = [item for item in range(1000, 1300) if item % HOSTS != 3]
    items = [*hot, *others]
    random.Random(3).shuffle(items)
    fill(index, items)
    index.sync(last=True)
    with closing(IndexReader(index.path)) as reader:
        counted, exact = dict(reader.top_hosts()), dict(reader.hosts())
    assert max(counted, key=lambda host: counted[host]) == "h3.test"
    assert exact["h3.test"] <= counted["h3.test"] <= exact["h3.test"] + len(items) // 8
    assert all(counted[host] >= exact[host] for host in counted)

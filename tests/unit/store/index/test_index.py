"""The index keeps one row per item, finds rows by URL and batch, and counts in SQL."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from weft.errors import BadInput
from weft.store.corpus import Corpus
from weft.store.errors import DamagedIndex, StoreError
from weft.store.index import index_writer as index_module
from weft.store.index import schema
from weft.store.index.index_writer import FileState, SlotIndex
from weft.store.index.query import IndexReader, RowFilter

if TYPE_CHECKING:
    from collections.abc import Iterator

FACTS = {"crawl_id": "c", "data_dirs": 1, "data_dir": 0}


def values(item: int, url: str = "", status: int = 200, **more: Any) -> tuple[Any, ...]:
    url = url or f"http://h{item % 100}.test/page/{item}"
    error, file, title = more.get("error", ""), more.get("file", 0), more.get("title", f"Title of page {item}")
    rest = (
        schema.url_hash(url), 1, url, None, status, 1e9 + item, "text/html", "utf-8", "en", title,
        item % 5, item // 3, "sha1:" + "A" * 32, 42_000, error, 0, file, item * 100, 100, 0, more.get("fields"),
        more.get("request"),
    )  # fmt: skip
    return (item, *rest, schema.checksum((item, *rest)))


@pytest.fixture
def index(tmp_path: Path) -> Iterator[SlotIndex]:
    made = SlotIndex(tmp_path / "index-a.db", FACTS)
    yield made
    made.close()


@pytest.fixture
def reader(index: SlotIndex) -> Iterator[IndexReader]:
    made = IndexReader(index.path)
    yield made
    made.close()


def test_a_stranger_who_opens_it_leaves_the_log_of_its_writer(index: SlotIndex) -> None:
    """SQLite's shell deletes the log of a database that nobody has locked, as it closes it."""
    program = f"import sqlite3; db = sqlite3.connect({str(index.path)!r}); "
    program += "print(db.execute('SELECT count(*) FROM pages').fetchone()[0]); db.close()"
    for number in (1, 2, 3):
        index.commit(number, number, [values(number)], [])
        index.sync()
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert int(done.stdout) == number
    assert index.path.with_name(f"{index.path.name}-wal").exists()


def test_a_reader_finds_an_index_that_is_being_made_whole_or_not_at_all(tmp_path: Path) -> None:
    class ReadMeanwhile(dict[str, object]):
        """Facts that are written one by one, and looked for in between as another process of the crawl does."""

        def items(self) -> Any:
            for fact in super().items():
                assert Corpus([tmp_path]).is_empty()
                yield fact

    made = SlotIndex(tmp_path / "index-a.db", ReadMeanwhile(FACTS))
    assert not Corpus([tmp_path]).is_empty()
    made.close()


def test_rows_committed_twice_are_there_once(index: SlotIndex, reader: IndexReader) -> None:
    index.commit(1, 0, [values(1, title="first"), values(2)], [])
    index.commit(2, 0, [values(1, title="second"), values(3)], [])
    assert next((row.item, row.title) for row in reader.rows()) == (1, "first")
    assert [row.item for row in reader.rows()] == [1, 2, 3]
    assert index.items_with_rows([3, 1, 99, *range(1000, 2000)]) == {1, 3}


def test_a_row_comes_back_as_it_was(index: SlotIndex, reader: IndexReader) -> None:
    file = index.register("weft-c-a-00000.warc.gz")
    index.commit(
        1, 0, [values(7, file=file.id, title="Ünïcode 漢字 \0 nul")], [FileState(file.id, file.name, 800, 700)]
    )
    (row,) = reader.rows()
    assert row.url == row.final_url == "http://h7.test/page/7"
    assert row.title == "Ünïcode 漢字 \0 nul"
    assert (row.warc_file, row.warc_offset, row.warc_length) == ("weft-c-a-00000.warc.gz", 700, 100)
    assert index.files() == [FileState(1, "weft-c-a-00000.warc.gz", 800, 700)]


def test_a_transaction_that_fails_leaves_nothing(index: SlotIndex, reader: IndexReader) -> None:
    bad = (*values(2)[:-1], {"no": "value"})
    with pytest.raises(StoreError):
        index.commit(1, 0, [values(1), bad], [])
    assert list(reader.rows()) == []
    index.commit(2, 0, [values(1)], [])
    assert [row.item for row in reader.rows()] == [1]


def test_url_is_found_before_and_after_folding(
    index: SlotIndex, reader: IndexReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "FOLD_ROWS", 50)
    url = "http://twice.test/"
    index.commit(1, 0, [values(1, url=url), *(values(item) for item in range(2, 60))], [])
    assert [row.item for row in reader.rows_of_url(url)] == [1]
    index.sync()
    assert reader.rows_without_keys() == []
    assert [row.item for row in reader.rows_of_url(url)] == [1]
    index.commit(2, 0, [values(100, url=url)], [])
    assert [row.item for row in reader.rows_of_url(url)] == [1, 100]
    index.sync()
    assert len(reader.rows_without_keys()) == 1  # too few for another run
    assert reader.rows_of_url("http://h5.test/page/5")[0].item == 5
    assert reader.rows_of_url("http://none.test/") == []


def test_urls_whose_hashes_collide_are_distinguished(
    index: SlotIndex, reader: IndexReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "url_hash", lambda url: -7)
    index.commit(1, 0, [values(1, url="http://a.test/"), values(2, url="http://b.test/")], [])
    assert [row.item for row in reader.rows_of_url("http://b.test/")] == [2]


def test_batches_and_items(index: SlotIndex, reader: IndexReader) -> None:
    for batch in (1, 2, 5):
        index.commit(batch, batch - 1, [values(batch * 10), values(batch * 10 + 1)], [])
    assert reader.items_since(1) == sorted(index.items_since(1)) == [20, 21, 50, 51]
    assert reader.items_since(5) == []
    assert (index.meta_number("batch"), index.meta_number("durable")) == (5, 4)
    assert [row.item for row in reader.rows(RowFilter(after_batch=2))] == [50, 51]
    found = reader.row_of_item(21)
    assert found and found.url == "http://h21.test/page/21"
    assert reader.row_of_item(22) is None


@pytest.mark.parametrize(
    ("where", "items"),
    [
        (RowFilter(after_item=2), [3, 4]),
        (RowFilter(status=404), [2]),
        (RowFilter(error="timeout"), [3]),
        (RowFilter(error=""), [1, 2, 4]),
        (RowFilter(stored=False), [3]),
        (RowFilter(stored=True, status=200), [1, 4]),
        (RowFilter(crawl=2), []),
    ],
)
def test_rows_can_be_filtered(index: SlotIndex, reader: IndexReader, where: RowFilter, items: list[int]) -> None:
    rows = [values(1), values(2, status=404), values(3, status=0, error="timeout", file=None), values(4)]
    index.commit(1, 0, rows, [])
    assert [row.item for row in reader.rows(where)] == items


def test_lost_rows_are_gone_from_every_table_and_reported_until_they_are_forgotten(
    index: SlotIndex, reader: IndexReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "FOLD_ROWS", 1)
    file = index.register("f")
    index.commit(1, 0, [values(1, file=file.id), values(2, file=file.id)], [FileState(file.id, "f", 300, 200)])
    index.sync()
    lost = [row for row in index.rows_in(file.id) if row.item == 2]
    index.move_to_lost(lost, FileState(file.id, "f", 200, 100))
    assert [row.item for row in reader.rows()] == [1]
    assert reader.rows_of_url("http://h2.test/page/2") == []
    assert index.files() == [FileState(file.id, "f", 200, 100)]
    assert index.items_since(0) == [1]
    assert [row.item for row in reader.rows_of_hashes([schema.url_hash(row.url) for row in lost])] == []
    assert reader.totals()[0] == 1
    assert index.lost_rows() == reader.lost_rows() == lost
    index.add_lost_rows(lost)
    assert index.lost_rows() == lost
    index.delete_lost_rows()
    assert index.lost_rows() == reader.lost_rows() == []


def test_a_reader_on_the_way_through_does_not_hold_the_log(index: SlotIndex, reader: IndexReader) -> None:
    index.commit(1, 0, [values(item) for item in range(1, 3001)], [])
    rows = reader.rows()
    next(rows)
    index.commit(2, 0, [values(9999)], [])
    other = sqlite3.connect(index.path, isolation_level=None)
    busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    other.close()
    assert busy == 0
    assert sum(1 for _ in rows) == 3000


def test_the_log_is_moved_into_the_database_by_sync(index: SlotIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "CHECKPOINT_BYTES", 100_000)
    monkeypatch.setattr(index_module, "RESTART_FRAMES", 100)
    before = index.path.stat().st_size
    for batch in range(1, 30):
        index.commit(batch, 0, [values(batch * 1000 + n) for n in range(50)], [])
    assert index.path.stat().st_size == before  # never by a commit: the WARC files must be on the disk first
    index.sync()
    assert index.path.stat().st_size > before
    index.commit(99, 0, [values(1)], [])  # starts the log anew


def test_a_hundred_thousand_rows_are_counted_in_constant_memory(index: SlotIndex, reader: IndexReader) -> None:
    for batch in range(1, 101):
        start = (batch - 1) * 1000
        index.commit(batch, 0, [values(start + n, status=200 if n % 4 else 404) for n in range(1, 1001)], [])
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert reader.totals()[:3] == (100_000, 75_000, 100_000 * 42_000)
    assert reader.counts("status") == {200: 75_000, 404: 25_000}
    assert sum(n for _, n in reader.hosts()) == 75_000
    assert len(list(reader.hosts())) == 75  # every fourth host has 404s alone
    assert sum(1 for _ in reader.rows()) == 100_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 20_000  # KiB


def test_a_foreign_layout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index-a.db"
    SlotIndex(path, FACTS).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = 99 WHERE key = 'schema_version'")
    db.close()
    for opening in (lambda: SlotIndex(path, FACTS), lambda: IndexReader(path)):
        with pytest.raises(BadInput, match="layout 99, this Weft reads layout 9"):
            opening()


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index-a.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE bookmarks (url)")
    db.close()
    before = path.read_bytes()
    for opening in (lambda: SlotIndex(path, FACTS), lambda: IndexReader(path)):
        with pytest.raises(BadInput, match="not an index of Weft"):
            opening()
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index-a.db"
    path.write_bytes(b"This is no database, whatever its name says. " * 100)
    for opening in (lambda: SlotIndex(path, FACTS), lambda: IndexReader(path)):
        with pytest.raises(BadInput, match="not an index of Weft"):
            opening()


def test_a_missing_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"index-a\.db cannot be read"):
        IndexReader(tmp_path / "index-a.db")


def test_another_number_of_data_dirs_is_refused(tmp_path: Path) -> None:
    SlotIndex(tmp_path / "index-a.db", FACTS).close()
    with pytest.raises(BadInput, match="number 0 of 1 data dirs"):
        SlotIndex(tmp_path / "index-a.db", FACTS | {"data_dirs": 2})


def test_every_row_is_verified_and_a_damaged_one_is_refused(index: SlotIndex) -> None:
    index.commit(1, 0, [values(item) for item in range(1, 1251)], [])
    assert list(index.verify()) == [500, 500, 250]
    with closing(sqlite3.connect(index.path)) as db:
        db.execute("UPDATE pages SET title = 'other' WHERE item = 1200")
        db.commit()
    with pytest.raises(DamagedIndex, match=r"row of item 1200 is not what was written.*weft rebuild"):
        list(index.verify())


def test_a_check_that_was_killed_is_continued_and_the_next_begins_at_the_first_row(
    index: SlotIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "VERIFIED_ROWS", 1000)
    index.commit(1, 0, [values(item) for item in range(1, 2251)], [])
    assert list(islice(index.verify(), 3)) == [500, 500, 500]
    for expected in ([500, 500, 250], [500, 500, 500, 500, 250]):
        assert list(index.verify()) == expected

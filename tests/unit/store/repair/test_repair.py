"""After a crash, bytes and rows agree; what a power cut took is told, and the rest is whole."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.errors import BadInput
from weft.records import FetchResult, Row
from weft.store.index.index_writer import SlotIndex
from weft.store.pages import PageStore
from weft.store.warc.warc_read import WarcScan

Pages = Callable[..., tuple[Row, FetchResult]]
Open = Callable[..., PageStore]


@pytest.fixture
def page() -> Pages:
    """Makes the n-th page."""

    def make(n: int, body: bytes = b"", head: bytes = b"", **changes: object) -> tuple[Row, FetchResult]:
        url = f"http://h{n % 7}.test/p{n}"
        body = body or b"<p>page %d</p>" % n * 8
        head = head or b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body)
        at = 1_794_000_000.25 + n
        fields: dict[str, object] = {
            "item": n, "crawl": 1, "url": url, "final_url": url, "status": 200, "fetched_at": at,
            "content_type": "text/html", "charset": "utf-8", "language": "en", "title": f"Page {n}", "depth": n % 4,
            "parent": n // 2, "digest": "", "length": len(body), "error": "",
        }  # fmt: skip
        request = f"GET /p{n} HTTP/1.1\r\nHost: h{n % 7}.test\r\nUser-Agent: Weft\r\n\r\n".encode()
        row = Row(**(fields | changes))  # type: ignore[arg-type]
        return row, FetchResult(row.url, 200, head, body, None, "", at, at + 0.1, "127.0.0.1", request)

    return make


@pytest.fixture
def open_store(tmp_path: Path) -> Open:
    """Opens the store in `tmp_path/data`."""

    def make(**options: object) -> PageStore:
        return PageStore.open([tmp_path / "data"], **({"crawl_id": "c1"} | options))  # type: ignore[arg-type]

    return make


@pytest.fixture
def fill(open_store: Open, page: Pages) -> Callable[..., Path]:
    """Stores pages one batch each, and lets go without a sync; returns the last WARC file."""

    def make(first: int, last: int, synced: bool = False, **options: object) -> Path:
        store = open_store(**options)
        for n in range(first, last + 1):
            store.add(*page(n))
            store.write()
            store.commit()
        if synced:
            store.sync()
            store.add(*page(999))
            store.write()
            store.commit()  # so that the index knows of the sync
        folder = store._shards[0].folder
        store.abandon()
        return max(folder.glob("*/*"))

    return make


def assert_agrees(store: PageStore, items: list[int]) -> None:
    """Exactly these items have a row, and exactly these have their bytes."""
    rows = {row.item: row for row in store.rows()}
    assert sorted(rows) == items
    for shard in store._shards:
        places = set()
        for file in shard.index.files():
            path = shard.folder / file.name
            assert (path.stat().st_size if path.exists() else 0) == file.length
            scan = WarcScan(path)
            places |= (
                {(file.name, at.offset, at.length) for at in scan if at.record.kind == "response"}
                if file.length
                else set()
            )
            assert not scan.torn
        assert places == {(row.warc_file, row.warc_offset, row.warc_length) for row in rows.values() if row.warc_file}


def test_a_tail_that_no_row_knows_is_cut(fill: Callable[..., Path], open_store: Open) -> None:
    path = fill(1, 3)
    with path.open("ab") as file:
        file.write(b"\x1f\x8b half a record")
    store = open_store()
    assert store.lost_pages_to_refetch() == []
    assert_agrees(store, [1, 2, 3])
    store.close()


def test_a_file_torn_at_every_byte_of_its_last_page_loses_that_page_alone(page: Pages) -> None:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        saved, torn = Path(folder) / "saved", Path(folder) / "torn"
        store = PageStore.open([saved], crawl_id="c1")
        for n in (1, 2, 3):
            store.add(*page(n))
            store.write()
            store.commit()
        second, third = (store.rows_of_url(page(n)[0].url)[0] for n in (2, 3))
        store.abandon()
        begin, end = second.warc_offset + second.warc_length, third.warc_offset + third.warc_length
        for cut in range(begin, end):
            shutil.copytree(saved, torn)
            os.truncate(torn / "warc" / third.warc_file, cut)
            store = PageStore.open([torn], crawl_id="c1")
            assert store.lost_pages_to_refetch() == [third]
            assert_agrees(store, [1, 2])
            store.abandon()
            shutil.rmtree(torn)


def _row(open_store: Open, url: str) -> Row:
    store = open_store(read_only=True)
    (row,) = store.rows_of_url(url)
    store.close()
    return row


@pytest.mark.parametrize("back", [1, 30, 200])
def test_zeros_where_the_last_record_should_be_are_found(
    fill: Callable[..., Path], open_store: Open, back: int
) -> None:
    path = fill(1, 4)
    size = path.stat().st_size
    os.truncate(path, size - back - 12)  # into the last record: the length at its end has zeros of its own
    os.truncate(path, size)
    store = open_store()
    assert [row.item for row in store.lost_pages_to_refetch()] == [4]
    assert_agrees(store, [1, 2, 3])
    store.close()


def test_a_hole_among_pages_that_were_never_synced_is_found(
    fill: Callable[..., Path], open_store: Open, page: Pages
) -> None:
    path = fill(1, 6)
    third = _row(open_store, page(3)[0].url)
    with path.open("r+b") as file:
        file.seek(third.warc_offset + 20)
        file.write(b"\0" * 40)
    store = open_store()
    assert [row.item for row in store.lost_pages_to_refetch()] == [3]
    assert_agrees(store, [1, 2, 4, 5, 6])
    store.close()


def test_pages_before_the_last_sync_are_not_read_again(
    fill: Callable[..., Path], open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(1, 50, synced=True)
    read: list[int] = []
    whole = os.pread

    def counting(fd: int, length: int, offset: int) -> bytes:
        read.append(offset)
        return whole(fd, length, offset)

    monkeypatch.setattr(os, "pread", counting)
    store = open_store()
    assert len(read) == 1
    store.abandon()


def test_after_a_clean_end_only_the_last_record_of_each_file_is_read(
    open_store: Open, page: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    for n in range(1, 50):
        store.add(*page(n))
    store.close()
    read: list[int] = []
    whole = os.pread

    def counting(fd: int, length: int, offset: int) -> bytes:
        read.append(offset)
        return whole(fd, length, offset)

    monkeypatch.setattr(os, "pread", counting)
    open_store().abandon()
    assert len(read) == 1


def test_damage_to_the_end_of_a_file_that_was_synced_is_found_too(open_store: Open, page: Pages) -> None:
    store = open_store()
    for n in (1, 2, 3):
        store.add(*page(n))
    store.close()
    (path,) = store_files(open_store)
    os.truncate(path, path.stat().st_size - 9)
    os.truncate(path, path.stat().st_size + 9)
    store = open_store()
    assert [row.item for row in store.lost_pages_to_refetch()] == [3]
    assert_agrees(store, [1, 2])
    assert store.stats().rows == 2
    store.close()


def store_files(open_store: Open) -> list[Path]:
    reader = open_store(read_only=True)
    folder = reader._corpus._data_dirs[0] / "warc"
    reader.close()
    return sorted(folder.glob("*/*"))


def test_a_file_that_is_gone_costs_its_rows(fill: Callable[..., Path], open_store: Open) -> None:
    path = fill(1, 5)
    path.unlink()
    store = open_store()
    assert [row.item for row in store.lost_pages_to_refetch()] == [1, 2, 3, 4, 5]
    assert list(store.rows()) == []
    store.close()


def test_a_file_of_which_only_a_part_of_the_warcinfo_is_left_begins_anew(
    fill: Callable[..., Path], open_store: Open, page: Pages
) -> None:
    path = fill(1, 2)
    os.truncate(path, 11)
    store = open_store()
    assert [row.item for row in store.lost_pages_to_refetch()] == [1, 2]
    assert path.stat().st_size == 0
    store.add(*page(1))
    store.write()
    store.commit()
    assert_agrees(store, [1])
    assert next(iter(WarcScan(path))).record.kind == "warcinfo"
    store.close()


def test_an_older_file_is_repaired_too(fill: Callable[..., Path], open_store: Open, page: Pages) -> None:
    fill(1, 20, rotate_bytes=2000)
    third = _row(open_store, page(3)[0].url)
    older = fill(0, -1).parents[1] / third.warc_file
    os.truncate(older, third.warc_offset + 10)
    store = open_store(rotate_bytes=2000)
    lost = [row.item for row in store.lost_pages_to_refetch()]
    assert lost and lost[0] == 3
    assert_agrees(store, [n for n in range(1, 21) if n not in lost])
    store.close()


def test_lost_rows_can_be_stored_again_and_batches_go_on(
    fill: Callable[..., Path], open_store: Open, page: Pages
) -> None:
    path = fill(1, 5)
    os.truncate(path, path.stat().st_size - 1)
    store = open_store()
    assert [row.item for row in store.lost_pages_to_refetch()] == [5]
    store.add(*page(5))
    store.write()
    assert store.commit() == 6
    assert store.items_since(5) == [5]
    assert_agrees(store, [1, 2, 3, 4, 5])
    store.close()


def test_without_its_index_a_slot_does_not_go_on(fill: Callable[..., Path], open_store: Open) -> None:
    path = fill(1, 3)
    for file in path.parents[2].glob("index-*.db*"):
        file.unlink()
    before = path.read_bytes()
    with pytest.raises(BadInput, match="is not in the index"):
        open_store()
    assert path.read_bytes() == before


def test_a_half_made_index_is_made_again(open_store: Open, tmp_path: Path, page: Pages) -> None:
    (tmp_path / "data").mkdir()
    db = sqlite3.connect(tmp_path / "data" / "index-pod0-fetcher0.db")
    db.execute("PRAGMA journal_mode = WAL")
    db.close()
    store = open_store()
    store.add(*page(1))
    store.close()
    assert [row.item for row in open_store(read_only=True).rows()] == [1]


# ── damage in the middle ───────────────────────────────────────────────────────────────────────────────────────────


def rows_of(open_store: Open) -> list[Row]:
    store = open_store(read_only=True)
    rows = list(store.rows())
    store.close()
    return rows


def spoil(path: Path, row: Row) -> None:
    """Damages a record so that it cannot be unpacked."""
    with path.open("r+b") as file:
        file.seek(row.warc_offset + 20)
        file.write(b"\xff" * 9)


def test_records_behind_a_break_are_not_cut_off(fill: Callable[..., Path], open_store: Open) -> None:
    path = fill(1, 8)
    rows, size = rows_of(open_store), path.stat().st_size
    for n in (2, 5):
        spoil(path, rows[n - 1])
    store = open_store()
    assert [row.item for row in store.lost_pages_to_refetch()] == [2, 5]
    assert path.stat().st_size == size
    (file,) = store._shards[0].index.files()
    assert (file.length, file.last) == (size, rows[7].warc_offset)
    assert_agrees(store, [1, 3, 4, 6, 7, 8])
    store.close()


def test_a_break_and_a_torn_end_cost_a_page_each_and_the_end_alone_is_cut(
    fill: Callable[..., Path], open_store: Open
) -> None:
    path = fill(1, 6)
    rows = rows_of(open_store)
    spoil(path, rows[1])
    os.truncate(path, path.stat().st_size - 1)
    store = open_store()
    assert [row.item for row in store.lost_pages_to_refetch()] == [2, 6]
    end = rows[4].warc_offset + rows[4].warc_length
    (file,) = store._shards[0].index.files()
    assert (file.length, file.last, path.stat().st_size) == (end, rows[4].warc_offset, end)
    assert_agrees(store, [1, 3, 4, 5])
    store.close()


def test_an_item_without_a_response_keeps_its_record_before_a_torn_one(open_store: Open, page: Pages) -> None:
    """A note has no place in the index, and its bytes are no less its own: a rebuild needs them."""
    store = open_store()
    store.add(*page(1))
    store.add(page(2, status=0, error="robots: x")[0], None)
    store.add(*page(3))
    store.close()
    (path,) = store_files(open_store)
    os.truncate(path, path.stat().st_size - 1)
    store = open_store()
    assert [row.item for row in store.lost_pages_to_refetch()] == [3]
    store.abandon()
    assert [place.record.kind for place in WarcScan(path)] == ["warcinfo", "request", "response", "metadata"]


def test_what_is_lost_is_reported_at_every_opening_until_it_is_queued_again(
    fill: Callable[..., Path], open_store: Open
) -> None:
    path = fill(1, 3)
    lost = rows_of(open_store)[1]
    spoil(path, lost)
    for _ in range(2):  # a process that dies before it has queued it
        store = open_store()
        assert store.lost_pages_to_refetch() == [lost]
        store.abandon()
    store = open_store()
    assert store.lost_pages_to_refetch() == [lost]
    store.forget_repaired()
    assert store.lost_pages_to_refetch() == []
    store.abandon()
    store = open_store()
    assert store.lost_pages_to_refetch() == []
    store.close()


def test_a_lost_page_that_is_there_in_another_copy_is_not_fetched_again(open_store: Open, page: Pages) -> None:
    url = page(1)[0].url
    copies = {10: 200, 11: 404, 12: 200}
    for kept, is_lost in ((10, False), (11, True), (12, False)):
        store = open_store(slot=f"slot{kept}")
        for item in (1, kept):
            store.add(*page(item, url=url, final_url=url, status=copies.get(item, 200), error=""))
            store.write()
            store.commit()
        index, folder = store._shards[0].index, store._shards[0].folder
        first = next(row for row in index.rows_in(1) if row.item == 1)
        store.abandon()
        spoil(folder / first.warc_file, first)
        store = open_store(slot=f"slot{kept}")
        assert [row.item for row in store.lost_pages_to_refetch()] == ([1] if is_lost else [])
        store.abandon()
        shutil.rmtree(folder.parent)


@pytest.mark.parametrize("error", ["truncated", "timeout"])
def test_half_a_page_does_not_stand_for_a_lost_one(open_store: Open, page: Pages, error: str) -> None:
    url = page(1)[0].url
    store = open_store()
    store.add(*page(1))
    store.add(*page(2, url=url, final_url=url, error=error))
    store.write()
    store.commit()
    first = store.rows_of_url(url)[0]
    store.abandon()
    spoil(store_files(open_store)[0], first)
    store = open_store()
    assert [row.item for row in store.lost_pages_to_refetch()] == [1]
    store.abandon()


# ── an index that is older than its files ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
def older(fill: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """Eight pages in the WARC file, of which the index has the first four: its log is gone."""

    def make(**options: object) -> Path:
        fill(1, 4, **options)
        index = tmp_path / "data" / "index-pod0-fetcher0.db"
        with sqlite3.connect(index) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        saved = index.read_bytes()
        path = fill(5, 8, **options)
        for old in index.parent.glob("index-pod0-fetcher0.db-*"):
            old.unlink()
        index.write_bytes(saved)
        return path

    return make


def test_rows_that_an_older_index_lacks_are_read_back(
    older: Callable[..., Path], open_store: Open, page: Pages
) -> None:
    path = older()
    store = open_store(acknowledged=7, is_done=lambda item: item <= 7)
    assert store.read_back == 3 and store.lost_pages_to_refetch() == []
    assert_agrees(store, [1, 2, 3, 4, 5, 6, 7])  # the eighth was not acknowledged, and is fetched again
    assert store.stats().rows == store.stats().pages == 7
    assert store.items_since(7) == [5, 6, 7]
    assert store.batch == 8
    store.add(*page(8))
    store.write()
    assert store.commit() == 9
    assert_agrees(store, [1, 2, 3, 4, 5, 6, 7, 8])
    store.abandon()
    store = open_store(acknowledged=9, is_done=lambda item: True)
    assert store.read_back == 0
    assert_agrees(store, [1, 2, 3, 4, 5, 6, 7, 8])
    store.close()
    assert path.exists()


def test_what_is_read_back_may_have_a_break_before_it(older: Callable[..., Path], open_store: Open) -> None:
    path = older()
    places = [place for place in WarcScan(path) if place.record.kind == "response"]
    with path.open("r+b") as file:
        file.seek(places[4].offset + 20)
        file.write(b"\xff" * 9)
    store = open_store(acknowledged=8, is_done=lambda item: True)
    assert store.read_back == 3
    assert_agrees(store, [1, 2, 3, 4, 6, 7, 8])
    store.close()


def test_an_index_that_has_every_acknowledged_batch_needs_nobody_to_know(
    fill: Callable[..., Path], open_store: Open
) -> None:
    path = fill(1, 4)
    with path.open("ab") as file:
        file.write(path.read_bytes())  # whole records behind the committed length, as a kill leaves them

    def is_done(item: int) -> bool:
        raise AssertionError("the journal is read through for nothing")

    store = open_store(acknowledged=4, is_done=is_done)
    assert_agrees(store, [1, 2, 3, 4])
    assert (store.batch, store.read_back) == (4, 0)
    store.close()


def test_an_older_index_is_refused_where_nobody_knows_what_is_done(
    older: Callable[..., Path], open_store: Open
) -> None:
    older()
    with pytest.raises(BadInput, match=r"index-pod0-fetcher0\.db is older than the crawl.*weft rebuild"):
        open_store(acknowledged=5)
    with pytest.raises(BadInput, match="older than the crawl"):
        open_store(acknowledged=5, is_done=lambda item: False, keep=("text",))
    open_store(acknowledged=4).close()


def test_an_older_index_is_refused_before_anything_is_cut(older: Callable[..., Path], open_store: Open) -> None:
    path = older()
    before = path.read_bytes()
    with pytest.raises(BadInput, match="older than the crawl"):
        open_store(acknowledged=5)
    assert path.read_bytes() == before


@pytest.mark.parametrize("gone", ["missing", "empty"])
def test_a_crawl_that_has_stored_something_does_not_go_on_without_an_index(
    open_store: Open, tmp_path: Path, page: Pages, gone: str
) -> None:
    store = open_store(keep=("text",))
    store.add(*page(1), text="x")
    store.close()
    index = tmp_path / "data" / "index-pod0-fetcher0.db"
    index.unlink()
    if gone == "empty":
        index.touch()
    with pytest.raises(BadInput, match=r"index-pod0-fetcher0\.db is missing or empty.*weft rebuild"):
        open_store(keep=("text",), acknowledged=1)
    assert index.exists() == (gone == "empty") and (gone == "missing" or not index.stat().st_size)
    open_store(keep=("text",), acknowledged=0).close()  # nothing was committed yet


def test_a_rebuilt_index_is_not_taken_for_an_older_one(fill: Callable[..., Path], open_store: Open) -> None:
    fill(1, 4)
    store = open_store()
    store._shards[0].index.note_rebuilt()
    store.abandon()
    store = open_store(acknowledged=90)
    assert store.batch == 90
    store.abandon()
    store = open_store(acknowledged=90)  # the number is kept, also where nothing was committed since
    assert store.batch == 90
    store.abandon()
    with pytest.raises(BadInput, match="older than the crawl"):
        open_store(acknowledged=91)


def test_an_opening_of_what_is_whole_takes_nothing_out_and_counts_nothing_anew(
    fill: Callable[..., Path], open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting all rows again takes seconds where there are millions."""
    path = fill(1, 20, rotate_bytes=2000)
    store = open_store()
    store._shards[0].index.register(
        "1/weft-c1-pod0-fetcher0-00099.warc.gz"
    )  # as a kill leaves one that was not made yet
    store.abandon()
    with path.open("ab") as file:
        file.write(b"half a record")

    def lose(*_: object) -> None:
        raise AssertionError("nothing is lost")

    monkeypatch.setattr(SlotIndex, "move_to_lost", lose)
    store = open_store()
    assert_agrees(store, list(range(1, 21)))
    store.close()

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
from weft.store.pages import PageStore
from weft.store.warc_read import WarcScan

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
        return max(folder.iterdir())

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
    assert store.repair() == []
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
        second, third = (store.for_url(page(n)[0].url)[0] for n in (2, 3))
        store.abandon()
        begin, end = second.warc_offset + second.warc_length, third.warc_offset + third.warc_length
        for cut in range(begin, end):
            shutil.copytree(saved, torn)
            os.truncate(torn / "warc" / third.warc_file, cut)
            store = PageStore.open([torn], crawl_id="c1")
            assert store.repair() == [third]
            assert_agrees(store, [1, 2])
            store.abandon()
            shutil.rmtree(torn)


def _row(open_store: Open, url: str) -> Row:
    store = open_store(read_only=True)
    (row,) = store.for_url(url)
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
    assert [row.item for row in store.repair()] == [4]
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
    assert [row.item for row in store.repair()] == [3]
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
    assert [row.item for row in store.repair()] == [3]
    assert_agrees(store, [1, 2])
    assert store.stats().rows == 2
    store.close()


def store_files(open_store: Open) -> list[Path]:
    reader = open_store(read_only=True)
    folder = reader._corpus._data_dirs[0] / "warc"
    reader.close()
    return sorted(folder.iterdir())


def test_a_file_that_is_gone_costs_its_rows(fill: Callable[..., Path], open_store: Open) -> None:
    path = fill(1, 5)
    path.unlink()
    store = open_store()
    assert [row.item for row in store.repair()] == [1, 2, 3, 4, 5]
    assert list(store.rows()) == []
    store.close()


def test_a_file_of_which_only_a_part_of_the_warcinfo_is_left_begins_anew(
    fill: Callable[..., Path], open_store: Open, page: Pages
) -> None:
    path = fill(1, 2)
    os.truncate(path, 11)
    store = open_store()
    assert [row.item for row in store.repair()] == [1, 2]
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
    older = fill(0, -1).parent / third.warc_file
    os.truncate(older, third.warc_offset + 10)
    store = open_store(rotate_bytes=2000)
    lost = [row.item for row in store.repair()]
    assert lost and lost[0] == 3
    assert_agrees(store, [n for n in range(1, 21) if n not in lost])
    store.close()


def test_lost_rows_can_be_stored_again_and_batches_go_on(
    fill: Callable[..., Path], open_store: Open, page: Pages
) -> None:
    path = fill(1, 5)
    os.truncate(path, path.stat().st_size - 1)
    store = open_store()
    assert [row.item for row in store.repair()] == [5]
    store.add(*page(5))
    store.write()
    assert store.commit() == 6
    assert store.items_since(5) == [5]
    assert_agrees(store, [1, 2, 3, 4, 5])
    store.close()


def test_without_its_index_a_slot_does_not_go_on(fill: Callable[..., Path], open_store: Open) -> None:
    path = fill(1, 3)
    for file in path.parent.parent.glob("index-*.db*"):
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

"""An index of one data dir among several that has lost its last rows is noticed, whatever the others have."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.errors import BadInput
from weft.records import FetchResult, Row
from weft.store.pages import PageStore

INDEX = "index-pod0-parser0.db"
DIRS = 3


@pytest.fixture
def open_store(tmp_path: Path) -> Callable[..., PageStore]:
    """Opens the store, as a process of a pod on Redis does: nobody here knows what is done."""

    def make(**options: object) -> PageStore:
        folders = [tmp_path / f"d{n}" for n in range(DIRS)]
        return PageStore.open(folders, **({"crawl_id": "c1", "slot": "pod0-parser0"} | options))  # type: ignore[arg-type]

    return make


@pytest.fixture
def fill(open_store: Callable[..., PageStore]) -> Callable[..., int]:
    """Stores pages, one batch each, as a process that is killed leaves them; gives the last batch that is synced."""

    def make(first: int, last: int, **options: object) -> int:
        store = open_store(**options)
        for n in range(first, last + 1):
            store.add(*_page(n), text="text")
            store.write()
            store.commit()
        batch = store.sync()
        store.abandon()
        return batch

    return make


def _page(n: int) -> tuple[Row, FetchResult]:
    url, body, at = f"http://h.test/p{n}", b"<p>page %d</p>" % n, 1_794_000_000.0 + n
    row = Row(n, 1, url, url, 200, at, "text/html", "utf-8", "en", "", 1, 0, "", len(body), "")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body)
    return row, FetchResult(url, 200, head, body, None, "", at, at, "127.0.0.1", b"GET / HTTP/1.1\r\n\r\n")


def _saved(index: Path) -> bytes:
    with sqlite3.connect(index) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return index.read_bytes()


def _files(tmp_path: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in tmp_path.glob("d*/warc/*/*.gz")}


@pytest.mark.parametrize("keep", [("warc",), ("text",)])
@pytest.mark.parametrize("place", range(DIRS))
def test_an_index_without_its_log_is_refused_and_nothing_is_cut(
    open_store: Callable[..., PageStore], fill: Callable[..., int], tmp_path: Path, place: int, keep: tuple[str, ...]
) -> None:
    fill(1, 20, keep=keep)
    index = tmp_path / f"d{place}" / INDEX
    saved = _saved(index)
    acknowledged = fill(21, 40, keep=keep)
    for log in index.parent.glob(f"{INDEX}-*"):
        log.unlink()
    index.write_bytes(saved)
    before = _files(tmp_path)
    with pytest.raises(BadInput, match=rf"d{place}/{INDEX} is older than the crawl.*weft rebuild"):
        open_store(keep=keep, acknowledged=acknowledged)
    assert _files(tmp_path) == before


@pytest.mark.parametrize("gone", ["missing", "empty"])
def test_a_data_dir_without_its_index_is_refused(
    open_store: Callable[..., PageStore], fill: Callable[..., int], tmp_path: Path, gone: str
) -> None:
    acknowledged = fill(1, 9, keep=("text",))
    index = tmp_path / "d1" / INDEX
    index.unlink()
    if gone == "empty":
        index.touch()
    with pytest.raises(BadInput, match=rf"d1/{INDEX} is missing or empty.*weft rebuild"):
        open_store(keep=("text",), acknowledged=acknowledged)
    assert index.exists() == (gone == "empty"), "nothing was made"


def test_data_dirs_that_got_no_row_for_long_are_whole(
    open_store: Callable[..., PageStore], fill: Callable[..., int]
) -> None:
    fill(1, 3)
    acknowledged = fill(3, 4)
    store = open_store(acknowledged=acknowledged)
    assert sorted(row.item for row in store.rows()) == [1, 2, 3, 4]
    store.close()

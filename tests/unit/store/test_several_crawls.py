"""The index of an engine: numbers without gap or repeat, one crawl by itself, deletion in pieces."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from weft.errors import BadInput
from weft.records import FetchResult, Row
from weft.store.errors import DamagedIndex
from weft.store.index import schema
from weft.store.index.index_writer import CrawlChange, SlotIndex
from weft.store.index.query import IndexReader
from weft.store.pages import PageStore

FACTS = {"crawl_id": "c", "data_dirs": 1, "data_dir": 0}


def row(item: int, crawl: int, url: str = "") -> Row:
    url = url or f"http://h{crawl}.test/{item}"
    return Row(item, crawl, url, url, 200, 1e9 + item, "text/html", "utf-8", "en", f"Title {item}", 0, 0, "", 3, "", 0)


def answer(one: Row) -> FetchResult:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
    return FetchResult(one.url, 200, head, b"abc", None, "", 0.0, 1.0, "127.0.0.1", b"GET / HTTP/1.1\r\n\r\n")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., PageStore]]:
    made: list[PageStore] = []

    def open_store(step: Callable[[str], None] = lambda _: None) -> PageStore:
        for old in made:
            old.abandon()
        made.append(PageStore.open([tmp_path], crawl_id="c", slot="s", step=step))
        return made[-1]

    yield open_store
    made[-1].abandon()


def fill(store: PageStore, crawls: dict[int, range]) -> None:
    for crawl, items in crawls.items():
        store.change(CrawlChange(crawl, f"crawl {crawl}", b"record", 1.0, "open"))
        for item in items:
            store.add(row(item, crawl), answer(row(item, crawl)))
    store.write()
    store.commit()


def forget(store: PageStore, crawl: int) -> None:
    while not store.forget_crawls([crawl], 4):
        pass


def numbers(store: PageStore, crawl: int) -> list[int]:
    found = [number for number, _ in store.numbered(crawl, 0, 10_000)]
    return sorted(found + [number for number, *_ in store.changes(crawl, 0, 10_000)])


def test_each_crawl_counts_its_rows_and_changes_by_itself(opened: Callable[..., PageStore]) -> None:
    store = opened()
    fill(store, {1: range(1, 4), 2: range(4, 6)})
    store.change(CrawlChange(2, "crawl 2", b"record", 2.0, "ended", "done"))
    store.change(CrawlChange(1, "crawl 1", b"another"))  # what is known of it changes, and nothing has happened
    store.commit()
    assert numbers(store, 1) == [1, 2, 3, 4] and numbers(store, 2) == [1, 2, 3, 4]
    assert (store.last_number(1), store.last_number(2), store.last_number(3)) == (4, 4, 0)
    assert store.changes(2, 0, 9) == [(3, 1.0, "open", ""), (4, 2.0, "ended", "done")]
    assert {number: record for number, _, record in store.crawls()} == {1: b"another", 2: b"record"}
    assert [one.item for _, one in store.numbered(1, 1, 1)] == [2]
    store = opened()
    fill(store, {1: range(6, 8)})
    assert numbers(store, 1) == [1, 2, 3, 4, 5, 6, 7], "numbers go on after a restart"


def test_all_crawls_are_read_in_the_order_of_the_commits_and_a_place_is_kept(opened: Callable[..., PageStore]) -> None:
    store = opened()
    fill(store, {1: range(1, 4), 2: range(4, 7)})
    fill(store, {2: range(7, 9)})
    before = store.batches(0, 100)
    assert [batch for batch, *_ in before] == [1] * 8 + [2] * 3
    assert [place for _, place, _, _ in before] == [*range(1, 9), *range(1, 4)]
    assert store.batches(1, 100) == before[8:] and store.batches(0, 1) == before[:8] and store.batches(2, 1) == []
    while not store.forget_crawls([1], 2):
        pass
    assert store.batches(0, 100) == [entry for entry in before if entry[2] == 2], "the others stay where they were"


def test_small_crawls_are_deleted_together_in_as_many_pieces_as_one(
    opened: Callable[..., PageStore], tmp_path: Path
) -> None:
    store = opened()
    fill(store, {crawl: range(crawl * 10, crawl * 10 + 3) for crawl in range(1, 31)})
    some = [*range(1, 3), *range(4, 31)]
    assert not store.forget_crawls(some, 500)
    assert store.forget_crawls(some, 500)
    assert [number for number, *_ in store.crawls()] == [3] and store.stats().pages == 3, "not 3 for 30"
    assert [path.name for path in (tmp_path / "warc").iterdir()] == ["3"]
    assert [one.item for _, one in store.numbered(3, 0, 9)] == [30, 31, 32]
    assert opened().stats().pages == 3


def test_one_crawl_is_found_counted_and_deleted_without_the_other(
    opened: Callable[..., PageStore], tmp_path: Path
) -> None:
    store = opened()
    same = "http://same.test/"
    fill(store, {1: range(1, 30), 2: range(30, 33)})
    for item, crawl in ((100, 1), (101, 2)):
        store.add(row(item, crawl, same), answer(row(item, crawl, same)))
    store.write()
    store.commit()
    assert [one.item for one in store.rows_of_url(same, 2)] == [101] and len(store.rows_of_url(same)) == 2
    assert (store.stats(crawl=1).pages, store.stats(crawl=2).pages, store.stats().pages) == (30, 4, 34)
    pieces = 0
    while not store.forget_crawls([1], 10):
        pieces += 1
        assert store.stats(crawl=2).pages == 4
    assert pieces == 3 and not (tmp_path / "warc" / "1").exists()
    assert store.stats().rows == 4 and [one.item for one in store.rows_of_url(same)] == [101]
    assert [number for number, *_ in store.crawls()] == [2] and numbers(store, 1) == []
    page = store.latest_page(same, 2)
    assert page is not None and page.http is not None and page.http.body == b"abc"


@pytest.mark.parametrize("where", ["rows-forgotten", "files-forgotten"])
def test_a_kill_in_the_middle_of_a_deletion_is_taken_up(
    opened: Callable[..., PageStore], tmp_path: Path, where: str
) -> None:
    class Killed(Exception):
        pass

    def die(step: str) -> None:
        if step == where:
            raise Killed

    store = opened(die)
    fill(store, {1: range(1, 10), 2: range(10, 13)})
    with pytest.raises(Killed):
        forget(store, 1)
    store = opened()  # it repairs what is there, and does not count what is being deleted as lost
    assert store.lost_pages_to_refetch() == []
    assert [number for number, *_ in store.crawls()] == [1, 2], "it is known until all of it is gone"
    forget(store, 1)
    assert [number for number, *_ in store.crawls()] == [2] and store.stats().rows == 3
    assert not (tmp_path / "warc" / "1").exists() and len(list(store.rows())) == 3
    store.sync()
    with closing(sqlite3.connect(tmp_path / "index-s.db")) as db:
        for table in ("pages", "changes", "tally", "files"):
            assert not db.execute(f"SELECT 1 FROM {table} WHERE crawl = 1").fetchone(), table


def test_another_layout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index-s.db"
    SlotIndex(path, FACTS).close()
    for version in (3, 10):
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (version,))
            db.commit()
        with pytest.raises(BadInput, match=f"has layout {version}, this Weft reads layout 9"):
            SlotIndex(path, FACTS)


def test_a_flipped_bit_in_fields_is_found(tmp_path: Path) -> None:
    path = tmp_path / "index-s.db"
    with closing(SlotIndex(path, FACTS)) as index:
        values = schema.values_of(msgspec.structs.replace(row(4, 1), fields='{"fields":{"a":1}}'), "", None, 0, 0)
        index.commit(1, 1, [values], [])
    with closing(sqlite3.connect(path)) as db:
        db.execute("""UPDATE pages SET fields = '{"fields":{"a":3}}'""")
        db.commit()
    with closing(IndexReader(path)) as reader, pytest.raises(DamagedIndex, match="item 4"):
        list(reader.rows())

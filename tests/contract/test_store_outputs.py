"""What a user's code has made of a page: committed with the page's row, read in the order of the commits, found again
by a rebuild; and rows of other requests than a GET, which stand beside the pages of their URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from weft.records import FetchResult, Row, RowOutput
from weft.store.errors import DamagedIndex
from weft.store.pages import PageStore
from weft.store.repair.rebuild import Rebuild

POST = "POST " + "ab" * 32


def page(n: int, url: str = "", status: int = 200, **changes: object) -> tuple[Row, FetchResult]:
    url, at, body = url or f"http://h{n % 7}.test/p{n}", 1_794_000_000.25 + n, b"<p>page %d</p>" % n
    row = Row(n, 1, url, url, status, at, "text/html", "utf-8", "", f"Page {n}", 1, 0, "", len(body), "")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
    result = FetchResult(url, status, head, body, None, "", at, at + 0.1, "127.0.0.1", b"GET / HTTP/1.1\r\n\r\n")
    return msgspec.structs.replace(row, **changes), result


def output(text: str, count: int = 1) -> RowOutput:
    return RowOutput(count, text.encode())


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., PageStore]]:
    opened: list[PageStore] = []

    def open_it(**options: object) -> PageStore:
        opened.append(PageStore.open([tmp_path / "a", tmp_path / "b"], crawl_id="c", **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_it
    for store in opened:
        store.abandon()


def add(store: PageStore, numbers: range, counts: int = 1) -> None:
    for n in numbers:
        store.add(*page(n), output=output(f"made of {n}", counts))
    store.write()
    store.commit()


def read(store: PageStore, seen: dict[Path, int] | None = None) -> dict[int, str]:
    return {item: one.data.decode() for item, one in store.new_outputs({} if seen is None else seen)}


def test_outputs_are_read_in_pieces_and_once(make: Callable[..., PageStore]) -> None:
    store, seen = make(), dict[Path, int]()
    add(store, range(1, 40))
    reader = make(read_only=True)
    assert read(reader, seen) == {n: f"made of {n}" for n in range(1, 40)}
    assert read(reader, seen) == {}
    add(store, range(40, 60))
    assert read(reader, seen) == {n: f"made of {n}" for n in range(40, 60)}
    assert reader.items_made() == 59
    assert reader.outputs_of([3, 99]) == {3: output("made of 3")}


def test_outputs_without_items_are_kept_and_not_listed(make: Callable[..., PageStore]) -> None:
    store = make()
    add(store, range(1, 4), counts=0)
    assert read(store) == {}
    assert store.outputs_of([2]) == {2: output("made of 2", 0)}


def test_a_forgotten_page_takes_its_output_along(make: Callable[..., PageStore]) -> None:
    store = make()
    store.add(*page(1), output=output("one"))
    store.add(*page(2), output=output("two"))
    store.forget([1])
    store.write()
    store.commit()
    assert read(store) == {2: "two"}
    while not store.forget_crawls([1]):
        pass
    assert read(store) == {}


def test_what_is_not_committed_is_gone_after_a_kill(make: Callable[..., PageStore], tmp_path: Path) -> None:
    store = make()
    add(store, range(1, 5))
    store.add(*page(9), output=output("nine"))
    store.write()
    store.abandon()
    assert read(make()) == {n: f"made of {n}" for n in range(1, 5)}


def test_a_rebuild_restores_outputs(make: Callable[..., PageStore], tmp_path: Path) -> None:
    store = make()
    add(store, range(1, 30))
    row, _ = page(30, status=0, error="timeout")
    store.add(row, None, output=output("of a failure"))
    store.write()
    store.commit()
    store.close()
    for folder in ("a", "b"):
        for path in (tmp_path / folder).glob("index-*"):
            path.unlink()
    Rebuild([tmp_path / "a", tmp_path / "b"], "c").run()
    assert read(make(read_only=True)) == {n: f"made of {n}" for n in range(1, 30)} | {30: "of a failure"}


def test_a_damaged_output_is_no_other_one(make: Callable[..., PageStore], tmp_path: Path) -> None:
    store = make()
    add(store, range(1, 2))
    store.close()
    import sqlite3

    for path in [*(tmp_path / "a").glob("index-*.db"), *(tmp_path / "b").glob("index-*.db")]:
        with sqlite3.connect(path) as db:
            db.execute("UPDATE outputs SET record = CAST(record || x'00' AS BLOB)")
            db.execute("UPDATE outputs SET record = x'00000000' || substr(record, 5)")
    with pytest.raises(DamagedIndex):
        read(make(read_only=True))


def test_other_requests_stand_beside_the_pages_of_their_url(make: Callable[..., PageStore]) -> None:
    store, url = make(), "http://h1.test/form"
    store.add(*page(1, url=url))
    store.add(*page(2, url=url, request=POST))
    store.add(*page(3, url=url, request=POST[:-1] + "c"))
    store.write()
    store.commit()
    store.sync(last=True)
    reader = make(read_only=True)
    rows = reader.rows_of_url(url)
    assert [(row.item, row.method, row.request_digest[-2:]) for row in rows] == [
        (1, "GET", ""), (2, "POST", "ab"), (3, "POST", "ac"),
    ]  # fmt: skip
    latest = reader.row_of(url)
    assert latest is not None
    assert latest.item == 1
    assert reader.current().urls == 3
    assert [visits[-1].item for _, visits in reader.with_visits(rows)] == [1, 2, 3]
    assert reader.known_pages().find([url])[url].row.item == 1


def test_a_rebuild_restores_what_was_asked(make: Callable[..., PageStore], tmp_path: Path) -> None:
    store, url = make(), "http://h1.test/form"
    store.add(*page(1, url=url))
    store.add(*page(2, url=url, request=POST))
    store.write()
    store.commit()
    store.close()
    Rebuild([tmp_path / "a", tmp_path / "b"], "c").run()
    assert [row.request for row in make(read_only=True).rows_of_url(url)] == ["", POST]

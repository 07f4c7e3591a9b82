"""The pages of earlier visits, looked up for a claim at once: the latest whole one, and none that is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.records import FetchResult, Row
from weft.store.pages import PageStore

URLS = [f"http://a.test/{number}" for number in range(40)]


def add(store: PageStore, item: int, url: str, *, status: int = 200, error: str = "", at: float = 0.0) -> None:
    head = f'HTTP/1.1 {status} X\r\nETag: "{item}"\r\n\r\n'.encode()
    row = Row(item, 1, url, url, status, at or float(item), "text/html", "", "", "", 0, 0, "", 9, error)
    store.add(row, FetchResult(url, status, head, b"body %d" % item * 50, None, "", 1.0, 2.0, "", b""))


def committed(store: PageStore) -> None:
    store.write()
    store.commit()


@pytest.fixture(params=[1, 3])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[PageStore]:
    made = PageStore.open([tmp_path / f"data{number}" for number in range(request.param)], crawl_id="c")
    for number, url in enumerate(URLS):
        add(made, 1 + number, url)
    committed(made)
    yield made
    made.close()


def etags(store: PageStore, urls: list[str]) -> dict[str, str]:
    known = store.known_pages()
    found = {url: page.head.partition(b'"')[2].partition(b'"')[0].decode() for url, page in known.find(urls, 1).items()}
    known.close()
    return found


@pytest.mark.parametrize("folded", [False, True])
def test_each_known_page_is_found_with_its_head(store: PageStore, folded: bool) -> None:
    if folded:
        store.sync(last=True)
    assert etags(store, [*URLS, "http://a.test/unknown"]) == {url: str(1 + at) for at, url in enumerate(URLS)}


def test_the_latest_whole_page_counts(store: PageStore) -> None:
    add(store, 101, URLS[0])
    add(store, 102, URLS[0], error="truncated")
    add(store, 103, URLS[0], status=404)
    add(store, 104, URLS[1], at=0.5)
    committed(store)
    assert etags(store, URLS[:2]) == {URLS[0]: "101", URLS[1]: "2"}
    assert store.known_pages().find(URLS[:1], 7) == {}, "another crawl's"


def test_what_came_after_the_start_is_not_looked_for(store: PageStore) -> None:
    known = store.known_pages()
    add(store, 101, "http://a.test/new")
    committed(store)
    assert known.find(["http://a.test/new"]) == {}


def test_a_damaged_copy_is_not_known(store: PageStore) -> None:
    row = store.known_pages().find([URLS[5]])[URLS[5]].row
    path = next(path for path in Path(store._corpus._data_dirs[0]).parent.glob(f"*/warc/{row.warc_file}"))
    data = bytearray(path.read_bytes())
    data[row.warc_offset + row.warc_length - 20] ^= 0xFF
    path.write_bytes(data)
    assert etags(store, [URLS[5], URLS[6]]) == {URLS[6]: "7"}
    path.unlink()
    assert etags(store, [URLS[5]]) == {}


def test_rows_come_with_all_visits_of_their_url(store: PageStore) -> None:
    add(store, 101, URLS[0], status=404)
    committed(store)
    found = {row.item: [visit.item for visit in visits] for row, visits in store.with_visits(store.rows())}
    assert found[1] == found[101] == [1, 101] and found[2] == [2] and len(found) == 41

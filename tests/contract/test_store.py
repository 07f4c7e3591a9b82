"""What the engine may rely on from a page store, over one data dir and over several."""

from __future__ import annotations

import gzip
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator

from weft import urls
from weft.errors import BadInput, Busy, DiskFull
from weft.records import FetchResult, Row
from weft.store.index.query import RowFilter
from weft.store.pages import PageStore

Open = Callable[..., PageStore]


def page(
    n: int, body: bytes = b"", headers: bytes = b"", status: int = 200, **changes: object
) -> tuple[Row, FetchResult]:
    url = str(changes.pop("url", f"http://h{n % 7}.test/p{n}"))
    body = body or b"<p>page %d</p>" % n * 8
    head = b"HTTP/1.1 %d Fine\r\nContent-Type: text/html\r\n" % status + headers + b"\r\n"
    at = 1_794_000_000.25 + n
    fields: dict[str, object] = {
        "item": n, "crawl": 1, "url": url, "final_url": url, "status": status, "fetched_at": at,
        "content_type": "text/html", "charset": "utf-8", "language": "en", "title": f"Page {n}", "depth": n % 4,
        "parent": n // 2, "digest": "", "length": len(body), "error": "",
    }  # fmt: skip
    request = f"GET /p{n} HTTP/1.1\r\nHost: h{n % 7}.test\r\n\r\n".encode()
    row = Row(**(fields | changes))  # type: ignore[arg-type]
    return row, FetchResult(url, status, head, body, None, "", at, at + 0.1, "127.0.0.1", request)


def denied(n: int) -> Row:
    return page(n, status=0, error="robots")[0]


def keep(store: PageStore, *pages: tuple[Row, FetchResult | None]) -> int:
    for row, result in pages:
        store.add(row, result)
    store.write()
    return store.commit()


@pytest.fixture(params=[1, 2, 3], ids="{} data dirs".format)
def data_dirs(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    return [tmp_path / f"data{n}" for n in range(request.param)]


@pytest.fixture
def open_store(data_dirs: list[Path]) -> Iterator[Open]:
    opened: list[PageStore] = []

    def make(**options: object) -> PageStore:
        opened.append(PageStore.open(data_dirs, **({"crawl_id": "c1", "software": "Weft/9"} | options)))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for store in opened:
        store.abandon()


def warc_files(data_dirs: list[Path]) -> list[Path]:
    return sorted(path for folder in data_dirs for path in (folder / "warc").glob("*/*"))


def test_it_is_what_the_engine_asks_for(open_store: Open) -> None:
    store = open_store()
    assert store.commit() == 0


def test_a_page_is_seen_when_it_is_committed_and_not_before(open_store: Open) -> None:
    store = open_store()
    row, result = page(1)
    store.add(row, result)
    assert store.latest_page(row.url) is None
    store.write()
    assert store.latest_page(row.url) is None
    assert store.commit() == 1
    found = store.latest_page(row.url)
    assert found and found.http
    assert found.http.body == result.body
    assert found.row.title == "Page 1"
    assert found.row.digest.startswith("sha1:")


def test_commit_without_write_commits_nothing(open_store: Open) -> None:
    store = open_store()
    store.add(*page(1))
    assert store.commit() == 0
    assert list(store.rows()) == []
    store.write()
    assert store.commit() == 1


def test_everything_is_there_after_closing_and_opening(open_store: Open, data_dirs: list[Path]) -> None:
    store = open_store()
    keep(store, *(page(n) for n in range(1, 30)))
    store.add(*page(30))
    store.close()
    store = open_store()
    assert [row.item for row in store.rows()] == list(range(1, 31))
    assert store.lost_pages_to_refetch() == []
    assert keep(store, page(31)) == 3
    assert len(warc_files(data_dirs)) == len(data_dirs)
    for row in store.rows():
        read = store.read_page(row).http
        assert read and read.body == page(row.item)[1].body


def test_a_page_lies_in_the_data_dir_of_its_url(open_store: Open, data_dirs: list[Path]) -> None:
    store = open_store()
    keep(store, *(page(n) for n in range(1, 30)))
    for row in store.rows():
        folder = data_dirs[urls.data_dir_of(row.url, len(data_dirs))]
        assert (folder / "warc" / row.warc_file).exists()
    assert len({path.name for path in warc_files(data_dirs)}) == len(data_dirs)  # no name twice


def test_an_item_has_one_row_and_one_record_however_often_it_is_added(open_store: Open, data_dirs: list[Path]) -> None:
    store = open_store()
    store.add(*page(1))
    store.add(*page(1, body=b"again in memory"))
    store.write()
    store.add(*page(1, body=b"again before the commit"))
    store.write()
    store.commit()
    keep(store, page(1, body=b"again after it"), page(2))
    store.close()
    store = open_store()
    keep(store, page(1, body=b"again after opening"))
    assert [row.item for row in store.rows()] == [1, 2]
    records = [record for path in warc_files(data_dirs) for record in FastIterator(str(path))]
    assert sorted(record.headers["WARC-Type"] for record in records if record.headers["WARC-Type"] != "warcinfo") == [
        "request", "request", "response", "response",
    ]  # fmt: skip


def test_items_since_a_batch(open_store: Open) -> None:
    store = open_store()
    first = keep(store, page(1), page(2))
    second = keep(store, page(3), (denied(4), None))
    assert second > first
    assert store.items_since(first) == [3, 4]
    assert store.items_since(0) == [1, 2, 3, 4]
    assert store.items_since(second) == []
    assert store.commit() == second  # nothing new, no new number


def test_sync_says_what_a_power_cut_cannot_take(open_store: Open) -> None:
    store = open_store()
    assert (store.durable, store.sync()) == (0, 0)
    keep(store, page(1))
    assert store.durable == 0
    assert store.sync() == store.durable == 1
    store.abandon()
    assert open_store().durable == 1


def test_bytes_reach_the_disk_before_their_rows(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store()
    keep(store, *(page(n) for n in range(1, 30)))
    synced: list[str] = []
    whole = os.fdatasync

    def noting(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().suffix)
        whole(fd)

    monkeypatch.setattr(os, "fdatasync", noting)
    store.sync()
    dirs = len(synced) // 2
    assert synced == [".gz"] * dirs + [".db-wal"] * dirs and dirs


def test_a_new_file_is_known_on_the_disk_before_it_is_made(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    whole = os.fdatasync

    def noting(fd: int) -> None:
        done.append(Path(f"/proc/self/fd/{fd}").readlink().suffix)
        whole(fd)

    store = open_store(rotate_bytes=100, step=done.append)
    keep(store, page(1))
    monkeypatch.setattr(os, "fdatasync", noting)
    done.clear()
    keep(store, page(2, url="http://h1.test/p1"))  # the same data dir again
    # The full file's bytes before the index, whose log also holds their rows.
    assert done[:4] == [".gz", ".db-wal", "warc-registered", "warc-opened"]


def test_a_commit_that_failed_in_one_data_dir_does_not_lend_its_number(
    open_store: Open, data_dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    for n in range(1, 30):
        store.add(*page(n))
    store.write()

    def full(*_: object) -> None:
        raise DiskFull(data_dirs[-1])

    with monkeypatch.context() as patched:
        patched.setattr(store._shards[-1].index, "commit", full)
        with pytest.raises(DiskFull):
            store.commit()
    assert store.batch == store.sync() == 0
    assert keep(store, *(page(n) for n in range(30, 60))) == 2
    assert store.items_since(0) == [row.item for row in store.rows()] == list(range(1, 60))
    assert store.stats().rows == 59


def test_new_rows_are_followed_as_they_are_committed(open_store: Open) -> None:
    first, second = open_store(slot="a"), open_store(slot="b")
    keep(first, page(1))
    keep(second, page(2))
    reader = open_store(read_only=True)
    seen: dict[Path, int] = {}
    assert sorted(row.item for row in reader.new_rows(seen)) == [1, 2]
    assert list(reader.new_rows(seen)) == []
    for start in range(10, 3000, 500):
        keep(first, *((denied(n), None) for n in reversed(range(start, start + 500))))
    keep(second, page(5))
    assert sorted(row.item for row in reader.new_rows(seen)) == [5, *range(10, 3010)]
    assert list(reader.new_rows(seen)) == []


def test_rows_without_a_response_have_no_bytes(open_store: Open) -> None:
    store = open_store()
    row, result = page(2, status=0, error="timeout")
    failed = FetchResult(result.url, 0, b"", b"", "timeout", "", 1.0, 2.0, "", b"")
    keep(store, (denied(1), None), (row, failed), page(3))
    assert [row.item for row in store.rows(RowFilter(stored=False))] == [1, 2]
    found = store.latest_page(row.url)
    assert found and found.record is None and found.http is None
    assert found.row.error == "timeout"


def test_parents_are_items(open_store: Open) -> None:
    store = open_store()
    keep(store, page(4), page(9))
    assert [store.url_of(row.parent) for row in store.rows()] == [None, "http://h4.test/p4"]


def test_the_latest_stored_page_of_a_url_is_got(open_store: Open) -> None:
    store = open_store()
    url = "http://same.test/"
    keep(store, page(1, body=b"old", url=url), page(2, body=b"new", url=url))
    keep(store, (page(3, url=url, error="timeout")[0], None))
    found = store.latest_page(url)
    assert found and found.http and found.http.body == b"new"
    assert [row.item for row in store.rows_of_url(url)] == [1, 2, 3]
    assert store.latest_page("http://other.test/") is None


COMPRESSED = gzip.compress(b"<p>hello</p>" * 50)


@pytest.mark.parametrize(
    ("headers", "body", "stored"),
    [
        (b"Content-Encoding: gzip\r\n", COMPRESSED, [("Content-Encoding", "gzip")]),
        (b"Transfer-Encoding: chunked\r\n", b"joined", [("X-Weft-Transfer-Encoding", "chunked")]),
        (
            b"Set-Cookie: a=1\r\nset-cookie: b=2\r\nSet-Cookie: a=1\r\n",
            b"x",
            [("Set-Cookie", "a=1"), ("set-cookie", "b=2"), ("Set-Cookie", "a=1")],
        ),
        (b"Content-Length: 1000\r\n", b"short", [("X-Weft-Content-Length", "1000")]),
        (b"X-Empty:\r\n", b"\r\n\r\nbody begins with empty lines\n\n", [("X-Empty", "")]),
        (b"", b"\0\xff" * 50_000, []),
    ],
    ids=["gzip", "chunked", "duplicates", "lies", "empty lines", "binary"],
)
def test_responses_come_back_as_they_came(
    open_store: Open, headers: bytes, body: bytes, stored: list[tuple[str, str]]
) -> None:
    store = open_store()
    keep(store, page(1, body=body, headers=headers))
    found = store.latest_page("http://h1.test/p1")
    assert found and found.http
    assert found.http.body == body
    assert list(found.http.headers) == [("Content-Type", "text/html"), *stored]
    assert found.http.status == 200


def test_truncated_pages_say_so(open_store: Open) -> None:
    store = open_store()
    store.add(*page(1), truncated="length")
    keep(store)
    found = store.latest_page("http://h1.test/p1")
    assert found and found.record and found.record.headers["warc-truncated"] == "length"


def test_an_unchanged_page_is_a_revisit(open_store: Open) -> None:
    store = open_store()
    keep(store, page(1))
    (first,) = store.rows()
    row, result = page(2, status=304, url=first.url, digest=first.digest)
    store.add_revisit(row, result, of_date=first.fetched_at, not_modified=True)
    keep(store)
    record = store.read_page(store.rows_of_url(first.url)[1]).record
    assert record and record.kind == "revisit"
    assert record.headers["warc-payload-digest"] == first.digest


def test_files_rotate_and_each_begins_with_its_warcinfo(open_store: Open, data_dirs: list[Path]) -> None:
    store = open_store(rotate_bytes=3000, user_agent="Weft/9 (+me@a.test)")
    for n in range(1, 60, 3):
        keep(store, page(n), page(n + 1), page(n + 2))
    store.close()
    files = warc_files(data_dirs)
    assert len(files) >= 6
    assert len({path.name for path in files}) == len(files)
    for path in files:
        record = next(iter(ArchiveIterator(path.open("rb"))))
        info = record.raw_stream.read().decode()
        assert record.rec_headers["WARC-Filename"] == path.name
        assert "software: Weft/9\r\n" in info
        assert "conformsTo: http://iipc.github.io/warc-specifications/" in info
        assert "robots: obey\r\n" in info
        assert "http-header-user-agent: Weft/9 (+me@a.test)\r\n" in info
        assert "isPartOf: c1\r\n" in info
    assert [row.item for row in open_store(rotate_bytes=3000).rows()] == list(range(1, 61))


def test_every_record_is_read_by_warcio_and_fastwarc(open_store: Open, data_dirs: list[Path]) -> None:
    store = open_store(rotate_bytes=20_000)
    for n in range(1, 100, 5):
        keep(store, *(page(k, headers=b"Transfer-Encoding: chunked\r\n" if k % 2 else b"") for k in range(n, n + 5)))
    store.close()
    by_warcio, by_fastwarc = {}, {}
    for path in warc_files(data_dirs):
        for record in ArchiveIterator(path.open("rb"), check_digests="raise"):
            body = record.content_stream().read()
            if record.rec_type == "response":
                by_warcio[record.rec_headers["WARC-Target-URI"]] = body
        for record in FastIterator(str(path)):
            if record.headers["WARC-Type"] == "response":
                assert record.verify_payload_digest()
                by_fastwarc[record.headers["WARC-Target-URI"]] = record.reader.read()
    expected = {result.url: result.body for _, result in map(page, range(1, 101))}
    assert by_warcio == expected
    assert by_fastwarc == expected


def test_offsets_are_those_of_gzip_members(open_store: Open, data_dirs: list[Path]) -> None:
    store = open_store()
    keep(store, page(1), page(2))
    for row in store.rows():
        path = data_dirs[urls.data_dir_of(row.url, len(data_dirs))] / "warc" / row.warc_file
        member = path.read_bytes()[row.warc_offset :][: row.warc_length]
        inflate = zlib.decompressobj(31)
        assert inflate.decompress(member).startswith(b"WARC/1.1\r\nWARC-Type: response\r\n")
        assert inflate.eof and not inflate.unused_data


def test_stats(open_store: Open) -> None:
    store = open_store()
    empty = store.stats()
    assert (empty.rows, empty.pages, empty.hosts, empty.first) == (0, 0, [], 0.0)
    keep(store, *(page(n) for n in range(1, 22)), page(22, status=404), (page(23, status=0, error="dns")[0], None))
    stats = store.stats(top=3)
    assert (stats.rows, stats.pages) == (23, 21)
    assert stats.statuses == {200: 21, 404: 1, 0: 1}
    assert stats.errors == {"dns": 1}
    assert stats.content_types == {"text/html": 23}
    assert stats.hosts == [("h0.test", 3), ("h1.test", 3), ("h2.test", 3)]
    assert stats.last - stats.first == 22
    assert stats.body_bytes == sum(row.length for row in store.rows())
    assert stats.warc_bytes > 0


def test_several_slots_write_side_by_side_and_are_read_as_one(open_store: Open, data_dirs: list[Path]) -> None:
    first, second = open_store(slot="pod0-fetcher0"), open_store(slot="pod0-fetcher1")
    keep(first, *(page(n) for n in range(1, 20, 2)))
    reader = open_store(read_only=True)
    keep(second, *(page(n) for n in range(2, 20, 2)))
    assert [row.item for row in reader.rows()] == list(range(1, 20))
    assert reader.stats().rows == 19
    assert reader.url_of(2) == "http://h2.test/p2"
    assert first.latest_page("http://h2.test/p2") is not None
    assert first.items_since(0) == list(range(1, 20, 2))
    assert len({path.name for path in warc_files(data_dirs)}) == 2 * len(data_dirs)


def test_a_slot_has_one_owner(open_store: Open) -> None:
    store = open_store()
    with pytest.raises(Busy, match="is in use: another process writes to it as pod0-fetcher0"):
        open_store()
    store.close()
    open_store().close()


def test_readers_see_only_whole_pages_while_a_crawl_runs(open_store: Open) -> None:
    store = open_store(rotate_bytes=50_000)
    keep(store, page(1))
    ended = threading.Event()
    problems: list[object] = []

    def read() -> None:
        reader = open_store(read_only=True)
        seen = 0
        while True:
            last = ended.is_set()
            rows = list(reader.rows())
            if len(rows) < seen:
                problems.append((len(rows), seen))
            seen = len(rows)
            for row in rows[-5:]:
                http = reader.read_page(row).http
                if not http or http.body != page(row.item)[1].body:
                    problems.append(row)
            if last:
                break
        if seen != 1000 or reader.stats().rows != 1000:
            problems.append(seen)

    def sync() -> None:
        while not ended.is_set():
            store.sync()

    threads = [threading.Thread(target=read), threading.Thread(target=sync)]
    for thread in threads:
        thread.start()
    for n in range(2, 1001):
        store.add(*page(n))
        if n % 10 == 0:
            keep(store)
    ended.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert store.sync() == store.batch


def test_texts_that_no_database_can_keep_do_not_block_the_others(open_store: Open) -> None:
    store = open_store()
    keep(store, page(1, title="half a pair \ud83d", content_type="text/\udc80html", error="\ud800"), page(2))
    assert [row.title for row in store.rows()] == ["half a pair ?", "Page 2"]


def test_reading_where_nothing_is_says_so(data_dirs: list[Path]) -> None:
    with pytest.raises(BadInput, match="data0 holds no crawl"):
        PageStore.open(data_dirs, read_only=True)


def test_other_data_dirs_than_the_crawls_are_refused(open_store: Open, data_dirs: list[Path], tmp_path: Path) -> None:
    open_store().close()
    more = [*data_dirs, tmp_path / "one-more"]
    for read_only in (True, False):
        with pytest.raises(BadInput, match="name the same ones in the same order"):
            PageStore.open(more, crawl_id="c1", read_only=read_only)
    open_store().close()


def test_what_is_forgotten_before_it_is_written_leaves_nothing(open_store: Open, data_dirs: list[Path]) -> None:
    store = open_store()
    for n in range(8):
        store.add(*page(n + 1))
    assert {row.item for row in store.forget([2, 5, 99])} == {2, 5}
    store.write()
    store.commit()
    assert [row.item for row in store.rows()] == [1, 3, 4, 6, 7, 8]
    files = [path for folder in data_dirs for path in (folder / "warc").glob("*/*")]
    targets = [record.headers.get("WARC-Target-URI") for path in files for record in FastIterator(path.open("rb"))]
    assert not {page(2)[0].url, page(5)[0].url} & {target for target in targets if target}
    assert store.forget([1]) == [], "what is written stays"

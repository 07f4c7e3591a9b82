"""A full disk stops a step, not the store: nothing is lost, nothing is half done, and the same step works later.

On a real small tmpfs (mounting needs root), and by a limit on the size of files, which every user can set.
"""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from weft.errors import DiskFull
from weft.records import FetchResult, Row
from weft.store.pages import PageStore
from weft.store.warc.warc_read import WarcScan


def page(n: int, body_bytes: int = 20_000, title: str = "") -> tuple[Row, FetchResult | None]:
    url = f"http://h{n % 7}.test/p{n}"
    row = Row(n, 1, url, url, 200, 1.0 * n, "text/html", "", "", title, 1, 0, "", body_bytes, "")
    body = random.Random(n).randbytes(body_bytes)
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    result = FetchResult(url, 200, head, body, None, "", 1.0 * n, 2.0 * n, "127.0.0.1", b"GET / HTTP/1.1\r\n\r\n")
    return row, result if body_bytes else None


@pytest.fixture
def small_disk(mount_disk: Callable[[str], Path]) -> Path:
    return mount_disk("1m")


@contextmanager
def ballast(folder: Path, leave: int) -> Iterator[None]:
    """Fills a disk up to a few bytes, and frees it again."""
    path = folder / "ballast"
    free = os.statvfs(folder)
    path.write_bytes(b"\0" * max(0, free.f_bavail * free.f_frsize - leave))
    yield
    path.unlink()


def assert_holds(store: PageStore, items: list[int]) -> None:
    rows = list(store.rows())
    assert [row.item for row in rows] == items
    for row in rows:
        _, result = page(row.item, row.length)
        http = store.read_page(row).http
        assert (http.body if http else None) == (result.body if result else None)
    for shard in store._shards:
        for file in shard.index.files():
            scan = WarcScan(shard.folder / file.name)
            assert sum(at.record.kind == "response" for at in scan) == sum(row.warc_file == file.name for row in rows)
            assert not scan.torn


def test_a_full_disk_in_write_is_reported_and_left_as_it_was(small_disk: Path) -> None:
    store = PageStore.open([small_disk], crawl_id="c")
    store.add(*page(1))
    store.write()
    store.commit()
    (file,) = (small_disk / "warc").glob("*/*")
    size = file.stat().st_size
    with ballast(small_disk, leave=60_000):
        for n in range(2, 12):
            store.add(*page(n))
        for _ in range(3):
            with pytest.raises(DiskFull, match="no space left") as caught:
                store.write()
            assert caught.value.path == file
            assert file.stat().st_size == size
        assert_holds(store, [1])
    store.write()
    store.commit()
    assert_holds(store, list(range(1, 12)))
    store.close()


def test_a_full_disk_in_commit_is_rolled_back_and_can_be_called_again(small_disk: Path) -> None:
    store = PageStore.open([small_disk], crawl_id="c")
    added = iter(range(1, 400))

    def fill() -> None:
        for n in added:
            store.add(*page(n, body_bytes=0, title="x" * 2000))
            store.write()
            store.commit()

    with ballast(small_disk, leave=200_000), pytest.raises(DiskFull) as caught:
        fill()
    last = next(added) - 1
    assert caught.value.path == small_disk / "index-pod0-fetcher0.db"
    assert 3 < last < 399
    assert [row.item for row in store.rows()] == list(range(1, last))
    assert store.commit() > 0
    assert [row.item for row in store.rows()] == list(range(1, last + 1))
    store.close()


def test_one_full_data_dir_of_two_holds_its_own_pages_back(small_disk: Path, tmp_path: Path) -> None:
    store = PageStore.open([tmp_path / "large", small_disk], crawl_id="c")
    with ballast(small_disk, leave=70_000):
        for n in range(1, 41):
            store.add(*page(n))
        with pytest.raises(DiskFull):
            store.write()
        batch = store.commit()  # what could be written may be committed
        there = [row.item for row in store.rows()]
        assert there
        assert store.sync() == batch
        with pytest.raises(DiskFull):
            store.write()
    store.write()
    assert store.commit() > batch
    assert sorted(there + store.items_since(batch)) == list(range(1, 41))
    assert_holds(store, list(range(1, 41)))
    store.close()


def test_opening_on_a_full_disk_says_so(small_disk: Path) -> None:
    with ballast(small_disk, leave=0), pytest.raises(DiskFull):
        PageStore.open([small_disk / "data"], crawl_id="c")
    PageStore.open([small_disk / "data"], crawl_id="c").close()


def test_a_crawl_goes_through_a_disk_that_fills_up_again_and_again(small_disk: Path) -> None:
    store = PageStore.open([small_disk], crawl_id="c", rotate_bytes=40_000)

    def persist(step: Callable[[], object]) -> int:
        for failures in range(100):
            try:
                step()
            except DiskFull:
                if (small_disk / "ballast").exists():
                    (small_disk / "ballast").unlink()
            else:
                return failures
        raise AssertionError("never got through")

    failed = 0
    for n in range(1, 61):
        store.add(*page(n, body_bytes=5000))
        if n % 5 == 0:
            free = os.statvfs(small_disk)
            room = free.f_bavail * free.f_frsize - random.Random(n).randrange(0, 50_000, 4096)
            (small_disk / "ballast").write_bytes(b"\0" * max(0, room))
            failed += persist(store.write)
            failed += persist(store.commit)
            persist(store.sync)
    assert failed > 5
    assert_holds(store, list(range(1, 61)))
    store.close()
    assert_holds(PageStore.open([small_disk], crawl_id="c", read_only=True), list(range(1, 61)))


@contextmanager
def files_at_most(size: int) -> Iterator[None]:
    """The system refuses to make any file of this process larger; Python ignores the signal, so that it is an error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_limit_on_the_size_of_files_is_a_full_disk_too(tmp_path: Path) -> None:
    store = PageStore.open([tmp_path], crawl_id="c")
    with files_at_most(300_000):
        for n in range(1, 31):
            store.add(*page(n))
        with pytest.raises(DiskFull):
            store.write()
        assert list(store.rows()) == []
    store.write()
    with (
        files_at_most(store._shards[0].index.path.with_name("index-pod0-fetcher0.db-wal").stat().st_size),
        pytest.raises(DiskFull),
    ):
        store.commit()
    store.commit()
    assert_holds(store, list(range(1, 31)))
    store.close()

"""An index that does not hold what it should is named, with what to do; it never looks like a smaller crawl."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from weft.errors import BadInput
from weft.records import FetchResult, Row
from weft.store.errors import DamagedIndex, StoreError, convert_read_errors, convert_write_errors, rebuild_advice
from weft.store.export.source import ExportSource
from weft.store.index.index_writer import SlotIndex
from weft.store.index.query import IndexReader, RowFilter
from weft.store.pages import PageStore

FACTS = {"crawl_id": "c1", "data_dirs": 1, "data_dir": 0}
FLIPS = 200
PAGE_BYTES = 4096


def page(n: int) -> tuple[Row, FetchResult]:
    url = f"http://h{n % 3}.test/{n}"
    row = Row(n, 1, url, url, 200, 1.0 + n, "text/html", "utf-8", "", "t", 0, 0, "", 1, "")
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    return row, FetchResult(url, 200, head, b"x", None, "", 1.0, 2.0, "", b"")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two slots, some pages each."""
    folder = tmp_path / "data"
    for slot, items in (("pod0-fetcher0", range(1, 60)), ("pod1-fetcher0", range(60, 70))):
        store = PageStore.open([folder], crawl_id="c1", slot=slot)
        for n in items:
            store.add(*page(n))
        store.close()
    return folder


def change(folder: Path, sql: str, slot: str = "pod0-fetcher0") -> None:
    with closing(sqlite3.connect(folder / f"index-{slot}.db")) as db:
        db.execute("DELETE FROM meta WHERE key = 'closed'")  # else nothing more would be looked at
        db.execute(sql)
        db.commit()


def readers(folder: Path) -> list[Callable[[], object]]:
    def stats() -> object:
        store = PageStore.open([folder], read_only=True)
        try:
            return store.stats(), list(store.rows()), store.rows_of_url(page(1)[0].url)
        finally:
            store.abandon()

    return [stats, lambda: ExportSource([folder]).close()]


def test_both_slots_are_read(data: Path) -> None:
    store = PageStore.open([data], read_only=True)
    assert store.stats().rows == 69
    store.abandon()
    ExportSource([data]).close()


@pytest.mark.parametrize("gone", ["deleted", "emptied"])
def test_an_index_that_is_gone_beside_another_is_missed(data: Path, gone: str) -> None:
    path = data / "index-pod1-fetcher0.db"
    if gone == "deleted":
        path.unlink()
    else:
        os.truncate(path, 0)
    for read in readers(data):
        with pytest.raises(BadInput, match=r"index-pod1-fetcher0\.db is missing or empty.*weft rebuild"):
            read()


def test_a_file_that_its_index_does_not_know_is_missed(data: Path) -> None:
    change(data, "DELETE FROM files")
    for read in readers(data):
        with pytest.raises(BadInput, match=r"index-pod0-fetcher0\.db has no entry for warc/1/weft-c1.*weft rebuild"):
            read()


def test_files_of_another_crawl_are_nobody_s_loss(data: Path) -> None:
    (data / "warc" / "1" / "weft-other-pod7-fetcher0-00000.warc.gz").touch()
    (data / "warc" / "1" / "weft-other-pod0-fetcher0-00001.warc.gz").touch()
    (data / "warc" / "1" / "weft-notes.warc.gz").touch()
    for read in readers(data):
        read()


def test_without_any_index_the_first_file_says_what_is_missing(data: Path) -> None:
    for path in data.glob("index-*"):
        path.unlink()
    with pytest.raises(BadInput, match="missing or empty"):
        PageStore.open([data], read_only=True)
    for path in (data / "warc").glob("*/*"):
        path.unlink()
    with pytest.raises(BadInput, match="holds no crawl"):
        PageStore.open([data], read_only=True)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE pages SET url = x'ff00' WHERE item = 7",
        "UPDATE pages SET status = 'ok' WHERE item = 7",
        "UPDATE pages SET title = x'00' WHERE item = 7",
        "UPDATE tally SET rows = 'many'",
        "UPDATE tally SET content_type = x'00'",
        "UPDATE tally SET status = 'x'",
        "UPDATE pages SET charset = x'00' WHERE item = 7",
        "UPDATE meta SET value = 'x' WHERE key = 'schema_version'",
        "DROP TABLE tally",
        "UPDATE pages SET title = CAST(x'80ff' AS TEXT) WHERE item = 7",
    ],
)
def test_what_is_of_another_type_than_it_was_is_damage(data: Path, sql: str) -> None:
    change(data, sql)
    with pytest.raises(DamagedIndex, match=r"index-pod0-fetcher0\.db: is damaged .*weft rebuild") as caught:
        readers(data)[0]()
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("key", ["batch", "durable", "folded"])
@pytest.mark.parametrize("how", ["DELETE FROM meta WHERE key = '{}'", "UPDATE meta SET value = 'x' WHERE key = '{}'"])
def test_a_writer_refuses_an_index_without_its_numbers(data: Path, key: str, how: str) -> None:
    change(data, how.format(key))
    with pytest.raises(DamagedIndex, match=f"no number '{key}'"):
        PageStore.open([data], crawl_id="c1")


def test_an_index_cut_inside_a_page_is_damaged_for_readers_and_writers(data: Path) -> None:
    path = data / "index-pod0-fetcher0.db"
    os.truncate(path, path.stat().st_size - 7)
    with pytest.raises(DamagedIndex, match="middle of a page"):
        IndexReader(path)
    with pytest.raises(DamagedIndex, match="middle of a page"):
        SlotIndex(path, FACTS)
    IndexReader(path, whole=False).close()  # a rebuild takes what is left


def test_half_a_page_that_the_log_has_whole_is_no_damage(data: Path) -> None:
    """A disk that was full in the middle of a checkpoint leaves that."""
    path = data / "index-pod0-fetcher0.db"
    index = SlotIndex(path, FACTS)
    index.note_rebuilt()  # something in the log
    with path.open("ab") as file:
        file.write(b"\0" * 100)
    reader = IndexReader(path)
    assert len(list(reader.rows())) == 59
    reader.close()
    index.close()


def test_other_errors_are_no_damage(tmp_path: Path) -> None:
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorname = "SQLITE_BUSY"
    corrupt = sqlite3.DatabaseError("malformed")
    corrupt.sqlite_errorname = "SQLITE_CORRUPT_INDEX"
    for around, word in ((convert_read_errors, "read"), (convert_write_errors, "written")):
        with pytest.raises(StoreError, match=f"cannot be {word}: database is locked") as caught, around(tmp_path / "i"):
            raise busy
        assert not isinstance(caught.value, DamagedIndex) and caught.value.exit_code == 1
        with pytest.raises(DamagedIndex), around(tmp_path / "i"):
            raise corrupt
        with pytest.raises(StoreError) as caught, around(tmp_path / "i"):
            raise sqlite3.ProgrammingError("Cannot operate on a closed database.")
        assert not isinstance(caught.value, DamagedIndex)


def test_the_remedy_names_the_crawl_where_it_can(tmp_path: Path) -> None:
    assert "weft rebuild DIR..., with all data dirs" in rebuild_advice(tmp_path)
    (tmp_path / "engine.json").touch()
    assert f"`weft rebuild {tmp_path}`" in rebuild_advice(tmp_path)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
def test_a_flipped_bit_is_refused_or_changes_nothing(data: Path, *, is_closed: bool) -> None:
    """Every byte of the layout's pages (in one of the two), and some of the others."""
    path = data / "index-pod0-fetcher0.db"
    if not is_closed:
        change(data, "DELETE FROM asked")
    whole, chance = path.read_bytes(), random.Random(18)
    contents, layout = read_all(path), layout_pages(whole)
    text = [at for page in layout for at in used_bytes(whole, page)]
    assert len(text) > 4000
    pages = [page for page in range(1, len(whole) // PAGE_BYTES + 1) if page not in layout]
    others = chance.sample([at for page in pages for at in used_bytes(whole, page)], FLIPS)
    refused = 0
    for at in [*others, *(text if is_closed else ())]:
        hit = at, chance.randrange(8)
        if is_refused(path, hit):
            refused += 1
            continue
        flip(path, hit)
        try:
            assert read_all(path) == contents, hit
        except DamagedIndex:  # what has a checksum of its own is refused when it is read
            refused += 1
        finally:
            flip(path, hit)
    assert refused > 0.9 * (FLIPS + len(text) if is_closed else FLIPS)
    assert path.read_bytes() == whole


def flip(path: Path, hit: tuple[int, int]) -> None:
    """Flips a bit: the byte's place, and the bit in it."""
    at, bit = hit
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def is_refused(path: Path, hit: tuple[int, int]) -> bool:
    """Whether a reader refuses the index while a bit is flipped."""
    flip(path, hit)
    refusal: DamagedIndex | BadInput | None = None
    try:
        IndexReader(path).close()
    except (DamagedIndex, BadInput) as error:
        refusal = error
    finally:
        flip(path, hit)
    if refusal is None:
        return False
    assert refusal.exit_code == 2, (hit, refusal)
    assert "weft rebuild" in str(refusal) or "use the Weft that made it" in str(refusal), (hit, refusal)
    return True


def layout_pages(whole: bytes) -> list[int]:
    """The pages of `sqlite_master`: the first one of the file, and those below it."""
    assert whole[100] == 5  # an inner page
    cells = [int.from_bytes(whole[at : at + 2]) for at in range(112, 112 + 2 * int.from_bytes(whole[103:105]), 2)]
    # Each begins with the number of a page.
    return [1, int.from_bytes(whole[108:112]), *(int.from_bytes(whole[at : at + 4]) for at in cells)]


def used_bytes(whole: bytes, page: int) -> list[int]:
    """The places of a page where SQLite keeps something."""
    begin = (page - 1) * PAGE_BYTES
    head = begin + (100 if page == 1 else 0)
    if whole[head] not in (2, 5, 10, 13):
        return []
    cells, content = (int.from_bytes(whole[head + at : head + at + 2]) for at in (3, 5))
    behind = head + (12 if whole[head] in (2, 5) else 8) + 2 * cells
    return [*range(begin, behind), *range(begin + content, begin + PAGE_BYTES)]


def read_all(path: Path) -> list[object]:
    """What reports, exports and feeds read."""
    with closing(IndexReader(path)) as reader:
        last = reader.last_batch()
        crawls = [0, 1]
        return [
            reader.files(),
            reader.crawl_id(),
            list(reader.rows()),
            list(reader.rows(RowFilter(may_change=True))),
            list(reader.rows_in_order(0, last)),
            [reader.rows_of_url(page(n)[0].url) for n in range(1, 60)],
            [list(reader.rows_of_crawl(crawl, 0, last)) for crawl in crawls],
            [reader.rows_and_changes(crawl, 0, 1000) for crawl in crawls],
            reader.batches(0, 1000),
            reader.rows_of_next_batches(0),
            [reader.totals(crawl) for crawl in crawls],
            [reader.counts(column) for column in ("status", "error", "content_type", "depth")],
            reader.kinds(),
            list(reader.hosts()),
            list(reader.hashes()),
            reader.lost_rows(),
        ]

"""`weft rebuild`: the index and the texts come back from the WARC files, whatever was lost, killed or damaged."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crawling import Crawler, check_corpus, kill_now, weft
from exporting import killed, make_crawl, page, run, url_of

from weft.crawl.folder import CrawlFolder
from weft.crawl.reports.rebuild import rebuild
from weft.errors import BadInput, Busy
from weft.frontier.durability.journal import FrontierJournal
from weft.records import Row
from weft.store import text
from weft.store.contract import Stats
from weft.store.export.request import ExportRequest
from weft.store.pages import PageStore
from weft.store.repair import rebuild as store_rebuild
from weft.store.warc.row_field import row_header, row_in_record
from weft.store.warc.warc_read import WarcScan, parse_record
from weft.testing.web import synthetic_web

PAGES = 300


@pytest.fixture
def crawl(tmp_path: Path) -> list[Path]:
    return make_crawl(tmp_path / "crawl", PAGES, rotate_bytes=30_000)


def held(dirs: list[Path]) -> tuple[list[Row], Stats]:
    store = PageStore.open(dirs, read_only=True)
    try:
        return list(store.rows()), store.stats()
    finally:
        store.abandon()


def drop_indexes(dirs: list[Path]) -> None:
    for path in (path for folder in dirs for path in folder.glob("index-*")):
        path.unlink()


def test_a_row_comes_back_from_its_record() -> None:
    odd = Row(
        1 << 48, 3, "http://a.test/", "http://b.test/é", 304, 1.7e9 + 0.123456, "", "", "de",
        'é " \r\n \ud800 \u2028', 7, 5, "sha1:X", 9, "robots: a: b", 2,
    )  # fmt: skip
    line = row_header(odd)
    head = f"WARC/1.1\r\nWARC-Type: revisit\r\nWARC-Target-URI: {odd.url}\r\n{line}Content-Length: 0\r\n\r\n"
    record = parse_record(head.encode())
    found = row_in_record(record, "f.warc.gz", 10, 20)
    assert found is not None and found.title == 'é " \r\n ? \u2028'
    back = {name: getattr(found, name) for name in Row.__struct_fields__ if name != "title"}
    told = {name: getattr(odd, name) for name in Row.__struct_fields__ if name != "title"}
    assert back == told | {"warc_file": "f.warc.gz", "warc_offset": 10, "warc_length": 20}


@pytest.mark.parametrize("how", ["in place", "index deleted", "index damaged"])
def test_the_index_is_the_same_again(crawl: list[Path], how: str) -> None:
    rows, stats = held(crawl)
    if how == "index deleted":
        drop_indexes(crawl)
    elif how == "index damaged":
        for folder in crawl:
            path = next(folder.glob("index-*.db"))
            path.write_bytes(path.read_bytes()[:5000] + os.urandom(3000))
    told = rebuild(crawl)
    assert (told.rows, told.kept, told.gone, told.foreign, told.duplicates, told.torn) == (PAGES, 0, 0, 0, 0, [])
    assert told.pages == stats.pages and told.files > 3
    assert held(crawl) == (rows, stats)
    assert not [path for folder in crawl for path in folder.glob("*.rebuilt*")]


def test_a_rebuilt_crawl_is_written_on_and_exported(crawl: list[Path], tmp_path: Path) -> None:
    before = run(crawl, ExportRequest("warc"), tmp_path / "before.warc.gz")
    drop_indexes(crawl)
    rebuild(crawl)
    assert run(crawl, ExportRequest("warc"), tmp_path / "after.warc.gz").rows == before.rows
    told = [[found.record for found in WarcScan(tmp_path / name)][1:] for name in ("before.warc.gz", "after.warc.gz")]
    assert told[0] == told[1]
    make_crawl(crawl[0].parent, 50, first=PAGES + 1)
    assert len(held(crawl)[0]) == PAGES + 50
    store = PageStore.open(crawl, read_only=True)
    found = store.latest_page(url_of(1))
    assert found is not None and found.http is not None and b"This is page 1," in found.http.body
    store.abandon()


def test_what_was_not_committed_is_left_out(crawl: list[Path]) -> None:
    rows, _ = held(crawl)
    store = PageStore.open(crawl, crawl_id=CrawlFolder(crawl).identity().id)
    for n in range(PAGES + 1, PAGES + 40):
        store.add(*page(n))
    store.write()
    store.abandon()  # as a kill between the bytes and the rows would
    rebuild(crawl)
    assert held(crawl)[0] == rows


def test_a_torn_file_gives_what_is_whole(crawl: list[Path]) -> None:
    rows, _ = held(crawl)
    last = max((crawl[0] / "warc").glob("*/*"))
    os.truncate(last, last.stat().st_size - 3)
    lost = max((row for row in rows if row.warc_file == f"1/{last.name}"), key=lambda row: row.warc_offset)
    told = rebuild(crawl)
    assert told.torn == [f"1/{last.name}"]
    remaining = held(crawl)[0]
    assert {row.item for row in rows} - {row.item for row in remaining} <= {lost.item}
    assert told.gone == len(rows) - len(remaining)
    make_crawl(crawl[0].parent, 10, first=PAGES + 1)  # the half record is cut off before anything is appended
    assert not any(scan.torn for scan in scanned(crawl))


def scanned(dirs: list[Path]) -> Iterator[WarcScan]:
    for path in (path for folder in dirs for path in (folder / "warc").glob("*/*")):
        scan = WarcScan(path)
        assert all(found.length for found in scan)
        yield scan


def test_an_item_that_is_there_twice_has_one_row(crawl: list[Path]) -> None:
    rows, _ = held(crawl)
    first = min((crawl[0] / "warc").glob("*/*"))
    serial = 1 + max(int(path.name[-13:-8]) for folder in crawl for path in (folder / "warc").glob("*/*"))
    copy = first.with_name(f"{first.name[:-13]}{serial:05d}.warc.gz")
    copy.write_bytes(first.read_bytes())
    told = rebuild(crawl)
    assert told.duplicates > 10 and told.rows == PAGES
    assert held(crawl)[0] == rows


def test_killed_in_the_middle_nothing_has_changed(crawl: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    rows, stats = held(crawl)
    monkeypatch.setattr(store_rebuild, "BATCH_ROWS", 10)

    def die_later(live: Callable[[], None]) -> None:
        rebuild(crawl, watch=lambda *_: live())

    for times in (1, 9):
        killed(die_later, times)
        assert held(crawl) == (rows, stats)
    told = rebuild(crawl)
    assert told.rows == PAGES and held(crawl) == (rows, stats)


@pytest.mark.parametrize("index", [0, 1])
def test_killed_between_two_swaps_it_is_whole(crawl: list[Path], index: int) -> None:
    rows, stats = held(crawl)

    def die_at_swap(live: Callable[[], None]) -> None:
        whole = store_rebuild._SlotRebuild.replace_old

        def swap(place: store_rebuild._SlotRebuild) -> None:
            if place.number == index:
                live()
            whole(place)

        setattr(store_rebuild._SlotRebuild, "replace_old", swap)  # noqa: B010 - in the process that is killed
        rebuild(crawl)

    killed(die_at_swap, 1)
    assert held(crawl) == (rows, stats)
    rebuild(crawl)
    assert held(crawl) == (rows, stats)


def test_records_of_an_older_weft_keep_the_rows_that_the_index_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.store.pages.row_header", lambda _row: "")
    dirs = make_crawl(tmp_path, 60)
    rows, stats = held(dirs)
    told = rebuild(dirs)
    assert (told.kept, told.gone, told.foreign) == (6, 0, 0)
    assert held(dirs) == (rows, stats)
    drop_indexes(dirs)
    assert rebuild(dirs).foreign == 54


def test_texts_are_made_again(tmp_path: Path) -> None:
    dirs = make_crawl(tmp_path, 40)
    told = rebuild(dirs, text=True)
    assert told.texts == len([n for n in range(1, 41) if n % 9 and n % 11 and n % 13 and n % 17])
    assert (text.read_text(dirs[0], url_of(1), 1) or text.read_text(dirs[1], url_of(1), 1) or "").startswith("Page 1\n")
    for path in [path for folder in dirs for path in folder.rglob("content/*/*/*.txt")]:
        path.unlink()
    assert rebuild(dirs).texts == told.texts  # the crawl keeps texts now


def test_a_running_crawl_is_refused(crawl: list[Path]) -> None:
    folder = CrawlFolder(crawl)
    folder.lock_folder()
    with pytest.raises(Busy, match="running"):
        rebuild(crawl)
    folder.release()


def test_a_crawl_without_warc_files_is_refused(tmp_path: Path) -> None:
    dirs = make_crawl(tmp_path, 10, keep=("text",))
    rows = held(dirs)[0]
    with pytest.raises(BadInput, match="no WARC files"):
        rebuild(dirs)
    assert held(dirs)[0] == rows


def test_a_real_crawl_is_rebuilt_and_resumed(tmp_path: Path) -> None:
    with synthetic_web(hosts=5, pages=120, stocked=1) as web:
        crawler = Crawler(web.seeds, tmp_path, "--max-pages", 40, "--store", "warc,text", delay_s=0)
        assert crawler.run() == 3, crawler.said
        before = check_corpus(crawler)
        texts = {path.name: path.read_bytes() for path in crawler.data_dir.rglob("content/*/*/*.txt")}
        drop_indexes([crawler.data_dir])
        told = weft("rebuild", crawler.data_dir, "--json")
        assert told.returncode == 0, told.stderr
        assert json.loads(told.stdout)["rows"] == len(before)
        assert check_corpus(crawler) == before
        assert {path.name: path.read_bytes() for path in crawler.data_dir.rglob("content/*/*/*.txt")} == texts
        assert len(texts) >= 30
        assert json.loads(weft("stats", crawler.data_dir, "--json").stdout)["pages"] == 40
        assert crawler.run("--max-pages", 60, resume=True) == 3, crawler.said
        after = {row.item: row for row in check_corpus(crawler)}
        assert len(crawler.pages()) == 60 and all(after[row.item] == row for row in before)
        web.stop()
        asked = Counter(arrival.url for arrival in web.arrivals())
        assert [row.url for row in before if row.status == 200 and asked[row.url] != 1] == []


def test_a_crawl_that_lost_its_process_and_its_index_loses_no_page(tmp_path: Path) -> None:
    with synthetic_web(hosts=6, pages=200, stocked=1) as web:
        crawler = Crawler(web.seeds, tmp_path, delay_s=0.1)
        with crawler.running() as running:
            crawler.pages_at_least(120)  # what was done in the last second or two is not known to be
            kill_now(running)
        before = {row.url for row in crawler.pages()}
        drop_indexes([crawler.data_dir])
        told = json.loads(weft("rebuild", crawler.data_dir, "--json").stdout)
        assert 0 < told["pages"] <= len(before) + told["unfinished"]
        assert crawler.run("--delay", 0, resume=True) == 0, crawler.said
        must = {url for url in web.expect().must if not url.endswith(("/robots.txt", "/sitemap.xml"))}
        assert {row.url for row in check_corpus(crawler)} >= must
        assert len(must) > 150


# ── damage ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def lost_at_opening(dirs: list[Path]) -> list[int]:
    """What the next opening gives to be fetched again."""
    store = PageStore.open(dirs, crawl_id=CrawlFolder(dirs).identity().id)
    try:
        return sorted(row.item for row in store.lost_pages_to_refetch())
    finally:
        store.abandon()


def spoil(dirs: list[Path], row: Row) -> None:
    path = next(path for folder in dirs if (path := folder / "warc" / row.warc_file).exists())
    with path.open("r+b") as file:
        file.seek(row.warc_offset + 20)
        file.write(b"\xff" * 20)


def test_damage_in_any_data_dir_is_reported_and_handed_out_by_the_next_opening(crawl: list[Path]) -> None:
    rows, _ = held(crawl)
    hit = [row for row in rows if row.item in (50, 51, 52, 120)]
    for row in hit:
        spoil(crawl, row)
    told = rebuild(crawl)
    assert (told.lost, told.gone) == (4, 4) and sorted(told.lost_urls) == sorted(row.url for row in hit)
    assert sorted((one.file, one.offset, one.bytes, one.urls) for one in told.damage) == sorted(
        (row.warc_file, row.warc_offset, row.warc_length, [row.url]) for row in hit
    )
    assert held(crawl)[0] == [row for row in rows if row not in hit]
    again = rebuild(crawl)  # nobody has fetched them yet
    assert (again.lost, again.gone) == (4, 0) and sorted(again.lost_urls) == sorted(told.lost_urls)
    assert all(not one.urls for one in again.damage) and len(again.damage) == 4
    assert lost_at_opening(crawl) == [50, 51, 52, 120]
    assert held(crawl)[0] == [row for row in rows if row not in hit]


def test_what_was_not_committed_is_fetched_again_where_no_frontier_knows_it(crawl: list[Path]) -> None:
    store = PageStore.open(crawl, crawl_id=CrawlFolder(crawl).identity().id)
    for n in range(PAGES + 1, PAGES + 5):
        store.add(*page(n))
    store.write()
    store.abandon()
    told = rebuild(crawl)
    assert (told.unfinished, told.lost) == (4, 4)
    assert lost_at_opening(crawl) == [PAGES + n for n in range(1, 5)]


def test_records_that_nobody_has_a_row_for_are_not_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.store.pages.row_header", lambda _row: "")
    dirs = make_crawl(tmp_path, 60)
    sizes = {path: path.stat().st_size for folder in dirs for path in (folder / "warc").glob("*/*")}
    drop_indexes(dirs)
    assert rebuild(dirs).foreign == 54
    assert lost_at_opening(dirs) == []
    for path, size in sizes.items():
        kinds = [place.record.kind for place in WarcScan(path)]
        assert kinds.count("response") > 20 and path.stat().st_size == size


def test_a_damaged_old_index_tells_as_much_as_it_can(crawl: list[Path]) -> None:
    rows, stats = held(crawl)
    path = next(crawl[0].glob("index-*.db"))
    size = path.stat().st_size
    for part in (0.3, 0.5, 0.7, 0.9):
        with path.open("r+b") as file:
            file.seek(int(size * part))
            file.write(os.urandom(300))
        told = rebuild(crawl)
        assert (told.rows, told.lost, told.damage) == (PAGES, 0, [])
        assert held(crawl) == (rows, stats)


def test_a_frontier_that_cannot_be_read_does_not_stop_a_rebuild(crawl: list[Path]) -> None:
    rows, _ = held(crawl)
    (crawl[0] / "frontier").mkdir()
    (crawl[0] / "frontier" / "frontier.db").write_bytes(b"no database" * 999)
    drop_indexes(crawl)
    assert rebuild(crawl).rows == PAGES
    assert held(crawl)[0] == rows


def test_what_the_frontier_has_finished_decides_what_counts_and_what_is_missing(crawl: list[Path]) -> None:
    """Without any index: what is done and stored counts, what is stored and not done is fetched again by the frontier
    itself, and what is done and not stored is lost."""
    rows, _ = held(crawl)
    journal = FrontierJournal(crawl[0] / "frontier" / "frontier.db")
    every = [*rows, page(PAGES + 1)[0]]
    for row in every:
        journal.add_admitted_lines(1, f"{row.item} {row.depth} {row.parent} 0 0 1 p {row.url}\n".encode(), 1)
    journal.done[1] += [row.item for row in every if row.item != 77]
    journal.put_meta("acknowledged", 500)
    journal.close()
    drop_indexes(crawl)
    told = rebuild(crawl)
    assert (told.rows, told.unfinished, told.lost) == (PAGES - 1, 1, 1)
    assert told.lost_urls == [url_of(PAGES + 1)]
    assert held(crawl)[0] == [row for row in rows if row.item != 77]
    assert lost_at_opening(crawl) == [PAGES + 1]
    store = PageStore.open(crawl, read_only=True)
    assert all(index.last_batch() > 500 for index in store._corpus.indexes())
    store.abandon()


def test_with_nothing_but_a_frontier_everything_is_lost_and_reported(tmp_path: Path) -> None:
    dirs = make_crawl(tmp_path, 30, keep=("text",))
    journal = FrontierJournal(dirs[0] / "frontier" / "frontier.db")
    for n in range(1, 31):
        journal.add_admitted_lines(1, f"{n} 0 0 0 0 1 p {url_of(n)}\n".encode(), 1)
    journal.done[1] += range(1, 31)
    journal.put_meta("acknowledged", 3)
    journal.close()
    rows = held(dirs)[0]
    assert rebuild(dirs).lost == 0 and held(dirs)[0] == rows  # rows that have no record are kept
    drop_indexes(dirs)
    assert rebuild(dirs).lost == 30
    assert lost_at_opening(dirs) == list(range(1, 31))

"""Damage to stored pages costs those pages alone: it is told, and what is gone is fetched again."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crawling import Crawler, kill_now, until, weft

from weft.cli.main import run as weft_here
from weft.crawl.reports.rebuild import rebuild
from weft.frontier.durability.journal import without_checksum
from weft.records import Row
from weft.store.pages import PageStore
from weft.store.warc.warc_read import WarcScan
from weft.testing.web import SyntheticWeb, synthetic_web

PAGES = 60


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=4, pages=PAGES, profile="calm", stocked=1) as served:
        yield served


@pytest.fixture(scope="module")
def crawled(web: SyntheticWeb, tmp_path_factory: pytest.TempPathFactory) -> Crawler:
    """A crawl that has ended, with texts beside the pages; each test works on a copy of its own."""
    crawler = Crawler(web.seeds, tmp_path_factory.mktemp("crawled"), delay_s=0)
    assert crawler.run() == 0, crawler.said
    return crawler


@pytest.fixture
def crawl(crawled: Crawler, tmp_path: Path) -> Crawler:
    copy = Crawler([], tmp_path, delay_s=0)
    shutil.copytree(crawled.data_dir, copy.data_dir)
    return copy


def warc_of(crawler: Crawler) -> Path:
    return max((crawler.data_dir / "warc").glob("*/*.warc.gz"))


def index_of(crawler: Crawler) -> Path:
    return next(crawler.data_dir.glob("index-*.db"))


def flip(path: Path, at: int) -> None:
    """Turns one bit over."""
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def in_the_middle(crawler: Crawler) -> Row:
    """A page that has many before and behind it."""
    rows = sorted(crawler.pages(), key=lambda row: row.warc_offset)
    return rows[len(rows) // 3]


def bodies(crawler: Crawler) -> set[str]:
    """The URLs whose pages can be read from the files themselves."""
    return {
        place.record.headers["warc-target-uri"]
        for path in (crawler.data_dir / "warc").glob("*/*.warc.gz")
        for place in WarcScan(path)
        if place.record.kind == "response" and 200 <= place.record.http().status < 300
    }


def readable(crawler: Crawler) -> set[str]:
    """The URLs whose pages the index leads to."""
    store = PageStore.open([crawler.data_dir], read_only=True)
    try:
        return {row.url for row in store.rows() if 200 <= row.status < 300 and store.read_page(row).http}
    finally:
        store.abandon()


def test_a_crawl_that_is_whole_is_rebuilt_without_a_loss(tmp_path: Path) -> None:
    """The frontier's list of finished items is held against the rows: every one of them has its row."""
    with synthetic_web(hosts=4, pages=PAGES, profile="messy") as web:
        crawl = Crawler(web.seeds, tmp_path, "--max-retries", 0, delay_s=0)
        assert crawl.run() == 0, crawl.said
    rows = crawl.rows()
    rebuilt = rebuild([crawl.data_dir])
    assert (rebuilt.lost, rebuilt.damage, rebuilt.gone, rebuilt.torn) == (0, [], 0, [])
    assert crawl.rows() == rows and len({row.error for row in rows}) > 3


def test_one_flipped_bit_costs_one_page_and_a_resume_fetches_it_again(crawl: Crawler) -> None:
    before, path, hit = readable(crawl), warc_of(crawl), in_the_middle(crawl)
    size = path.stat().st_size
    flip(path, hit.warc_offset + hit.warc_length // 2)
    done = weft("rebuild", crawl.data_dir, "--json")
    assert done.returncode == 0, done.stderr
    rebuilt = json.loads(done.stdout)
    assert (rebuilt["lost"], rebuilt["lost_urls"]) == (1, [hit.url])
    assert rebuilt["damage"] == [
        {"file": hit.warc_file, "offset": hit.warc_offset, "bytes": hit.warc_length, "urls": [hit.url]}
    ]
    assert readable(crawl) == before - {hit.url}
    assert crawl.run(resume=True) == 0, crawl.said
    assert readable(crawl) == before == bodies(crawl)
    assert path.stat().st_size > size
    again = weft("rebuild", crawl.data_dir)  # the damaged place is still there, and costs nothing any more
    assert again.returncode == 0 and "damaged" in again.stdout and "queued again" not in again.stdout
    assert readable(crawl) == before


def zeros(path: Path, hit: Row) -> None:
    with path.open("r+b") as file:
        file.seek(hit.warc_offset - 30)
        file.write(bytes(hit.warc_length))


HARMS: dict[str, Callable[[Path, Row], None]] = {
    "a check sum": lambda path, hit: flip(path, hit.warc_offset + hit.warc_length - 6),
    "a member's header": lambda path, hit: flip(path, hit.warc_offset + 1),
    "the first record": lambda path, _: flip(path, 40),
    "zeros": zeros,
    "cut": lambda path, hit: os.truncate(path, hit.warc_offset + 50),
    "emptied": lambda path, _: os.truncate(path, 0),
    "deleted": lambda path, _: path.unlink(),
}


@pytest.mark.parametrize("harm", HARMS)
def test_whatever_happens_to_a_warc_file_its_pages_come_back(crawl: Crawler, harm: str) -> None:
    before, path, hit = readable(crawl), warc_of(crawl), in_the_middle(crawl)
    HARMS[harm](path, hit)
    left = bodies(crawl)
    if harm in ("zeros", "emptied", "a check sum"):
        index_of(crawl).unlink()  # then the frontier alone knows what was there
    rebuilt = rebuild([crawl.data_dir])
    assert readable(crawl) == left
    assert before - left <= set(rebuilt.lost_urls)
    assert rebuilt.lost == len(rebuilt.lost_urls)
    assert bool(rebuilt.lost) == (harm != "the first record")
    assert crawl.run(resume=True) == 0, crawl.said
    assert readable(crawl) == before == bodies(crawl)
    assert len(crawl.pages()) == len(before)
    assert rebuild([crawl.data_dir]).lost == 0  # they were queued once, and are there


@pytest.mark.parametrize("harm", ["cut", "deleted"])
def test_a_resume_alone_fetches_again_what_a_file_has_lost(crawl: Crawler, harm: str) -> None:
    before, path = readable(crawl), warc_of(crawl)
    HARMS[harm](path, in_the_middle(crawl))
    assert crawl.run(resume=True) == 0, crawl.said
    assert readable(crawl) == before == bodies(crawl)


def spoil(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


INDEX_HARMS: dict[str, Callable[[Path], None]] = {
    "short by 7 bytes": lambda path: os.truncate(path, path.stat().st_size - 7),
    "cut in half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "emptied": lambda path: os.truncate(path, 0),
    "deleted": lambda path: path.unlink(),
    "spoilt": spoil,
    "no database": lambda path: shutil.copyfileobj(BytesIO(b"x" * 9000), path.open("wb")),
    "another's": lambda path: flip(path, 68),
}


@pytest.mark.parametrize("harm", INDEX_HARMS)
def test_a_damaged_index_is_named_with_the_remedy_and_the_remedy_works(
    crawl: Crawler, harm: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = readable(crawl)
    INDEX_HARMS[harm](index_of(crawl))
    home, size = str(crawl.data_dir), warc_of(crawl).stat().st_size
    for command in (
        ["stats", home],
        ["export", home, "--format", "csv", "--out", str(tmp_path / "out.csv")],
        ["get", home, min(before)],
    ):
        assert weft_here(command) == 2, command
        said = capsys.readouterr().err
        assert f"weft rebuild {home}" in said and "index-pod0-fetcher0.db" in said, (command, said)
    if harm in ("short by 7 bytes", "emptied", "spoilt"):
        assert crawl.run(resume=True) == 2, crawl.said
        assert f"weft rebuild {home}" in crawl.said and "index-pod0-fetcher0.db" in crawl.said
    assert warc_of(crawl).stat().st_size == size
    assert rebuild([crawl.data_dir]).lost == 0
    assert readable(crawl) == before == bodies(crawl)
    if harm == "emptied":
        assert crawl.run(resume=True) == 0, crawl.said
        assert readable(crawl) == before == bodies(crawl)


def interrupted(web: SyntheticWeb, folder: Path) -> tuple[Crawler, int]:
    """A crawl that was killed with work left, its index's log not yet folded in; and a place in that log, behind which
    are rows that the frontier knows to be safe."""
    crawler = Crawler(web.seeds, folder, delay_s=0.1)
    with crawler.running() as running:
        until(lambda: committed(crawler), what="the first rows")
        place = log_of(crawler).stat().st_size
        before = committed(crawler)
        until(lambda: acknowledged(crawler) > before, what="safe rows")
        crawler.pages_at_least(PAGES // 3)
        kill_now(running)
    return crawler, place


def log_of(crawler: Crawler) -> Path:
    return Path(f"{index_of(crawler)}-wal")


def committed(crawler: Crawler) -> int:
    """The last batch that the index has."""
    found = next(crawler.data_dir.glob("index-*.db"), None)
    return int(one_of(found, "SELECT value FROM meta WHERE key = 'batch'") or 0) if found else 0


def acknowledged(crawler: Crawler) -> int:
    """The last batch that the frontier knows to be safe."""
    path = crawler.data_dir / "frontier" / "frontier.db"
    found = one_of(path, "SELECT value FROM meta WHERE name = 'acknowledged'") if path.exists() else None
    return int(msgspec.msgpack.decode(without_checksum(found))) if found else 0


def one_of(path: Path, query: str) -> Any:
    """What a database answers; None while it is being made."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        try:
            found = db.execute(query).fetchone()
        except sqlite3.OperationalError:
            return None
    return found[0] if found else None


@pytest.mark.parametrize("how", ["deleted", "flipped"])
def test_an_index_whose_log_is_lost_gets_its_rows_back_from_the_warc_files(
    web: SyntheticWeb, tmp_path: Path, how: str
) -> None:
    crawler, place = interrupted(web, tmp_path)
    before = readable(crawler)
    if how == "deleted":
        log_of(crawler).unlink()
    else:
        flip(log_of(crawler), place)
    if how == "deleted":  # nothing of the index is left: not even that it had a file
        assert crawler.run("--delay", 0, resume=True) == 2 and "weft rebuild" in crawler.said, crawler.said
        assert rebuild([crawler.data_dir]).rows > 0
    assert crawler.run("--delay", 0, resume=True) == 0, crawler.said
    found = readable(crawler)
    assert before <= found == bodies(crawler)
    if how == "deleted":
        return
    mended = (crawler.data_dir / "logs" / "pod_0" / "fetcher_0.log").read_text()
    assert "the index was mended" in mended


def test_a_kill_before_the_store_knows_that_lost_pages_are_queued_fetches_none_twice(crawl: Crawler) -> None:
    before, hit, marker = readable(crawl), in_the_middle(crawl), crawl.data_dir.parent / "crashed"
    flip(warc_of(crawl), hit.warc_offset + hit.warc_length // 2)
    assert weft("rebuild", crawl.data_dir).returncode == 0
    assert crawl.run(resume=True, WEFT_TEST_CRASH_AT=f"lost-queued:1@{marker}") == 0, crawl.said
    assert marker.exists(), "the step was not reached"
    assert readable(crawl) == before
    assert [row.url for row in crawl.rows() if row.url == hit.url] == [hit.url], "visited once more, not twice"


def test_a_resume_refuses_an_index_with_a_damaged_row_and_says_what_repairs_it(crawl: Crawler) -> None:
    """The crawl has ended, so nothing else reads the row; an export would refuse it."""
    before, hit, path = readable(crawl), in_the_middle(crawl), index_of(crawl)
    at = path.read_bytes().index(hit.url.encode()) + len(hit.url) - 1
    flip(path, at)
    assert crawl.run(resume=True) == 2
    assert "is not what was written" in crawl.said and f"weft rebuild {crawl.data_dir}" in crawl.said
    assert "Traceback" not in crawl.said
    done = weft("rebuild", crawl.data_dir)
    assert done.returncode == 0, done.stderr
    assert crawl.run(resume=True) == 0, crawl.said
    assert readable(crawl) == before
    exported = weft("export", crawl.data_dir, "--format", "csv", "--out", crawl.data_dir / "pages.csv")
    assert exported.returncode == 0, exported.stderr

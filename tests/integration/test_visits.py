"""A crawl that was made again: every export has one row for each URL and no gone page, and `stats` counts so too.

The visits are put into the store directly, by two processes' slots, one of which has not closed its index yet.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from exporting import AT, html, run
from warcio.archiveiterator import ArchiveIterator

from weft.cli.main import run as weft
from weft.crawl.folder import CrawlFolder
from weft.records import FetchResult, Row
from weft.store.export.request import ExportRequest
from weft.store.pages import PageStore

# path -> the statuses of its visits; an error stands behind the status
VISITS = {
    "/stays": ["200", "304", "304"],
    "/changed": ["200", "200"],
    "/gone": ["200", "304", "404"],
    "/moved": ["200", "301"],
    "/failed": ["200", "500"],
    "/retried": ["500", "200"],
    "/never": ["404", "404"],
    "/once": ["200"],
}
LIVE = {"/stays", "/changed", "/failed", "/retried", "/once"}
STANDING = LIVE | {"/moved", "/never"}


def url_of(path: str) -> str:
    return f"http://a.test{path}"


def visit(item: int, path: str, status: int, n: int) -> tuple[Row, FetchResult]:
    url, at = url_of(path), AT + n
    body = html(item).encode() if status == 200 else b"no"
    moved = url_of("/stays") if status == 301 else url
    row = Row(item, 1, url, moved, status, at, "text/html", "utf-8", "", f"{path} {n}", 0, 0, "", len(body), "")
    head = f"HTTP/1.1 {status} OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    request = f"GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode()
    return row, FetchResult(url, status, head, body, None, "", at - 0.5, at, "127.0.0.1", request)


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    dirs = [tmp_path_factory.mktemp("crawl") / name for name in ("a", "b")]
    for folder in dirs:
        folder.mkdir()
    identity = CrawlFolder(dirs).start([url_of("/stays")])
    stores = [PageStore.open(dirs, crawl_id=identity.id, slot=f"pod0-fetcher{n}") for n in range(2)]
    for store in stores:
        store.may_come_again(0, 0)  # as whoever queues them again has it noted first
    item = 0
    for n in range(3):
        for path, statuses in VISITS.items():
            if n < len(statuses):
                item += 1
                row, result = visit(item, path, int(statuses[n]), n)
                store = stores[item % 2]
                if row.status == 304:
                    store.add_revisit(row, result, of_date=AT, not_modified=True)
                else:
                    store.add(row, result)
        for store in stores:
            store.write()
            store.commit()
    stores[0].close()
    yield dirs
    stores[1].close()


def paths(urls: list[str]) -> list[str]:
    return sorted(url.removeprefix("http://a.test") for url in urls)


def exported(dirs: list[Path], format_: str, out: Path, *, all_visits: bool = False) -> list[str]:
    """The paths in an export, one for each row."""
    run(dirs, ExportRequest(format_, all_visits=all_visits), out)
    if format_ == "jsonl":
        return paths([json.loads(line)["url"] for line in out.read_text().splitlines()])
    if format_ == "csv":
        with out.open(newline="") as file:
            return paths([row["url"] for row in csv.DictReader(file)])
    if format_ == "parquet":
        return paths(parquet.read_table(out).column("url").to_pylist())
    if format_ == "cdxj":
        return paths([json.loads(line.split(" ", 2)[2])["url"] for line in out.read_text().splitlines()])
    if format_ == "markdown":
        told = (line for path in out.rglob("*.md") for line in path.read_text().splitlines())
        return paths([json.loads(line.removeprefix("url: ")) for line in told if line.startswith("url: ")])
    with out.open("rb") as file:
        kinds = ("response", "revisit")
        records = (record for record in ArchiveIterator(file) if record.rec_type in kinds)
        return paths([record.rec_headers.get_header("WARC-Target-URI") for record in records])


@pytest.mark.parametrize("format_", ["jsonl", "csv", "parquet", "cdxj", "warc", "markdown"])
def test_an_export_has_one_row_for_each_url_and_no_gone_page(crawl: list[Path], format_: str, tmp_path: Path) -> None:
    assert exported(crawl, format_, tmp_path / "out") == sorted(LIVE if format_ == "markdown" else STANDING)


@pytest.mark.parametrize("format_", ["jsonl", "warc"])
def test_all_visits_are_there_when_asked_for(crawl: list[Path], format_: str, tmp_path: Path) -> None:
    every = sorted(path for path, statuses in VISITS.items() for _ in statuses)
    assert exported(crawl, format_, tmp_path / "out", all_visits=True) == every


def test_the_row_is_that_of_the_copy_which_stands(crawl: list[Path], tmp_path: Path) -> None:
    run(crawl, ExportRequest("jsonl", content="text"), tmp_path / "out")
    rows = {row["url"]: row for row in map(json.loads, (tmp_path / "out").read_text().splitlines())}
    assert {paths([url])[0]: row["title"] for url, row in rows.items()} == {
        "/stays": "/stays 0", "/changed": "/changed 1", "/moved": "/moved 1", "/failed": "/failed 0",
        "/retried": "/retried 1", "/never": "/never 1", "/once": "/once 0",
    }  # fmt: skip
    assert all(rows[url_of(path)]["text"] for path in LIVE)


def test_stats_counts_pages_that_are_there_now(crawl: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    dirs = [str(path) for path in crawl]
    assert weft(["stats", *dirs, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    every = sum(map(len, VISITS.values()))
    stored = sum(statuses.count("200") for statuses in VISITS.values())
    assert (told["live_pages"], told["urls"], told["gone"]) == (len(LIVE), len(STANDING), 1)
    assert (told["pages"], told["rows"]) == (stored, every)
    assert told["errors"] == {"http_4xx": 1} and told["hosts"] == {"a.test": len(LIVE)}
    assert sum(told["content_types"].values()) == sum(told["depths"].values()) == len(STANDING)
    assert weft(["stats", *dirs]) == 0
    text = capsys.readouterr().out
    assert f"pages      {len(LIVE)}  ({len(STANDING)} URLs ended" in text
    assert f"visits     {every}, {stored} pages stored by them, 1 gone since" in text

"""An export goes on over pages that cannot be read: everything else is written, and those are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from crawling import weft
from exporting import killed, make_crawl, page, run, url_of

from weft.cli.main import run as weft_here
from weft.records import Row
from weft.store.export.job import ExportResult
from weft.store.export.request import ExportRequest
from weft.store.pages import PageStore
from weft.store.warc.warc_read import WarcScan

PAGES = 60
HIT = (5, 31)  # pages whose records are damaged


def rows_of(dirs: list[Path]) -> dict[int, Row]:
    store = PageStore.open(dirs, read_only=True)
    try:
        return {row.item: row for row in store.rows()}
    finally:
        store.abandon()


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    dirs = make_crawl(tmp_path_factory.mktemp("crawl"), PAGES, data_dirs=1)
    rows = rows_of(dirs)
    path = dirs[0] / "warc" / rows[HIT[0]].warc_file
    with path.open("r+b") as file:
        for item in HIT:
            file.seek(rows[item].warc_offset + rows[item].warc_length // 2)
            file.write(b"\xff" * 40)
    return dirs


def check_unread(done: ExportResult, out: Path) -> None:
    assert done.unread == 2 and out.exists()
    assert [page.split(" ")[0] for page in done.unread_pages] == [url_of(item) for item in HIT]
    assert all("no WARC record at" in page for page in done.unread_pages)


def test_jsonl_has_the_row_without_the_content_and_says_so(crawl: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "o.jsonl"
    done = run(crawl, ExportRequest("jsonl", content="text"), out)
    check_unread(done, out)
    told = {one["url"]: one for one in map(json.loads, out.read_bytes().splitlines())}
    assert done.rows == len(told) == PAGES
    for item, row in rows_of(crawl).items():
        one = told[row.url]
        if item in HIT:
            assert (one["text"], one["error"], one["title"]) == (None, "unreadable", row.title)
        elif 200 <= row.status < 300 and row.content_type == "text/html":
            assert f"This is page {item}," in one["text"] and one["error"] is None


def test_markdown_and_cdxj_leave_them_out(crawl: list[Path], tmp_path: Path) -> None:
    whole = [row for item, row in rows_of(crawl).items() if item not in HIT and row.warc_file]
    done = run(crawl, ExportRequest("cdxj"), tmp_path / "o.cdxj")
    check_unread(done, tmp_path / "o.cdxj")
    lines = (tmp_path / "o.cdxj").read_text().splitlines()
    assert len(lines) == done.rows == len(whole)
    done = run(crawl, ExportRequest("markdown"), tmp_path / "o")
    check_unread(done, tmp_path / "o")
    pages = [row for row in whole if 200 <= row.status < 300 and row.content_type == "text/html"]
    assert len(list((tmp_path / "o").rglob("*.md"))) == done.rows == len(pages)


def test_parquet_has_the_row_without_the_content(crawl: list[Path], tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    done = run(crawl, ExportRequest("parquet", content="text"), tmp_path / "o.parquet")
    check_unread(done, tmp_path / "o.parquet")
    told = {one["url"]: one["text"] for one in pq.read_table(tmp_path / "o.parquet").to_pylist()}
    assert told[url_of(HIT[0])] is None and "This is page 1," in told[url_of(1)]


def test_warc_copies_whole_records_alone(crawl: list[Path], tmp_path: Path) -> None:
    done = run(crawl, ExportRequest("warc"), tmp_path / "o.warc.gz")
    check_unread(done, tmp_path / "o.warc.gz")
    scan = WarcScan(tmp_path / "o.warc.gz")
    kinds = [place.record.kind for place in scan]
    assert kinds == ["warcinfo", *["request", "response"] * done.rows]  # each with its own request
    assert not scan.torn and not scan.gaps
    assert done.rows == len([row for row in rows_of(crawl).values() if row.warc_file]) - 2


def test_without_the_content_nothing_is_read_and_nothing_is_missing(crawl: list[Path], tmp_path: Path) -> None:
    done = run(crawl, ExportRequest("csv"), tmp_path / "o.csv")
    assert (done.unread, done.unread_pages, done.rows) == (0, (), PAGES)


def test_an_interrupted_export_remembers_what_it_could_not_read(crawl: list[Path], tmp_path: Path) -> None:
    out, order = tmp_path / "o.jsonl", ExportRequest("jsonl", content="text")

    def die(live: Callable[[], None]) -> None:
        run(crawl, order, out, checkpoint_rows=10, watch=lambda *_: live())

    killed(die, 3)
    done = run(crawl, order, out, checkpoint_rows=10)
    assert done.resumed >= 20 and done.rows == PAGES
    check_unread(done, out)


def test_a_file_that_is_gone_costs_its_pages_alone(tmp_path: Path) -> None:
    dirs = make_crawl(tmp_path / "crawl", PAGES, data_dirs=1, rotate_bytes=8000)
    gone = min((dirs[0] / "warc").glob("*/*"))
    pages = [row for row in rows_of(dirs).values() if 200 <= row.status < 300]
    gone.unlink()
    for name in ("jsonl", "warc", "cdxj"):
        done = run(
            dirs, ExportRequest(name, content="text" if name == "jsonl" else "none", statuses=("2xx",)), tmp_path / name
        )
        assert done.unread == len([row for row in pages if row.warc_file == f"1/{gone.name}"]) > 0
        assert "cannot be read: No such file" in done.unread_pages[0]


def test_a_damaged_text_is_reported_too(tmp_path: Path) -> None:
    dirs = make_crawl(tmp_path / "crawl", 0, data_dirs=1)
    store = PageStore.open(dirs, crawl_id="x", keep=("text",), slot="s")
    for n in (1, 2):
        store.add(*page(n), text=f"text {n} é")
    store.close()
    texts = sorted(dirs[0].rglob("content/*/*/*.txt"))
    texts[0].write_bytes(texts[0].read_bytes()[:-1])  # in the middle of a character
    done = run(dirs, ExportRequest("jsonl", content="text"), tmp_path / "o.jsonl")
    assert done.unread == 1 and "is damaged" in done.unread_pages[0]
    told = [json.loads(line)["text"] for line in (tmp_path / "o.jsonl").read_bytes().splitlines()]
    assert len(told) == 2 and told.count(None) == 1


def test_the_command_names_them_and_exits_with_1(
    crawl: list[Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o.jsonl"
    command = ["export", str(crawl[0]), "--format", "jsonl", "--content", "text", "--out", str(out)]
    assert weft_here(command) == 1
    err = capfd.readouterr().err
    assert f"{PAGES} rows in {out}" in err and "2 pages could not be read" in err
    assert all(url_of(item) in err for item in HIT) and f"weft rebuild {crawl[0]}" in err
    assert weft_here([*command, "--json", "--quiet"]) == 1
    told, err = capfd.readouterr()
    assert json.loads(told)["unread"] == 2 and len(json.loads(told)["unread_pages"]) == 2
    assert "2 pages could not be read" in err
    piped = weft("export", crawl[0], "--format", "warc", "--out", "-")
    assert piped.returncode == 1 and "2 pages could not be read" in piped.stderr
    out.unlink()
    assert weft_here([*command, "--status", "404"]) == 0
    assert "could not be read" not in capfd.readouterr().err


def test_get_says_in_one_message_that_a_page_is_damaged(crawl: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    url = url_of(HIT[0])
    for what in ("--text", "--body", "--links", "--headers"):
        assert weft_here(["get", str(crawl[0]), url, what]) == 1
        out, err = capfd.readouterr()
        assert out == "" and f"the stored page of {url} is damaged" in err and f"weft rebuild {crawl[0]}" in err
    assert weft_here(["get", str(crawl[0]), url]) == 0  # what is known about it is in the index
    assert json.loads(capfd.readouterr().out)["url"] == url

"""Pages kept as text: one whole file for each, there before its row, with WARC files or without them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from crawling import Crawler, weft_here
from exporting import killed, make_crawl, page, run, url_of

from weft.errors import DiskFull
from weft.records import Row
from weft.store import text
from weft.store.export.request import ExportRequest
from weft.store.pages import PageStore
from weft.store.text import TextFiles
from weft.testing.web import synthetic_web

ITEMS = 60


def text_of(n: int) -> str:
    return f"The text of {n}: é 漢字\r\n" * (n * 20)


def keep_all(folders: list[Path], keep: tuple[str, ...], step: Callable[[str], None] = lambda _: None) -> None:
    """Stores every item that is not there yet, as the engine does."""
    store = PageStore.open(folders, crawl_id="c1", keep=keep, step=step)
    there = {row.item for row in store.rows()}
    for n in (n for n in range(1, ITEMS + 1) if n not in there):
        row, result = page(n)
        store.add(row, result, text=text_of(n) if row.status == 200 else None)
        if n % 7 == 0:
            store.write()
            store.commit()
    store.close()


def rows_of(folders: list[Path]) -> list[Row]:
    store = PageStore.open(folders, read_only=True)
    try:
        return list(store.rows())
    finally:
        store.abandon()


def files_of(folders: list[Path]) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for folder in folders for path in folder.rglob("content/*/*/*.txt")}


def test_a_text_lies_under_the_hash_of_its_url(tmp_path: Path) -> None:
    name = sha256(b"http://a.test/").hexdigest()
    TextFiles(tmp_path).write("http://a.test/", "é\r\n", 7)
    TextFiles(tmp_path).write("http://a.test/", "é\r\n", 7)
    path = tmp_path / "content" / "7" / name[:2] / f"{name}.txt"
    assert path.read_bytes() == "é\r\n".encode() and text.read_text(tmp_path, "http://a.test/", 7) == "é\r\n"
    assert text.read_text(tmp_path, "http://b.test/", 7) is None
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == [path.name]
    TextFiles(tmp_path).write("http://a.test/", "half \ud800 a pair", 7)
    assert text.read_text(tmp_path, "http://a.test/", 7) == "half ? a pair"


@pytest.mark.parametrize("keep", [("text",), ("warc", "text")], ids=lambda keep: "+".join(keep))
@pytest.mark.parametrize(
    ("step", "times"), [("text-written", 1), ("text-written", 17), ("warc-written", 3), ("half", 9)]
)
def test_killed_it_leaves_no_half_text_and_goes_on(
    tmp_path: Path, keep: tuple[str, ...], step: str, times: int
) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]

    def crawl(live: Callable[[], None]) -> None:
        if step == "half":
            setattr(os, "write", _halving(os.write, live))  # noqa: B010 - in the process that is killed
        keep_all(folders, keep, lambda name: live() if name == step else None)

    killed(crawl, times)
    whole = {sha256(url_of(n).encode()).hexdigest() + ".txt": text_of(n).encode() for n in range(1, ITEMS + 1)}
    assert all(whole[name] == data for name, data in files_of(folders).items())
    for row in rows_of(folders):
        assert row.status != 200 or text.text_path(row.url, row.crawl).rpartition("/")[2] in files_of(folders)
    keep_all(folders, keep)
    rows = rows_of(folders)
    assert [row.item for row in rows] == [*range(1, ITEMS + 1)]
    pages = [row for row in rows if row.status == 200 and not row.error]
    assert {text.text_path(row.url, row.crawl).rpartition("/")[2] for row in pages} == set(files_of(folders))
    assert all(whole[name] == data for name, data in files_of(folders).items())
    assert all(bool(row.warc_file) == ("warc" in keep and row.status > 0) for row in rows)
    assert not [path for folder in folders for path in folder.rglob("content/*/*/*.part")]


def _halving(write: Callable[[int, bytes], int], live: Callable[[], None]) -> Callable[[int, bytes], int]:
    """Writes half of the data, and may not come to the other half."""

    def half(fd: int, data: bytes) -> int:
        done = write(fd, data[: len(data) // 2])
        live()
        return done + write(fd, data[done:])

    return half


def test_without_warc_there_are_no_warc_files_and_pages_count(tmp_path: Path) -> None:
    keep_all([tmp_path], ("text",))
    store = PageStore.open([tmp_path], read_only=True)
    stats, rows = store.stats(), list(store.rows())
    store.abandon()
    assert not list((tmp_path / "warc").glob("*/*"))
    assert stats.pages == len([row for row in rows if row.status == 200]) > 40
    assert all(row.digest.startswith("sha1:") for row in rows if row.status)


def test_a_full_disk_is_reported_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PageStore.open([tmp_path], crawl_id="c1", keep=("text",))
    row, result = page(1)
    store.add(row, result, text=text_of(1))
    write = os.write
    monkeypatch.setattr(os, "write", lambda _fd, _data: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(DiskFull):
        store.write()
    monkeypatch.setattr(os, "write", write)
    store.write()
    assert store.commit() == 1 and store.text(row) == text_of(1)
    store.close()


def test_exports_tell_where_the_text_is(tmp_path: Path) -> None:
    dirs = make_crawl(tmp_path / "crawl", 0, data_dirs=1)
    keep_all(dirs, ("text",))
    run(dirs, ExportRequest("jsonl", content="text"), tmp_path / "o.jsonl")
    told = [json.loads(line) for line in (tmp_path / "o.jsonl").read_bytes().splitlines()]
    assert told[0]["content_path"] == str(dirs[0] / text.text_path(url_of(1), 1)) and told[0]["text"] == text_of(1)
    assert Path(told[0]["content_path"]).exists()
    assert told[8]["content_path"] is None and told[8]["text"] is None


def test_a_crawl_keeps_texts_alone_and_never_exceeds_its_limit(tmp_path: Path) -> None:
    with synthetic_web(hosts=4, pages=80, stocked=1) as web:
        crawler = Crawler(web.seeds, tmp_path, "--max-pages", 20, "--store", "text", delay_s=0)
        assert crawler.run() == 3, crawler.said
        assert crawler.run("--max-pages", 30, resume=True) == 3, crawler.said
        rows = crawler.rows()
    pages = [row for row in rows if row.status == 200 and not row.error]
    assert len(pages) == 30 and not list((crawler.data_dir / "warc").glob("*/*"))
    kept = [row for row in pages if text.read_text(crawler.data_dir, row.url, row.crawl)]
    assert len(kept) >= 25
    shown = weft_here("get", crawler.data_dir, kept[0].url, "--text")
    assert (
        shown.returncode == 0
        and shown.stdout.strip() == (text.read_text(crawler.data_dir, kept[0].url, 1) or "").strip()
    )
    assert "stores only texts" in weft_here("get", crawler.data_dir, kept[0].url, "--body").stderr
